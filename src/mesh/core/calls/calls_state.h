/* SPDX-License-Identifier: Apache-2.0 */
/* State of the calls that this node answers. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/cluster/place.h"
#include "mesh/core/containers/heap.h"

enum { QUESTIONS_MAX = 256 }; /* R13 */

#define CALL_NONE UINT32_MAX

enum core_call_state {
    CALL_FREE,
    CALL_ROUTING,
    CALL_WAITING,
    CALL_SERVED,
    CALL_THERE,
    CALL_PARKED, /* V8: waits until the mirror shows its vmodel's new model */
    CALL_QUEUED, /* R14: waits for room */
    CALL_ASKING, /* R13: waits for etcd's word on an unknown id */
};

struct core_call {
    int64_t deadline_ms;
    uint64_t create_revision;
    int64_t there_since_ms;
    int64_t parked_ms; /* V8: now_ms when it was first parked; 0: never */
    int64_t queued_ms; /* R14: now_ms when it first waited for room */
    int64_t asked_ms;  /* R14: now_ms when a load was last tried for it */
    int64_t waits_ms;  /* WAITING: now_ms of the start */
    uint64_t arrival;  /* R14: order of arrival; 0: never waited for room */
    uint32_t model;    /* ASKING for a vmodel: NAME_NONE */
    uint32_t vmodel;   /* V7: NAME_NONE: none */
    uint32_t number;   /* of the last try */
    uint32_t next;     /* link of the list it is on */
    uint32_t entry;    /* WAITING, SERVED */
    uint16_t there;    /* THERE */
    uint8_t there_hop;
    uint8_t state;
    uint8_t hop;
    uint8_t balance;
    uint8_t tries;
    uint8_t overloads;
    uint8_t tried_count;
    uint8_t turns;          /* V8: moves to another model of the vmodel */
    bool gone : 1;          /* a peer reported that the model's record is gone */
    bool let_go : 1;        /* R14: it is this call's turn */
    bool non_retryable : 1; /* R15 */
    bool moved : 1;         /* R17: it has left a load that took too long */
    bool refused : 1;       /* R12: a runtime has refused it before the last pause */
    struct tried tried[MESH_TRIED_MAX];
};

struct calls {
    struct core_call *at;
    uint32_t capacity;
    struct heap deadlines; /* of waiting calls */
    uint32_t routing;      /* list of calls to route, in order */
    uint32_t routing_last;
    uint32_t parked; /* list of parked calls (V8) */
    uint64_t sent;
};

/* R14: calls that wait for room, by arrival. */
struct room_queue {
    uint32_t first;
    uint32_t last;
    uint64_t arrivals;
    bool due; /* something may have changed for them */
};

/* R13: an unknown id that calls of the last second asked for. */
struct core_question {
    uint64_t txn; /* the transaction that is out; 0: none */
    uint32_t model;
    uint32_t vmodel; /* one of model and vmodel is NAME_NONE; both: free */
    uint32_t asked;  /* list of calls that the transaction answers */
    uint32_t later;  /* list of calls that arrived since */
    uint32_t times;  /* number of questions this second */
};

struct questions {
    struct core_question at[QUESTIONS_MAX];
    uint32_t asking; /* number of calls in state ASKING */
};
