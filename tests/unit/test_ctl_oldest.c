/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oldest requests as shoalctl shows them, from a file of counters that a node could have left:
 * one in each place that a request can be, and numbers that no node writes, which are shown as
 * unknown and lead nowhere outside the file.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "ctl/oldest.h"
#include "ctl/report.h"
#include "ipc/snapshot.h"
#include "ipc/snapshot_json.h"

enum { NODE, PIPELINE, FIRST_OLDEST, STAGE = FIRST_OLDEST + OLDEST_MAX, SCOPE_TOTAL };

static struct counters_spec specs[SCOPE_TOTAL] = {
    [NODE] = {SCOPE_NODE, 0, "node"},
    [PIPELINE] = {SCOPE_PIPELINE, NODE, "digits"},
    [STAGE] = {SCOPE_STAGE, PIPELINE, "classify"},
};

static char folder[64];
static char path[128];
static struct counters node;
static char *shown;

static int
setup(void **state)
{
    (void)state;
    static const char *const numbers[OLDEST_MAX] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    for (uint32_t i = 0; i < OLDEST_MAX; i++)
        specs[FIRST_OLDEST + i] = (struct counters_spec){SCOPE_OLDEST, PIPELINE, numbers[i]};
    snprintf(folder, sizeof folder, "/tmp/shoal-test-oldest-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/counters", folder);
    struct error error = ERROR_NONE;
    if (counters_create(&node, path, specs, SCOPE_TOTAL, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    counters_close(&node);
    free(shown);
    shown = NULL;
    return rmdir(folder);
}

/* Ages are those at the node's last sign of life, when it listed them. */
static void
put(uint32_t number, int64_t age_ns, enum oldest_where where, uint64_t stage, uint64_t pid)
{
    _Atomic uint64_t *values = counters_values(&node, FIRST_OLDEST + number);
    counter_set(values, OLDEST_ARRIVED, (uint64_t)(node.header->heartbeat_ns - age_ns));
    counter_set(values, OLDEST_WHERE, where);
    counter_set(values, OLDEST_STAGE, stage);
    counter_set(values, OLDEST_OWNER, 3);
    counter_set(values, OLDEST_OWNER_PID, pid);
}

static const char *
show(void (*how)(const struct snapshot *snapshot, FILE *out))
{
    struct snapshot snapshot;
    struct error error = ERROR_NONE;
    if (snapshot_read(&snapshot, path, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    free(shown);
    size_t bytes;
    FILE *out = open_memstream(&shown, &bytes);
    how(&snapshot, out);
    assert_int_equal(fclose(out), 0);
    snapshot_free(&snapshot);
    return shown;
}

static void
print_json(const struct snapshot *snapshot, FILE *out)
{
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    snapshot_oldest_json(snapshot, NULL, &json);
    fwrite(line.data, 1, line.used, out);
    bytes_fini(&line);
}

static void
print_stat(const struct snapshot *snapshot, FILE *out)
{
    report_json(snapshot, NULL, out);
}

static void
holds(const char *text, const char *words)
{
    if (strstr(text, words) == NULL)
        fail_msg("no \"%s\" in: %s", words, text);
}

TEST_CASE(test_nothing_in_flight)
{
    assert_string_equal(show(oldest_print), "");
    assert_string_equal(show(print_json), "[]");
    holds(show(print_stat), "\"oldest\": []");
}

TEST_CASE(test_each_place)
{
    const int64_t minute = 60 * NS_PER_S;
    put(0, 9 * minute, OLDEST_RUNS, STAGE, 4711);
    put(1, 8 * minute, OLDEST_IN_BATCH, STAGE, 4711);
    put(2, 7 * minute, OLDEST_WAITS, STAGE, 0);
    put(3, 6 * minute, OLDEST_ANSWER_WAITS, 0, 0);
    put(4, 5 * minute, OLDEST_BEING_ANSWERED, 0, 0);
    put(5, 4 * minute, OLDEST_UNKNOWN, 0, 0);
    put(6, 3 * minute, OLDEST_WAITS_FOR_MODEL, 0, 0);
    counter_set(counters_values(&node, FIRST_OLDEST), OLDEST_DEATHS, 1);
    counter_set(counters_values(&node, FIRST_OLDEST), OLDEST_DEADLINE,
                (uint64_t)(clock_now_ns() + 3600 * NS_PER_S));
    counter_set(counters_values(&node, FIRST_OLDEST + 1), OLDEST_DEADLINE, 1);
    const char *text = show(oldest_print);
    static const char *const rows[] = {
        "runs", "in a batch", "waits", "answer waits", "being answered", "unknown", "awaits model"};
    const char *at = text;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) { /* the oldest first */
        at = strstr(at, rows[i]);
        assert_non_null(at);
    }
    holds(text, "  digits             runs            classify       3  4711  9 min 0 s");
    holds(text, "passed");
    holds(show(print_json), "{\"pipeline\": \"digits\", \"where\": \"runs\", \"stage\": "
                            "\"classify\", \"worker\": 3, \"pid\": 4711, \"age_ns\": 540000000000");
    holds(shown, "\"deadline_left_ns\": 36");
    holds(shown, "\"deaths\": 1}");
    holds(shown, "{\"pipeline\": \"digits\", \"where\": \"being answered\", \"age_ns\": 30");
    holds(show(print_stat), "\"where\": \"answer waits\"");
}

TEST_CASE(test_garbage_is_unknown)
{
    for (uint32_t i = 0; i < OLDEST_MAX; i++)
        for (uint32_t k = OLDEST_ARRIVED; k < COUNTER_TABLE_COUNT; k++)
            counter_set(counters_values(&node, FIRST_OLDEST + i), (enum counter)k,
                        i % 2 == 0 ? UINT64_MAX - i : UINT64_C(1) << (8 * i));
    holds(show(oldest_print), "unknown");
    assert_null(strstr(shown, "classify"));
    holds(show(print_json), "\"where\": \"unknown\"");
    /* a scope that is no stage */
    put(0, NS_PER_S, OLDEST_WAITS, PIPELINE, 0);
    put(1, NS_PER_S, OLDEST_WAITS, SCOPE_TOTAL, 0);
    show(print_json);
    assert_null(strstr(shown, "\"stage\""));
}

TEST_MAIN(.setup = setup, .teardown = teardown)
