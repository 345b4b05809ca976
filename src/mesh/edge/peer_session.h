/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One stream of a peer, on the called side. The server's thread delivers the peer's frames and its
 * end; answers come on any thread. peer_server.h is the contract.
 */
#pragma once

#include <pthread.h>

#include "mesh/edge/peer_pipe.h"
#include "mesh/edge/peer_server.h"

struct incoming;

/* State shared by the sessions of a server. */
struct peer_house {
    const struct peer_server_options *options;
    struct mesh_runner *runner;
    uint32_t queue;
    /* A session is_broken and must be ended by the server's thread. Any thread, locks held. */
    void (*on_broken)(void *context);
    void *context;
    struct peer_frame frame; /* of the server's thread */
    char texts[PEER_HEAD_BYTES_MAX];
};

struct peer_session {
    struct peer_house *house;
    pthread_mutex_t lock;  /* of the fields below */
    struct rpc_call *call; /* NULL: over */
    bool has_hello;
    uint32_t credit_bytes; /* from the peer's hello */
    bool is_broken;
    bool has_said_bye;          /* ignores the peer's input */
    unsigned references;        /* the server's and one per call */
    struct incoming **incoming; /* by the low bits of a number */
    uint32_t place_count;
    uint64_t held_bytes;
    int64_t figures_due_ns;
    char *peer;
    struct peer_pipe pipe;
};

/* All on the server's thread. */
struct peer_session *session_create(struct peer_house *house, struct rpc_call *call);
/* An error means a wrong frame: end the session with it. */
enum status session_on_message(struct peer_session *session, const struct wire_message *message,
                               struct error *error) WARN_UNUSED;
void session_on_sent(struct peer_session *session);
bool session_is_broken(struct peer_session *session);
/* Tells the peer that no answer follows, once nothing waits for the transport. The peer, which has
 * then read all of them, ends the stream. */
void session_say_bye(struct peer_session *session);
/* Ends the stream with the status and everything that its calls do here; releases the session. */
void session_end(struct peer_session *session, enum status status, const char *text);
