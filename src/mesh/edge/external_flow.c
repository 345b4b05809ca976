/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of models with a flow, as streams. The first response message is held until the end of the
 * step: a unary answer has ended by then and goes out as one, like that of a method known to be
 * unary. Otherwise messages are passed on one by one; the next is requested while there is room.
 *
 * A ModelInfer whose caller takes pieces UNWRAPS what ModelStreamInfer brings: each response but a
 * final one is passed on at once. If no final one comes, the end is an empty message.
 *
 * Threads. `costs` is also written when the try begins, and adapters consume pieces on any thread:
 * `costs`, `out` and `waits_for_room` need the external's lock. Everything else belongs to the
 * queue's thread.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "mesh/edge/external_state.h"

/* The first message, and as many as may be in transit. */
enum { COSTS_MAX = PEER_FLOW_TAKEN_BYTES / PEER_FLOW_MESSAGE_BYTES + 2 };

struct served_flow {
    struct served *served;
    struct rpc_later later;
    struct rpc_kept *held;        /* of the answer; NULL: none */
    struct rpc_piece held_piece;  /* all of it */
    struct rpc_metadata *initial; /* not passed on yet; NULL: none */
    size_t initial_count;
    bool is_awaited;   /* the first message of the request; the external's lock */
    bool is_streaming; /* a message was passed on */
    bool unwraps;
    bool waits_for_room;       /* the next one has not been requested */
    uint64_t out;              /* passed on, not consumed */
    uint64_t costs[COSTS_MAX]; /* of messages that the transport has not taken, in order */
    uint32_t cost_first;
    uint32_t cost_count;
    char model[];
};

static struct served_flow *
flow_create(struct served *served, enum peer_flow_shape shape, const char *model)
{
    size_t bytes = strlen(model) + 1;
    struct served_flow *flow = calloc(1, sizeof(*flow) + bytes);
    CHECK(flow != NULL);
    flow->served = served;
    memcpy(flow->model, model, bytes);
    flow->cost_count = peer_flow_has_message(shape); /* the first message costs nothing */
    flow->is_awaited = shape == PEER_FLOW_AWAITED;
    flow->unwraps = served->infer_id != NULL;
    return flow;
}

void
external_flow_free(struct served_flow *flow)
{
    if (flow == NULL)
        return;
    rpc_later_drop(&flow->later);
    rpc_kept_release(flow->held);
    free(flow->initial);
    free(flow);
}

/* ---- towards the runtime ---- */

/* Locked. */
static void
cost_push(struct served_flow *flow, uint64_t cost)
{
    CHECK(flow->cost_count < COSTS_MAX);
    flow->costs[(flow->cost_first + flow->cost_count++) % COSTS_MAX] = cost;
}

/* Locked. */
static uint64_t
cost_pop(struct served_flow *flow)
{
    CHECK(flow->cost_count > 0);
    uint64_t cost = flow->costs[flow->cost_first];
    flow->cost_first = (flow->cost_first + 1) % COSTS_MAX;
    flow->cost_count--;
    return cost;
}

/* Locked. Refused messages belong to a call that is over, whose end is reported. */
static enum status
send(struct served *served, const struct external_pieces *pieces, enum peer_flow_next next,
     struct error *error)
{
    struct served_flow *flow = served->flow;
    const struct external_method *method;
    struct id_inject plan;
    struct external_list list;
    if (pieces->at != NULL) {
        (void)external_status_permits(&served->external->status, served->request->method, &method);
        enum status status = external_list_make(&list, method, pieces, flow->model, &plan, error);
        if (status == STATUS_OK && rpc_client_send(served->call, list.at, list.count) == STATUS_OK)
            cost_push(flow, flow->is_awaited
                                ? 0
                                : peer_flow_cost(peer_pieces_bytes(pieces->at, pieces->count)));
        flow->is_awaited = false;
        external_list_fini(&list);
        if (status != STATUS_OK)
            return status;
    }
    if (next == PEER_FLOW_LAST)
        rpc_client_half_close(served->call);
    return STATUS_OK;
}

static enum status
sink_send(void *context, const struct rpc_piece *pieces, size_t piece_count,
          enum peer_flow_next next, struct error *error)
{
    const struct external_pieces message = {pieces, piece_count};
    struct served *served = context;
    pthread_mutex_lock(&served->external->lock);
    enum status status = send(served, &message, next, error);
    pthread_mutex_unlock(&served->external->lock);
    return status;
}

/* Locked. */
static void
read_if_room(struct served_flow *flow)
{
    flow->waits_for_room = flow->out >= flow->served->request->flow->window_bytes;
    if (!flow->waits_for_room)
        rpc_client_read(flow->served->call);
}

/* Locked. */
static void
take_back(struct served_flow *flow, uint64_t cost)
{
    CHECK(cost <= flow->out);
    flow->out -= cost;
    if (flow->waits_for_room)
        read_if_room(flow);
}

static void
sink_taken(void *context, uint64_t cost)
{
    struct served *served = context;
    pthread_mutex_lock(&served->external->lock);
    take_back(served->flow, cost);
    pthread_mutex_unlock(&served->external->lock);
}

/* The try may end on its thread while a piece is consumed on another. */
static void
unwrapping_taken(void *context, uint64_t cost)
{
    struct peer_request *request = context;
    struct external *external = request->runtime;
    pthread_mutex_lock(&external->lock);
    struct served *served = request->external;
    if (served != NULL && served->flow != NULL)
        take_back(served->flow, cost);
    pthread_mutex_unlock(&external->lock);
}

static const struct peer_flow_sink sink = {sink_send, sink_taken, PEER_FLOW_WINDOW_BYTES};
/* Its request is complete. */
static const struct peer_flow_sink unwrapping_sink = {NULL, unwrapping_taken,
                                                      PEER_FLOW_WINDOW_BYTES};

static void
on_sent(void *context, size_t waiting)
{
    struct served *served = context;
    struct peer_request *request = served->request;
    (void)waiting;
    pthread_mutex_lock(&served->external->lock);
    uint64_t cost = cost_pop(served->flow);
    pthread_mutex_unlock(&served->external->lock);
    if (cost > 0)
        request->type->on_room(request, cost);
}

/* ---- from the runtime ---- */

/* Passes the held message on as a part. */
static void
pass_on(struct rpc_later *later)
{
    struct served_flow *flow =
        (struct served_flow *)(void *)((char *)later - offsetof(struct served_flow, later));
    struct rpc_metadata *initial = flow->initial;
    struct rpc_kept *held = flow->held;
    const struct rpc_answer part = {
        .pieces = held == NULL ? NULL : &flow->held_piece,
        .piece_count = held != NULL,
        .initial = initial,
        .initial_count = flow->initial_count,
    };
    flow->initial = NULL;
    flow->initial_count = 0;
    flow->held = NULL;
    pthread_mutex_t *lock = &flow->served->external->lock;
    if (held != NULL) {
        flow->is_streaming = true;
        pthread_mutex_lock(lock);
        flow->out += peer_flow_cost(flow->held_piece.bytes);
        pthread_mutex_unlock(lock);
    }
    peer_flow_part(flow->served->request->flow, &part);
    if (held != NULL) {
        pthread_mutex_lock(lock);
        read_if_room(flow);
        pthread_mutex_unlock(lock);
    }
    rpc_kept_release(held);
    free(initial);
}

static void
at_end_of_step(struct served_flow *flow)
{
    const struct served *served = flow->served;
    if (flow->later.link == NULL) {
        flow->later.run = pass_on;
        rpc_queue_later(served->external->options.queues[served->request->queue], &flow->later);
    }
}

static void
on_initial(void *context, const struct rpc_metadata *initial, size_t initial_count)
{
    struct served_flow *flow = ((struct served *)context)->flow;
    if (initial_count == 0)
        return;
    flow->initial = rpc_metadata_copy(initial, initial_count);
    flow->initial_count = initial_count;
    if (!flow->unwraps) /* those of a ModelInfer go with its first message or its end */
        at_end_of_step(flow);
}

/* ---- a message in another ---- */

static void
give_up(struct served_flow *flow, enum status status, const char *text)
{
    struct served *served = flow->served;
    (void)error_set(&served->refusal, status, "%s: %s", &PEER_FLOW_STREAM_INFER[1], text);
    pthread_mutex_lock(&served->external->lock);
    rpc_client_cancel(served->call);
    pthread_mutex_unlock(&served->external->lock);
}

/* The runtime gives no code. */
static void
give_up_as_reported(struct served_flow *flow, struct wire_cursor received)
{
    char text[ERROR_TEXT_MAX / 2];
    size_t bytes = received.left < sizeof(text) - 1 ? (size_t)received.left : sizeof(text) - 1;
    size_t least = bytes < received.left ? bytes - 3 : bytes; /* it may end within a character */
    wire_read(&received, text, bytes);
    while (bytes > least && !utf8_is_text(text, bytes))
        bytes--;
    text[bytes] = '\0';
    give_up(flow, STATUS_UNKNOWN,
            utf8_is_text(text, bytes) ? text : "its error message is not UTF-8");
}

static void
read_next(struct served_flow *flow)
{
    pthread_mutex_lock(&flow->served->external->lock);
    rpc_client_read(flow->served->call);
    pthread_mutex_unlock(&flow->served->external->lock);
}

static void
unwrap(struct served_flow *flow, const struct wire_message *message)
{
    struct external_piece piece;
    if (flow->served->refusal.status != STATUS_OK)
        return; /* it is being cancelled */
    if (!external_read_piece(message, &piece) || (piece.has_response && flow->held != NULL)) {
        give_up(flow, STATUS_INTERNAL,
                flow->held != NULL ? "the runtime sent more after its final response"
                                   : "the runtime sent no valid ModelStreamInferResponse");
        return;
    }
    if (piece.error.left > 0) {
        give_up_as_reported(flow, piece.error);
        return;
    }
    if (piece.has_response) {
        flow->held = rpc_message_keep(message);
        flow->held_piece = rpc_kept_piece(flow->held);
        flow->held_piece.offset += (size_t)piece.offset;
        flow->held_piece.bytes = (size_t)piece.bytes;
    }
    if (piece.has_response && !piece.is_final)
        pass_on(&flow->later);
    else
        read_next(flow);
}

static void
on_message(void *context, const struct wire_message *message)
{
    struct served_flow *flow = ((struct served *)context)->flow;
    if (flow->unwraps) {
        unwrap(flow, message);
        return;
    }
    flow->held = rpc_message_keep(message);
    flow->held_piece = rpc_kept_piece(flow->held);
    if (flow->is_streaming)
        pass_on(&flow->later);
    else
        at_end_of_step(flow);
}

bool
external_flow_end(struct served_flow *flow, struct rpc_answer *answer)
{
    static const struct rpc_piece nothing[1];
    rpc_later_drop(&flow->later);
    answer->initial = flow->initial;
    answer->initial_count = flow->initial_count;
    if (flow->held != NULL) {
        answer->pieces = &flow->held_piece;
        answer->piece_count = 1;
    } else if (flow->unwraps && answer->status == STATUS_OK) {
        answer->pieces = nothing;
        answer->piece_count = 1;
    }
    return flow->is_streaming;
}

static const struct rpc_client_events events = {
    .on_initial = on_initial,
    .on_message = on_message,
    .on_sent = on_sent,
    .on_end = external_on_end,
};

/* ---- the beginning ---- */

/* The runner's lock is held, so nothing can be refused here: it becomes the end of the call. */
static void
send_kept(struct served *served, struct peer_flow_kept *kept, bool closed)
{
    while (kept != NULL) {
        const struct external_pieces message = {kept->pieces, kept->piece_count};
        bool last = closed && kept->next == NULL;
        if (served->refusal.status == STATUS_OK &&
            send(served, &message, last ? PEER_FLOW_LAST : PEER_FLOW_MORE, &served->refusal) !=
                STATUS_OK)
            rpc_client_cancel(served->call);
        kept = peer_flow_kept_free(kept);
    }
}

/* Attaches first: an immediate answer finds the sink, and later messages wait for the lock. */
void
external_flow_start(struct served *served, struct rpc_client *client,
                    struct rpc_client_request *request, enum peer_flow_shape shape,
                    const char *model)
{
    bool closed;
    served->flow = flow_create(served, shape, model);
    bool unwraps = served->flow->unwraps;
    struct peer_flow_kept *kept =
        peer_flow_attach(served->request->flow, shape, unwraps ? &unwrapping_sink : &sink,
                         unwraps ? (void *)served->request : served, &closed);
    CHECK(!unwraps || (closed && kept == NULL));
    request->kind = RPC_BIDI_STREAM;
    request->events = &events;
    request->last = request->initial_late = closed && kept == NULL;
    rpc_client_start(client, request, &served->call);
    send_kept(served, kept, closed);
    peer_flow_begun(served->request->flow);
}
