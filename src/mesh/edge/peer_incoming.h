/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the two halves of a session: peer_session.c has its calls, peer_session_flow.c
 * messages after the first and before the answer's end. */
#pragma once

#include "mesh/edge/peer_gathered.h"
#include "mesh/edge/peer_session.h"

enum { SESSION_PLACE_MASK = PEERS_CALLS_MAX - 1 };

/*
 * A call of the peer's. The first end decides: the call leaves the session's table when it is
 * answered or cancelled, and the runner's reference is released once, with `is_over`.
 */
struct incoming {
    struct runner_call call; /* first */
    struct peer_request request;
    struct peer_session *session;
    uint32_t number;
    unsigned references; /* the session's lock: the table's, the runner's, and temporary ones */
    bool is_called;
    bool is_cancelled;
    bool is_over;
    char *said; /* by the runtime in a failed try; NULL: nothing */
    enum status said_status;
    uint64_t held; /* bytes counted by the session: message and memory */
    struct peer_gathered first;
    /* Set for calls with a flow, and owned by the server's thread: */
    struct peer_flow flow;
    struct peer_gathered more; /* a message after the first, as it arrives */
    bool is_gathering;         /* of `more` */
    bool is_last;              /* the call's last message is being gathered, or has arrived */
    uint64_t in;               /* received, not consumed */
    uint64_t credit;           /* consumed, not reported to the peer */
    uint64_t out;              /* the session's lock: sent, not consumed by the peer */
    struct peer_frame frame;   /* of the call; its texts: */
    char texts[];
};

/* ---- peer_session.c ---- */

struct incoming *incoming_of(struct peer_request *request);
void incoming_release(struct incoming *incoming);
/* NULL: over, or never existed. The caller releases it. */
struct incoming *session_find(struct peer_session *session, uint32_t number);
/* Locked: whether the call is still in the table. */
bool incoming_is_there(const struct incoming *incoming);
/* Locked. Marks the stream to be ended. */
void session_broke(struct peer_session *session);
/* The server's thread: answers the call with the error and cancels it here. */
void incoming_refuse(struct incoming *incoming, const struct error *error);

/* ---- peer_session_flow.c ---- */

/* The functions of peer_request_type. */
void incoming_on_part(struct peer_request *request, const struct rpc_answer *part);
void incoming_on_room(struct peer_request *request, uint64_t cost);
void incoming_on_first_released(struct peer_request *request);
/* Frames: a message that begins, a part of one, credit. */
enum status session_on_flow_message(struct peer_session *session,
                                    const struct wire_message *message,
                                    const struct peer_frame *frame,
                                    struct error *error) WARN_UNUSED;
enum status session_on_flow_part(struct incoming *incoming, const struct wire_message *message,
                                 const struct peer_frame *frame, struct error *error) WARN_UNUSED;
enum status session_on_credit(struct peer_session *session, const struct peer_credit *credit,
                              struct error *error) WARN_UNUSED;
