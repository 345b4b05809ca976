/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream to one peer on one queue, on the calling side: which request has which number and what
 * has arrived of its answer. peers.h is the contract.
 *
 * A link's memory is reused for other peers but not freed while peers exist, so a request may name
 * its link for longer than it belongs to it. Functions lock the link unless they are marked
 * "locked".
 */
#pragma once

#include <pthread.h>

#include "mesh/edge/peer_pipe.h"
#include "mesh/edge/peer_slots.h"
#include "mesh/edge/peers.h"

struct peer_link {
    struct peer_link *next; /* of all links */
    struct peer_link *next_free;
    struct peers *peers;
    struct peer_scratch *scratch; /* of the queue's thread */
    pthread_mutex_t lock;         /* of the fields below */
    bool is_used;
    bool is_leaving;        /* takes no more calls and ends with the last one */
    bool has_hello;         /* the peer's hello */
    uint32_t credit_bytes;  /* from its hello */
    bool has_clock;         /* it answers clock frames */
    bool has_warned;        /* that the peer is unreachable */
    int64_t unreachable_ns; /* since when, on clock_now_ns; 0: not known to be */
    int64_t probed_ns;      /* while unreachable: the last attempt, or the beginning */
    bool is_over;           /* it broke the protocol or said bye: no more is read */
    bool has_said_bye;
    char *instance;
    char *address;
    struct rpc_client *client;    /* NULL: not needed yet, or closed */
    uint64_t tls_version;         /* of its certificates */
    struct rpc_client_call *call; /* NULL: no stream */
    int64_t start_ms;             /* of the peer's process */
    struct peer_pipe pipe;
    struct slots slots;
    /* Totals since the memory was allocated, for all its peers. */
    uint64_t sent_bytes; /* of calls, put into the pipe */
    uint64_t received_bytes;
};

/* Memory for reading frames on one thread. */
struct peer_scratch {
    struct rpc_queue *queue;
    struct peer_frame frame;
    char texts[PEER_HEAD_BYTES_MAX];
};

#define PEER_SERVICE "shoal.peer.Peer"
#define PEER_METHOD "/" PEER_SERVICE "/Exchange"

void link_init(struct peer_link *link, struct peers *peers);
/* Call when its queue has ended. */
void link_fini(struct peer_link *link);

/* peer_client.c. Locked, without a stream: ensures a client with the current certificates. False:
 * impossible, which is logged. */
bool link_client(struct peer_link *link, const struct peers_options *options);

/* Locked. Marks the peer unreachable unless it is already. */
void link_mark(struct peer_link *link);
/* Locked. Reopens the stream of an unreachable peer when due: at intervals that double up to half a
 * minute. */
void link_probe(struct peer_link *link, const struct peers_options *options);

/* Locked. False: the peer is known to be unreachable. */
bool link_open(struct peer_link *link, const struct peers_options *options);

/* Locked. Sends the request, or sets `end` to the reason why it cannot. */
enum runner_begun link_forward(struct peer_link *link, const struct runner_attempt *attempt,
                               struct peer_request *request, struct runner_end *end);
/* Locked. */
void link_ensure(struct peer_link *link, const struct mesh_ensure *ensure);

/* Locked. Asks for the peer's clock if its hello said that it answers. */
void link_ask_clock(struct peer_link *link);

/* True: the request was this link's, in that try, and no longer is; the caller releases it. */
bool link_abandon(struct peer_link *link, const struct peer_request *request, uint32_t attempt);

/* The peer has left the registry or has moved: calls under way may finish. */
void link_leave(struct peer_link *link);
/* Ends everything now. */
void link_close(struct peer_link *link);

/* peers.c: the link may be reused. Called unlocked. */
void peers_link_free(struct peers *peers, struct peer_link *link);
const struct peers_options *peers_options_of(const struct peers *peers);
struct skew *peers_skew(const struct peers *peers);
