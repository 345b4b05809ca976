/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins a thread with a deadline on the monotonic clock, so that setting the wall clock neither
 * shortens the wait nor makes it endless.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

/* Returns false if the thread has not ended by `deadline_ns` of clock_now_ns; it is then not
 * joined. */
bool join_until(pthread_t thread, int64_t deadline_ns) WARN_UNUSED;
