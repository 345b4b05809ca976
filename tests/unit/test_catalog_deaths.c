/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=240
 *
 * Models while workers come and go: they are killed, die of loads, hang in them, lie about models,
 * or are replaced by a reload. Callers of a loaded model get their answers all the same, and
 * what is wrong with one model is no other's concern.
 */
#include <sys/wait.h>

#include "test_catalog_rig.h"

/* ---- workers that die ---- */

TEST_CASE(test_kills_under_traffic)
{
    enum { MODELS = 20, KILLS = 12, IN_FLIGHT = 8 };
    struct rig *rig = *state;
    char ids[MODELS][16];
    for (int i = 0; i < MODELS; i++) {
        snprintf(ids[i], sizeof(ids[i]), "m%d", i);
        assert_done(give(rig, ORDER_LOAD, ids[i], ""));
    }
    uint32_t next = 0;
    for (uint32_t turn = 0; turn < KILLS; turn++) {
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            assert_asked(rig, ids[next++ % MODELS], i, PROBE_SLOW, i % 3);
        kill_worker(rig, turn % 2);
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            assert_answered(rig, i, (next - IN_FLIGHT + i) % MODELS);
        wait_restarts(rig, turn + 1); /* one that dies twice of the same is poison */
    }
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_REPLIES_FAILED), 0);
    assert_int_equal(count(rig, PIPELINE_MODEL_LOADS_FAILED), 0);
}

/* A load that harms its worker affects its own model only. */
static void
kill_by(struct rig *rig, const char *key, enum status status, const char *part)
{
    enum { IN_FLIGHT = 8 };
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    struct order bad = {.rig = rig, .kind = ORDER_LOAD, .id = "m2", .path = "m2", .key = key};
    order_begin(&bad);
    uint32_t rounds = 0;
    while (bad.done == 0 || rounds < 4) {
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            assert_asked(rig, "m1", i, PROBE_SLOW, 2);
        for (uint32_t i = 0; i < IN_FLIGHT; i++)
            assert_answered(rig, i, 1);
        rounds++;
    }
    assert_refused(bad, status, part);
    wait_restarts(rig, 2);
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    assert_answered(rig, 0, 1);
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_REPLIES_FAILED), 0);
    assert_int_equal(count(rig, PIPELINE_POISON), 0);
    assert_int_equal(restarts_seen, 2);
}

TEST_CASE(test_load_crashes)
{
    kill_by(*state, "crash", STATUS_INTERNAL, "workers died while they loaded it");
}

TEST_CASE(test_load_crashes_one_worker)
{
    kill_by(*state, "exit", STATUS_INTERNAL, "workers died while they loaded it");
}

/* A request that is in the hands of both workers that a load kills runs a third time, and has its
 * answer: it is charged with neither death. */
TEST_CASE(test_load_crashes_beside_a_request)
{
    struct rig *rig = *state;
    char gate[200];
    char key[256];
    rig_path(rig, "gate", gate, sizeof(gate));
    snprintf(key, sizeof(key), "gate=%s exit", gate);
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    assert_asked(rig, "m1", 0, PROBE_WAIT, 0);
    wait_runs(rig);
    struct order bad = {.rig = rig, .kind = ORDER_LOAD, .id = "m2", .path = "m2", .key = key};
    order_begin(&bad);
    rig_file(rig, "gate");
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    do {
        on_loop(rig, see_stage);
        assert_true(clock_now_ns() < until_ns);
    } while (restarts_seen < 1);
    /* a successor that is very quick meets the gate open: then it dies before it runs anything */
    assert_true(unlink(gate) == 0);
    if (bad.done == 0)
        wait_runs(rig);
    rig_file(rig, "gate");
    assert_int_equal(order_end(&bad), STATUS_INTERNAL);
    wait_restarts(rig, 2);
    wait_runs(rig);
    assert_false(rig->calls[0].answered);
    pipeline_cancel(the_pipeline(rig), rig->calls[0].tag);
    assert_answered(rig, 0, 1);
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_POISON), 0);
}

/* A signal takes a moment: until then it would go on. */
static void
stop_process(pid_t pid)
{
    siginfo_t info;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
}

/* Once a worker has died of a load, its successor is not told to before the others are done. */
TEST_CASE(test_retried_alone)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    struct shm_worker *second = region_worker(&lane->region, 0, 1);
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    stop_process(atomic_load(&second->pid));
    struct order bad = {.rig = rig, .kind = ORDER_LOAD, .id = "m2", .path = "m2", .key = "exit"};
    order_begin(&bad);
    wait_restarts(rig, 1);
    wait_reported_of(lane, 0, 4); /* m1; to say how large m2 is; m2; and its successor of m1 */
    assert_int_equal(bad.done, 0);
    assert_int_equal(kill(atomic_load(&second->pid), SIGCONT), 0);
    assert_int_equal(order_end(&bad), STATUS_INTERNAL);
    wait_restarts(rig, 2);
    assert_int_equal(restarts_seen, 2);
    lane_unref(lane);
}

static uint64_t load_timeouts_seen;

static void
see_load_timeouts(struct pipeline *pipeline, struct lane *lane)
{
    load_timeouts_seen =
        counter_get(counters_values(pipeline->options.counters, lane->generation->stage_scopes[0]),
                    STAGE_LOAD_TIMEOUTS);
}

TEST_CASE(test_load_hangs)
{
    kill_by(*state, "stuck", STATUS_DEADLINE_EXCEEDED, "load_timeout_ms (2000)");
    on_loop(*state, see_load_timeouts);
    assert_int_equal(load_timeouts_seen, 2);
}

/* Its file is gone when a successor is to load it: then nobody has it. */
TEST_CASE(test_successor_cannot)
{
    struct rig *rig = *state;
    char path[256];
    assert_done(give(rig, ORDER_LIST, "m1", "map"));
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    assert_answered(rig, 0, 1);
    rig_path(rig, "m1", path, sizeof(path));
    assert_int_equal(unlink(path), 0);
    kill_worker(rig, 0);
    wait_state(rig, "m1", MODEL_IS_FAILED);
    struct error error = ERROR_NONE;
    assert_int_not_equal(ask(rig, "m1", 1, PROBE_ECHO, 0, &error), STATUS_OK);
    assert_non_null(strstr(error.text, "model \"m1\" could not be loaded"));
    assert_done(give(rig, ORDER_LOAD, "m2", ""));
    assert_asked(rig, "m2", 2, PROBE_ECHO, 0);
    assert_answered(rig, 2, 2);
    wait_returned(rig);
}

/* ---- workers that lie ---- */

/* The workers stand still, and the test does their work. */
static void
signal_workers(struct rig *rig, int number)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    for (uint32_t i = 0; i < rig_workers; i++) {
        pid_t pid = atomic_load(&region_worker(&lane->region, 0, i)->pid);
        if (number == SIGSTOP)
            stop_process(pid);
        else
            assert_int_equal(kill(pid, number), 0);
    }
    lane_unref(lane);
}

/* Takes the next request as a worker would, and hands it back. */
static void
hand_back(struct lane *lane, uint16_t owner)
{
    struct shm_ticket ticket;
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (slot_pop(&lane->region, 0, owner, &ticket) != RING_OK)
        if (clock_now_ns() > until_ns)
            fail_msg("nothing waits at the stage");
    slot_set_not_held(region_slot(&lane->region, ticket.index), 0);
    assert_int_equal(slot_push(&lane->region, ticket, 0, PLACE_ERROR, owner, clock_now_ns()),
                     RING_OK);
    doorbell_ring(&lane->region.header->coordinator_bell);
}

TEST_CASE(test_handed_back_for_ever)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    uint16_t owner = (uint16_t)atomic_load(&region_worker(&lane->region, 0, 0)->owner);
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    signal_workers(rig, SIGSTOP);
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    for (int i = 0; i < 8; i++) {
        hand_back(lane, owner);
        wait_count(rig, PIPELINE_MODEL_RETURNS, (uint64_t)i + 1);
    }
    assert_false(rig->calls[0].answered);
    hand_back(lane, owner);
    assert_failed(rig, 0, STATUS_UNAVAILABLE, "returned the request 8 times");
    signal_workers(rig, SIGCONT);
    assert_asked(rig, "m1", 1, PROBE_ECHO, 0);
    assert_answered(rig, 1, 1);
    lane_unref(lane);
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 0);
}

/* A request that waits for its model is in nobody's hands: an answer to it is forged. */
TEST_CASE(test_forged_answer)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_done(give(rig, ORDER_LIST, "m1", gated(rig, "")));
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    wait_state(rig, "m1", MODEL_IS_LOADING);
    assert_int_equal(slot_push(&lane->region, tag_ticket(rig->calls[0].tag), PLACE_FREE, 1,
                               OWNER_COORDINATOR, clock_now_ns()),
                     RING_OK);
    doorbell_ring(&lane->region.header->coordinator_bell);
    lane_unref(lane);
    assert_failed(rig, 0, STATUS_UNAVAILABLE, "being rebuilt");
    wait_serving(rig, 2);
    rig_file(rig, "gate");
    assert_asked(rig, "m1", 1, PROBE_ECHO, 0);
    assert_answered(rig, 1, 1);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
}

/* Answers that are malformed or unsolicited: the worker is killed, and what it was to
 * load fails when that has happened twice. */
TEST_CASE(test_nonsense)
{
    struct rig *rig = *state;
    assert_done(give(rig, ORDER_LOAD, "m1", ""));
    struct order lie = give(rig, ORDER_LOAD, "m2", "lie");
    assert_refused(lie, STATUS_INTERNAL, "workers died while they loaded it");
    wait_restarts(rig, 2);
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    assert_answered(rig, 0, 1);
    wait_returned(rig);
}

/* ---- reload ---- */

static uint32_t reloads;
static struct error reload_error;
static struct rig *reloading;

static void
on_reloaded(void *context, struct pipeline *pipeline, const struct error *error)
{
    struct rig *rig = context;
    (void)pipeline;
    pthread_mutex_lock(&rig->lock);
    reload_error = error == NULL ? ERROR_NONE : *error;
    reloads++;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

static void
begin_reload(struct pipeline *pipeline, struct lane *lane)
{
    (void)lane;
    struct error error = ERROR_NONE;
    struct pipeline_reload reload = {on_reloaded, reloading};
    assert_int_equal(pipeline_reload(pipeline, reloading->source,
                                     &reloading->source->config.pipelines[0], &reload, &error),
                     STATUS_OK);
}

static void
wait_reloaded(struct rig *rig, uint32_t least)
{
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &reloads, least);
    pthread_mutex_unlock(&rig->lock);
}

TEST_CASE(test_reload)
{
    struct rig *rig = *state;
    char ids[6][16];
    reloading = rig;
    reloads = 0;
    for (int i = 0; i < 6; i++) {
        snprintf(ids[i], sizeof(ids[i]), "m%d", i);
        assert_done(give(rig, ORDER_LOAD, ids[i], ""));
    }
    assert_done(give(rig, ORDER_LIST, "m7", gated(rig, "")));
    assert_done(give(rig, ORDER_LIST, "m8", ""));
    assert_asked(rig, "m7", 0, PROBE_ECHO, 0); /* waits in the old lane, and is to end there */
    assert_asked(rig, "m0", 1, PROBE_WAIT, 0);
    wait_runs(rig);
    wait_state(rig, "m7", MODEL_IS_LOADING);
    on_loop(rig, begin_reload);
    wait_reloaded(rig, 1);
    assert_int_equal(reload_error.status, STATUS_OK);
    for (uint32_t i = 0; i < 6; i++) { /* all are there, in the first moment */
        assert_asked(rig, ids[i], 10 + i, PROBE_ECHO, 0);
        assert_answered(rig, 10 + i, i);
    }
    assert_asked(rig, "m8", 2, PROBE_ECHO, 0);
    rig_file(rig, "gate");
    assert_answered(rig, 2, 8);
    assert_answered(rig, 0, 7);
    pipeline_cancel(the_pipeline(rig), rig->calls[1].tag);
    assert_answered(rig, 1, 0);
    assert_done(give(rig, ORDER_UNLOAD, "m1", ""));
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_REPLIES_FAILED), 0);
    assert_int_equal(count(rig, PIPELINE_MODEL_RETURNS), 0);
}

/* The serving generation can load it, its successor cannot: the old one goes on. */
TEST_CASE(test_reload_cannot)
{
    struct rig *rig = *state;
    char path[256];
    reloading = rig;
    reloads = 0;
    assert_done(give(rig, ORDER_LOAD, "m1", "map"));
    rig_path(rig, "m1", path, sizeof(path));
    assert_int_equal(unlink(path), 0);
    on_loop(rig, begin_reload);
    wait_reloaded(rig, 1);
    assert_int_not_equal(reload_error.status, STATUS_OK);
    assert_non_null(strstr(reload_error.text, "model \"m1\""));
    assert_asked(rig, "m1", 0, PROBE_ECHO, 0);
    assert_answered(rig, 0, 1);
}

/* ---- the rigs ---- */

/* A sound model is loaded in time on a busy machine, too. */
static int
set_up_hurried(void **state)
{
    rig_models = "memory_mib: 100, load_timeout_ms: 2000, default_size_mib: 1";
    return set_up(state);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_kills_under_traffic, set_up),
        TEST(test_kills_under_traffic, set_up_alone),
        TEST(test_load_crashes, set_up),
        TEST(test_load_crashes_one_worker, set_up_one_worker),
        TEST(test_load_crashes_beside_a_request, set_up_one_worker),
        TEST(test_retried_alone, set_up),
        TEST(test_load_hangs, set_up_hurried),
        TEST(test_successor_cannot, set_up),
        TEST(test_handed_back_for_ever, set_up),
        TEST(test_forged_answer, set_up),
        TEST(test_nonsense, set_up),
        TEST(test_reload, set_up),
        TEST(test_reload_cannot, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
