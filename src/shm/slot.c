/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/slot.h"

#include <string.h>

#include "base/check.h"
#include "shm/arena.h"

static uint64_t
held_word(struct shm_ticket ticket, uint8_t place, uint16_t owner)
{
    return word_pack((struct shm_word){
        .generation = ticket.generation, .place = place, .held = true, .owner = owner});
}

enum ring_result
slot_acquire(const struct region *region, uint16_t owner, struct shm_ticket *ticket)
{
    return slot_pop(region, PLACE_FREE, owner, ticket);
}

enum ring_result
slot_pop(const struct region *region, uint8_t place, uint16_t owner, struct shm_ticket *ticket)
{
    struct shm_ring ring = region_slot_ring(region, place);
    return ring_pop(&ring, &region->slots, owner, ticket);
}

enum ring_result
slot_push(const struct region *region, struct shm_ticket ticket, uint8_t from, uint8_t place,
          uint16_t owner, int64_t now_ns)
{
    CHECK(ticket.index < region->slots.count);
    struct shm_ring ring = region_slot_ring(region, place);
    atomic_store_explicit(&region_slot(region, ticket.index)->enqueued_ns, now_ns,
                          memory_order_relaxed);
    return ring_push(&ring, &region->slots, ticket.index, held_word(ticket, from, owner),
                     ticket.generation, owner);
}

/* Releases the blocks that one descriptor names. A block that both descriptors name is met twice,
 * and a hostile descriptor may name any block: arena_release releases only blocks that this slot
 * holds. */
static enum status
release_blocks(const struct region *region, uint32_t slot, const struct shm_payload *payload,
               uint16_t owner)
{
    struct shm_payload copy = *payload; /* once: a hostile worker may be writing */
    if (copy.block_count > PAYLOAD_BLOCKS_MAX)
        return STATUS_DATA_LOSS;
    for (uint32_t i = 0; i < copy.block_count; i++)
        if (arena_release(region, slot, copy.blocks[i], owner) == STATUS_DATA_LOSS)
            return STATUS_DATA_LOSS;
    return STATUS_OK;
}

enum status
slot_release(const struct region *region, struct shm_ticket ticket, uint8_t from, uint16_t owner)
{
    CHECK(ticket.index < region->slots.count);
    struct shm_slot *slot = region_slot(region, ticket.index);
    for (uint32_t i = 0; i < 2; i++) {
        if (release_blocks(region, ticket.index, &slot->payload[i], owner) != STATUS_OK)
            return STATUS_DATA_LOSS;
        slot->payload[i].block_count = 0;
    }
    struct shm_ring ring = region_slot_ring(region, PLACE_FREE);
    enum ring_result result =
        ring_push(&ring, &region->slots, ticket.index, held_word(ticket, from, owner),
                  generation_next(ticket.generation), owner);
    return result == RING_OK ? STATUS_OK : STATUS_DATA_LOSS;
}

void
slot_cancel(const struct region *region, struct shm_ticket ticket)
{
    CHECK(ticket.index < region->slots.count);
    atomic_store_explicit(&region_slot(region, ticket.index)->cancelled, ticket.generation,
                          memory_order_relaxed);
}

void
slot_run_alone(const struct region *region, struct shm_ticket ticket)
{
    CHECK(ticket.index < region->slots.count);
    atomic_store_explicit(&region_slot(region, ticket.index)->alone, ticket.generation,
                          memory_order_relaxed); /* published by the push that follows */
}

void
slot_trace(const struct region *region, struct shm_ticket ticket)
{
    CHECK(ticket.index < region->slots.count);
    atomic_store_explicit(&region_slot(region, ticket.index)->traced, ticket.generation,
                          memory_order_relaxed); /* published by the push that follows */
}

void
slot_set_failure(struct shm_slot *slot, uint8_t place, enum status status, const char *text)
{
    size_t bytes = strnlen(text, SLOT_TEXT_BYTES - 1);
    memcpy(slot->text, text, bytes);
    slot->text[bytes] = '\0';
    atomic_store_explicit(&slot->failed_place, place, memory_order_relaxed);
    atomic_store_explicit(&slot->status, (uint32_t)status, memory_order_relaxed);
}

void
slot_set_not_held(struct shm_slot *slot, uint8_t place)
{
    slot->text[0] = '\0';
    atomic_store_explicit(&slot->failed_place, place, memory_order_relaxed);
    atomic_store_explicit(&slot->status, SLOT_NOT_HELD, memory_order_relaxed);
}

void
slot_failure(const struct shm_slot *slot, struct error *failure)
{
    uint32_t number = atomic_load_explicit(&slot->status, memory_order_relaxed);
    char text[SLOT_TEXT_BYTES];
    memcpy(text, slot->text, sizeof(text)); /* once: a worker may be writing */
    text[sizeof(text) - 1] = '\0';
    enum status status = status_from_number((long)number);
    error_set(failure, status == STATUS_OK ? STATUS_INTERNAL : status, "%s", text);
}

struct shm_word
slot_where(const struct region *region, uint32_t index)
{
    CHECK(index < region->slots.count);
    return word_unpack(
        atomic_load_explicit(object_word(&region->slots, index), memory_order_acquire));
}

void
slot_set_deadline(struct shm_slot *slot, int64_t deadline_ns)
{
    atomic_store_explicit(&slot->deadline_ns, deadline_ns, memory_order_relaxed);
}

uint32_t
slots_in_flight(const struct region *region)
{
    struct shm_ring free_ring = region_slot_ring(region, PLACE_FREE);
    uint32_t free_count = ring_depth(&free_ring);
    return free_count < region->slots.count ? region->slots.count - free_count : 0;
}

uint32_t
slots_used(const struct region *region)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < region->slots.count; i++) {
        struct shm_word word =
            word_unpack(atomic_load_explicit(object_word(&region->slots, i), memory_order_relaxed));
        if (word.held || word.place != PLACE_FREE)
            used++;
    }
    return used;
}
