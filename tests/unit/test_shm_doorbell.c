/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sleeping and waking: a bell between two threads that must not lose a wake, the spin's budget on a
 * script, and the former: the role, appointments, and the state after an appointed worker has died
 * or woken up meanwhile. Repair's wake reaches a sleeper whose flag a dead waker took.
 */
#include <pthread.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "shm/doorbell.h"
#include "shm/former.h"
#include "shm/repair.h"
#include "shm/slot.h"

enum { TURNS = 20000, ALICE = 10, BOB = 11, CAROL = 12 };
#define LONG_NS (60 * NS_PER_S)

/* ---- bells ---- */

static struct shm_doorbell bells[2];
static _Atomic uint32_t ball; /* whose turn it is; counts */

/* Sleeps until the ball is ours, without a time-out that would hide a lost wake. */
static void *
play(void *argument)
{
    uint32_t me = (uint32_t)(uintptr_t)argument;
    for (uint32_t n = 0; n < TURNS; n++) {
        while (atomic_load(&ball) % 2 != me) {
            uint32_t prepared = doorbell_prepare(&bells[me]);
            if (atomic_load(&ball) % 2 == me)
                doorbell_cancel(&bells[me]);
            else
                CHECK(doorbell_sleep(&bells[me], prepared, LONG_NS));
        }
        atomic_fetch_add(&ball, 1);
        doorbell_ring(&bells[1 - me]);
    }
    return NULL;
}

TEST_CASE_WITH(test_no_lost_wake, NULL, NULL)
{
    pthread_t threads[2];
    for (uintptr_t i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, play, (void *)i), 0);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    assert_int_equal(atomic_load(&ball), 2 * TURNS);
}

TEST_CASE_WITH(test_bell_alone, NULL, NULL)
{
    struct shm_doorbell bell = {0};
    assert_false(doorbell_ring(&bell)); /* awake: nothing to do, nothing remembered */
    assert_int_equal(atomic_load(&bell.sequence), 0);
    uint32_t prepared = doorbell_prepare(&bell);
    assert_false(doorbell_sleep(&bell, prepared, 1000)); /* time-out */
    assert_int_equal(atomic_load(&bell.asleep), 0);
    prepared = doorbell_prepare(&bell);
    assert_true(doorbell_ring(&bell));  /* between prepare and sleep */
    assert_false(doorbell_ring(&bell)); /* one waker is enough */
    assert_true(doorbell_sleep(&bell, prepared, LONG_NS));
    prepared = doorbell_prepare(&bell);
    doorbell_cancel(&bell);
    assert_false(doorbell_ring(&bell));
    assert_false(doorbell_sleep(&bell, doorbell_prepare(&bell), 0));
    /* a waker took the flag and died; only the unconditional wake helps now */
    prepared = doorbell_prepare(&bell);
    atomic_store(&bell.asleep, 0);
    assert_false(doorbell_ring(&bell));
    doorbell_wake(&bell);
    assert_true(doorbell_sleep(&bell, prepared, LONG_NS));
}

TEST_CASE_WITH(test_spin_budget, NULL, NULL)
{
    struct spin spin;
    spin_init(&spin, 0);
    spin_rewarded(&spin);
    spin_failed(&spin);
    spin_after_sleep(&spin, 0);
    assert_int_equal(spin.budget_ns, 0); /* never */
    spin_init(&spin, 10000);
    assert_int_equal(spin.budget_ns, SPIN_BUDGET_MIN_NS);
    spin_failed(&spin);
    assert_int_equal(spin.budget_ns, SPIN_BUDGET_MIN_NS);
    spin_rewarded(&spin);
    assert_int_equal(spin.budget_ns, 2000);
    spin_after_sleep(&spin, 10000);
    assert_int_equal(spin.budget_ns, 2000);
    spin_after_sleep(&spin, 3000); /* looking twice as long would have found it */
    assert_int_equal(spin.budget_ns, 6000);
    spin_after_sleep(&spin, 100);
    assert_int_equal(spin.budget_ns, 6000);
    spin_after_sleep(&spin, 9999);
    assert_int_equal(spin.budget_ns, 10000);
    spin_rewarded(&spin);
    assert_int_equal(spin.budget_ns, 10000);
    spin_failed(&spin);
    assert_int_equal(spin.budget_ns, 5000);
    spin_init(&spin, 500);
    assert_int_equal(spin.budget_ns, 500);
    spin_failed(&spin);
    assert_int_equal(spin.budget_ns, 500);
}

/* Giving way that lasted long bars looking, for as many times as long as it lasted. */
TEST_CASE_WITH(test_spin_barred, NULL, NULL)
{
    struct spin spin;
    spin_init(&spin, 10000);
    int64_t now_ns = clock_now_ns();
    int64_t after_ns = spin_pause(&spin, now_ns);
    assert_true(after_ns >= now_ns);
    int64_t began_ns = after_ns - SPIN_PAUSE_NS_MAX - 1; /* as if it had begun that long ago */
    after_ns = spin_pause(&spin, began_ns);
    assert_true(spin.barred_until_ns >= after_ns + SPIN_BAR_FACTOR * (int64_t)SPIN_PAUSE_NS_MAX);
    assert_int_equal(spin_budget(&spin, spin.barred_until_ns - 1), 0);
    assert_int_equal(spin_budget(&spin, spin.barred_until_ns), SPIN_BUDGET_MIN_NS);
}

/* ---- the former: one stage, Alice and Bob in its places ---- */

static struct region region;
static struct shm_stage *stage;

static int
set_up(void **state)
{
    (void)state;
    struct region_plan plan = {.slot_count = 4,
                               .stage_count = 1,
                               .worker_counts = {2},
                               .class_count = 1,
                               .class_block_counts = {1},
                               .class_block_bytes = {2048}};
    struct error error = ERROR_NONE;
    if (region_create(&region, &plan, 1, &error) != STATUS_OK)
        return -1;
    stage = region_stage(&region, 0);
    atomic_store(&region_worker(&region, 0, 0)->owner, ALICE);
    atomic_store(&region_worker(&region, 0, 1)->owner, BOB);
    return 0;
}

static int
tear_down(void **state)
{
    (void)state;
    region_detach(&region);
    return 0;
}

static void
push_one(void)
{
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&region, OWNER_COORDINATOR, &ticket), RING_OK);
    assert_int_equal(slot_push(&region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, 1), RING_OK);
}

static uint32_t
go_to_rest(uint32_t index, uint16_t owner)
{
    idle_enter(&region, 0, index);
    uint32_t prepared = doorbell_prepare(&region_worker(&region, 0, index)->bell);
    assert_false(stage_wants_former(&region, 0, index, owner));
    return prepared;
}

static bool
was_rung(uint32_t index, uint32_t prepared)
{
    return atomic_load(&region_worker(&region, 0, index)->bell.sequence) != prepared;
}

TEST_CASE(test_one_former)
{
    assert_true(former_take(&region, 0, 0, ALICE));
    assert_true(former_take(&region, 0, 0, ALICE));
    assert_false(former_take(&region, 0, 1, BOB));
    former_leave(&region, 0, 1, BOB); /* not his */
    assert_false(former_take(&region, 0, 1, BOB));
    former_leave(&region, 0, 0, ALICE);
    assert_true(former_take(&region, 0, 1, BOB));
}

TEST_CASE(test_push_appoints_and_wakes_one)
{
    uint32_t alice = go_to_rest(0, ALICE), bob = go_to_rest(1, BOB);
    push_one();
    stage_notify(&region, 0);
    assert_true(was_rung(0, alice));
    assert_false(was_rung(1, bob));
    assert_int_equal(atomic_load(&stage->former), FORMER_OFFERED | ALICE);
    push_one();
    stage_notify(&region, 0); /* Alice is on her way */
    assert_false(was_rung(1, bob));
    assert_true(stage_wants_former(&region, 0, 0, ALICE));
    assert_false(stage_wants_former(&region, 0, 1, BOB));
    idle_leave(&region, 0, 0);
    assert_false(former_take(&region, 0, 1, BOB));
    assert_true(former_take(&region, 0, 0, ALICE));
    assert_int_equal(atomic_load(&stage->former), ALICE); /* accepted: hers for good */
    /* her batch is closed and there is more: Bob */
    former_leave(&region, 0, 0, ALICE);
    assert_true(was_rung(1, bob));
    assert_true(stage_wants_former(&region, 0, 1, BOB));
}

TEST_CASE(test_push_rings_a_sleeping_former)
{
    assert_true(former_take(&region, 0, 1, BOB));
    uint32_t bob = doorbell_prepare(&region_worker(&region, 0, 1)->bell);
    push_one();
    stage_notify(&region, 0);
    assert_true(was_rung(1, bob));
}

/* The worker that made the offer has not rung yet, and never may: the next push does. */
TEST_CASE(test_push_rings_one_with_an_offer)
{
    atomic_store(&stage->former, FORMER_OFFERED | 1 << 16 | BOB);
    uint32_t bob = doorbell_prepare(&region_worker(&region, 0, 1)->bell);
    push_one();
    stage_notify(&region, 0);
    assert_true(was_rung(1, bob));
}

TEST_CASE(test_no_sleep_while_work_waits)
{
    push_one();
    idle_enter(&region, 0, 0);
    doorbell_prepare(&region_worker(&region, 0, 0)->bell);
    assert_true(stage_wants_former(&region, 0, 0, ALICE));
    assert_true(former_take(&region, 0, 1, BOB));
    assert_false(stage_wants_former(&region, 0, 0, ALICE)); /* Bob sees to it */
}

/* Nobody idle, or a bitmap that only a hostile modelet writes: nobody is appointed. */
TEST_CASE(test_nobody_to_appoint)
{
    push_one();
    stage_notify(&region, 0);
    assert_int_equal(atomic_load(&stage->former), 0);
    atomic_store(&stage->idle, ~UINT64_C(0) << 2);
    stage_notify(&region, 0);
    assert_int_equal(atomic_load(&stage->former), 0);
    atomic_store(&stage->former, UINT32_MAX); /* a place that does not exist */
    stage_notify(&region, 0);
}

TEST_CASE(test_empty_seat_is_not_appointed)
{
    uint32_t alice = go_to_rest(0, ALICE), bob = go_to_rest(1, BOB);
    atomic_store(&region_worker(&region, 0, 0)->owner, OWNER_NONE);
    push_one();
    stage_notify(&region, 0);
    assert_false(was_rung(0, alice));
    assert_true(was_rung(1, bob));
}

static void
repair(uint16_t owner, uint32_t index)
{
    const struct repair_dead dead = {owner, index < 2 ? 0 : STAGES_MAX, index < 2 ? index : 0};
    struct repair_judge judge = {0};
    struct repair_report report;
    struct error error = ERROR_NONE;
    assert_int_equal(region_repair(&region, &dead, OWNER_COORDINATOR, &judge, &report, &error),
                     STATUS_OK);
}

TEST_CASE(test_repair_empties_the_seat)
{
    idle_enter(&region, 0, 0);
    assert_true(former_take(&region, 0, 0, ALICE));
    repair(ALICE, 0);
    assert_int_equal(atomic_load(&stage->former), 0);
    assert_int_equal(atomic_load(&stage->idle), 0);
    assert_int_equal(atomic_load(&region_worker(&region, 0, 0)->owner), OWNER_NONE);
    assert_true(former_take(&region, 0, 1, BOB));
    former_leave(&region, 0, 1, BOB);
    /* an offer that he did not live to accept */
    atomic_store(&region_worker(&region, 0, 0)->owner, ALICE);
    atomic_store(&stage->former, FORMER_OFFERED | ALICE);
    former_evict(&region, 0, 0, ALICE);
    assert_int_equal(atomic_load(&stage->former), 0);
}

/* A waker that took Bob's flag and died: repair wakes him though his flag is clear. */
TEST_CASE(test_repair_wakes_whose_flag_was_taken)
{
    uint32_t bob = go_to_rest(1, BOB);
    atomic_store(&region_worker(&region, 0, 1)->bell.asleep, 0);
    uint32_t coordinator = doorbell_prepare(&region.header->coordinator_bell);
    atomic_store(&region.header->coordinator_bell.asleep, 0);
    repair(CAROL, 2);
    assert_true(was_rung(1, bob));
    assert_int_not_equal(atomic_load(&region.header->coordinator_bell.sequence), coordinator);
}

/* Alice died and was repaired; after that a pusher that had seen her idle appointed her, and died
 * too. Repairing the pusher, which has no place here, must free the role. */
TEST_CASE(test_repair_frees_a_role_of_long_ago)
{
    uint32_t bob = go_to_rest(1, BOB);
    repair(ALICE, 0);
    atomic_store(&stage->former, 0 << 16 | ALICE);
    repair(CAROL, 2);
    assert_int_equal(atomic_load(&stage->former), 0);
    assert_true(was_rung(1, bob));
    /* an offer to Bob, which lives but may be busy: its region maker may be the dead one */
    atomic_store(&stage->former, FORMER_OFFERED | 1 << 16 | BOB);
    repair(CAROL, 2);
    assert_int_equal(atomic_load(&stage->former), 0);
    /* the living keep theirs */
    assert_true(former_take(&region, 0, 1, BOB));
    repair(CAROL + 1, 2);
    assert_false(former_take(&region, 0, 0, CAROL + 2));
}

TEST_MAIN(.setup = set_up, .teardown = tear_down)
