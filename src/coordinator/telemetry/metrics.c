/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/metrics.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"

/* ---- names ---- */

static const char *const scope_names[SCOPE_COUNT] = {
    [SCOPE_NODE] = "node",
    [SCOPE_PIPELINE] = "pipeline",
    [SCOPE_STAGE] = "stage",
    [SCOPE_WORKER] = "worker",
};

/* Counters whose names begin alike are one family; the rest of the name is a label's value. */
static const struct group {
    enum counter_scope scope;
    const char *prefix;
    const char *name;
    const char *label;
    const char *help;
} groups[] = {
    {SCOPE_PIPELINE, "replies_", "replies", "result", "Requests answered, by result"},
    {SCOPE_PIPELINE, "rejected_", "rejected", "reason", "Requests refused, by reason"},
    {SCOPE_PIPELINE, "streams_", "streams_failed", "reason",
     "Answers in pieces broken off, by reason"},
    {SCOPE_WORKER, "closed_", "batches_closed", "reason", "Batches closed, by reason"},
    {SCOPE_NODE, "mesh_calls_", "calls", "result", "Calls for models of the mesh, by outcome"},
    {SCOPE_NODE, "mesh_peer_calls_", "peer_calls", "result",
     "Calls that other nodes sent here, by outcome"},
    {SCOPE_NODE, "mesh_tries_failed_", "tries_failed", "reason",
     "Attempts that did not answer their calls, by reason"},
    {SCOPE_NODE, "mesh_txns_", "txns", "result", "Transactions in the registry, by outcome"},
};

/* Counters of the node that are a mesh's have a prefix of their own. */
#define MESH_PREFIX "mesh_"

static bool
is_of_mesh(const struct counter_entry *entry)
{
    return entry->scope == SCOPE_NODE &&
           strncmp(entry->name, MESH_PREFIX, strlen(MESH_PREFIX)) == 0;
}

static const struct group *
group_of(const struct counter_entry *entry)
{
    for (size_t i = 0; i < ARRAY_COUNT(groups); i++)
        if (groups[i].scope == entry->scope &&
            strncmp(entry->name, groups[i].prefix, strlen(groups[i].prefix)) == 0)
            return &groups[i];
    return NULL;
}

static const char *
unit_suffix(const struct counter_entry *entry)
{
    switch (entry->unit) {
    case UNIT_NS:
    case UNIT_MS: return "_seconds";
    case UNIT_BYTES: return "_bytes";
    case UNIT_ITEMS: return strstr(entry->name, "items") != NULL ? "" : "_items";
    case UNIT_NONE: return "";
    }
    UNREACHABLE();
}

/* Returns whether it is a point in time, not a duration. */
static bool
is_time(enum counter counter)
{
    return counter == WORKER_HEARTBEAT || counter == NODE_MESH_OLDEST || counter == NODE_MESH_HEARD;
}

struct metric_name
metric_name(enum counter counter)
{
    const struct counter_entry *entry = &counter_table[counter];
    struct metric_name name = {.value = ""};
    if (entry->scope == SCOPE_OLDEST)
        return name;
    const struct group *group = group_of(entry);
    bool mesh = is_of_mesh(entry);
    const char *own = entry->name + (mesh ? strlen(MESH_PREFIX) : 0);
    enum counter_scope scope = entry->scope;
    if (scope == SCOPE_WORKER && entry->type == TYPE_HISTOGRAM)
        scope = SCOPE_STAGE;
    if (group != NULL) {
        own = group->name;
        name.value = entry->name + strlen(group->prefix);
        snprintf(name.label, sizeof(name.label), "%s", group->label);
    }
    int length =
        snprintf(name.family, sizeof(name.family), "shoal_%s_%s%s%s%s",
                 mesh ? "mesh" : scope_names[scope], own, is_time(counter) ? "_timestamp" : "",
                 unit_suffix(entry), entry->type == TYPE_COUNT ? "_total" : "");
    CHECK(length > 0 && (size_t)length < sizeof(name.family));
    return name;
}

/* ---- buckets ---- */

#define POWER(n) ((UINT64_C(1) << (n)) - 1)

size_t
metric_bounds(enum counter_unit unit, const uint64_t **bounds)
{
    static const uint64_t times[] = {
        POWER(10), POWER(11), POWER(12), POWER(13), POWER(14), POWER(15), POWER(16),
        POWER(17), POWER(18), POWER(19), POWER(20), POWER(21), POWER(22), POWER(23),
        POWER(24), POWER(25), POWER(26), POWER(27), POWER(28), POWER(29), POWER(30),
        POWER(31), POWER(32), POWER(33), POWER(34), POWER(35), POWER(36),
    };
    static const uint64_t ages[] = {
        POWER(10), POWER(12), POWER(14), POWER(15), POWER(16), POWER(17), POWER(18), POWER(19),
        POWER(20), POWER(21), POWER(22), POWER(23), POWER(24), POWER(25), POWER(26), POWER(27),
        POWER(28), POWER(29), POWER(30), POWER(31), POWER(32), POWER(33),
    };
    static const uint64_t sizes[] = {
        POWER(12), POWER(14), POWER(16), POWER(18), POWER(20), POWER(22), POWER(24), POWER(26),
        POWER(28), POWER(30), POWER(32), POWER(34), POWER(36), POWER(38), POWER(40),
    };
    static const uint64_t counts[] = {1,  2,  3,   5,   7,   11,  15,  23,   31,   47,
                                      63, 95, 127, 191, 255, 383, 511, 1023, 2047, 4095};
    static const struct {
        const uint64_t *at;
        size_t count;
    } by_unit[] = {
        [UNIT_NONE] = {counts, ARRAY_COUNT(counts)}, [UNIT_NS] = {times, ARRAY_COUNT(times)},
        [UNIT_MS] = {ages, ARRAY_COUNT(ages)},       [UNIT_ITEMS] = {counts, ARRAY_COUNT(counts)},
        [UNIT_BYTES] = {sizes, ARRAY_COUNT(sizes)},
    };
    *bounds = by_unit[unit].at;
    return by_unit[unit].count;
}

static uint64_t
add(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

/* ---- the text ---- */

struct page {
    FILE *out;
    const struct snapshot *snapshot;
    uint32_t *stages; /* for each scope that is a stage: its index */
    uint32_t stage_count;
    bool is_in_mesh;
};

/* The format's three escapes; other control characters cannot be in a line. */
void
metrics_put_escaped(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '\\' || *text == '"')
            fprintf(out, "\\%c", *text);
        else if (*text == '\n')
            fputs("\\n", out);
        else
            fputc((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text, out);
}

static void
put_seconds(FILE *out, uint64_t ns)
{
    fprintf(out, "%" PRIu64 ".%09" PRIu64, ns / (uint64_t)NS_PER_S, ns % (uint64_t)NS_PER_S);
}

static void
put_value(FILE *out, enum counter_unit unit, uint64_t value)
{
    if (unit == UNIT_NS)
        put_seconds(out, value);
    else if (unit == UNIT_MS)
        fprintf(out, "%" PRIu64 ".%03" PRIu64, value / 1000, value % 1000);
    else
        fprintf(out, "%" PRIu64, value);
}

static void
put_label(FILE *out, char *separator, const char *name, const char *value)
{
    fprintf(out, "%c%s=\"", *separator, name);
    metrics_put_escaped(out, value);
    fputc('"', out);
    *separator = ',';
}

/* `{pipeline="digits",stage="classify"`, as far as the scope goes; `,` or `{` comes next. */
static char
put_scope(const struct page *page, const struct snapshot_scope *scope)
{
    char separator = '{';
    const struct snapshot_scope *chain[SCOPE_COUNT];
    size_t depth = 0;
    for (; scope->kind != SCOPE_NODE && depth < SCOPE_COUNT;
         scope = &page->snapshot->scopes[scope->parent])
        chain[depth++] = scope;
    while (depth > 0) {
        scope = chain[--depth];
        put_label(page->out, &separator, scope_names[scope->kind], scope->name);
    }
    return separator;
}

/* ---- families ---- */

static void
put_number(const struct page *page, const struct snapshot_scope *scope, enum counter counter,
           const struct metric_name *name)
{
    uint64_t value = snapshot_value(scope, counter);
    if (is_time(counter) && value == 0) /* the place was never used */
        return;
    if (counter == WORKER_HEARTBEAT) {
        int64_t age_ns = snapshot_age_ns(page->snapshot, (int64_t)value);
        int64_t at_ns = page->snapshot->taken_unix_ns - age_ns;
        value = at_ns > 0 ? (uint64_t)at_ns : 0;
    }
    fputs(name->family, page->out);
    char separator = put_scope(page, scope);
    if (name->label[0] != '\0')
        put_label(page->out, &separator, name->label, name->value);
    fputs(separator == ',' ? "} " : " ", page->out);
    put_value(page->out, counter_table[counter].unit, value);
    fputc('\n', page->out);
}

static void
put_bucket(const struct page *page, const struct snapshot_scope *scope, const char *family,
           enum counter_unit unit, const uint64_t *bound, uint64_t count)
{
    fprintf(page->out, "%s_bucket", family);
    char separator = put_scope(page, scope);
    fprintf(page->out, "%cle=\"", separator);
    if (bound != NULL)
        put_value(page->out, unit, *bound);
    else
        fputs("+Inf", page->out);
    fprintf(page->out, "\"} %" PRIu64 "\n", count);
}

/* The count is that of the buckets, even if the separate count has moved on meanwhile. */
static void
put_histogram(const struct page *page, const struct snapshot_scope *scope, const char *family,
              enum counter_unit unit, const uint64_t *words)
{
    const uint64_t *bounds;
    size_t bound_count = metric_bounds(unit, &bounds);
    uint64_t count = 0;
    uint32_t next = 0;
    for (size_t i = 0; i < bound_count; i++) {
        for (; next < HISTOGRAM_BUCKETS && histogram_bucket_floor(next) <= bounds[i]; next++)
            count = add(count, words[2 + next]);
        put_bucket(page, scope, family, unit, &bounds[i], count);
    }
    for (; next < HISTOGRAM_BUCKETS; next++)
        count = add(count, words[2 + next]);
    put_bucket(page, scope, family, unit, NULL, count);
    fprintf(page->out, "%s_sum", family);
    fputs(put_scope(page, scope) == ',' ? "} " : " ", page->out);
    put_value(page->out, unit, words[1]);
    fprintf(page->out, "\n%s_count", family);
    fputs(put_scope(page, scope) == ',' ? "} " : " ", page->out);
    fprintf(page->out, "%" PRIu64 "\n", count);
}

/* A worker's histogram, added up for each stage in one pass over all workers. */
static void
put_stage_sums(const struct page *page, const char *family, enum counter counter)
{
    const struct snapshot *snapshot = page->snapshot;
    struct sum {
        uint64_t words[HISTOGRAM_WORDS];
    } *sums = calloc(page->stage_count + 1, sizeof(*sums));
    CHECK(sums != NULL);
    for (uint32_t i = 0; i < snapshot->scope_count; i++) {
        const struct snapshot_scope *worker = &snapshot->scopes[i];
        if (worker->kind != SCOPE_WORKER)
            continue;
        struct sum *sum = &sums[page->stages[worker->parent]];
        for (uint32_t word = 0; word < HISTOGRAM_WORDS; word++)
            sum->words[word] = add(sum->words[word], snapshot_histogram(worker, counter)[word]);
    }
    for (uint32_t i = 0; i < snapshot->scope_count; i++)
        if (snapshot->scopes[i].kind == SCOPE_STAGE)
            put_histogram(page, &snapshot->scopes[i], family, counter_table[counter].unit,
                          sums[page->stages[i]].words);
    free(sums);
}

static const char *
after_colon(const char *help)
{
    const char *colon = strstr(help, ": ");
    return colon != NULL ? colon + 2 : help;
}

static void
put_help(const struct page *page, enum counter first, const char *family)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    const struct counter_entry *entry = &counter_table[first];
    const struct group *group = group_of(entry);
    if (group == NULL) {
        metrics_put_head(page->out, family, types[entry->type],
                         first == WORKER_HEARTBEAT ? "Last sign of life, in Unix time"
                                                   : entry->help);
        return;
    }
    fprintf(page->out, "# HELP %s %s", family, group->help);
    for (enum counter i = first; i < COUNTER_TABLE_COUNT; i++)
        if (group_of(&counter_table[i]) == group)
            fprintf(page->out, "; %s: %s", metric_name(i).value,
                    after_colon(counter_table[i].help));
    fprintf(page->out, "\n# TYPE %s %s\n", family, types[entry->type]);
}

/* All series of one counter. */
static void
put_series(const struct page *page, enum counter counter, const struct metric_name *name)
{
    const struct counter_entry *entry = &counter_table[counter];
    bool histogram = entry->type == TYPE_HISTOGRAM;
    if (histogram && entry->scope == SCOPE_WORKER) {
        put_stage_sums(page, name->family, counter);
        return;
    }
    for (uint32_t i = 0; i < page->snapshot->scope_count; i++) {
        const struct snapshot_scope *scope = &page->snapshot->scopes[i];
        if (scope->kind != entry->scope)
            continue;
        if (histogram)
            put_histogram(page, scope, name->family, entry->unit,
                          snapshot_histogram(scope, counter));
        else
            put_number(page, scope, counter, name);
    }
}

/* The lines of a family stand together: a group's come with its first counter. */
static void
put_family(const struct page *page, enum counter first)
{
    struct metric_name name = metric_name(first);
    const struct group *group = group_of(&counter_table[first]);
    if (name.family[0] == '\0' || (is_of_mesh(&counter_table[first]) && !page->is_in_mesh))
        return;
    for (enum counter i = 0; group != NULL && i < first; i++)
        if (group_of(&counter_table[i]) == group)
            return;
    put_help(page, first, name.family);
    put_series(page, first, &name);
    for (enum counter i = first + 1; group != NULL && i < COUNTER_TABLE_COUNT; i++)
        if (group_of(&counter_table[i]) == group) {
            name = metric_name(i);
            put_series(page, i, &name);
        }
}

/* ---- figures that are no counters ---- */

static void
put_node(const struct page *page, const char *version)
{
    const struct snapshot *snapshot = page->snapshot;
    FILE *out = page->out;
    metrics_put_head(out, "shoal_build_info", "gauge", "1; the version of shoald is a label");
    fputs("shoal_build_info{version=\"", out);
    metrics_put_escaped(out, version);
    fputs("\"} 1\n", out);
    metrics_put_head(out, "shoal_node_state", "gauge", "1 for the present state of the node");
    for (enum node_state state = NODE_STARTING; state <= NODE_STOPPED; state++)
        fprintf(out, "shoal_node_state{state=\"%s\"} %d\n", node_state_name(state),
                state == snapshot->state);
    metrics_put_head(out, "shoal_node_uptime_seconds", "gauge", "Since the node was started");
    int64_t uptime_ns = snapshot->taken_unix_ns - snapshot->started_unix_ns;
    fputs("shoal_node_uptime_seconds ", out);
    put_seconds(out, uptime_ns > 0 ? (uint64_t)uptime_ns : 0);
    fputc('\n', out);
}

static int64_t
oldest_age_ns(const struct snapshot *snapshot, uint32_t pipeline)
{
    int64_t greatest_ns = 0;
    for (const struct snapshot_scope *oldest = NULL;
         (oldest = snapshot_next(snapshot, SCOPE_OLDEST, pipeline, oldest)) != NULL;) {
        uint64_t arrived_ns = snapshot_value(oldest, OLDEST_ARRIVED);
        int64_t age_ns = arrived_ns != 0 ? snapshot_age_ns(snapshot, (int64_t)arrived_ns) : 0;
        greatest_ns = age_ns > greatest_ns ? age_ns : greatest_ns;
    }
    return greatest_ns;
}

static void
put_pipelines(const struct page *page)
{
    const struct snapshot *snapshot = page->snapshot;
    metrics_put_head(page->out, "shoal_pipeline_ready", "gauge",
                     "1: every stage has a worker, and none is in quarantine");
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;) {
        fputs("shoal_pipeline_ready", page->out);
        put_scope(page, scope);
        fprintf(page->out, "} %d\n", snapshot_pipeline_ready(snapshot, scope));
    }
    metrics_put_head(page->out, "shoal_pipeline_oldest_age_seconds", "gauge",
                     "How long the oldest request has been in flight; 0: there is none");
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;) {
        fputs("shoal_pipeline_oldest_age_seconds", page->out);
        put_scope(page, scope);
        fputs("} ", page->out);
        put_seconds(page->out, (uint64_t)oldest_age_ns(snapshot, snapshot_index(snapshot, scope)));
        fputc('\n', page->out);
    }
}

/* ---- the load of pipelines, as docs/model-server-protocol.md has it ---- */

enum load_figure { LOAD_WAITING, LOAD_RUNNING, LOAD_ROOM, LOAD_COUNT };

static const struct load_family {
    const char *name, *help;
} families[LOAD_COUNT] = {
    [LOAD_WAITING] = {"model_server_requests_waiting", "Requests that no worker has taken yet"},
    [LOAD_RUNNING] = {"model_server_requests_running", "Requests that workers have"},
    [LOAD_ROOM] = {"model_server_requests_max", "Requests that a pipeline can have at a time"},
};

/* Gauges are published one after another, so that rings may seem to hold more than all slots. */
static uint64_t
figure_of(const struct snapshot *snapshot, const struct snapshot_scope *pipeline,
          enum load_figure figure)
{
    uint64_t used = snapshot_value(pipeline, PIPELINE_SLOTS_USED);
    uint64_t queued = 0;
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, snapshot_index(snapshot, pipeline),
                                stage)) != NULL;) {
        uint64_t depth = snapshot_value(stage, STAGE_DEPTH);
        queued = depth < used - queued ? queued + depth : used;
    }
    switch (figure) {
    case LOAD_WAITING: return queued + snapshot_value(pipeline, PIPELINE_WAITING);
    case LOAD_RUNNING: return used - queued;
    case LOAD_ROOM:
    case LOAD_COUNT: break;
    }
    return snapshot_value(pipeline, PIPELINE_SLOTS_MAX);
}

static void
put_load(const struct snapshot *snapshot, FILE *out)
{
    for (enum load_figure figure = 0; figure < LOAD_COUNT; figure++) {
        metrics_put_head(out, families[figure].name, "gauge", families[figure].help);
        for (const struct snapshot_scope *pipeline = NULL;
             (pipeline = snapshot_next(snapshot, SCOPE_PIPELINE, 0, pipeline)) != NULL;) {
            fprintf(out, "%s{model=\"", families[figure].name);
            metrics_put_escaped(out, pipeline->name);
            fprintf(out, "\"} %" PRIu64 "\n", figure_of(snapshot, pipeline, figure));
        }
    }
}

/* ---- the page ---- */

static void
put_process(const struct page *page, const struct process_figures *figures)
{
    const struct {
        const char *name, *type, *help;
        double value;
    } rows[] = {
        {"process_cpu_seconds_total", "counter", "CPU time of shoald, without its workers",
         figures->cpu_seconds},
        {"process_resident_memory_bytes", "gauge", "Memory of shoald that is in RAM",
         (double)figures->resident_bytes},
        {"process_virtual_memory_bytes", "gauge", "Address space of shoald",
         (double)figures->virtual_bytes},
        {"process_open_fds", "gauge", "Descriptors that shoald has open",
         (double)figures->open_files},
        {"process_max_fds", "gauge", "Limit of descriptors that shoald may have open",
         (double)figures->files_max},
        {"process_start_time_seconds", "gauge", "When shoald was started, in Unix time",
         (double)page->snapshot->started_unix_ns / (double)NS_PER_S},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        metrics_put_head(page->out, rows[i].name, rows[i].type, rows[i].help);
        fprintf(page->out, "%s %.15g\n", rows[i].name, rows[i].value);
    }
}

void
metrics_print(const struct snapshot *snapshot, const struct process_figures *figures,
              const char *version, FILE *out)
{
    struct page page = {.out = out,
                        .snapshot = snapshot,
                        .is_in_mesh = snapshot_value(&snapshot->scopes[0], NODE_MESH_ON) != 0};
    page.stages = calloc(snapshot->scope_count, sizeof(*page.stages));
    CHECK(page.stages != NULL);
    for (uint32_t i = 0; i < snapshot->scope_count; i++)
        if (snapshot->scopes[i].kind == SCOPE_STAGE)
            page.stages[i] = page.stage_count++;
    put_node(&page, version);
    put_pipelines(&page);
    for (enum counter i = 0; i < COUNTER_TABLE_COUNT; i++)
        put_family(&page, i);
    put_load(snapshot, out);
    if (page.is_in_mesh)
        metrics_print_modelmesh(snapshot, out);
    if (figures != NULL)
        put_process(&page, figures);
    free(page.stages);
}
