/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The address at which this node takes calls from others of its mesh: a server of its own, with a
 * thread of its own. A frame becomes a driver_call with its hop and its lists; what comes of it
 * goes back under its number, with this node's figures now and then. The other side is peers.h.
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
    struct rpc_tls *tls;      /* NULL: none. Its peer's name is asked of who calls, too */
    const char *instance;     /* this node's id */
    int64_t start_ms;         /* as its record says it */
    size_t message_bytes_max; /* of a request; larger ones: FAILED */
    /* As driver_call_type's: the model is loaded here. What is to be served is call->request, and
     * its on_ended says how that ended. */
    enum driver_begun (*serve)(void *context, struct driver_call *call,
                               const struct driver_attempt *attempt, struct driver_end *end);
    /* Server's thread: nobody waits any more for what is served. NULL: it runs to its end. */
    void (*cancel)(void *context, struct driver_call *call);
    void *context;
};

/* Binds, and takes nothing yet. Errors as rpc_server_create's. */
enum status peer_server_create(const struct peer_server_options *options,
                               struct peer_server **server, struct error *error) WARN_UNUSED;

/* Of its thread: to be one of the queues of peers.h. */
struct rpc_queue *peer_server_queue(struct peer_server *server);
/* The port really bound for listen[index]. */
int peer_server_port(const struct peer_server *server, size_t index);

/* Starts the thread. `queue` is the index of its queue among those of peers.h. */
void peer_server_start(struct peer_server *server, struct driver *driver, uint32_t queue);

/* Any thread, once: takes no more calls, and ends every stream. */
void peer_server_stop(struct peer_server *server);

/* After peer_server_stop (or without a start), peers_close and driver_close, when what was served
 * has ended: waits for the thread. NULL is left alone. */
void peer_server_destroy(struct peer_server *server);
