/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline's answer in pieces to a call of the mesh whose owner takes them: it has a flow. A
 * piece is passed on as it comes, one window ahead of the owner; the others wait here, copied, at
 * most the pipeline's `stream_mib` of them. The end waits behind them. Beside one piece each, all
 * answers of the node hold MESH_PIECES_HELD_MAX, or one stream_mib: a caller may have any number of
 * them at a node that it does not read from.
 *
 * Threads: any. Pieces are passed on under a lock of this module, which is taken within a lane's
 * `pieces_lock`; `on_end` is called without one.
 */
#pragma once

#include "mesh/edge/peers.h"

enum {
    MESH_PIECES_HELD_MAX = 256 << 20,
    MESH_PIECE_COST = 32, /* of a piece that waits, beside its bytes */
};
#define MESH_PIECES_CROWDED                                                                        \
    "the caller reads too slowly, and unread answers fill the 256 MiB that the serving node has "  \
    "for them"

struct mesh_pieces;

struct mesh_pieces_options {
    struct peer_request *request; /* has a flow */
    /* The end has waited, and nothing waits any more. Not under the lock of the runner. */
    void (*on_end)(void *context, const struct rpc_answer *answer);
    void *context;
};

/* Call before the flow is attached. */
struct mesh_pieces *mesh_pieces_create(const struct mesh_pieces_options *options);
/* Call when the try has ended. NULL is ignored. */
void mesh_pieces_destroy(struct mesh_pieces *pieces);

/* The `piece` of a request_sink. */
enum status mesh_pieces_put(struct mesh_pieces *pieces, const struct rpc_piece *of_piece,
                            size_t count, uint64_t unread_max) WARN_UNUSED;
/* A piece was refused because of MESH_PIECES_HELD_MAX: the reason is MESH_PIECES_CROWDED, whatever
 * the pipeline says. NULL: it was not. */
bool mesh_pieces_is_full(struct mesh_pieces *pieces);
/* The owner has been passed a piece, so the try must not be repeated. NULL: it has not. */
bool mesh_pieces_has_begun(struct mesh_pieces *pieces);
/* The request has ended. True: pieces wait, so the answer was copied, and on_end follows. */
bool mesh_pieces_end(struct mesh_pieces *pieces, const struct rpc_answer *answer) WARN_UNUSED;

/* Both may find none. The owner has consumed so much of the answer, as `taken` of a peer_flow_sink
 * whose context is the request. */
void mesh_pieces_taken(void *request, uint64_t cost);
/* The caller has gone: drops what waits. */
void mesh_pieces_cancel(const struct peer_request *request);
