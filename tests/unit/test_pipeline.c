/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ctest: timeout=120 serial
 *
 * A pipeline without gRPC: real workers, real shared memory, requests submitted by the test as a
 * front would. Proves that each request is answered exactly once and as it should be when it comes
 * late, when the pipeline is full, draining or corrupt, and that the counters say so. Every wait
 * has a deadline.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/assembly.h"
#include "coordinator/config.h"
#include "coordinator/loop.h"
#include "coordinator/pipeline.h"
#include "inference/open_inference.pb-c.h"
#include "shm/arena.h"
#include "shm/slot.h"
#include "../modelets/probe.h"

enum { WAIT_S = 30, SLOTS = 4, CALLS_MAX = 16 };

/* One request of the test's, and what became of it. */
struct call {
    struct rig *rig;
    bool answered;
    enum status status;
    char text[ERROR_TEXT_MAX];
    uint64_t tag;
    int64_t words[PROBE_END];
};

struct rig {
    char folder[64];
    struct config config;
    struct assembly assembly;
    struct loop *loop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t serving; /* how often the pipeline has begun to serve */
    bool stopped;
    struct call calls[CALLS_MAX];
    struct payload_builder builder;
};

/* Waits until `*what` is at least `least`; the lock is held. */
static void
wait_for(struct rig *rig, const uint32_t *what, uint32_t least)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    while (*what < least)
        if (pthread_cond_timedwait(&rig->changed, &rig->lock, &until) != 0)
            fail_msg("waited %d s in vain", WAIT_S);
}

/* ---- the sink ---- */

static void
on_tagged(void *context, uint64_t tag)
{
    struct call *call = context;
    call->tag = tag;
}

static void
end_call(struct call *call, enum status status, const char *text)
{
    pthread_mutex_lock(&call->rig->lock);
    if (call->answered)
        abort(); /* twice */
    call->answered = true;
    call->status = status;
    snprintf(call->text, sizeof(call->text), "%s", text);
    pthread_cond_broadcast(&call->rig->changed);
    pthread_mutex_unlock(&call->rig->lock);
}

static void
on_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct call *call = context;
    const struct rpc_piece *last = &pieces[piece_count - 1];
    if (last->bytes == sizeof(call->words))
        memcpy(call->words, last->data, last->bytes);
    for (size_t i = 0; i < piece_count; i++)
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].release_context);
    end_call(call, STATUS_OK, "");
}

static void
on_fail(void *context, enum status status, const char *text)
{
    end_call(context, status, text);
}

static const struct request_sink sink = {on_tagged, on_reply, on_fail};

/* ---- the rig ---- */

static void
on_serving(void *context, struct pipeline *pipeline)
{
    struct rig *rig = context;
    (void)pipeline;
    pthread_mutex_lock(&rig->lock);
    rig->serving++;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

static void
on_not_serving(void *context, struct pipeline *pipeline)
{
    (void)context;
    (void)pipeline;
}

static void
on_start_failed(void *context, struct pipeline *pipeline, const struct error *error)
{
    (void)context;
    (void)pipeline;
    fprintf(stderr, "start failed: %s\n", error->text);
    abort();
}

static void
on_stopped(void *context, struct pipeline *pipeline)
{
    struct rig *rig = context;
    (void)pipeline;
    loop_stop(rig->loop);
}

/* Workers die with the thread that started them, so this thread lives as long as they do. */
static void *
loop_main(void *context)
{
    struct rig *rig = context;
    struct error error = ERROR_NONE;
    if (assembly_start(&rig->assembly, &error) != STATUS_OK)
        abort();
    loop_run(rig->loop);
    return NULL;
}

static void
load_config(struct rig *rig)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/node.yaml", rig->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "pipelines:\n"
            "  - name: probe\n"
            "    slots: %d\n"
            "    stages:\n"
            "      - { name: only, modelet: %s/tests/modelets/libprobe.so, workers: 2 }\n",
            SLOTS, getenv("SHOAL_BUILD_DIR"));
    assert_int_equal(fclose(file), 0);
    struct config_errors errors = {0};
    struct error error = ERROR_NONE;
    if (config_load(path, NULL, &rig->config, &errors, &error) != STATUS_OK)
        fail_msg("%s", errors.count > 0 ? errors.lines[0] : error.text);
    config_errors_free(&errors);
    unlink(path);
}

static int
set_up(void **state)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    snprintf(rig->folder, sizeof(rig->folder), "/tmp/shoal-pipeline.XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    pthread_mutex_init(&rig->lock, NULL);
    pthread_cond_init(&rig->changed, NULL);
    load_config(rig);
    char worker[512];
    char counters[128];
    snprintf(worker, sizeof(worker), "%s/bin/shoal-worker", getenv("SHOAL_BUILD_DIR"));
    snprintf(counters, sizeof(counters), "%s/counters", rig->folder);
    struct error error = ERROR_NONE;
    assert_int_equal(loop_create(&rig->loop, &error), STATUS_OK);
    struct assembly_options options = {
        .config = &rig->config,
        .counters_path = counters,
        .worker_program = strdup(worker),
        .loop = rig->loop,
        .log_level = LOG_ERROR,
        .events = {on_serving, on_not_serving, on_start_failed, on_stopped, rig},
    };
    assert_int_equal(assembly_init(&rig->assembly, &options, &error), STATUS_OK);
    assert_int_equal(pthread_create(&rig->thread, NULL, loop_main, rig), 0);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, 1);
    pthread_mutex_unlock(&rig->lock);
    *state = rig;
    return 0;
}

static void
stop(void *context)
{
    struct rig *rig = context;
    assembly_stop(&rig->assembly);
}

static int
tear_down(void **state)
{
    struct rig *rig = *state;
    loop_post(rig->loop, stop, rig);
    pthread_join(rig->thread, NULL);
    loop_run_posted(rig->loop);
    free((void *)(uintptr_t)rig->assembly.options.worker_program);
    assembly_fini(&rig->assembly); /* CHECKs that no request holds a lane */
    loop_destroy(rig->loop);
    config_free(&rig->config);
    rmdir(rig->folder);
    free(rig);
    return 0;
}

static struct pipeline *
the_pipeline(struct rig *rig)
{
    return rig->assembly.pipelines[0];
}

static uint64_t
count(struct rig *rig, enum counter counter)
{
    return counter_get(the_pipeline(rig)->counters, counter);
}

/* Submits a command to the probe as request number `number`. */
static enum status
submit(struct rig *rig, uint32_t number, enum probe_command command, int64_t argument,
       int64_t deadline_ns, struct error *error)
{
    int64_t words[PROBE_WORDS] = {command, argument, number};
    int64_t shape = PROBE_WORDS;
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    char tensor_name[] = "probe";
    char datatype[] = "INT64";
    input.name = tensor_name;
    input.datatype = datatype;
    input.n_shape = 1;
    input.shape = &shape;
    ProtobufCBinaryData raw = {.len = sizeof(words), .data = (uint8_t *)words};
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    request.model_name = tensor_name;
    request.n_inputs = 1;
    request.inputs = inputs;
    request.n_raw_input_contents = 1;
    request.raw_input_contents = &raw;
    uint8_t packed[512];
    assert_true(inference__model_infer_request__get_packed_size(&request) <= sizeof(packed));
    struct rpc_span span = {packed, inference__model_infer_request__pack(&request, packed)};
    struct rpc_message message = {&span, 1, span.bytes};
    rig->calls[number] = (struct call){.rig = rig};
    *error = ERROR_NONE;
    return pipeline_submit(the_pipeline(rig), &message, deadline_ns, &sink, &rig->calls[number],
                           &rig->builder, error);
}

static const struct call *
answer_of(struct rig *rig, uint32_t number)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    pthread_mutex_lock(&rig->lock);
    while (!rig->calls[number].answered)
        if (pthread_cond_timedwait(&rig->changed, &rig->lock, &until) != 0)
            fail_msg("request %u was not answered within %d s", number, WAIT_S);
    pthread_mutex_unlock(&rig->lock);
    return &rig->calls[number];
}

/* Until all slots and blocks are back; the last reference goes after the answer. */
static void
wait_returned(struct rig *rig)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (slots_used(&lane->region) > 0 || arena_used(&lane->region, -1) > 0) {
        if (clock_now_ns() > until_ns)
            fail_msg("%u slots, %u blocks never came back", slots_used(&lane->region),
                     arena_used(&lane->region, -1));
    }
    lane_unref(lane);
}

/* ---- tests ---- */

static void
test_a_request_is_answered(void **state)
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

static void
test_late_on_arrival_is_not_run(void **state)
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

static void
test_full_is_refused_at_once(void **state)
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

static void
test_an_outdated_tag_cancels_nothing(void **state)
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

static void
test_draining_refuses_and_finishes(void **state)
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
static void
test_a_forged_free_slot_rebuilds_the_region(void **state)
{
    struct rig *rig = *state;
    struct error error;
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(submit(rig, i, PROBE_WAIT, 0, TIME_NEVER_NS, &error), STATUS_OK);
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    uint32_t index = tag_ticket(rig->calls[0].tag).index;
    struct shm_ring ring = region_slot_ring(&lane->region, PLACE_FREE);
    struct shm_word forged = {.generation = 77, .place = PLACE_FREE, .party = PARTY_COORDINATOR};
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
static void
test_a_forged_generation_rebuilds_the_region(void **state)
{
    struct rig *rig = *state;
    struct error error;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    struct shm_ring ring = region_slot_ring(&lane->region, PLACE_FREE);
    for (uint32_t i = 0; i < SLOTS; i++) {
        struct shm_word forged = {
            .generation = 77, .place = PLACE_FREE, .party = PARTY_COORDINATOR};
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
static void
test_a_forged_answer_rebuilds_the_region(void **state)
{
    struct rig *rig = *state;
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    uint8_t place = region_result_place(&lane->region);
    struct shm_ring ring = region_slot_ring(&lane->region, place);
    struct shm_word forged = {.generation = 1, .place = place, .party = PARTY_COORDINATOR + 1};
    atomic_store(object_word(&lane->region.slots, SLOTS - 1), word_pack(forged));
    assert_int_equal(ring_fill_cell(&ring, SLOTS - 1, forged), RING_OK);
    doorbell_ring(&lane->region.header->coordinator_bell);
    lane_unref(lane);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, 2);
    pthread_mutex_unlock(&rig->lock);
    assert_int_equal(count(rig, PIPELINE_REGION_RESETS), 1);
}

static void
test_gauges_say_what_there_is(void **state)
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_a_request_is_answered),
        TEST(test_late_on_arrival_is_not_run),
        TEST(test_full_is_refused_at_once),
        TEST(test_an_outdated_tag_cancels_nothing),
        TEST(test_draining_refuses_and_finishes),
        TEST(test_a_forged_free_slot_rebuilds_the_region),
        TEST(test_a_forged_generation_rebuilds_the_region),
        TEST(test_a_forged_answer_rebuilds_the_region),
        TEST(test_gauges_say_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
