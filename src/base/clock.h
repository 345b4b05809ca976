/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one clock: CLOCK_MONOTONIC in nanoseconds, the same in all processes of a machine, so that
 * times may be passed in shared memory. `_ns` after a noun like deadline or time is a point in
 * time; after timeout, wait or duration it is a length.
 */
#pragma once

#include <stdint.h>

enum { NS_PER_US = 1000, NS_PER_MS = 1000000 };
#define NS_PER_S 1000000000LL

/* A deadline that never comes. */
#define TIME_NEVER_NS INT64_MAX

int64_t clock_now_ns(void);
