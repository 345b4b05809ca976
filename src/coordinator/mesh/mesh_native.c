/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of the mesh into pipelines.
 *
 * The runner calls native_serve under its lock, and what ends a try calls the runner. So nothing
 * may end within native_serve but by its result. It could: a lane that is found condemned fails
 * all that is in it, on the thread that has just submitted. Such ends are reported from the loop
 * thread, and the request itself by the result.
 */
#include "coordinator/mesh/mesh_native.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/entry/inbound.h"
#include "coordinator/entry/small.h"
#include "coordinator/mesh/mesh_loads.h"
#include "coordinator/mesh/mesh_pieces.h"
#include "coordinator/models/runtime_answer.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/services.h"
#include "mesh/edge/peer_flow.h"
#include "rpc/spans.h"

struct native {
    struct native_options options;
    struct mesh_loads loads;
    bool ready;                     /* the runner knows */
    struct payload_builder builder; /* guarded by the runner's lock */
    pthread_mutex_t late_lock;
    struct payload_builder late_builder; /* of tries that waited; guarded by late_lock */
};

/* One try, from native_serve until its end is reported. */
struct native_try {
    struct native *native;
    struct peer_request *request;
    uint32_t number;
    int64_t begun_ns;
    struct mesh_pieces *pieces; /* NULL: it has one message */
    /* A call that waits for its first message has these: */
    char *model;
    int64_t deadline_ns;
    uint64_t caller;
    /* Set if the end is reported later: */
    enum status status;
    char *text;    /* NULL: none */
    void *payload; /* of the answer; NULL: none */
    size_t payload_bytes;
};

/* The try that this thread submits now, and whether this thread has ended it meanwhile. If another
 * thread has answered it, `tried` is gone. */
struct submitting {
    const struct native_try *tried;
    bool ended;
    struct submitting *outer; /* a failure may lead here from within another one */
};

static _Thread_local struct submitting *submitting;

/* A miss costs more than this allocation. */
static struct native_try *
try_create(struct native *native, struct peer_request *request,
           const struct runner_attempt *attempt)
{
    struct native_try *tried = calloc(1, sizeof(*tried));
    CHECK(tried != NULL);
    *tried = (struct native_try){.native = native,
                                 .request = request,
                                 .number = attempt->number,
                                 .begun_ns = clock_now_ns()};
    request->served = NULL;
    request->type->hold(request);
    return tried;
}

/* ---- the end of a try ---- */

static void
try_free(struct native_try *tried)
{
    mesh_pieces_destroy(tried->pieces);
    tried->request->type->release(tried->request);
    free(tried->text);
    free(tried->payload);
    free(tried->model);
    free(tried);
}

static void
notify(struct native_try *tried, const struct rpc_answer *answer)
{
    struct runner_end end = {.end = MESH_END_OK};
    if (!mesh_pieces_has_begun(tried->pieces)) /* its reader decides how long it takes */
        end.took_us = (uint64_t)((clock_now_ns() - tried->begun_ns) / NS_PER_US);
    tried->request->type->on_ended(tried->request, tried->number, &end, answer);
    try_free(tried);
}

/* Like notify(), but an end behind pieces that wait is reported later. */
static void
notify_in_order(struct native_try *tried, const struct rpc_answer *answer)
{
    if (tried->pieces == NULL || !mesh_pieces_end(tried->pieces, answer))
        notify(tried, answer);
}

static void
on_end_of_pieces(void *context, const struct rpc_answer *answer)
{
    notify(context, answer);
}

static void
notify_failure(struct native_try *tried, enum status status, const char *text)
{
    struct rpc_answer answer = {.status = status, .text = {text, strlen(text)}};
    notify_in_order(tried, &answer);
}

static void
on_later(void *context)
{
    struct native_try *tried = context;
    struct rpc_piece piece = {.data = tried->payload, .bytes = tried->payload_bytes};
    struct rpc_answer answer = {.status = STATUS_OK, .pieces = &piece, .piece_count = 1};
    if (tried->text != NULL)
        notify_failure(tried, tried->status, tried->text);
    else
        notify(tried, &answer);
}

static void
notify_failure_later(struct native_try *tried, enum status status, const char *text)
{
    tried->status = status;
    tried->text = strdup(text);
    CHECK(tried->text != NULL);
    loop_post(tried->native->options.loop, on_later, tried);
}

/* ---- as the sink of a request ---- */

static void
sink_tagged(void *call, uint64_t tag)
{
    struct native_try *tried = call;
    tried->request->served = (void *)(uintptr_t)tag;
}

static void
sink_reply(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    struct rpc_answer answer = {.status = STATUS_OK, .pieces = pieces, .piece_count = piece_count};
    CHECK(submitting == NULL); /* nobody gathers within a submission */
    notify_in_order(call, &answer);
}

static enum status
sink_piece(void *call, const struct rpc_piece *pieces, size_t piece_count, uint64_t unread_max)
{
    const struct native_try *tried = call;
    return mesh_pieces_put(tried->pieces, pieces, piece_count, unread_max);
}

static void
sink_fail(void *call, enum status status, const char *text)
{
    struct native_try *tried = call;
    if (status == STATUS_RESOURCE_EXHAUSTED && mesh_pieces_is_full(tried->pieces))
        text = MESH_PIECES_CROWDED;
    if (submitting == NULL) {
        notify_failure(tried, status, text);
    } else if (submitting->tried == tried) {
        submitting->ended = true;
    } else {
        notify_failure_later(tried, status, text);
    }
}

static const struct request_sink native_sink = {
    .tagged = sink_tagged, .reply = sink_reply, .fail = sink_fail, .of_mesh = true};

/* A pipeline's own method ends without a message; of ModelInfer the owner knows the end by one
 * without outputs. */
static void
sink_finish(void *call, const struct rpc_piece *pieces, size_t piece_count)
{
    const struct native_try *tried = call;
    struct rpc_answer answer = {.status = STATUS_OK};
    CHECK(submitting == NULL);
    if (strcmp(tried->request->method, INBOUND_INFER) == 0)
        sink_reply(call, pieces, piece_count);
    else
        notify_in_order(call, &answer);
}

/* The sink of a call whose owner takes pieces. */
static const struct request_sink pieces_sink = {.tagged = sink_tagged,
                                                .reply = sink_reply,
                                                .piece = sink_piece,
                                                .finish = sink_finish,
                                                .fail = sink_fail,
                                                .of_mesh = true};

static const struct request_sink *
sink_of(const struct native_try *tried)
{
    return tried->pieces != NULL ? &pieces_sink : &native_sink;
}

/* ---- as a call that came in: its request has what the first node has passed on ---- */

static bool
inbound_entry(const void *call, const char *key, size_t *position, struct wire_span *value)
{
    const struct native_try *tried = call;
    const struct peer_request *request = tried->request;
    size_t bytes = strlen(key);
    while (*position < request->metadata_count) {
        const struct rpc_metadata *entry = &request->metadata[(*position)++];
        *value = entry->value;
        if (entry->key.bytes == bytes && memcmp(entry->key.data, key, bytes) == 0)
            return true;
    }
    return false;
}

static const struct inbound_type inbound_type = {.metadata = inbound_entry, .sink = &native_sink};

/* ---- into the pipeline ---- */

/* Returns whether the pipeline is called in the way in which the request came. */
static enum status
check_way(const struct pipeline *pipeline, const struct peer_request *request, const char *model,
          struct error *error)
{
    const char *path = pipeline_method(pipeline).path;
    if (strcmp(request->method, path != NULL ? path : INBOUND_INFER) == 0)
        return STATUS_OK;
    if (strcmp(request->method, INBOUND_INFER) != 0 && services_lack(request->method))
        return error_set(error, STATUS_UNIMPLEMENTED, "no such method: %.200s", request->method);
    return error_set(error, STATUS_INVALID_ARGUMENT, "model \"%.120s\" is called by %s, not by %s",
                     model, path != NULL ? path : INBOUND_INFER, request->method);
}

/* A submission that was refused: elsewhere it may be taken; or it would be refused there, too, and
 * the refusal is the answer. */
static enum runner_begun
judge(struct native_try *tried, const struct error *error, struct runner_end *end)
{
    bool elsewhere =
        error->status == STATUS_UNAVAILABLE || error->status == STATUS_RESOURCE_EXHAUSTED;
    if (!elsewhere) {
        notify_failure_later(tried, error->status, error->text);
        return RUNNER_UNDER_WAY;
    }
    *end = (struct runner_end){.end = error->status == STATUS_UNAVAILABLE ? MESH_END_UNREACHABLE
                                                                          : MESH_END_OVERLOADED};
    try_free(tried);
    return RUNNER_ENDED;
}

/* `tried` belongs to its end from here on, and so does `origin` once it is submitted: another
 * thread may have ended it all before the submission returns. */
static enum runner_begun
begin(struct native_try *tried, struct pipeline *pipeline, struct submission *submission,
      struct native_origin *origin, struct runner_end *end, struct native_refusal *refusal)
{
    struct submitting here = {.tried = tried, .outer = submitting};
    struct rpc_spans spans;
    spans_of_pieces(&spans, tried->request->pieces, tried->request->piece_count);
    struct inbound inbound = {.type = &inbound_type, .call = tried, .message = &spans.message};
    struct oip_head head = {.is_read = false};
    submission->message = &spans.message;
    submission->trace = origin->trace;
    origin->trace = NULL;
    if (submission->caller == 0)
        submission->caller = caller_of(&tried->native->options.callers, &inbound);
    submitting = &here;
    enum status status = inbound_submit(&inbound, &head, pipeline, submission, &refusal->error);
    submitting = here.outer;
    spans_fini(&spans);
    if (status == STATUS_OK && !here.ended)
        return RUNNER_UNDER_WAY;
    if (status == STATUS_OK) { /* its model has been left, its trace has ended */
        error_set(&refusal->error, STATUS_UNAVAILABLE, "pipeline \"%s\" is being rebuilt",
                  pipeline->name);
        if (mesh_pieces_has_begun(tried->pieces)) { /* it was slow to learn of the lane's end */
            notify_failure_later(tried, refusal->error.status, refusal->error.text);
            return RUNNER_UNDER_WAY;
        }
    } else {
        origin->trace = submission->trace;
        model_leave_loaded(submission->model);
    }
    refusal->retry_ms = submission->retry_ms;
    return judge(tried, &refusal->error, end);
}

/* ---- the small methods ---- */

/* Describes a model that is loaded here, under any name that the caller has for it. The answer is
 * there at once, but is reported later: we are under the lock. */
static enum runner_begun
notify_of(struct native_try *tried, enum oip_method method, const char *id)
{
    const struct native_options *options = &tried->native->options;
    const struct target_scope scope = {options->pipelines, options->pipeline_count,
                                       options->registry, true};
    const struct small_ask ask = {
        .scope = &scope, .id = id, .node_is_ready = true, .was_here = true};
    struct rpc_spans spans;
    struct error error;
    error_clear(&error);
    spans_of_pieces(&spans, tried->request->pieces, tried->request->piece_count);
    enum status status =
        small_answer(method, &ask, &spans.message, &tried->payload, &tried->payload_bytes, &error);
    spans_fini(&spans);
    if (status != STATUS_OK)
        notify_failure_later(tried, error.status, error.text);
    else
        loop_post(tried->native->options.loop, on_later, tried);
    return RUNNER_UNDER_WAY;
}

/* ---- a pipeline takes one message ---- */

#define ONE_MESSAGE "a pipeline takes one message for a call, and this call has more"
#define NO_MESSAGE                                                                                 \
    "a pipeline takes one message for a call, and this call has ended without any: send one"

static enum status
sink_send(void *context, const struct rpc_piece *pieces, size_t piece_count,
          enum peer_flow_next next, struct error *error)
{
    (void)context;
    (void)piece_count;
    (void)next;
    return pieces == NULL ? STATUS_OK : error_set(error, STATUS_INVALID_ARGUMENT, ONE_MESSAGE);
}

static const struct peer_flow_sink one_message = {sink_send, mesh_pieces_taken,
                                                  PEER_FLOW_WINDOW_BYTES};

/* Call before the flow is attached. */
static void
take_pieces(struct native_try *tried)
{
    tried->pieces =
        mesh_pieces_create(&(struct mesh_pieces_options){tried->request, on_end_of_pieces, tried});
}

/* A request with a flow: what waits behind its first message is too much, and so is what comes. */
static enum status
take_flow(struct native_try *tried, struct error *error)
{
    struct peer_request *request = tried->request;
    bool closed;
    if (request->is_empty)
        return error_set(error, STATUS_INVALID_ARGUMENT, NO_MESSAGE);
    if (request->flow == NULL)
        return STATUS_OK;
    take_pieces(tried);
    struct peer_flow_kept *kept =
        peer_flow_attach(request->flow, PEER_FLOW_CLOSED, &one_message, request, &closed);
    if (kept == NULL)
        return STATUS_OK;
    while (kept != NULL)
        kept = peer_flow_kept_free(kept);
    return error_set(error, STATUS_INVALID_ARGUMENT, ONE_MESSAGE);
}

/* ---- a call whose first message is still to come ---- */

static pthread_mutex_t await_lock = PTHREAD_MUTEX_INITIALIZER; /* of every request's `awaits` */

/* The thread that takes a try out of it is the only one to go on with it. */
static struct native_try *
await_exchange(struct peer_request *request, struct native_try *tried)
{
    pthread_mutex_lock(&await_lock);
    struct native_try *former = request->awaits;
    request->awaits = tried;
    pthread_mutex_unlock(&await_lock);
    return former;
}

/* Like native_serve(), of a try that has waited. It may be NOT_HERE by now; all else that would end
 * a try at once does so here as well, outside the runner's lock. */
static void
serve_late(struct native_try *tried)
{
    struct native *native = tried->native;
    struct peer_request *request = tried->request;
    struct pipeline *pipeline;
    struct runner_end end = {.end = MESH_END_NOT_HERE, .vanished = true};
    struct native_refusal refusal = {.error = ERROR_NONE};
    struct native_origin origin = {.caller = tried->caller};
    uint32_t number = tried->number;
    struct submission submission = {
        .deadline_ns = tried->deadline_ns,
        .sink = sink_of(tried),
        .call = tried,
        .builder = &native->late_builder,
        .caller = tried->caller,
        .model_held = true,
    };
    submission.model = registry_enter_loaded(native->options.registry, tried->model,
                                             strlen(tried->model), MODEL_UNCOUNTED, &pipeline);
    request->type->hold(request);
    enum runner_begun begun = RUNNER_ENDED;
    if (submission.model == NULL) {
        try_free(tried);
    } else {
        pthread_mutex_lock(&native->late_lock);
        begun = begin(tried, pipeline, &submission, &origin, &end, &refusal);
        pthread_mutex_unlock(&native->late_lock);
    }
    if (begun == RUNNER_ENDED && refusal.error.status != STATUS_OK) {
        end.said = refusal.error.text;
        end.said_status = refusal.error.status;
    }
    if (begun == RUNNER_ENDED)
        request->type->on_ended(request, number, &end, NULL);
    request->type->release(request);
}

/* The first message, or the end without any; what comes behind is as of any call of a pipeline. */
static enum status
awaited_send(void *context, const struct rpc_piece *pieces, size_t piece_count,
             enum peer_flow_next next, struct error *error)
{
    struct peer_request *request = context;
    /* await_message may hand out the first message while later ones come here. */
    bool is_first = pieces != NULL ? !request->flow->is_committed : request->is_empty;
    struct native_try *tried = is_first ? await_exchange(request, NULL) : NULL;
    if (tried == NULL)
        return sink_send(NULL, pieces, piece_count, next, error);
    if (pieces == NULL)
        notify_failure_later(tried, STATUS_INVALID_ARGUMENT, NO_MESSAGE);
    else
        serve_late(tried);
    return STATUS_OK;
}

/* It came while the try began, under the runner's lock. */
static void
on_message_there(void *context)
{
    serve_late(context);
}

static const struct peer_flow_sink awaited_message = {awaited_send, mesh_pieces_taken,
                                                      PEER_FLOW_WINDOW_BYTES};

/* The core counts the try, so the model stays; the pipeline gets the call when it has a message. */
static enum runner_begun
await_message(struct native_try *tried, const struct runner_attempt *attempt, uint64_t caller)
{
    struct peer_request *request = tried->request;
    bool closed;
    tried->model = strdup(attempt->model);
    CHECK(tried->model != NULL);
    tried->deadline_ns = attempt->deadline_ns;
    tried->caller = caller;
    take_pieces(tried);
    (void)await_exchange(request, tried);
    struct peer_flow_kept *kept =
        peer_flow_attach(request->flow, PEER_FLOW_AWAITED, &awaited_message, request, &closed);
    if ((kept == NULL && !closed) || await_exchange(request, NULL) == NULL)
        goto out; /* it waits, or was reported already */
    if (kept == NULL)
        notify_failure_later(tried, STATUS_INVALID_ARGUMENT, NO_MESSAGE);
    else if (kept->next != NULL)
        notify_failure_later(tried, STATUS_INVALID_ARGUMENT, ONE_MESSAGE);
    else
        loop_post(tried->native->options.loop, on_message_there, tried);
out:
    while (kept != NULL)
        kept = peer_flow_kept_free(kept);
    return RUNNER_UNDER_WAY;
}

/* ---- serving ---- */

enum runner_begun
native_serve(struct native *native, struct peer_request *request,
             const struct runner_attempt *attempt, struct native_origin *origin,
             struct runner_end *end, struct native_refusal *refusal)
{
    struct pipeline *pipeline;
    error_clear(&refusal->error);
    refusal->retry_ms = 0;
    struct model *model = registry_enter_loaded(native->options.registry, attempt->model,
                                                strlen(attempt->model), MODEL_UNCOUNTED, &pipeline);
    if (model == NULL) {
        *end = (struct runner_end){.end = MESH_END_NOT_HERE, .vanished = true};
        return RUNNER_ENDED;
    }
    struct native_try *tried = try_create(native, request, attempt);
    enum oip_method small;
    if (small_is_of_model(request->method, &small)) {
        model_leave_loaded(model);
        return notify_of(tried, small, attempt->model);
    }
    bool is_ours = check_way(pipeline, request, attempt->model, &refusal->error) == STATUS_OK;
    if (is_ours && peer_flow_shape(request->flow) == PEER_FLOW_AWAITED) {
        model_leave_loaded(model);
        return await_message(tried, attempt, origin->caller);
    }
    if (!is_ours || take_flow(tried, &refusal->error) != STATUS_OK) {
        model_leave_loaded(model);
        return judge(tried, &refusal->error, end);
    }
    struct submission submission = {
        .deadline_ns = attempt->deadline_ns,
        .sink = sink_of(tried),
        .call = tried,
        .builder = &native->builder,
        .caller = origin->caller,
        .model = model,
        .model_held = true,
    };
    enum runner_begun begun = begin(tried, pipeline, &submission, origin, end, refusal);
    if (begun == RUNNER_ENDED) /* another try may take more */
        peer_flow_detach(request->flow, end, NULL, &(struct peer_flow_end){.answer = NULL});
    return begun;
}

void
native_cancel(struct native *native, struct peer_request *request)
{
    struct native_try *waiting = await_exchange(request, NULL);
    if (waiting != NULL) {
        notify_failure_later(waiting, STATUS_CANCELLED, "");
        return;
    }
    mesh_pieces_cancel(request);
    uint64_t tag = (uint64_t)(uintptr_t)request->served;
    uint32_t number = tag_pipeline(tag);
    if (tag != 0 && number < native->options.pipeline_count)
        pipeline_cancel(native->options.pipelines[number], tag);
}

/* ---- life ---- */

void
native_update(struct native *native)
{
    const struct native_options *options = &native->options;
    if (native->ready || !runtime_figures(options->pipelines, options->pipeline_count).are_serving)
        return;
    native->ready = true;
    mesh_loads_announce(&native->loads);
}

struct native *
native_create(const struct native_options *options)
{
    struct native *native = calloc(1, sizeof(*native));
    CHECK(native != NULL);
    native->options = *options;
    CHECK(pthread_mutex_init(&native->late_lock, NULL) == 0);
    native->loads = (struct mesh_loads){options->pipelines, options->pipeline_count,
                                        options->registry, options->shared, NULL};
    return native;
}

void
native_destroy(struct native *native)
{
    if (native == NULL)
        return;
    pthread_mutex_destroy(&native->late_lock);
    free(native);
}

void
native_bind(struct native *native, struct mesh_runner *runner)
{
    native->loads.runner = runner;
}

struct runner_runtime
native_for_runner(struct native *native)
{
    return mesh_loads_for_runner(&native->loads);
}
