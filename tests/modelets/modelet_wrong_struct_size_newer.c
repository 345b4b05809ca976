/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with a newer header: a longer table. */
#define WRONG .struct_size = sizeof(struct shoal_modelet) + 8
#include "wrong.h"
