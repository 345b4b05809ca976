/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of another size: arrays of them would be stepped through wrongly. */
#define WRONG .tensor_size = sizeof(struct shoal_tensor) + 8
#include "wrong.h"
