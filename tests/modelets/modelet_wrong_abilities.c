/* SPDX-License-Identifier: Apache-2.0 */
/* An ability that this worker does not know. */
#define WRONG .abilities = 1u << 30
#include "wrong.h"
