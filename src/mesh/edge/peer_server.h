/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The address at which this node takes calls from others of its mesh: a server of its own, on a
 * queue that is not, so that one thread takes a call, submits it, gathers its answer and sends
 * that. A frame becomes a driver_call with its hop and its lists; what comes of it goes back under
 * its number, with this node's figures now and then. The other side is peers.h.
 *
 * A stream's frames are judged before they are believed: one that makes no sense, or is for another
 * node, ends the stream. When a stream ends, whatever its calls do here is cancelled.
 */
#pragma once

#include "mesh/edge/driver.h"
#include "mesh/edge/peers.h"
#include "rpc/rpc.h"

enum {
    PEER_SERVER_HELD_BYTES = 256 << 20,    /* of requests of one stream; more: OVERLOADED */
    PEER_SERVER_WAITING_BYTES = 256 << 20, /* of answers that it does not take; more: it is ended */
};

struct peer_server;

struct peer_server_options {
    const char *const *listen; /* as rpc_server_options has it */
    size_t listen_count;
    struct rpc_queue *queue;  /* as rpc_server_options has it; who steps it is "the thread" here */
    struct rpc_tls *tls;      /* NULL: none. Its peer's name is asked of who calls, too */
    const char *instance;     /* this node's id */
    int64_t start_ms;         /* as its record says it */
    size_t message_bytes_max; /* of a request; larger ones: FAILED */
    /* As driver_call_type's: the model is loaded here. What is to be served is call->request, and
     * its on_ended says how that ended. */
    enum driver_begun (*serve)(void *context, struct driver_call *call,
                               const struct driver_attempt *attempt, struct driver_end *end);
    /* The thread: nobody waits any more for what is served. NULL: it runs to its end. */
    void (*cancel)(void *context, struct driver_call *call);
    void *context;
};

/* Binds, and takes nothing yet. Errors as rpc_server_create's. */
enum status peer_server_create(const struct peer_server_options *options,
                               struct peer_server **server, struct error *error) WARN_UNUSED;

/* The port really bound for listen[index]. */
int peer_server_port(const struct peer_server *server, size_t index);

/* Before its queue is stepped: calls are taken then. `queue` is its index among those of peers.h.
 * Without it who calls is told that the node was not started. */
void peer_server_start(struct peer_server *server, struct driver *driver, uint32_t queue);

/* Any thread, once: takes no more calls, and ends every stream. */
void peer_server_stop(struct peer_server *server);

/* After peer_server_stop, peers_close and driver_close, when what was served and the queue have
 * ended. NULL is left alone. */
void peer_server_destroy(struct peer_server *server);
