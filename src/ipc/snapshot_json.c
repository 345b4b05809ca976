/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/snapshot_json.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

/* ---- the oldest requests ---- */

static const char *
where_name(const struct snapshot_scope *request)
{
    static const char *const names[] = {
        [OLDEST_UNKNOWN] = "unknown",
        [OLDEST_WAITS] = "waits",
        [OLDEST_IN_BATCH] = "in a batch",
        [OLDEST_RUNS] = "runs",
        [OLDEST_ANSWER_WAITS] = "answer waits",
        [OLDEST_BEING_ANSWERED] = "being answered",
        [OLDEST_WAITS_FOR_MODEL] = "awaits model",
    };
    uint64_t where = snapshot_value(request, OLDEST_WHERE);
    return where < ARRAY_COUNT(names) ? names[where] : names[OLDEST_UNKNOWN];
}

/* The request's stage; NULL: none, or the number is not a stage's. */
static const char *
stage_name(const struct snapshot *snapshot, const struct snapshot_scope *request)
{
    uint64_t scope = snapshot_value(request, OLDEST_STAGE);
    if (scope == 0 || scope >= snapshot->scope_count || snapshot->scopes[scope].kind != SCOPE_STAGE)
        return NULL;
    return snapshot->scopes[scope].name;
}

/* The time at which the node listed its oldest requests: some may have ended since. */
static int64_t
listed_ns(const struct snapshot *snapshot)
{
    return snapshot->heartbeat_ns;
}

/* Time left until its deadline, on the same base as ages; false: it has none. */
static bool
deadline_left(const struct snapshot *snapshot, const struct snapshot_scope *request,
              int64_t *left_ns)
{
    int64_t deadline_ns = (int64_t)snapshot_value(request, OLDEST_DEADLINE);
    if (deadline_ns == 0)
        return false;
    if (__builtin_sub_overflow(deadline_ns, listed_ns(snapshot), left_ns))
        *left_ns = 0;
    return true;
}

static int64_t
age_of(const struct snapshot *snapshot, const struct snapshot_scope *request)
{
    int64_t age_ns;
    int64_t arrived_ns = (int64_t)snapshot_value(request, OLDEST_ARRIVED);
    if (__builtin_sub_overflow(listed_ns(snapshot), arrived_ns, &age_ns) || age_ns < 0)
        return 0;
    return age_ns;
}

const struct snapshot_scope *
snapshot_oldest(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
                const struct snapshot_scope *after, struct oldest_request *request)
{
    uint32_t parent = snapshot_index(snapshot, pipeline);
    do
        after = snapshot_next(snapshot, SCOPE_OLDEST, parent, after);
    while (after != NULL && snapshot_value(after, OLDEST_ARRIVED) == 0);
    if (after == NULL)
        return NULL;
    *request = (struct oldest_request){
        .where = where_name(after),
        .stage = stage_name(snapshot, after),
        .worker = snapshot_value(after, OLDEST_OWNER),
        .pid = snapshot_value(after, OLDEST_OWNER_PID),
        .age_ns = age_of(snapshot, after),
        .deaths = snapshot_value(after, OLDEST_DEATHS),
    };
    request->has_deadline = deadline_left(snapshot, after, &request->left_ns);
    return after;
}

static void
oldest_object(const char *pipeline, const struct oldest_request *request, struct json *json)
{
    json_open(json, '{');
    json_field_string(json, "pipeline", pipeline);
    json_field_string(json, "where", request->where);
    if (request->stage != NULL)
        json_field_string(json, "stage", request->stage);
    if (request->pid != 0) {
        json_field_uint(json, "worker", request->worker);
        json_field_uint(json, "pid", request->pid);
    }
    json_field_int(json, "age_ns", request->age_ns);
    if (request->has_deadline)
        json_field_int(json, "deadline_left_ns", request->left_ns);
    json_field_uint(json, "deaths", request->deaths);
    json_close(json, '}');
}

void
snapshot_oldest_json(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
                     struct json *json)
{
    struct oldest_request request;
    json_open(json, '[');
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;)
        for (const struct snapshot_scope *one = NULL;
             (pipeline == NULL || pipeline == scope) &&
             (one = snapshot_oldest(snapshot, scope, one, &request)) != NULL;)
            oldest_object(scope->name, &request, json);
    json_close(json, ']');
}

/* ---- counters ---- */

static void
bucket_json(uint64_t floor, uint64_t count, struct json *json)
{
    json_open(json, '[');
    json_put_uint(json, floor);
    json_put_uint(json, count);
    json_close(json, ']');
}

static void
histogram_json(const uint64_t *words, enum snapshot_detail detail, struct json *json)
{
    json_open(json, '{');
    json_field_uint(json, "count", words[0]);
    json_field_uint(json, "sum", words[1]);
    json_field_double(json, "mean", histogram_mean(words));
    json_field_int(json, "p50", histogram_duration(words, 0.5));
    json_field_int(json, "p90", histogram_duration(words, 0.9));
    json_field_int(json, "p99", histogram_duration(words, 0.99));
    if (detail == SNAPSHOT_BRIEF) {
        json_close(json, '}');
        return;
    }
    json_field_open(json, "buckets", '['); /* [lower bound, count] of non-empty buckets */
    for (uint32_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (words[2 + i] > 0)
            bucket_json(histogram_bucket_floor(i), words[2 + i], json);
    json_close(json, ']');
    json_close(json, '}');
}

/* All counters of a scope by name. Those of a sum have no gauges. */
enum gauges { GAUGES_TOO, NO_GAUGES };

static void
counters_json(const struct snapshot_scope *scope, enum gauges gauges, enum snapshot_detail detail,
              struct json *json)
{
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        if (counter_table[i].scope != scope->kind ||
            (counter_table[i].type == TYPE_GAUGE && gauges == NO_GAUGES) || i == WORKER_HEARTBEAT)
            continue;
        json_name(json, counter_table[i].name);
        if (counter_table[i].type == TYPE_HISTOGRAM)
            histogram_json(snapshot_histogram(scope, (enum counter)i), detail, json);
        else
            json_put_uint(json, snapshot_value(scope, (enum counter)i));
    }
}

static void
worker_json(const struct snapshot *snapshot, const struct snapshot_scope *worker,
            enum snapshot_detail detail, struct json *json)
{
    json_open(json, '{');
    json_field_string(json, "name", worker->name);
    json_field_int(json, "heartbeat_age_ns",
                   snapshot_age_ns(snapshot, (int64_t)snapshot_value(worker, WORKER_HEARTBEAT)));
    counters_json(worker, GAUGES_TOO, detail, json);
    json_close(json, '}');
}

static void
stage_json(const struct snapshot *snapshot, const struct snapshot_scope *stage,
           enum snapshot_detail detail, struct json *json)
{
    struct snapshot_scope workers = snapshot_workers(snapshot, stage);
    uint32_t index = snapshot_index(snapshot, stage);
    json_open(json, '{');
    json_field_string(json, "name", stage->name);
    counters_json(stage, GAUGES_TOO, detail, json);
    counters_json(&workers, NO_GAUGES, detail, json);
    json_field_open(json, "workers", '[');
    for (const struct snapshot_scope *worker = NULL;
         (worker = snapshot_next(snapshot, SCOPE_WORKER, index, worker)) != NULL;)
        worker_json(snapshot, worker, detail, json);
    json_close(json, ']');
    json_close(json, '}');
    free(workers.words);
}

void
snapshot_node_json(const struct snapshot *snapshot, struct json *json)
{
    int64_t since_ns;
    json_field_bool(json, "live", snapshot->live);
    json_field_string(json, "state", node_state_name(snapshot->state));
    json_field_int(json, "pid", snapshot->pid);
    json_field_int(json, "started_unix_ns", snapshot->started_unix_ns);
    if (snapshot->live)
        json_field_int(json, "heartbeat_age_ns", snapshot_age_ns(snapshot, snapshot->heartbeat_ns));
    else if (snapshot_death_unix_ns(snapshot, &since_ns))
        json_field_int(json, "dead_since_unix_ns", since_ns);
}

static void
pipeline_json(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
              enum snapshot_detail detail, struct json *json)
{
    uint32_t index = snapshot_index(snapshot, pipeline);
    json_open(json, '{');
    json_field_string(json, "name", pipeline->name);
    counters_json(pipeline, GAUGES_TOO, detail, json);
    json_name(json, "oldest");
    snapshot_oldest_json(snapshot, pipeline, json);
    json_field_open(json, "stages", '[');
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, index, stage)) != NULL;)
        stage_json(snapshot, stage, detail, json);
    json_close(json, ']');
    json_close(json, '}');
}

void
snapshot_json(const struct snapshot *snapshot, const struct snapshot_json *form, struct json *json)
{
    json_open(json, '{');
    snapshot_node_json(snapshot, json);
    if (snapshot->interval_ns > 0)
        json_field_int(json, "interval_ns", snapshot->interval_ns);
    counters_json(&snapshot->scopes[0], GAUGES_TOO, SNAPSHOT_WHOLE, json);
    json_field_open(json, "pipelines", '[');
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;)
        if (form->pipeline == NULL || strcmp(form->pipeline, scope->name) == 0)
            pipeline_json(snapshot, scope, form->detail, json);
    json_close(json, ']');
    json_close(json, '}');
}
