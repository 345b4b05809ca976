/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing to run. */
#define WRONG .run = NULL
#include "wrong.h"
