/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call with any number of messages each way, while it is passed on: what stands between the owner
 * of its request (who has the caller: a front, or a session of a peer) and the one who has its try
 * (an external runtime, or the link to a peer). The request's own message is the first; what comes
 * behind it goes through here, and so does what is answered ahead of the end.
 *
 * Either side may have a window's worth on its way that the other has not taken, and exceed it by
 * one message: so a reader that is slow stops the writer, with bounded memory at each hop. A
 * message costs its bytes and a bit more, so many small ones are bounded, too.
 *
 * A try may be repeated as long as nothing of its answer was passed on and no message behind the
 * first was sent on: until then the flow keeps what it has. After that it is COMMITTED, and a try
 * that fails is the end of the call.
 *
 * Threads. All on the thread of the request's queue, but for peer_flow_attach and _shape, which
 * come with a try, UNDER THE LOCK of the driver, on any thread. A sink's functions are called
 * without a lock of the flow's; sinks lock before they attach, so what is sent meanwhile comes
 * behind.
 */
#pragma once

#include <pthread.h>

#include "mesh/edge/peers.h"

enum {
    PEER_FLOW_WINDOW_BYTES = 64 << 10,
    PEER_FLOW_CREDIT_BYTES = 32 << 10,      /* given back to another node when there is so much */
    PEER_FLOW_OLD_WINDOW_BYTES = 128 << 10, /* to a node that gives back only when it has as much */
    PEER_FLOW_TAKEN_BYTES = 256 << 10,      /* what such a node may send */
    PEER_FLOW_MESSAGE_BYTES = 4 << 10, /* what a message costs beside its bytes: 64 fill a window */
};

/* The owner of a try. */
struct peer_flow_sink {
    /* A message; `last`: and no more, NULL pieces: that alone. A status other than OK, with the
     * text for the caller, is the end of the call: the owner ends it. */
    enum status (*send)(void *context, const struct rpc_piece *pieces, size_t piece_count,
                        bool last, struct error *error);
    /* The owner is done with so much of the answer. */
    void (*taken)(void *context, uint64_t cost);
    uint32_t window_bytes; /* of the request's messages behind the first */
};

/* A message that waits for a try. */
struct peer_flow_kept {
    struct peer_flow_kept *next;
    size_t piece_count;
    struct rpc_piece pieces[]; /* kept; references of ours */
};

struct peer_flow {
    struct peer_request *request;      /* whose message is set once it comes, if it was awaited */
    pthread_mutex_t lock;              /* of what follows */
    const struct peer_flow_sink *sink; /* NULL: there is no try */
    void *sink_context;
    struct peer_flow_kept *first; /* that were not sent on */
    struct peer_flow_kept **last;
    struct peer_flow_kept *opening; /* the request's message, if it was awaited; NULL: it is not */
    bool is_awaited;                /* neither the request's message nor the end has come */
    bool is_closed;                 /* the caller sends no more */
    bool is_committed;
    bool has_begun;        /* the sink has read the request's message, or will not */
    bool has_let_go;       /* of that message: nobody reads it any more */
    uint32_t window_bytes; /* of the answer's messages; by the owner */
};

static inline uint64_t
peer_flow_cost(uint64_t bytes)
{
    return bytes + PEER_FLOW_MESSAGE_BYTES;
}

/* To a node that gives back so much credit at a time; 0: it does not say. */
static inline uint32_t
peer_flow_window_to(uint32_t credit_bytes)
{
    bool is_known = credit_bytes > 0 && credit_bytes <= PEER_FLOW_WINDOW_BYTES;
    return is_known ? PEER_FLOW_WINDOW_BYTES : PEER_FLOW_OLD_WINDOW_BYTES;
}

uint64_t peer_pieces_bytes(const struct rpc_piece *pieces, size_t piece_count);

/* ---- the owner's ---- */

/* `window_bytes`: of the answer. */
void peer_flow_init(struct peer_flow *flow, struct peer_request *request, uint32_t window_bytes);
/* With the request. */
void peer_flow_fini(struct peer_flow *flow);
/* Sends a message of the caller behind the first one, as the sink takes it; kept pieces, of which
 * it takes references. If the request's own message is awaited, that comes first: it costs nothing,
 * commits to nothing, and every try that begins from then on begins with it. */
enum status peer_flow_send(struct peer_flow *flow, const struct rpc_piece *pieces,
                           size_t piece_count, bool last, struct error *error) WARN_UNUSED;
/* Lets go of the request's message if nobody will read it any more: the try has, and it will not be
 * repeated. For owners that have many messages; the thread of the request's queue. */
void peer_flow_settle(struct peer_flow *flow);
/* How much of the request, behind its first message, may be on its way now. */
uint64_t peer_flow_window(struct peer_flow *flow);
/* On with the answer. */
void peer_flow_taken(struct peer_flow *flow, uint64_t cost);

/* The end of a try, as its owner passes it on. */
struct peer_flow_end {
    struct driver_end end;
    const struct rpc_answer *answer;
    struct rpc_answer made;
};

/* Within on_ended, first: there is no try any more. If it may not be repeated, whatever ended it is
 * told the caller as an answer, and the driver as what it was, answered. Any thread. A flow of
 * NULL: nothing is changed. */
void peer_flow_detach(struct peer_flow *flow, const struct driver_end *end,
                      const struct rpc_answer *answer, struct peer_flow_end *out);

/* ---- the sink's ---- */

enum peer_flow_shape {
    PEER_FLOW_UNARY,   /* no flow */
    PEER_FLOW_CLOSED,  /* the request is whole, its answer may be any number */
    PEER_FLOW_OPEN,    /* more of the request may come */
    PEER_FLOW_EMPTY,   /* the request is whole, and has no message at all */
    PEER_FLOW_AWAITED, /* the request's first message is still to come, and more may */
};

static inline bool
peer_flow_has_message(enum peer_flow_shape shape)
{
    return shape != PEER_FLOW_EMPTY && shape != PEER_FLOW_AWAITED;
}

/* The shape in which a try must begin. Do not read the request's pieces unless it has a message. */
enum peer_flow_shape peer_flow_shape(struct peer_flow *flow);
/* The try has begun, of that shape, which is not UNARY. Returns the messages that wait: the sink
 * must send them now, in order, and owns them. `*closed`: nothing comes behind them. */
struct peer_flow_kept *peer_flow_attach(struct peer_flow *flow, enum peer_flow_shape shape,
                                        const struct peer_flow_sink *sink, void *context,
                                        bool *closed);
/* All that waited is sent, and the request's pieces are not read again in this try; before the sink
 * unlocks. */
void peer_flow_begun(struct peer_flow *flow);
/* Frees it; returns the one behind. */
struct peer_flow_kept *peer_flow_kept_free(struct peer_flow_kept *kept);
/* A part of the answer, for on_part. */
void peer_flow_part(struct peer_flow *flow, const struct rpc_answer *part);
