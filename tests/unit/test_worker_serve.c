/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real worker processes serve: what a request gets for each thing that a modelet can do with it, in
 * batches of one and of many, over one stage and over two. The modelet `probe` does what the
 * request says and reports what it has seen; the counters must agree with it, and nothing may be
 * left in use.
 *
 * ctest: timeout=180
 */
#include "test_worker_rig.h"

/* A wait that no test sees the end of. */
#define LONG_NS (3600 * NS_PER_S)

enum { BATCH = 8 };

static void
assert_failed(const struct rig_outcome *outcome, enum status status, const char *text)
{
    assert_int_equal(outcome->status, status);
    assert_string_equal(outcome->text, text);
}

static struct rig_request
ask(int64_t command, int64_t argument, int64_t tag)
{
    return (struct rig_request){.command = command, .argument = argument, .tag = tag};
}

/* ---- one at a time ---- */

TEST_CASE(test_echo)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    for (int64_t i = 0; i < 100; i++) {
        struct rig_outcome outcome = rig_call(rig, (struct rig_request){.tag = i});
        assert_int_equal(outcome.status, STATUS_OK);
        assert_int_equal(outcome.words[2], i);
        assert_int_equal(outcome.words[PROBE_BATCH_COUNT], 1);
        assert_int_equal(outcome.words[PROBE_RUNS], i + 1);
        assert_int_equal(outcome.words[PROBE_MODEL], 0);
        assert_int_equal(outcome.words[PROBE_PARAMETER_VALUE], -1);
    }
    struct rig_outcome forwarded =
        rig_call(rig, (struct rig_request){.command = PROBE_FORWARD, .tag = 5});
    assert_int_equal(forwarded.word_count, PROBE_WORDS);
    assert_int_equal(forwarded.words[2], 5);
    rig_wait_counter(rig, 0, WORKER_ITEMS_OK, 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS), 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES), 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_CLOSED_SINGLE), 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCH_ITEMS), 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_RUN), 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_WAIT), 101);
    assert_int_equal(rig_counter(rig, 0, WORKER_PID), rig->workers[0][0].pid);
    rig_wait_asleep(rig, 0, 0);
    assert_true(rig_counter(rig, 0, WORKER_SLEEPS) > 0);
    rig_stop(rig);
}

/* Outputs are built three times over the same blocks, parameters go along. */
TEST_CASE(test_two_stages)
{
    const struct rig_stage stages[] = {{.modelet = "probe"}, {.modelet = "probe"}};
    struct rig *rig = rig_start(stages, 2);
    for (int64_t i = 1; i <= 100; i++) {
        int64_t command = i % 2 == 0 ? PROBE_ECHO : PROBE_FORWARD;
        struct rig_outcome outcome = rig_call(
            rig, (struct rig_request){.command = command, .tag = i, .parameter = 1000 + i});
        assert_int_equal(outcome.status, STATUS_OK);
        assert_int_equal(outcome.words[2], i);
        if (command == PROBE_ECHO) {
            assert_int_equal(outcome.words[PROBE_PID], rig->workers[1][0].pid);
            assert_int_equal(outcome.words[PROBE_PARAMETER_VALUE], 1000 + i);
        }
    }
    struct rig_outcome failed = rig_call(rig, ask(PROBE_FAIL, 5, 1));
    assert_int_equal(failed.failed_place, 0);
    rig_wait_counter(rig, 0, WORKER_ITEMS, 101);
    assert_int_equal(rig_counter(rig, 1, WORKER_ITEMS), 100); /* the failed one was spared */
    rig_stop(rig);
}

TEST_CASE(test_outcomes_of_an_item)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct rig_outcome outcome = rig_call(rig, ask(PROBE_FAIL, 9, 77));
    assert_failed(&outcome, STATUS_FAILED_PRECONDITION, "told to fail item 77");
    outcome = rig_call(rig, ask(PROBE_FAIL, SHOAL_OK, 1));
    assert_failed(&outcome, STATUS_UNKNOWN, "told to fail item 1"); /* a failure is never OK */
    outcome = rig_call(rig, ask(PROBE_FAIL_SILENT, 5, 0));
    assert_failed(&outcome, STATUS_NOT_FOUND, "modelet probe gave no reason");
    outcome = rig_call(rig, ask(PROBE_FAIL_SILENT, 12345, 0));
    assert_failed(&outcome, STATUS_UNKNOWN, "modelet probe gave no reason");
    outcome = rig_call(rig, ask(PROBE_FAIL_SILENT, -7, 0));
    assert_failed(&outcome, STATUS_UNKNOWN, "modelet probe gave no reason");
    outcome = rig_call(rig, ask(PROBE_UNSET, 0, 0));
    assert_failed(&outcome, STATUS_INTERNAL, "modelet probe left the item unset");
    outcome = rig_call(rig, ask(PROBE_NO_OUTPUT, 0, 0));
    assert_failed(&outcome, STATUS_INTERNAL, "modelet probe gave no output");
    outcome = rig_call(rig, ask(PROBE_TWICE, 0, 0));
    assert_failed(&outcome, STATUS_ALREADY_EXISTS,
                  "modelet probe: tensor \"probe\": the name is taken");
    outcome = rig_call(rig, ask(PROBE_TOO_LARGE, 1 << 30, 0));
    assert_int_equal(outcome.status, STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(outcome.text, "\"large\""));
    outcome = rig_call(rig, ask(PROBE_TOO_LARGE, -1, 0));
    assert_int_equal(outcome.status, STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(outcome.text, "negative dimension"));
    outcome = rig_call(rig, ask(PROBE_FORWARD_BAD, 0, 0));
    assert_int_equal(outcome.status, STATUS_OUT_OF_RANGE);
    outcome = rig_call(rig, ask(PROBE_WASTE, 5000, 0));
    assert_failed(&outcome, STATUS_ABORTED, "told to waste");
    outcome = rig_call(rig, ask(PROBE_FAIL_BATCH, STATUS_DATA_LOSS, 0));
    assert_failed(&outcome, STATUS_DATA_LOSS, "told to fail the batch");
    outcome = rig_call(rig, (struct rig_request){.command = PROBE_PARAMETER, .parameter = 42});
    assert_int_equal(outcome.words[PROBE_PARAMETER_VALUE], 42);
    outcome = rig_call(rig, ask(PROBE_LOG, 3, 0));
    assert_int_equal(outcome.status, STATUS_OK);
    rig_wait_counter(rig, 0, WORKER_ITEMS, 15);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_OK), 2);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_UNSET), 1);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_FAILED), 12);
    rig_stop(rig);
}

/* Bytes of a payload that no honest process writes: the item fails, the worker goes on. */
TEST_CASE(test_unreadable_payload)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct shm_ticket ticket = rig_push(rig, ask(PROBE_ECHO, 0, 0));
    struct shm_payload *payload = &region_slot(&rig->region, ticket.index)->payload[0];
    uint16_t tensor_count = payload->tensor_count;
    payload->tensor_count = 60000;
    stage_notify(&rig->region, 0);
    struct rig_outcome outcome = rig_wait_outcome(rig);
    assert_int_equal(outcome.status, STATUS_INTERNAL);
    assert_non_null(strstr(outcome.text, "60000 tensors"));
    assert_int_equal(tensor_count, 1);
    outcome = rig_call(rig, ask(PROBE_ECHO, 0, 0));
    assert_int_equal(outcome.words[PROBE_RUNS], 1);
    rig_stop(rig);
}

/* ---- items that are not run ---- */

TEST_CASE(test_cancelled_and_late_are_not_run)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct rig_outcome outcome = rig_call(rig, (struct rig_request){.cancelled = true});
    assert_failed(&outcome, STATUS_CANCELLED, "cancelled before stage stage0 ran it");
    outcome = rig_call(rig, (struct rig_request){.deadline_ns = clock_now_ns() - 1});
    assert_failed(&outcome, STATUS_DEADLINE_EXCEEDED,
                  "its deadline passed before stage stage0 ran it");
    outcome = rig_call(rig, (struct rig_request){.deadline_ns = clock_now_ns() + LONG_NS});
    assert_int_equal(outcome.status, STATUS_OK);
    assert_int_equal(outcome.words[PROBE_RUNS], 1); /* the first that the modelet has seen */
    rig_wait_counter(rig, 0, WORKER_ITEMS_OK, 1);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_CANCELLED), 1);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_LATE), 1);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES), 1);
    rig_stop(rig);
}

/* Its time is not over, but would be before a run is: it came behind a run of the usual length,
 * whose end leaves it half of one. A machine that stands still meanwhile makes it later yet. */
TEST_CASE(test_late_items_are_not_run)
{
    enum { RUN_MS = 200, KNOWN = 3 };
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    for (int i = 0; i < KNOWN; i++)
        assert_int_equal(rig_call(rig, ask(PROBE_SLOW, RUN_MS, i)).status, STATUS_OK);
    rig_push(rig, ask(PROBE_SLOW, RUN_MS, KNOWN));
    rig_submit(rig, (struct rig_request){.deadline_ns =
                                             clock_now_ns() + RUN_MS * 3 / 2 * (int64_t)NS_PER_MS});
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_DEADLINE_EXCEEDED);
    struct rig_outcome outcome = rig_call(rig, ask(PROBE_ECHO, 0, 0));
    assert_int_equal(outcome.words[PROBE_RUNS], KNOWN + 2);
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_LATE), 1);
    rig_stop(rig);
}

/* Cancelled while it waits for company in an open batch. */
TEST_CASE(test_cancelled_in_the_batch_is_not_run)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = 2, .batch_wait_ns = LONG_NS}, 1);
    struct shm_ticket first = rig_submit(rig, (struct rig_request){.tag = 1});
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    slot_cancel(&rig->region, first);
    rig_submit(rig, (struct rig_request){.tag = 2});
    for (int i = 0; i < 2; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        if (outcome.ticket.index == first.index) {
            assert_int_equal(outcome.status, STATUS_CANCELLED);
        } else {
            assert_int_equal(outcome.status, STATUS_OK);
            assert_int_equal(outcome.words[PROBE_BATCH_COUNT], 1);
        }
    }
    rig_stop(rig);
}

/* A long run can ask whether anybody waits, by cancellation and by deadline. */
TEST_CASE(test_run_sees_that_the_caller_is_gone)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe"}, 1);
    struct shm_ticket ticket = rig_submit(rig, ask(PROBE_WAIT, 0, 0));
    rig_wait_counter(rig, 0, WORKER_BATCHES, 1);
    slot_cancel(&rig->region, ticket);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    struct rig_request hurried = {.command = PROBE_WAIT,
                                  .deadline_ns = clock_now_ns() + 50 * (int64_t)NS_PER_MS};
    assert_int_not_equal(rig_call(rig, hurried).status, STATUS_CANCELLED);
    rig_stop(rig);
}

/* ---- batches ---- */

/* Pushes `count` requests before anybody is notified. */
static void
push_all(struct rig *rig, const struct rig_request *requests, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        rig_push(rig, requests[i]);
    stage_notify(&rig->region, 0);
}

TEST_CASE(test_a_full_batch_goes_at_once)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = BATCH, .batch_wait_ns = LONG_NS}, 1);
    for (int64_t i = 0; i < (int64_t)3 * BATCH; i++)
        rig_submit(rig, (struct rig_request){.tag = i});
    for (int64_t i = 0; i < (int64_t)3 * BATCH; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(outcome.words[2], i); /* in order: there is one worker */
        assert_int_equal(outcome.words[PROBE_BATCH_COUNT], BATCH);
    }
    assert_int_equal(rig_counter(rig, 0, WORKER_CLOSED_FULL), 3);
    rig_stop(rig);
}

TEST_CASE(test_a_lone_item_waits_and_goes)
{
    const int64_t wait_ns = 30 * (int64_t)NS_PER_MS;
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = BATCH, .batch_wait_ns = wait_ns}, 1);
    int64_t began_ns = clock_now_ns();
    struct rig_outcome outcome = rig_call(rig, (struct rig_request){.tag = 1});
    int64_t took_ns = clock_now_ns() - began_ns;
    assert_int_equal(outcome.words[PROBE_BATCH_COUNT], 1);
    rig_wait_counter(rig, 0, WORKER_CLOSED_WAIT, 1);
    assert_true(took_ns >= wait_ns);
    rig_stop(rig);
}

/* It could wait for an hour. */
TEST_CASE(test_a_lone_item_does_not_wait_adaptively)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe",
                                                    .batch_size = BATCH,
                                                    .batch_wait_ns = LONG_NS,
                                                    .wait_adaptive = true},
                                1);
    for (int64_t i = 0; i < 50; i++)
        assert_int_equal(rig_call(rig, ask(PROBE_ECHO, 0, i)).words[PROBE_BATCH_COUNT], 1);
    rig_wait_counter(rig, 0, WORKER_CLOSED_ADAPTIVE, 50);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES), 50);
    assert_int_equal(rig_counter(rig, 0, WORKER_COMPANY_WAIT), 0);
    rig_stop(rig);
}

/* Two workers that learn separately, a burst and single arrivals: every item is run
 * once, and no batch stays open for good. */
TEST_CASE(test_two_workers_wait_adaptively)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe",
                                                    .workers = 2,
                                                    .batch_size = BATCH,
                                                    .batch_wait_ns = LONG_NS,
                                                    .wait_adaptive = true},
                                1);
    enum { ROUNDS = 30, CROWD = 5 * BATCH / 2 };
    for (int64_t round = 0; round < ROUNDS; round++) {
        bool seen[CROWD] = {false};
        for (int64_t i = 0; i < CROWD; i++)
            rig_submit(rig, ask(i % BATCH == 0 ? PROBE_SLOW : PROBE_ECHO, 2, i));
        for (int i = 0; i < CROWD; i++) {
            struct rig_outcome outcome = rig_wait_outcome(rig);
            assert_int_equal(outcome.status, STATUS_OK);
            assert_false(seen[outcome.words[2]]);
            seen[outcome.words[2]] = true;
        }
        assert_int_equal(rig_call(rig, ask(PROBE_ECHO, 0, 1)).status, STATUS_OK);
    }
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(rig_counter(rig, i, WORKER_BATCHES),
                         rig_counter(rig, i, WORKER_CLOSED_FULL) +
                             rig_counter(rig, i, WORKER_CLOSED_ADAPTIVE));
    rig_stop(rig);
}

TEST_CASE(test_no_wait_takes_what_is_there)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe", .batch_size = BATCH}, 1);
    const struct rig_request requests[3] = {{.tag = 0}, {.tag = 1}, {.tag = 2}};
    push_all(rig, requests, 3);
    for (int64_t i = 0; i < 3; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(outcome.words[2], i);
        assert_true(outcome.words[PROBE_BATCH_COUNT] <= 3);
    }
    rig_wait_counter(rig, 0, WORKER_ITEMS_OK, 3);
    assert_int_equal(rig_counter(rig, 0, WORKER_CLOSED_WAIT), rig_counter(rig, 0, WORKER_BATCHES));
    rig_stop(rig);
}

/*
 * The wait is longer than the deadline: the batch goes while there is time to run it, as long as
 * runs have taken so far. The times are far apart, for machines that let a process wait.
 */
TEST_CASE(test_a_deadline_cuts_the_wait)
{
    const int64_t run_ns = NS_PER_S;
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = BATCH, .batch_wait_ns = LONG_NS}, 1);
    for (int64_t i = 0; i < BATCH; i++)
        rig_submit(rig, ask(i == 0 ? PROBE_SLOW : PROBE_ECHO, run_ns / NS_PER_MS, i));
    for (int64_t i = 0; i < BATCH; i++)
        assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    int64_t deadline_ns = clock_now_ns() + 4 * run_ns;
    rig_push(rig, ask(PROBE_ECHO, 0, 1));
    rig_submit(rig, (struct rig_request){.tag = 2, .deadline_ns = deadline_ns});
    for (int i = 0; i < 2; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(outcome.status, STATUS_OK);
        assert_int_equal(outcome.words[PROBE_BATCH_COUNT], 2);
    }
    int64_t left_ns = deadline_ns - clock_now_ns();
    assert_true(left_ns > run_ns / 10); /* what a run takes was left */
    assert_true(left_ns < 3 * run_ns);  /* and it did wait */
    rig_wait_counter(rig, 0, WORKER_CLOSED_DEADLINE, 1);
    rig_stop(rig);
}

TEST_CASE(test_draining_closes_batches)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = BATCH, .batch_wait_ns = LONG_NS}, 1);
    rig_submit(rig, (struct rig_request){.tag = 1});
    rig_wait_counter(rig, 0, WORKER_ITEMS, 1);
    atomic_store(&region_stage(&rig->region, 0)->draining, 1);
    stage_notify(&rig->region, 0);
    assert_int_equal(rig_wait_outcome(rig).status, STATUS_OK);
    assert_int_equal(rig_call(rig, (struct rig_request){.tag = 2}).status, STATUS_OK);
    rig_wait_counter(rig, 0, WORKER_CLOSED_DRAINING, 2);
    rig_stop(rig);
}

/* A worker that sleeps with an open batch has accepted the role, which was offered to it while it
 * slept for work, and is not idle: nobody takes the role back, and what comes next wakes it. */
TEST_CASE(test_the_role_is_kept_while_the_batch_is_open)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){.modelet = "probe", .batch_size = 2, .batch_wait_ns = LONG_NS}, 1);
    struct shm_doorbell *bell = &region_worker(&rig->region, 0, 0)->bell;
    for (uint64_t i = 0; i < 5; i++) {
        rig_wait_asleep(rig, 0, 0);
        rig_submit(rig, ask(PROBE_ECHO, 0, 1));
        rig_wait_counter(rig, 0, WORKER_ITEMS, 2 * i + 1);
        rig_wait_asleep(rig, 0, 0);
        assert_int_equal(atomic_load(&region_stage(&rig->region, 0)->former), rig->last_owner);
        assert_int_equal(atomic_load(&region_stage(&rig->region, 0)->idle), 0);
        uint32_t sequence = atomic_load(&bell->sequence);
        rig_submit(rig, ask(PROBE_ECHO, 0, 2));
        assert_int_not_equal(atomic_load(&bell->sequence), sequence); /* it was rung */
        assert_int_equal(rig_wait_outcome(rig).words[PROBE_BATCH_COUNT], 2);
        assert_int_equal(rig_wait_outcome(rig).words[PROBE_BATCH_COUNT], 2);
    }
    rig_stop(rig);
}

/*
 * Two workers want work, and batches are whole all the same: one gathers at a time. (On a machine
 * that stands still for so long a batch may be due before it is full.)
 */
TEST_CASE(test_two_workers_do_not_split_batches)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){
            .modelet = "probe", .workers = 2, .batch_size = BATCH, .batch_wait_ns = NS_PER_S / 5},
        1);
    enum { ROUNDS = 20 };
    for (int64_t i = 0; i < (int64_t)ROUNDS * BATCH; i++)
        rig_submit(rig, ask(i % BATCH == 0 ? PROBE_SLOW : PROBE_ECHO, 2, i));
    bool seen[ROUNDS * BATCH] = {false};
    bool worked[2] = {false};
    int in_whole_batches = 0;
    for (int i = 0; i < ROUNDS * BATCH; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(outcome.status, STATUS_OK);
        assert_false(seen[outcome.words[2]]);
        seen[outcome.words[2]] = true;
        worked[outcome.words[PROBE_WORKER]] = true;
        in_whole_batches += outcome.words[PROBE_BATCH_COUNT] == BATCH;
    }
    assert_true(worked[0] && worked[1]); /* while one is busy the other gathers */
    assert_true(in_whole_batches >= (ROUNDS - 4) * BATCH);
    rig_stop(rig);
}

/* ---- batches that fail as a whole ---- */

/* One of eight makes `run` fail: it alone fails, with the modelet's own words. */
TEST_CASE(test_a_failing_batch_is_halved)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){
            .modelet = "probe", .batch_size = BATCH, .batch_wait_ns = LONG_NS, .halvings_max = 3},
        1);
    for (int64_t culprit = 0; culprit < BATCH; culprit++) {
        struct rig_request requests[BATCH];
        for (int64_t i = 0; i < BATCH; i++)
            requests[i] = ask(i == culprit ? PROBE_FAIL_BATCH : PROBE_ECHO, STATUS_OUT_OF_RANGE, i);
        push_all(rig, requests, BATCH);
        uint32_t failed = 0;
        for (int64_t i = 0; i < BATCH; i++) {
            struct rig_outcome outcome = rig_wait_outcome(rig);
            if (outcome.status != STATUS_OK) {
                assert_failed(&outcome, STATUS_OUT_OF_RANGE, "told to fail the batch");
                failed++;
                continue;
            }
            assert_int_not_equal(outcome.words[2], culprit);
            assert_int_equal(outcome.word_count, PROBE_END); /* of one run, not of several */
        }
        assert_int_equal(failed, 1);
    }
    rig_wait_counter(rig, 0, WORKER_BATCHES_HALVED, BATCH);
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES), BATCH);
    assert_int_equal(rig_counter(rig, 0, WORKER_RUN), BATCH * 7); /* 8, 4+4, 2+2, 1+1 */
    assert_int_equal(rig_counter(rig, 0, WORKER_ITEMS_OK), BATCH * (BATCH - 1));
    rig_stop(rig);
}

/* With every item a culprit the runs are bounded, and all fail. */
TEST_CASE(test_halving_is_bounded)
{
    struct rig *rig = rig_start(
        &(struct rig_stage){
            .modelet = "probe", .batch_size = BATCH, .batch_wait_ns = LONG_NS, .halvings_max = 2},
        1);
    struct rig_request requests[BATCH];
    for (int64_t i = 0; i < BATCH; i++)
        requests[i] = ask(PROBE_FAIL_BATCH, STATUS_ABORTED, i);
    push_all(rig, requests, BATCH);
    for (int64_t i = 0; i < BATCH; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_failed(&outcome, STATUS_ABORTED, "told to fail the batch");
    }
    rig_wait_counter(rig, 0, WORKER_BATCHES_HALVED, 1);
    assert_int_equal(rig_counter(rig, 0, WORKER_RUN), 5); /* two halvings: 8, 4, 2, 2, 4 */
    rig_stop(rig);
}

/* Overwritten items are not run a second time: all fail. */
TEST_CASE(test_changed_inputs_are_not_run_again)
{
    struct rig *rig = rig_start(&(struct rig_stage){.modelet = "probe_in_place",
                                                    .batch_size = BATCH,
                                                    .batch_wait_ns = LONG_NS,
                                                    .halvings_max = 100},
                                1);
    struct rig_request requests[BATCH];
    for (int64_t i = 0; i < BATCH; i++)
        requests[i] = ask(i == 3 ? PROBE_FAIL_BATCH : PROBE_ECHO, STATUS_ABORTED, i);
    push_all(rig, requests, BATCH);
    for (int64_t i = 0; i < BATCH; i++) {
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_failed(&outcome, STATUS_ABORTED, "told to fail the batch");
    }
    assert_int_equal(rig_counter(rig, 0, WORKER_BATCHES_HALVED), 0);
    assert_int_equal(rig_counter(rig, 0, WORKER_RUN), 1);
    rig_stop(rig);
}

/* ---- much of everything ---- */

/* Two stages of two workers, batches, failures, cancellations: every request comes back once.
 */
TEST_CASE(test_nothing_is_lost)
{
    const struct rig_stage stages[] = {
        {.modelet = "probe",
         .workers = 2,
         .batch_size = BATCH,
         .batch_wait_ns = NS_PER_MS,
         .halvings_max = 4,
         .spin_limit_ns = 20000},
        {.modelet = "probe", .workers = 2, .batch_size = 3, .halvings_max = 1},
    };
    struct rig *rig = rig_start(stages, 2);
    static const int64_t commands[] = {PROBE_ECHO, PROBE_ECHO,  PROBE_FORWARD,    PROBE_FAIL,
                                       PROBE_ECHO, PROBE_UNSET, PROBE_FAIL_BATCH, PROBE_WASTE};
    enum { REQUESTS = 20000, IN_FLIGHT = 200 };
    uint32_t pushed = 0;
    uint32_t back = 0;
    uint32_t in_slot[RIG_SLOTS] = {0};
    while (back < REQUESTS) {
        while (pushed < REQUESTS && pushed - back < IN_FLIGHT) {
            struct shm_ticket ticket =
                rig_submit(rig, (struct rig_request){.command = commands[pushed % 8],
                                                     .argument = 13,
                                                     .tag = pushed,
                                                     .cancelled = pushed % 50 == 0});
            assert_int_equal(in_slot[ticket.index], 0);
            in_slot[ticket.index] = ticket.generation;
            pushed++;
        }
        struct rig_outcome outcome = rig_wait_outcome(rig);
        assert_int_equal(in_slot[outcome.ticket.index], outcome.ticket.generation);
        in_slot[outcome.ticket.index] = 0;
        back++;
    }
    rig_wait_counter(rig, 0, WORKER_ITEMS, REQUESTS);
    rig_stop(rig);
}

TEST_MAIN()
