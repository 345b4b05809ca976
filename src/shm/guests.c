/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/guests.h"

#include "base/check.h"
#include "shm/former.h"

void
guests_add(struct guests *guests, uint32_t number, const struct region *region)
{
    CHECK(number < GUESTS_MAX && guests->regions[number] == NULL);
    guests->regions[number] = region;
    if (number >= guests->limit)
        guests->limit = number + 1;
}

void
guests_remove(struct guests *guests, uint32_t number)
{
    CHECK(number < GUESTS_MAX);
    guests->regions[number] = NULL;
    while (guests->limit > 0 && guests->regions[guests->limit - 1] == NULL)
        guests->limit--;
}

void
guest_ends(const struct region *guest)
{
    atomic_store_explicit(&region_stage(guest, 0)->draining, 1, memory_order_relaxed);
    /* its fence pairs with the one in doorbell_prepare: the client sees the hint, or is rung */
    doorbell_ring(&guest->header->coordinator_bell);
}

bool
guest_is_ending(const struct region *guest)
{
    return atomic_load_explicit(&region_stage(guest, 0)->draining, memory_order_relaxed) != 0;
}

static bool
any_ring_has_cell(const struct guests *guests, uint32_t stage)
{
    for (uint32_t i = 0; i < guests->limit; i++) {
        if (guests->regions[i] == NULL)
            continue;
        struct shm_ring ring = region_slot_ring(guests->regions[i], (uint8_t)stage);
        if (ring_has_cell(&ring))
            return true;
    }
    return false;
}

bool
guests_have_work(const struct region *lane, uint32_t stage)
{
    const struct guests *guests = lane->guests;
    if (guests == NULL)
        return false;
    return guests->unseen || any_ring_has_cell(guests, stage) ||
           atomic_load_explicit(&region_stage(lane, stage)->guests_epoch, memory_order_relaxed) !=
               guests->epoch;
}

void
guests_bells(const struct region *lane, uint32_t stage, struct shm_doorbell *own,
             struct doorbells *doorbells)
{
    doorbells->bells[0] = own;
    doorbells->count = 1;
    for (uint32_t i = 0; lane->guests != NULL && i < lane->guests->limit; i++)
        if (lane->guests->regions[i] != NULL)
            doorbells->bells[doorbells->count++] = guest_bell(lane->guests->regions[i], stage);
}

void
guests_arm(const struct region *lane, uint32_t stage)
{
    for (uint32_t i = 0; lane->guests != NULL && i < lane->guests->limit; i++)
        if (lane->guests->regions[i] != NULL)
            atomic_store_explicit(&guest_bell(lane->guests->regions[i], stage)->asleep, 1,
                                  memory_order_relaxed);
}

void
guests_hush(const struct region *lane, uint32_t stage)
{
    for (uint32_t i = 0; lane->guests != NULL && i < lane->guests->limit; i++) {
        if (lane->guests->regions[i] == NULL)
            continue;
        struct shm_doorbell *bell = guest_bell(lane->guests->regions[i], stage);
        /* a load, as a rule: the client reads this line with every push */
        if (atomic_load_explicit(&bell->asleep, memory_order_relaxed) != 0)
            atomic_store_explicit(&bell->asleep, 0, memory_order_relaxed);
    }
}

void
guests_remind(const struct region *lane, uint32_t stage)
{
    if (lane->guests != NULL && any_ring_has_cell(lane->guests, stage))
        former_ring(lane, stage);
}
