/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/stamp.h"

#include "base/check.h"

void
stamp_taken(struct shm_stamp *shared, uint32_t generation, const struct stamp *stamp)
{
    atomic_store_explicit(&shared->enqueued_ns, stamp->enqueued_ns, memory_order_relaxed);
    atomic_store_explicit(&shared->began_ns, stamp->began_ns, memory_order_relaxed);
    atomic_store_explicit(&shared->ended_ns, stamp->ended_ns, memory_order_relaxed);
    atomic_store_explicit(&shared->batch_items, stamp->batch_items, memory_order_relaxed);
    atomic_store_explicit(&shared->stage, stamp->stage, memory_order_relaxed);
    atomic_store_explicit(&shared->worker, stamp->worker, memory_order_relaxed);
    atomic_store_explicit(&shared->pid, stamp->pid, memory_order_relaxed);
    atomic_store_explicit(&shared->generation, generation, memory_order_relaxed);
}

void
stamp_began(struct shm_stamp *shared, int64_t now_ns, uint32_t batch_items)
{
    if (atomic_load_explicit(&shared->began_ns, memory_order_relaxed) == 0)
        atomic_store_explicit(&shared->began_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&shared->batch_items, batch_items, memory_order_relaxed);
}

void
stamp_ended(struct shm_stamp *shared, int64_t now_ns)
{
    atomic_store_explicit(&shared->ended_ns, now_ns, memory_order_relaxed);
}

bool
stamp_read(const struct shm_stamp *shared, uint32_t generation, struct stamp *stamp)
{
    if (atomic_load_explicit(&shared->generation, memory_order_relaxed) != generation)
        return false;
    *stamp = (struct stamp){
        .enqueued_ns = atomic_load_explicit(&shared->enqueued_ns, memory_order_relaxed),
        .began_ns = atomic_load_explicit(&shared->began_ns, memory_order_relaxed),
        .ended_ns = atomic_load_explicit(&shared->ended_ns, memory_order_relaxed),
        .batch_items = atomic_load_explicit(&shared->batch_items, memory_order_relaxed),
        .stage = atomic_load_explicit(&shared->stage, memory_order_relaxed),
        .worker = atomic_load_explicit(&shared->worker, memory_order_relaxed),
        .pid = atomic_load_explicit(&shared->pid, memory_order_relaxed),
    };
    return true;
}

void
stamp_lose(const struct region *region, struct shm_ticket ticket, uint32_t number,
           const struct stamp *lost)
{
    CHECK(ticket.index < region->slots.count && lost->stage < region->layout.plan.stage_count);
    struct shm_stamp *own = region_stamp(region, ticket.index, lost->stage);
    if (own == NULL)
        return;
    struct stamp stamp;
    if (!stamp_read(own, ticket.generation, &stamp)) /* the worker died before its stamp */
        stamp = (struct stamp){
            .enqueued_ns = atomic_load_explicit(&region_slot(region, ticket.index)->enqueued_ns,
                                                memory_order_relaxed)};
    atomic_store_explicit(&own->generation, 0, memory_order_relaxed);
    stamp.ended_ns = lost->ended_ns;
    stamp.stage = lost->stage;
    stamp.worker = lost->worker;
    struct shm_stamp *kept =
        number < STAMPS_LOST_MAX
            ? region_stamp(region, ticket.index, region->layout.plan.stage_count + number)
            : NULL;
    if (kept != NULL)
        stamp_taken(kept, ticket.generation, &stamp);
}
