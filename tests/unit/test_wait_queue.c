/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=120 presets=dev,tsan because a thread of its own admits what others submit
 *
 * Calls that wait for a slot, without gRPC: real workers, real shared memory. Requests that hold
 * their slots until they are cancelled decide when there is room. Proves the order, that
 * cancelling, deadlines, limits and a new region leave nobody behind, and that under load from
 * several threads, where every call waits, none is lost.
 */
#define RIG_CONFIG

#include "test_pipeline_rig.h"

enum { PLACES = 8, THREADS = 4, ROUNDS = 100 };

static void
rig_config(const struct rig *rig, FILE *file)
{
    (void)rig;
    fprintf(file,
            "pipelines:\n"
            "  - name: probe\n"
            "    slots: %d\n"
            "    queue_wait_ms: 3600000\n"
            "    queue_wait_max: %d\n"
            "    queue_wait_mib: 1\n"
            "    stages:\n"
            "      - { name: only, modelet: %s/tests/modelets/libprobe.so, workers: 2 }\n",
            SLOTS, PLACES, getenv("SHOAL_BUILD_DIR"));
}

static void
wait_count(struct rig *rig, enum counter counter, uint64_t least)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (count(rig, counter) < least) {
        if (clock_now_ns() > until_ns)
            fail_msg("counter %d never got to %llu", counter, (unsigned long long)least);
        sched_yield();
    }
}

static void
submit_ok(struct rig *rig, uint32_t number, enum probe_command command, int64_t deadline_ns)
{
    struct error error;
    assert_int_equal(submit(rig, number, command, 0, deadline_ns, &error), STATUS_OK);
}

static void
cancel(struct rig *rig, uint32_t number)
{
    pipeline_cancel(the_pipeline(rig), rig->calls[number].tag);
}

/* Takes all slots, by the calls 0 to SLOTS - 1. */
static void
fill(struct rig *rig)
{
    for (uint32_t i = 0; i < SLOTS; i++)
        submit_ok(rig, i, PROBE_WAIT, TIME_NEVER_NS);
}

static bool
waits(struct rig *rig, uint32_t number)
{
    return tag_lane(rig->calls[number].tag) == TAG_LANE_WAITING;
}

static void
wait_all_gone(struct rig *rig)
{
    wait_returned(rig);
    assert_int_equal(count(rig, PIPELINE_WAITING), 0);
    assert_int_equal(count(rig, PIPELINE_WAITING_BYTES), 0);
    assert_int_equal(count(rig, PIPELINE_REQUESTS),
                     count(rig, PIPELINE_REPLIES_OK) + count(rig, PIPELINE_REPLIES_FAILED) +
                         count(rig, PIPELINE_REJECTED_FULL) + count(rig, PIPELINE_REJECTED_LATE));
}

/* ---- tests ---- */

TEST_CASE(test_admitted_in_order)
{
    struct rig *rig = *state;
    fill(rig);
    for (uint32_t i = SLOTS; i < SLOTS + PLACES; i++)
        submit_ok(rig, i, PROBE_WAIT, TIME_NEVER_NS);
    assert_int_equal(count(rig, PIPELINE_WAITING), PLACES);
    assert_true(count(rig, PIPELINE_WAITING_BYTES) > PLACES * 8192);
    for (uint32_t i = 0; i < PLACES; i++) {
        cancel(rig, i);
        wait_count(rig, PIPELINE_WAITED, i + 1);
        for (uint32_t k = 0; k < PLACES; k++)
            assert_int_equal(waits(rig, SLOTS + k), k > i);
    }
    for (uint32_t i = 0; i < SLOTS + PLACES; i++) {
        cancel(rig, i);
        assert_true(answer_of(rig, i)->answered);
    }
    wait_all_gone(rig);
}

TEST_CASE(test_one_too_many_is_refused)
{
    struct rig *rig = *state;
    struct error error;
    fill(rig);
    for (uint32_t i = SLOTS; i < SLOTS + PLACES; i++)
        submit_ok(rig, i, PROBE_ECHO, TIME_NEVER_NS);
    assert_int_equal(submit(rig, CALLS_MAX - 1, PROBE_ECHO, 0, TIME_NEVER_NS, &error),
                     STATUS_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(error.text, "8 calls"));
    assert_int_equal(count(rig, PIPELINE_REJECTED_FULL), 1);
    for (uint32_t i = 0; i < SLOTS; i++)
        cancel(rig, i);
    for (uint32_t i = SLOTS; i < SLOTS + PLACES; i++)
        assert_int_equal(answer_of(rig, i)->status, STATUS_OK);
    wait_all_gone(rig);
}

TEST_CASE(test_cancelled_and_late)
{
    struct rig *rig = *state;
    fill(rig);
    submit_ok(rig, SLOTS, PROBE_ECHO, TIME_NEVER_NS);
    submit_ok(rig, SLOTS + 1, PROBE_ECHO, clock_now_ns() + 20 * (int64_t)NS_PER_MS);
    submit_ok(rig, SLOTS + 2, PROBE_ECHO, TIME_NEVER_NS);
    uint64_t outdated = rig->calls[SLOTS].tag;
    cancel(rig, SLOTS);
    assert_int_equal(answer_of(rig, SLOTS)->status, STATUS_CANCELLED);
    assert_int_equal(answer_of(rig, SLOTS + 1)->status, STATUS_DEADLINE_EXCEEDED);
    pipeline_cancel(the_pipeline(rig), outdated);
    assert_int_equal(count(rig, PIPELINE_CANCELLED), 1);
    assert_false(rig->calls[SLOTS + 2].answered);
    for (uint32_t i = 0; i < SLOTS; i++)
        cancel(rig, i);
    assert_int_equal(answer_of(rig, SLOTS + 2)->status, STATUS_OK);
    wait_all_gone(rig);
}

/* Requests in the region are lost with it; waiting calls are not in it. */
TEST_CASE(test_they_outlive_a_region)
{
    struct rig *rig = *state;
    fill(rig);
    for (uint32_t i = SLOTS; i < SLOTS + PLACES; i++)
        submit_ok(rig, i, PROBE_ECHO, TIME_NEVER_NS);
    on_loop(rig, condemn);
    for (uint32_t i = 0; i < SLOTS; i++)
        assert_int_equal(answer_of(rig, i)->status, STATUS_UNAVAILABLE);
    for (uint32_t i = SLOTS; i < SLOTS + PLACES; i++)
        assert_int_equal(answer_of(rig, i)->status, STATUS_OK);
    wait_all_gone(rig);
}

/* The end of the pipeline refuses them: tear_down CHECKs that nobody is left. */
TEST_CASE(test_stopped_while_they_wait)
{
    struct rig *rig = *state;
    fill(rig);
    for (uint32_t i = SLOTS; i < SLOTS + PLACES; i++)
        submit_ok(rig, i, PROBE_ECHO, TIME_NEVER_NS);
    assert_int_equal(count(rig, PIPELINE_WAITING), PLACES);
}

/* ---- many threads ---- */

struct load {
    struct rig *rig;
    uint32_t first;
    pthread_mutex_t *submitting; /* the rig has one builder */
};

static void
one_round(const struct load *load, uint32_t round)
{
    struct rig *rig = load->rig;
    struct error error;
    bool refused[3];
    for (uint32_t i = 0; i < 3; i++) {
        pthread_mutex_lock(load->submitting);
        refused[i] =
            submit(rig, load->first + i, PROBE_ECHO, 0, TIME_NEVER_NS, &error) != STATUS_OK;
        pthread_mutex_unlock(load->submitting);
        CHECK(!refused[i] || error.status == STATUS_RESOURCE_EXHAUSTED);
        if (!refused[i] && (round + i) % 5 == 0)
            cancel(rig, load->first + i);
    }
    for (uint32_t i = 0; i < 3; i++)
        if (!refused[i])
            (void)answer_of(rig, load->first + i);
}

static void *
load_main(void *context)
{
    for (uint32_t round = 0; round < ROUNDS; round++)
        one_round(context, round);
    return NULL;
}

TEST_CASE(test_none_is_lost_under_load)
{
    struct rig *rig = *state;
    pthread_t threads[THREADS];
    struct load loads[THREADS];
    pthread_mutex_t submitting = PTHREAD_MUTEX_INITIALIZER;
    for (uint32_t i = 0; i < THREADS; i++) {
        loads[i] = (struct load){rig, 3 * i, &submitting};
        assert_int_equal(pthread_create(&threads[i], NULL, load_main, &loads[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    wait_all_gone(rig);
    assert_true(count(rig, PIPELINE_WAITED) > 0);
}

int
main(void)
{
    log_init("test_wait_queue", LOG_ERROR);
    return TEST_RUN(.setup = set_up, .teardown = tear_down);
}
