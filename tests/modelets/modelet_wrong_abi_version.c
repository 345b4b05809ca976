/* SPDX-License-Identifier: Apache-2.0 */
/* Of another version of the ABI. */
#define WRONG .abi_version = 2
#include "wrong.h"
