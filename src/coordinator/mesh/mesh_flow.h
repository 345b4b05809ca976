/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's side of a call of the mesh with any number of messages each way: between rpc_any and
 * a peer_flow. The call begins when its first message is there and the step in which it came has
 * ended, or before, if what follows has come: so a caller with one message is known to have no
 * more, and costs the mesh nothing beyond that. One that ends without any message begins at the end
 * of that step, too. One whose first message is awaited begins at once. DESIGN.md.
 *
 * Threads. mesh_flow_claim on any, the rest on the thread of the call's queue.
 */
#pragma once

#include "mesh/edge/peer_flow.h"

struct mesh_flow;

struct mesh_flow_options {
    struct peer_request *request; /* gets the flow; may be is_empty */
    bool is_awaited;              /* its first message: mesh_flow_begin follows */
    struct rpc_call *call;
    struct rpc_queue *queue;      /* of the call */
    void (*begin)(void *context); /* once, unless mesh_flow_stop was first */
    void *context;
};

/* Within the callback with the first message, or with the end, or with neither. */
struct mesh_flow *mesh_flow_create(const struct mesh_flow_options *options);
/* The call begins without its first message; it may have ended, with the flow, on return. */
void mesh_flow_begin(struct mesh_flow *flow);
/* With the request. NULL is left alone. */
void mesh_flow_destroy(struct mesh_flow *flow);

/* Nobody waits for the call. True: it has not begun, and will not. */
bool mesh_flow_stop(struct mesh_flow *flow);
/* Whether it is this one who ends the rpc_call; the flow does not touch it any more. */
bool mesh_flow_claim(struct mesh_flow *flow);

/* The events of rpc_any. If the status is not OK, end the call with it. */
enum status mesh_flow_message(struct mesh_flow *flow, const struct rpc_message *message,
                              struct error *error) WARN_UNUSED;
enum status mesh_flow_half_close(struct mesh_flow *flow, struct error *error) WARN_UNUSED;
void mesh_flow_sent(struct mesh_flow *flow);

/* Messages behind the one that the call began with, and those passed back before the last word. */
struct mesh_flow_bytes {
    uint64_t there;
    uint64_t back;
};
/* To who has claimed it: it counts no more. */
struct mesh_flow_bytes mesh_flow_bytes(const struct mesh_flow *flow);

/* The events for the request's type. */
void mesh_flow_part(struct mesh_flow *flow, const struct rpc_answer *part);
void mesh_flow_room(struct mesh_flow *flow, uint64_t cost);
