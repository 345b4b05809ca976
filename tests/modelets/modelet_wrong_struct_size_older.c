/* SPDX-License-Identifier: Apache-2.0 */
/* A table shorter than the first one ever was. */
#define WRONG .struct_size = sizeof(struct shoal_modelet) - 8
#include "wrong.h"
