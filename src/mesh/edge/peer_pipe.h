/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending side of a stream between nodes: its frames, in order. A frame goes to the transport
 * at once while that accepts messages readily. Frames that it cannot take yet wait here: whole
 * frames in order, several small ones of which then share a message, and messages larger than a
 * part in a ring, each of which sends one part in turn. So a large message delays small ones by two
 * parts, and nothing waits where it cannot be taken back.
 *
 * Not locked: its user holds the stream's lock around every function.
 */
#pragma once

#include "mesh/edge/peer_wire.h"

enum {
    PEER_PIPE_OUT_MAX = 2,               /* messages given to the transport ahead */
    PEER_PIPE_TOGETHER_BYTES = 16 << 10, /* of frames sharing one message */
    PEER_PIPE_COPIED_BYTES = 1 << 10,    /* copied rather than referenced while waiting */
    PEER_PIPE_TURN = 8,                  /* messages of whole frames for each part */
};

struct peer_item;

struct peer_pipe {
    /* rpc_client_send, or rpc_call_send. */
    enum status (*send)(void *stream, const struct rpc_piece *pieces, size_t piece_count);
    void *stream;
    struct peer_item *first; /* whole frames, and the first frame of those in parts */
    struct peer_item **last;
    struct peer_item *ring; /* messages whose first part is out */
    struct peer_item **ring_last;
    uint64_t bytes;      /* waiting */
    uint64_t window;     /* limit of `bytes` */
    uint32_t out;        /* given to the transport, not taken yet */
    uint32_t since_part; /* messages of whole frames */
    bool is_broken;      /* the transport refused a message: the stream must end */
};

void peer_pipe_init(struct peer_pipe *pipe,
                    enum status (*send)(void *stream, const struct rpc_piece *pieces,
                                        size_t piece_count),
                    void *stream, uint64_t window);
/* Releases everything that waits. */
void peer_pipe_fini(struct peer_pipe *pipe);

/*
 * Sends a frame (`payload_bytes` is filled in) and the message in the pieces, of `bytes` in all, in
 * as many parts as needed. Lent pieces are taken over, in failure too; kept ones are referenced.
 * RESOURCE_EXHAUSTED: the window is exceeded; INVALID_ARGUMENT: the head is too long; CANCELLED:
 * is_broken.
 */
enum status peer_pipe_put(struct peer_pipe *pipe, struct peer_frame *frame,
                          const struct rpc_piece *pieces, size_t piece_count,
                          uint64_t bytes) WARN_UNUSED;

/* Like peer_pipe_put(), for a frame of a stream that may have several messages in transit: it
 * follows everything of that call that is still unsent. Its own flow bounds what waits, not the
 * window. */
enum status peer_pipe_put_behind(struct peer_pipe *pipe, struct peer_frame *frame,
                                 const struct rpc_piece *pieces, size_t piece_count,
                                 uint64_t bytes) WARN_UNUSED;

/* Drops the unsent parts of that call's message. */
void peer_pipe_drop(struct peer_pipe *pipe, uint32_t number);

/* Returns whether anything waits that the transport was not given yet. */
bool peer_pipe_has_waiting(const struct peer_pipe *pipe);

/* The transport has taken a message. The pipe counts itself, because the transport's own word may
 * be stale. */
void peer_pipe_on_sent(struct peer_pipe *pipe);
