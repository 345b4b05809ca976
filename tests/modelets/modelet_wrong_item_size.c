/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with a newer header: a longer item. */
#define WRONG .item_size = sizeof(struct shoal_item) + 8
#include "wrong.h"
