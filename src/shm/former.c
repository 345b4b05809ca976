/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/former.h"

#include "shm/doorbell.h"
#include "shm/guests.h"

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
    if (!former_change(stage, FORMER_NONE, me) && !former_change(stage, me | FORMER_OFFERED, me) &&
        atomic_load_explicit(&stage->former, memory_order_acquire) != me)
        return false;
    guests_hush(region, stage_index); /* awake, and about to look */
    return true;
}

static bool
stage_has_work(const struct region *region, uint32_t stage_index)
{
    struct shm_ring ring = region_slot_ring(region, (uint8_t)stage_index);
    return ring_has_cell(&ring) || guests_have_work(region, stage_index);
}

/* True if the worker that has been appointed sleeps, or is about to look and will see it. */
static bool
appointment_holds(struct shm_stage *stage, struct shm_worker *worker, uint32_t index,
                  uint16_t party)
{
    return (atomic_load_explicit(&stage->idle, memory_order_acquire) & UINT64_C(1) << index) != 0 &&
           atomic_load_explicit(&worker->party, memory_order_acquire) == party;
}

/*
 * Offers the free role to a worker that is idle, if there is one, and wakes it.
 *
 * The worker may be awake after all, and by now busy with a batch, or dead and its seat taken by
 * another: then the role must not wait for it, and goes back. Unless it has just been accepted: who
 * holds it may by now sleep with an open batch, and relies on being the one whom a push wakes.
 */
static void
appoint_idle(const struct region *region, uint32_t stage_index)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint64_t seats = ~UINT64_C(0) >> (64 - region->layout.plan.worker_counts[stage_index]);
    /* Each turn ends it or has seen a worker wake up; the bound is for hostile bitmaps. */
    for (uint32_t turns = 0; turns < 2 * STAGE_WORKERS_MAX; turns++) {
        uint64_t idle = atomic_load_explicit(&stage->idle, memory_order_acquire) & seats;
        if (idle == 0)
            return; /* all are at work, and look at the ring when they are done */
        uint32_t index = (uint32_t)__builtin_ctzll(idle);
        struct shm_worker *worker = region_worker(region, stage_index, index);
        uint16_t party = (uint16_t)atomic_load_explicit(&worker->party, memory_order_acquire);
        if (party == PARTY_NONE) { /* repair is emptying this seat */
            seats &= ~(UINT64_C(1) << index);
            continue;
        }
        uint32_t offer = former_word(index, party) | FORMER_OFFERED;
        if (!former_change(stage, FORMER_NONE, offer))
            return; /* somebody has the role */
        doorbell_ring(&worker->bell);
        if (appointment_holds(stage, worker, index, party) ||
            !former_change(stage, offer, FORMER_NONE))
            return;
        /* pairs with the one in doorbell_prepare: we see the idle bit of whoever saw the role taken
         */
        atomic_thread_fence(memory_order_seq_cst);
        if (!stage_has_work(region, stage_index))
            return; /* else we and a worker that finds nothing could go on like this */
    }
}

void
former_leave(const struct region *region, uint32_t stage_index, uint32_t worker_index,
             uint16_t party)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    former_change(stage, former_word(worker_index, party), FORMER_NONE);
    /* pairs with the fence in stage_notify: the pusher sees the role free, or we see its push */
    atomic_thread_fence(memory_order_seq_cst);
    if (region->guests != NULL && region->guests->limit > 0 &&
        atomic_load_explicit(&stage->idle, memory_order_relaxed) != 0) {
        /* from here on a client wakes one of those who sleep; what it pushed before we see below */
        guests_arm(region, stage_index);
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
                   uint16_t party)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    uint32_t former = atomic_load_explicit(&stage->former, memory_order_acquire);
    if (former == FORMER_NONE)
        return stage_has_work(region, stage_index);
    return (former & ~FORMER_OFFERED) == former_word(worker_index, party);
}

/* In this order: who appoints the dead one after its role was taken sees that the seat is empty. */
void
former_evict(const struct region *region, uint32_t stage_index, uint32_t worker_index,
             uint16_t dead)
{
    struct shm_stage *stage = region_stage(region, stage_index);
    struct shm_worker *worker = region_worker(region, stage_index, worker_index);
    uint32_t party = dead;
    atomic_compare_exchange_strong_explicit(&worker->party, &party, PARTY_NONE,
                                            memory_order_acq_rel, memory_order_relaxed);
    idle_leave(region, stage_index, worker_index);
    atomic_thread_fence(memory_order_seq_cst);
    former_change(stage, former_word(worker_index, dead), FORMER_NONE);
    former_change(stage, former_word(worker_index, dead) | FORMER_OFFERED, FORMER_NONE);
}

/* Is it an offer, whose maker may be dead and never look again, or the role of one without a seat?
 */
static bool
role_is_doubtful(const struct region *region, uint32_t stage_index, uint32_t former)
{
    uint32_t index = former >> 16;
    return (former & FORMER_OFFERED) != 0 ||
           index >= region->layout.plan.worker_counts[stage_index] ||
           atomic_load_explicit(&region_worker(region, stage_index, index)->party,
                                memory_order_acquire) != (former & PARTY_MAX);
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
