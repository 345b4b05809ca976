/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

uint64_t
peer_pieces_bytes(const struct rpc_piece *pieces, size_t piece_count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < piece_count; i++)
        bytes += pieces[i].bytes;
    return bytes;
}

/* ---- what waits ---- */

static struct peer_flow_kept *
kept_create(const struct rpc_piece *pieces, size_t piece_count)
{
    struct peer_flow_kept *kept = malloc(sizeof(*kept) + piece_count * sizeof(*pieces));
    CHECK(kept != NULL);
    *kept = (struct peer_flow_kept){.piece_count = piece_count};
    for (size_t i = 0; i < piece_count; i++) {
        kept->pieces[i] = pieces[i];
        rpc_kept_acquire((struct rpc_kept *)(uintptr_t)pieces[i].kept);
    }
    return kept;
}

struct peer_flow_kept *
peer_flow_kept_free(struct peer_flow_kept *kept)
{
    struct peer_flow_kept *next = kept->next;
    for (size_t i = 0; i < kept->piece_count; i++)
        rpc_kept_release((struct rpc_kept *)(uintptr_t)kept->pieces[i].kept);
    free(kept);
    return next;
}

/* ---- the owner's ---- */

void
peer_flow_init(struct peer_flow *flow, struct peer_request *request, uint32_t window_bytes)
{
    *flow = (struct peer_flow){.request = request, .window_bytes = window_bytes};
    flow->last = &flow->first;
    request->flow = flow;
    CHECK(pthread_mutex_init(&flow->lock, NULL) == 0);
}

void
peer_flow_fini(struct peer_flow *flow)
{
    while (flow->first != NULL)
        flow->first = peer_flow_kept_free(flow->first);
    if (flow->opening != NULL)
        (void)peer_flow_kept_free(flow->opening);
    pthread_mutex_destroy(&flow->lock);
}

/* Locked. The first message has come, or the end without one. */
static void
open(struct peer_flow *flow, const struct rpc_piece *pieces, size_t piece_count)
{
    struct peer_request *request = flow->request;
    CHECK(flow->opening == NULL && flow->first == NULL); /* it is the first message */
    flow->is_awaited = false;
    request->is_empty = pieces == NULL;
    if (pieces == NULL)
        return;
    flow->opening = kept_create(pieces, piece_count);
    request->pieces = flow->opening->pieces;
    request->piece_count = piece_count;
}

void
peer_flow_release_first(struct peer_flow *flow)
{
    struct peer_request *request = flow->request;
    pthread_mutex_lock(&flow->lock);
    bool releases_first = flow->is_committed && flow->has_begun && !flow->has_released_first;
    struct peer_flow_kept *opening = releases_first ? flow->opening : NULL;
    if (releases_first) {
        flow->opening = NULL;
        flow->has_released_first = true;
        request->pieces = NULL;
        request->piece_count = 0;
    }
    pthread_mutex_unlock(&flow->lock);
    if (opening != NULL)
        (void)peer_flow_kept_free(opening);
    if (releases_first && request->type->on_first_released != NULL)
        request->type->on_first_released(request);
}

enum status
peer_flow_send(struct peer_flow *flow, const struct rpc_piece *pieces, size_t piece_count,
               enum peer_flow_next next, struct error *error)
{
    pthread_mutex_lock(&flow->lock);
    const struct peer_flow_sink *sink = flow->sink;
    void *context = flow->sink_context;
    flow->is_closed = flow->is_closed || next == PEER_FLOW_LAST;
    if (flow->is_awaited) {
        open(flow, pieces, piece_count);
    } else if (sink != NULL && pieces != NULL) {
        flow->is_committed = true;
    } else if (pieces != NULL) {
        struct peer_flow_kept *kept = kept_create(pieces, piece_count);
        *flow->last = kept;
        flow->last = &kept->next;
    }
    pthread_mutex_unlock(&flow->lock);
    if (sink == NULL)
        return STATUS_OK;
    enum status status = sink->send(context, pieces, piece_count, next, error);
    peer_flow_release_first(flow);
    return status;
}

uint64_t
peer_flow_window(struct peer_flow *flow)
{
    pthread_mutex_lock(&flow->lock);
    uint64_t bytes = flow->sink != NULL ? flow->sink->window_bytes : PEER_FLOW_OLD_WINDOW_BYTES;
    pthread_mutex_unlock(&flow->lock);
    return bytes;
}

void
peer_flow_taken(struct peer_flow *flow, uint64_t cost)
{
    pthread_mutex_lock(&flow->lock);
    const struct peer_flow_sink *sink = flow->sink;
    void *context = flow->sink_context;
    pthread_mutex_unlock(&flow->lock);
    if (sink != NULL)
        sink->taken(context, cost);
}

/* The reason why a call that cannot be retried ends. */
static const char *
reason(enum mesh_end end)
{
    switch (end) {
    case MESH_END_DEADLINE: return "the deadline has passed";
    case MESH_END_NOT_HERE: return "the stream was cut off: its model is no longer loaded";
    case MESH_END_OVERLOADED: return "the stream was cut off: the serving node is overloaded";
    case MESH_END_UNAVAILABLE: return "the stream was cut off: the serving node is shutting down";
    default: return "the stream was cut off: the serving node or runtime was lost";
    }
}

void
peer_flow_detach(struct peer_flow *flow, const struct runner_end *end,
                 const struct rpc_answer *answer, struct peer_flow_end *out)
{
    out->end = *end;
    out->answer = answer;
    if (flow == NULL)
        return;
    pthread_mutex_lock(&flow->lock);
    flow->sink = NULL;
    flow->has_begun = false;
    bool is_committed = flow->is_committed;
    uint32_t parts = flow->is_closed ? flow->parts : 0; /* a dialogue's are no pieces */
    pthread_mutex_unlock(&flow->lock);
    if (end->end == MESH_END_OK || !is_committed)
        return;
    int bytes = snprintf(out->text, sizeof(out->text), "%s", reason(end->end));
    if (parts > 0)
        snprintf(out->text + bytes, sizeof(out->text) - (size_t)bytes,
                 " (%u pieces of the answer were sent)", parts);
    out->made = (struct rpc_answer){
        .status = end->end == MESH_END_DEADLINE ? STATUS_DEADLINE_EXCEEDED : STATUS_UNAVAILABLE,
        .text = {out->text, strlen(out->text)},
    };
    out->end.is_answered = true;
    out->answer = &out->made;
}

/* ---- the sink's ---- */

enum peer_flow_shape
peer_flow_shape(struct peer_flow *flow)
{
    if (flow == NULL)
        return PEER_FLOW_UNARY;
    pthread_mutex_lock(&flow->lock);
    enum peer_flow_shape shape = flow->is_awaited                          ? PEER_FLOW_AWAITED
                                 : flow->request->is_empty                 ? PEER_FLOW_EMPTY
                                 : !flow->is_closed || flow->first != NULL ? PEER_FLOW_OPEN
                                                                           : PEER_FLOW_CLOSED;
    pthread_mutex_unlock(&flow->lock);
    return shape;
}

struct peer_flow_kept *
peer_flow_attach(struct peer_flow *flow, enum peer_flow_shape shape,
                 const struct peer_flow_sink *sink, void *context, bool *closed)
{
    pthread_mutex_lock(&flow->lock);
    struct peer_flow_kept *first = flow->first;
    CHECK(flow->sink == NULL && !flow->is_committed); /* only then another try may begin */
    flow->sink = sink;
    flow->sink_context = context;
    flow->first = NULL;
    flow->last = &flow->first;
    flow->is_committed = flow->is_committed || first != NULL;
    *closed = flow->is_closed;
    if (shape == PEER_FLOW_AWAITED && flow->opening != NULL) { /* it has come meanwhile */
        struct peer_flow_kept *opening =
            kept_create(flow->opening->pieces, flow->opening->piece_count);
        opening->next = first;
        first = opening;
    }
    pthread_mutex_unlock(&flow->lock);
    return first;
}

void
peer_flow_begun(struct peer_flow *flow)
{
    pthread_mutex_lock(&flow->lock);
    flow->has_begun = true;
    pthread_mutex_unlock(&flow->lock);
}

void
peer_flow_part(struct peer_flow *flow, const struct rpc_answer *part)
{
    struct peer_request *request = flow->request;
    pthread_mutex_lock(&flow->lock);
    flow->is_committed = true;
    flow->parts += part->pieces != NULL;
    pthread_mutex_unlock(&flow->lock);
    request->type->on_part(request, part);
}
