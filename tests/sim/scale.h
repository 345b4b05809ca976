/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the scale run's files: its options, its world, what it counts. scale.c says what it
 * is. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/copies/ledger.h"
#include "mesh/core/mesh_core.h"

enum {
    PLACES_MAX = 12,
    KNOWN_MAX = 2048, /* models that a node may know of without having them */
    LOADERS = 4,
    DOWN_MS = 120000,
    GRACE_MS = 600000,
    UNIT_BYTES = LEDGER_UNIT_BYTES,
    MEAN_UNITS = 512, /* 4 MiB: only ratios matter */
    CALLS_MAX = 1 << 16,
};

struct kept_place {
    int64_t since_ms;
    uint32_t node;
    uint32_t kind;
};

/* A record as etcd has it, and what the model is like. */
struct record {
    uint64_t create_revision;
    uint64_t revision;
    int64_t used_ms;
    int64_t unloaded_ms;
    uint32_t units;
    uint32_t count;
    struct kept_place places[PLACES_MAX];
};

struct node {
    struct mesh *mesh; /* NULL: down */
    uint64_t session;
    int64_t start_ms;
    bool draining;
    uint32_t life;
    uint32_t known[KNOWN_MAX]; /* ring of models that it was told of */
    uint32_t known_at;
    uint32_t *free_calls;
    uint32_t free_count;
    uint32_t call_top;
    uint32_t call_capacity;
    uint64_t served;
    char name[24];
};

struct sender {
    uint32_t node; /* NODE_NONE: a client */
    uint32_t life;
    uint32_t call;
    uint32_t number;
    int64_t began_ms; /* of a client */
};

enum work_kind {
    WORK_CLIENT,
    WORK_HOP,
    WORK_SERVED,
    WORK_ENDED,
    WORK_TXN,
    WORK_ENSURE,
    WORK_SIZE,
    WORK_LOADED,
    WORK_UNLOADED,
    WORK_TICK,
    WORK_CHURN,
    WORK_START,
    WORK_FIGURES,
    WORK_STOP,
};

/* An event at a time; `order` breaks ties. */
struct work {
    int64_t at_ms;
    uint64_t order;
    uint8_t kind;
    uint8_t hop;
    uint8_t end;
    uint8_t class;
    uint32_t node;
    uint32_t life;
    uint32_t model;
    uint32_t call;
    uint32_t number;
    uint64_t value;
    int64_t deadline_ms;
    struct kept_txn *txn;
    struct mesh_tried *tried;
    uint32_t tried_count;
    struct sender sender;
};

struct kept_txn {
    uint64_t txn;
    uint64_t session;
    uint64_t compare;
    uint32_t model;
    struct record record;
};

struct scale_call {
    struct sender sender;
    uint32_t model;
};

struct scale_options {
    uint32_t nodes, models, hours, rate, fit_percent, zipf_percent, churn_percent, figures_s,
        tick_s, minutes, seed;
};

struct scale_figures {
    uint64_t calls, hits, ends[16], loads, unloads, loaded_units, txns, txns_lost, forwards, steps,
        kills, drains, oracle_hits;
};

extern struct scale_options options;
extern struct scale_figures figures;
extern struct node *nodes;
extern struct record *records;
extern int64_t now_ms;

/* scale_report.c */
void print_hour(uint32_t hour, double seconds);
void print_all(void);

/* popularity.c: model n is called as 1 / n^(percent / 100). `dice` are any 64 bits. */
struct popularity;
struct popularity *popularity_create(uint32_t models, uint32_t zipf_percent);
uint32_t popularity_draw(const struct popularity *popularity, uint64_t dice);
