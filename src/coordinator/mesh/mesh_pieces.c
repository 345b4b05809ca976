/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flow knows its request, not these pieces: the try may end on one thread while another returns
 * a cost. A thread that finds them by the request holds a reference meanwhile.
 */
#include "coordinator/mesh/mesh_pieces.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/peer_flow.h"
#include "rpc/spans.h"

struct piece_copy {
    struct piece_copy *next;
    size_t bytes;
    unsigned char data[];
};

struct mesh_pieces {
    struct mesh_pieces_options options;
    unsigned references;  /* `find_lock` */
    pthread_mutex_t lock; /* of what follows */
    struct piece_copy *first, **last;
    uint64_t waiting; /* bytes of these */
    uint64_t out;     /* cost of those passed on, not consumed */
    bool has_begun;   /* one was passed on */
    bool is_cancelled;
    bool is_full; /* one was refused because all answers of the node hold so much */
    bool has_end; /* it waits: */
    enum status status;
    char *text;
    struct piece_copy *message; /* NULL: none */
};

static pthread_mutex_t find_lock = PTHREAD_MUTEX_INITIALIZER; /* of every request's `in_pieces` */
static uint64_t held; /* by the copies that wait, of all; `find_lock`, the innermost */

static struct mesh_pieces *
find(const struct peer_request *request)
{
    pthread_mutex_lock(&find_lock);
    struct mesh_pieces *pieces = request->in_pieces;
    if (pieces != NULL)
        pieces->references++;
    pthread_mutex_unlock(&find_lock);
    return pieces;
}

/* False: it must not wait, because all answers of the node hold so much already. */
static bool
hold(const struct piece_copy *copy, uint64_t held_max)
{
    pthread_mutex_lock(&find_lock);
    bool is_room = held < held_max;
    if (is_room)
        held += MESH_PIECE_COST + copy->bytes;
    pthread_mutex_unlock(&find_lock);
    return is_room;
}

static void
let_go(const struct piece_copy *copy)
{
    pthread_mutex_lock(&find_lock);
    held -= MESH_PIECE_COST + copy->bytes;
    pthread_mutex_unlock(&find_lock);
}

static void
free_all(struct piece_copy *copy)
{
    while (copy != NULL) {
        struct piece_copy *next = copy->next;
        let_go(copy);
        free(copy);
        copy = next;
    }
}

static void
release(struct mesh_pieces *pieces)
{
    pthread_mutex_lock(&find_lock);
    unsigned left = --pieces->references;
    pthread_mutex_unlock(&find_lock);
    if (left > 0)
        return;
    free_all(pieces->first);
    free_all(pieces->message);
    free(pieces->text);
    pthread_mutex_destroy(&pieces->lock);
    free(pieces);
}

static struct piece_copy *
copy_of(const struct rpc_piece *from, size_t count)
{
    struct rpc_spans spans;
    spans_of_pieces(&spans, from, count);
    struct piece_copy *copy = malloc(sizeof(*copy) + spans.message.bytes + 1);
    CHECK(copy != NULL);
    *copy = (struct piece_copy){.bytes = spans.message.bytes};
    unsigned char *to = copy->data;
    for (size_t i = 0; i < spans.message.span_count; i++) {
        memcpy(to, spans.message.spans[i].data, spans.message.spans[i].bytes);
        to += spans.message.spans[i].bytes;
    }
    spans_fini(&spans);
    return copy;
}

static struct rpc_piece
lend(struct piece_copy *copy)
{
    return (struct rpc_piece){
        .data = copy->data, .bytes = copy->bytes, .release = free, .release_context = copy};
}

/* ---- towards the owner ---- */

/* Locked, so that pieces keep their order. */
static void
pump(struct mesh_pieces *pieces)
{
    struct peer_flow *flow = pieces->options.request->flow;
    while (pieces->first != NULL && pieces->out < flow->window_bytes) {
        struct piece_copy *copy = pieces->first;
        const struct rpc_piece lent = lend(copy);
        const struct rpc_answer part = {.pieces = &lent, .piece_count = 1};
        pieces->first = copy->next;
        if (pieces->first == NULL)
            pieces->last = &pieces->first;
        pieces->waiting -= MESH_PIECE_COST + copy->bytes;
        pieces->out += peer_flow_cost(copy->bytes);
        pieces->has_begun = true;
        let_go(copy);
        peer_flow_part(flow, &part);
    }
}

/* Locked. Returns true to the one caller that reports the end. */
static bool
takes_end(struct mesh_pieces *pieces)
{
    bool is_due = pieces->has_end && pieces->first == NULL;
    if (is_due)
        pieces->has_end = false;
    return is_due;
}

static void
notify_end(struct mesh_pieces *pieces)
{
    struct piece_copy *message = pieces->message;
    struct rpc_piece lent;
    struct rpc_answer answer = {.status = pieces->status,
                                .text = {pieces->text, strlen(pieces->text)}};
    pieces->message = NULL;
    if (message != NULL) {
        let_go(message);
        lent = lend(message);
        answer.pieces = &lent;
        answer.piece_count = 1;
    }
    pieces->options.on_end(pieces->options.context, &answer);
}

void
mesh_pieces_taken(void *request, uint64_t cost)
{
    struct mesh_pieces *pieces = find(request);
    if (pieces == NULL)
        return; /* its end was reported */
    pthread_mutex_lock(&pieces->lock);
    CHECK(cost <= pieces->out);
    pieces->out -= cost;
    pump(pieces);
    bool ends = takes_end(pieces);
    pthread_mutex_unlock(&pieces->lock);
    if (ends)
        notify_end(pieces);
    release(pieces);
}

/* ---- from the pipeline ---- */

enum status
mesh_pieces_put(struct mesh_pieces *pieces, const struct rpc_piece *of_piece, size_t count,
                uint64_t unread_max)
{
    struct piece_copy *copy = copy_of(of_piece, count);
    uint64_t held_max = unread_max > MESH_PIECES_HELD_MAX ? unread_max : MESH_PIECES_HELD_MAX;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&pieces->lock);
    bool is_first = pieces->first == NULL;
    if (pieces->is_cancelled) {
        status = STATUS_CANCELLED;
    } else if (!is_first && pieces->waiting + MESH_PIECE_COST + copy->bytes > unread_max) {
        status = STATUS_RESOURCE_EXHAUSTED;
    } else if (!hold(copy, is_first ? UINT64_MAX : held_max)) {
        status = STATUS_RESOURCE_EXHAUSTED;
        pieces->is_full = true;
    } else {
        *pieces->last = copy;
        pieces->last = &copy->next;
        pieces->waiting += MESH_PIECE_COST + copy->bytes;
        pump(pieces);
    }
    pthread_mutex_unlock(&pieces->lock);
    if (status != STATUS_OK)
        free(copy);
    return status;
}

bool
mesh_pieces_is_full(struct mesh_pieces *pieces)
{
    if (pieces == NULL)
        return false;
    pthread_mutex_lock(&pieces->lock);
    bool is_full = pieces->is_full;
    pthread_mutex_unlock(&pieces->lock);
    return is_full;
}

bool
mesh_pieces_has_begun(struct mesh_pieces *pieces)
{
    if (pieces == NULL)
        return false;
    pthread_mutex_lock(&pieces->lock);
    bool has_begun = pieces->has_begun;
    pthread_mutex_unlock(&pieces->lock);
    return has_begun;
}

/* Locked. */
static void
keep_end(struct mesh_pieces *pieces, const struct rpc_answer *answer)
{
    struct wire_span text = answer->text;
    struct piece_copy *message =
        answer->pieces == NULL ? NULL : copy_of(answer->pieces, answer->piece_count);
    pieces->has_end = true;
    pieces->status = answer->status;
    if (message != NULL && !hold(message, MESH_PIECES_HELD_MAX)) {
        free(message);
        message = NULL;
        pieces->status = STATUS_RESOURCE_EXHAUSTED;
        text = (struct wire_span){MESH_PIECES_CROWDED, sizeof(MESH_PIECES_CROWDED) - 1};
    }
    pieces->message = message;
    pieces->text = strndup(text.bytes > 0 ? text.data : "", text.bytes);
    CHECK(pieces->text != NULL);
}

bool
mesh_pieces_end(struct mesh_pieces *pieces, const struct rpc_answer *answer)
{
    pthread_mutex_lock(&pieces->lock);
    bool waits = pieces->first != NULL;
    if (waits)
        keep_end(pieces, answer);
    pthread_mutex_unlock(&pieces->lock);
    if (waits)
        rpc_pieces_release(answer->pieces, answer->piece_count);
    return waits;
}

void
mesh_pieces_cancel(const struct peer_request *request)
{
    struct mesh_pieces *pieces = find(request);
    if (pieces == NULL)
        return;
    pthread_mutex_lock(&pieces->lock);
    struct piece_copy *dropped = pieces->first;
    pieces->is_cancelled = true;
    pieces->first = NULL;
    pieces->last = &pieces->first;
    pieces->waiting = 0;
    bool ends = takes_end(pieces);
    pthread_mutex_unlock(&pieces->lock);
    free_all(dropped);
    if (ends)
        notify_end(pieces);
    release(pieces);
}

/* ---- life ---- */

struct mesh_pieces *
mesh_pieces_create(const struct mesh_pieces_options *options)
{
    struct mesh_pieces *pieces = calloc(1, sizeof(*pieces)); /* few calls are streams */
    CHECK(pieces != NULL);
    pieces->options = *options;
    pieces->references = 1;
    pieces->last = &pieces->first;
    CHECK(pthread_mutex_init(&pieces->lock, NULL) == 0);
    pthread_mutex_lock(&find_lock);
    options->request->in_pieces = pieces;
    pthread_mutex_unlock(&find_lock);
    return pieces;
}

void
mesh_pieces_destroy(struct mesh_pieces *pieces)
{
    if (pieces == NULL)
        return;
    pthread_mutex_lock(&find_lock);
    pieces->options.request->in_pieces = NULL;
    pthread_mutex_unlock(&find_lock);
    release(pieces);
}
