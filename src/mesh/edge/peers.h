/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that this node passes on to others. `struct peer_request` is what is passed on, as it came
 * in; peers send it to another node, external.h to a runtime beside this one: both begin a try of
 * a driver_call, and tell its owner how that ended, who tells the driver.
 *
 * To each peer there is one stream per queue of this node's (of its threads that receive calls),
 * opened when a call first goes there; calls on it are told apart by numbers. The answer of a
 * request comes back on the thread of its own queue. A peer that cannot be reached is known as soon
 * as the network says so, and one that does not answer pings after nine seconds; every try on it
 * then ends UNREACHABLE, once. A deadline travels as what is left of it, and is kept by the node
 * that has the call, whose owner cancels, and by the one that serves it: not in between.
 *
 * Threads: each function says it. No lock is held while a request's functions are called, and none
 * of these is called from within a function of this module.
 */
#pragma once

#include "base/clock.h"
#include "mesh/edge/driver.h"
#include "rpc/rpc.h"

/* A peer from which nothing has come for so long is pinged, and given up if it does not answer.
 * Servers of gRPC take more than one ping in 5 s for an attack. */
#define PEERS_PING_NS (6 * NS_PER_S)
#define PEERS_PING_ANSWER_NS (3 * NS_PER_S)

enum {
    PEERS_METADATA_MAX = 64, /* entries passed on with a request, and with each part of an answer */
    PEERS_CALLS_MAX = 1 << 14,     /* under way on one stream; more: OVERLOADED */
    PEERS_FLOWS_MAX = 1 << 9,      /* of these, that have a flow; more: OVERLOADED */
    PEERS_WINDOW_BYTES = 64 << 20, /* that wait for one stream to take them; more: OVERLOADED */
};

/* ---- what is passed on ---- */

struct peer_flow;
struct peer_request;

/* By the request's owner. */
struct peer_request_type {
    /*
     * The try of that number has ended. `answer` with MESH_END_OK, else NULL: what the runtime
     * said, to be given to the caller (rpc_call_answer); lent pieces in it must be used. Any
     * thread; of a try elsewhere, the thread of the request's queue. The owner calls
     * driver_try_ended with the same.
     */
    void (*on_ended)(struct peer_request *request, uint32_t number, const struct driver_end *end,
                     const struct rpc_answer *answer);
    /* Its memory must stay as often as it is held. Any thread, also UNDER THE LOCK of the driver.
     * A try that is abandoned may still hold it for as long as on_ended runs. */
    void (*hold)(struct peer_request *request);
    void (*release)(struct peer_request *request);
    /* Of requests with a flow (peer_flow.h); on the thread of the request's queue. A message of the
     * answer that is not the last word, with the initial metadata if it is the first; without
     * pieces, these alone. Its cost is given back by peer_flow_taken. */
    void (*on_part)(struct peer_request *request, const struct rpc_answer *part);
    /* Of the messages behind the first, so much was taken: there is room for as much. */
    void (*on_room)(struct peer_request *request, uint64_t cost);
    /* Once, after a message behind the first was sent: nobody reads the first one any more, and
     * its pieces are forgotten. NULL: it is kept until the end. */
    void (*on_let_go)(struct peer_request *request);
};

/* The owner's, as it was set until the last one has let go of it. */
struct peer_request {
    const struct peer_request_type *type;
    const char *method;             /* "/package.Service/Method" */
    const struct rpc_piece *pieces; /* of the message, each kept: it may be sent several times */
    size_t piece_count;
    bool
        is_empty; /* there is no message, the pieces are nothing's: a stream that has ended; flow */
    const struct rpc_metadata *metadata; /* those of peers_pass_on */
    size_t metadata_count;               /* at most PEERS_METADATA_MAX */
    uint32_t queue;         /* index of the queue on whose thread the answer is to come */
    struct peer_flow *flow; /* NULL: one message each way */

    /* Of who has the try: NULL before the first. */
    void *link;
    uint32_t number;
    void *served;
    void *awaits;   /* a native try, until the first message or the end of the call comes */
    void *external; /* external.h: that it serves it, apart: who cancels knows not which does */
};

/* Whether an entry of a caller's metadata goes on to runtimes: not ids, which are added anew, not
 * what tells the mesh something ("mm-…"), not what belongs to a connection ("grpc-…"). */
bool peers_pass_on(const struct rpc_metadata *entry);

/* ---- peers ---- */

struct peers;

/* Before the "host:port" of a node that is called over TLS. */
#define PEERS_TLS "tls:"

struct peers_options {
    struct rpc_queue *const *queues; /* stepped by their threads from now on */
    uint32_t queue_count;
    const char *instance; /* this node's id */
    int64_t start_ms;     /* as its record says it */
    /* NULL: none. With it, only peers that have it are called, and without it, only those that do
     * not: the address in their record says so. Lives longer than the peers. */
    struct rpc_tls *tls;
    size_t message_bytes_max; /* of an answer; larger ones end the try as FAILED */
};

struct peers *peers_create(const struct peers_options *options);

/* The peers, for driver_options. */
struct driver_peers peers_for_driver(struct peers *peers);

/* For people. */
struct peers_view {
    uint32_t connected;  /* peers that have said hello, on whatever stream */
    uint32_t calls;      /* that they have of ours */
    uint64_t sent_bytes; /* of messages, without what is around them */
    uint64_t received_bytes;
};
/* Any thread, until peers_destroy. Goes through all peers. */
void peers_look(struct peers *peers, struct peers_view *view);

/* Any thread, until peers_destroy. Since when that peer cannot be reached, on clock_now_ns; 0: it
 * can, or nothing was sent there. */
int64_t peers_unreachable_ns(struct peers *peers, const char *instance);
/* Any thread, until peers_close, once a second: tries those again that could not be reached, at
 * growing intervals, and asks some for their clocks, to which streams are opened. */
void peers_probe(struct peers *peers);

/* Loop thread. Every try ends UNREACHABLE, on its queue's thread, and so does each that is begun
 * later. Queues end only after this. */
void peers_close(struct peers *peers);

/* When every queue has ended. NULL is left alone. */
void peers_destroy(struct peers *peers);
