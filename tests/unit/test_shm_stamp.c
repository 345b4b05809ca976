/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stamps in a region: where each lies, that one of an earlier use of the slot is none, that a run
 * which a death ended is kept and makes room for the next, and that a region without stamps has
 * none.
 */

#include "../test.h"
#include "shm/slot.h"
#include "shm/stamp.h"

enum { SLOTS = 4, STAGES = 2, LOST = 3 };

static struct region region;

static struct region_plan
plan_of(uint32_t stamps)
{
    struct region_plan plan = {
        .slot_count = SLOTS, .stage_count = STAGES, .stamp_count = stamps, .worker_counts = {1, 1}};
    struct error error = ERROR_NONE;
    assert_int_equal(plan_arena(&plan, 1 << 16, 8 << 20, &error), STATUS_OK);
    return plan;
}

static void
open_region(uint32_t stamps)
{
    struct region_plan plan = plan_of(stamps);
    struct error error = ERROR_NONE;
    assert_int_equal(region_create(&region, &plan, 1, &error), STATUS_OK);
}

static int
setup(void **state)
{
    (void)state;
    open_region(STAGES + LOST);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    region_detach(&region);
    return 0;
}

TEST_CASE(test_places)
{
    const char *first = (const char *)region_stamp(&region, 0, 0);
    const char *behind = region.base + region.layout.slot_rings_offset;
    assert_ptr_equal(first, (const char *)region_slot(&region, SLOTS));
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        for (uint32_t i = 0; i < STAGES + LOST; i++) {
            const char *stamp = (const char *)region_stamp(&region, slot, i);
            assert_ptr_equal(stamp,
                             first + (slot * (STAGES + LOST) + i) * sizeof(struct shm_stamp));
            assert_true(stamp + sizeof(struct shm_stamp) <= behind);
        }
    assert_null(region_stamp(&region, 0, STAGES + LOST));
    assert_null(region_stamp(&region, 0, UINT32_MAX));
}

TEST_CASE_WITH(test_plans, NULL, NULL)
{
    struct region_layout layout;
    struct error error = ERROR_NONE;
    (void)state;
    struct region_plan plan = plan_of(1); /* fewer than stages */
    assert_int_equal(layout_compute(&plan, &layout, &error), STATUS_INVALID_ARGUMENT);
    plan = plan_of(STAGES + STAMPS_LOST_MAX + 1);
    assert_int_equal(layout_compute(&plan, &layout, &error), STATUS_INVALID_ARGUMENT);
    plan = plan_of(STAGES + STAMPS_LOST_MAX);
    assert_int_equal(layout_compute(&plan, &layout, &error), STATUS_OK);
    assert_int_equal(layout.slot_rings_offset % 64, 0);
}

TEST_CASE(test_none)
{
    region_detach(&region);
    open_region(0);
    assert_null(region_stamp(&region, 0, 0));
    stamp_lose(&region, (struct shm_ticket){1, 1}, 0, &(struct stamp){.stage = 0});
}

TEST_CASE(test_of_this_use_alone)
{
    struct stamp stamp;
    (void)state;
    struct shm_stamp *shared = region_stamp(&region, 1, 0);
    assert_false(stamp_read(shared, 1, &stamp)); /* 0: of no use at all */
    stamp_taken(shared, 7, &(struct stamp){.enqueued_ns = 10, .worker = 3, .pid = 12});
    stamp_began(shared, 20, 5);
    stamp_began(shared, 25, 2); /* again, in a half */
    assert_false(stamp_read(shared, 8, &stamp));
    assert_true(stamp_read(shared, 7, &stamp));
    assert_int_equal(stamp.ended_ns, 0);
    stamp_ended(shared, 30);
    assert_true(stamp_read(shared, 7, &stamp));
    assert_int_equal(stamp.enqueued_ns, 10);
    assert_int_equal(stamp.began_ns, 20);
    assert_int_equal(stamp.ended_ns, 30);
    assert_int_equal(stamp.batch_items, 2);
    assert_int_equal(stamp.worker, 3);
    assert_int_equal(stamp.pid, 12);
    stamp_taken(shared, 9, &(struct stamp){.enqueued_ns = 40});
    assert_true(stamp_read(shared, 9, &stamp));
    assert_int_equal(stamp.began_ns, 0);
    assert_int_equal(stamp.ended_ns, 0);
}

TEST_CASE(test_lost)
{
    struct shm_ticket ticket = {2, 5};
    struct stamp stamp;
    (void)state;
    struct shm_stamp *own = region_stamp(&region, 2, 1);
    for (uint32_t i = 0; i < LOST + 2; i++) {
        stamp_taken(own, 5, &(struct stamp){.enqueued_ns = 10 + i, .pid = 12});
        stamp_began(own, 20 + i, 4);
        stamp_lose(&region, ticket, i,
                   &(struct stamp){.ended_ns = 30 + i, .stage = 1, .worker = 1});
        assert_false(stamp_read(own, 5, &stamp));
    }
    for (uint32_t i = 0; i < LOST; i++) {
        assert_true(stamp_read(region_stamp(&region, 2, STAGES + i), 5, &stamp));
        assert_int_equal(stamp.enqueued_ns, 10 + i);
        assert_int_equal(stamp.began_ns, 20 + i);
        assert_int_equal(stamp.ended_ns, 30 + i);
        assert_int_equal(stamp.stage, 1);
        assert_int_equal(stamp.worker, 1);
        assert_int_equal(stamp.pid, 12);
    }
    stamp_lose(&region, ticket, UINT32_MAX, &(struct stamp){.stage = 1});
}

/* It died between claiming the slot and stamping it. */
TEST_CASE(test_lost_before_stamped)
{
    struct shm_ticket ticket = {3, 5};
    struct stamp stamp;
    (void)state;
    region_slot(&region, 3)->enqueued_ns = 15;
    stamp_taken(region_stamp(&region, 3, 0), 4, &(struct stamp){.enqueued_ns = 1}); /* of before */
    stamp_lose(&region, ticket, 0, &(struct stamp){.ended_ns = 30, .stage = 0});
    assert_true(stamp_read(region_stamp(&region, 3, STAGES), 5, &stamp));
    assert_int_equal(stamp.enqueued_ns, 15);
    assert_int_equal(stamp.began_ns, 0);
    assert_int_equal(stamp.ended_ns, 30);
}

TEST_CASE(test_mark)
{
    struct shm_ticket ticket;
    (void)state;
    assert_int_equal(slot_acquire(&region, OWNER_COORDINATOR, &ticket), RING_OK);
    const struct shm_slot *slot = region_slot(&region, ticket.index);
    assert_false(slot_traced(slot, ticket.generation));
    slot_trace(&region, ticket);
    assert_true(slot_traced(slot, ticket.generation));
    assert_false(slot_traced(slot, ticket.generation + 1)); /* nobody has to take it away */
}

TEST_MAIN(.setup = setup, .teardown = teardown)
