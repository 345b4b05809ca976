/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=120
 *
 * A pipeline without gRPC: real workers, real shared memory, requests submitted by the test as a
 * front would. Proves that each request is answered exactly once and as it should be when it comes
 * late, when the pipeline is full, draining or corrupt, and that the counters say so. Every wait
 * has a deadline.
 */
#include <string.h>

#include "../test.h"
#include "coordinator/pipeline/gatherer.h"

#include "test_pipeline_rig.h"

/* ---- tests ---- */

TEST_CASE(test_a_request_is_answered)
{
    struct rig *rig = *state;
    struct error error;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 7, TIME_NEVER_NS, &error), STATUS_OK);
    const struct call *call = answer_of(rig, 0);
    assert_int_equal(call->status, STATUS_OK);
    assert_int_equal(call->words[1], 7);
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_REPLIES_OK), 1);
}

static int
submit_in_silence(void *context)
{
    struct rig *rig = context;
    struct error error;
    if (rig->calls[0].tag == 0)
        CHECK(submit(rig, 0, PROBE_WAIT, 0, TIME_NEVER_NS, &error) == STATUS_OK);
    return 0;
}

static void *
gather_and_leave(void *context)
{
    struct rig *rig = context;
    struct pipeline *pipeline = the_pipeline(rig);
    struct gatherer gatherer;
    gatherer_init(&gatherer, &pipeline, 1);
    CHECK(!gatherer_take(&gatherer));
    CHECK(gatherer_poll(&gatherer, submit_in_silence, rig));
    CHECK(gatherer.lane_count == 1);
    (void)gatherer_hand_over(&gatherer);
    gatherer_leave(&gatherer);
    return NULL;
}

/* A thread that gathers has submitted in a step that it says nothing of: it hands over that lane,
 * too, before it blocks. */
TEST_CASE(test_gatherer_hands_over_its_submissions)
{
    struct rig *rig = *state;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, gather_and_leave, rig), 0);
    pthread_join(thread, NULL);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_true(answer_of(rig, 0)->answered);
    wait_returned(rig);
}

TEST_CASE(test_late_on_arrival_is_not_run)
{
    struct rig *rig = *state;
    struct error error;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 0, clock_now_ns() - 1, &error),
                     STATUS_DEADLINE_EXCEEDED);
    assert_false(rig->calls[0].answered);
    assert_int_equal(count(rig, PIPELINE_REJECTED_LATE), 1);
    assert_int_equal(submit(rig, 1, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
    assert_int_equal(answer_of(rig, 1)->words[PROBE_ITEMS], 1);
}

TEST_CASE(test_full_is_refused_at_once)
{
    struct rig *rig = *state;
    struct error error;
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(submit(rig, i, PROBE_WAIT, 0, TIME_NEVER_NS, &error), STATUS_OK);
    assert_int_equal(submit(rig, SLOTS, PROBE_ECHO, 0, TIME_NEVER_NS, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "4 slots"));
    assert_int_equal(count(rig, PIPELINE_REJECTED_FULL), 1);
    for (uint32_t i = 0; i < SLOTS; i++)
        pipeline_cancel(the_pipeline(rig), rig->calls[i].tag);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_not_equal(answer_of(rig, i)->status, STATUS_UNAVAILABLE);
    wait_returned(rig);
    assert_int_equal(submit(rig, SLOTS, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
    assert_int_equal(answer_of(rig, SLOTS)->status, STATUS_OK);
}

TEST_CASE(test_an_outdated_tag_cancels_nothing)
{
    struct rig *rig = *state;
    struct error error;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
    uint64_t outdated = answer_of(rig, 0)->tag;
    wait_returned(rig);
    for (uint32_t i = 1; i <= 2 * SLOTS; i++) { /* its slot is among them */
        assert_int_equal(submit(rig, i, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
        pipeline_cancel(the_pipeline(rig), outdated);
        assert_int_equal(answer_of(rig, i)->status, STATUS_OK);
    }
    pipeline_cancel(the_pipeline(rig), UINT64_MAX); /* of a lane there is not */
}

static void
drain(void *context)
{
    struct rig *rig = context;
    pipeline_drain(the_pipeline(rig));
    pthread_mutex_lock(&rig->lock);
    rig->stopped = true;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

TEST_CASE(test_draining_refuses_and_finishes)
{
    struct rig *rig = *state;
    struct error error;
    assert_int_equal(submit(rig, 0, PROBE_WAIT, 0, TIME_NEVER_NS, &error), STATUS_OK);
    loop_post(rig->loop, drain, rig);
    pthread_mutex_lock(&rig->lock);
    while (!rig->stopped)
        pthread_cond_wait(&rig->changed, &rig->lock);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(submit(rig, 1, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "draining"));
    assert_int_equal(count(rig, PIPELINE_REJECTED_UNAVAILABLE), 1);
    assert_false(rig->calls[0].answered);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    answer_of(rig, 0);
}

/* As a hostile modelet would: the word of a request that is being run says that the slot is free.
 */
TEST_CASE(test_a_forged_free_slot_rebuilds_the_region)
{
    struct rig *rig = *state;
    struct error error;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(submit(rig, i, PROBE_WAIT, 0, TIME_NEVER_NS, &error), STATUS_OK);
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    uint32_t index = tag_ticket(rig->calls[0].tag).index;
    struct shm_ring ring = region_slot_ring(&lane->region, PLACE_FREE);
    struct shm_word forged = {.generation = 77, .place = PLACE_FREE, .owner = OWNER_COORDINATOR};
    atomic_store(object_word(&lane->region.slots, index), word_pack(forged));
    assert_int_equal(ring_fill_cell(&ring, index, forged), RING_OK);
    for (uint32_t i = 2; i < 2 * SLOTS; i++)
        if (submit(rig, i, PROBE_WAIT, 0, TIME_NEVER_NS, &error) != STATUS_OK)
            break; /* the free ring came to the forged one */
    assert_int_equal(error.status, STATUS_UNAVAILABLE);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(answer_of(rig, i)->status, STATUS_UNAVAILABLE);
    lane_unref(lane);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, 2);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
    assert_int_equal(submit(rig, 15, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_OK);
    assert_int_equal(answer_of(rig, 15)->status, STATUS_OK);
    wait_returned(rig);
}

/* A free slot whose generation is not the one that comes next: tickets of two requests would be
 * alike. */
TEST_CASE(test_a_forged_generation_rebuilds_the_region)
{
    struct rig *rig = *state;
    struct error error;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    struct shm_ring ring = region_slot_ring(&lane->region, PLACE_FREE);
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct shm_word forged = {
            .generation = 77, .place = PLACE_FREE, .owner = OWNER_COORDINATOR};
        atomic_store(object_word(&lane->region.slots, i), word_pack(forged));
        assert_int_equal(ring_fill_cell(&ring, i, forged), RING_OK);
    }
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 0, TIME_NEVER_NS, &error), STATUS_UNAVAILABLE);
    lane_unref(lane);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, 2);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
}

/* A slot that nobody uses comes back as a result: there is no caller for it, and none is guessed.
 */
TEST_CASE(test_a_forged_answer_rebuilds_the_region)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    uint8_t place = region_result_place(&lane->region);
    struct shm_ring ring = region_slot_ring(&lane->region, place);
    struct shm_word forged = {.generation = 1, .place = place, .owner = OWNER_COORDINATOR + 1};
    atomic_store(object_word(&lane->region.slots, SLOTS - 1), word_pack(forged));
    assert_int_equal(ring_fill_cell(&ring, SLOTS - 1, forged), RING_OK);
    doorbell_ring(&lane->region.header->coordinator_bell);
    lane_unref(lane);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, 2);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
}

/* The result that is forged for a request which is being run names the memory of another caller's
 * answer: it is not told to this one. */
TEST_CASE(test_a_result_in_anothers_memory_rebuilds_the_region)
{
    struct rig *rig = *state;
    struct error error;
    struct call *theirs = &rig->calls[0], *ours = &rig->calls[1];
    theirs->keeps = true;
    assert_int_equal(submit(rig, 0, PROBE_ECHO, 4711, TIME_NEVER_NS, &error), STATUS_OK);
    assert_int_equal(answer_of(rig, 0)->status, STATUS_OK);
    assert_int_equal(submit(rig, 1, PROBE_WAIT, 0, TIME_NEVER_NS, &error), STATUS_OK);
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    uint8_t place = region_result_place(&lane->region);
    struct shm_ticket ticket = tag_ticket(ours->tag);
    const struct shm_slot *from = region_slot(&lane->region, tag_ticket(theirs->tag).index);
    struct shm_slot *to = region_slot(&lane->region, ticket.index);
    assert_true(from->payload[place & 1].block_count > 0);
    to->payload[place & 1] = from->payload[place & 1];
    struct shm_ring ring = region_slot_ring(&lane->region, place);
    struct shm_word forged = {
        .generation = ticket.generation, .place = place, .owner = OWNER_COORDINATOR + 1};
    atomic_store(object_word(&lane->region.slots, ticket.index), word_pack(forged));
    assert_int_equal(ring_fill_cell(&ring, ticket.index, forged), RING_OK);
    doorbell_ring(&lane->region.header->coordinator_bell);
    assert_int_equal(answer_of(rig, 1)->status, STATUS_UNAVAILABLE);
    give_back(theirs);
    lane_unref(lane);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, 2);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
}

TEST_CASE(test_gauges_say_what_there_is)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    pipeline_publish(the_pipeline(rig));
    assert_int_equal(count(rig, PIPELINE_SLOTS_MAX), SLOTS);
    assert_int_equal(count(rig, PIPELINE_BLOCKS_MAX), lane->region.blocks.count);
    lane_unref(lane);
}

int
main(void)
{
    log_init("test_pipeline", LOG_ERROR);
    return TEST_RUN(.setup = set_up, .teardown = tear_down);
}
