/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_flow.h"

#include <stdlib.h>

#include "base/check.h"

enum { COSTS_MAX = PEER_FLOW_TAKEN_BYTES / PEER_FLOW_MESSAGE_BYTES + 1 };

struct mesh_flow {
    struct peer_flow flow;
    struct mesh_flow_options options;
    struct rpc_later later;
    bool has_begun;
    bool is_opened;            /* the initial metadata are sent */
    bool waits_for_room;       /* the caller's next message is not asked for yet */
    uint64_t out;              /* of the request, not taken yet */
    pthread_mutex_t lock;      /* guards the next members, and is held while the call is used */
    uint64_t costs[COSTS_MAX]; /* of the answer, not taken by the transport yet, in their order */
    uint32_t cost_first;
    uint32_t cost_count;
    bool is_claimed;
    struct mesh_flow_bytes bytes;
};

static void
begin(struct mesh_flow *flow)
{
    if (flow->has_begun)
        return;
    flow->has_begun = true;
    rpc_later_drop(&flow->later);
    flow->options.begin(flow->options.context);
}

static void
at_end_of_step(struct rpc_later *later)
{
    begin((struct mesh_flow *)(void *)((char *)later - offsetof(struct mesh_flow, later)));
}

/* ---- the request ---- */

/* Call after a message of that size, or after room was made. */
static void
read_if_room(struct mesh_flow *flow, size_t bytes)
{
    pthread_mutex_lock(&flow->lock);
    if (!flow->is_claimed)
        flow->bytes.there += bytes;
    flow->waits_for_room = flow->out >= peer_flow_window(&flow->flow);
    if (!flow->waits_for_room && !flow->is_claimed)
        rpc_call_read(flow->options.call);
    pthread_mutex_unlock(&flow->lock);
}

/* A message that fills the window may wait for a slow reader: a copy holds no read buffers. */
static struct rpc_kept *
keep(struct mesh_flow *flow, const struct wire_message *message)
{
    bool fills = !flow->flow.is_awaited &&
                 flow->out + peer_flow_cost(message->bytes) >= peer_flow_window(&flow->flow);
    return fills ? rpc_message_copy(message) : rpc_message_keep(message);
}

enum status
mesh_flow_message(struct mesh_flow *flow, const struct wire_message *message, struct error *error)
{
    struct rpc_kept *kept = keep(flow, message);
    struct rpc_piece piece = rpc_kept_piece(kept);
    if (!flow->flow.is_awaited)
        flow->out += peer_flow_cost(piece.bytes);
    enum status status = peer_flow_send(&flow->flow, &piece, 1, PEER_FLOW_MORE, error);
    rpc_kept_release(kept);
    begin(flow);
    peer_flow_release_first(&flow->flow);
    if (status == STATUS_OK)
        read_if_room(flow, piece.bytes);
    return status;
}

enum status
mesh_flow_half_close(struct mesh_flow *flow, struct error *error)
{
    enum status status = peer_flow_send(&flow->flow, NULL, 0, PEER_FLOW_LAST, error);
    begin(flow);
    return status;
}

void
mesh_flow_room(struct mesh_flow *flow, uint64_t cost)
{
    CHECK(cost <= flow->out);
    flow->out -= cost;
    peer_flow_release_first(&flow->flow);
    if (flow->waits_for_room)
        read_if_room(flow, 0);
}

/* ---- the answer ---- */

/* Locked. */
static void
send_part(struct mesh_flow *flow, const struct rpc_answer *part)
{
    struct rpc_call *call = flow->options.call;
    if (part->initial_count > 0 && !flow->is_opened)
        rpc_call_begin(call, part->initial, part->initial_count);
    flow->is_opened = true;
    /* CANCELLED, its only failure here: on_cancel follows. */
    if (part->pieces != NULL && rpc_call_send(call, part->pieces, part->piece_count) == STATUS_OK) {
        CHECK(flow->cost_count < COSTS_MAX);
        uint64_t bytes = peer_pieces_bytes(part->pieces, part->piece_count);
        flow->bytes.back += bytes;
        flow->costs[(flow->cost_first + flow->cost_count++) % COSTS_MAX] = peer_flow_cost(bytes);
    }
}

void
mesh_flow_part(struct mesh_flow *flow, const struct rpc_answer *part)
{
    const struct inbound_type *type = flow->options.type;
    pthread_mutex_lock(&flow->lock);
    if (flow->is_claimed) {
        rpc_pieces_release(part->pieces, part->piece_count);
    } else if (type == NULL) {
        send_part(flow, part);
    } else if (part->pieces != NULL) {
        flow->bytes.back += peer_pieces_bytes(part->pieces, part->piece_count);
        type->piece(flow->options.inbound, part->pieces, part->piece_count);
    }
    pthread_mutex_unlock(&flow->lock);
}

struct mesh_flow_bytes
mesh_flow_bytes(const struct mesh_flow *flow)
{
    return flow->bytes;
}

void
mesh_flow_sent(struct mesh_flow *flow)
{
    pthread_mutex_lock(&flow->lock);
    CHECK(flow->cost_count > 0);
    uint64_t cost = flow->costs[flow->cost_first];
    flow->cost_first = (flow->cost_first + 1) % COSTS_MAX;
    flow->cost_count--;
    pthread_mutex_unlock(&flow->lock);
    peer_flow_taken(&flow->flow, cost);
}

void
mesh_flow_taken(struct mesh_flow *flow, uint64_t bytes)
{
    peer_flow_taken(&flow->flow, peer_flow_cost(bytes));
}

/* ---- life ---- */

void
mesh_flow_begin(struct mesh_flow *flow)
{
    begin(flow);
}

bool
mesh_flow_stop(struct mesh_flow *flow)
{
    if (flow->options.type != NULL)
        return false;
    bool is_first = !flow->has_begun;
    flow->has_begun = true;
    rpc_later_drop(&flow->later);
    return is_first;
}

bool
mesh_flow_claim(struct mesh_flow *flow)
{
    pthread_mutex_lock(&flow->lock);
    bool is_first = !flow->is_claimed;
    flow->is_claimed = true;
    pthread_mutex_unlock(&flow->lock);
    return is_first;
}

struct mesh_flow *
mesh_flow_create(const struct mesh_flow_options *options)
{
    struct mesh_flow *flow = calloc(1, sizeof(*flow)); /* a call of a method that may be a stream */
    CHECK(flow != NULL);
    flow->options = *options;
    flow->later.run = at_end_of_step;
    CHECK(pthread_mutex_init(&flow->lock, NULL) == 0);
    peer_flow_init(&flow->flow, options->request, PEER_FLOW_WINDOW_BYTES);
    flow->has_begun = options->is_complete;
    flow->flow.is_closed =
        options->type != NULL || options->is_complete || options->request->is_empty;
    flow->flow.is_awaited = options->is_awaited;
    flow->flow.counts_late = options->counts_late;
    if (options->type != NULL || options->is_complete)
        return flow;
    if (!options->is_awaited)
        rpc_queue_later(options->queue, &flow->later);
    if (!options->request->is_empty)
        rpc_call_read(options->call);
    return flow;
}

void
mesh_flow_destroy(struct mesh_flow *flow)
{
    if (flow == NULL)
        return;
    peer_flow_fini(&flow->flow);
    pthread_mutex_destroy(&flow->lock);
    free(flow);
}
