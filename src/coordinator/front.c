/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/gatherer.h"
#include "coordinator/oip.h"
#include "coordinator/services.h"
#include "coordinator/share.h"
#include "coordinator/trace_call.h"
#include "coordinator/trace_request.h"
#include "rpc/rpc.h"

enum {
    FRONT_THREADS_MAX = 16,
    /* What finds none armed waits in the library until the next one is, a moment later; but each
     * that is armed costs something at every event. */
    ARMED_CALLS = 64,
    ARMED_CALLS_OTHER = 16,
    CONCURRENT_STREAMS_MAX = 4096,
    METADATA_BYTES_MAX = 64 * 1024
};

#define CALLER_METADATA_DEFAULT "shoal-caller"

/* How long replies on their way may take at the end. Longer than it takes to write them to a client
 * that reads; one that does not is cut off. */
#define LAST_REPLIES_NS (NS_PER_S / 2)

/* A blocked step returns at least so often, to look whether the rings have been left alone. */
#define FRONT_BLOCK_NS (NS_PER_S / 2)

struct front_thread {
    struct front *front;
    uint32_t queue;
    pthread_t thread;
    struct payload_builder builder;
    struct gatherer gatherer;
    struct lane *described; /* whose info the answer is being packed from */
};

struct front {
    struct front_options options;
    struct rpc_server *server;
    struct health *health;
    struct oip_node node;
    _Atomic bool node_ready;
    const char *caller_metadata;
    struct share_key share_key;
    struct front_thread *threads;
    uint32_t thread_count;
    bool started;
};

/* The thread that runs now: callbacks of rpc.h run on the thread that steps the queue. */
static _Thread_local struct front_thread *current_thread;

/* ---- inference ---- */

static void
sink_tagged(void *call, uint64_t tag)
{
    rpc_call_set_tag(call, tag);
}

static void
sink_reply(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    rpc_call_reply(call, pieces, piece_count);
}

static void
sink_fail(void *call, enum status status, const char *text)
{
    rpc_call_finish(call, status, text);
}

static const struct request_sink rpc_sink = {sink_tagged, sink_reply, sink_fail};

static struct pipeline *
find_pipeline(const struct front *front, const char *name, size_t name_bytes)
{
    return pipeline_find(front->options.pipelines, front->options.pipeline_count, name, name_bytes);
}

/* Who calls, for fair shares: as the caller says, or else the machine that the call came from. */
static uint64_t
caller_of(const struct front *front, const struct rpc_call *call)
{
    struct rpc_span name;
    if (rpc_call_metadata(call, front->caller_metadata, &name))
        return share_hash(front->share_key, name.data, name.bytes);
    char peer[128];
    return share_hash(front->share_key, peer, rpc_call_peer(call, peer, sizeof(peer)));
}

static enum status
infer(struct front *front, struct rpc_call *call, const struct rpc_message *message,
      struct submission *submission, struct error *error)
{
    char room[SHOAL_NAME_BYTES_MAX + 1];
    const char *name;
    size_t name_bytes;
    if (!oip_skim_model_name(message, room, sizeof(room), &name, &name_bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "request is not a valid ModelInferRequest");
    struct pipeline *pipeline = find_pipeline(front, name, name_bytes);
    if (pipeline == NULL)
        return error_set(error, STATUS_NOT_FOUND, "model \"%.*s\" is not known to this node",
                         (int)(name_bytes < 200 ? name_bytes : 200), name);
    trace_name_pipeline(submission->trace, pipeline->name);
    submission->caller = caller_of(front, call);
    enum status status = oip_skim_priority(message, &submission->priority, error);
    return status == STATUS_OK ? pipeline_submit(pipeline, submission, error) : status;
}

#define INFERENCE "inference.GRPCInferenceService"

static const struct trace_origin infer_origin = {
    INFERENCE "/ModelInfer",
    {{"rpc.system", "grpc"}, {"rpc.service", INFERENCE}, {"rpc.method", "ModelInfer"}}};

static void
on_infer(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    struct tracer *tracer = front->options.tracer;
    counter_add_shared(front->options.counters, NODE_CALLS, 1);
    struct error error;
    error_clear(&error);
    struct submission submission = {
        .message = message,
        .deadline_ns = rpc_call_deadline_ns(call),
        .sink = &rpc_sink,
        .call = call,
        .builder = &current_thread->builder,
        .trace = tracer == NULL ? NULL : trace_call_begin(tracer, &infer_origin, call),
    };
    if (infer(front, call, message, &submission, &error) == STATUS_OK)
        return; /* the sink answers; the call may be gone already */
    counter_add_shared(front->options.counters, NODE_CALLS_REFUSED, 1);
    if (submission.trace != NULL)
        tracer_end(submission.trace, error.status, error.text);
    if (submission.retry_ms > 0)
        rpc_call_refuse(call, error.status, error.text, submission.retry_ms);
    else
        rpc_call_finish(call, error.status, error.text);
}

static void
on_infer_cancel(void *context, uint64_t tag)
{
    struct front *front = context;
    uint32_t number = tag_pipeline(tag);
    if (tag != 0 && number < front->options.pipeline_count)
        pipeline_cancel(front->options.pipelines[number], tag);
}

/* ---- the small methods ---- */

static bool
node_is_ready(void *context)
{
    struct front *front = context;
    return atomic_load(&front->node_ready);
}

static enum status
describe_model(void *context, const char *name, struct oip_model_info *info, bool *ready,
               struct error *error)
{
    struct front *front = context;
    struct pipeline *pipeline = find_pipeline(front, name, strlen(name));
    if (pipeline == NULL)
        return error_set(error, STATUS_NOT_FOUND, "model \"%.200s\" is not known to this node",
                         name);
    /* What info points to lives as long as the lane: kept until the answer is packed. */
    CHECK(current_thread->described == NULL);
    current_thread->described = pipeline_describe(pipeline, info, ready);
    return STATUS_OK;
}

static void
answer(struct front *front, enum oip_method method, struct rpc_call *call,
       const struct rpc_message *message)
{
    counter_add_shared(front->options.counters, NODE_CALLS, 1);
    void *response = NULL;
    size_t response_bytes = 0;
    struct error error = ERROR_NONE;
    enum status status =
        oip_answer(method, &front->node, message, &response, &response_bytes, &error);
    if (current_thread->described != NULL)
        lane_unref(current_thread->described);
    current_thread->described = NULL;
    if (status != STATUS_OK) {
        counter_add_shared(front->options.counters, NODE_CALLS_REFUSED, 1);
        rpc_call_finish(call, error.status, error.text);
        return;
    }
    struct rpc_piece piece = {.data = response, .bytes = response_bytes};
    rpc_call_reply(call, &piece, 1);
    free(response);
}

#define OIP_HANDLER(name, method)                                                                  \
    static void name(void *context, struct rpc_call *call, const struct rpc_message *message)      \
    {                                                                                              \
        answer(context, method, call, message);                                                    \
    }

OIP_HANDLER(on_server_live, OIP_SERVER_LIVE)
OIP_HANDLER(on_server_ready, OIP_SERVER_READY)
OIP_HANDLER(on_server_metadata, OIP_SERVER_METADATA)
OIP_HANDLER(on_model_ready, OIP_MODEL_READY)
OIP_HANDLER(on_model_metadata, OIP_MODEL_METADATA)

static void
on_health_check(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    health_on_check(front->health, call, message);
}

static void
on_health_watch(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    health_on_watch(front->health, call, message);
}

static void
on_health_cancel(void *context, uint64_t tag)
{
    struct front *front = context;
    health_on_cancel(front->health, tag);
}

/* A reflection stream has no state but the call, and only the stepping thread ends it: so here,
 * unlike for inference, the call itself can be the tag. */
static void
on_reflection(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    (void)context;
    rpc_call_set_tag(call, (uint64_t)(uintptr_t)call);
    reflection_on_message(REFLECTION_V1, call, message);
}

static void
on_reflection_alpha(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    (void)context;
    rpc_call_set_tag(call, (uint64_t)(uintptr_t)call);
    reflection_on_message(REFLECTION_V1ALPHA, call, message);
}

static void
on_reflection_end(void *context, struct rpc_call *call)
{
    (void)context;
    rpc_call_finish(call, STATUS_OK, NULL);
}

static void
on_reflection_cancel(void *context, uint64_t tag)
{
    (void)context;
    if (tag != 0)
        rpc_call_finish((struct rpc_call *)(uintptr_t)tag, STATUS_CANCELLED, NULL);
}

#define OIP "/" INFERENCE "/"
#define REFLECT "ServerReflection/ServerReflectionInfo"

static const struct rpc_method methods[] = {
    {OIP "ModelInfer", RPC_UNARY, true, on_infer, NULL, on_infer_cancel},
    {OIP "ServerLive", RPC_UNARY, false, on_server_live, NULL, NULL},
    {OIP "ServerReady", RPC_UNARY, false, on_server_ready, NULL, NULL},
    {OIP "ServerMetadata", RPC_UNARY, false, on_server_metadata, NULL, NULL},
    {OIP "ModelReady", RPC_UNARY, false, on_model_ready, NULL, NULL},
    {OIP "ModelMetadata", RPC_UNARY, false, on_model_metadata, NULL, NULL},
    {"/grpc.health.v1.Health/Check", RPC_UNARY, false, on_health_check, NULL, NULL},
    {"/grpc.health.v1.Health/Watch", RPC_SERVER_STREAM, false, on_health_watch, NULL,
     on_health_cancel},
    {"/grpc.reflection.v1." REFLECT, RPC_BIDI_STREAM, false, on_reflection, on_reflection_end,
     on_reflection_cancel},
    {"/grpc.reflection.v1alpha." REFLECT, RPC_BIDI_STREAM, false, on_reflection_alpha,
     on_reflection_end, on_reflection_cancel},
};

/* ---- the threads ---- */

/* What there is on the queue, without waiting. */
static int
step_queue(void *context)
{
    struct front_thread *thread = context;
    return rpc_server_step(thread->front->server, thread->queue, 0);
}

static void *
front_main(void *context)
{
    struct front_thread *thread = context;
    current_thread = thread;
    prctl(PR_SET_NAME, "shoald:front");
    int events = 0;
    while (events >= 0) {
        if (gatherer_take(&thread->gatherer)) {
            if (!gatherer_poll(&thread->gatherer, step_queue, thread))
                break;
            if (!gatherer_hand_over(&thread->gatherer))
                continue;
        }
        int64_t asleep_ns = clock_now_ns();
        events = rpc_server_step(thread->front->server, thread->queue, asleep_ns + FRONT_BLOCK_NS);
        gatherer_woke(&thread->gatherer, clock_now_ns() - asleep_ns);
    }
    gatherer_leave(&thread->gatherer);
    return NULL;
}

/* ---- life ---- */

static struct rpc_server_options
server_options(struct front *front)
{
    const struct config *config = front->options.config;
    bool replaced = front->options.listen_count > 0;
    return (struct rpc_server_options){
        .listen = replaced ? front->options.listen : (const char *const *)config->listen.items,
        .listen_count = replaced ? front->options.listen_count : config->listen.count,
        .queue_count = config->front_threads,
        .message_bytes_max = config->message_bytes_max,
        .metadata_bytes_max = METADATA_BYTES_MAX,
        .concurrent_streams_max = CONCURRENT_STREAMS_MAX,
        .armed_calls = ARMED_CALLS,
        .armed_calls_other = ARMED_CALLS_OTHER,
        .keepalive_time_ns = config->keepalive_time_ns,
        .keepalive_timeout_ns = config->keepalive_timeout_ns,
        .methods = methods,
        .method_count = ARRAY_COUNT(methods),
        .context = front,
    };
}

enum status
front_create(const struct front_options *options, struct front **created, struct error *error)
{
    struct front *front = calloc(1, sizeof(*front));
    CHECK(front != NULL);
    front->options = *options;
    front->caller_metadata = options->config->caller_metadata != NULL
                                 ? options->config->caller_metadata
                                 : CALLER_METADATA_DEFAULT;
    front->share_key = options->share_key;
    front->health = health_create();
    front->node = (struct oip_node){node_is_ready, describe_model, front};
    health_set(front->health, "", false);
    for (uint32_t i = 0; i < options->pipeline_count; i++)
        health_set(front->health, options->pipelines[i]->name, false);
    struct rpc_server_options server = server_options(front);
    enum status status = rpc_server_create(&server, &front->server, error);
    if (status != STATUS_OK) {
        health_destroy(front->health);
        free(front);
        return status;
    }
    front->thread_count = options->config->front_threads;
    CHECK(front->thread_count >= 1 && front->thread_count <= FRONT_THREADS_MAX);
    front->threads = calloc(front->thread_count, sizeof(*front->threads));
    CHECK(front->threads != NULL);
    *created = front;
    return STATUS_OK;
}

void
front_start(struct front *front)
{
    for (uint32_t i = 0; i < front->thread_count; i++) {
        struct front_thread *thread = &front->threads[i];
        thread->front = front;
        thread->queue = i;
        gatherer_init(&thread->gatherer, front->options.pipelines, front->options.pipeline_count);
        CHECK(pthread_create(&thread->thread, NULL, front_main, thread) == 0);
    }
    front->started = true;
}

void
front_set_serving(struct front *front, const char *pipeline, bool serving)
{
    health_set(front->health, pipeline, serving);
}

void
front_set_node_ready(struct front *front, bool ready)
{
    atomic_store(&front->node_ready, ready);
    health_set(front->health, "", ready);
}

/* Joins the threads, which end when the server has nothing left to do; false: not within the time.
 */
static bool
join_threads(struct front *front, int64_t timeout_ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t nanoseconds = until.tv_nsec + timeout_ns;
    until.tv_sec += nanoseconds / NS_PER_S;
    until.tv_nsec = nanoseconds % NS_PER_S;
    while (front->thread_count > 0) {
        if (pthread_timedjoin_np(front->threads[front->thread_count - 1].thread, NULL, &until) != 0)
            return false;
        front->thread_count--;
    }
    return true;
}

void
front_destroy(struct front *front)
{
    rpc_server_stop(front->server);
    health_end_watches(front->health);
    if (!front->started) /* nobody steps the queues: only the end of each is to be seen */
        front_start(front);
    if (!join_threads(front, LAST_REPLIES_NS)) {
        rpc_server_cancel_all(front->server);
        CHECK(join_threads(front, NS_PER_S * 3600));
    }
    rpc_server_destroy(front->server);
    health_destroy(front->health);
    free(front->threads);
    free(front);
}
