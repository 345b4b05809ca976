/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that calls and streams of one client share: the connections, the endpoints, the token,
 * and the cluster as it is known.
 */
#pragma once

#include <stdbool.h>
#include <sys/queue.h>

#include "base/clock.h"
#include "mesh/etcd/answer.h"
#include "mesh/etcd/endpoints.h"
#include "mesh/etcd/etcd.h"
#include "mesh/etcd/exchange.h"

/* A year: no time that is given is longer, so that sums of them have room. */
#define ETCD_TIME_NS_MAX (365LL * 86400 * NS_PER_S)

TAILQ_HEAD(etcd_calls, etcd_call);
TAILQ_HEAD(etcd_token_waits, etcd_token_wait);

/* Somebody who needs a token. */
struct etcd_token_wait {
    TAILQ_ENTRY(etcd_token_wait) link;
    bool waiting;
    /* NULL: there is one, or users are switched off. */
    void (*on_token)(void *context, const struct error *error);
    void *context;
};

struct etcd {
    struct event_base *base;
    struct etcd_wire *wire;
    struct etcd_endpoints endpoints;
    struct etcd_figures figures;
    int64_t call_timeout_ns;
    size_t pieces_bytes_max; /* of a watch's revisions that come in pieces */

    struct etcd_calls calls;   /* all */
    struct etcd_calls waiting; /* of those: for another to end */
    size_t waiting_count;
    size_t running; /* of those that count */
    size_t users;   /* sessions, watches, mirrors that are open */

    char *user, *password;
    char *token;           /* NULL: none yet, or not needed */
    bool token_known;      /* it need not be asked for */
    uint64_t token_number; /* of the last answer to that question */
    struct etcd_call *token_call;
    struct etcd_token_waits token_waits;
    struct etcd_token_wait token_waits_end; /* while they are told: who comes then waits on */

    uint64_t cluster_id;    /* 0: not known yet */
    int64_t revision_max;   /* of all answers */
    uint64_t history;       /* how often revisions went back everywhere */
    uint32_t behind_in_row; /* answers with an old revision */
    bool is_full;           /* the last call that needs space did not get it */
};

/* A token that is not `refused_number`'s: calls on_token at once, or later if it must be asked for.
 * A `refused_number` of 0: any will do. */
void etcd_token_get(struct etcd *etcd, uint64_t refused_number, struct etcd_token_wait *wait);
/* No callback any more. */
void etcd_token_leave(struct etcd *etcd, struct etcd_token_wait *wait);

/* What an answer tells of the cluster. False: it is another cluster's, or older than `floor`, what
 * was known when it was asked for (0: that does not matter): `error` says so. */
bool etcd_cluster_seen(struct etcd *etcd, size_t endpoint, const struct etcd_answer *answer,
                       int64_t floor, struct error *error);

/* etcd's history is not the continuation of the one seen before. */
void etcd_history_lost(struct etcd *etcd);

/* Of watches and mirrors. */
enum status etcd_ranges_check(const struct etcd_range *ranges, size_t count,
                              struct error *error) WARN_UNUSED;

/* ---- calls ---- */

enum etcd_call_effect {
    ETCD_CALL_READS,  /* may be sent again and again */
    ETCD_CALL_WRITES, /* only while it is certain that it was not carried out */
};

enum etcd_call_lane {
    ETCD_LANE_SHARED, /* so many at once: a connection each */
    ETCD_LANE_OWN     /* waits for none: a lease's life hangs on it, or all others do */
};

enum etcd_call_floor {
    ETCD_FLOOR_NONE, /* an old revision is no fault */
    ETCD_FLOOR_KNOWN /* linearizable: not older than what was known */
};

struct etcd_call_plan {
    const char *path;
    enum etcd_answer_kind kind;
    enum etcd_call_effect effect;
    enum etcd_call_lane lane;
    enum etcd_call_floor floor;
    struct bytes body;         /* taken */
    bool takes_space[2];       /* whether it puts, if its compares fail, and if they hold or it has
                                * none */
    size_t response_counts[2]; /* ETCD_KIND_TXN: if its compares fail, if they hold */
    int64_t attempt_ns;        /* longest one attempt of a read; 0: a third of all */
    struct etcd_reply reply;
    /* ETCD_KIND_TOKEN alone: instead of the reply. */
    void (*on_token)(struct etcd *etcd, const char *token, const struct error *error);
};

struct etcd_call *etcd_call_start(struct etcd *etcd, const struct etcd_call_plan *plan);
