/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/core/quota.h"

#include "base/check.h"

enum { MINUTE_MS = 60000, BUSY_MS = 1000 };

void
quota_init(struct quota *quota, const struct quota_limits *limits, int64_t now_ms)
{
    *quota = (struct quota){.limits = *limits,
                            .requests = (double)limits->requests_per_minute,
                            .tokens = (double)limits->tokens_per_minute,
                            .filled_ms = now_ms};
}

static double
at_most(double amount, uint64_t limit)
{
    return amount < (double)limit ? amount : (double)limit;
}

/* A bucket without a limit is empty, or owes. Nothing was taken from it, so a new limit fills it.
 */
static double
changed(double amount, uint64_t before, uint64_t limit)
{
    return before == 0 && amount >= 0 ? (double)limit : at_most(amount, limit);
}

void
quota_change(struct quota *quota, const struct quota_limits *limits)
{
    const struct quota_limits *before = &quota->limits;
    quota->requests =
        changed(quota->requests, before->requests_per_minute, limits->requests_per_minute);
    quota->tokens = changed(quota->tokens, before->tokens_per_minute, limits->tokens_per_minute);
    quota->limits = *limits;
}

/* The time until a bucket holds one. */
static int64_t
wait_ms(double amount, uint64_t limit)
{
    if (limit == 0 || amount >= 1)
        return 0;
    return (int64_t)((1 - amount) * MINUTE_MS / (double)limit) + 1;
}

int64_t
quota_take(struct quota *quota, int64_t now_ms)
{
    const struct quota_limits *limits = &quota->limits;
    double minutes = (double)(now_ms - quota->filled_ms) / MINUTE_MS;
    quota->requests = at_most(quota->requests + minutes * (double)limits->requests_per_minute,
                              limits->requests_per_minute);
    quota->tokens = at_most(quota->tokens + minutes * (double)limits->tokens_per_minute,
                            limits->tokens_per_minute);
    quota->filled_ms = now_ms;
    int64_t of_requests = wait_ms(quota->requests, limits->requests_per_minute);
    int64_t of_tokens = wait_ms(quota->tokens, limits->tokens_per_minute);
    int64_t longest = of_requests > of_tokens ? of_requests : of_tokens;
    if (longest > 0)
        return longest;
    if (limits->concurrency > 0 && quota->open >= limits->concurrency)
        return BUSY_MS;
    quota->open++;
    quota->requests -= limits->requests_per_minute > 0;
    return 0;
}

void
quota_release(struct quota *quota, uint64_t tokens)
{
    CHECK(quota->open > 0);
    quota->open--;
    if (quota->limits.tokens_per_minute > 0)
        quota->tokens -= (double)tokens;
}
