/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/oldest.h"

#include <string.h>

#include "base/clock.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "ipc/counters.h"
#include "shm/slot.h"

struct oldest_found {
    const struct lane *lane;
    uint32_t index;
    uint64_t use;
    int64_t arrived_ns;
};

/* Oldest first. */
struct oldest {
    struct oldest_found found[OLDEST_MAX];
    uint32_t count;
};

/* ---- which ---- */

static void
oldest_offer(struct oldest *oldest, struct oldest_found found)
{
    uint32_t place = oldest->count;
    while (place > 0 && oldest->found[place - 1].arrived_ns > found.arrived_ns)
        place--;
    if (place == OLDEST_MAX)
        return;
    if (oldest->count < OLDEST_MAX)
        oldest->count++;
    memmove(&oldest->found[place + 1], &oldest->found[place],
            (oldest->count - place - 1) * sizeof(found));
    oldest->found[place] = found;
}

static void
look_through(struct oldest *oldest, const struct lane *lane)
{
    for (uint32_t i = 0; i < lane->region.slots.count; i++) {
        const struct request *request = &lane->requests[i];
        uint64_t use = atomic_load_explicit(&request->use, memory_order_acquire);
        enum request_state state = use_state(use);
        if (state != REQUEST_IN_FLIGHT && state != REQUEST_ANSWERED && state != REQUEST_WAITING)
            continue;
        int64_t arrived_ns = atomic_load_explicit(&request->arrived_ns, memory_order_relaxed);
        oldest_offer(oldest, (struct oldest_found){lane, i, use, arrived_ns});
    }
}

/* ---- its stage and owner ---- */

struct whereabouts {
    enum oldest_where where;
    uint32_t stage_scope; /* 0: none */
    uint32_t owner;       /* index in its stage */
    int32_t pid;          /* 0: none */
};

/* Finds the models of the worker that holds it, according to `word`. */
static struct whereabouts
find_worker_models(const struct lane *lane, const struct worker_pools *pools, struct shm_word word)
{
    const struct lane_workers *workers = lane->pipeline->options.workers;
    uint32_t stage = word.place;
    for (uint32_t i = 0; i < lane->region.layout.plan.worker_counts[stage]; i++) {
        struct worker_process process = workers->process(pools, stage, i);
        if (process.worker == NULL || process.owner != word.owner)
            continue;
        bool runs = atomic_load_explicit(&process.worker->run_began_ns, memory_order_relaxed) != 0;
        return (struct whereabouts){.where = runs ? OLDEST_RUNS : OLDEST_IN_BATCH,
                                    .stage_scope = lane->generation->stage_scopes[stage],
                                    .owner = i,
                                    .pid = process.pid};
    }
    return (struct whereabouts){.where = OLDEST_UNKNOWN};
}

static struct whereabouts
find(const struct lane *lane, const struct worker_pools *pools, const struct oldest_found *found)
{
    if (use_state(found->use) == REQUEST_ANSWERED)
        return (struct whereabouts){.where = OLDEST_BEING_ANSWERED};
    if (use_state(found->use) == REQUEST_WAITING)
        return (struct whereabouts){.where = OLDEST_WAITS_FOR_MODEL};
    struct shm_word word = word_unpack(
        atomic_load_explicit(object_word(&lane->region.slots, found->index), memory_order_relaxed));
    bool at_stage = word.place < lane->region.layout.plan.stage_count;
    bool at_end = word.place == region_result_place(&lane->region) || word.place == PLACE_ERROR;
    if (word.generation != use_generation(found->use) || !(at_stage || at_end))
        return (struct whereabouts){.where = OLDEST_UNKNOWN};
    if (at_end)
        return (struct whereabouts){.where = OLDEST_ANSWER_WAITS};
    if (word.held)
        return find_worker_models(lane, pools, word);
    return (struct whereabouts){.where = OLDEST_WAITS,
                                .stage_scope = lane->generation->stage_scopes[word.place]};
}

/* ---- telling ---- */

static void
publish(struct pipeline *pipeline, uint32_t number, const struct oldest_found *found)
{
    _Atomic uint64_t *values =
        counters_values(pipeline->options.counters, pipeline->options.oldest_scopes + number);
    if (found == NULL) {
        counter_set(values, OLDEST_ARRIVED, 0);
        return;
    }
    const struct lane *lane = found->lane;
    const struct request *request = &lane->requests[found->index];
    struct whereabouts at = find(lane, pipeline->pools[lane->number], found);
    int64_t deadline_ns = slot_deadline_ns(region_slot(&lane->region, found->index));
    counter_set(values, OLDEST_ARRIVED, (uint64_t)found->arrived_ns);
    counter_set(values, OLDEST_WHERE, at.where);
    counter_set(values, OLDEST_STAGE, at.stage_scope);
    counter_set(values, OLDEST_OWNER, at.owner);
    counter_set(values, OLDEST_OWNER_PID, (uint64_t)at.pid);
    counter_set(values, OLDEST_DEATHS,
                atomic_load_explicit(&request->deaths, memory_order_relaxed));
    counter_set(values, OLDEST_DEADLINE, deadline_ns == TIME_NEVER_NS ? 0 : (uint64_t)deadline_ns);
}

void
oldest_publish(struct pipeline *pipeline)
{
    struct oldest oldest = {.count = 0};
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        const struct lane *lane = &pipeline->lanes[i];
        if (pipeline->pools[i] != NULL && share_total(&lane->share) > 0)
            look_through(&oldest, lane);
    }
    for (uint32_t i = 0; i < OLDEST_MAX; i++)
        publish(pipeline, i, i < oldest.count ? &oldest.found[i] : NULL);
}
