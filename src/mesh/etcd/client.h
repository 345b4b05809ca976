/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the calls and streams of one client: connections, endpoints, token, and the
 * cluster as known.
 */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "mesh/etcd/answer.h"
#include "mesh/etcd/endpoints.h"
#include "mesh/etcd/etcd.h"
#include "mesh/etcd/exchange.h"

/* A year: the longest time accepted, so that sums do not overflow. */
#define ETCD_TIME_NS_MAX (365LL * 86400 * NS_PER_S)

TAILQ_HEAD(etcd_calls, etcd_call);
TAILQ_HEAD(etcd_token_waits, etcd_token_wait);

/* A caller that needs a token. */
struct etcd_token_wait {
    TAILQ_ENTRY(etcd_token_wait) link;
    bool waiting;
    /* NULL: there is one, or authentication is off. */
    void (*on_token)(void *context, const struct error *error);
    void *context;
};

struct etcd {
    struct event_base *base;
    struct etcd_wire *wire;
    struct etcd_endpoints endpoints;
    struct etcd_figures figures;
    struct error trouble; /* of the last request that failed */
    int64_t call_timeout_ns;
    size_t pieces_bytes_max; /* of a watch's fragmented revisions */

    struct etcd_calls calls;   /* all */
    struct etcd_calls waiting; /* of those: waiting for another call to end */
    size_t waiting_count;
    size_t running; /* of those that count */
    size_t users;   /* open sessions, watches and mirrors */

    char *user, *password;
    char *token;           /* NULL: none yet, or not needed */
    bool token_known;      /* need not be asked for */
    uint64_t token_number; /* of the last answer to that question */
    struct etcd_call *token_call;
    struct etcd_token_waits token_waits;
    struct etcd_token_wait token_waits_end; /* while they are notified: later ones wait on */

    uint64_t cluster_id;    /* 0: unknown */
    int64_t revision_max;   /* of all answers */
    uint64_t history;       /* how often revisions went back everywhere */
    uint32_t behind_in_row; /* answers with an old revision */
    bool is_full;           /* the last call that needs space did not get it */
};

/* ---- cluster.c ---- */

/* The answer to the question for a token: keeps it and notifies those that wait. */
void etcd_token_take(struct etcd *etcd, const char *token, const struct error *error);
/* Ends a wait: no callback follows. */
void etcd_token_leave(struct etcd *etcd, struct etcd_token_wait *wait);

/* Notes what an answer says about the cluster. False, with `error`: another cluster's answer, or
 * one older than `floor`, the revision known when it was requested (0: any). */
bool etcd_cluster_seen(struct etcd *etcd, size_t endpoint, const struct etcd_answer *answer,
                       int64_t floor, struct error *error);

/* etcd's history does not continue the one seen before. */
void etcd_history_lost(struct etcd *etcd);

/* Checks the ranges of watches and mirrors. */
enum status etcd_ranges_check(const struct etcd_range *ranges, size_t count,
                              struct error *error) WARN_UNUSED;

/* ---- calls ---- */

enum etcd_call_effect {
    ETCD_CALL_READS,  /* may be repeated */
    ETCD_CALL_WRITES, /* only repeated while it certainly was not carried out */
};

enum etcd_call_lane {
    ETCD_LANE_SHARED, /* limited concurrency: one connection each */
    ETCD_LANE_OWN     /* never waits: a lease's life or all other calls depend on it */
};

enum etcd_call_floor {
    ETCD_FLOOR_NONE, /* an old revision is acceptable */
    ETCD_FLOOR_KNOWN /* linearizable: at least the known revision */
};

struct etcd_call_plan {
    const char *path;
    enum etcd_answer_kind kind;
    enum etcd_call_effect effect;
    enum etcd_call_lane lane;
    enum etcd_call_floor floor;
    struct bytes body;   /* taken over */
    bool takes_space[2]; /* whether it puts: [0] if its compares fail, [1] if they hold or there are
                            none */
    size_t response_counts[2]; /* ETCD_KIND_TXN: if its compares fail, and if they hold */
    int64_t attempt_ns;        /* longest single attempt of a read; 0: a third of the total */
    struct etcd_reply reply;
    /* ETCD_KIND_TOKEN: instead of the reply. */
    void (*on_token)(struct etcd *etcd, const char *token, const struct error *error);
};

struct etcd_call *etcd_call_start(struct etcd *etcd, const struct etcd_call_plan *plan);

/* Calls on_token with a token other than `refused_number`'s, at once, or later if it must be asked
 * for. 0: any token will do. */
void etcd_token_get(struct etcd *etcd, uint64_t refused_number, struct etcd_token_wait *wait);
