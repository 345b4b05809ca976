/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/client_regions.h"

#include "base/check.h"

void
client_regions_add(struct client_regions *client_regions, uint32_t number,
                   const struct region *region)
{
    CHECK(number < CLIENT_REGIONS_MAX && client_regions->regions[number] == NULL);
    client_regions->regions[number] = region;
    if (number >= client_regions->limit)
        client_regions->limit = number + 1;
}

void
client_regions_remove(struct client_regions *client_regions, uint32_t number)
{
    CHECK(number < CLIENT_REGIONS_MAX);
    client_regions->regions[number] = NULL;
    while (client_regions->limit > 0 && client_regions->regions[client_regions->limit - 1] == NULL)
        client_regions->limit--;
}

void
client_region_ends(const struct region *client_region)
{
    atomic_store_explicit(&region_stage(client_region, 0)->draining, 1, memory_order_relaxed);
    /* its fence pairs with doorbell_prepare: the client sees the hint, or is woken */
    doorbell_ring(&client_region->header->coordinator_bell);
}

bool
client_region_is_ending(const struct region *client_region)
{
    return atomic_load_explicit(&region_stage(client_region, 0)->draining, memory_order_relaxed) !=
           0;
}

bool
client_regions_have_cell(const struct region *lane, uint32_t stage)
{
    const struct client_regions *client_regions = lane->client_regions;
    for (uint32_t i = 0; client_regions != NULL && i < client_regions->limit; i++) {
        if (client_regions->regions[i] == NULL)
            continue;
        struct shm_ring ring = region_slot_ring(client_regions->regions[i], (uint8_t)stage);
        if (ring_has_cell(&ring))
            return true;
    }
    return false;
}

bool
client_regions_have_work(const struct region *lane, uint32_t stage)
{
    const struct client_regions *client_regions = lane->client_regions;
    if (client_regions == NULL)
        return false;
    return client_regions->unseen || client_regions_have_cell(lane, stage) ||
           atomic_load_explicit(&region_stage(lane, stage)->client_regions_epoch,
                                memory_order_relaxed) != client_regions->epoch;
}

void
client_regions_bells(const struct region *lane, uint32_t stage, struct shm_doorbell *own,
                     struct doorbells *doorbells)
{
    doorbells->bells[0] = own;
    doorbells->count = 1;
    for (uint32_t i = 0; lane->client_regions != NULL && i < lane->client_regions->limit; i++)
        if (lane->client_regions->regions[i] != NULL)
            doorbells->bells[doorbells->count++] =
                client_region_bell(lane->client_regions->regions[i], stage);
}

void
client_regions_arm(const struct region *lane, uint32_t stage)
{
    for (uint32_t i = 0; lane->client_regions != NULL && i < lane->client_regions->limit; i++)
        if (lane->client_regions->regions[i] != NULL)
            atomic_store_explicit(
                &client_region_bell(lane->client_regions->regions[i], stage)->asleep, 1,
                memory_order_relaxed);
}

void
client_regions_hush(const struct region *lane, uint32_t stage)
{
    for (uint32_t i = 0; lane->client_regions != NULL && i < lane->client_regions->limit; i++) {
        if (lane->client_regions->regions[i] == NULL)
            continue;
        struct shm_doorbell *bell = client_region_bell(lane->client_regions->regions[i], stage);
        /* usually only a load, because the client reads this cache line with every push */
        if (atomic_load_explicit(&bell->asleep, memory_order_relaxed) != 0)
            atomic_store_explicit(&bell->asleep, 0, memory_order_relaxed);
    }
}
