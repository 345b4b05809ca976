/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Accepts calls from other nodes of the mesh: a server of its own on a queue of the front, so one
 * thread reads a call, submits it, gathers its answer and sends that. A frame becomes a runner_call
 * with its hop and its lists; the result returns under its number, at times with this node's
 * figures. The other side is peers.h.
 *
 * Frames are validated: one that is senseless or meant for another node ends the stream. When a
 * stream ends, the work for its calls here is cancelled.
 */
#pragma once

#include "mesh/edge/runner.h"
#include "mesh/edge/peers.h"
#include "rpc/rpc.h"

enum {
    PEER_SERVER_HELD_BYTES = 256 << 20,    /* of requests of one stream; more: OVERLOADED */
    PEER_SERVER_WAITING_BYTES = 256 << 20, /* of unread answers; more: the stream is ended */
};

struct peer_server;

struct peer_server_options {
    const char *const *listen; /* as in rpc_server_options */
    size_t listen_count;
    struct rpc_queue *queue;  /* as in rpc_server_options; "the thread" below steps it */
    struct rpc_tls *tls;      /* NULL: none. Its peer name is required of callers, too */
    const char *instance;     /* this node's id */
    int64_t start_ms;         /* as in its record */
    size_t message_bytes_max; /* of a request; larger ones end FAILED */
    /* Like `serve` of runner_call_type: the model is loaded here. The call's request is to be
     * served, and its on_ended reports the end. */
    enum runner_begun (*serve)(void *context, struct runner_call *call,
                               const struct runner_attempt *attempt, struct runner_end *end);
    /* The thread: the result is not wanted any more. NULL: it runs to its end. */
    void (*cancel)(void *context, struct runner_call *call);
    void *context;
};

/* Binds without accepting yet. Errors as in rpc_server_create. */
enum status peer_server_create(const struct peer_server_options *options,
                               struct peer_server **server, struct error *error) WARN_UNUSED;

/* The bound port of listen[index]. */
int peer_server_port(const struct peer_server *server, size_t index);

/* Begins to accept calls. Call before its queue is stepped. `queue` is its index among those of
 * peers.h. Callers of a server that was not started get an answer that says so. */
void peer_server_start(struct peer_server *server, struct mesh_runner *runner, uint32_t queue);

/* Any thread, once: accepts no more streams and notifies each peer, behind the answers that wait
 * for it, that no more follow. The peer then ends its stream, which cancels calls without an
 * answer. */
void peer_server_stop(struct peer_server *server);

/* Returns, after peer_server_stop, whether a peer has yet to end its stream. One that does not
 * read, or that never said hello, keeps this true until peer_server_cut. */
bool peer_server_is_sending(const struct peer_server *server);

/* Any thread, once, after peer_server_stop: drops every connection with its unsent answers. */
void peer_server_cut(struct peer_server *server);

/* Call after peer_server_cut, peers_close and runner_close, when served calls and the queue have
 * ended. NULL is ignored. */
void peer_server_destroy(struct peer_server *server);
