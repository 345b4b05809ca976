/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/former.h"

#include "shm/doorbell.h"
#include "shm/client_regions.h"

enum { FORMER_NONE = 0 };

static uint32_t
former_word(uint32_t worker_index, uint16_t owner)
{
    return worker_index << 16 | owner;
}

static bool
former_change(struct shm_stage *stage, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(&stage->former, &from, to, memory_order_acq_rel,
                                                   memory_order_relaxed);
}

bool
former_take(const struct region *region, uint32_t stage_index, uint32_t worker_index,
            uint16_t owner)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint32_t me = former_word(worker_index, owner);
    if (!former_change(stage, FORMER_NONE, me) && !former_change(stage, me | FORMER_OFFERED, me) &&
        atomic_load_explicit(&stage->former, memory_order_acquire) != me)
        return false;
    client_regions_hush(region, stage_index); /* we are awake and about to look */
    return true;
}

static bool
stage_has_work(const struct region *region, uint32_t stage_index)
{
    struct shm_ring ring = region_slot_ring(region, (uint8_t)stage_index);
    return ring_has_cell(&ring) || client_regions_have_work(region, stage_index);
}

/* Returns true if the appointed worker sleeps, or is about to look and will see the offer. */
static bool
appointment_holds(struct shm_stage *stage, struct shm_worker *worker, uint32_t index,
                  uint16_t owner)
{
    return (atomic_load_explicit(&stage->idle, memory_order_acquire) & UINT64_C(1) << index) != 0 &&
           atomic_load_explicit(&worker->owner, memory_order_acquire) == owner;
}

/*
 * Offers the free role to an idle worker, if there is one, and wakes it.
 *
 * The worker may in fact be awake and busy with a batch, or dead and replaced in its entry. Then
 * the offer must not wait for it and is taken back, unless it was accepted meanwhile: the former
 * may already sleep with an open batch and relies on being woken by the next push.
 */
static void
appoint_idle(const struct region *region, uint32_t stage_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint64_t indexes = ~UINT64_C(0) >> (64 - region->layout.plan.worker_counts[stage_index]);
    /* Each iteration returns or has seen a worker wake up; the bound is for hostile bitmaps. */
    for (uint32_t turns = 0; turns < 2 * STAGE_WORKERS_MAX; turns++) {
        uint64_t idle = atomic_load_explicit(&stage->idle, memory_order_acquire) & indexes;
        if (idle == 0)
            return; /* all are busy, and look at the ring when they are done */
        uint32_t index = (uint32_t)__builtin_ctzll(idle);
        struct shm_worker *worker = region_worker(region, stage_index, index);
        uint16_t owner = (uint16_t)atomic_load_explicit(&worker->owner, memory_order_acquire);
        if (owner == OWNER_NONE) { /* repair is emptying this entry */
            indexes &= ~(UINT64_C(1) << index);
            continue;
        }
        uint32_t offer = former_word(index, owner) | FORMER_OFFERED;
        if (!former_change(stage, FORMER_NONE, offer))
            return; /* the role is taken */
        doorbell_ring(&worker->bell);
        if (appointment_holds(stage, worker, index, owner) ||
            !former_change(stage, offer, FORMER_NONE))
            return;
        /* pairs with the fence in doorbell_prepare: we see the idle bit of a worker that saw the
         * role taken */
        atomic_thread_fence(memory_order_seq_cst);
        if (!stage_has_work(region, stage_index))
            return; /* otherwise we and a worker that finds no work could repeat this forever */
    }
}

void
former_leave(const struct region *region, uint32_t stage_index, uint32_t worker_index,
             uint16_t owner)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    former_change(stage, former_word(worker_index, owner), FORMER_NONE);
    /* pairs with the fence in stage_notify: the pusher sees the role free, or we see its push */
    atomic_thread_fence(memory_order_seq_cst);
    if (region->client_regions != NULL && region->client_regions->limit > 0 &&
        atomic_load_explicit(&stage->idle, memory_order_relaxed) != 0) {
        /* from here on clients wake a sleeper; earlier pushes are seen below */
        client_regions_arm(region, stage_index);
        atomic_thread_fence(memory_order_seq_cst);
    }
    if (stage_has_work(region, stage_index))
        appoint_idle(region, stage_index);
}

bool
former_ring(const struct region *region, uint32_t stage_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    atomic_thread_fence(memory_order_seq_cst);
    uint32_t former = atomic_load_explicit(&stage->former, memory_order_relaxed);
    if (former == FORMER_NONE)
        return false;
    uint32_t index = (former & ~FORMER_OFFERED) >> 16;
    if (index < region->layout.plan.worker_counts[stage_index])
        doorbell_ring(&region_worker(region, stage_index, index)->bell);
    return true;
}

void
stage_notify(const struct region *region, uint32_t stage_index)
{
    if (!former_ring(region, stage_index))
        appoint_idle(region, stage_index);
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
                   uint16_t owner)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint32_t former = atomic_load_explicit(&stage->former, memory_order_acquire);
    if (former == FORMER_NONE)
        return stage_has_work(region, stage_index);
    return (former & ~FORMER_OFFERED) == former_word(worker_index, owner);
}

/* The order matters: a process that appoints the dead worker after its role was taken sees the
 * empty entry. */
void
former_evict(const struct region *region, uint32_t stage_index, uint32_t worker_index,
             uint16_t dead)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    struct shm_worker *worker = region_worker(region, stage_index, worker_index);
    uint32_t owner = dead;
    atomic_compare_exchange_strong_explicit(&worker->owner, &owner, OWNER_NONE,
                                            memory_order_acq_rel, memory_order_relaxed);
    idle_leave(region, stage_index, worker_index);
    atomic_thread_fence(memory_order_seq_cst);
    former_change(stage, former_word(worker_index, dead), FORMER_NONE);
    former_change(stage, former_word(worker_index, dead) | FORMER_OFFERED, FORMER_NONE);
}

/* Returns true for an offer, whose author may be dead, and for the role of an owner that has lost
 * its entry. */
static bool
role_is_doubtful(const struct region *region, uint32_t stage_index, uint32_t former)
{
    uint32_t index = former >> 16;
    return (former & FORMER_OFFERED) != 0 ||
           index >= region->layout.plan.worker_counts[stage_index] ||
           atomic_load_explicit(&region_worker(region, stage_index, index)->owner,
                                memory_order_acquire) != (former & OWNER_MAX);
}

void
stages_awaken(const struct region *region)
{
    const struct region_plan *plan = &region->layout.plan;
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        struct shm_stage *stage = region_stage(region, s);
        uint32_t former = atomic_load_explicit(&stage->former, memory_order_acquire);
        if (former != FORMER_NONE && role_is_doubtful(region, s, former))
            former_change(stage, former, FORMER_NONE);
        for (uint32_t i = 0; i < plan->worker_counts[s]; i++)
            doorbell_wake(&region_worker(region, s, i)->bell);
    }
}
