/* SPDX-License-Identifier: Apache-2.0 */
/* Right, but for one worker only. */
#define WRONG .workers_max = 1
#include "wrong.h"
