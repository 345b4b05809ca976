/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins a thread by a deadline on the monotonic clock, so that a wall clock that is set meanwhile
 * neither cuts the wait short nor makes it endless.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Returns false if the thread has not ended by `deadline_ns` of clock_now_ns; it is not joined. */
bool join_until(pthread_t thread, int64_t deadline_ns) WARN_UNUSED;
