/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The counters as Prometheus reads them. A real file of counters with known values gives known
 * lines; every counter of the table has a family, under one legal name; buckets end where the
 * histograms' own do; and for any value that a worker writes, each line is well formed, no
 * bucket is smaller than the one before, and the count is that of the last.
 */
#include <ctype.h>
#include <fcntl.h>

#include "../random.h"
#include "test_counters_rig.h"

#include "coordinator/telemetry/metrics.h"

static char *
print(const struct snapshot *snapshot)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    struct process_figures figures = {.cpu_seconds = 1.25,
                                      .resident_bytes = 4096,
                                      .virtual_bytes = 8192,
                                      .open_files = 7,
                                      .files_max = 1024};
    metrics_print(snapshot, &figures, "1.2.3", out);
    fclose(out);
    return text;
}

static struct snapshot
take(void)
{
    struct snapshot snapshot;
    struct error error = ERROR_NONE;
    if (snapshot_read(&snapshot, path, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return snapshot;
}

/* The file as it is now. */
static char *
print_file(void)
{
    struct snapshot snapshot = take();
    char *text = print(&snapshot);
    snapshot_free(&snapshot);
    return text;
}

static void
assert_line(const char *text, const char *line)
{
    char whole[512];
    snprintf(whole, sizeof(whole), "\n%s\n", line);
    if (strstr(text, whole) == NULL)
        fail_msg("no line \"%s\" in\n%s", line, text);
}

/* A ring that seems to hold more than all slots in use leaves none running. */
TEST_CASE(test_load_of_a_pipeline)
{
    static const struct {
        uint64_t depth, used;
        const char *waiting, *running;
    } cases[] = {
        {9, 12, "model_server_requests_waiting{model=\"digits\"} 11",
         "model_server_requests_running{model=\"digits\"} 3"},
        {9, 4, "model_server_requests_waiting{model=\"digits\"} 6",
         "model_server_requests_running{model=\"digits\"} 0"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct counters counters = create();
        _Atomic uint64_t *pipeline = counters_values(&counters, PIPELINE);
        counter_set(counters_values(&counters, STAGE), STAGE_DEPTH, cases[i].depth);
        counter_set(pipeline, PIPELINE_SLOTS_USED, cases[i].used);
        counter_set(pipeline, PIPELINE_SLOTS_MAX, 32);
        counter_set(pipeline, PIPELINE_WAITING, 2);
        char *text = print_file();
        assert_line(text, cases[i].waiting);
        assert_line(text, cases[i].running);
        assert_line(text, "model_server_requests_max{model=\"digits\"} 32");
        free(text);
        counters_close(&counters);
    }
}

/* ---- names ---- */

TEST_CASE_WITH(test_names, NULL, NULL)
{
    static const struct {
        enum counter counter;
        const char *family;
        const char *label;
        const char *value;
    } known[] = {
        {NODE_CALLS, "shoal_node_calls_total", "", ""},
        {PIPELINE_REJECTED_FULL, "shoal_pipeline_rejected_total", "reason", "full"},
        {PIPELINE_STREAMS, "shoal_pipeline_streams", "", ""},
        {PIPELINE_PIECES, "shoal_pipeline_pieces_total", "", ""},
        {PIPELINE_STREAMS_SLOW, "shoal_pipeline_streams_failed_total", "reason", "slow"},
        {PIPELINE_REPLIES_OK, "shoal_pipeline_replies_total", "result", "ok"},
        {PIPELINE_LATENCY, "shoal_pipeline_latency_seconds", "", ""},
        {PIPELINE_FORECAST_BASE, "shoal_pipeline_forecast_base_seconds", "", ""},
        {STAGE_DEPTH, "shoal_stage_depth_items", "", ""},
        {WORKER_ITEMS_OK, "shoal_worker_items_ok_total", "", ""},
        {WORKER_CLOSED_FULL, "shoal_worker_batches_closed_total", "reason", "full"},
        {WORKER_BATCH_ITEMS, "shoal_stage_batch_items", "", ""},
        {WORKER_RUN, "shoal_stage_run_seconds", "", ""},
        {WORKER_HEARTBEAT, "shoal_worker_heartbeat_timestamp_seconds", "", ""},
        {NODE_MESH_CALLS_HERE, "shoal_mesh_calls_total", "result", "here"},
        {NODE_MESH_PEER_CALLS_HERE, "shoal_mesh_peer_calls_total", "result", "here"},
        {NODE_MESH_TRIES_FAILED_OTHER, "shoal_mesh_tries_failed_total", "reason", "other"},
        {NODE_MESH_TXNS_UNKNOWN, "shoal_mesh_txns_total", "result", "unknown"},
        {NODE_MESH_EVICTED_AGE, "shoal_mesh_evicted_age_seconds", "", ""},
        {NODE_MESH_HEARD, "shoal_mesh_heard_timestamp_seconds", "", ""},
        {NODE_MESH_PEER_SENT, "shoal_mesh_peer_sent_bytes_total", "", ""},
        {OLDEST_ARRIVED, "", "", ""},
    };
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        struct metric_name name = metric_name(known[i].counter);
        assert_string_equal(name.family, known[i].family);
        assert_string_equal(name.label, known[i].label);
        assert_string_equal(name.value, known[i].value);
    }
    for (enum counter a = 0; a < COUNTER_TABLE_COUNT; a++) {
        struct metric_name name = metric_name(a);
        if (counter_table[a].scope == SCOPE_OLDEST)
            continue;
        assert_int_equal(strncmp(name.family, "shoal_", 6), 0);
        assert_int_equal(name.family[strspn(name.family, "abcdefghijklmnopqrstuvwxyz_")], 0);
        size_t length = strlen(name.family);
        bool total = strcmp(name.family + length - 6, "_total") == 0;
        assert_int_equal(total, counter_table[a].type == TYPE_COUNT);
        for (enum counter b = 0; b < a; b++) {
            struct metric_name other = metric_name(b);
            if (strcmp(name.family, other.family) == 0) {
                assert_string_not_equal(name.value, other.value);
                assert_string_equal(name.label, other.label);
                assert_int_equal(counter_table[a].type, counter_table[b].type);
            }
        }
    }
}

TEST_CASE_WITH(test_bounds, NULL, NULL)
{
    static const enum counter_unit units[] = {UNIT_NS, UNIT_MS, UNIT_ITEMS, UNIT_BYTES};
    for (size_t u = 0; u < ARRAY_COUNT(units); u++) {
        const uint64_t *bounds;
        size_t count = metric_bounds(units[u], &bounds);
        assert_in_range(count, 15, 30);
        for (size_t i = 0; i < count; i++) {
            assert_true(i == 0 || bounds[i] > bounds[i - 1]);
            /* the next larger value is in the next bucket */
            assert_int_equal(histogram_bucket(bounds[i]) + 1, histogram_bucket(bounds[i] + 1));
        }
    }
}

/* ---- known values ---- */

TEST_CASE(test_known_values)
{
    struct counters counters = create();
    _Atomic uint64_t *node = counters_values(&counters, NODE);
    _Atomic uint64_t *pipeline = counters_values(&counters, PIPELINE);
    _Atomic uint64_t *stage = counters_values(&counters, STAGE);
    _Atomic uint64_t *first = counters_values(&counters, WORKER - 1);
    _Atomic uint64_t *second = counters_values(&counters, WORKER);
    counter_add(node, NODE_CALLS, 5);
    counter_add(pipeline, PIPELINE_REJECTED_LATE, 3);
    counter_set(pipeline, PIPELINE_FORECAST_BASE, 1000000001);
    counter_set(stage, STAGE_DEPTH, 9);
    counter_add(second, WORKER_CLOSED_WAIT, 2);
    histogram_record(pipeline, PIPELINE_LATENCY, 1023); /* the last that is in le 1023 ns */
    histogram_record(pipeline, PIPELINE_LATENCY, 1024);
    histogram_record(pipeline, PIPELINE_LATENCY, INT64_C(1) << 50); /* beyond all */
    histogram_record(first, WORKER_BATCH_ITEMS, 4);
    histogram_record(second, WORKER_BATCH_ITEMS, 64);
    histogram_record(second, WORKER_BATCH_ITEMS, 0);
    histogram_record(second, WORKER_BATCH_ITEMS, 1);
    histogram_record(counters_values(&counters, SCOPES - 1), WORKER_BATCH_ITEMS, 7);
    char *text = print_file();
    static const char *const lines[] = {
        "shoal_build_info{version=\"1.2.3\"} 1",
        "shoal_node_state{state=\"starting\"} 1",
        "shoal_node_state{state=\"ready\"} 0",
        "# TYPE shoal_node_calls_total counter",
        "# HELP shoal_node_calls_total Calls received, of any method",
        "shoal_node_calls_total 5",
        "shoal_pipeline_ready{pipeline=\"digits\"} 0",
        "shoal_pipeline_oldest_age_seconds{pipeline=\"digits\"} 0.000000000",
        "shoal_pipeline_rejected_total{pipeline=\"digits\",reason=\"late\"} 3",
        "shoal_pipeline_rejected_total{pipeline=\"digits\",reason=\"full\"} 0",
        "# HELP shoal_pipeline_replies_total Requests answered, by result; ok: Requests answered "
        "with "
        "a result; failed: Requests that were admitted and answered with an error",
        "shoal_pipeline_forecast_base_seconds{pipeline=\"digits\"} 1.000000001",
        "# TYPE shoal_pipeline_latency_seconds histogram",
        "shoal_pipeline_latency_seconds_bucket{pipeline=\"digits\",le=\"0.000001023\"} 1",
        "shoal_pipeline_latency_seconds_bucket{pipeline=\"digits\",le=\"0.000002047\"} 2",
        "shoal_pipeline_latency_seconds_bucket{pipeline=\"digits\",le=\"68.719476735\"} 2",
        "shoal_pipeline_latency_seconds_bucket{pipeline=\"digits\",le=\"+Inf\"} 3",
        "shoal_pipeline_latency_seconds_count{pipeline=\"digits\"} 3",
        "shoal_pipeline_latency_seconds_sum{pipeline=\"digits\"} 1125899.906844671",
        "# TYPE shoal_stage_depth_items gauge",
        "shoal_stage_depth_items{pipeline=\"digits\",stage=\"classify\"} 9",
        "shoal_stage_batch_items_bucket{pipeline=\"digits\",stage=\"classify\",le=\"1\"} 2",
        "shoal_stage_batch_items_bucket{pipeline=\"digits\",stage=\"classify\",le=\"63\"} 3",
        "shoal_stage_batch_items_bucket{pipeline=\"digits\",stage=\"classify\",le=\"95\"} 4",
        "shoal_stage_batch_items_count{pipeline=\"digits\",stage=\"classify\"} 4",
        "shoal_stage_batch_items_sum{pipeline=\"digits\",stage=\"classify\"} 69",
        "shoal_stage_batch_items_sum{pipeline=\"digits\",stage=\"label\"} 7",
        ("shoal_worker_batches_closed_total{pipeline=\"digits\",stage=\"classify\",worker=\"1\","
         "reason=\"wait\"} 2"),
        "process_cpu_seconds_total 1.25",
        "process_resident_memory_bytes 4096",
        "process_virtual_memory_bytes 8192",
        "process_open_fds 7",
        "process_max_fds 1024",
    };
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
        assert_line(text, lines[i]);
    assert_null(strstr(text, "shoal_worker_heartbeat_timestamp_seconds{")); /* nobody was there */
    free(text);
    counters_close(&counters);
}

/* Under the names of ModelMesh: bounds of its own, between those of the buckets. */
TEST_CASE(test_modelmesh)
{
    struct counters counters = create();
    _Atomic uint64_t *node = counters_values(&counters, NODE);
    counter_set(node, NODE_MESH_ON, 1);
    counter_set(node, NODE_MESH_CAPACITY, 3000);
    counter_set(node, NODE_MESH_USED, 1000);
    counter_set(node, NODE_MESH_OLDEST, 2500);
    counter_set(node, NODE_MESH_MODELS, 9);
    counter_add(node, NODE_MESH_CALLS_WAITED, 2);
    histogram_record(node, NODE_MESH_LOAD_TIME, 400000);
    for (int i = 0; i < 4; i++)
        histogram_record(node, NODE_MESH_LOAD_TIME, 1000000); /* from 917,504 to 1,048,575 */
    histogram_record(node, NODE_MESH_EVICTED_AGE, 100000);
    histogram_record(node, NODE_MESH_LOADED_SIZE, UINT64_C(1) << 50);
    char *text = print_file();
    static const char *const lines[] = {
        "# TYPE modelmesh_loadmodel_milliseconds histogram",
        "modelmesh_loadmodel_milliseconds_bucket{le=\"0.5\"} 1",
        "modelmesh_loadmodel_milliseconds_bucket{le=\"1.0\"} 3",
        "modelmesh_loadmodel_milliseconds_bucket{le=\"2.0\"} 5",
        "modelmesh_loadmodel_milliseconds_bucket{le=\"+Inf\"} 5",
        "modelmesh_loadmodel_milliseconds_sum 4.4",
        "modelmesh_loadmodel_milliseconds_count 5",
        "modelmesh_age_at_eviction_milliseconds_bucket{le=\"30000.0\"} 0",
        "modelmesh_age_at_eviction_milliseconds_bucket{le=\"300000.0\"} 1",
        "modelmesh_loaded_model_size_bytes_bucket{le=\"4.294967296E9\"} 0",
        "modelmesh_loaded_model_size_bytes_bucket{le=\"+Inf\"} 1",
        "modelmesh_instance_used_bps 3333",
        "modelmesh_instance_lru_seconds 2.5",
        "modelmesh_instance_capacity_bytes 3000",
        "shoal_mesh_oldest_timestamp_seconds 2.500",
        "shoal_mesh_evicted_age_seconds_bucket{le=\"131.071\"} 1",
        "shoal_mesh_evicted_age_seconds_sum 100.000",
        "shoal_mesh_calls_total{result=\"waited\"} 2",
        "# HELP shoal_mesh_txns_total Transactions in the registry, by outcome; ok: carried "
        "out; "
        "lost: another node was first; unknown: their answers were lost",
    };
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
        assert_line(text, lines[i]);
    assert_null(strstr(text, "modelmesh_models_managed_total")); /* the leader says it */
    free(text);
    counter_set(node, NODE_MESH_LEADS, 1);
    text = print_file();
    assert_line(text, "modelmesh_models_managed_total 9");
    free(text);
    counters_close(&counters);
}

TEST_CASE(test_times)
{
    struct counters counters = create();
    counter_set(counters_values(&counters, WORKER), WORKER_HEARTBEAT, 1);
    struct snapshot snapshot = take();
    snapshot.taken_ns = 41 * INT64_C(1000000000) + 1;
    snapshot.taken_unix_ns = 1000 * INT64_C(1000000000);
    snapshot.started_unix_ns = 990 * INT64_C(1000000000);
    char *text = print(&snapshot);
    assert_line(text, "shoal_worker_heartbeat_timestamp_seconds{pipeline=\"digits\","
                      "stage=\"classify\",worker=\"1\"} 959.000000000");
    assert_line(text, "shoal_node_uptime_seconds 10.000000000");
    assert_line(text, "process_start_time_seconds 990");
    free(text);
    snapshot_free(&snapshot);
    counters_close(&counters);
}

TEST_CASE(test_oldest)
{
    static const struct counters_spec specs[] = {{SCOPE_NODE, 0, "node"},
                                                 {SCOPE_PIPELINE, 0, "p"},
                                                 {SCOPE_OLDEST, 1, "0"},
                                                 {SCOPE_OLDEST, 1, "1"},
                                                 {SCOPE_OLDEST, 1, "2"}};
    struct counters counters;
    struct error error = ERROR_NONE;
    assert_int_equal(counters_create(&counters, path, specs, ARRAY_COUNT(specs), &error), 0);
    counter_set(counters_values(&counters, 3), OLDEST_ARRIVED, 5000000000);
    counter_set(counters_values(&counters, 4), OLDEST_ARRIVED, 6000000000);
    struct snapshot snapshot = take();
    snapshot.taken_ns = 7500000000;
    char *text = print(&snapshot);
    assert_line(text, "shoal_pipeline_oldest_age_seconds{pipeline=\"p\"} 2.500000000");
    free(text);
    snapshot_free(&snapshot);
    counters_close(&counters);
}

/* ---- form, for all values ---- */

/* NAME, or NAME{label="…",…}; returns where it ends. */
static const char *
skip_series(const char *line)
{
    const char *c = line + strspn(line, "abcdefghijklmnopqrstuvwxyz_");
    if (c == line)
        fail_msg("no name: %.100s", line);
    if (*c != '{')
        return c;
    do {
        c++;
        size_t label = strspn(c, "abcdefghijklmnopqrstuvwxyz");
        if (label == 0 || c[label] != '=' || c[label + 1] != '"')
            fail_msg("no label: %.100s", line);
        for (c += label + 2; *c != '"'; c++) {
            if (*c == '\\')
                c++;
            if (*c == '\n' || *c == '\0')
                fail_msg("a value without an end: %.100s", line);
        }
        c++;
    } while (*c == ',');
    if (*c != '}')
        fail_msg("labels without an end: %.100s", line);
    return c + 1;
}

/* Each sample belongs to the family whose HELP and TYPE stand before it, each family is there once,
 * and buckets add up. */
static void
assert_form(const char *text)
{
    char family[METRIC_NAME_BYTES] = "";
    char seen[300][METRIC_NAME_BYTES];
    size_t seen_count = 0;
    char before[512] = ""; /* the last bucket's line, up to its bound */
    double last = 0;
    for (const char *line = text; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            snprintf(family, sizeof(family), "%.*s", (int)strcspn(line + 7, " "), line + 7);
            for (size_t i = 0; i < seen_count; i++)
                assert_string_not_equal(family, seen[i]);
            assert_true(seen_count < ARRAY_COUNT(seen));
            memcpy(seen[seen_count++], family, sizeof(family));
            line = strchr(line, '\n') + 1;
            assert_int_equal(strncmp(line, "# TYPE ", 7), 0);
            assert_int_equal(strncmp(line + 7, family, strlen(family)), 0);
            continue;
        }
        if (strncmp(line, family, strlen(family)) != 0)
            fail_msg("not of %s: %.100s", family, line);
        const char *end = skip_series(line);
        assert_int_equal(*end, ' ');
        char *after;
        double value = strtod(end + 1, &after);
        if (after == end + 1 || *after != '\n' || isalpha((unsigned char)end[1]))
            fail_msg("no value: %.200s", line);
        const char *suffix = line + strlen(family);
        if (strncmp(suffix, "_bucket", 7) == 0) {
            size_t series = strcspn(line, "\n") < sizeof(before) ? strstr(line, "le=") - line : 0;
            bool first = strncmp(line, before, series) != 0 || before[series] != '\0';
            assert_true(first || value >= last);
            snprintf(before, sizeof(before), "%.*s", (int)series, line);
            last = value;
        } else if (strncmp(suffix, "_count", 6) == 0) {
            assert_true(value == last);
        }
    }
}

TEST_CASE(test_garbage)
{
    static const uint64_t values[] = {UINT64_MAX, INT64_MAX, UINT64_C(1) << 63, 1};
    struct counters counters = create();
    uint64_t random = 1;
    for (size_t round = 0; round < 20; round++) {
        for (uint32_t scope = 0; scope < SCOPES; scope++)
            for (enum counter i = 0; i < COUNTER_TABLE_COUNT; i++) {
                if (counter_table[i].scope != scopes[scope].kind)
                    continue;
                uint32_t words = counter_table[i].type == TYPE_HISTOGRAM ? HISTOGRAM_WORDS : 1;
                for (uint32_t word = 0; word < words; word++) {
                    counters_values(&counters, scope)[counter_offset[i] + word] =
                        round < ARRAY_COUNT(values) ? values[round] : random_draw(&random);
                }
            }
        char *text = print_file();
        assert_form(text);
        free(text);
    }
    counters_close(&counters);
}

TEST_CASE(test_names_of_all_kinds)
{
    struct counters counters = create();
    struct snapshot snapshot = take();
    snprintf(snapshot.scopes[PIPELINE].name, COUNTERS_NAME_BYTES, "a\"b\\c\nd\te");
    char *text = print(&snapshot);
    assert_line(text, "shoal_pipeline_requests_total{pipeline=\"a\\\"b\\\\c\\nd?e\"} 0");
    assert_form(text);
    free(text);
    snapshot_free(&snapshot);
    counters_close(&counters);
}

TEST_CASE(test_every_counter_is_there)
{
    struct counters counters = create();
    char *alone = print_file();
    assert_null(strstr(alone, "shoal_mesh_"));
    assert_null(strstr(alone, "modelmesh_"));
    free(alone);
    counter_set(counters_values(&counters, NODE), NODE_MESH_ON, 1);
    char *text = print_file();
    assert_form(text);
    for (enum counter i = 0; i < COUNTER_TABLE_COUNT; i++) {
        struct metric_name name = metric_name(i);
        char type[METRIC_NAME_BYTES + 32];
        snprintf(type, sizeof(type), "\n# TYPE %s ", name.family);
        if (counter_table[i].scope != SCOPE_OLDEST && strstr(text, type) == NULL)
            fail_msg("%s is missing", name.family);
        snprintf(type, sizeof(type), "%s=\"%s\"} ", name.label, name.value);
        if (name.label[0] != '\0' && strstr(text, type) == NULL)
            fail_msg("%s of %s is missing", name.value, name.family);
    }
    free(text);
    counters_close(&counters);
}

TEST_CASE_WITH(test_process, NULL, NULL)
{
    struct process_figures before;
    struct process_figures after;
    process_figures_read(&before);
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    process_figures_read(&after);
    assert_int_equal(after.open_files, before.open_files + 2);
    uint64_t open_files = 0;
    for (int fd = 0; fd < 1024; fd++)
        open_files += fcntl(fd, F_GETFD) >= 0;
    assert_int_equal(after.open_files, open_files);
    assert_true(after.files_max >= after.open_files);
    assert_true(after.resident_bytes > 0 && after.virtual_bytes >= after.resident_bytes);
    assert_true(after.cpu_seconds >= before.cpu_seconds);
    close(fds[0]);
    close(fds[1]);
}

TEST_MAIN(.setup = folder_make, .teardown = folder_remove)
