/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The quota of one key: requests and tokens per minute, as buckets that hold a minute's worth and
 * fill evenly, and requests at a time. Tokens are known only afterwards, so a bucket may become
 * negative; until it is full enough again nothing is taken. A limit of 0 is none. Pure.
 */
#pragma once

#include <stdint.h>

struct quota_limits {
    uint64_t requests_per_minute;
    uint64_t tokens_per_minute;
    uint64_t concurrency;
};

struct quota {
    struct quota_limits limits;
    double requests; /* in the buckets */
    double tokens;
    uint64_t open;
    int64_t filled_ms;
};

/* Full. */
void quota_init(struct quota *quota, const struct quota_limits *limits, int64_t now_ms);
/* Changes the limits; what is in use stays. */
void quota_change(struct quota *quota, const struct quota_limits *limits);
/* Takes a request and returns 0, or the milliseconds after which it may be tried again. */
int64_t quota_take(struct quota *quota, int64_t now_ms);
/* A request that was taken has ended. */
void quota_release(struct quota *quota, uint64_t tokens);
