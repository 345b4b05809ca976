/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints a snapshot of the counters in Prometheus' text format 0.0.4. Pure: the same snapshot and
 * figures give the same text. A modelet can write into its worker's values, so the snapshot may
 * hold anything: sums saturate, ages are never negative, and each line is well formed.
 *
 * Names come from the table of counters. A counter X of a pipeline, of type COUNT and in
 * nanoseconds, is shoal_pipeline_x_seconds_total; units are Prometheus' base units. In addition:
 *
 *   - Counters of outcomes are one family with a label: `rejected_full` is
 *     shoal_pipeline_rejected_total{reason="full"}; so are `replies_` and `closed_`.
 *   - Counters of the node that begin with `mesh_` are shoal_mesh_…, and absent without a mesh.
 *   - A worker's counts and gauges have a series per worker (a place, whose processes come and go).
 *     Its histograms are added up for the stage, as shoal_stage_…: per worker they would be most of
 *     the page and are rarely asked for.
 *   - Points in time, monotonic in the table, become Unix time.
 *   - The oldest requests are no series; the greatest age is one, per pipeline.
 *   - The load of pipelines comes under the names of docs/model-server-protocol.md, too.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "ipc/snapshot.h"

/* Figures of this process, named and measured as Prometheus' client libraries do. */
struct process_figures {
    double cpu_seconds;
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_files;
    uint64_t files_max;
};

/* Figures that cannot be read are 0. */
void process_figures_read(struct process_figures *figures);

/* `figures` may be NULL: left out. */
void metrics_print(const struct snapshot *snapshot, const struct process_figures *figures,
                   const char *version, FILE *out);

/* The name of a counter's family and the value of its label. Both are "" if it has no series; the
 * label is "" if the family has none. */
enum { METRIC_NAME_BYTES = 96 };
struct metric_name {
    char family[METRIC_NAME_BYTES];
    char label[16]; /* reason, result */
    const char *value;
};
struct metric_name metric_name(enum counter counter);

/*
 * The ends of the buckets of histograms, by unit: the largest value that falls into each, in that
 * unit. They are ends of the histograms' own buckets, so nothing is estimated: powers of two less
 * one (times from 1 µs to 69 s, or from 1 s to 99 days; memory from 4 KiB to 1 TiB); for items with
 * a step in between.
 */
size_t metric_bounds(enum counter_unit unit, const uint64_t **bounds);

/*
 * Prints the mesh's metrics under the names, in the units and with the buckets of KServe ModelMesh
 * (docs/from-modelmesh.md). A bound within one of our buckets takes a proportional part of it, as a
 * quantile does.
 */
void metrics_print_modelmesh(const struct snapshot *snapshot, FILE *out);

/* The end of a bucket as ModelMesh prints it, and as a whole number of our unit. */
struct modelmesh_bound {
    const char *text;
    uint64_t value;
};

/* The bounds of all its histograms of times: milliseconds, and ns. */
enum { MODELMESH_TIMES = 19 };
extern const struct modelmesh_bound modelmesh_times[MODELMESH_TIMES];

/* Prints HELP and TYPE of a family. */
static inline void
metrics_put_head(FILE *out, const char *family, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", family, help, family, type);
}

/* Prints a label's value, escaped. */
void metrics_put_escaped(FILE *out, const char *text);
