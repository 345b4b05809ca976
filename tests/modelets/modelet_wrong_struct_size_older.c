/* SPDX-License-Identifier: Apache-2.0 */
/* A table shorter than the first one ever was. */
#define WRONG .struct_size = offsetof(struct shoal_modelet, describe_model) - 8
#include "wrong.h"
