/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls under way on a stream, on the calling side, by number. The low bits are a place that no
 * other call has, the upper ones count the uses of that place, so late frames of a finished call
 * match nothing. Not an id_table.h: a slot is the call's memory, so that a call allocates nothing.
 *
 * Not locked: the link's lock is held around every function.
 */
#pragma once

#include "mesh/edge/peer_gathered.h"
#include "mesh/edge/peers.h"

struct peer_slot {
    struct peer_request *request; /* NULL: free */
    uint32_t number;
    uint32_t attempt;
    uint32_t next_free;
    /* The peer's answer, or a message of a flow, as it arrives. If it comes in parts, this has
     * the frame that began it. */
    struct peer_gathered message;
    struct rpc_kept *first;
    uint64_t first_offset; /* of the frame within `first` */
    bool is_message;       /* of a flow, not its end */
    bool is_awaited;       /* of a flow: its first message was not sent yet */
    bool is_counted;       /* of a flow: among PEERS_FLOWS_MAX */
    /* Bytes of a flow, as peer_flow_cost counts: */
    uint64_t in;     /* received, not consumed */
    uint64_t credit; /* consumed, not reported to the peer */
    uint64_t out;    /* sent, not consumed by the peer */
};

/* Initialized with zeros. */
struct slots {
    struct peer_slot *all;
    uint32_t count;
    uint32_t used_count;
    uint32_t flow_count; /* of these, with a flow that counts */
    uint32_t first_free; /* index + 1; 0: none */
};

/* NULL: PEERS_CALLS_MAX are under way, or it has a flow that counts and PEERS_FLOWS_MAX have one.
 */
struct peer_slot *slots_take(struct slots *slots, struct peer_request *request, uint32_t attempt);
/* A part of the answer has come, so that the flow counts. False: PEERS_FLOWS_MAX do. */
bool slots_count_flow(struct slots *slots, struct peer_slot *slot);
/* Received messages belong to their taker. */
void slots_free(struct slots *slots, struct peer_slot *slot);
/* NULL: that call is over. */
struct peer_slot *slots_find(const struct slots *slots, uint32_t number);

/* Drops messages that were received and not taken. */
void slot_drop(struct peer_slot *slot);
