/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the tests of peers. A house: a node that is called, with a real runner, core, store
 * and peer_server; its runtime holds nothing but names, and its pipeline is a thread that answers
 * as the method says. A caller: peers on a queue of its own, with the test as the runner.
 * Waits are on a condition, with a deadline that only a failing test reaches.
 */
#pragma once

#include <event2/event.h>
#include <event2/thread.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/core/mesh_core.h"
#include "mesh/edge/runner.h"
#include "mesh/edge/peer_server.h"
#include "mesh/edge/peers.h"
#include "mesh/record/record.h"
#include "mesh/store/store.h"
#include "rpc/rpc.h"

enum { PATIENCE_S = 60, JOBS_MAX = 4096, LARGE_BYTES = 3 << 20 };

/* Of houses and of callers that are opened from now on; NULL: none. */
static struct rpc_tls *rig_server_tls;
static struct rpc_tls *rig_client_tls;

/* One lock and one condition for all that tests wait for. */
static pthread_mutex_t rig_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rig_changed = PTHREAD_COND_INITIALIZER;

#define RIG_WAIT(condition)                                                                        \
    do {                                                                                           \
        struct timespec until_;                                                                    \
        clock_gettime(CLOCK_REALTIME, &until_);                                                    \
        until_.tv_sec += PATIENCE_S;                                                               \
        int late_ = 0;                                                                             \
        pthread_mutex_lock(&rig_lock);                                                             \
        while (!(condition) && late_ == 0)                                                         \
            late_ = pthread_cond_timedwait(&rig_changed, &rig_lock, &until_);                      \
        bool true_ = (condition);                                                                  \
        pthread_mutex_unlock(&rig_lock);                                                           \
        if (!true_)                                                                                \
            fail_msg("waited in vain for: %s", #condition);                                        \
    } while (0)

static inline void
rig_count(unsigned *counter)
{
    pthread_mutex_lock(&rig_lock);
    (*counter)++;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
}

/* ---- stepping a queue ---- */

struct stepper {
    struct rpc_queue *queue;
    pthread_t thread;
    bool ends; /* under the rig's lock */
};

static inline void *
stepper_main(void *context)
{
    struct stepper *stepper = context;
    for (;;) {
        pthread_mutex_lock(&rig_lock);
        bool ends = stepper->ends;
        pthread_mutex_unlock(&rig_lock);
        if (ends)
            break;
        rpc_queue_step(stepper->queue, TIME_NEVER_NS);
    }
    rpc_queue_destroy(stepper->queue);
    return NULL;
}

static inline void
stepper_start(struct stepper *stepper)
{
    assert_int_equal(pthread_create(&stepper->thread, NULL, stepper_main, stepper), 0);
}

/* When all that is bound to the queue goes. */
static inline void
stepper_end(struct stepper *stepper)
{
    pthread_mutex_lock(&rig_lock);
    stepper->ends = true;
    rpc_queue_wake(stepper->queue); /* under the lock: the thread destroys it */
    pthread_mutex_unlock(&rig_lock);
    pthread_join(stepper->thread, NULL);
}

/* ---- a house ---- */

struct job {
    struct peer_request *request;
    uint32_t number;
};

struct house {
    struct event_base *base;
    struct event *keep; /* so that the loop does not end by itself */
    pthread_t loop;
    pthread_t pipeline;
    struct mesh_runner *runner;
    struct store *store;
    struct stepper stepper; /* of its server */
    struct peer_server *server;
    char address[64];
    /* Under the rig's lock. */
    struct job jobs[JOBS_MAX]; /* what is served; what is held stays */
    unsigned job_count;
    unsigned held;
    unsigned answered;   /* by the pipeline */
    bool releases_first; /* of what it holds */
    bool ends;
    bool is_stopping;
    unsigned cancelled;
    int64_t deadline_ns; /* of the last that was served */
    bool registered;
};

static inline void
house_load_ended(void *context, struct runner_load *load, const struct runner_model *model)
{
    struct house *house = context;
    (void)model;
    runner_load_ended(house->runner, load, &(struct runner_load_end){.size_bytes = 1 << 20});
}

/* Serves requests with a flow, on the server's thread; NULL: no test has any. */
static void (*rig_flow_serve)(struct peer_request *request, uint32_t number);
static void (*rig_flow_cancel)(struct peer_request *request);

static inline bool
house_holds(const struct peer_request *request)
{
    return strncmp(request->method, "/t.T/Hold", 9) == 0;
}

static inline enum runner_begun
house_serve(void *context, struct runner_call *call, const struct runner_attempt *attempt,
            struct runner_end *end)
{
    struct house *house = context;
    struct peer_request *request = call->request;
    (void)end;
    request->type->hold(request);
    if (request->flow != NULL && rig_flow_serve != NULL) {
        rig_flow_serve(request, attempt->number);
        return RUNNER_UNDER_WAY;
    }
    pthread_mutex_lock(&rig_lock);
    CHECK(house->job_count < JOBS_MAX);
    house->jobs[house->job_count++] = (struct job){request, attempt->number};
    house->held += house_holds(request);
    house->deadline_ns = attempt->deadline_ns;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
    return RUNNER_UNDER_WAY;
}

static inline void
house_cancel(void *context, struct runner_call *call)
{
    struct house *house = context;
    rig_count(&house->cancelled);
    if (call->request->flow != NULL && rig_flow_cancel != NULL)
        rig_flow_cancel(call->request);
}

static inline struct wire_span
span_of(const char *text)
{
    return (struct wire_span){text, strlen(text)};
}

/* The pipeline's answer, by the method: the message back; the same as lent pieces; a message of
 * LARGE_BYTES; an error with a trailer; that it has too much to do. */
static inline void
house_answer(struct job job)
{
    struct peer_request *request = job.request;
    struct runner_end end = {.end = MESH_END_OK};
    struct rpc_answer answer = {.pieces = request->pieces, .piece_count = request->piece_count};
    struct rpc_metadata trailer = {span_of("t-bin"), {"\0\1", 2}};
    struct rpc_piece large[3];
    const struct rpc_piece none[1] = {{.bytes = 0}};
    if (request->piece_count == 0)
        answer.pieces = none;
    if (request->metadata_count > 0) {
        answer.initial = request->metadata;
        answer.initial_count = request->metadata_count;
    }
    if (strcmp(request->method, "/t.T/Large") == 0) {
        large[0] = (struct rpc_piece){.data = "head", .bytes = 4};
        for (int i = 1; i < 3; i++) {
            void *lent = malloc(LARGE_BYTES / 2);
            CHECK(lent != NULL);
            memset(lent, 'a' + i, LARGE_BYTES / 2);
            large[i] = (struct rpc_piece){
                .data = lent, .bytes = LARGE_BYTES / 2, .release = free, .release_context = lent};
        }
        answer.pieces = large;
        answer.piece_count = 3;
    } else if (strcmp(request->method, "/t.T/Fail") == 0) {
        answer = (struct rpc_answer){.status = STATUS_ABORTED,
                                     .text = span_of("not today"),
                                     .trailers = &trailer,
                                     .trailer_count = 1};
    } else if (strcmp(request->method, "/t.T/HoldThenNot") == 0) {
        end.end = MESH_END_OVERLOADED;
    }
    request->type->on_ended(request, job.number, &end, end.end == MESH_END_OK ? &answer : NULL);
    request->type->release(request);
}

/* Takes the call to answer now. */
static inline bool
house_next(struct house *house, struct job *job)
{
    for (unsigned i = 0; i < house->job_count; i++)
        if (!house_holds(house->jobs[i].request) || house->releases_first) {
            *job = house->jobs[i];
            house->held -= house_holds(job->request);
            house->jobs[i] = house->jobs[--house->job_count];
            return true;
        }
    return false;
}

static inline void *
house_pipeline(void *context)
{
    struct house *house = context;
    pthread_mutex_lock(&rig_lock);
    while (!house->ends || house->job_count > 0) {
        struct job job;
        if (!house_next(house, &job)) {
            pthread_cond_wait(&rig_changed, &rig_lock);
            continue;
        }
        pthread_mutex_unlock(&rig_lock);
        house_answer(job);
        rig_count(&house->answered);
        pthread_mutex_lock(&rig_lock);
    }
    pthread_mutex_unlock(&rig_lock);
    return NULL;
}

static inline void *
house_loop(void *context)
{
    struct house *house = context;
    CHECK(event_base_loop(house->base, 0) >= 0);
    return NULL;
}

static inline void
house_registered(struct runner_order *order, const struct runner_reply *reply)
{
    struct house **house = (struct house **)(order + 1);
    CHECK(reply->outcome == MESH_OUTCOME_OK);
    pthread_mutex_lock(&rig_lock);
    (*house)->registered = true;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
}

static inline void
house_register(struct house *house, const char *model)
{
    struct {
        struct runner_order order;
        struct house *house;
    } ordered = {.order = {.order = {.kind = MESH_REGISTER,
                                     .model = model,
                                     .type = "type",
                                     .path = "path",
                                     .key = "key",
                                     .load_now = true,
                                     .sync = true},
                           .deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S,
                           .on_end = house_registered},
                 .house = house};
    house->registered = false;
    runner_order(house->runner, &ordered.order);
    RIG_WAIT(house->registered);
}

static inline void
on_tick(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
    pthread_mutex_lock(&rig_lock);
    pthread_cond_broadcast(&rig_changed); /* of waits for what the runner shows */
    pthread_mutex_unlock(&rig_lock);
}

/* A node "b" that has the model "m" loaded, on a port of its own. */
static inline struct house *
house_open(void)
{
    struct house *house = calloc(1, sizeof(*house));
    struct error error = ERROR_NONE;
    assert_non_null(house);
    evthread_use_pthreads();
    house->base = event_base_new();
    const char *listen[] = {"127.0.0.1:0"};
    house->stepper.queue = rpc_queue_create();
    struct peer_server_options server = {.listen = listen,
                                         .listen_count = 1,
                                         .queue = house->stepper.queue,
                                         .tls = rig_server_tls,
                                         .instance = "b",
                                         .start_ms = 4711,
                                         .message_bytes_max = 16 << 20,
                                         .serve = house_serve,
                                         .cancel = house_cancel,
                                         .context = house};
    if (peer_server_create(&server, &house->server, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    snprintf(house->address, sizeof(house->address), "%s127.0.0.1:%d",
             rig_server_tls != NULL ? PEERS_TLS : "", peer_server_port(house->server, 0));
    struct runner_options options = {.base = house->base,
                                     .core = {.instance = "b", .seed = 1},
                                     .address = house->address,
                                     .labels = "",
                                     .tick_ms = 50,
                                     .runtime = {.context = house,
                                                 .size = house_load_ended,
                                                 .load = house_load_ended,
                                                 .unload = house_load_ended}};
    house->runner = runner_create(&options);
    const struct store_events events = runner_events(house->runner);
    const struct store_options store = {.instance = "b", .events = &events};
    if (store_open_memory(house->base, &store, &house->store, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    runner_start(house->runner, house->store);
    runner_runtime_ready(house->runner, &(struct mesh_capacity){.capacity_bytes = 1 << 30,
                                                                .default_bytes = 1 << 20,
                                                                .loaders = 2,
                                                                .load_timeout_ms = 10000});
    house->keep = event_new(house->base, -1, EV_PERSIST, on_tick, NULL);
    event_add(house->keep, &(struct timeval){.tv_usec = 20000});
    assert_int_equal(pthread_create(&house->loop, NULL, house_loop, house), 0);
    assert_int_equal(pthread_create(&house->pipeline, NULL, house_pipeline, house), 0);
    peer_server_start(house->server, house->runner, 0);
    stepper_start(&house->stepper);
    RIG_WAIT(runner_is_ready(house->runner));
    house_register(house, "m");
    return house;
}

/* Its server sends its last answers. */
static inline void
house_begin_stop(struct house *house)
{
    if (!house->is_stopping)
        peer_server_stop(house->server);
    house->is_stopping = true;
}

/* Its server goes; what is served is released. */
static inline void
house_stop(struct house *house)
{
    house_begin_stop(house);
    pthread_mutex_lock(&rig_lock);
    house->releases_first = house->ends = true;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
    pthread_join(house->pipeline, NULL);
    peer_server_cut(house->server);
    stepper_end(&house->stepper);
    peer_server_destroy(house->server);
    house->server = NULL;
}

static inline void
house_close(struct house *house)
{
    if (house->server != NULL)
        house_stop(house);
    event_base_loopbreak(house->base);
    pthread_join(house->loop, NULL);
    runner_close(house->runner);
    store_close(house->store);
    runner_destroy(house->runner);
    event_free(house->keep);
    event_base_free(house->base);
    free(house);
}

/* ---- a caller ---- */

struct caller {
    struct stepper stepper;
    struct peers *peers;
    struct runner_peers to;
};

/* Node "a", that knows of `b` at that address. */
static inline struct caller *
caller_open(const char *address)
{
    struct caller *caller = calloc(1, sizeof(*caller));
    assert_non_null(caller);
    caller->stepper.queue = rpc_queue_create();
    struct peers_options options = {.queues = &caller->stepper.queue,
                                    .queue_count = 1,
                                    .instance = "a",
                                    .start_ms = 42,
                                    .tls = rig_client_tls,
                                    .message_bytes_max = 16 << 20};
    caller->peers = peers_create(&options);
    caller->to = peers_for_runner(caller->peers);
    caller->to.on_peer(caller->to.context, &(struct runner_peer){"b", address, 4711});
    stepper_start(&caller->stepper);
    return caller;
}

static inline void
caller_close(struct caller *caller)
{
    peers_close(caller->peers);
    stepper_end(&caller->stepper);
    peers_destroy(caller->peers);
    free(caller);
}

/* ---- a request of the caller's ---- */

struct ask {
    struct runner_call call; /* first */
    struct peer_request request;
    struct rpc_piece piece;
    unsigned char *message;
    struct rpc_kept *kept;
    /* Under the rig's lock. */
    unsigned held;
    unsigned ended;
    struct runner_end end;
    struct runner_figures figures;
    char instance[16];
    enum status status;
    char text[128];
    unsigned char *answer;
    size_t answer_bytes;
    bool has_answer;
    char initial[64];
    char trailer[64];
};

static inline void
ask_copy(char to[64], const struct rpc_metadata *entry)
{
    snprintf(to, 64, "%.*s=%zu", (int)entry->key.bytes, (const char *)entry->key.data,
             entry->value.bytes);
}

static inline void
ask_take_message(struct ask *ask, const struct rpc_answer *answer)
{
    ask->has_answer = answer->pieces != NULL;
    for (size_t i = 0; i < answer->piece_count; i++) {
        const struct rpc_piece *piece = &answer->pieces[i];
        const struct wire_message *message = rpc_kept_message(piece->kept);
        size_t at = 0;
        ask->answer = realloc(ask->answer, ask->answer_bytes + piece->bytes);
        CHECK(ask->answer != NULL);
        for (size_t j = 0; j < message->span_count; j++) {
            const struct wire_span *span = &message->spans[j];
            size_t from = piece->offset > at ? piece->offset - at : 0;
            size_t to = piece->offset + piece->bytes > at ? piece->offset + piece->bytes - at : 0;
            to = to < span->bytes ? to : span->bytes;
            if (from < to) {
                memcpy(ask->answer + ask->answer_bytes, (const char *)span->data + from, to - from);
                ask->answer_bytes += to - from;
            }
            at += span->bytes;
        }
    }
}

static inline void
ask_ended(struct peer_request *request, uint32_t number, const struct runner_end *end,
          const struct rpc_answer *answer)
{
    struct ask *ask = (struct ask *)((char *)request - offsetof(struct ask, request));
    CHECK(number == 7);
    pthread_mutex_lock(&rig_lock);
    ask->ended++;
    ask->end = *end;
    if (end->figures != NULL) {
        ask->figures = *end->figures;
        snprintf(ask->instance, sizeof(ask->instance), "%s", end->instance);
    }
    CHECK(runner_end_is_last(end) == (answer != NULL));
    if (answer != NULL) {
        ask->status = answer->status;
        snprintf(ask->text, sizeof(ask->text), "%.*s", (int)answer->text.bytes,
                 answer->text.bytes == 0 ? "" : (const char *)answer->text.data);
        ask_take_message(ask, answer);
        if (answer->initial_count > 0)
            ask_copy(ask->initial, &answer->initial[0]);
        if (answer->trailer_count > 0)
            ask_copy(ask->trailer, &answer->trailers[0]);
    }
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
}

static inline void
ask_hold(struct peer_request *request)
{
    struct ask *ask = (struct ask *)((char *)request - offsetof(struct ask, request));
    rig_count(&ask->held);
}

static inline void
ask_release(struct peer_request *request)
{
    struct ask *ask = (struct ask *)((char *)request - offsetof(struct ask, request));
    pthread_mutex_lock(&rig_lock);
    CHECK(ask->held > 0);
    ask->held--;
    pthread_cond_broadcast(&rig_changed);
    pthread_mutex_unlock(&rig_lock);
}

static const struct peer_request_type ask_type = {
    .on_ended = ask_ended, .hold = ask_hold, .release = ask_release};

/* With a message of so many bytes. */
static inline struct ask *
ask_create(const char *method, size_t bytes)
{
    struct ask *ask = calloc(1, sizeof(*ask));
    assert_non_null(ask);
    ask->message = malloc(bytes + 1);
    assert_non_null(ask->message);
    enum { PERIOD = 4093 }; /* a prime: no part of a frame is as long */
    for (size_t i = 0; i < bytes && i < PERIOD; i++)
        ask->message[i] = (unsigned char)(i * 2654435761u >> 13);
    for (size_t i = PERIOD; i < bytes; i += PERIOD)
        memcpy(ask->message + i, ask->message, bytes - i < PERIOD ? bytes - i : PERIOD);
    struct wire_span span = {ask->message, bytes};
    ask->kept = rpc_message_keep(&(struct wire_message){&span, 1, bytes});
    ask->piece = rpc_kept_piece(ask->kept);
    ask->request = (struct peer_request){
        .type = &ask_type, .method = method, .pieces = &ask->piece, .piece_count = bytes > 0};
    ask->call.request = &ask->request;
    return ask;
}

/* Sends it to node `b`, as a hop that is to hit. */
static inline enum runner_begun
ask_send_until(struct caller *caller, struct ask *ask, int64_t deadline_ns)
{
    static const struct mesh_tried tried[] = {{"c", 5, MESH_LIST_HIT}};
    struct runner_attempt attempt = {.number = 7,
                                     .model = "m",
                                     .instance = "b",
                                     .hop = MESH_HOP_LOAD,
                                     .deadline_ns = deadline_ns,
                                     .tried = tried,
                                     .tried_count = 1};
    return caller->to.forward(caller->to.context, &ask->call, &attempt, &ask->end);
}

static inline enum runner_begun
ask_send(struct caller *caller, struct ask *ask)
{
    return ask_send_until(caller, ask, TIME_NEVER_NS);
}

static inline void
ask_free(struct ask *ask)
{
    RIG_WAIT(ask->held == 0);
    rpc_kept_release(ask->kept);
    free(ask->message);
    free(ask->answer);
    free(ask);
}

static inline int
rig_group_setup(void **state)
{
    (void)state;
    rpc_init();
    return 0;
}

static inline int
rig_group_teardown(void **state)
{
    (void)state;
    rpc_shutdown();
    return 0;
}
