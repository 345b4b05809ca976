/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot as JSON: `shoalctl stat --json`, and the dashboard. Names of counters are those of
 * counters.def in lower case; a stage has the sums of its workers' counters. Members are only
 * added.
 */
#pragma once

#include "base/json.h"
#include "ipc/snapshot.h"

enum snapshot_detail {
    SNAPSHOT_WHOLE,
    SNAPSHOT_BRIEF, /* without the buckets of histograms, except those of the node */
};

struct snapshot_json {
    const char *pipeline; /* only that one; NULL: all */
    enum snapshot_detail detail;
};

/* Writes one object: the node, its counters, its pipelines, their stages, their workers. */
void snapshot_json(const struct snapshot *snapshot, const struct snapshot_json *form,
                   struct json *json);
/* The node's fields, into an open object. */
void snapshot_node_json(const struct snapshot *snapshot, struct json *json);
/* An array of the oldest requests of one pipeline, or of all if it is NULL. */
void snapshot_oldest_json(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
                          struct json *json);

/* One of a pipeline's oldest requests in flight, as the node last published it. */
struct oldest_request {
    const char *where;
    const char *stage;    /* NULL: at none */
    uint64_t worker, pid; /* pid 0: no worker holds it */
    int64_t age_ns;
    bool has_deadline;
    int64_t left_ns; /* until the deadline */
    uint64_t deaths;
};

/* Returns the request after `after` (NULL: the first) and describes it; NULL: there are no more. */
const struct snapshot_scope *snapshot_oldest(const struct snapshot *snapshot,
                                             const struct snapshot_scope *pipeline,
                                             const struct snapshot_scope *after,
                                             struct oldest_request *request);
