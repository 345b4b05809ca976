/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/front.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/config/config_types.h"
#include "coordinator/front/regions.h"
#include "coordinator/front/repository.h"
#include "coordinator/front/stream_infer.h"
#include "coordinator/mesh/mesh_node.h"
#include "coordinator/models/model_health.h"
#include "coordinator/models/runtime.h"
#include "coordinator/models/target.h"
#include "coordinator/pipeline/gatherer.h"
#include "coordinator/protocol/services.h"
#include "coordinator/telemetry/trace_call.h"
#include "rpc/rpc.h"

enum {
    /* A call that finds none armed waits for the next one; each armed one costs at every event. */
    ARMED_CALLS = 64,
    ARMED_CALLS_OTHER = 16,
    HOT_BOUND_MAX = 4, /* methods of pipelines that have armed calls of their own */
    METADATA_BYTES_MAX = 64 * 1024
};

#define INFERENCE "inference.GRPCInferenceService"

/* Time for the last replies to be written: more than a client needs that reads. */
#define LAST_REPLIES_NS (NS_PER_S / 2)

/* A blocked step returns at least so often, to look whether the rings have been left alone. */
#define FRONT_BLOCK_NS (NS_PER_S / 2)

struct front_thread {
    struct front *front;
    uint32_t queue;
    pthread_t thread;
    struct payload_builder builder;
    struct gatherer gatherer;
};

/* A method that a pipeline answers. */
struct front_method {
    struct pipeline *pipeline;
    struct pipeline_method method;
    char *service; /* of the method's path */
    struct trace_origin origin;
};

struct front {
    struct services services; /* first: SERVICES_METHODS wants it so */
    struct front_options options;
    struct dispatch dispatch;
    struct stream_infer stream_infer;
    struct front_method bound[CONFIG_PIPELINES_MAX];
    uint32_t bound_count;
    struct rpc_method *methods; /* ours, and those of pipelines */
    size_t method_count;
    struct rpc_server *server;
    _Atomic bool node_ready;
    struct front_thread *threads;
    uint32_t thread_count;
    bool started;
    uint64_t refused_before; /* when it was last published */
};

/* The thread that runs now: callbacks of rpc.h run on the thread that steps the queue. */
static _Thread_local struct front_thread *current_thread;

/* ---- a call as one that came in (entry/inbound.h) ---- */

static bool
metadata(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    return rpc_call_metadata_next(call, key, position, value);
}

static bool
walk(void *call, size_t *position, struct rpc_metadata *entry)
{
    return rpc_call_metadata_walk(call, position, entry);
}

static bool
names(const void *call, void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    return rpc_call_caller_names(call, take, context);
}

static size_t
address(const void *call, char *text, size_t room)
{
    return rpc_call_peer(call, text, room);
}

static void
sink_answer(void *call, const struct rpc_answer *given)
{
    rpc_call_answer(call, given);
}

static void
sink_refuse(void *call, enum status status, const char *text, uint32_t retry_ms)
{
    rpc_call_refuse(call, status, text, retry_ms);
}

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

/* Passes a piece of a method that may answer with a stream. */
static enum status
sink_piece(void *call, const struct rpc_piece *pieces, size_t piece_count, uint64_t unread_max)
{
    return rpc_call_send_within(call, pieces, piece_count, unread_max);
}

static void
sink_finish(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    (void)pieces;
    (void)piece_count;
    rpc_call_finish(call, STATUS_OK, NULL);
}

/* Ends a call that nobody has taken. */
static void
refuse(struct front *front, const struct submission *submission, const struct error *error)
{
    struct rpc_call *call = submission->call;
    dispatch_refused(&front->dispatch, rpc_call_method(call), submission->message->bytes,
                     submission->trace, error);
    if (error->status == STATUS_RESOURCE_EXHAUSTED)
        rpc_server_relieve(front->server);
    rpc_call_refuse(call, error->status, error->text, submission->retry_ms);
}

/* It had to wait for a slot, and gets none. */
static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    refuse(submission->context, submission, error);
}

static const struct request_sink sink = {
    .tagged = sink_tagged, .reply = sink_reply, .fail = sink_fail, .refused = sink_refused};

static const struct request_sink stream_sink = {.tagged = sink_tagged,
                                                .reply = sink_reply,
                                                .piece = sink_piece,
                                                .finish = sink_finish,
                                                .fail = sink_fail,
                                                .refused = sink_refused};

#define CALL_TYPE                                                                                  \
    .metadata = metadata, .walk = walk, .names = names, .address = address, .answer = sink_answer, \
    .refuse = sink_refuse

static const struct inbound_type call_type = {CALL_TYPE, .sink = &sink};
static const struct inbound_type stream_type = {CALL_TYPE, .sink = &stream_sink,
                                                .is_server_stream = true};
/* No modelet of this node emits; another node's may. */
static const struct inbound_type far_stream_type = {CALL_TYPE, .sink = &sink,
                                                    .is_server_stream = true};

/* Within its callback. */
static struct inbound
inbound_of(struct rpc_call *call, const struct wire_message *message)
{
    return (struct inbound){
        .type = &call_type,
        .call = call,
        .method = rpc_call_method(call),
        .message = message,
        .deadline_ns = rpc_call_deadline_ns(call),
        .queue = current_thread->queue,
    };
}

/* ---- inference ---- */

static void
take_request(struct front *front, const struct front_method *bound,
             const struct trace_origin *origin, struct rpc_call *call,
             const struct wire_message *message)
{
    struct tracer *tracer = front->options.node.tracer;
    counter_add_shared(front->options.node.counters, NODE_CALLS, 1);
    struct error error;
    error_clear(&error);
    struct inbound inbound = inbound_of(call, message);
    if (bound != NULL && bound->method.may_stream)
        inbound.type = atomic_load_explicit(&bound->pipeline->never_emits, memory_order_relaxed)
                           ? &far_stream_type
                           : &stream_type;
    inbound.trace = tracer == NULL ? NULL : trace_call_begin(tracer, origin, call);
    struct submission submission = dispatch_submission(&inbound, &current_thread->builder);
    submission.context = front;
    struct pipeline *pipeline = bound == NULL ? NULL : bound->pipeline;
    if (dispatch_infer(&front->dispatch, &inbound, pipeline, &submission, &error) == STATUS_OK)
        return; /* the sink answers; the call may be gone already */
    refuse(front, &submission, &error);
}

static const struct trace_origin infer_origin = {
    INFERENCE "/ModelInfer",
    {{"rpc.system", "grpc"}, {"rpc.service", INFERENCE}, {"rpc.method", "ModelInfer"}}};

static void
on_infer(void *context, struct rpc_call *call, const struct wire_message *message)
{
    take_request(context, NULL, &infer_origin, call, message);
}

static void
on_bound(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct front *front = context;
    const char *path = rpc_call_method(call); /* the very text that the method was made with */
    const struct front_method *bound = front->bound;
    while (bound->method.path != path) {
        bound++;
        CHECK(bound < front->bound + front->bound_count);
    }
    take_request(front, bound, &bound->origin, call, message);
}

static const char *
on_unknown(void *context, const char *path)
{
    struct front *front = context;
    return mesh_node_misplaced(front->options.node.mesh, path);
}

/* In a mesh, on_any passes the stream on as a whole if it is for the external runtime: the metadata
 * or the data-plane configuration name the model, and the node has a runtime. */
static bool
stream_is_for_any(void *context, struct rpc_call *call)
{
    const struct front *front = context;
    const struct mesh_node *mesh = front->options.node.mesh;
    const struct wire_message none = {.bytes = 0};
    struct inbound inbound = inbound_of(call, &none);
    struct dataplane_rule rule;
    struct mesh_named named;
    struct error error = ERROR_NONE;
    if (mesh_node_permits(mesh, inbound.method, &rule, &error) != STATUS_OK)
        return true; /* it is refused there */
    return config_has_runtime(front->options.node.config) &&
           (rule.depth > 0 || mesh_id_of_metadata(&inbound, &named, &error) != STATUS_OK ||
            named.count > 0);
}

static void
on_stream(void *context, struct rpc_call *call, const struct wire_message *message)
{
    const struct front *front = context;
    const struct mesh_node *mesh = front->options.node.mesh;
    const struct stream_infer_thread thread = {current_thread->queue, &current_thread->builder};
    struct dataplane_rule rule;
    struct error error = ERROR_NONE;
    if (mesh != NULL && rpc_call_user(call) == NULL && /* a mesh need not have on_any */
        mesh_node_permits(mesh, rpc_call_method(call), &rule, &error) != STATUS_OK) {
        counter_add_shared(front->options.node.counters, NODE_CALLS, 1);
        dispatch_refused(&front->dispatch, STREAM_INFER_PATH, message->bytes, NULL, &error);
        rpc_call_finish(call, error.status, error.text);
        return;
    }
    stream_infer_on_message(&front->stream_infer, &thread, call, message);
}

static void
on_stream_half_close(void *context, struct rpc_call *call)
{
    (void)context;
    stream_infer_on_half_close(call);
}

static void
on_stream_cancel(void *context, uint64_t tag)
{
    (void)context;
    stream_infer_on_cancel(tag);
}

static void
on_stream_sent(void *context, uint64_t tag, size_t waiting)
{
    (void)context;
    (void)waiting;
    stream_infer_on_sent(tag);
}

static enum status
refuse_method(const char *path, struct error *error)
{
    return error_set(error, STATUS_UNIMPLEMENTED, "no such method: %.200s", path);
}

enum any_message { ANY_MESSAGE, ANY_NO_MESSAGE, ANY_AWAITED };

/* Finds the models that a call names whose method is no pipeline's of this node. */
static enum status
name_any(struct front *front, const struct inbound *inbound, enum any_message is,
         struct mesh_named *named, struct error *error)
{
    const char *path = inbound->method;
    const char *misplaced = mesh_node_misplaced(front->options.node.mesh, path);
    if (misplaced != NULL)
        return error_set(error, STATUS_UNIMPLEMENTED, "%s", misplaced);
    if (services_reserve(path))
        return refuse_method(path, error);
    enum status status = dispatch_name(&front->dispatch, inbound, named, error);
    if (status != STATUS_OK)
        return status;
    if (named->id.bytes == 0)
        return services_lack(path)
                   ? refuse_method(path, error)
                   : error_set(error, STATUS_INVALID_ARGUMENT, "must include mm-model-id header");
    if (is == ANY_NO_MESSAGE && named->count > 1)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a call for several models has one message, and this one has none");
    return STATUS_OK;
}

/* Another node's pipeline may be bound to the method, or an external runtime may have it. */
static void
take_any(struct front *front, struct rpc_call *call, const struct wire_message *message,
         enum any_message is)
{
    struct inbound inbound = inbound_of(call, message);
    struct mesh_named named;
    struct error error;
    error_clear(&error);
    named.id.bytes = 0;
    named.count = 0;
    counter_add_shared(front->options.node.counters, NODE_CALLS, 1);
    if (name_any(front, &inbound, is, &named, &error) != STATUS_OK) {
        struct submission submission = dispatch_submission(&inbound, NULL);
        refuse(front, &submission, &error);
        return;
    }
    struct rpc_queue *queue = rpc_server_queue(front->server, current_thread->queue);
    struct mesh_call_start start = {.inbound = &inbound,
                                    .flow_queue = named.count <= 1 ? queue : NULL,
                                    .is_empty = is == ANY_NO_MESSAGE,
                                    .is_awaited = is == ANY_AWAITED};
    dispatch_elsewhere(&front->dispatch, &start, &named);
}

/* The caller of a stream may wait for the runtime to speak first. */
static bool
on_any_open(void *context, struct rpc_call *call)
{
    struct front *front = context;
    const struct wire_message none = {.bytes = 0};
    struct inbound inbound = inbound_of(call, &none);
    bool is_known = mesh_node_names_by_metadata(front->options.node.mesh, &inbound);
    if (is_known)
        take_any(front, call, &none, ANY_AWAITED);
    return is_known;
}

static void
on_any(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct front *front = context;
    if (rpc_call_user(call) != NULL)
        mesh_node_more(front->options.node.mesh, call, message);
    else
        take_any(front, call, message, ANY_MESSAGE);
}

/* One that has sent nothing begins with its end: whether it may do so its runtime says. */
static void
on_any_half_close(void *context, struct rpc_call *call)
{
    struct front *front = context;
    if (rpc_call_user(call) != NULL)
        mesh_node_more(front->options.node.mesh, call, NULL);
    else
        take_any(front, call, &(struct wire_message){.bytes = 0}, ANY_NO_MESSAGE);
}

static void
on_any_sent(void *context, uint64_t tag, size_t waiting)
{
    struct front *front = context;
    (void)waiting;
    mesh_node_sent(front->options.node.mesh, tag);
}

/* Passes on that another node's answer has left. */
static void
on_bound_sent(void *context, uint64_t tag, size_t waiting)
{
    if (tag_is_pending(tag))
        on_any_sent(context, tag, waiting);
}

static void
on_infer_cancel(void *context, uint64_t tag)
{
    struct front *front = context;
    dispatch_cancel(&front->dispatch, tag);
}

/* ---- the small methods ---- */

static void
answer(struct front *front, enum oip_method method, struct rpc_call *call,
       const struct wire_message *message)
{
    counter_add_shared(front->options.node.counters, NODE_CALLS, 1);
    struct error error = ERROR_NONE;
    struct dispatch_answer reported;
    struct inbound inbound = inbound_of(call, message);
    const struct dispatch_question question = {method, atomic_load(&front->node_ready)};
    enum status status = dispatch_ask(&front->dispatch, &inbound, &question, &reported, &error);
    if (status != STATUS_OK) {
        counter_add_shared(front->options.node.counters, NODE_CALLS_REFUSED, 1);
        rpc_call_finish(call, error.status, error.text);
        return;
    }
    if (reported.is_elsewhere)
        return; /* the call may be gone already */
    struct rpc_piece piece = {.data = reported.response, .bytes = reported.response_bytes};
    rpc_call_reply(call, &piece, 1);
    free(reported.response);
}

#define OIP_HANDLER(name, method)                                                                  \
    static void name(void *context, struct rpc_call *call, const struct wire_message *message)     \
    {                                                                                              \
        answer(context, method, call, message);                                                    \
    }

OIP_HANDLER(on_server_live, OIP_SERVER_LIVE)
OIP_HANDLER(on_server_ready, OIP_SERVER_READY)
OIP_HANDLER(on_server_metadata, OIP_SERVER_METADATA)
OIP_HANDLER(on_model_ready, OIP_MODEL_READY)
OIP_HANDLER(on_model_metadata, OIP_MODEL_METADATA)

/* In a mesh these are methods of external runtimes, which on_any passes on. */
static void
on_triton(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct front *front = context;
    struct error error = ERROR_NONE;
    struct inbound inbound = inbound_of(call, message);
    struct triton_request request = {.method = triton_method_of(inbound.method)};
    counter_add_shared(front->options.node.counters, NODE_CALLS, 1);
    if (triton_read(&request, message, &error) == STATUS_OK) {
        if (request.method >= TRITON_SHARED_STATUS)
            regions_take(front->options.node.shared_memory, &inbound, &request);
        else
            repository_take(front->options.node.repository, &inbound, &request);
        return;
    }
    counter_add_shared(front->options.node.counters, NODE_CALLS_REFUSED, 1);
    rpc_call_finish(call, error.status, error.text);
}

static void
on_runtime(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct front *front = context;
    runtime_on_front(front->options.runtime, call, message);
}

static void
on_manage(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct front *front = context;
    mesh_node_manage(front->options.node.mesh, call, message);
}

#define OIP "/" INFERENCE "/"

static const struct rpc_method methods[] = {
    {OIP "ModelInfer", RPC_UNARY, true, on_infer, NULL, on_infer_cancel},
    {OIP "ServerLive", RPC_UNARY, false, on_server_live, NULL, NULL},
    {OIP "ServerReady", RPC_UNARY, false, on_server_ready, NULL, NULL},
    {OIP "ServerMetadata", RPC_UNARY, false, on_server_metadata, NULL, NULL},
    {OIP "ModelReady", RPC_UNARY, false, on_model_ready, NULL, on_infer_cancel},
    {OIP "ModelMetadata", RPC_UNARY, false, on_model_metadata, NULL, on_infer_cancel},
    SERVICES_METHODS,
    RUNTIME_METHODS(on_runtime), /* the last: left out where they are not served here */
};

/* ---- the methods of pipelines ---- */

static void
bind_method(struct front *front, struct pipeline *pipeline)
{
    struct pipeline_method method = pipeline_method(pipeline);
    struct front_method *bound = &front->bound[front->bound_count++];
    const char *name = method.path + 1;
    const char *slash = strchr(name, '/'); /* config_check_method.c has seen to it */
    *bound = (struct front_method){.pipeline = pipeline, .method = method};
    bound->service = strndup(name, (size_t)(slash - name));
    CHECK(bound->service != NULL);
    bound->origin = (struct trace_origin){
        name, {{"rpc.system", "grpc"}, {"rpc.service", bound->service}, {"rpc.method", slash + 1}}};
}

/* Ours, then theirs. The first few of theirs are hot: each hot one slows every event a little. */
static void
collect_methods(struct front *front)
{
    const struct front_options *options = &front->options;
    for (uint32_t i = 0; i < options->node.pipeline_count; i++)
        if (pipeline_method(options->node.pipelines[i]).path != NULL)
            bind_method(front, options->node.pipelines[i]);
    size_t own = ARRAY_COUNT(methods);
    if (!runtime_is_at_front(options->runtime))
        own -= RUNTIME_METHOD_COUNT;
    size_t triton = options->node.mesh == NULL ? TRITON_METHOD_COUNT : 0;
    size_t mesh = mesh_node_is_managed_at_front(options->node.mesh) ? MESH_METHOD_COUNT : 0;
    front->method_count = own + front->bound_count + triton + 1 + mesh;
    front->methods = calloc(front->method_count, sizeof(*front->methods));
    CHECK(front->methods != NULL);
    memcpy(front->methods, methods, own * sizeof(*methods));
    for (uint32_t i = 0; i < front->bound_count; i++) {
        const struct pipeline_method *bound = &front->bound[i].method;
        front->methods[own + i] =
            (struct rpc_method){.path = bound->path,
                                .kind = bound->may_stream ? RPC_SERVER_STREAM : RPC_UNARY,
                                .hot = i < HOT_BOUND_MAX,
                                .on_message = on_bound,
                                .on_cancel = on_infer_cancel};
    }
    struct rpc_method *next = front->methods + own + front->bound_count;
    for (size_t i = 0; i < triton; i++)
        *next++ = (struct rpc_method){
            .path = triton_paths[i], .kind = RPC_UNARY, .on_message = on_triton};
    *next++ = (struct rpc_method){.path = STREAM_INFER_PATH,
                                  .kind = RPC_BIDI_READ,
                                  .on_message = on_stream,
                                  .on_half_close = on_stream_half_close,
                                  .on_cancel = on_stream_cancel};
    if (mesh > 0)
        mesh_manage_methods(next, on_manage, on_infer_cancel);
}

static void
front_free(struct front *front)
{
    for (uint32_t i = 0; i < front->bound_count; i++)
        free(front->bound[i].service);
    health_destroy(front->services.health);
    free(front->methods);
    free(front->threads);
    free(front);
}

/* ---- the threads ---- */

/* Handles the events on the queue, without waiting. */
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

static const struct rpc_any any_method = {
    .on_open = on_any_open,
    .on_message = on_any,
    .on_half_close = on_any_half_close,
    .on_cancel = on_infer_cancel,
    .on_sent = on_any_sent,
};

static struct rpc_server_options
server_options(struct front *front)
{
    const struct config *config = front->options.node.config;
    bool replaced = front->options.listen_count > 0;
    return (struct rpc_server_options){
        .name = "grpc",
        .accept = front->options.accept,
        .listen = replaced ? front->options.listen : (const char *const *)config->listen.items,
        .listen_count = replaced ? front->options.listen_count : config->listen.count,
        .socket_mode = config->socket_mode != NULL ? &config->socket_mode_bits : NULL,
        .queue_count = config->front_threads,
        .message_bytes_max = config->message_bytes_max,
        .compression = config->compression != NULL && strcmp(config->compression, "off") == 0
                           ? RPC_COMPRESSION_OFF
                           : RPC_COMPRESSION_ON,
        .metadata_bytes_max = METADATA_BYTES_MAX,
        .connections_max = config->connections_max,
        .connections_per_peer_max = config->connections_per_peer_max,
        .send_timeout_ns = config->send_timeout_ns,
        .concurrent_streams_max = config->streams_per_connection_max,
        .stream_window_bytes = config->stream_window_bytes,
        .armed_calls = ARMED_CALLS,
        .armed_calls_other = ARMED_CALLS_OTHER,
        .keepalive_time_ns = config->keepalive_time_ns,
        .keepalive_timeout_ns = config->keepalive_timeout_ns,
        .methods = front->methods,
        .method_count = front->method_count,
        .any = mesh_node_takes_any(front->options.node.mesh) ? &any_method : NULL,
        .on_sent = on_stream_sent,
        .on_server_stream_sent = on_bound_sent,
        .is_for_any = stream_is_for_any,
        .on_unknown = on_unknown,
        .tls = front->options.tls,
        .context = front,
    };
}

enum status
front_create(const struct front_options *options, struct front **created, struct error *error)
{
    struct front *front = calloc(1, sizeof(*front));
    CHECK(front != NULL);
    front->options = *options;
    front->dispatch = dispatch_of(&options->node);
    front->services.health = health_create(model_health(options->node.registry));
    collect_methods(front);
    health_set(front->services.health, "", HEALTH_NOT_SERVING);
    for (uint32_t i = 0; i < options->node.pipeline_count; i++)
        health_set(front->services.health, options->node.pipelines[i]->name, HEALTH_NOT_SERVING);
    struct rpc_server_options server = server_options(front);
    enum status status = rpc_server_create(&server, &front->server, error);
    if (status != STATUS_OK) {
        front_free(front);
        return status;
    }
    front->stream_infer = (struct stream_infer){&front->dispatch, options->node.counters,
                                                options->node.tracer, front->server};
    front->thread_count = options->node.config->front_threads;
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
        gatherer_init(&thread->gatherer, front->options.node.pipelines,
                      front->options.node.pipeline_count);
        CHECK(pthread_create(&thread->thread, NULL, front_main, thread) == 0);
    }
    front->started = true;
}

uint32_t
front_queues(struct front *front, struct rpc_queue **queues)
{
    for (uint32_t i = 0; i < front->thread_count; i++)
        queues[i] = rpc_server_queue(front->server, i);
    return front->thread_count;
}

void
front_set_serving(struct front *front, const char *pipeline, bool serving)
{
    health_set(front->services.health, pipeline, serving ? HEALTH_SERVING : HEALTH_NOT_SERVING);
}

void
front_set_node_ready(struct front *front, bool ready)
{
    atomic_store(&front->node_ready, ready);
    health_set(front->services.health, "", ready ? HEALTH_SERVING : HEALTH_NOT_SERVING);
}

bool
front_publish(struct front *front)
{
    struct rpc_figures figures = rpc_server_figures(front->server);
    uint64_t refused =
        pipelines_refused(front->options.node.pipelines, front->options.node.pipeline_count);
    if (refused != front->refused_before) /* over HTTP, too */
        rpc_server_relieve(front->server);
    front->refused_before = refused;
    _Atomic uint64_t *counters = front->options.node.counters;
    counter_set(counters, NODE_GRPC_CONNECTIONS, figures.connections);
    counter_set(counters, NODE_GRPC_REFUSED, figures.refused);
    counter_set(counters, NODE_GRPC_CUT, figures.cut);
    counter_set(counters, NODE_GRPC_HELD, figures.held);
    counter_set(counters, NODE_GRPC_LACKS, figures.lacks);
    return figures.is_accepting;
}

void
front_accept(struct front *front)
{
    rpc_server_accept(front->server);
}

bool
front_part(struct front *front)
{
    rpc_server_part(front->server);
    return rpc_server_figures(front->server).connections == 0;
}

bool
front_refuse(struct front *front)
{
    rpc_server_refuse(front->server, "the node is stopping");
    health_end_watches(front->services.health);
    return rpc_server_is_quiet(front->server);
}

void
front_destroy(struct front *front)
{
    (void)front_refuse(front);
    if (!front->started) /* nobody steps the queues: only the end of each is to be seen */
        front_start(front);
    rpc_server_end(front->server, LAST_REPLIES_NS);
    for (uint32_t i = 0; i < front->thread_count; i++)
        CHECK(pthread_join(front->threads[i].thread, NULL) == 0);
    rpc_server_destroy(front->server);
    front_free(front);
}
