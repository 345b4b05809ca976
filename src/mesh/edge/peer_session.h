/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream of a peer, seen from the side that is called. The server's thread brings it the
 * peer's frames and its end; answers come on any thread. peer_server.h is the contract.
 */
#pragma once

#include <pthread.h>

#include "mesh/edge/peer_pipe.h"
#include "mesh/edge/peer_server.h"

struct incoming;

/* The state that the sessions of a server share. */
struct peer_house {
    const struct peer_server_options *options;
    struct driver *driver;
    uint32_t queue;
    /* A session is_broken, and is to be ended by the server's thread. Any thread, locks held. */
    void (*on_broken)(void *context);
    void *context;
    struct peer_frame frame; /* of the server's thread */
    char texts[PEER_HEAD_BYTES_MAX];
};

struct session {
    struct peer_house *house;
    pthread_mutex_t lock;  /* of what follows */
    struct rpc_call *call; /* NULL: it is over */
    bool has_heard;
    uint32_t credit_bytes; /* of the peer's hello */
    bool is_broken;
    unsigned references;        /* the server's, and one of each call */
    struct incoming **incoming; /* by a number's low bits */
    uint32_t place_count;
    uint64_t held_bytes;
    int64_t figures_due_ns;
    char *peer;
    struct peer_pipe pipe;
};

/* All on the server's thread. */
struct session *session_create(struct peer_house *house, struct rpc_call *call);
/* An error means a wrong frame: end the session with it. */
enum status session_on_message(struct session *session, const struct rpc_message *message,
                               struct error *error) WARN_UNUSED;
void session_on_sent(struct session *session);
bool session_is_broken(struct session *session);
/* Ends the stream with that, and everything that its calls do here; gives up the session. */
void session_end(struct session *session, enum status status, const char *text);
