/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with a newer header: a longer batch. */
#define WRONG .batch_size = sizeof(struct shoal_batch) + 8
#include "wrong.h"
