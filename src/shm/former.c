/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/former.h"

#include "shm/doorbell.h"

enum { FORMER_NONE = 0 };

static uint32_t
former_word(uint32_t worker_index, uint16_t party)
{
    return worker_index << 16 | party;
}

static bool
former_change(struct shm_stage *stage, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&stage->former, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

bool
former_take(const struct region *region, uint32_t stage_index, uint32_t worker_index,
            uint16_t party)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint32_t me = former_word(worker_index, party);
    return former_change(stage, FORMER_NONE, me) ||
           atomic_load_explicit(&stage->former, memory_order_acquire) == me;
}

static bool
stage_has_work(const struct region *region, uint32_t stage_index)
{
    struct shm_ring ring = region_slot_ring(region, (uint8_t)stage_index);
    return ring_has_cell(&ring);
}

/* Gives the free role to a worker that is idle, if there is one, and wakes it. */
static void
appoint_idle(const struct region *region, uint32_t stage_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint64_t idle;
    while ((idle = atomic_load_explicit(&stage->idle, memory_order_acquire)) != 0) {
        uint32_t index = (uint32_t)__builtin_ctzll(idle);
        if (index >= region->layout.plan.worker_counts[stage_index])
            return; /* a bit that no honest worker sets */
        struct shm_worker *worker = region_worker(region, stage_index, index);
        uint16_t party = (uint16_t)atomic_load_explicit(&worker->party, memory_order_relaxed);
        if (!former_change(stage, FORMER_NONE, former_word(index, party)))
            return; /* somebody has the role */
        doorbell_ring(&worker->bell);
        if (atomic_load_explicit(&stage->idle, memory_order_acquire) & UINT64_C(1) << index)
            return;
        /* It was awake after all, and may by now be busy with a batch: then the role must not wait
         * for it. If it has just seen its appointment there are two formers for one batch, which
         * makes that batch smaller and nothing else. */
        if (!former_change(stage, former_word(index, party), FORMER_NONE))
            return;
    }
    /* none is idle: all are at work, and look at the ring when they are done */
}

void
former_leave(const struct region *region, uint32_t stage_index, uint32_t worker_index,
             uint16_t party)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    former_change(stage, former_word(worker_index, party), FORMER_NONE);
    /* pairs with the fence in stage_notify: the pusher sees the role free, or we see its push */
    atomic_thread_fence(memory_order_seq_cst);
    if (stage_has_work(region, stage_index))
        appoint_idle(region, stage_index);
}

void
stage_notify(const struct region *region, uint32_t stage_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t former = atomic_load_explicit(&stage->former, memory_order_relaxed);
    if (former == FORMER_NONE) {
        appoint_idle(region, stage_index);
        return;
    }
    uint32_t index = former >> 16;
    if (index < region->layout.plan.worker_counts[stage_index])
        doorbell_ring(&region_worker(region, stage_index, index)->bell);
}

void
idle_enter(const struct region *region, uint32_t stage_index, uint32_t worker_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    atomic_fetch_or_explicit(&stage->idle, UINT64_C(1) << worker_index, memory_order_acq_rel);
}

void
idle_leave(const struct region *region, uint32_t stage_index, uint32_t worker_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    atomic_fetch_and_explicit(&stage->idle, ~(UINT64_C(1) << worker_index), memory_order_acq_rel);
}

bool
stage_wants_former(const struct region *region, uint32_t stage_index, uint32_t worker_index,
                   uint16_t party)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint32_t former = atomic_load_explicit(&stage->former, memory_order_acquire);
    if (former == FORMER_NONE)
        return stage_has_work(region, stage_index);
    return former == former_word(worker_index, party);
}

void
former_evict(const struct region *region, uint32_t stage_index, uint32_t worker_index,
             uint16_t dead)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    former_change(stage, former_word(worker_index, dead), FORMER_NONE);
    idle_leave(region, stage_index, worker_index);
}
