/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that this node passes on. `struct peer_request` is such a call as it came in: peers send it
 * to another node, external.h to a runtime beside this one. Both begin a try of a runner_call and
 * report its end to the request's owner, which reports to the runner.
 *
 * Each peer and queue (thread that receives calls) share one stream, opened when the first call
 * goes there; numbers distinguish its calls. A request is answered on its own queue's thread. An
 * unreachable peer is known as soon as the network reports it, a silent one after nine seconds
 * without an answer to a ping; every try on it then ends UNREACHABLE, once. A deadline travels as
 * time left and is enforced by the node that has the call, whose owner cancels, and by the serving
 * node.
 *
 * Threads: stated at each function. No lock is held while a request's functions are called, and
 * none of these is called from within a function of this module.
 */
#pragma once

#include "base/clock.h"
#include "mesh/edge/runner.h"
#include "rpc/rpc.h"

/* A peer that has been silent this long is pinged, and given up if it does not answer. gRPC servers
 * treat more than one ping in 5 s as an attack. */
#define PEERS_PING_NS (6 * NS_PER_S)
#define PEERS_PING_ANSWER_NS (3 * NS_PER_S)

enum {
    PEERS_METADATA_MAX = 64, /* entries passed on with a request and with each part of an answer */
    PEERS_CALLS_MAX = 1 << 14,     /* on one stream; more: OVERLOADED */
    PEERS_FLOWS_MAX = 1 << 9,      /* of these with a flow; more: OVERLOADED */
    PEERS_WINDOW_BYTES = 64 << 20, /* waiting for one stream; more: OVERLOADED */
};

/* ---- forwarded calls ---- */

struct peer_flow;
struct peer_request;

/* Implemented by the request's owner. */
struct peer_request_type {
    /*
     * The try with that number has ended. With MESH_END_OK `answer` is the runtime's, for the
     * caller (rpc_call_answer), and its lent pieces must be used; otherwise NULL. Any thread; of a
     * try elsewhere, the thread of the request's queue. The owner calls runner_try_ended with the
     * same arguments.
     */
    void (*on_ended)(struct peer_request *request, uint32_t number, const struct runner_end *end,
                     const struct rpc_answer *answer);
    /* Reference counting of the request's memory. Any thread, also UNDER THE LOCK of the runner. An
     * abandoned try may hold it while on_ended runs. */
    void (*hold)(struct peer_request *request);
    void (*release)(struct peer_request *request);
    /* Passes a message of the answer before its end, whose lent pieces must be used, with the
     * initial metadata if it is the first; without pieces, only these. Called for requests with a
     * flow (peer_flow.h), on the thread of the request's queue; if a pipeline answers, on any
     * thread, one at a time. peer_flow_taken returns its cost. */
    void (*on_part)(struct peer_request *request, const struct rpc_answer *part);
    /* So much of the messages after the first was consumed: there is room for as much. */
    void (*on_room)(struct peer_request *request, uint64_t cost);
    /* Called once, after a message behind the first was sent: the first one is not read any more
     * and its pieces are forgotten. NULL: it is kept until the end. */
    void (*on_first_released)(struct peer_request *request);
};

/* Owned by the owner; unchanged until the last reference is released. */
struct peer_request {
    const struct peer_request_type *type;
    const char *method;             /* "/package.Service/Method" */
    const struct rpc_piece *pieces; /* of the message; kept, since it may be sent several times */
    size_t piece_count;
    bool is_empty; /* a stream that ended without a message; `pieces` is empty; needs a flow */
    const struct rpc_metadata *metadata; /* filtered by peers_pass_on */
    size_t metadata_count;               /* at most PEERS_METADATA_MAX */
    uint32_t queue;                      /* index of the queue whose thread gets the answer */
    struct peer_flow *flow;              /* NULL: one message each way */

    /* Set by the current try's owner; NULL before the first. */
    void *link;
    uint32_t number;
    void *served;
    void *awaits;    /* a native try, until the first message or the end of the call comes */
    void *in_pieces; /* a native try's answer, if it comes in pieces (mesh_pieces.h) */
    void *external;  /* external.h; separate from `served`, because a cancellation does not know
                        which one applies */
    void *runtime;   /* external.h, from the first try there on: whose `external` it is */
};

/* Returns whether an entry of a caller's metadata goes on to runtimes: no ids, which are added
 * again, no entries for the mesh ("mm-…"), no entries of the connection ("grpc-…"). */
bool peers_pass_on(const struct rpc_metadata *entry);

/* ---- peers ---- */

struct peers;

/* Precedes the "host:port" of a node that is called over TLS. */
#define PEERS_TLS "tls:"

struct peers_options {
    struct rpc_queue *const *queues; /* stepped by their threads from now on */
    uint32_t queue_count;
    const char *instance; /* this node's id */
    int64_t start_ms;     /* as in its record */
    /* NULL: none. Only peers in the same mode are called; their addresses state the mode. Outlives
     * the peers. */
    struct rpc_tls *tls;
    size_t message_bytes_max; /* of an answer; a larger one ends the try FAILED */
};

struct peers *peers_create(const struct peers_options *options);

/* The peers, for runner_options. */
struct runner_peers peers_for_runner(struct peers *peers);

/* Figures for people. */
struct peers_view {
    uint32_t connected;  /* peers that have said hello on any stream */
    uint32_t calls;      /* of this node's, under way there */
    uint64_t sent_bytes; /* payload bytes */
    uint64_t received_bytes;
};
/* Any thread, until peers_destroy. Visits all peers. */
void peers_look(struct peers *peers, struct peers_view *view);

/* Any thread, until peers_destroy. Since when that peer is unreachable, on clock_now_ns; 0:
 * reachable, or never used. */
int64_t peers_unreachable_ns(struct peers *peers, const char *instance);
/* Any thread, until peers_close, once a second: retries unreachable peers at growing intervals and
 * asks some for their clocks, opening streams for that. */
void peers_probe(struct peers *peers);

/* Loop thread. Every try, and each begun later, ends UNREACHABLE on its queue's thread. Queues must
 * not end before this. */
void peers_close(struct peers *peers);

/* Call when every queue has ended. NULL is ignored. */
void peers_destroy(struct peers *peers);
