/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters as Prometheus reads them: its text format 0.0.4, out of a snapshot. Pure: the same
 * snapshot and figures give the same text. The snapshot may hold anything, a modelet can write into
 * its worker's values: sums saturate, ages are never negative, and each line is well formed.
 *
 * Names come from the table of counters. A counter X of a pipeline, of type COUNT and in
 * nanoseconds, is shoal_pipeline_x_seconds_total; units are Prometheus' base units. Some rules on
 * top of that:
 *
 *   - Counters that say what became of something are one family with a label: `rejected_full` is
 *     shoal_pipeline_rejected_total{reason="full"}; so are `replies_` and `closed_`.
 *   - Counters of the node whose names begin with `mesh_` are shoal_mesh_…, and not there without a
 *     mesh.
 *   - A worker's counts and gauges have a series per worker (a seat, whose processes come and go).
 *     Its histograms are added up for the stage, as shoal_stage_…: per worker they would be most of
 *     what is sent, and nobody looks at them.
 *   - Points in time, on the monotonic clock in the table, are Unix time. The oldest requests are
 *     single requests, which come and go, and no series: only the greatest age is one, per
 * pipeline.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "shm/snapshot.h"

/* Of this process, as Prometheus' own libraries name and measure them. */
struct process_figures {
    double cpu_seconds;
    uint64_t resident_bytes;
    uint64_t virtual_bytes;
    uint64_t open_files;
    uint64_t files_max;
};

/* Figures that cannot be read are 0. */
void process_figures_read(struct process_figures *figures);

/* `figures` NULL: without them. */
void metrics_print(const struct snapshot *snapshot, const struct process_figures *figures,
                   const char *version, FILE *out);

/* The name of a counter's family, and which value its label has: "" for both if it has no series,
 * label "" if the family has no such label. */
enum { METRIC_NAME_BYTES = 96 };
struct metric_name {
    char family[METRIC_NAME_BYTES];
    char label[16]; /* reason, result */
    const char *value;
};
struct metric_name metric_name(enum counter counter);

/*
 * Where the buckets of histograms end, by unit: the largest value that falls into each, in that
 * unit. They are ends of the histograms' own buckets, so nothing is estimated: powers of two, less
 * one (of times from 1 µs to 69 s, or from 1 s to 99 days, of memory from 4 KiB to 1 TiB); and of
 * items, with a step between.
 */
size_t metric_bounds(enum counter_unit unit, const uint64_t **bounds);

/*
 * The mesh's metrics once more, under the names, in the units and with the buckets that KServe
 * ModelMesh gives it (docs/from-modelmesh.md). A bound that lies within a bucket of ours takes its
 * share of that, as who computes quantiles would.
 */
void metrics_print_modelmesh(const struct snapshot *snapshot, FILE *out);

/* HELP and TYPE of a family. */
void metrics_put_head(FILE *out, const char *family, const char *type, const char *help);
/* A label's value. */
void metrics_put_escaped(FILE *out, const char *text);
