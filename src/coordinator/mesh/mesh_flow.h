/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's side of a call of the mesh with any number of messages each way: between rpc_any and
 * a peer_flow. The call begins at the end of the step in which its first message came, or earlier
 * if another message or the end has come: so a call with one message is known to have no more and
 * costs nothing extra. A call that ends without any message begins at the end of that step, too. A
 * call whose first message is awaited begins at once. DESIGN-calls.md.
 *
 * Or between an adapter that takes the answer in pieces (entry/inbound.h) and a peer_flow: then the
 * call is complete at once.
 *
 * Threads. mesh_flow_claim and, of a pipeline's answer, mesh_flow_part on any, the rest on the
 * thread of the call's queue; of an adapter all on any.
 */
#pragma once

#include "coordinator/entry/inbound.h"
#include "mesh/edge/peer_flow.h"

struct mesh_flow;

struct mesh_flow_options {
    struct peer_request *request;    /* gets the flow; may be is_empty */
    const struct inbound_type *type; /* of an adapter; the next four are not used then, but: */
    void *inbound;                   /* its call */
    struct rpc_call *call;
    bool is_complete;             /* of RPC_SERVER_STREAM: no more comes; of the rest is used: */
    bool counts_late;             /* as in peer_flow.h */
    bool is_awaited;              /* its first message has not come: mesh_flow_begin follows */
    struct rpc_queue *queue;      /* of the call */
    void (*begin)(void *context); /* once, unless mesh_flow_stop was first */
    void *context;
};

/* Within the callback with the first message, or with the end, or with neither. */
struct mesh_flow *mesh_flow_create(const struct mesh_flow_options *options);
/* Begins the call without its first message; call and flow may have ended on return. */
void mesh_flow_begin(struct mesh_flow *flow);
/* Call with the end of the request. NULL is ignored. */
void mesh_flow_destroy(struct mesh_flow *flow);

/* Call when nobody waits for the call any more. Returns true if it has not begun, and will not. */
bool mesh_flow_stop(struct mesh_flow *flow);
/* Returns true for the one caller that ends the rpc_call; the flow does not touch that any more. */
bool mesh_flow_claim(struct mesh_flow *flow);

/* The events of rpc_any. If the status is not OK, end the call with it. */
enum status mesh_flow_message(struct mesh_flow *flow, const struct wire_message *message,
                              struct error *error) WARN_UNUSED;
enum status mesh_flow_half_close(struct mesh_flow *flow, struct error *error) WARN_UNUSED;
void mesh_flow_sent(struct mesh_flow *flow);
/* The adapter has consumed a piece of so many bytes. */
void mesh_flow_taken(struct mesh_flow *flow, uint64_t bytes);

/* The sizes of the messages after the first, and of those passed back before the last. */
struct mesh_flow_bytes {
    uint64_t there;
    uint64_t back;
};
/* Returns the final counts, to the claimant, after mesh_flow_claim. */
struct mesh_flow_bytes mesh_flow_bytes(const struct mesh_flow *flow);

/* The events for the request's type. */
void mesh_flow_part(struct mesh_flow *flow, const struct rpc_answer *part);
void mesh_flow_room(struct mesh_flow *flow, uint64_t cost);
