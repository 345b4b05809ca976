/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves that calls with a flow count among PEERS_FLOWS_MAX from their beginning, or from the first
 * part of their answer if they count late; that none beyond them is counted; and that an ended call
 * gives back no more than it took.
 */
#include <stdlib.h>

#include "../test.h"
#include "mesh/edge/peer_flow.h"
#include "mesh/edge/peer_slots.h"

static struct peer_request request;
static struct peer_flow flow = {.request = &request};
static struct peer_flow late_flow = {.request = &request, .counts_late = true};

static struct peer_slot *
take(struct slots *slots, struct peer_flow *of)
{
    request.flow = of;
    return slots_take(slots, &request, 1);
}

/* Numbers, because the table moves as it grows. */
static void
fill(struct slots *slots, uint32_t numbers[PEERS_FLOWS_MAX])
{
    for (uint32_t i = 0; i < PEERS_FLOWS_MAX; i++) {
        struct peer_slot *slot = take(slots, &flow);
        assert_non_null(slot);
        numbers[i] = slot->number;
    }
}

TEST_CASE(test_flows_are_bounded)
{
    struct slots slots = {0};
    uint32_t numbers[PEERS_FLOWS_MAX];
    fill(&slots, numbers);
    assert_null(take(&slots, &flow));
    assert_non_null(take(&slots, NULL));
    slots_free(&slots, slots_find(&slots, numbers[7]));
    assert_non_null(take(&slots, &flow));
    assert_null(take(&slots, &flow));
    free(slots.all);
}

TEST_CASE(test_late_flow_counts_with_its_first_part)
{
    struct slots slots = {0};
    uint32_t numbers[PEERS_FLOWS_MAX];
    fill(&slots, numbers);
    struct peer_slot *slot = take(&slots, &late_flow);
    assert_non_null(slot);
    uint32_t late = slot->number;
    assert_false(slots_count_flow(&slots, slot));
    slots_free(&slots, slots_find(&slots, numbers[0]));
    slot = slots_find(&slots, late);
    assert_true(slots_count_flow(&slots, slot));
    assert_true(slots_count_flow(&slots, slot)); /* once */
    assert_int_equal(slots.flow_count, PEERS_FLOWS_MAX);
    assert_null(take(&slots, &flow));
    slots_free(&slots, slot);
    assert_int_equal(slots.flow_count, PEERS_FLOWS_MAX - 1);
    free(slots.all);
}

TEST_CASE(test_late_flow_without_a_part_gives_back_nothing)
{
    struct slots slots = {0};
    struct peer_slot *slot = take(&slots, &late_flow);
    assert_non_null(slot);
    assert_int_equal(slots.flow_count, 0);
    slots_free(&slots, slot);
    assert_int_equal(slots.flow_count, 0);
    free(slots.all);
}

TEST_MAIN()
