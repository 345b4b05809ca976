/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State of this node's copies: its entries, the pools that they share, the transactions that
 * reconcile them with the records.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/cluster/pool_names.h"
#include "mesh/core/cluster/tables.h"
#include "mesh/core/containers/heap.h"
#include "mesh/core/copies/ledger.h"

enum {
    SAMPLES_MAX = 20, /* R4 */
    EARLY_MAX = 64,   /* ENSUREs kept for models without a record (A7) */
};

/* Total duration of calls. */
struct call_times {
    uint64_t us;
    uint64_t count;
};

/* A model on this node: its copy, or the work on it. */
struct core_entry {
    uint64_t create_revision; /* of the model's record (T7) */
    int64_t used_ms;          /* mesh time */
    int64_t since_ms;         /* stamp of its place, unique on this node */
    int64_t began_ms;         /* now_ms when it entered its state */
    int64_t waited_ms;        /* now_ms when the first call began to wait */
    int64_t claimed_ms;       /* now_ms when its load was admitted */
    uint64_t minutes;         /* S1: bit n: used n minutes before `minute` */
    int64_t minute;           /* of now_ms */
    int64_t heavy_ms;         /* now_ms when its rate was last near S3's threshold */
    int64_t asked_ms;         /* now_ms when another node was last asked to load it */
    uint32_t uses;            /* since the last rate check */
    uint32_t rate;            /* calls a minute at that check */
    uint32_t serial;          /* with the entry's number: its ticket */
    uint32_t model;
    uint32_t units;
    uint32_t target; /* total copies wanted when it was claimed */
    uint32_t in_flight;
    uint32_t concurrency; /* calls it serves at a time; 0: no limit (S6) */
    uint32_t waiting; /* calls that wait for its load or for a permit (S6), in order of arrival */
    uint32_t first_call;
    uint32_t last_call;
    struct call_times recent; /* S5: the current window and the last full one */
    struct call_times before;
    uint32_t reason; /* of its failure; NAME_NONE: none */
    uint32_t next_free;
    uint8_t state; /* enum mesh_state */
    uint8_t class; /* enum mesh_class */
    bool sized;    /* the size has been predicted */
    bool called;   /* a call has used it since it was claimed */
    bool resident;
    bool failed;  /* the record must say so */
    bool doomed;  /* LOADING: no longer wanted */
    bool asked;   /* at asked_ms a node was found that could load it */
    bool offered; /* E6: evicted, to be loaded elsewhere if there is room */
    bool evicted; /* removed to make room; reported with the unload */
    bool yields;  /* WITHDRAWING for another copy, or because no node could take it (D3) */
    uint8_t pool;
};

struct entries {
    struct core_entry *at;
    uint32_t capacity;
    uint32_t used;
    uint32_t first_free;
    uint32_t loaded;
    uint32_t serials;
    int64_t last_since_ms; /* stamp of the last place of this node */
    int64_t most_since_ms; /* latest stamp of a place of this node */
    struct heap order;     /* scratch: entries in some order */
    uint32_t *victims;
    uint32_t victim_capacity;
    bool misplaced; /* a model may be here against the constraints (H3) */
};

/* Models that share memory and loaders, and are lost together (K6). */
struct pool {
    bool runtime;      /* is connected */
    bool rests;        /* it comes when a model needs it */
    int64_t return_ms; /* R14: a lost one may be back by then */
    struct ledger ledger;
    uint32_t loaders;
    uint32_t loading;
    bool stuck; /* R17: all loaders have been busy for longer than patience */
    uint32_t default_units;
    int64_t load_timeout_ms;
    struct heap lru;   /* evictable entries by last use (E1) */
    struct heap young; /* guarded entries by load time (E3) */
    struct heap held;  /* entries at the minimum by last use (B5) */
    struct heap queue; /* rules Q */
    uint64_t evictable_units;
    uint64_t held_units;
};

struct pools {
    struct pool *at;
    uint32_t count;
    struct pool_names *names; /* NULL: there is one pool */
    int64_t load_timeout_ms;  /* the longest of all pools */
};

struct load_times {
    int64_t samples_ms[SAMPLES_MAX]; /* of the last loads */
    uint32_t samples;
};

/* Transactions (T). */
struct reconcile {
    struct heap retries; /* models by now_ms */
    struct heap graves;  /* models without a record, by the revision of the deletion (T6) */
    uint64_t txns;
    uint32_t *unreconciled;
    uint32_t unreconciled_count;
    uint32_t unreconciled_capacity;
};

/* W1 */
struct registry_rebuild {
    int64_t emptied_ms; /* now_ms when etcd was last emptied */
    int64_t contact_ms; /* now_ms of the last sign of etcd, or with a session */
    int64_t ticked_ms;  /* now_ms of the last tick */
    int64_t wait_ms;    /* delay after EMPTIED, by the age of this node's knowledge */
    uint32_t writes;    /* rewrites left this second */
    uint32_t at;        /* the sweep's position in the models */
    bool pending;       /* records may still have to be rewritten */
    bool found;         /* lost records were seen in this sweep */
};

struct load_wish {
    uint32_t model;
    int64_t used_ms;
    enum mesh_class class;
    uint32_t target;
    uint32_t units; /* 0: unknown */
};

/* A7: an ENSURE that arrived before the model's record. */
struct early {
    struct load_wish load; /* holds a reference to the model */
    int64_t came_ms;
    enum mesh_where where;
};

struct early_ensures {
    struct early at[EARLY_MAX];
    uint32_t count;
};

/* S3 */
struct rates {
    uint32_t per_minute; /* calls served here, at the last check */
    int64_t checked_ms;  /* now_ms of that check */
};
