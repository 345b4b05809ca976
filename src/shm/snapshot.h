/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All counters of a node at one moment, copied into plain memory: what is printed is computed from
 * this copy. The figures may be anything, a modelet can write into the file: no sum, difference or
 * ratio here relies on them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/counters.h"

struct snapshot_scope {
    enum counter_scope kind;
    uint32_t parent;
    char name[COUNTERS_NAME_BYTES]; /* plain text, counters_open saw to that */
    uint64_t *words;                /* counter_offset says where in them */
};

struct snapshot {
    bool live; /* its node runs */
    enum node_state state;
    int32_t pid;
    int64_t started_unix_ns;
    int64_t heartbeat_ns;
    int64_t taken_ns; /* when, on the monotonic clock */
    int64_t taken_unix_ns;
    int64_t interval_ns; /* 0: since the node's start; else what the counts are of */
    uint32_t scope_count;
    struct snapshot_scope *scopes;
    uint64_t *words; /* of all scopes */
    size_t word_count;
};

/* Of a file of counters. No scope came or went while its values were copied: each has the values of
 * the name that it is shown under. (A file whose scopes never rest is read all the same.) */
enum status snapshot_read(struct snapshot *snapshot, const char *path,
                          struct error *error) WARN_UNUSED;
void snapshot_take(struct snapshot *snapshot, const struct counters *counters, bool live);
void snapshot_free(struct snapshot *snapshot);

/* Of the same start of the same node, so that they can be subtracted. */
bool snapshot_same_node(const struct snapshot *a, const struct snapshot *b);
/* `now` less `before`, counts and histograms; gauges are those of now. Takes memory, as a read. */
void snapshot_subtract(struct snapshot *difference, const struct snapshot *now,
                       const struct snapshot *before);

/* The same as it is, in memory of its own. */
void snapshot_copy(struct snapshot *copy, const struct snapshot *snapshot);

uint64_t snapshot_value(const struct snapshot_scope *scope, enum counter counter);
const uint64_t *snapshot_histogram(const struct snapshot_scope *scope, enum counter counter);

/* The next scope after `after` of that kind beneath `parent`; NULL when there is none. Start with
 * `after` NULL. */
const struct snapshot_scope *snapshot_next(const struct snapshot *snapshot, enum counter_scope kind,
                                           uint32_t parent, const struct snapshot_scope *after);
uint32_t snapshot_index(const struct snapshot *snapshot, const struct snapshot_scope *scope);

/* All workers of a stage as if they were one; free `words`. Gauges are not added. */
struct snapshot_scope snapshot_workers(const struct snapshot *snapshot,
                                       const struct snapshot_scope *stage);

/* Now for a live node, its last sign of life for a dead one: what ages are reckoned from. */
int64_t snapshot_reference_ns(const struct snapshot *snapshot);
/* Since a worker's last sign of life; 0 if that lies ahead. */
int64_t snapshot_age_ns(const struct snapshot *snapshot, int64_t sign_of_life_ns);
/* When a dead node gave its last sign of life; false: before this machine was started. */
bool snapshot_death_unix_ns(const struct snapshot *snapshot, int64_t *unix_ns);

/* Of a node that runs: every stage of a pipeline has a worker. Of any other: never. */
bool snapshot_pipeline_ready(const struct snapshot *snapshot,
                             const struct snapshot_scope *pipeline);
const char *node_state_name(enum node_state state);
