/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The owners of a call. The runner owns it from runner_call until it is over, which the runner says
 * in one of three ways (runner.h); call_over notes it once, on any thread. A try holds it until its
 * end is reported (request_type), and a thread that looks it up by its tag holds it meanwhile. The
 * caller is answered once, by the thread that sets `answered`.
 *
 * A caller that goes: `gone` is set before the runner is notified. If the call is being served
 * then, it is over when its try ends; that end sees `gone`, because both take the runner's lock.
 */
#include "coordinator/mesh/mesh_call.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/mesh/mesh_answer.h"
#include "coordinator/mesh/mesh_flow.h"
#include "coordinator/mesh/mesh_many.h"
#include "coordinator/telemetry/meters.h"
#include "coordinator/telemetry/tracer.h"
#include "ipc/counters.h"

struct mesh_calls {
    struct mesh_calls_options options;
    struct mesh_runner *runner;
    struct external *external; /* NULL: only pipelines load models here */
};

struct mesh_call {
    struct pending_item item; /* first */
    struct runner_call runner;
    struct peer_request request;
    struct mesh_calls *calls;
    const struct inbound_type *type; /* by which `call`, the caller's, is answered */
    void *call;
    int64_t begun_ns;
    struct mesh_many *many; /* if it is a part of several: gets the end instead of the caller, and
                               `call` is not touched */
    uint32_t part;
    struct native_origin origin; /* its trace, until it is served; guarded by the runner's lock */
    struct rpc_kept *kept;
    struct rpc_piece piece; /* the whole message */
    struct rpc_metadata *metadata;
    struct mesh_flow *flow;        /* NULL: one message each way */
    struct native_refusal refusal; /* this node's last refusal; guarded by the runner's lock */
    bool was_refused;
    _Atomic bool gone;
    _Atomic bool answered;
    _Atomic bool over;
    char texts[]; /* the requested id, and the method */
};

static struct mesh_call *
call_of_item(struct pending_item *item)
{
    return (struct mesh_call *)(void *)item;
}

static struct mesh_call *
call_of_runner(struct runner_call *runner)
{
    return (struct mesh_call *)(void *)((char *)runner - offsetof(struct mesh_call, runner));
}

static struct mesh_call *
call_of_request(struct peer_request *request)
{
    return (struct mesh_call *)(void *)((char *)request - offsetof(struct mesh_call, request));
}

/* ---- the end ---- */

static void
call_destroy(struct pending_item *item)
{
    struct mesh_call *call = call_of_item(item);
    CHECK(atomic_load(&call->answered) || call->many != NULL); /* a part may be discarded */
    mesh_flow_destroy(call->flow);
    rpc_kept_release(call->kept);
    free(call->metadata);
    free(call);
}

/* The runner does not touch it any more. */
static void
call_over(struct mesh_call *call)
{
    if (atomic_exchange(&call->over, true))
        return;
    pending_remove(&call->item);
    pending_unref(&call->item);
}

/* Returns true for the one thread that answers. */
static bool
claim(struct mesh_call *call)
{
    bool is_first = !atomic_exchange(&call->answered, true);
    if (call->flow != NULL)
        (void)mesh_flow_claim(call->flow);
    return is_first;
}

static void
end_trace(struct mesh_call *call, enum status status, const char *text)
{
    if (call->origin.trace != NULL)
        tracer_end(call->origin.trace, status, text);
    call->origin.trace = NULL;
}

/* Ends a call that was claimed. */
static void
meter(const struct mesh_call *call, enum status status, const struct rpc_answer *answer)
{
    struct meters *meters = call->calls->options.meters;
    struct meters_call reported = {.method = meters_method(meters, call->request.method),
                                   .status = status,
                                   .took_ns = clock_now_ns() - call->begun_ns,
                                   .request_bytes = call->piece.bytes};
    for (size_t i = 0; answer != NULL && i < answer->piece_count; i++)
        reported.response_bytes += answer->pieces[i].bytes;
    if (call->flow != NULL) { /* also a unary call of a method that is not known to be unary */
        struct mesh_flow_bytes bytes = mesh_flow_bytes(call->flow);
        reported.request_bytes += bytes.there;
        reported.response_bytes += bytes.back;
    }
    meters_record(meters, METER_REQUEST, &reported);
}

static const struct error caller_gone = {.status = STATUS_CANCELLED};

static void
refuse(struct mesh_call *call, const struct error *error, uint32_t retry_ms)
{
    if (!claim(call))
        return;
    end_trace(call, error->status, error->text);
    if (call->many != NULL) {
        const struct rpc_answer answer = {.status = error->status,
                                          .text = {error->text, strlen(error->text)}};
        mesh_many_ended(call->many, call->part, &answer, retry_ms);
        return;
    }
    counter_add_shared(call->calls->options.counters, NODE_CALLS_REFUSED, 1);
    meter(call, error->status, NULL);
    const char *text = error->text[0] != '\0' ? error->text : NULL;
    call->type->refuse(call->call, error->status, text, retry_ms);
}

/* ---- as the runner's call ---- */

static bool
is_external(const struct mesh_calls *calls, uint32_t pool)
{
    return calls->external != NULL && pool == external_pool(calls->external);
}

/* The end of a call that no other node could serve while this node's runtime is away: it may be
 * tried again. */
static bool
runtime_is_away(const struct mesh_call *call, const struct runner_answer *answer,
                struct error *error)
{
    struct external_view view;
    if (!is_external(call->calls, answer->pool) || answer->end != MESH_END_FAILED)
        return false;
    external_look(call->calls->external, &view);
    if (view.is_ready)
        return false;
    (void)error_set(error, STATUS_UNAVAILABLE,
                    "the runtime of this node is not ready%s%s%s, and no other node can serve the "
                    "model: try again",
                    view.said[0] == '\0' ? "" : " (", view.said, view.said[0] == '\0' ? "" : ")");
    return true;
}

static enum runner_begun
on_serve(struct runner_call *runner, const struct runner_attempt *attempt, struct runner_end *end)
{
    struct mesh_call *call = call_of_runner(runner);
    if (is_external(call->calls, attempt->pool))
        return external_serve(call->calls->external, runner, attempt, end);
    enum runner_begun begun = native_serve(call->calls->options.native, &call->request, attempt,
                                           &call->origin, end, &call->refusal);
    call->was_refused = begun == RUNNER_ENDED && call->refusal.error.status != STATUS_OK;
    return begun;
}

/* A pipeline's or runtime's refusal, from here or from another node, comes before the text that
 * nobody could serve the call. */
static void
on_answer(struct runner_call *runner, const struct runner_answer *answer)
{
    struct mesh_call *call = call_of_runner(runner);
    struct error error = ERROR_NONE;
    if (runtime_is_away(call, answer, &error)) {
        refuse(call, &error, 0);
    } else if (call->was_refused &&
               (answer->end == MESH_END_FAILED || answer->end == MESH_END_OVERLOADED)) {
        refuse(call, &call->refusal.error, call->refusal.retry_ms);
    } else {
        (void)mesh_answer_call(runner->name, answer, &error);
        refuse(call, &error, 0);
    }
    call_over(call);
}

static const struct runner_call_type call_type = {on_serve, on_answer};

/* ---- as a request that is passed on ---- */

/* The owner of the try may write the refusal: its end has not been reported to the runner yet. */
static void
keep_refusal(struct mesh_call *call, const struct runner_end *end)
{
    if (end->said == NULL)
        return;
    (void)error_set(&call->refusal.error, end->said_status, "%s", end->said);
    call->refusal.retry_ms = 0;
    call->was_refused = true;
}

static void
on_ended(struct peer_request *request, uint32_t number, const struct runner_end *ended,
         const struct rpc_answer *given)
{
    struct mesh_call *call = call_of_request(request);
    struct peer_flow_end as_reported;
    peer_flow_detach(request->flow, ended, given, &as_reported);
    const struct runner_end *end = &as_reported.end;
    const struct rpc_answer *answer = as_reported.answer;
    struct mesh_runner *runner = call->calls->runner;
    if (answer != NULL && claim(call)) {
        end_trace(call, answer->status, ""); /* the part that a pipeline took has ended */
        if (call->many != NULL) {
            mesh_many_ended(call->many, call->part, answer, 0);
        } else {
            meter(call, answer->status, answer);
            call->type->answer(call->call, answer);
        }
    } else if (answer != NULL) { /* the caller left while it was being abandoned */
        rpc_pieces_release(answer->pieces, answer->piece_count);
    }
    pending_ref(&call->item);
    keep_refusal(call, end);
    runner_try_ended(runner, &call->runner, number, end);
    bool over = runner_end_is_last(end);
    if (!over && atomic_load(&call->gone))
        over = runner_call_cancelled(runner, &call->runner);
    if (over) {
        refuse(call, &caller_gone, 0); /* unless it was answered */
        call_over(call);
    }
    pending_unref(&call->item);
}

static void
request_hold(struct peer_request *request)
{
    pending_ref(&call_of_request(request)->item);
}

static void
request_release(struct peer_request *request)
{
    pending_unref(&call_of_request(request)->item);
}

static void
on_part(struct peer_request *request, const struct rpc_answer *part)
{
    mesh_flow_part(call_of_request(request)->flow, part);
}

static void
on_room(struct peer_request *request, uint64_t cost)
{
    mesh_flow_room(call_of_request(request)->flow, cost);
}

static void
on_first_released(struct peer_request *request)
{
    struct mesh_call *call = call_of_request(request);
    rpc_kept_release(call->kept);
    call->kept = NULL;
}

static const struct peer_request_type request_type = {on_ended, request_hold, request_release,
                                                      on_part,  on_room,      on_first_released};

/* ---- the caller goes ---- */

static void
on_cancel(struct pending_item *item)
{
    struct mesh_call *call = call_of_item(item);
    atomic_store(&call->gone, true);
    bool has_begun = call->flow == NULL || !mesh_flow_stop(call->flow);
    if (has_begun && !runner_call_cancelled(call->calls->runner, &call->runner)) {
        if (call->calls->external !=
            NULL) /* its server, if there is one, may change at this moment */
            external_cancel(call->calls->external, &call->request);
        native_cancel(call->calls->options.native, &call->request);
        return;
    }
    refuse(call, &caller_gone, 0);
    call_over(call);
}

/* ---- the beginning ---- */

static struct wire_span
copy_span(const struct wire_span *span, char **room)
{
    struct wire_span copy = {*room, span->bytes};
    memcpy(*room, span->data, span->bytes);
    *room += span->bytes;
    return copy;
}

/* Copies the metadata into one block, as a try may look at them after the caller's call has ended.
 * False: there are more than are passed on. */
static bool
copy_metadata(struct mesh_call *call)
{
    const struct inbound_type *type = call->type;
    struct rpc_metadata entry;
    size_t position = 0;
    size_t count = 0;
    size_t bytes = 0;
    while (type->walk(call->call, &position, &entry))
        if (peers_pass_on(&entry)) {
            count++;
            bytes += entry.key.bytes + entry.value.bytes;
        }
    if (count > PEERS_METADATA_MAX)
        return false;
    call->metadata = calloc(1, count * sizeof(*call->metadata) + bytes + 1);
    CHECK(call->metadata != NULL);
    char *room = (char *)(call->metadata + count);
    position = 0;
    while (type->walk(call->call, &position, &entry))
        if (peers_pass_on(&entry))
            call->metadata[call->request.metadata_count++] =
                (struct rpc_metadata){copy_span(&entry.key, &room), copy_span(&entry.value, &room)};
    call->request.metadata = call->metadata;
    return true;
}

/* "mm-balanced", for a caller that balances its calls over all nodes itself. */
static enum mesh_balance
balance_of(const struct inbound *inbound)
{
    struct wire_span value;
    bool balanced = inbound_metadata(inbound, "mm-balanced", &value) && value.bytes == 4 &&
                    memcmp(value.data, "true", 4) == 0;
    return balanced ? MESH_BALANCE_CALLER : MESH_BALANCE_NONE;
}

static struct rpc_kept *
keep_message(const struct mesh_call_start *start)
{
    if (start->kept == NULL)
        return rpc_message_keep(inbound_message(start->inbound));
    rpc_kept_acquire(start->kept);
    return start->kept;
}

static struct mesh_call *
call_create(struct mesh_calls *calls, const struct mesh_call_start *start)
{
    const struct inbound *inbound = start->inbound;
    size_t bytes = strlen(start->id) + 1;
    size_t method_bytes = strlen(inbound->method) + 1;
    struct mesh_call *call = calloc(1, sizeof(*call) + bytes + method_bytes);
    CHECK(call != NULL);
    memcpy(call->texts, start->id, bytes);
    memcpy(call->texts + bytes, inbound->method, method_bytes);
    call->item.on_cancel = on_cancel;
    call->item.destroy = call_destroy;
    call->calls = calls;
    call->type = inbound->type;
    call->call = inbound->call;
    call->begun_ns = clock_now_ns();
    call->many = start->many;
    call->part = start->part;
    call->origin = start->origin;
    call->kept = keep_message(start);
    call->piece = rpc_kept_piece(call->kept);
    call->request = (struct peer_request){.type = &request_type,
                                          .method = call->texts + bytes,
                                          .pieces = &call->piece,
                                          .piece_count = 1,
                                          .is_empty = start->is_empty,
                                          .queue = inbound->queue};
    call->runner = (struct runner_call){.type = &call_type,
                                        .request = &call->request,
                                        .model = call->texts,
                                        .name = start->name,
                                        .hop = MESH_HOP_ENTRY,
                                        .balance = balance_of(inbound),
                                        .deadline_ns = inbound->deadline_ns};
    return call;
}

/* Lists the call, with the owner's reference. After a failure, call_destroy frees it. */
static uint64_t
call_list(struct mesh_call *call, struct error *error)
{
    uint64_t tag = 0;
    if (!copy_metadata(call))
        (void)error_set(error, STATUS_INVALID_ARGUMENT,
                        "more than %d entries of metadata: a mesh passes on no more",
                        PEERS_METADATA_MAX);
    else if ((tag = pending_add(call->calls->options.pending, &call->item)) == 0)
        (void)error_set(error, STATUS_RESOURCE_EXHAUSTED,
                        "too many calls of this node wait for models");
    return tag;
}

/* ModelInfer is unary for callers that take no pieces. */
static bool
takes_pieces(const struct mesh_call_start *start)
{
    return start->inbound->type->piece != NULL &&
           strcmp(start->inbound->method, PEER_FLOW_INFER) == 0;
}

static void
on_flow_begin(void *context)
{
    struct mesh_call *call = context;
    enum peer_flow_shape shape = peer_flow_shape(call->request.flow);
    call->runner.is_non_retryable = shape == PEER_FLOW_OPEN || shape == PEER_FLOW_AWAITED;
    runner_call(call->calls->runner, &call->runner);
}

void
mesh_call_begin(struct mesh_calls *calls, const struct mesh_call_start *start)
{
    struct mesh_call *call = call_create(calls, start);
    struct error error = ERROR_NONE;
    uint64_t tag = call_list(call, &error);
    if (tag == 0) {
        refuse(call, &error, 0);
        call_destroy(&call->item);
        return;
    }
    const struct inbound *inbound = start->inbound;
    if (takes_pieces(start))
        call->flow = mesh_flow_create(&(struct mesh_flow_options){
            .request = &call->request, .type = inbound->type, .inbound = inbound->call});
    else if (inbound->type->is_server_stream)
        call->flow = mesh_flow_create(
            &(struct mesh_flow_options){.request = &call->request,
                                        .call = inbound->call,
                                        .is_complete = true,
                                        .counts_late = inbound->type->sink->piece == NULL});
    inbound->type->sink->tagged(inbound->call, tag);
    if (start->flow_queue == NULL) {
        runner_call(calls->runner, &call->runner);
        return;
    }
    /* not the call: it may end meanwhile */
    rpc_call_set_user(inbound->call, (void *)(uintptr_t)tag);
    call->flow = mesh_flow_create(&(struct mesh_flow_options){.request = &call->request,
                                                              .is_awaited = start->is_awaited,
                                                              .call = inbound->call,
                                                              .queue = start->flow_queue,
                                                              .begin = on_flow_begin,
                                                              .context = call});
    if (start->is_awaited)
        mesh_flow_begin(call->flow);
}

void
mesh_call_more(struct mesh_calls *calls, const struct rpc_call *rpc,
               const struct wire_message *message)
{
    uint64_t tag = (uint64_t)(uintptr_t)rpc_call_user(rpc);
    struct pending_item *item = pending_hold(calls->options.pending, tag);
    if (item == NULL)
        return;
    struct mesh_call *call = call_of_item(item);
    struct error error = ERROR_NONE;
    enum status status = message != NULL ? mesh_flow_message(call->flow, message, &error)
                                         : mesh_flow_half_close(call->flow, &error);
    if (status != STATUS_OK) {
        refuse(call, &error, 0);
        on_cancel(item); /* a load or registration that it began goes on */
    }
    pending_unref(item);
}

void
mesh_call_taken(struct mesh_calls *calls, uint64_t tag, uint64_t bytes)
{
    struct pending_item *item = pending_hold(calls->options.pending, tag);
    if (item == NULL)
        return;
    mesh_flow_taken(call_of_item(item)->flow, bytes);
    pending_unref(item);
}

void
mesh_call_sent(struct mesh_calls *calls, uint64_t tag)
{
    struct pending_item *item = pending_hold(calls->options.pending, tag);
    if (item == NULL)
        return;
    mesh_flow_sent(call_of_item(item)->flow);
    pending_unref(item);
}

/* ---- parts ---- */

struct mesh_call *
mesh_call_prepare(struct mesh_calls *calls, const struct mesh_call_start *start,
                  struct error *error)
{
    struct mesh_call *call = call_create(calls, start);
    if (call_list(call, error) == 0) {
        call_destroy(&call->item);
        return NULL;
    }
    pending_ref(&call->item);
    return call;
}

void
mesh_call_go(struct mesh_call *call)
{
    runner_call(call->calls->runner, &call->runner);
}

void
mesh_call_drop(struct mesh_call *call)
{
    refuse(call, &caller_gone, 0);
    call_over(call);
}

void
mesh_call_discard(struct mesh_call *call)
{
    call_over(call);
}

void
mesh_call_cancel(struct mesh_call *call)
{
    if (!atomic_load(&call->over))
        on_cancel(&call->item);
}

void
mesh_call_unref(struct mesh_call *call)
{
    pending_unref(&call->item);
}

/* ---- life ---- */

struct mesh_calls *
mesh_calls_create(const struct mesh_calls_options *options)
{
    struct mesh_calls *calls = calloc(1, sizeof(*calls));
    CHECK(calls != NULL);
    calls->options = *options;
    return calls;
}

void
mesh_calls_destroy(struct mesh_calls *calls)
{
    free(calls);
}

void
mesh_calls_bind(struct mesh_calls *calls, struct mesh_runner *runner, struct external *external)
{
    calls->runner = runner;
    calls->external = external;
}

const struct mesh_calls_options *
mesh_calls_options(const struct mesh_calls *calls)
{
    return &calls->options;
}
