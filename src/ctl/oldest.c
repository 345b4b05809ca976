/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/oldest.h"

#include <inttypes.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/figure.h"

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

/* ---- text ---- */

static void
row(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
    const struct snapshot_scope *request, struct figure_table *table)
{
    const char *stage = stage_name(snapshot, request);
    int64_t left_ns;
    table_add(table, "%s", pipeline->name);
    table_add(table, "%s", where_name(request));
    table_add(table, "%s", stage == NULL ? "-" : stage);
    if (snapshot_value(request, OLDEST_OWNER_PID) == 0) {
        table_add(table, "-");
        table_add(table, "-");
    } else {
        table_add(table, "%" PRIu64, snapshot_value(request, OLDEST_OWNER));
        table_add(table, "%" PRIu64, snapshot_value(request, OLDEST_OWNER_PID));
    }
    table_add_duration(table, age_of(snapshot, request));
    if (!deadline_left(snapshot, request, &left_ns))
        table_add(table, "-");
    else if (left_ns <= 0)
        table_add(table, "passed");
    else
        table_add_duration(table, left_ns);
    table_add_count(table, snapshot_value(request, OLDEST_DEATHS));
}

/* The next request; NULL after the last one. */
static const struct snapshot_scope *
next_request(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
             const struct snapshot_scope *after)
{
    uint32_t parent = snapshot_index(snapshot, pipeline);
    do
        after = snapshot_next(snapshot, SCOPE_OLDEST, parent, after);
    while (after != NULL && snapshot_value(after, OLDEST_ARRIVED) == 0);
    return after;
}

void
oldest_print(const struct snapshot *snapshot, FILE *out)
{
    static const char *const headings[] = {
        "oldest request of", "where",  "stage", "worker", "pid", "age",
        "deadline left",     "deaths", NULL};
    struct figure_table table;
    size_t rows = 0;
    table_init(&table, 3, headings);
    for (const struct snapshot_scope *pipeline = NULL;
         (pipeline = snapshot_next(snapshot, SCOPE_PIPELINE, 0, pipeline)) != NULL;)
        for (const struct snapshot_scope *request = NULL;
             (request = next_request(snapshot, pipeline, request)) != NULL; rows++)
            row(snapshot, pipeline, request, &table);
    if (rows > 0) {
        putc('\n', out);
        table_print(&table, out);
    }
    table_free(&table);
}

/* ---- JSON ---- */

static void
object(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
       const struct snapshot_scope *request, struct json *json)
{
    const char *stage = stage_name(snapshot, request);
    int64_t left_ns;
    json_open(json, '{');
    json_field_string(json, "pipeline", pipeline->name);
    json_field_string(json, "where", where_name(request));
    if (stage != NULL)
        json_field_string(json, "stage", stage);
    if (snapshot_value(request, OLDEST_OWNER_PID) != 0) {
        json_field_uint(json, "worker", snapshot_value(request, OLDEST_OWNER));
        json_field_uint(json, "pid", snapshot_value(request, OLDEST_OWNER_PID));
    }
    json_field_int(json, "age_ns", age_of(snapshot, request));
    if (deadline_left(snapshot, request, &left_ns))
        json_field_int(json, "deadline_left_ns", left_ns);
    json_field_uint(json, "deaths", snapshot_value(request, OLDEST_DEATHS));
    json_close(json, '}');
}

void
oldest_json(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
            struct json *json)
{
    json_open(json, '[');
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;)
        for (const struct snapshot_scope *request = NULL;
             (pipeline == NULL || pipeline == scope) &&
             (request = next_request(snapshot, scope, request)) != NULL;)
            object(snapshot, scope, request, json);
    json_close(json, ']');
}
