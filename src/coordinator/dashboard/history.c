/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/history.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

enum track_kind { TRACK_NODE, TRACK_PIPELINE, TRACK_STAGE };

enum series_value {
    VALUE_RATE, /* per second, of all counters from `first` to `last` */
    VALUE_GAUGE,
    VALUE_MEAN,
    VALUE_P50,
    VALUE_P99,
    VALUE_AGE, /* of a gauge that is a time in milliseconds; 0: none */
};

static const struct history_series {
    enum track_kind kind;
    const char *name;
    enum series_value value;
    enum counter first, last;
} series[] = {
    {TRACK_NODE, "calls", VALUE_RATE, NODE_CALLS, NODE_CALLS},
    {TRACK_NODE, "mesh_here", VALUE_RATE, NODE_MESH_CALLS_HERE, NODE_MESH_CALLS_HERE},
    {TRACK_NODE, "mesh_elsewhere", VALUE_RATE, NODE_MESH_CALLS_ELSEWHERE,
     NODE_MESH_CALLS_ELSEWHERE},
    {TRACK_NODE, "mesh_misses", VALUE_RATE, NODE_MESH_CALLS_WAITED, NODE_MESH_CALLS_WAITED},
    {TRACK_NODE, "mesh_refused", VALUE_RATE, NODE_MESH_CALLS_NOT_FOUND, NODE_MESH_CALLS_DEADLINE},
    {TRACK_NODE, "miss_delay_ns", VALUE_MEAN, NODE_MESH_WAIT, NODE_MESH_WAIT},
    {TRACK_NODE, "loads", VALUE_RATE, NODE_MESH_LOADS, NODE_MESH_LOADS},
    {TRACK_NODE, "unloads", VALUE_RATE, NODE_MESH_UNLOADS, NODE_MESH_UNLOADS},
    {TRACK_NODE, "evictions", VALUE_RATE, NODE_MESH_EVICTIONS, NODE_MESH_EVICTIONS},
    {TRACK_NODE, "copies", VALUE_GAUGE, NODE_MESH_COPIES, NODE_MESH_COPIES},
    {TRACK_NODE, "used_bytes", VALUE_GAUGE, NODE_MESH_USED, NODE_MESH_USED},
    {TRACK_NODE, "cache_age_ms", VALUE_AGE, NODE_MESH_OLDEST, NODE_MESH_OLDEST},
    {TRACK_PIPELINE, "ok", VALUE_RATE, PIPELINE_REPLIES_OK, PIPELINE_REPLIES_OK},
    {TRACK_PIPELINE, "failed", VALUE_RATE, PIPELINE_REPLIES_FAILED, PIPELINE_REPLIES_FAILED},
    {TRACK_PIPELINE, "refused", VALUE_RATE, PIPELINE_REJECTED_INVALID, PIPELINE_REJECTED_LATE},
    {TRACK_PIPELINE, "latency_p50_ns", VALUE_P50, PIPELINE_LATENCY, PIPELINE_LATENCY},
    {TRACK_PIPELINE, "latency_p99_ns", VALUE_P99, PIPELINE_LATENCY, PIPELINE_LATENCY},
    {TRACK_PIPELINE, "in_flight", VALUE_GAUGE, PIPELINE_SLOTS_USED, PIPELINE_SLOTS_USED},
    {TRACK_PIPELINE, "waiting", VALUE_GAUGE, PIPELINE_WAITING, PIPELINE_WAITING},
    {TRACK_PIPELINE, "streams", VALUE_GAUGE, PIPELINE_STREAMS, PIPELINE_STREAMS},
    {TRACK_PIPELINE, "pieces", VALUE_RATE, PIPELINE_PIECES, PIPELINE_PIECES},
    {TRACK_STAGE, "items", VALUE_RATE, WORKER_ITEMS, WORKER_ITEMS},
    {TRACK_STAGE, "depth", VALUE_GAUGE, STAGE_DEPTH, STAGE_DEPTH},
    {TRACK_STAGE, "batch", VALUE_MEAN, WORKER_BATCH_ITEMS, WORKER_BATCH_ITEMS},
    {TRACK_STAGE, "wait_p50_ns", VALUE_P50, WORKER_WAIT, WORKER_WAIT},
    {TRACK_STAGE, "wait_p99_ns", VALUE_P99, WORKER_WAIT, WORKER_WAIT},
    {TRACK_STAGE, "run_p50_ns", VALUE_P50, WORKER_RUN, WORKER_RUN},
    {TRACK_STAGE, "run_p99_ns", VALUE_P99, WORKER_RUN, WORKER_RUN},
};

enum { RINGS = 2, POINTS_MAX = 360, SERIES_COUNT = ARRAY_COUNT(series), GONE_TICKS = 3600 };

static const struct history_shape {
    const char *name;
    uint32_t every; /* seconds */
    uint32_t length;
} shapes[RINGS] = {{"fine", 1, 300}, {"coarse", 10, POINTS_MAX}};

struct history_ring {
    uint32_t used;
    uint32_t next;
    int64_t times_ms[POINTS_MAX];
    uint64_t due_tick;
    struct snapshot before; /* of its last point */
};

struct history_track {
    enum track_kind kind;
    char pipeline[COUNTERS_NAME_BYTES];
    char stage[COUNTERS_NAME_BYTES];
    uint64_t seen_tick;
    float *points[RINGS]; /* for each series of the kind, the ring's length */
};

struct chart_history {
    uint64_t ticks;
    struct history_ring rings[RINGS];
    struct history_track tracks[HISTORY_TRACKS_MAX];
    uint32_t track_count;
};

struct chart_history *
history_create(void)
{
    struct chart_history *history = calloc(1, sizeof(*history));
    CHECK(history != NULL);
    return history;
}

void
history_destroy(struct chart_history *history)
{
    if (history == NULL)
        return;
    for (uint32_t i = 0; i < RINGS; i++)
        snapshot_free(&history->rings[i].before);
    for (uint32_t i = 0; i < history->track_count; i++)
        for (uint32_t ring = 0; ring < RINGS; ring++)
            free(history->tracks[i].points[ring]);
    free(history);
}

/* ---- tracks ---- */

static uint32_t
series_of(enum track_kind kind)
{
    uint32_t count = 0;
    for (size_t i = 0; i < SERIES_COUNT; i++)
        count += series[i].kind == kind;
    return count;
}

static void
track_clear(struct history_track *track, uint32_t ring)
{
    uint32_t count = series_of(track->kind) * shapes[ring].length;
    for (uint32_t i = 0; i < count; i++)
        track->points[ring][i] = NAN;
}

/* An unused track, or one whose name has been gone for an hour; NULL: there is none. */
static struct history_track *
track_free(struct chart_history *history, enum track_kind kind)
{
    if (history->track_count < HISTORY_TRACKS_MAX) {
        struct history_track *track = &history->tracks[history->track_count++];
        track->kind = kind;
        for (uint32_t ring = 0; ring < RINGS; ring++) {
            track->points[ring] = malloc(sizeof(float) * series_of(kind) * shapes[ring].length);
            CHECK(track->points[ring] != NULL);
        }
        return track;
    }
    for (uint32_t i = 0; i < history->track_count; i++)
        if (history->tracks[i].kind == kind &&
            history->tracks[i].seen_tick + GONE_TICKS < history->ticks)
            return &history->tracks[i];
    return NULL;
}

static struct history_track *
track_find(struct chart_history *history, enum track_kind kind, const char *pipeline,
           const char *stage)
{
    for (uint32_t i = 0; i < history->track_count; i++)
        if (history->tracks[i].kind == kind && strcmp(history->tracks[i].pipeline, pipeline) == 0 &&
            strcmp(history->tracks[i].stage, stage) == 0)
            return &history->tracks[i];
    struct history_track *track = track_free(history, kind);
    if (track == NULL)
        return NULL;
    snprintf(track->pipeline, sizeof(track->pipeline), "%s", pipeline);
    snprintf(track->stage, sizeof(track->stage), "%s", stage);
    for (uint32_t ring = 0; ring < RINGS; ring++)
        track_clear(track, ring);
    return track;
}

/* ---- points ---- */

static float
rate(const struct snapshot *difference, const struct snapshot_scope *scope,
     const struct history_series *one)
{
    double count = 0;
    for (enum counter counter = one->first; counter <= one->last; counter++)
        count += (double)snapshot_value(scope, counter);
    return (float)(count * (double)NS_PER_S / (double)difference->interval_ns);
}

static float
value_of(const struct snapshot *difference, const struct snapshot_scope *scope,
         const struct history_series *one)
{
    const uint64_t *words = NULL;
    int64_t then_ms;
    int64_t age_ms;
    if (one->value == VALUE_MEAN || one->value == VALUE_P50 || one->value == VALUE_P99) {
        words = snapshot_histogram(scope, one->first);
        if (words[0] == 0)
            return NAN;
    }
    switch (one->value) {
    case VALUE_RATE: return rate(difference, scope, one);
    case VALUE_GAUGE: return (float)snapshot_value(scope, one->first);
    case VALUE_MEAN: return (float)histogram_mean(words);
    case VALUE_P50: return (float)histogram_quantile(words, 0.5);
    case VALUE_P99: return (float)histogram_quantile(words, 0.99);
    case VALUE_AGE:
        then_ms = (int64_t)snapshot_value(scope, one->first);
        age_ms = difference->taken_unix_ns / NS_PER_MS - then_ms;
        return then_ms == 0 ? NAN : (float)age_ms;
    }
    return NAN;
}

struct history_recording {
    struct chart_history *history;
    const struct snapshot *difference;
    uint32_t ring;
};

/* `sums`: of a stage's workers; else NULL. */
static void
record(const struct history_recording *recording, struct history_track *track,
       const struct snapshot_scope *scope, const struct snapshot_scope *sums)
{
    const struct history_ring *ring = &recording->history->rings[recording->ring];
    uint32_t length = shapes[recording->ring].length;
    uint32_t row = 0;
    if (track == NULL)
        return;
    track->seen_tick = recording->history->ticks;
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        if (series[i].kind != track->kind)
            continue;
        bool is_sum = sums != NULL && counter_table[series[i].first].scope == SCOPE_WORKER;
        track->points[recording->ring][row++ * length + ring->next] =
            value_of(recording->difference, is_sum ? sums : scope, &series[i]);
    }
}

static void
record_pipeline(const struct history_recording *recording, const struct snapshot_scope *pipeline)
{
    const struct snapshot *difference = recording->difference;
    struct chart_history *history = recording->history;
    uint32_t parent = snapshot_index(difference, pipeline);
    record(recording, track_find(history, TRACK_PIPELINE, pipeline->name, ""), pipeline, NULL);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(difference, SCOPE_STAGE, parent, stage)) != NULL;) {
        struct snapshot_scope sums = snapshot_workers(difference, stage);
        record(recording, track_find(history, TRACK_STAGE, pipeline->name, stage->name), stage,
               &sums);
        free(sums.words);
    }
}

static void
ring_add(struct chart_history *history, uint32_t which, const struct snapshot *now)
{
    struct history_ring *ring = &history->rings[which];
    uint32_t length = shapes[which].length;
    struct snapshot difference;
    struct history_recording recording = {history, &difference, which};
    snapshot_subtract(&difference, now, &ring->before);
    for (uint32_t i = 0; i < history->track_count; i++)
        for (uint32_t row = 0; row < series_of(history->tracks[i].kind); row++)
            history->tracks[i].points[which][row * length + ring->next] = NAN;
    if (difference.interval_ns > 0) {
        record(&recording, track_find(history, TRACK_NODE, "", ""), &difference.scopes[0], NULL);
        for (const struct snapshot_scope *scope = NULL;
             (scope = snapshot_next(&difference, SCOPE_PIPELINE, 0, scope)) != NULL;)
            record_pipeline(&recording, scope);
    }
    ring->times_ms[ring->next] = now->taken_unix_ns / NS_PER_MS;
    ring->next = (ring->next + 1) % length;
    ring->used += ring->used < length;
    snapshot_free(&difference);
}

void
history_add(struct chart_history *history, const struct snapshot *now, uint32_t seconds)
{
    history->ticks += seconds;
    for (uint32_t which = 0; which < RINGS; which++) {
        struct history_ring *ring = &history->rings[which];
        if (ring->before.scopes != NULL && history->ticks < ring->due_tick)
            continue;
        if (ring->before.scopes != NULL)
            ring_add(history, which, now);
        ring->due_tick = history->ticks + shapes[which].every;
        snapshot_free(&ring->before);
        snapshot_copy(&ring->before, now);
    }
}

/* ---- JSON ---- */

static void
put_point(struct json *json, float point)
{
    if (isnan(point))
        json_put_null(json);
    else
        json_put_float(json, point);
}

static void
put_names(const struct history_track *track, struct json *json)
{
    json_field_string(json, "pipeline", track->pipeline);
    json_field_string(json, "stage", track->stage);
    json_field_open(json, "values", '{');
}

void
history_newest_json(const struct chart_history *history, struct json *json)
{
    const struct history_ring *ring = &history->rings[0];
    uint32_t length = shapes[0].length;
    uint32_t newest = (ring->next + length - 1) % length;
    json_open(json, '[');
    for (uint32_t i = 0; i < history->track_count && ring->used > 0; i++) {
        const struct history_track *track = &history->tracks[i];
        uint32_t row = 0;
        if (track->seen_tick + shapes[1].every < history->ticks)
            continue;
        json_open(json, '{');
        put_names(track, json);
        for (size_t j = 0; j < SERIES_COUNT; j++)
            if (series[j].kind == track->kind) {
                json_name(json, series[j].name);
                put_point(json, track->points[0][row++ * length + newest]);
            }
        json_close(json, '}');
        json_close(json, '}');
    }
    json_close(json, ']');
}

static void
track_json(const struct chart_history *history, const struct history_track *track, uint32_t which,
           struct json *json)
{
    const struct history_ring *ring = &history->rings[which];
    uint32_t length = shapes[which].length;
    uint32_t row = 0;
    json_open(json, '{');
    put_names(track, json);
    for (size_t i = 0; i < SERIES_COUNT; i++) {
        if (series[i].kind != track->kind)
            continue;
        json_field_open(json, series[i].name, '[');
        for (uint32_t j = 0; j < ring->used; j++)
            put_point(json, track->points[which][row * length +
                                                 (ring->next + length - ring->used + j) % length]);
        json_close(json, ']');
        row++;
    }
    json_close(json, '}');
    json_close(json, '}');
}

void
history_json(const struct chart_history *history, const char *pipeline, struct json *json)
{
    json_open(json, '{');
    for (uint32_t which = 0; which < RINGS; which++) {
        const struct history_ring *ring = &history->rings[which];
        uint32_t length = shapes[which].length;
        json_field_open(json, shapes[which].name, '{');
        json_field_uint(json, "every_ms", (uint64_t)shapes[which].every * 1000);
        json_field_open(json, "times_ms", '[');
        for (uint32_t i = 0; i < ring->used; i++)
            json_put_int(json, ring->times_ms[(ring->next + length - ring->used + i) % length]);
        json_close(json, ']');
        json_field_open(json, "tracks", '[');
        for (uint32_t i = 0; i < history->track_count; i++)
            if (strcmp(history->tracks[i].pipeline, pipeline) == 0)
                track_json(history, &history->tracks[i], which, json);
        json_close(json, ']');
        json_close(json, '}');
    }
    json_close(json, '}');
}

size_t
history_bytes(const struct chart_history *history)
{
    size_t bytes = sizeof(*history);
    for (uint32_t i = 0; i < history->track_count; i++)
        for (uint32_t ring = 0; ring < RINGS; ring++)
            bytes += sizeof(float) * series_of(history->tracks[i].kind) * shapes[ring].length;
    return bytes;
}
