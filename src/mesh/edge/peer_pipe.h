/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames that one side of a stream between nodes sends, in order. A frame
 * goes to the transport at once while that takes messages readily; what it cannot take yet waits
 * here: whole frames in their order, of which as many as are small then go as one message, and
 * those that are larger than a part in a ring, of which each has a part sent in turn. So a large
 * message delays small ones by two parts, and nothing waits where it cannot be taken back.
 *
 * Not locked: its user has one lock for a stream, and holds it around every function.
 */
#pragma once

#include "mesh/edge/peer_wire.h"

enum {
    PEER_PIPE_OUT_MAX = 2, /* messages given to the transport ahead of its taking them */
    PEER_PIPE_TOGETHER_BYTES = 16 << 10, /* of frames in one message, if there are several */
    PEER_PIPE_COPIED_BYTES = 1 << 10,    /* of a piece that waits: referring to it costs more */
    PEER_PIPE_TURN = 8,                  /* messages of whole frames, and one part */
};

struct peer_item;

struct peer_pipe {
    /* rpc_client_send, or rpc_call_send. */
    enum status (*send)(void *stream, const struct rpc_piece *pieces, size_t piece_count);
    void *stream;
    struct peer_item *first; /* whole frames, and the first of those in parts */
    struct peer_item **last;
    struct peer_item *ring; /* messages of which the first part is out */
    struct peer_item **ring_last;
    uint64_t bytes;      /* of what waits */
    uint64_t window;     /* of `bytes` */
    uint32_t out;        /* given to the transport, not taken yet */
    uint32_t since_part; /* messages of whole frames */
    bool is_broken;      /* the transport has refused a message: the stream is to be ended */
};

void peer_pipe_init(struct peer_pipe *pipe,
                    enum status (*send)(void *stream, const struct rpc_piece *pieces,
                                        size_t piece_count),
                    void *stream, uint64_t window);
/* Gives back all that waits. */
void peer_pipe_fini(struct peer_pipe *pipe);

/*
 * Sends a frame (its `payload_bytes` is filled in) and the message in the pieces, of `bytes` in
 * all, in as many parts as are needed. Lent pieces are taken over, in failure too; kept ones are
 * referred to. RESOURCE_EXHAUSTED: more than the window waits; INVALID_ARGUMENT: the head is too
 * long; CANCELLED: is_broken.
 */
enum status peer_pipe_put(struct peer_pipe *pipe, struct peer_frame *frame,
                          const struct rpc_piece *pieces, size_t piece_count,
                          uint64_t bytes) WARN_UNUSED;

/* The same for a frame of a stream, of which more than one message may be on its way: it goes out
 * behind what is still to be sent of that call, in full. Its own flow bounds what waits: the window
 * does not. */
enum status peer_pipe_put_behind(struct peer_pipe *pipe, struct peer_frame *frame,
                                 const struct rpc_piece *pieces, size_t piece_count,
                                 uint64_t bytes) WARN_UNUSED;

/* Drops the unsent parts of the message of that call, by its number. */
void peer_pipe_drop(struct peer_pipe *pipe, uint32_t number);

/* The transport has taken a message. It is counted here what it has: what it says of that may be
 * old when it is heard. */
void peer_pipe_on_sent(struct peer_pipe *pipe);

/* Of a message that is not sent after all: lent pieces are released, kept ones are their owner's.
 */
void peer_pieces_give_back(const struct rpc_piece *pieces, size_t piece_count);
