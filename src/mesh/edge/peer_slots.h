/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls under way on a stream, seen from the side that calls, each by a number of its own. Its
 * low bits are a place that no other has, the others say which use of the place it is: so what
 * comes late for a call that is over belongs to nothing.
 *
 * Not locked: the link's lock is held around every function.
 */
#pragma once

#include "mesh/edge/peer_gathered.h"
#include "mesh/edge/peers.h"

struct slot {
    struct peer_request *request; /* NULL: free */
    uint32_t number;
    uint32_t attempt;
    uint32_t next_free;
    /* Its answer, or a message of a flow, as it comes. In parts: the frame that began it. */
    struct gathered message;
    struct rpc_kept *first;
    uint64_t first_offset; /* of the frame, in `first` */
    bool is_message;       /* of a flow, and not the last word */
    bool is_awaited;       /* of a flow: its first message was not sent yet */
    /* Of a flow, as peer_flow_cost counts: */
    uint64_t in;     /* that came and was not taken */
    uint64_t credit; /* that was taken, and the peer not told */
    uint64_t out;    /* that was sent, and the peer has not taken */
};

/* Begins as all zeros. */
struct slots {
    struct slot *all;
    uint32_t count;
    uint32_t used_count;
    uint32_t flow_count; /* of these, that have a flow */
    uint32_t first_free; /* index + 1; 0: none */
};

/* NULL: there are PEERS_CALLS_MAX, or it has a flow and PEERS_FLOWS_MAX have. */
struct slot *slots_take(struct slots *slots, struct peer_request *request, uint32_t attempt);
/* The messages it had received belong to their taker. */
void slots_free(struct slots *slots, struct slot *slot);
/* NULL: that call is over. */
struct slot *slots_find(const struct slots *slots, uint32_t number);

/* Drops the messages that were received and not taken. */
void slot_drop(struct slot *slot);
