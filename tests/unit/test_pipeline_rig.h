/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline without gRPC, for tests: real workers (the modelet `probe`), real shared memory, its
 * loop on a thread, and requests that the test submits as a front would. Every wait has a deadline.
 */
#pragma once

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../modelets/probe.h"
#include "../test.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/assembly.h"
#include "coordinator/config/config.h"
#include "coordinator/pipeline/pipeline.h"
#include "inference/open_inference.pb-c.h"
#include "loop/loop.h"
#include "shm/arena.h"
#include "shm/slot.h"

#ifndef RIG_SLOTS
#define RIG_SLOTS 4
#endif

enum { WAIT_S = 60, SLOTS = RIG_SLOTS, CALLS_MAX = 64 };

/* One request of the test's, and what became of it. */
struct call {
    struct rig *rig;
    bool answered;
    enum status status;
    char text[ERROR_TEXT_MAX];
    _Atomic uint64_t tag;
    int64_t words[PROBE_END];
    void (*admitted)(struct rig *rig, uint64_t tag); /* runs before it is pushed; may be NULL */
    bool keeps;                                      /* what it is lent, until give_back */
    struct rpc_piece kept;
};

struct rig {
    char folder[64];
    struct config config;
    struct config_source *source;
    struct assembly assembly;
    struct loop *loop;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    uint32_t serving; /* how often the pipeline has begun to serve */
    bool stopped;
    struct call calls[CALLS_MAX];
    struct model *model;             /* that the next request is for; NULL: none */
    bool model_held;                 /* it was entered as one that is loaded */
    const struct request_sink *sink; /* of the next requests; NULL: the rig's */
    struct payload_builder builder;
};

/* Waits until `*what` is at least `least`; the lock is held. */
static inline void
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

static inline void
on_tagged(void *context, uint64_t tag)
{
    struct call *call = context;
    call->tag = tag;
    if (call->admitted != NULL)
        call->admitted(call->rig, tag);
}

static inline void
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

static inline void
on_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct call *call = context;
    const struct rpc_piece *last = &pieces[piece_count - 1];
    if (last->bytes == sizeof(call->words))
        memcpy(call->words, last->data, last->bytes);
    for (size_t i = 0; i < piece_count; i++) {
        if (pieces[i].release == NULL)
            continue;
        if (call->keeps && call->kept.release == NULL)
            call->kept = pieces[i];
        else
            pieces[i].release(pieces[i].release_context);
    }
    end_call(call, STATUS_OK, "");
}

static inline void
give_back(struct call *call)
{
    if (call->kept.release != NULL)
        call->kept.release(call->kept.release_context);
    call->kept.release = NULL;
}

static inline void
on_fail(void *context, enum status status, const char *text)
{
    end_call(context, status, text);
}

/* A call that waited for a slot. */
static inline void
on_refused(const struct submission *submission, const struct error *error)
{
    end_call(submission->call, error->status, error->text);
}

static const struct request_sink sink = {
    .tagged = on_tagged, .reply = on_reply, .fail = on_fail, .refused = on_refused};

/* ---- the rig ---- */

static inline void
on_serving(void *context, struct pipeline *pipeline)
{
    struct rig *rig = context;
    (void)pipeline;
    pthread_mutex_lock(&rig->lock);
    rig->serving++;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

static inline void
on_not_serving(void *context, struct pipeline *pipeline)
{
    (void)context;
    (void)pipeline;
}

static inline void
on_start_failed(void *context, struct pipeline *pipeline, const struct error *error)
{
    (void)context;
    (void)pipeline;
    fprintf(stderr, "start failed: %s\n", error->text);
    abort();
}

static inline void
on_stopped(void *context, struct pipeline *pipeline)
{
    struct rig *rig = context;
    (void)pipeline;
    loop_stop(rig->loop);
}

/* Workers die with the thread that started them, so this thread lives as long as they do. */
static inline void *
loop_main(void *context)
{
    struct rig *rig = context;
    struct error error = ERROR_NONE;
    if (assembly_start(&rig->assembly, &error) != STATUS_OK)
        abort();
    loop_run(rig->loop);
    return NULL;
}

#ifndef RIG_CONFIG
static inline void
rig_config(const struct rig *rig, FILE *file)
{
    (void)rig;
    fprintf(file,
            "pipelines:\n"
            "  - name: probe\n"
            "    slots: %d\n"
            "    stages:\n"
            "      - { name: only, modelet: %s/tests/modelets/libprobe.so, workers: 2 }\n",
            SLOTS, getenv("SHOAL_BUILD_DIR"));
}
#else
static void rig_config(const struct rig *rig, FILE *file); /* the test's own */
#endif

static inline void
load_config(struct rig *rig)
{
    char path[128];
    snprintf(path, sizeof(path), "%s/node.yaml", rig->folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    rig_config(rig, file);
    assert_int_equal(fclose(file), 0);
    struct config_errors errors = {0};
    struct error error = ERROR_NONE;
    if (config_load(path, NULL, &rig->config, &errors, &error) != STATUS_OK)
        fail_msg("%s", errors.count > 0 ? errors.lines[0] : error.text);
    config_errors_free(&errors);
    unlink(path);
}

static inline int
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
        .source = rig->source = config_source_create(&rig->config),
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

static inline void
stop(void *context)
{
    struct rig *rig = context;
    assembly_stop(&rig->assembly);
}

static inline int
tear_down(void **state)
{
    struct rig *rig = *state;
    loop_post(rig->loop, stop, rig);
    pthread_join(rig->thread, NULL);
    loop_run_posted(rig->loop);
    free((void *)(uintptr_t)rig->assembly.options.worker_program);
    assembly_fini(&rig->assembly); /* CHECKs that no request holds a lane */
    loop_destroy(rig->loop);
    config_source_unref(rig->source);
    rmdir(rig->folder);
    free(rig);
    return 0;
}

static inline struct pipeline *
the_pipeline(struct rig *rig)
{
    return rig->assembly.pipelines[0];
}

static inline uint64_t
count(struct rig *rig, enum counter counter)
{
    return counter_get(the_pipeline(rig)->counters, counter);
}

/* Submits a command to the probe as request number `number`. */
static inline enum status
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
    struct wire_span span = {packed, inference__model_infer_request__pack(&request, packed)};
    struct wire_message message = {&span, 1, span.bytes};
    rig->calls[number] = (struct call){
        .rig = rig, .admitted = rig->calls[number].admitted, .keeps = rig->calls[number].keeps};
    *error = ERROR_NONE;
    struct submission submission = {
        .message = &message,
        .deadline_ns = deadline_ns,
        .priority = PRIORITY_NORMAL,
        .sink = rig->sink != NULL ? rig->sink : &sink,
        .call = &rig->calls[number],
        .builder = &rig->builder,
        .model = rig->model,
        .model_held = rig->model_held,
    };
    return pipeline_submit(the_pipeline(rig), &submission, error);
}

static inline const struct call *
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

/*
 * Whether every request of the lane has given back all it had; the caller holds one reference to
 * the lane, and the pipeline another. The words of slots and blocks alone do not tell: a release
 * writes the word before it fills the cell of the free ring, and a submission in between finds the
 * slot in neither.
 */
static inline bool
is_returned(struct lane *lane)
{
    return atomic_load(&lane->refs) == 2 && slots_used(&lane->region) == 0 &&
           arena_used(&lane->region, -1) == 0;
}

/* A request gives back its slot, its blocks and its reference after it was answered. */
static inline void
wait_returned(struct rig *rig)
{
    struct lane *lane = pipeline_lane(the_pipeline(rig));
    assert_non_null(lane);
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (!is_returned(lane)) {
        if (clock_now_ns() > until_ns)
            fail_msg("%llu references, %u slots, %u blocks never came back",
                     (unsigned long long)atomic_load(&lane->refs) - 2, slots_used(&lane->region),
                     arena_used(&lane->region, -1));
        sched_yield();
    }
    lane_unref(lane);
}

/* ---- on the loop thread, and waited for ---- */

struct errand {
    struct rig *rig;
    void (*work)(struct pipeline *pipeline, struct lane *lane);
    uint32_t done;
};

static inline void
run_errand(void *context)
{
    struct errand *errand = context;
    struct pipeline *pipeline = the_pipeline(errand->rig);
    errand->work(pipeline, atomic_load(&pipeline->serving));
    pthread_mutex_lock(&errand->rig->lock);
    errand->done = 1;
    pthread_cond_broadcast(&errand->rig->changed);
    pthread_mutex_unlock(&errand->rig->lock);
}

static inline void
on_loop(struct rig *rig, void (*work)(struct pipeline *pipeline, struct lane *lane))
{
    struct errand errand = {rig, work, 0};
    loop_post(rig->loop, run_errand, &errand);
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &errand.done, 1);
    pthread_mutex_unlock(&rig->lock);
}

static inline void
condemn(struct pipeline *pipeline, struct lane *lane)
{
    pipeline_condemn(pipeline, lane, "the test says so");
}

static inline void
wait_serving(struct rig *rig, uint32_t times)
{
    pthread_mutex_lock(&rig->lock);
    wait_for(rig, &rig->serving, times);
    pthread_mutex_unlock(&rig->lock);
}

static inline void
assert_serves(struct rig *rig)
{
    struct error error;
    assert_int_equal(submit(rig, CALLS_MAX - 1, PROBE_ECHO, 7, TIME_NEVER_NS, &error), STATUS_OK);
    const struct call *call = answer_of(rig, CALLS_MAX - 1);
    assert_int_equal(call->status, STATUS_OK);
    assert_int_equal(call->words[1], 7);
}
