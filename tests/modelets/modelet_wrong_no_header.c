/* SPDX-License-Identifier: Apache-2.0 */
/* SHOAL_MODELET_HEADER was forgotten: all sizes but the version are zero. */
#define WRONG .struct_size = 0, .host_size = 0, .batch_size = 0, .item_size = 0, .tensor_size = 0
#include "wrong.h"
