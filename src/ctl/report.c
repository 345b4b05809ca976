/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/report.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/figure.h"
#include "ipc/snapshot_json.h"

enum { SCREEN_COLUMNS = 80, SCREEN_NAME_BYTES = 14 };

static double
per_second(const struct snapshot *snapshot, uint64_t count)
{
    return (double)count * (double)NS_PER_S / (double)snapshot->interval_ns;
}

/* ---- tables ---- */

/* Words in lines of a limited width. */
struct flow {
    FILE *out;
    int columns;
    int used;
};

static void
flow_put(struct flow *flow, const char *text)
{
    int width = (int)strlen(text);
    if (flow->used + width > flow->columns) {
        fputs("\n  ", flow->out);
        flow->used = 2;
    }
    fputs(text, flow->out);
    flow->used += width;
}

static void
flow_end(struct flow *flow)
{
    putc('\n', flow->out);
    flow->used = 0;
}

/* "name 12,345", followed by the rate if the figures cover an interval. */
static void
figure_named(const struct snapshot *snapshot, const char *name, uint64_t count, struct flow *flow)
{
    char room[FIGURE_ROOM];
    char rate[FIGURE_ROOM] = "";
    char text[3 * FIGURE_ROOM];
    figure_count(room, count);
    if (snapshot->interval_ns > 0 && count > 0)
        snprintf(rate, sizeof rate, " (%.1f/s)", per_second(snapshot, count));
    snprintf(text, sizeof text, "  %s %s%s", name, room, rate);
    flow_put(flow, text);
}

/* A dash if nothing was measured. */
static void
duration_cell(struct figure_table *table, const uint64_t *histogram, double share)
{
    if (histogram[0] == 0)
        table_add(table, "-");
    else
        table_add_duration(table, histogram_duration(histogram, share));
}

/* Every reason that the table of counters has: the counters that begin so. */
static void
reasons_print(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
              const char *prefix, struct flow *flow)
{
    size_t bytes = strlen(prefix);
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++)
        if (counter_table[i].scope == SCOPE_PIPELINE &&
            strncmp(counter_table[i].name, prefix, bytes) == 0)
            figure_named(snapshot, counter_table[i].name + bytes,
                         snapshot_value(pipeline, (enum counter)i), flow);
}

/* Prints nothing for a pipeline whose callers take no pieces. */
static void
streams_print(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
              struct flow *flow)
{
    uint64_t streams = snapshot_value(pipeline, PIPELINE_STREAMS);
    uint64_t pieces = snapshot_value(pipeline, PIPELINE_PIECES);
    char open[FIGURE_ROOM + sizeof "  open streams "];
    if (streams == 0 && pieces == 0)
        return;
    snprintf(open, sizeof open, "  open streams %" PRIu64, streams);
    flow_put(flow, open);
    figure_named(snapshot, "pieces", pieces, flow);
    flow_put(flow, "  broken off:");
    reasons_print(snapshot, pipeline, "streams_", flow);
    flow_end(flow);
}

static void
pipeline_head(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
              enum report_form form, FILE *out)
{
    static const struct {
        enum counter counter;
        const char *name;
    } ends[] = {
        {PIPELINE_REQUESTS, "requests"},           {PIPELINE_REPLIES_OK, "ok"},
        {PIPELINE_REPLIES_FAILED, "failed"},       {PIPELINE_CANCELLED, "cancelled"},
        {PIPELINE_RUN_AGAIN, "run again"},         {PIPELINE_POISON, "poison"},
        {PIPELINE_REGION_RESETS, "region resets"},
    };
    const uint64_t *latency = snapshot_histogram(pipeline, PIPELINE_LATENCY);
    struct flow flow = {.out = out, .columns = form == REPORT_SCREEN ? SCREEN_COLUMNS : INT_MAX};
    fprintf(out, "\npipeline %s\n", pipeline->name);
    for (size_t i = 0; i < ARRAY_COUNT(ends); i++)
        figure_named(snapshot, ends[i].name, snapshot_value(pipeline, ends[i].counter), &flow);
    flow_end(&flow);
    flow_put(&flow, "  refused:");
    reasons_print(snapshot, pipeline, "rejected_", &flow);
    flow_end(&flow);
    streams_print(snapshot, pipeline, &flow);
    fprintf(out, "  in flight %" PRIu64 " of %" PRIu64 "  blocks %" PRIu64 " of %" PRIu64,
            snapshot_value(pipeline, PIPELINE_SLOTS_USED),
            snapshot_value(pipeline, PIPELINE_SLOTS_MAX),
            snapshot_value(pipeline, PIPELINE_BLOCKS_USED),
            snapshot_value(pipeline, PIPELINE_BLOCKS_MAX));
    if (latency[0] > 0) {
        char p50[FIGURE_ROOM], p99[FIGURE_ROOM];
        figure_duration(p50, histogram_duration(latency, 0.5));
        figure_duration(p99, histogram_duration(latency, 0.99));
        fprintf(out, "  latency p50 %s p99 %s", p50, p99);
    }
    putc('\n', out);
}

/* The longest silence of the workers that exist. */
static void
heartbeat_cell(struct figure_table *table, const struct snapshot *snapshot,
               const struct snapshot_scope *stage)
{
    uint32_t parent = snapshot_index(snapshot, stage);
    int64_t oldest_ns = -1;
    for (const struct snapshot_scope *worker = NULL;
         (worker = snapshot_next(snapshot, SCOPE_WORKER, parent, worker)) != NULL;) {
        if (snapshot_value(worker, WORKER_PID) == 0)
            continue;
        int64_t age_ns =
            snapshot_age_ns(snapshot, (int64_t)snapshot_value(worker, WORKER_HEARTBEAT));
        oldest_ns = age_ns > oldest_ns ? age_ns : oldest_ns;
    }
    if (oldest_ns < 0)
        table_add(table, "-");
    else
        table_add_duration(table, oldest_ns);
}

static void
work_row(struct figure_table *table, const struct snapshot *snapshot,
         const struct snapshot_scope *stage, const struct snapshot_scope *workers)
{
    const uint64_t *wait = snapshot_histogram(workers, WORKER_WAIT);
    const uint64_t *run = snapshot_histogram(workers, WORKER_RUN);
    table_add(table, "%s", stage->name);
    table_add(table, "%" PRIu64 "/%" PRIu64 "%s", snapshot_value(stage, STAGE_WORKERS_LIVE),
              snapshot_value(stage, STAGE_WORKERS_WANTED),
              snapshot_value(stage, STAGE_QUARANTINED) != 0 ? " QUARANTINED" : "");
    table_add_count(table, snapshot_value(stage, STAGE_DEPTH));
    table_add_count(table, snapshot_value(workers, WORKER_ITEMS));
    if (snapshot->interval_ns > 0)
        table_add(table, "%.1f", per_second(snapshot, snapshot_value(workers, WORKER_ITEMS)));
    table_add_count(table, snapshot_value(workers, WORKER_ITEMS_FAILED) +
                               snapshot_value(workers, WORKER_ITEMS_UNSET));
    table_add_count(table, snapshot_value(workers, WORKER_ITEMS_LATE) +
                               snapshot_value(workers, WORKER_ITEMS_CANCELLED));
    duration_cell(table, wait, 0.5);
    duration_cell(table, wait, 0.99);
    duration_cell(table, run, 0.5);
    duration_cell(table, run, 0.99);
    table_add_count(table, snapshot_value(stage, STAGE_RESTARTS));
    heartbeat_cell(table, snapshot, stage);
}

static void
batch_row(struct figure_table *table, const struct snapshot_scope *stage,
          const struct snapshot_scope *workers)
{
    static const enum counter counts[] = {
        WORKER_CLOSED_SINGLE,   WORKER_CLOSED_FULL,     WORKER_CLOSED_WAIT,
        WORKER_CLOSED_ADAPTIVE, WORKER_CLOSED_DEADLINE, WORKER_CLOSED_CROWDED,
        WORKER_CLOSED_DRAINING, WORKER_BATCHES_HALVED,  WORKER_SLEEPS};
    const uint64_t *items = snapshot_histogram(workers, WORKER_BATCH_ITEMS);
    table_add(table, "%s", stage->name);
    table_add_count(table, snapshot_value(workers, WORKER_BATCHES));
    if (items[0] == 0)
        table_add(table, "-");
    else
        table_add(table, "%.1f", histogram_mean(items));
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++)
        table_add_count(table, snapshot_value(workers, counts[i]));
}

/* Stages whose workers have died; nothing if there are none. */
static void
deaths_print(const struct snapshot *snapshot, const struct snapshot_scope *pipeline, FILE *out)
{
    static const char *const headings[] = {"stage",        "deaths",       "run timeouts",
                                           "quarantines",  "reclaim p50",  "reclaim p99",
                                           "recovery p50", "recovery p99", NULL};
    struct figure_table table;
    size_t rows = 0;
    table_init(&table, 1, headings);
    uint32_t parent = snapshot_index(snapshot, pipeline);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL;) {
        const uint64_t *reclaim = snapshot_histogram(stage, STAGE_RECLAIM);
        const uint64_t *recovery = snapshot_histogram(stage, STAGE_RECOVERY);
        if (reclaim[0] == 0)
            continue;
        table_add(&table, "%s", stage->name);
        table_add_count(&table, reclaim[0]);
        table_add_count(&table, snapshot_value(stage, STAGE_RUN_TIMEOUTS));
        table_add_count(&table, snapshot_value(stage, STAGE_QUARANTINES));
        duration_cell(&table, reclaim, 0.5);
        duration_cell(&table, reclaim, 0.99);
        duration_cell(&table, recovery, 0.5);
        duration_cell(&table, recovery, 0.99);
        rows++;
    }
    if (rows > 0) {
        putc('\n', out);
        table_print(&table, out);
    }
    table_free(&table);
}

static void
stages_print(const struct snapshot *snapshot, const struct snapshot_scope *pipeline, FILE *out)
{
    static const char *const work_since_start[] = {
        "stage",    "workers", "depth",   "items",    "failed",    "dropped", "wait p50",
        "wait p99", "run p50", "run p99", "restarts", "heartbeat", NULL};
    static const char *const work_of_interval[] = {
        "stage",    "workers",  "depth",   "items",   "items/s",  "failed",    "dropped",
        "wait p50", "wait p99", "run p50", "run p99", "restarts", "heartbeat", NULL};
    static const char *const batch_headings[] = {
        "stage",    "batches", "mean",     "single", "full",   "wait", "adaptive",
        "deadline", "crowded", "draining", "halved", "sleeps", NULL};
    struct figure_table work, batches;
    table_init(&work, 1, snapshot->interval_ns > 0 ? work_of_interval : work_since_start);
    table_init(&batches, 1, batch_headings);
    uint32_t parent = snapshot_index(snapshot, pipeline);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL;) {
        struct snapshot_scope workers = snapshot_workers(snapshot, stage);
        work_row(&work, snapshot, stage, &workers);
        batch_row(&batches, stage, &workers);
        free(workers.words);
    }
    table_print(&work, out);
    putc('\n', out);
    table_print(&batches, out);
    table_free(&work);
    table_free(&batches);
    deaths_print(snapshot, pipeline, out);
}

/* Like work_row(), in 80 columns, without what seldom changes. */
static void
screen_row(struct figure_table *table, const struct snapshot *snapshot,
           const struct snapshot_scope *stage, const struct snapshot_scope *workers)
{
    const uint64_t *wait = snapshot_histogram(workers, WORKER_WAIT);
    const uint64_t *run = snapshot_histogram(workers, WORKER_RUN);
    const uint64_t *items = snapshot_histogram(workers, WORKER_BATCH_ITEMS);
    const uint64_t lost = snapshot_value(workers, WORKER_ITEMS_FAILED) +
                          snapshot_value(workers, WORKER_ITEMS_UNSET) +
                          snapshot_value(workers, WORKER_ITEMS_LATE) +
                          snapshot_value(workers, WORKER_ITEMS_CANCELLED);
    bool is_long = strlen(stage->name) > SCREEN_NAME_BYTES;
    table_add(table, "%.*s%s", is_long ? SCREEN_NAME_BYTES - 1 : SCREEN_NAME_BYTES, stage->name,
              is_long ? ">" : "");
    table_add(table, "%" PRIu64 "/%" PRIu64, snapshot_value(stage, STAGE_WORKERS_LIVE),
              snapshot_value(stage, STAGE_WORKERS_WANTED));
    table_add(table, "%" PRIu64, snapshot_value(stage, STAGE_DEPTH));
    table_add(table, "%.0f",
              snapshot->interval_ns > 0
                  ? per_second(snapshot, snapshot_value(workers, WORKER_ITEMS))
                  : (double)snapshot_value(workers, WORKER_ITEMS));
    table_add(table, "%" PRIu64, lost);
    duration_cell(table, wait, 0.5);
    duration_cell(table, wait, 0.99);
    duration_cell(table, run, 0.5);
    duration_cell(table, run, 0.99);
    if (items[0] == 0)
        table_add(table, "-");
    else
        table_add(table, "%.1f", histogram_mean(items));
}

static void
stages_on_screen(const struct snapshot *snapshot, const struct snapshot_scope *pipeline, FILE *out)
{
    static const char *const since_start[] = {"stage", "up",  "depth", "items", "lost", "wait",
                                              "p99",   "run", "p99",   "batch", NULL};
    static const char *const of_interval[] = {"stage", "up",  "depth", "items/s", "lost", "wait",
                                              "p99",   "run", "p99",   "batch",   NULL};
    struct figure_table table;
    table_init(&table, 1, snapshot->interval_ns > 0 ? of_interval : since_start);
    uint32_t parent = snapshot_index(snapshot, pipeline);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL;) {
        struct snapshot_scope workers = snapshot_workers(snapshot, stage);
        screen_row(&table, snapshot, stage, &workers);
        free(workers.words);
    }
    table_print(&table, out);
    table_free(&table);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL;)
        if (snapshot_value(stage, STAGE_QUARANTINED) != 0)
            fprintf(out, "  QUARANTINED: %s\n", stage->name);
}

void
report_node_line(const struct snapshot *snapshot, FILE *out)
{
    char room[FIGURE_ROOM];
    char ago[FIGURE_ROOM];
    int64_t since_ns;
    if (snapshot->live) {
        figure_duration(room, snapshot->taken_unix_ns - snapshot->started_unix_ns);
        figure_duration(ago, snapshot_age_ns(snapshot, snapshot->heartbeat_ns));
        fprintf(out, "%s, pid %" PRId32 ", up %s, heartbeat %s ago\n",
                node_state_name(snapshot->state), snapshot->pid, room, ago);
    } else if (!snapshot_death_unix_ns(snapshot, &since_ns)) {
        fprintf(out, "dead, was pid %" PRId32 ", since before this machine was started\n",
                snapshot->pid);
    } else {
        figure_time(room, since_ns);
        figure_duration(ago, snapshot->taken_unix_ns - since_ns);
        fprintf(out, "dead, was %s with pid %" PRId32 ", since %s (%s ago)\n",
                node_state_name(snapshot->state), snapshot->pid, room, ago);
    }
}

void
report_print(const struct snapshot *snapshot, const char *pipeline, enum report_form form,
             FILE *out)
{
    const struct snapshot_scope *node = &snapshot->scopes[0];
    fputs("node ", out);
    report_node_line(snapshot, out);
    if (snapshot->interval_ns > 0) {
        char room[FIGURE_ROOM];
        figure_duration(room, snapshot->interval_ns);
        fprintf(out, "  in the last %s:", room);
    }
    struct flow flow = {.out = out, .columns = INT_MAX};
    figure_named(snapshot, "calls", snapshot_value(node, NODE_CALLS), &flow);
    figure_named(snapshot, "refused", snapshot_value(node, NODE_CALLS_REFUSED), &flow);
    flow_end(&flow);
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;) {
        if (pipeline != NULL && strcmp(pipeline, scope->name) != 0)
            continue;
        pipeline_head(snapshot, scope, form, out);
        putc('\n', out);
        if (form == REPORT_SCREEN)
            stages_on_screen(snapshot, scope, out);
        else
            stages_print(snapshot, scope, out);
    }
}

/* ---- JSON ---- */

void
report_json(const struct snapshot *snapshot, const char *pipeline, FILE *out)
{
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    const struct snapshot_json form = {.pipeline = pipeline};
    snapshot_json(snapshot, &form, &json);
    ctl_print_line(&line, out);
}

/* ---- the manual ---- */

static const char *const scope_names[] = {"node", "pipeline", "stage", "worker", "oldest"};
static const char *const type_names[] = {"count", "gauge", "histogram"};
static const char *const unit_names[] = {
    [UNIT_NONE] = "",       [UNIT_NS] = "ns",       [UNIT_MS] = "ms",
    [UNIT_ITEMS] = "items", [UNIT_BYTES] = "bytes",
};

void
report_manual(FILE *out)
{
    static const char *const headings[] = {"scope", "name", "type", "unit", "meaning", NULL};
    struct figure_table table;
    table_init(&table, 5, headings);
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        table_add(&table, "%s", scope_names[counter_table[i].scope]);
        table_add(&table, "%s", counter_table[i].name);
        table_add(&table, "%s", type_names[counter_table[i].type]);
        table_add(&table, "%s", unit_names[counter_table[i].unit]);
        table_add(&table, "%s", counter_table[i].help);
    }
    table_print(&table, out);
    table_free(&table);
}

void
report_manual_json(FILE *out)
{
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    json_open(&json, '[');
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        json_open(&json, '{');
        json_field_string(&json, "scope", scope_names[counter_table[i].scope]);
        json_field_string(&json, "name", counter_table[i].name);
        json_field_string(&json, "type", type_names[counter_table[i].type]);
        json_field_string(&json, "unit", unit_names[counter_table[i].unit]);
        json_field_string(&json, "meaning", counter_table[i].help);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    ctl_print_line(&line, out);
}
