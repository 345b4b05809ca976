/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled with a newer header: expects more host functions. */
#define WRONG .host_size = sizeof(struct shoal_host) + 8
#include "wrong.h"
