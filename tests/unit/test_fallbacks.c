/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=240
 *
 * The fallbacks of a pipeline, each executed: a region that is dropped and built anew, fifty times
 * in a row with requests in flight; the pauses between resets; owner numbers that are used up; more
 * regions than there is room for, because callers have not read their replies; an arena without a
 * block; a header that no worker could attach to. Real workers, no front.
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>

#include "../test.h"
#include "test_pipeline_rig.h"

enum { RESETS = 50 };

static void
forget_resets(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    pipeline->resets_in_a_row = 0;
}

static uint32_t
open_descriptors(void)
{
    uint32_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

/* ---- tests ---- */

/* A release that stands between its two steps: no word says so, but the slot is not free. */
TEST_CASE(test_a_release_under_way_is_not_over)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    struct lane *of_the_release = pipeline_lane(the_pipeline(rig));
    assert_non_null(of_the_release);
    struct shm_ring free_ring = region_slot_ring(&lane->region, PLACE_FREE);
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&lane->region, OWNER_COORDINATOR, &ticket), RING_OK);
    _Atomic uint64_t *word = object_word(&lane->region.slots, ticket.index);
    struct shm_word waiting = word_unpack(atomic_load(word));
    waiting.held = false;
    waiting.turn = (waiting.turn + 1) & WORD_TURN_MAX;
    atomic_store(word, word_pack(waiting));

    assert_int_equal(slots_used(&lane->region), 0);
    assert_false(is_returned(lane));
    struct error error;
    for (uint32_t k = 0; k + 1 < SLOTS; k++)
        assert_int_equal(submit(rig, k, k < 2 ? PROBE_WAIT : PROBE_ECHO, 0, TIME_NEVER_NS, &error),
                         STATUS_OK);
    assert_int_equal(submit(rig, SLOTS, PROBE_ECHO, 0, TIME_NEVER_NS, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    for (uint32_t k = 0; k < 2; k++)
        pipeline_cancel(the_pipeline(rig), rig->calls[k].tag);
    for (uint32_t k = 0; k + 1 < SLOTS; k++)
        (void)answer_of(rig, k);

    assert_int_equal(ring_fill_cell(&free_ring, ticket.index, waiting), RING_OK);
    lane_unref(of_the_release);
    lane_unref(lane);
    wait_returned(rig);
    for (uint32_t k = 0; k < SLOTS; k++)
        assert_int_equal(submit(rig, k, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
    for (uint32_t k = 0; k < SLOTS; k++)
        assert_int_equal(answer_of(rig, k)->status, STATUS_OK);
    wait_returned(rig);
}

/* In each region two requests run and two wait behind them. */
TEST_CASE(test_fifty_resets_under_load)
{
    struct rig *rig = *state;
    uint32_t descriptors = 0;
    for (uint32_t i = 0; i < RESETS; i++) {
        struct error error;
        for (uint32_t k = 0; k < SLOTS; k++)
            if (submit(rig, k, k < 2 ? PROBE_WAIT : PROBE_ECHO, 0, TIME_NEVER_NS, &error) !=
                STATUS_OK)
                fail_msg("reset %u, call %u: %s", i, k, error.text);
        on_loop(rig, forget_resets);
        on_loop(rig, condemn);
        for (uint32_t k = 0; k < SLOTS; k++) {
            const struct call *call = answer_of(rig, k);
            assert_true(call->status == STATUS_UNAVAILABLE || call->status == STATUS_OK);
        }
        wait_serving(rig, i + 2);
        assert_serves(rig);
        wait_returned(rig);
        if (i == RESETS / 2)
            descriptors = open_descriptors();
    }
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), RESETS);
    /* of the last two regions one may still be on its way out */
    assert_true(open_descriptors() <= descriptors + 2);
}

static void
age(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    pipeline->serving_since_ns -= 11 * (int64_t)NS_PER_S;
}

TEST_CASE(test_pauses_double)
{
    struct rig *rig = *state;
    for (uint32_t i = 0; i < 4; i++) {
        int64_t began_ns = clock_now_ns();
        on_loop(rig, condemn);
        struct error error;
        assert_int_equal(submit(rig, 0, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_UNAVAILABLE);
        wait_serving(rig, i + 2);
        assert_true(clock_now_ns() - began_ns >= (int64_t)(100u << i) * NS_PER_MS);
    }
    assert_int_equal(the_pipeline(rig)->resets_in_a_row, 4);
    on_loop(rig, age); /* it has served long since */
    on_loop(rig, condemn);
    wait_serving(rig, 6);
    assert_int_equal(the_pipeline(rig)->resets_in_a_row, 1);
}

static void
use_up_owners(struct pipeline *pipeline, struct lane *lane)
{
    (void)pipeline;
    lane->owner_next = OWNER_MAX;
}

/* Kills the worker of a place, and waits until another is in it, or the region is gone. */
static void
kill_worker(struct rig *rig)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    struct shm_worker *worker = region_worker(&lane->region, 0, 0);
    int32_t pid = atomic_load(&worker->pid);
    uint64_t resets = count(rig, PIPELINE_REGION_RESETS);
    assert_int_equal(kill(pid, SIGKILL), 0);
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (atomic_load(&worker->pid) == pid && count(rig, PIPELINE_REGION_RESETS) == resets)
        assert_true(clock_now_ns() < until_ns);
    lane_unref(lane);
}

TEST_CASE(test_owner_numbers_used_up)
{
    struct rig *rig = *state;
    on_loop(rig, use_up_owners);
    kill_worker(rig);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 0); /* the last number serves, too */
    assert_serves(rig);
    kill_worker(rig);
    wait_serving(rig, 2);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
    assert_serves(rig);
}

/* No successor could attach: the region goes as soon as one is needed. */
TEST_CASE(test_a_header_that_was_destroyed)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    lane->region.header->plan.slot_count++;
    lane_unref(lane);
    assert_serves(rig); /* an attached worker no longer needs it */
    kill_worker(rig);
    wait_serving(rig, 2);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
    assert_serves(rig);
}

/* A reply whose bytes are not sent yet keeps its region. */
TEST_CASE(test_lanes_exhausted)
{
    struct rig *rig = *state;
    struct error error;
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        wait_serving(rig, i + 1);
        rig->calls[i].keeps = true;
        assert_int_equal(submit(rig, i, PROBE_ECHO, i, TIME_NEVER_NS, &error), STATUS_OK);
        assert_int_equal(answer_of(rig, i)->status, STATUS_OK);
        on_loop(rig, forget_resets);
        on_loop(rig, condemn);
    }
    int64_t until_ns = clock_now_ns() + NS_PER_S; /* ten times the pause before a new region */
    while (clock_now_ns() < until_ns)
        assert_int_equal(submit(rig, LANES_MAX, PROBE_ECHO, 0, TIME_NEVER_NS, &error),
                         STATUS_UNAVAILABLE);
    for (uint32_t i = 0; i < LANES_MAX; i++) {
        const int64_t *words = rig->calls[i].kept.data; /* of a region that was dropped long ago */
        assert_int_equal(words[1], i);
        give_back(&rig->calls[i]);
    }
    wait_serving(rig, LANES_MAX + 1);
    assert_serves(rig);
}

/* Slots are free, blocks are not: a refusal, and nothing is kept of it. */
TEST_CASE(test_arena_full)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    static uint32_t blocks[BLOCKS_MAX];
    uint32_t taken = 0;
    while (arena_acquire(&lane->region, 0, 1, &blocks[taken]) == STATUS_OK)
        taken++;
    assert_int_equal(taken, lane->region.blocks.count);
    struct error error;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 0, TIME_NEVER_NS, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "arena full"));
    assert_int_equal(slots_used(&lane->region), 0);
    for (uint32_t i = 0; i < taken; i++)
        assert_int_equal(arena_release(&lane->region, 0, blocks[i], OWNER_COORDINATOR), STATUS_OK);
    lane_unref(lane);
    assert_serves(rig);
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 0);
}

int
main(void)
{
    log_init("test_fallbacks", LOG_ERROR);
    return TEST_RUN(.setup = set_up, .teardown = tear_down);
}
