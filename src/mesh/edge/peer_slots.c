/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_slots.h"

#include <stdlib.h>

#include "base/check.h"
#include "mesh/edge/peer_flow.h"

enum {
    PLACE_BITS = 14,
    PLACE_MASK = (1 << PLACE_BITS) - 1,
    SLOTS_FIRST = 64,
};
_Static_assert(PEERS_CALLS_MAX == 1 << PLACE_BITS, "a place for each call");

static void
grow(struct slots *slots)
{
    uint32_t count = slots->count == 0 ? SLOTS_FIRST : slots->count * 2;
    slots->all = realloc(slots->all, count * sizeof(*slots->all));
    CHECK(slots->all != NULL);
    for (uint32_t i = count; i-- > slots->count;) {
        slots->all[i] = (struct peer_slot){.number = i, .next_free = slots->first_free};
        slots->first_free = i + 1;
    }
    slots->count = count;
}

struct peer_slot *
slots_take(struct slots *slots, struct peer_request *request, uint32_t attempt)
{
    bool counts = request->flow != NULL && !request->flow->counts_late;
    if (counts && slots->flow_count == PEERS_FLOWS_MAX)
        return NULL;
    if (slots->first_free == 0) {
        if (slots->count == PEERS_CALLS_MAX)
            return NULL;
        grow(slots);
    }
    struct peer_slot *slot = &slots->all[slots->first_free - 1];
    CHECK(slot->request == NULL);
    slots->first_free = slot->next_free;
    slots->used_count++;
    slots->flow_count += counts;
    *slot = (struct peer_slot){.request = request,
                               .number = slot->number + (1 << PLACE_BITS),
                               .attempt = attempt,
                               .is_counted = counts};
    return slot;
}

bool
slots_count_flow(struct slots *slots, struct peer_slot *slot)
{
    if (slot->is_counted)
        return true;
    if (slots->flow_count == PEERS_FLOWS_MAX)
        return false;
    slots->flow_count++;
    slot->is_counted = true;
    return true;
}

void
slots_free(struct slots *slots, struct peer_slot *slot)
{
    CHECK(slot->request != NULL && slots->used_count > 0);
    CHECK(slot == &slots->all[slot->number & PLACE_MASK]);
    slots->flow_count -= slot->is_counted;
    slot->request = NULL;
    slot->next_free = slots->first_free;
    slots->first_free = (slot->number & PLACE_MASK) + 1;
    slots->used_count--;
    CHECK(slots->flow_count <= slots->used_count);
}

struct peer_slot *
slots_find(const struct slots *slots, uint32_t number)
{
    uint32_t place = number & PLACE_MASK;
    if (place >= slots->count)
        return NULL;
    struct peer_slot *slot = &slots->all[place];
    return slot->request != NULL && slot->number == number ? slot : NULL;
}

void
slot_drop(struct peer_slot *slot)
{
    rpc_kept_release(slot->first);
    gathered_release(&slot->message);
}
