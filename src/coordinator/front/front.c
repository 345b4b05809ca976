/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/front.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/join.h"
#include "coordinator/front/caller.h"
#include "coordinator/mesh/mesh_id.h"
#include "coordinator/mesh/mesh_node.h"
#include "coordinator/models/model_health.h"
#include "coordinator/models/runtime.h"
#include "coordinator/models/target.h"
#include "coordinator/pipeline/gatherer.h"
#include "coordinator/pipeline/trace_request.h"
#include "coordinator/protocol/oip.h"
#include "coordinator/protocol/priority.h"
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
struct bound {
    struct pipeline *pipeline;
    struct pipeline_method method;
    char *service; /* of the method's path */
    struct trace_origin origin;
};

struct front {
    struct services services; /* first: SERVICES_METHODS wants it so */
    struct front_options options;
    struct target_scope scope;
    struct bound bound[CONFIG_PIPELINES_MAX];
    uint32_t bound_count;
    struct rpc_method *methods; /* ours, and those of pipelines */
    size_t method_count;
    struct rpc_server *server;
    _Atomic bool node_ready;
    struct callers callers;
    struct front_thread *threads;
    uint32_t thread_count;
    bool started;
    uint64_t refused_before; /* when it was last published */
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

/* Ends a call that no pipeline has taken: at once, or, as sink_refused, after it had to wait. */
static void
refuse(struct front *front, const struct submission *submission, const struct error *error)
{
    counter_add_shared(front->options.counters, NODE_CALLS_REFUSED, 1);
    mesh_node_refused(front->options.mesh, rpc_call_method(submission->call), error->status,
                      submission->message->bytes);
    if (submission->trace != NULL)
        tracer_end(submission->trace, error->status, error->text);
    if (error->status == STATUS_RESOURCE_EXHAUSTED)
        rpc_server_relieve(front->server);
    rpc_call_refuse(submission->call, error->status, error->text, submission->retry_ms);
}

static void
sink_refused(const struct submission *submission, const struct error *error)
{
    struct target target = {NULL, submission->model, submission->model_held};
    target_leave(&target);
    refuse(submission->context, submission, error);
}

static const struct request_sink rpc_sink = {
    .tagged = sink_tagged, .reply = sink_reply, .fail = sink_fail, .refused = sink_refused};

/* `bound` NULL: the message is a ModelInferRequest. */
static enum status
find_id_in_message(const struct bound *bound, const struct rpc_message *message, size_t bytes_max,
                   struct target_id *id, struct error *error)
{
    static const uint32_t name_path[] = {1}; /* of model_name in a ModelInferRequest */
    if (bound == NULL) {
        enum status status = target_id_of_message(message, name_path, 1, bytes_max, id, error);
        return status == STATUS_OK
                   ? status
                   : error_prefix(error, "request is not a valid ModelInferRequest");
    }
    if (bound->method.id_path_count == 0)
        return STATUS_OK;
    enum status status = target_id_of_message(message, bound->method.id_path,
                                              bound->method.id_path_count, bytes_max, id, error);
    return status == STATUS_OK ? status
                               : error_prefix(error, "looking for the model's id in the request");
}

/* The id that a call gives: by its metadata, or else in the message. */
static enum status
find_id(const struct bound *bound, const struct rpc_call *call, const struct rpc_message *message,
        struct target_id *id, struct error *error)
{
    enum status status = target_id_of_call(call, id, error);
    return status != STATUS_OK || id->bytes > 0
               ? status
               : find_id_in_message(bound, message, SHOAL_NAME_BYTES_MAX, id, error);
}

/* A pipeline of this node, and the model in it; or `elsewhere`: a model or vmodel of the mesh
 * that is not to be had here. */
struct meant {
    struct mesh_named named; /* without a mesh its id alone */
    struct target target;
    bool elsewhere;
};

/* The text stays as it is: it is long, and this is done for each call. */
static void
meant_init(struct meant *meant)
{
    meant->named.id.bytes = 0;
    meant->named.count = 0;
    meant->target = (struct target){NULL, NULL, false};
    meant->elsewhere = false;
}

static enum status
find_meant(struct front *front, const struct bound *bound, const struct submission *submission,
           struct meant *meant, struct error *error)
{
    struct pipeline *pipeline = bound == NULL ? NULL : bound->pipeline;
    struct target_id *id = &meant->named.id;
    enum status status = find_id(bound, submission->call, submission->message, id, error);
    return status == STATUS_OK ? target_find(&front->scope, pipeline, id, &meant->target, error)
                               : status;
}

/* Finds the model that a call of a mesh names: in the request where the data-plane configuration
 * says, else by metadata; where it says nothing, also by the name that the request has. That in the
 * request may be a pipeline's. */
static enum status
name_in_mesh(const struct front *front, const struct bound *bound,
             const struct submission *submission, struct mesh_named *named, struct error *error)
{
    struct dataplane_rule rule;
    const struct rpc_call *call = submission->call;
    bool vmodels = front->options.config->mesh.names[0] == 'v';
    enum status status =
        mesh_node_permits(front->options.mesh, rpc_call_method(call), &rule, error);
    if (status == STATUS_OK)
        status = mesh_id_find(call, submission->message, &rule, named, error);
    if (status != STATUS_OK || named->count > 0)
        return status;
    if (rule.depth > 0)
        vmodels = rule.name == DRIVER_NAME_VMODEL;
    else
        status =
            find_id_in_message(bound, submission->message, TARGET_ID_BYTES_MAX, &named->id, error);
    bool is_vmodel = vmodels && named->id.bytes > 0 && target_is_model(&front->scope, &named->id);
    named->name = is_vmodel ? DRIVER_NAME_VMODEL : DRIVER_NAME_MODEL;
    return status;
}

/* A vmodel, a model that is not loaded here, and several of either are elsewhere. */
static enum status
find_in_mesh(struct front *front, const struct bound *bound, const struct submission *submission,
             struct meant *meant, struct error *error)
{
    struct mesh_named *named = &meant->named;
    enum status status = name_in_mesh(front, bound, submission, named, error);
    if (status != STATUS_OK)
        return status;
    struct pipeline *pipeline = bound == NULL ? NULL : bound->pipeline;
    if (named->id.bytes == 0 && (pipeline == NULL || pipeline->catalog != NULL))
        return error_set(error, STATUS_INVALID_ARGUMENT, "must include mm-model-id header");
    meant->elsewhere = named->name == DRIVER_NAME_VMODEL || named->count > 1;
    if (meant->elsewhere)
        return STATUS_OK;
    status = target_find(&front->scope, pipeline, &named->id, &meant->target, error);
    meant->elsewhere = status == STATUS_NOT_FOUND;
    return meant->elsewhere ? STATUS_OK : status;
}

static enum status
submit(struct front *front, const struct bound *bound, const struct target *target,
       struct submission *submission, struct error *error)
{
    struct rpc_call *call = submission->call;
    trace_name_pipeline(submission->trace, target->pipeline->name);
    submission->caller = caller_of_call(&front->callers, call);
    submission->model = target->model;
    submission->model_held = target->held;
    int64_t timeout_ns = TIME_NEVER_NS;
    enum status status =
        bound == NULL ? oip_skim(submission->message, &submission->priority, &timeout_ns, error)
                      : priority_of_call(call, &submission->priority, error);
    submission_shorten(submission, timeout_ns);
    if (status == STATUS_OK)
        status = pipeline_submit(target->pipeline, submission, error);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        rpc_server_relieve(front->server);
    return status;
}

enum any_message { ANY_MESSAGE, ANY_NO_MESSAGE, ANY_AWAITED };

static void
infer_elsewhere(struct front *front, const struct meant *meant, struct submission *submission,
                struct rpc_queue *flow_queue, enum any_message is)
{
    const struct mesh_call_start start = {
        .call = submission->call,
        .message = submission->message,
        .id = meant->named.id.text,
        .name = meant->named.name,
        .queue = current_thread->queue,
        .flow_queue = flow_queue,
        .is_empty = is == ANY_NO_MESSAGE,
        .is_awaited = is == ANY_AWAITED,
        .origin = {caller_of_call(&front->callers, submission->call), submission->trace},
    };
    mesh_node_infer(front->options.mesh, &start, &meant->named);
}

/* Another node may take a call that this one cannot take now. */
static bool
may_be_elsewhere(const struct front *front, const struct meant *meant, enum status status)
{
    const struct mesh_node *mesh = front->options.mesh;
    bool is_full = status == STATUS_RESOURCE_EXHAUSTED && mesh_node_takes_any(mesh);
    return mesh != NULL && meant->target.model != NULL && (status == STATUS_UNAVAILABLE || is_full);
}

static enum status
infer(struct front *front, const struct bound *bound, struct submission *submission,
      struct error *error)
{
    struct meant meant;
    meant_init(&meant);
    enum status status = front->options.mesh == NULL
                             ? find_meant(front, bound, submission, &meant, error)
                             : find_in_mesh(front, bound, submission, &meant, error);
    if (status != STATUS_OK)
        return status;
    if (!meant.elsewhere) {
        status = submit(front, bound, &meant.target, submission, error);
        if (status == STATUS_OK)
            return STATUS_OK;
        meant.elsewhere = may_be_elsewhere(front, &meant, status);
        target_leave(&meant.target);
    }
    if (meant.elsewhere)
        infer_elsewhere(front, &meant, submission, NULL, ANY_MESSAGE);
    return meant.elsewhere ? STATUS_OK : status;
}

static void
take_request(struct front *front, const struct bound *bound, const struct trace_origin *origin,
             struct rpc_call *call, const struct rpc_message *message)
{
    struct tracer *tracer = front->options.tracer;
    counter_add_shared(front->options.counters, NODE_CALLS, 1);
    struct error error;
    error_clear(&error);
    struct submission submission = {
        .message = message,
        .deadline_ns = rpc_call_deadline_ns(call),
        .sink = &rpc_sink,
        .call = call,
        .context = front,
        .builder = &current_thread->builder,
        .trace = tracer == NULL ? NULL : trace_call_begin(tracer, origin, call),
    };
    if (infer(front, bound, &submission, &error) == STATUS_OK)
        return; /* the sink answers; the call may be gone already */
    refuse(front, &submission, &error);
}

static const struct trace_origin infer_origin = {
    INFERENCE "/ModelInfer",
    {{"rpc.system", "grpc"}, {"rpc.service", INFERENCE}, {"rpc.method", "ModelInfer"}}};

static void
on_infer(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    take_request(context, NULL, &infer_origin, call, message);
}

static void
on_bound(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    const char *path = rpc_call_method(call); /* the very text that the method was made with */
    const struct bound *bound = front->bound;
    while (bound->method.path != path)
        bound++;
    take_request(front, bound, &bound->origin, call, message);
}

static const char *
on_unknown(void *context, const char *path)
{
    struct front *front = context;
    return mesh_node_misplaced(front->options.mesh, path);
}

static enum status
refuse_method(const char *path, struct error *error)
{
    return error_set(error, STATUS_UNIMPLEMENTED, "no such method: %.200s", path);
}

/* Methods that are no pipeline's of this node: another one's may be bound to it, or an external
 * runtime may have it. */
static void
take_any(struct front *front, struct rpc_call *call, const struct rpc_message *message,
         enum any_message is)
{
    static const struct bound none = {.pipeline = NULL}; /* it has no place for an id either */
    struct submission submission = {.call = call, .message = message};
    struct meant meant;
    struct error error;
    meant_init(&meant);
    error_clear(&error);
    counter_add_shared(front->options.counters, NODE_CALLS, 1);
    const char *path = rpc_call_method(call);
    enum status status = STATUS_OK;
    const char *misplaced = mesh_node_misplaced(front->options.mesh, path);
    if (misplaced != NULL)
        status = error_set(&error, STATUS_UNIMPLEMENTED, "%s", misplaced);
    else if (services_reserve(path))
        status = refuse_method(path, &error);
    if (status == STATUS_OK)
        status = name_in_mesh(front, &none, &submission, &meant.named, &error);
    if (status == STATUS_OK && meant.named.id.bytes == 0)
        status = services_lack(path) ? refuse_method(path, &error)
                                     : error_set(&error, STATUS_INVALID_ARGUMENT,
                                                 "must include mm-model-id header");
    if (status == STATUS_OK && is == ANY_NO_MESSAGE && meant.named.count > 1)
        status = error_set(&error, STATUS_INVALID_ARGUMENT,
                           "a call for several models has one message, and this one has none");
    if (status != STATUS_OK) {
        refuse(front, &submission, &error);
        return;
    }
    struct rpc_queue *queue = rpc_server_queue(front->server, current_thread->queue);
    infer_elsewhere(front, &meant, &submission, meant.named.count <= 1 ? queue : NULL, is);
}

/* The caller of a stream may wait for the runtime to speak first. */
static bool
on_any_open(void *context, struct rpc_call *call)
{
    struct front *front = context;
    bool is_known = mesh_node_names_by_metadata(front->options.mesh, call);
    if (is_known)
        take_any(front, call, &(struct rpc_message){.bytes = 0}, ANY_AWAITED);
    return is_known;
}

static void
on_any(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    if (rpc_call_user(call) != NULL)
        mesh_node_more(front->options.mesh, call, message);
    else
        take_any(front, call, message, ANY_MESSAGE);
}

/* One that has sent nothing begins with its end: whether it may do so its runtime says. */
static void
on_any_half_close(void *context, struct rpc_call *call)
{
    struct front *front = context;
    if (rpc_call_user(call) != NULL)
        mesh_node_more(front->options.mesh, call, NULL);
    else
        take_any(front, call, &(struct rpc_message){.bytes = 0}, ANY_NO_MESSAGE);
}

static void
on_any_sent(void *context, uint64_t tag, size_t waiting)
{
    struct front *front = context;
    (void)waiting;
    mesh_node_sent(front->options.mesh, tag);
}

static void
on_infer_cancel(void *context, uint64_t tag)
{
    struct front *front = context;
    uint32_t number = tag_pipeline(tag);
    if (tag_is_pending(tag))
        mesh_node_cancel(front->options.mesh, tag);
    else if (tag != 0 && number < front->options.pipeline_count)
        pipeline_cancel(front->options.pipelines[number], tag);
}

/* ---- the small methods ---- */

/* One such call. */
struct inquiry {
    struct front *front;
    struct target_id id;     /* of its metadata, which comes before the name in the message */
    struct target_told told; /* about whom, until the answer is packed */
};

static bool
node_is_ready(void *context)
{
    const struct inquiry *inquiry = context;
    return atomic_load(&inquiry->front->node_ready);
}

static enum status
describe_model(void *context, const char *name, struct oip_model_info *info, bool *ready,
               struct error *error)
{
    struct inquiry *inquiry = context;
    return target_tell(&inquiry->front->scope, inquiry->id.bytes > 0 ? inquiry->id.text : name,
                       info, ready, &inquiry->told, error);
}

/* A question about a model of the mesh that is not loaded here goes where it is, or is going to be.
 * Of one that is here `id` is what it is about. What is wrong with the others is said in the words
 * of their own method, unless that may not be called. */
static bool
ask_elsewhere(struct front *front, struct rpc_call *call, const struct rpc_message *message,
              struct target_id *id, struct error *error)
{
    struct submission submission = {.call = call, .message = message};
    struct meant meant;
    meant_init(&meant);
    /* both requests have the name where a ModelInferRequest has it */
    enum status status = find_in_mesh(front, NULL, &submission, &meant, error);
    if (status != STATUS_OK && status != STATUS_UNIMPLEMENTED)
        error_clear(error);
    if (status != STATUS_OK)
        return false;
    target_leave(&meant.target);
    if (meant.elsewhere)
        infer_elsewhere(front, &meant, &submission, NULL, ANY_MESSAGE);
    else
        *id = meant.named.id;
    return meant.elsewhere;
}

static void
answer(struct front *front, enum oip_method method, struct rpc_call *call,
       const struct rpc_message *message)
{
    counter_add_shared(front->options.counters, NODE_CALLS, 1);
    struct error error = ERROR_NONE;
    struct inquiry inquiry = {.front = front};
    bool of_model = method == OIP_MODEL_READY || method == OIP_MODEL_METADATA;
    if (of_model && front->options.mesh != NULL &&
        ask_elsewhere(front, call, message, &inquiry.id, &error))
        return;
    void *response = NULL;
    size_t response_bytes = 0;
    struct oip_node node = {node_is_ready, describe_model, &inquiry};
    enum status status = error.status;
    if (status == STATUS_OK && inquiry.id.bytes == 0)
        status = target_id_of_call(call, &inquiry.id, &error);
    if (status == STATUS_OK)
        status = oip_answer(method, &node, message, &response, &response_bytes, &error);
    target_forget(&inquiry.told);
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
on_runtime(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    runtime_on_front(front->options.runtime, call, message);
}

static void
on_manage(void *context, struct rpc_call *call, const struct rpc_message *message)
{
    struct front *front = context;
    mesh_node_manage(front->options.mesh, call, message);
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
    struct bound *bound = &front->bound[front->bound_count++];
    const char *name = method.path + 1;
    const char *slash = strchr(name, '/'); /* config_check_method.c has seen to it */
    *bound = (struct bound){.pipeline = pipeline, .method = method};
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
    for (uint32_t i = 0; i < options->pipeline_count; i++)
        if (pipeline_method(options->pipelines[i]).path != NULL)
            bind_method(front, options->pipelines[i]);
    size_t own = ARRAY_COUNT(methods);
    if (!runtime_is_at_front(options->runtime))
        own -= RUNTIME_METHOD_COUNT;
    size_t mesh = mesh_node_is_managed_at_front(options->mesh) ? MESH_METHOD_COUNT : 0;
    front->method_count = own + front->bound_count + mesh;
    front->methods = calloc(front->method_count, sizeof(*front->methods));
    CHECK(front->methods != NULL);
    memcpy(front->methods, methods, own * sizeof(*methods));
    for (uint32_t i = 0; i < front->bound_count; i++)
        front->methods[own + i] = (struct rpc_method){.path = front->bound[i].method.path,
                                                      .kind = RPC_UNARY,
                                                      .hot = i < HOT_BOUND_MAX,
                                                      .on_message = on_bound,
                                                      .on_cancel = on_infer_cancel};
    if (mesh > 0)
        mesh_manage_methods(front->methods + own + front->bound_count, on_manage, on_infer_cancel);
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
    const struct config *config = front->options.config;
    bool replaced = front->options.listen_count > 0;
    return (struct rpc_server_options){
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
        .any = mesh_node_takes_any(front->options.mesh) ? &any_method : NULL,
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
    front->callers = callers_of(options->config, options->share_key);
    front->services.health = health_create(model_health(options->registry));
    front->scope = (struct target_scope){options->pipelines, options->pipeline_count,
                                         options->registry, options->mesh != NULL};
    collect_methods(front);
    health_set(front->services.health, "", false);
    for (uint32_t i = 0; i < options->pipeline_count; i++)
        health_set(front->services.health, options->pipelines[i]->name, false);
    struct rpc_server_options server = server_options(front);
    enum status status = rpc_server_create(&server, &front->server, error);
    if (status != STATUS_OK) {
        front_free(front);
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
    health_set(front->services.health, pipeline, serving);
}

void
front_set_node_ready(struct front *front, bool ready)
{
    atomic_store(&front->node_ready, ready);
    health_set(front->services.health, "", ready);
}

bool
front_publish(struct front *front)
{
    struct rpc_figures figures = rpc_server_figures(front->server);
    uint64_t refused = pipelines_refused(front->options.pipelines, front->options.pipeline_count);
    if (refused != front->refused_before) /* over HTTP, too */
        rpc_server_relieve(front->server);
    front->refused_before = refused;
    _Atomic uint64_t *counters = front->options.counters;
    counter_set(counters, NODE_GRPC_CONNECTIONS, figures.connections);
    counter_set(counters, NODE_GRPC_REFUSED, figures.refused);
    counter_set(counters, NODE_GRPC_CUT, figures.cut);
    counter_set(counters, NODE_GRPC_HELD, figures.held);
    counter_set(counters, NODE_GRPC_LACKS, figures.lacks);
    return figures.is_accepting;
}

/* Joins the threads, which end when the server has nothing left to do; false: they did not. */
static bool
join_threads(struct front *front, int64_t timeout_ns)
{
    int64_t deadline_ns = clock_now_ns() + timeout_ns;
    while (front->thread_count > 0) {
        if (!join_until(front->threads[front->thread_count - 1].thread, deadline_ns))
            return false;
        front->thread_count--;
    }
    return true;
}

void
front_destroy(struct front *front)
{
    rpc_server_stop(front->server);
    health_end_watches(front->services.health);
    if (!front->started) /* nobody steps the queues: only the end of each is to be seen */
        front_start(front);
    if (!join_threads(front, LAST_REPLIES_NS)) {
        rpc_server_cancel_all(front->server);
        CHECK(join_threads(front, NS_PER_S * 3600));
    }
    rpc_server_destroy(front->server);
    front_free(front);
}
