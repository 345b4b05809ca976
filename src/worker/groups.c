/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/groups.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"

bool
groups_init(struct groups *groups, uint32_t size, int64_t wait_ns, enum groups_ahead ahead)
{
    uint32_t capacity = ahead == GROUPS_BY_MODEL && size > 1 ? 2 * size : size;
    *groups = (struct groups){.size = size, .capacity = capacity};
    groups->batches = calloc(capacity, sizeof(groups->batches[0]));
    groups->items = calloc(capacity, sizeof(groups->items[0]));
    groups->positions = calloc(capacity, sizeof(groups->positions[0]));
    if (groups->batches == NULL || groups->items == NULL || groups->positions == NULL) {
        groups_fini(groups);
        return false;
    }
    for (uint32_t i = 0; i < capacity; i++) {
        groups->positions[i] = i;
        batch_init(&groups->batches[i], size, wait_ns);
    }
    return true;
}

void
groups_adapt(struct groups *groups)
{
    for (uint32_t i = 0; i < groups->capacity; i++)
        groups->batches[i].adaptive = true;
}

void
groups_fini(struct groups *groups)
{
    free(groups->batches);
    free(groups->items);
    free(groups->positions);
    *groups = (struct groups){0};
}

/* Returns the group of a model, a new one if necessary. A load and a comparison with a single
 * group. */
static uint32_t
group_of(struct groups *groups, uint64_t model)
{
    for (uint32_t i = 0; i < groups->count; i++)
        if (groups->batches[i].model == model)
            return i;
    batch_begin(&groups->batches[groups->count]);
    return groups->count++;
}

void
groups_take(struct groups *groups, struct batch_item item, int64_t now_ns)
{
    CHECK(!groups_full(groups));
    uint32_t group = group_of(groups, item.model);
    CHECK(batch_offer(&groups->batches[group], item, now_ns));
    groups->items[groups->held++] = (struct groups_item){item, group};
    groups->filled = batch_full(&groups->batches[group]);
}

void
groups_refuse(struct groups *groups)
{
    CHECK(groups->held > 0);
    batch_refuse(&groups->batches[groups_oldest(groups)]);
    groups->filled = true;
}

/* ---- which one goes ---- */

uint32_t
groups_oldest(const struct groups *groups)
{
    CHECK(groups->count > 0);
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < groups->count; i++)
        if (groups->batches[i].oldest_ns < groups->batches[oldest].oldest_ns)
            oldest = i;
    return oldest;
}

int64_t
groups_close_ns(const struct groups *groups)
{
    if (groups->count == 0)
        return TIME_NEVER_NS;
    return batch_wait_over_ns(&groups->batches[groups_oldest(groups)]);
}

bool
groups_joined(const struct groups *groups)
{
    CHECK(groups->held > 0);
    return groups->batches[groups->items[groups->held - 1].group].count > 1;
}

static struct batch_due
group_due(const struct batch *batch, const struct groups_moment *moment)
{
    return batch_due(batch, (struct batch_moment){
                                .now_ns = moment->now_ns,
                                .run_expected_ns =
                                    cost_expect_ns(moment->cost, batch->count) + moment->margin_ns,
                                .draining = moment->draining,
                                .company_until_ns = moment->company_until_ns,
                            });
}

struct groups_due
groups_due(const struct groups *groups, const struct groups_moment *moment)
{
    struct groups_due answer = {.state = BATCH_OPEN, .look_again_ns = TIME_NEVER_NS};
    int64_t oldest_ns = 0;
    if (groups->count == 1 && groups->capacity == groups->size) { /* a single group: nothing else to
                                                                   * do */
        struct batch_due due = group_due(&groups->batches[0], moment);
        return (struct groups_due){.state = due.state, .look_again_ns = due.look_again_ns};
    }
    for (uint32_t i = 0; i < groups->count; i++) {
        const struct batch *batch = &groups->batches[i];
        struct batch_due due = group_due(batch, moment);
        if (due.state == BATCH_OPEN) {
            if (due.look_again_ns < answer.look_again_ns)
                answer.look_again_ns = due.look_again_ns;
        } else if (answer.state == BATCH_OPEN || batch->oldest_ns < oldest_ns) {
            answer.state = due.state;
            answer.group = i;
            oldest_ns = batch->oldest_ns;
        }
    }
    if (answer.state == BATCH_OPEN && groups->held > 0 && groups_full(groups)) {
        answer.state = BATCH_CLOSED_CROWDED;
        answer.group = groups_oldest(groups);
    }
    return answer;
}

/* ---- taking out ---- */

static uint32_t
take_all_out(struct groups *groups, uint32_t *positions)
{
    uint32_t held = groups->held;
    for (uint32_t i = 0; i < held; i++)
        positions[i] = groups->positions[i];
    groups->held = 0;
    groups->count = 0;
    groups->filled = false;
    return held;
}

/* Closes the gap in groups and items, which stay in order of arrival. */
static uint32_t
take_some_out(struct groups *groups, uint32_t group, uint32_t *positions)
{
    uint32_t closed = 0;
    uint32_t left = 0;
    uint32_t count = groups->batches[group].count;
    groups->count--;
    for (uint32_t i = group; i < groups->count; i++)
        groups->batches[i] = groups->batches[i + 1];
    for (uint32_t i = 0; i < groups->held; i++) {
        if (groups->items[i].group == group) {
            positions[closed++] = groups->positions[i];
            continue;
        }
        groups->items[left] = groups->items[i];
        groups->items[left].group -= groups->items[left].group > group;
        groups->positions[left++] = groups->positions[i];
    }
    groups->held = left;
    CHECK(closed == count);
    for (uint32_t i = 0; i < closed; i++)
        groups->positions[left + i] = positions[i];
    groups->filled = false;
    for (uint32_t i = 0; i < groups->count; i++)
        groups->filled |= batch_full(&groups->batches[i]);
    return closed;
}

uint32_t
groups_close(struct groups *groups, uint32_t group, uint32_t *positions, uint64_t *model)
{
    CHECK(group < groups->count);
    *model = groups->batches[group].model;
    CHECK(groups->count > 1 || groups->batches[group].count == groups->held);
    if (groups->count == 1) /* the usual case with a single group */
        return take_all_out(groups, positions);
    return take_some_out(groups, group, positions);
}

uint32_t
groups_clear(struct groups *groups, uint32_t *positions)
{
    return take_all_out(groups, positions);
}

/* Offers all remaining items again, because a batch cannot forget single items. */
void
groups_sieve(struct groups *groups, int64_t now_ns, bool (*gone)(void *context, uint32_t position),
             void *context)
{
    uint32_t had = groups->held;
    groups->held = 0;
    groups->count = 0;
    groups->filled = false;
    for (uint32_t i = 0; i < had; i++) {
        struct groups_item item = groups->items[i];
        uint32_t position = groups->positions[i];
        if (gone(context, position))
            continue;
        item.group = group_of(groups, item.item.model);
        CHECK(batch_offer(&groups->batches[item.group], item.item, now_ns));
        groups->filled |= batch_full(&groups->batches[item.group]);
        /* swap positions: the removed ones become free, behind all that stay */
        groups->positions[i] = groups->positions[groups->held];
        groups->positions[groups->held] = position;
        groups->items[groups->held++] = item;
    }
}
