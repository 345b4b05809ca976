/* SPDX-License-Identifier: Apache-2.0 */
/* The state shared by the two halves of a session: peer_session.c has its calls,
 * peer_session_flow.c their messages behind the first, and ahead of the answer's end. */
#pragma once

#include "mesh/edge/peer_gathered.h"
#include "mesh/edge/peer_session.h"

enum { SESSION_PLACE_MASK = PEERS_CALLS_MAX - 1 };

/*
 * A call of the peer's. Who is over first decides: it is out of the session's table from the moment
 * that it is answered or cancelled, and the driver's reference goes once, with `is_over`.
 */
struct incoming {
    struct driver_call call; /* first */
    struct peer_request request;
    struct session *session;
    uint32_t number;
    unsigned references; /* the session's lock: the table's, the driver's, those of who holds it */
    bool is_called;
    bool is_cancelled;
    bool is_over;
    char *said; /* by the runtime in a try that failed; NULL: nothing */
    enum status said_status;
    uint64_t held; /* counted by the session: its message and its memory */
    struct gathered first;
    /* If request.flow is not NULL; the server's thread's: */
    struct peer_flow flow;
    struct gathered more;    /* of a message behind the first */
    bool is_gathering;       /* one */
    bool is_last;            /* of the call's; or it has come */
    uint64_t in;             /* that came and was not taken */
    uint64_t credit;         /* that was taken, and the peer not told */
    uint64_t out;            /* the session's lock: that was sent, and the peer has not taken */
    struct peer_frame frame; /* the call's; its texts: */
    char texts[];
};

/* ---- peer_session.c ---- */

struct incoming *incoming_of(struct peer_request *request);
void incoming_release(struct incoming *incoming);
/* NULL: it is over, or never was. The caller releases it. */
struct incoming *session_find(struct session *session, uint32_t number);
/* Locked: whether the call is still in the table. */
bool incoming_is_there(const struct incoming *incoming);
/* Locked. The stream is to be ended. */
void session_broke(struct session *session);
/* The server's thread: the call is answered with that, and what it does here is cancelled. */
void incoming_refuse(struct incoming *incoming, const struct error *error);

/* ---- peer_session_flow.c ---- */

/* peer_request_type's. */
void incoming_on_part(struct peer_request *request, const struct rpc_answer *part);
void incoming_on_room(struct peer_request *request, uint64_t cost);
void incoming_on_let_go(struct peer_request *request);
/* Frames: a message that begins, a part of one, credit. */
enum status session_on_flow_message(struct session *session, const struct rpc_message *message,
                                    const struct peer_frame *frame,
                                    struct error *error) WARN_UNUSED;
enum status session_on_flow_part(struct incoming *incoming, const struct rpc_message *message,
                                 const struct peer_frame *frame, struct error *error) WARN_UNUSED;
enum status session_on_credit(struct session *session, const struct peer_credit *credit,
                              struct error *error) WARN_UNUSED;
