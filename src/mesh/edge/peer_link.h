/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream to one peer, on one queue, seen from the side that calls: which request has which
 * number, and what has come of its answer. peers.h is the contract.
 *
 * A link's memory is used again for other peers but not freed while there are peers, so a request
 * may name its link for longer than the link is its. Functions lock the link; those that say so
 * are called with it locked.
 */
#pragma once

#include <pthread.h>

#include "mesh/edge/peer_pipe.h"
#include "mesh/edge/peer_slots.h"
#include "mesh/edge/peers.h"

struct link {
    struct link *next; /* of all */
    struct link *next_free;
    struct peers *peers;
    struct peer_scratch *scratch; /* of the queue's thread */
    pthread_mutex_t lock;         /* of what follows */
    bool is_used;
    bool is_leaving;        /* no more calls; it ends when the last has */
    bool has_heard;         /* the peer's hello */
    uint32_t credit_bytes;  /* of its hello */
    bool has_clock;         /* and it answers clock frames */
    bool has_warned;        /* that it cannot be reached */
    int64_t unreachable_ns; /* since when, on clock_now_ns; 0: it is not known to be */
    int64_t probed_ns;      /* since then: when it was tried again last, or became unreachable */
    bool is_refused;        /* it has broken the protocol, and is not listened to any more */
    char *instance;
    char *address;
    struct rpc_client *client;    /* NULL: none was needed yet, or all is over */
    uint64_t tls_version;         /* of the certificates that it has */
    struct rpc_client_call *call; /* NULL: no stream */
    int64_t start_ms;             /* of the peer's process */
    struct peer_pipe pipe;
    struct slots slots;
    /* Since the memory was made, for whatever peers. */
    uint64_t sent_bytes; /* messages of calls, that were put into the pipe */
    uint64_t received_bytes;
};

/* The memory that frames are read into, on one thread. */
struct peer_scratch {
    struct rpc_queue *queue;
    struct peer_frame frame;
    char texts[PEER_HEAD_BYTES_MAX];
};

#define PEER_SERVICE "shoal.peer.Peer"
#define PEER_METHOD "/" PEER_SERVICE "/Exchange"

void link_init(struct link *link, struct peers *peers);
/* When its queue has ended. */
void link_fini(struct link *link);

/* peer_client.c. Locked, without a stream: it has a client, with the certificates of now. False: it
 * cannot have one, which is logged. */
bool link_client(struct link *link, const struct peers_options *options);

/* Locked. The peer is unreachable, if it is not known to be. */
void link_mark(struct link *link);
/* Locked. Opens the stream of an unreachable peer again, if that is due: at intervals that double,
 * up to half a minute. */
void link_probe(struct link *link, const struct peers_options *options);

/* Locked. False: the peer is known not to be reachable. */
bool link_open(struct link *link, const struct peers_options *options);

/* Locked. The request is on its way, or `end` says why it is not. */
enum driver_begun link_forward(struct link *link, const struct driver_attempt *attempt,
                               struct peer_request *request, struct driver_end *end);
/* Locked. */
void link_ensure(struct link *link, const struct driver_ensure *ensure);

/* Locked. Asks the peer for its clock, if it has said hello and answers that. */
void link_ask_clock(struct link *link);

/* True: the request was this link's, in that try, and no longer is; the caller releases it. */
bool link_abandon(struct link *link, const struct peer_request *request, uint32_t attempt);

/* The peer has gone from the registry, or has moved: what is under way may end. */
void link_leave(struct link *link);
/* All ends now. */
void link_close(struct link *link);

/* peers.c: the link is free for others. Called unlocked. */
void peers_link_free(struct peers *peers, struct link *link);
const struct peers_options *peers_options_of(const struct peers *peers);
struct skew *peers_skew(const struct peers *peers);
