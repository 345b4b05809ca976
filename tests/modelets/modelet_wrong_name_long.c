/* SPDX-License-Identifier: Apache-2.0 */
/* A name that fits nowhere. */
#define WRONG .name = "a-name-of-more-than-sixty-three-bytes-a-name-of-more-than-sixty-three-bytes"
#include "wrong.h"
