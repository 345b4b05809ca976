/* SPDX-License-Identifier: Apache-2.0 */
/* No name. */
#define WRONG .name = NULL
#include "wrong.h"
