/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/batch.h"

#include "base/check.h"
#include "base/clock.h"

void
batch_init(struct batch *batch, uint32_t size, int64_t wait_ns)
{
    CHECK(size >= 1 && wait_ns >= 0);
    *batch = (struct batch){.size = size, .wait_ns = wait_ns};
    batch_begin(batch);
}

void
batch_begin(struct batch *batch)
{
    batch->count = 0;
    batch->refused = false;
    batch->alone = false;
    batch->oldest_ns = TIME_NEVER_NS;
    batch->tightest_ns = TIME_NEVER_NS;
}

void
batch_refuse(struct batch *batch)
{
    CHECK(batch->count > 0);
    batch->refused = true;
}

bool
batch_offer(struct batch *batch, struct batch_item item, int64_t now_ns)
{
    if (batch->count > 0 && (item.alone || item.model != batch->model))
        batch->refused = true;
    if (batch_full(batch) || batch->refused)
        return false;
    /* Another process wrote it: an item from the future counts as just arrived. */
    int64_t enqueued_ns = item.enqueued_ns < now_ns ? item.enqueued_ns : now_ns;
    if (enqueued_ns < batch->oldest_ns)
        batch->oldest_ns = enqueued_ns;
    if (item.deadline_ns < batch->tightest_ns)
        batch->tightest_ns = item.deadline_ns;
    batch->model = item.model;
    batch->alone = item.alone;
    batch->count++;
    return true;
}

/* Returns time + length, at most TIME_NEVER_NS. */
static int64_t
time_after(int64_t time_ns, int64_t length_ns)
{
    int64_t sum;
    return __builtin_add_overflow(time_ns, length_ns, &sum) ? TIME_NEVER_NS : sum;
}

static int64_t
time_before(int64_t time_ns, int64_t length_ns)
{
    int64_t difference;
    return __builtin_sub_overflow(time_ns, length_ns, &difference) ? INT64_MIN : difference;
}

static int64_t
earliest(int64_t a_ns, int64_t b_ns, int64_t c_ns)
{
    int64_t ab_ns = a_ns < b_ns ? a_ns : b_ns;
    return ab_ns < c_ns ? ab_ns : c_ns;
}

int64_t
batch_wait_over_ns(const struct batch *batch)
{
    return time_after(batch->oldest_ns, batch->wait_ns);
}

struct batch_due
batch_due(const struct batch *batch, struct batch_moment moment)
{
    if (batch->count == 0)
        return (struct batch_due){BATCH_OPEN, TIME_NEVER_NS};
    if (batch->size == 1 || batch->alone)
        return (struct batch_due){BATCH_CLOSED_SINGLE, 0};
    if (batch_full(batch) || batch->refused)
        return (struct batch_due){BATCH_CLOSED_FULL, 0};
    if (moment.draining)
        return (struct batch_due){BATCH_CLOSED_DRAINING, 0};
    int64_t wait_over_ns = batch_wait_over_ns(batch);
    if (wait_over_ns <= moment.now_ns)
        return (struct batch_due){BATCH_CLOSED_WAIT, 0};
    int64_t start_ns = batch->tightest_ns == TIME_NEVER_NS
                           ? TIME_NEVER_NS
                           : time_before(batch->tightest_ns, moment.run_expected_ns);
    if (start_ns <= moment.now_ns)
        return (struct batch_due){BATCH_CLOSED_DEADLINE, 0};
    int64_t until_ns = batch->adaptive ? moment.company_until_ns : TIME_NEVER_NS;
    if (until_ns <= moment.now_ns)
        return (struct batch_due){BATCH_CLOSED_ADAPTIVE, 0};
    return (struct batch_due){BATCH_OPEN, earliest(wait_over_ns, start_ns, until_ns)};
}
