/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Proves what `shoalctl stat` and `status` make of a node's counters: a real counters file is
 * created in a folder of its own, by this process (a live node) or by a child that has ended (a
 * dead one), filled, read back by path, and every counter of the table is found where its name
 * says, alone, added up over workers, and as the difference of two moments.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "ctl/report.h"
#include "ctl/watch.h"
#include "ipc/snapshot.h"

enum {
    NODE,
    DIGITS,
    NORMALIZE,
    NORMALIZE_0,
    CLASSIFY,
    CLASSIFY_0,
    CLASSIFY_1,
    ECHO_,
    ECHO_STAGE,
    SCOPE_TOTAL
};

static const struct counters_spec specs[SCOPE_TOTAL] = {
    [NODE] = {SCOPE_NODE, 0, "node"},
    [DIGITS] = {SCOPE_PIPELINE, NODE, "digits"},
    [NORMALIZE] = {SCOPE_STAGE, DIGITS, "normalize"},
    [NORMALIZE_0] = {SCOPE_WORKER, NORMALIZE, "0"},
    [CLASSIFY] = {SCOPE_STAGE, DIGITS, "classify"},
    [CLASSIFY_0] = {SCOPE_WORKER, CLASSIFY, "0"},
    [CLASSIFY_1] = {SCOPE_WORKER, CLASSIFY, "1"},
    [ECHO_] = {SCOPE_PIPELINE, NODE, "echo"},
    [ECHO_STAGE] = {SCOPE_STAGE, ECHO_, "echo"},
};

static char folder[64];
static char path[128];
static struct counters node;

static void
node_create(void)
{
    struct error error = ERROR_NONE;
    if (counters_create(&node, path, specs, SCOPE_TOTAL, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    node.header->state = NODE_READY;
}

static int
setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/shoal-test-report-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/counters", folder);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

static void
take(struct snapshot *snapshot)
{
    struct error error = ERROR_NONE;
    if (snapshot_read(snapshot, path, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

/* A report as text; the next call frees it. */
static char *shown;
static size_t shown_bytes;

static const char *
report(void (*how)(const struct snapshot *, const char *, FILE *), const struct snapshot *snapshot,
       const char *pipeline)
{
    free(shown);
    FILE *stream = open_memstream(&shown, &shown_bytes);
    how(snapshot, pipeline, stream);
    assert_int_equal(fclose(stream), 0);
    return shown;
}

static void
report_wide(const struct snapshot *snapshot, const char *pipeline, FILE *out)
{
    report_print(snapshot, pipeline, REPORT_WIDE, out);
}

static void
report_screen(const struct snapshot *snapshot, const char *pipeline, FILE *out)
{
    report_print(snapshot, pipeline, REPORT_SCREEN, out);
}

static void
holds(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fail_msg("no \"%s\" in: %s", words, text);
}

/* ---- all counters ---- */

/* A number that no other counter has. */
static uint64_t
mark(uint32_t counter)
{
    return 1000 + counter;
}

TEST_CASE(test_every_counter_is_shown_by_name)
{
    static const uint32_t of_kind[SCOPE_COUNT] = {NODE, DIGITS, CLASSIFY, CLASSIFY_0};
    struct snapshot snapshot;
    char field[128];
    node_create();
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        if (counter_table[i].scope == SCOPE_OLDEST)
            continue; /* shown otherwise: test_ctl_oldest.c */
        uint32_t scope = of_kind[counter_table[i].scope];
        if (counter_table[i].type == TYPE_HISTOGRAM)
            histogram_record(counters_values(&node, scope), (enum counter)i, mark(i));
        else
            counter_set(counters_values(&node, scope), (enum counter)i, mark(i));
    }
    take(&snapshot);
    report(report_json, &snapshot, NULL);
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        bool histogram = counter_table[i].type == TYPE_HISTOGRAM;
        if (counter_table[i].scope == SCOPE_OLDEST)
            continue;
        if (i == WORKER_HEARTBEAT)
            snprintf(field, sizeof field, "\"heartbeat_age_ns\": ");
        else if (histogram)
            snprintf(field, sizeof field, "\"%s\": {\"count\": 1, \"sum\": %" PRIu64 ", ",
                     counter_table[i].name, mark(i));
        else
            snprintf(field, sizeof field, "\"%s\": %" PRIu64, counter_table[i].name, mark(i));
        holds(shown, field);
    }
    snapshot_free(&snapshot);
    counters_close(&node);
}

TEST_CASE(test_workers_of_a_stage_are_added_up)
{
    struct snapshot snapshot;
    node_create();
    counter_add(counters_values(&node, CLASSIFY_0), WORKER_ITEMS, 30);
    counter_add(counters_values(&node, CLASSIFY_1), WORKER_ITEMS, 12);
    counter_add(counters_values(&node, NORMALIZE_0), WORKER_ITEMS, 5000);
    counter_add(counters_values(&node, CLASSIFY_0), WORKER_CLOSED_FULL, 2);
    counter_add(counters_values(&node, CLASSIFY_1), WORKER_CLOSED_WAIT, 3);
    counter_set(counters_values(&node, CLASSIFY_0), WORKER_PID, 100);
    counter_set(counters_values(&node, CLASSIFY_1), WORKER_PID, 200);
    for (int i = 0; i < 3; i++)
        histogram_record(counters_values(&node, CLASSIFY_0), WORKER_BATCH_ITEMS, 4);
    histogram_record(counters_values(&node, CLASSIFY_1), WORKER_BATCH_ITEMS, 8);
    take(&snapshot);
    struct snapshot_scope sum = snapshot_workers(&snapshot, &snapshot.scopes[CLASSIFY]);
    assert_int_equal(snapshot_value(&sum, WORKER_ITEMS), 42);
    assert_int_equal(snapshot_value(&sum, WORKER_CLOSED_FULL), 2);
    assert_int_equal(snapshot_value(&sum, WORKER_CLOSED_WAIT), 3);
    assert_int_equal(snapshot_value(&sum, WORKER_PID), 0); /* a sum of pids means nothing */
    assert_int_equal(snapshot_histogram(&sum, WORKER_BATCH_ITEMS)[0], 4);
    assert_int_equal(snapshot_histogram(&sum, WORKER_BATCH_ITEMS)[1], 20);
    free(sum.words);
    report(report_wide, &snapshot, "digits");
    holds(shown, "  5,000  ");
    holds(shown, "  42  ");
    holds(shown, "  5.0  "); /* the mean batch */
    snapshot_free(&snapshot);
    counters_close(&node);
}

TEST_CASE(test_every_refusal_is_shown_and_top_has_80_columns)
{
    struct snapshot snapshot;
    node_create();
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++)
        if (counter_table[i].scope == SCOPE_PIPELINE && counter_table[i].type == TYPE_COUNT)
            counter_set(counters_values(&node, DIGITS), (enum counter)i, 10000000 + i);
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++)
        if (counter_table[i].scope == SCOPE_WORKER && counter_table[i].type == TYPE_HISTOGRAM)
            histogram_record(counters_values(&node, CLASSIFY_0), (enum counter)i,
                             i == WORKER_BATCH_ITEMS ? 4096 : 123456789);
    counter_set(counters_values(&node, CLASSIFY), STAGE_DEPTH, 4096);
    counter_set(counters_values(&node, CLASSIFY), STAGE_QUARANTINED, 1);
    counter_set(counters_values(&node, CLASSIFY_0), WORKER_ITEMS, 1000000);
    counter_set(counters_values(&node, CLASSIFY_0), WORKER_ITEMS_LATE, 100000);
    take(&snapshot);
    static const char *const names[] = {"invalid", "full",   "predicted", "share", "unavailable",
                                        "late",    "pieces", "slow",      "broken"};
    static const enum counter counts[] = {
        PIPELINE_REJECTED_INVALID, PIPELINE_REJECTED_FULL,        PIPELINE_REJECTED_PREDICTED,
        PIPELINE_REJECTED_SHARE,   PIPELINE_REJECTED_UNAVAILABLE, PIPELINE_REJECTED_LATE,
        PIPELINE_PIECES,           PIPELINE_STREAMS_SLOW,         PIPELINE_STREAMS_BROKEN};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        char words[64];
        snprintf(words, sizeof words, "%s 10,000,%03u", names[i], (unsigned)counts[i]);
        holds(report(report_wide, &snapshot, "digits"), words);
        holds(report(report_screen, &snapshot, "digits"), words);
    }
    holds(shown, "QUARANTINED: classify");
    for (const char *line = shown; *line != '\0'; line = strchr(line, '\n') + 1)
        if (strcspn(line, "\n") > 80)
            fail_msg("more than 80 columns: %.200s", line);
    snapshot_free(&snapshot);
    counters_close(&node);
}

TEST_CASE(test_a_pipeline_alone)
{
    struct snapshot snapshot;
    node_create();
    take(&snapshot);
    report(report_wide, &snapshot, "echo");
    holds(shown, "pipeline echo");
    assert_null(strstr(shown, "streams"));
    assert_null(strstr(shown, "digits"));
    assert_null(strstr(report(report_json, &snapshot, "echo"), "digits"));
    holds(report(report_json, &snapshot, NULL), "\"name\": \"digits\"");
    snapshot_free(&snapshot);
    struct watch watch = {.path = path, .pipeline = "nobody"};
    struct error error = ERROR_NONE;
    assert_int_equal(watch_step(&watch, &snapshot, &error), STATUS_NOT_FOUND);
    counters_close(&node);
}

/* ---- intervals ---- */

TEST_CASE(test_a_difference_has_counts_of_the_interval_and_gauges_of_now)
{
    struct snapshot before, now, difference;
    node_create();
    counter_set(counters_values(&node, CLASSIFY), STAGE_DEPTH, 9);
    counter_add(counters_values(&node, DIGITS), PIPELINE_REQUESTS, 100);
    histogram_record(counters_values(&node, DIGITS), PIPELINE_LATENCY, 1000000);
    take(&before);
    counter_set(counters_values(&node, CLASSIFY), STAGE_DEPTH, 4);
    counter_add(counters_values(&node, DIGITS), PIPELINE_REQUESTS, 7);
    counter_add(counters_values(&node, DIGITS), PIPELINE_PIECES, 9);
    counter_set(counters_values(&node, DIGITS), PIPELINE_STREAMS, 2);
    histogram_record(counters_values(&node, DIGITS), PIPELINE_LATENCY, 64);
    take(&now);
    now.taken_ns = before.taken_ns + 2 * NS_PER_S;
    snapshot_subtract(&difference, &now, &before);
    assert_int_equal(snapshot_value(&difference.scopes[DIGITS], PIPELINE_REQUESTS), 7);
    assert_int_equal(snapshot_value(&difference.scopes[CLASSIFY], STAGE_DEPTH), 4);
    const uint64_t *latency = snapshot_histogram(&difference.scopes[DIGITS], PIPELINE_LATENCY);
    assert_int_equal(latency[0], 1);
    assert_int_equal(latency[1], 64);
    assert_int_equal(latency[2 + histogram_bucket(64)], 1);
    assert_int_equal(latency[2 + histogram_bucket(1000000)], 0);
    report(report_wide, &difference, "digits");
    holds(shown, "in the last 2.00 s");
    holds(shown, "requests 7 (3.5/s)");
    holds(shown, "open streams 2  pieces 9 (4.5/s)");
    holds(shown, "items/s");
    holds(report(report_json, &difference, NULL), "\"interval_ns\": 2000000000");
    /* A counter that went back, as only a broken modelet could do, is none below nothing. */
    snapshot_free(&difference);
    snapshot_subtract(&difference, &before, &now);
    assert_int_equal(snapshot_value(&difference.scopes[DIGITS], PIPELINE_REQUESTS), 0);
    snapshot_free(&difference);
    snapshot_free(&before);
    snapshot_free(&now);
    counters_close(&node);
}

TEST_CASE(test_a_watch_starts_anew_with_another_node)
{
    struct watch watch = {.path = path};
    struct snapshot shown_snapshot;
    struct error error = ERROR_NONE;
    node_create();
    counter_add(counters_values(&node, NODE), NODE_CALLS, 10);
    assert_int_equal(watch_step(&watch, &shown_snapshot, &error), STATUS_OK);
    assert_int_equal(shown_snapshot.interval_ns, 0);
    assert_int_equal(snapshot_value(&shown_snapshot.scopes[NODE], NODE_CALLS), 10);
    snapshot_free(&shown_snapshot);
    counter_add(counters_values(&node, NODE), NODE_CALLS, 1);
    assert_int_equal(watch_step(&watch, &shown_snapshot, &error), STATUS_OK);
    assert_true(shown_snapshot.interval_ns > 0);
    assert_int_equal(snapshot_value(&shown_snapshot.scopes[NODE], NODE_CALLS), 1);
    snapshot_free(&shown_snapshot);
    counters_close(&node);
    assert_int_equal(watch_step(&watch, &shown_snapshot, &error), STATUS_UNAVAILABLE);
    node_create();
    counter_add(counters_values(&node, NODE), NODE_CALLS, 500);
    assert_int_equal(watch_step(&watch, &shown_snapshot, &error), STATUS_OK);
    assert_int_equal(shown_snapshot.interval_ns, 0);
    assert_int_equal(snapshot_value(&shown_snapshot.scopes[NODE], NODE_CALLS), 500);
    snapshot_free(&shown_snapshot);
    watch_free(&watch);
    counters_close(&node);
}

/* ---- life and death ---- */

TEST_CASE(test_ready_means_a_worker_in_every_stage)
{
    struct snapshot snapshot;
    node_create();
    counter_set(counters_values(&node, NORMALIZE), STAGE_WORKERS_LIVE, 1);
    take(&snapshot);
    assert_true(snapshot.live);
    assert_false(snapshot_pipeline_ready(&snapshot, &snapshot.scopes[DIGITS]));
    snapshot_free(&snapshot);
    counter_set(counters_values(&node, CLASSIFY), STAGE_WORKERS_LIVE, 1);
    take(&snapshot);
    assert_true(snapshot_pipeline_ready(&snapshot, &snapshot.scopes[DIGITS]));
    assert_false(snapshot_pipeline_ready(&snapshot, &snapshot.scopes[ECHO_]));
    snapshot_free(&snapshot);
    node.header->state = NODE_DRAINING;
    take(&snapshot);
    assert_false(snapshot_pipeline_ready(&snapshot, &snapshot.scopes[DIGITS]));
    holds(report(report_json, &snapshot, NULL), "\"state\": \"draining\"");
    snapshot_free(&snapshot);
    node.header->state = 77; /* none that there is */
    take(&snapshot);
    assert_int_equal(snapshot.state, NODE_STOPPED);
    snapshot_free(&snapshot);
    counters_close(&node);
}

/* A node that ends without a word: its file stays, its lock goes. */
static pid_t
dead_node_leave(int64_t heartbeat_ns)
{
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct error error = ERROR_NONE;
        if (counters_create(&node, path, specs, SCOPE_TOTAL, &error) != STATUS_OK)
            _exit(1);
        node.header->state = NODE_READY;
        node.header->heartbeat_ns = heartbeat_ns;
        counter_add(counters_values(&node, NODE), NODE_CALLS, 321);
        counter_set(counters_values(&node, NORMALIZE), STAGE_WORKERS_LIVE, 1);
        counter_set(counters_values(&node, CLASSIFY), STAGE_WORKERS_LIVE, 1);
        counter_set(counters_values(&node, CLASSIFY_0), WORKER_PID, 4711);
        counter_set(counters_values(&node, CLASSIFY_0), WORKER_HEARTBEAT,
                    (uint64_t)(heartbeat_ns - 3 * NS_PER_S));
        _exit(0);
    }
    int ended;
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    assert_int_equal(ended, 0);
    return pid;
}

TEST_CASE(test_a_dead_nodes_file_still_notifies)
{
    struct snapshot snapshot;
    int64_t since_ns;
    pid_t pid = dead_node_leave(clock_now_ns());
    take(&snapshot);
    assert_false(snapshot.live);
    assert_int_equal(snapshot.pid, pid);
    assert_false(snapshot_pipeline_ready(&snapshot, &snapshot.scopes[DIGITS]));
    assert_true(snapshot_death_unix_ns(&snapshot, &since_ns));
    assert_true(since_ns <= snapshot.taken_unix_ns);
    assert_true(snapshot.taken_unix_ns - since_ns < 60 * NS_PER_S);
    /* ages are those at its death: it has not grown older since */
    assert_int_equal(snapshot_age_ns(&snapshot, snapshot.heartbeat_ns - 3 * NS_PER_S),
                     3 * NS_PER_S);
    report(report_wide, &snapshot, NULL);
    holds(shown, "node dead, was ready");
    holds(shown, "calls 321");
    holds(shown, "3.00 s");
    report(report_json, &snapshot, NULL);
    holds(shown, "\"live\": false");
    holds(shown, "\"dead_since_unix_ns\": ");
    snapshot_free(&snapshot);
    dead_node_leave(INT64_MAX); /* a sign of life that lies ahead: another boot's clock */
    take(&snapshot);
    assert_false(snapshot_death_unix_ns(&snapshot, &since_ns));
    holds(report(report_wide, &snapshot, NULL), "since before this machine was started");
    assert_null(strstr(report(report_json, &snapshot, NULL), "dead_since"));
    snapshot_free(&snapshot);
}

TEST_CASE(test_garbage_in_the_counters_is_only_printed)
{
    struct snapshot before, now, difference;
    node_create();
    take(&before);
    for (uint32_t scope = 0; scope < SCOPE_TOTAL; scope++)
        for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++)
            if (counter_table[i].scope == specs[scope].kind)
                for (uint32_t w = 0;
                     w < (counter_table[i].type == TYPE_HISTOGRAM ? HISTOGRAM_WORDS : 1); w++)
                    counters_values(&node, scope)[counter_offset[i] + w] = UINT64_MAX - w;
    node.header->heartbeat_ns = INT64_MIN;
    take(&now);
    snapshot_subtract(&difference, &now, &before);
    holds(report(report_wide, &now, NULL), "18,446,744,073,709,551,615");
    holds(report(report_wide, &difference, NULL), "18,446,744,073,709,551,615");
    holds(report(report_json, &now, NULL), "18446744073709551615");
    snapshot_free(&before);
    snapshot_free(&now);
    snapshot_free(&difference);
    counters_close(&node);
}

TEST_CASE_WITH(test_the_manual_has_every_counter, NULL, NULL)
{
    free(shown);
    FILE *stream = open_memstream(&shown, &shown_bytes);
    report_manual(stream);
    report_manual_json(stream);
    fclose(stream);
    for (uint32_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        holds(shown, counter_table[i].name);
        holds(shown, counter_table[i].help);
    }
}

static int
shown_free(void **state)
{
    (void)state;
    free(shown);
    return 0;
}

TEST_MAIN(.setup = setup, .teardown = teardown, .group_teardown = shown_free)
