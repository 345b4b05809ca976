/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The figures of the dashboard's charts: rates, gauges and quantiles of the node, its pipelines and
 * their stages, computed from the counters. Five minutes are kept by the second and an hour by ten
 * seconds, in memory that is taken for at most HISTORY_TRACKS_MAX names. One thread.
 */
#pragma once

#include "base/json.h"
#include "ipc/snapshot.h"

enum { HISTORY_TRACKS_MAX = 256 };

struct chart_history;

struct chart_history *history_create(void);
/* NULL is ignored. */
void history_destroy(struct chart_history *history);

/* Call once a second, or after so many. Names beyond the limit are left out until others have been
 * gone for an hour. */
void history_add(struct chart_history *history, const struct snapshot *now, uint32_t seconds);

/* The newest second: an array with an object for each track, `pipeline`, `stage` ("" for a
 * pipeline or the node) and `values` by name, null where nothing was measured. */
void history_newest_json(const struct chart_history *history, struct json *json);
/* All points of one pipeline and its stages, or of the node if `pipeline` is "". */
void history_json(const struct chart_history *history, const char *pipeline, struct json *json);
/* The memory of all points, in bytes. */
size_t history_bytes(const struct chart_history *history);
