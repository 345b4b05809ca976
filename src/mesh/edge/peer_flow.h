/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call with any number of messages each way, while it is passed on: the link between the owner of
 * its request, which has the caller (a front or a session of a peer), and the owner of its try (an
 * external runtime or the link to a peer). The request's own message is the first; later ones and
 * parts of the answer go through here.
 *
 * Either side may have one window in transit that the other has not consumed, and exceed it by one
 * message, so a slow reader stops the writer with bounded memory at each hop. A message costs its
 * bytes and a fixed amount, which bounds many small ones, too.
 *
 * A try may be repeated as long as nothing of its answer was passed on and no message after the
 * first was sent; until then the flow keeps its messages. Afterwards it is COMMITTED, and a try
 * that fails is the end of the call.
 *
 * Threads. Everything runs on the thread of the request's queue, except peer_flow_attach and
 * _shape, which come with a try, UNDER THE LOCK of the runner, on any thread, and, of a pipeline's
 * answer, peer_flow_part and _taken: on any. A sink's functions are called without the
 * flow's lock; sinks lock before they attach, so messages sent meanwhile come later.
 */
#pragma once

#include <pthread.h>

#include "mesh/edge/peers.h"

enum {
    PEER_FLOW_WINDOW_BYTES = 64 << 10,
    PEER_FLOW_CREDIT_BYTES = 32 << 10,      /* returned to a peer once this much is due */
    PEER_FLOW_OLD_WINDOW_BYTES = 128 << 10, /* for a peer with credit in such amounts */
    PEER_FLOW_TAKEN_BYTES = 256 << 10,      /* what such a peer may send */
    PEER_FLOW_MESSAGE_BYTES = 4 << 10, /* price of a message beside its bytes: 64 fill a window */
};

/* The caller of a call with a flow takes the answer in pieces, each a message of its own. An
 * external runtime that refuses it as UNIMPLEMENTED gets it as PEER_FLOW_STREAM_INFER, with one
 * request. */
#define PEER_FLOW_INFER "/inference.GRPCInferenceService/ModelInfer"
#define PEER_FLOW_STREAM_INFER "/inference.GRPCInferenceService/ModelStreamInfer"

enum peer_flow_next { PEER_FLOW_MORE, PEER_FLOW_LAST };

/* The owner of a try. */
struct peer_flow_sink {
    /* Sends a message; LAST: the final one, with NULL pieces only the end. A status other than
     * OK, with the text for the caller, is the end of the call: the owner ends it. */
    enum status (*send)(void *context, const struct rpc_piece *pieces, size_t piece_count,
                        enum peer_flow_next next, struct error *error);
    /* The owner has consumed so much of the answer. For a pipeline's it is called on any thread. */
    void (*taken)(void *context, uint64_t cost);
    uint32_t window_bytes; /* of the request's messages after the first */
};

/* A message that waits for a try. */
struct peer_flow_kept {
    struct peer_flow_kept *next;
    size_t piece_count;
    struct rpc_piece pieces[]; /* kept; this flow's references */
};

struct peer_flow {
    struct peer_request *request;      /* its message is set when it comes, if it was awaited */
    pthread_mutex_t lock;              /* of the fields below */
    const struct peer_flow_sink *sink; /* NULL: no try */
    void *sink_context;
    struct peer_flow_kept *first; /* messages not sent yet */
    struct peer_flow_kept **last;
    struct peer_flow_kept *opening; /* the request's message if it was awaited; NULL: not */
    bool is_awaited;                /* neither the request's message nor the end has come */
    bool is_closed;                 /* the caller sends no more */
    bool is_committed;
    bool counts_late;        /* among PEERS_FLOWS_MAX only once a part of the answer has come */
    bool has_begun;          /* the sink has read the request's message, or will not */
    bool has_released_first; /* of that message: it is not read any more */
    uint32_t parts;          /* messages of the answer that were passed on */
    uint32_t window_bytes;   /* of the answer's messages; set by the owner */
};

static inline uint64_t
peer_flow_cost(uint64_t bytes)
{
    return bytes + PEER_FLOW_MESSAGE_BYTES;
}

/* The window to a peer that returns so much credit at a time; 0: unknown. */
static inline uint32_t
peer_flow_window_to(uint32_t credit_bytes)
{
    bool is_known = credit_bytes > 0 && credit_bytes <= PEER_FLOW_WINDOW_BYTES;
    return is_known ? PEER_FLOW_WINDOW_BYTES : PEER_FLOW_OLD_WINDOW_BYTES;
}

uint64_t peer_pieces_bytes(const struct rpc_piece *pieces, size_t piece_count);

/* ---- for the owner ---- */

/* `window_bytes`: of the answer. */
void peer_flow_init(struct peer_flow *flow, struct peer_request *request, uint32_t window_bytes);
/* Together with the request. */
void peer_flow_fini(struct peer_flow *flow);
/* Sends a message of the caller after the first one, as the sink takes it; kept pieces, of which it
 * takes references. If the request's own message is awaited, that comes first: it costs nothing,
 * commits to nothing, and every later try begins with it. */
enum status peer_flow_send(struct peer_flow *flow, const struct rpc_piece *pieces,
                           size_t piece_count, enum peer_flow_next next,
                           struct error *error) WARN_UNUSED;
/* Releases the request's message if it will not be read again: the try has read it and will not be
 * repeated. Owners with many messages call it, on the thread of the request's queue. */
void peer_flow_release_first(struct peer_flow *flow);
/* Returns how much of the request, after its first message, may now be in transit. */
uint64_t peer_flow_window(struct peer_flow *flow);
/* The owner has consumed so much of the answer. */
void peer_flow_taken(struct peer_flow *flow, uint64_t cost);

/* The end of a try, as its owner passes it on. */
struct peer_flow_end {
    struct runner_end end;
    const struct rpc_answer *answer;
    struct rpc_answer made;
    char text[128]; /* of what was made */
};

/* First thing within on_ended: there is no try any more. If it must not be repeated, the caller
 * gets its end as an answer, and the runner gets it as it was, marked answered. Any thread. With a
 * NULL flow nothing changes. */
void peer_flow_detach(struct peer_flow *flow, const struct runner_end *end,
                      const struct rpc_answer *answer, struct peer_flow_end *out);

/* ---- for the sink ---- */

enum peer_flow_shape {
    PEER_FLOW_UNARY,   /* no flow */
    PEER_FLOW_CLOSED,  /* the request is complete, the answer may have any number of messages */
    PEER_FLOW_OPEN,    /* more of the request may come */
    PEER_FLOW_EMPTY,   /* the request is complete and has no message */
    PEER_FLOW_AWAITED, /* the request's first message is still to come, and more may */
};

static inline bool
peer_flow_has_message(enum peer_flow_shape shape)
{
    return shape != PEER_FLOW_EMPTY && shape != PEER_FLOW_AWAITED;
}

/* The shape in which a try must begin. Read the request's pieces only if it has a message. */
enum peer_flow_shape peer_flow_shape(struct peer_flow *flow);
/* The try has begun, of that shape, which is not UNARY. Returns the waiting messages, which the
 * sink owns and must send now, in order. `*closed`: none come after them. */
struct peer_flow_kept *peer_flow_attach(struct peer_flow *flow, enum peer_flow_shape shape,
                                        const struct peer_flow_sink *sink, void *context,
                                        bool *closed);
/* Notes that everything that waited is sent and that the request's pieces are not read again in
 * this try. Call it before the sink unlocks. */
void peer_flow_begun(struct peer_flow *flow);
/* Frees it and returns the next one. */
struct peer_flow_kept *peer_flow_kept_free(struct peer_flow_kept *kept);
/* A part of the answer, for on_part. */
void peer_flow_part(struct peer_flow *flow, const struct rpc_answer *part);
