/* SPDX-License-Identifier: Apache-2.0 */
/* Durations as Go writes them: "2s", "50ms", "1m30s", "0". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* False: it is none, or is longer than 10^9 ms. */
bool duration_read(const char *text, int64_t *ms);
