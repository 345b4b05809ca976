/* SPDX-License-Identifier: Apache-2.0 */
/* A rate that threads share: each says what it has received and waits its part. */
#pragma once

#include <pthread.h>
#include <stdint.h>

struct pace {
    uint64_t bytes_per_s; /* 0: no limit */
    pthread_mutex_t lock;
    int64_t free_ns; /* when all that was received would have come at that rate [lock] */
};

/* Returns until when the caller is to wait. */
int64_t pace_take(struct pace *pace, uint64_t bytes);
