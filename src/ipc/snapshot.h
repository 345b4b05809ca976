/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All counters of a node at one moment, copied into plain memory, from which all output is
 * computed. A modelet can write anything into the file: no sum, difference or ratio here relies on
 * the figures.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "ipc/counters.h"

struct snapshot_scope {
    enum counter_scope kind;
    uint32_t parent;
    char name[COUNTERS_NAME_BYTES]; /* plain text: validated by counters_open */
    uint64_t *words;                /* indexed by counter_offset */
};

struct snapshot {
    bool live; /* the node is running */
    enum node_state state;
    int32_t pid;
    int64_t started_unix_ns;
    int64_t heartbeat_ns;
    int64_t taken_ns; /* on the monotonic clock */
    int64_t taken_unix_ns;
    int64_t interval_ns; /* length of the interval that counts cover; 0: since the node's start */
    uint32_t scope_count;
    struct snapshot_scope *scopes;
    uint64_t *words; /* of all scopes */
    size_t word_count;
};

/* Reads a counters file, repeatedly if scopes come or go meanwhile, so that each scope has the
 * values of its own name. A file whose scopes never rest is read all the same. */
enum status snapshot_read(struct snapshot *snapshot, const char *path,
                          struct error *error) WARN_UNUSED;
void snapshot_free(struct snapshot *snapshot);

/* Returns true if both are from the same start of the same node and can be subtracted. */
bool snapshot_same_node(const struct snapshot *a, const struct snapshot *b);
/* Computes `now` minus `before` for counts and histograms; gauges are those of `now`. Allocates,
 * like a read. */
void snapshot_subtract(struct snapshot *difference, const struct snapshot *now,
                       const struct snapshot *before);

/* Copies a snapshot into memory of its own. */
void snapshot_copy(struct snapshot *copy, const struct snapshot *snapshot);

uint64_t snapshot_value(const struct snapshot_scope *scope, enum counter counter);
const uint64_t *snapshot_histogram(const struct snapshot_scope *scope, enum counter counter);

/* Returns the next scope after `after` of that kind beneath `parent`; NULL: none. Start with
 * `after` NULL. */
const struct snapshot_scope *snapshot_next(const struct snapshot *snapshot, enum counter_scope kind,
                                           uint32_t parent, const struct snapshot_scope *after);
uint32_t snapshot_index(const struct snapshot *snapshot, const struct snapshot_scope *scope);

/* Sums all workers of a stage; the caller frees `words`. Gauges are not added. */
struct snapshot_scope snapshot_workers(const struct snapshot *snapshot,
                                       const struct snapshot_scope *stage);

/* Returns the time since a worker's last sign of life; 0 if that is in the future. */
int64_t snapshot_age_ns(const struct snapshot *snapshot, int64_t sign_of_life_ns);
/* Computes the time of a dead node's last sign of life. False: before this machine was started. */
bool snapshot_death_unix_ns(const struct snapshot *snapshot, int64_t *unix_ns);

/* Returns true if the node is running and every stage of the pipeline has a worker. */
bool snapshot_pipeline_ready(const struct snapshot *snapshot,
                             const struct snapshot_scope *pipeline);
const char *node_state_name(enum node_state state);
