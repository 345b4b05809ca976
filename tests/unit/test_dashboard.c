/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts of the dashboard without HTTP. The gate: who gets in, with which headers, and that a wrong
 * token of any length stays out. Queries of any bytes. The history: rates, quantiles and gaps of a
 * file of counters, what it keeps of an hour, and that neither time nor names make it grow. The
 * events: the newest events, of a level that is not written.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/dashboard/gate.h"
#include "coordinator/dashboard/history.h"
#include "coordinator/dashboard/recent_events.h"
#include "coordinator/dashboard/query.h"

static char folder[64];
static char path[128];

static int
setup(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/shoal-test-dashboard-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/file", folder);
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

/* ---- the gate ---- */

#define TOKEN "0123456789abcdef-XYZ"

static void
write_token(const char *text)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static enum status
read_token(struct gate *gate, const char *text)
{
    struct error error = ERROR_NONE;
    write_token(text);
    return gate_init(gate, path, NULL, &error);
}

static enum status
check(const struct gate *gate, struct gate_headers headers, enum gate_what what)
{
    struct error error = ERROR_NONE;
    headers.host = headers.host != NULL ? headers.host : "127.0.0.1:8088";
    return gate_check(gate, &headers, what, &error);
}

TEST_CASE(test_the_token_is_a_line_of_its_file)
{
    static const char *const wrong[] = {"",
                                        "\n",
                                        "short",
                                        "0123456789abcde\n",
                                        "0123456789abcdef \n",
                                        "0123456789abcdef;x\n",
                                        "0123456789abcd\xc3\xa9\n"};
    char longest[GATE_TOKEN_BYTES_MAX + 2];
    struct gate gate;
    struct error error = ERROR_NONE;
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_int_equal(read_token(&gate, wrong[i]), STATUS_INVALID_ARGUMENT);
    memset(longest, 'x', sizeof(longest));
    longest[GATE_TOKEN_BYTES_MAX + 1] = '\0';
    assert_int_equal(read_token(&gate, longest), STATUS_INVALID_ARGUMENT);
    longest[GATE_TOKEN_BYTES_MAX] = '\0';
    assert_int_equal(read_token(&gate, longest), STATUS_OK);
    assert_true(gate_is_token(&gate, longest));
    assert_int_equal(read_token(&gate, TOKEN "\r\nsecond line\n"), STATUS_OK);
    assert_string_equal(gate.token, TOKEN);
    unlink(path);
    assert_int_equal(gate_init(&gate, path, NULL, &error), STATUS_NOT_FOUND);
    assert_non_null(strstr(error.text, path));
}

TEST_CASE(test_only_the_token_opens)
{
    char longer[2 * GATE_TOKEN_BYTES_MAX];
    struct gate gate;
    assert_int_equal(read_token(&gate, TOKEN "\n"), STATUS_OK);
    assert_int_equal(check(&gate, (struct gate_headers){0}, GATE_PAGE), STATUS_UNAUTHENTICATED);
    static const struct gate_headers right[] = {
        {.authorization = "Bearer " TOKEN},
        {.authorization = "bearer " TOKEN},
        {.cookie = GATE_COOKIE "=" TOKEN},
        {.cookie = "a=b; " GATE_COOKIE "=old; " GATE_COOKIE "=" TOKEN "; c=d"},
    };
    static const struct gate_headers wrong[] = {
        {.authorization = TOKEN},
        {.authorization = "Bearer "},
        {.authorization = "Bearer " TOKEN "x"},
        {.authorization = "Bearer 0123456789abcdef-XY"},
        {.authorization = "Bearer 0123456789abcdef-XYz"},
        {.cookie = GATE_COOKIE "="},
        {.cookie = "x" GATE_COOKIE "=" TOKEN},
        {.cookie = GATE_COOKIE "=x" TOKEN},
        {.cookie = ";;; ;"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(right); i++)
        assert_int_equal(check(&gate, right[i], GATE_DATA), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        assert_int_equal(check(&gate, wrong[i], GATE_DATA), STATUS_UNAUTHENTICATED);
    memset(longer, '0', sizeof(longer));
    longer[sizeof(longer) - 1] = '\0';
    assert_false(gate_is_token(&gate, longer));
}

TEST_CASE_WITH(test_pages_of_other_sites_stay_out, NULL, NULL)
{
    struct gate gate;
    struct error error = ERROR_NONE;
    assert_int_equal(gate_init(&gate, NULL, "shoal.example", &error), STATUS_OK);
    static const struct {
        struct gate_headers headers;
        enum gate_what what;
        enum status status;
    } cases[] = {
        {{0}, GATE_DATA, STATUS_OK},
        {{.host = "shoal.example"}, GATE_DATA, STATUS_OK},
        {{.host = "evil.example"}, GATE_PAGE, STATUS_PERMISSION_DENIED},
        {{.origin = "http://127.0.0.1:8088"}, GATE_DATA, STATUS_OK},
        {{.origin = "http://evil.example"}, GATE_DATA, STATUS_PERMISSION_DENIED},
        {{.origin = "null"}, GATE_DATA, STATUS_PERMISSION_DENIED},
        {{.fetch_site = "same-origin"}, GATE_DATA, STATUS_OK},
        {{.fetch_site = "none"}, GATE_DATA, STATUS_OK},
        {{.fetch_site = "cross-site"}, GATE_DATA, STATUS_PERMISSION_DENIED},
        {{.fetch_site = "same-site"}, GATE_DATA, STATUS_PERMISSION_DENIED},
        {{.fetch_site = "cross-site"}, GATE_PAGE, STATUS_OK}, /* a link that leads here */
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(check(&gate, cases[i].headers, cases[i].what), cases[i].status);
}

/* ---- queries ---- */

TEST_CASE_WITH(test_queries_of_any_bytes, NULL, NULL)
{
    static const struct {
        const char *query;
        enum query_find find;
        const char *value;
    } cases[] = {
        {"id=a", QUERY_FOUND, "a"},
        {"x=1&id=a+b%2Fc%e2%82%ac&id=z", QUERY_FOUND, "a b/c\xe2\x82\xac"},
        {"id=", QUERY_FOUND, ""},
        {"", QUERY_ABSENT, ""},
        {"id", QUERY_ABSENT, ""},
        {"xid=a&idx=b", QUERY_ABSENT, ""},
        {"&&&id=a", QUERY_FOUND, "a"},
        {"id=%", QUERY_WRONG, ""},
        {"id=%4", QUERY_WRONG, ""},
        {"id=%4x", QUERY_WRONG, ""},
        {"id=a%00b", QUERY_WRONG, ""},
        {"id=0123456789abcde", QUERY_FOUND, "0123456789abcde"},
        {"id=0123456789abcdef", QUERY_WRONG, ""},
    };
    char value[16];
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_int_equal(query_value(cases[i].query, "id", value, sizeof(value)), cases[i].find);
        assert_string_equal(value, cases[i].value);
    }
}

/* ---- the history ---- */

enum { NODE, PIPELINE, STAGE, WORKER, SCOPES };

static struct snapshot
look(const struct counters *counters, int64_t time_ns)
{
    struct snapshot snapshot;
    struct error error = ERROR_NONE;
    if (snapshot_read(&snapshot, counters->path, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    snapshot.taken_ns = time_ns;
    snapshot.taken_unix_ns = time_ns;
    return snapshot;
}

static void
add(struct chart_history *history, const struct counters *counters, int64_t second)
{
    struct snapshot snapshot = look(counters, second * NS_PER_S);
    history_add(history, &snapshot, 1);
    snapshot_free(&snapshot);
}

static void
expect_json(const struct chart_history *history, const char *pipeline, const char *wanted)
{
    struct bytes text = {0};
    struct json json = json_begin(&text, JSON_STYLE_ANY);
    if (pipeline == NULL)
        history_newest_json(history, &json);
    else
        history_json(history, pipeline, &json);
    bytes_put_char(&text, '\0');
    if (strstr(text.data, wanted) == NULL)
        fail_msg("no %s in %s", wanted, text.data);
    bytes_fini(&text);
}

TEST_CASE(test_history_of_counters)
{
    static const struct counters_spec specs[SCOPES] = {
        [NODE] = {SCOPE_NODE, 0, "node"},
        [PIPELINE] = {SCOPE_PIPELINE, NODE, "digits"},
        [STAGE] = {SCOPE_STAGE, PIPELINE, "classify"},
        [WORKER] = {SCOPE_WORKER, STAGE, "0"},
    };
    struct counters counters;
    struct error error = ERROR_NONE;
    assert_int_equal(counters_create(&counters, path, specs, SCOPES, &error), STATUS_OK);
    struct chart_history *history = history_create();
    add(history, &counters, 1);
    expect_json(history, "digits", "\"tracks\":[]"); /* one look is no interval yet */
    counter_add(counters_values(&counters, PIPELINE), PIPELINE_REPLIES_OK, 30);
    counter_add(counters_values(&counters, PIPELINE), PIPELINE_REJECTED_FULL, 1);
    counter_add(counters_values(&counters, PIPELINE), PIPELINE_REJECTED_SHARE, 2);
    counter_set(counters_values(&counters, PIPELINE), PIPELINE_SLOTS_USED, 7);
    counter_set(counters_values(&counters, PIPELINE), PIPELINE_STREAMS, 3);
    counter_add(counters_values(&counters, PIPELINE), PIPELINE_PIECES, 90);
    histogram_record(counters_values(&counters, PIPELINE), PIPELINE_LATENCY, 4);
    counter_add(counters_values(&counters, WORKER), WORKER_ITEMS, 8);
    histogram_record(counters_values(&counters, WORKER), WORKER_BATCH_ITEMS, 3);
    histogram_record(counters_values(&counters, WORKER), WORKER_BATCH_ITEMS, 4);
    add(history, &counters, 3); /* two seconds later */
    expect_json(history, NULL,
                "{\"pipeline\":\"digits\",\"stage\":\"\",\"values\":{\"ok\":15,\"failed\":0,"
                "\"refused\":1.5,\"latency_p50_ns\":4,\"latency_p99_ns\":4,\"in_flight\":7,"
                "\"waiting\":0,\"streams\":3,\"pieces\":45}}");
    expect_json(history, NULL,
                "{\"pipeline\":\"digits\",\"stage\":\"classify\",\"values\":{\"items\":4,"
                "\"depth\":0,\"batch\":3.5,\"wait_p50_ns\":null,");
    for (int64_t second = 4; second < 14; second++)
        add(history, &counters, second);
    expect_json(history, "digits", "\"times_ms\":[3000,4000,5000,");
    expect_json(history, "digits", "\"ok\":[15,0,0,");
    expect_json(history, "digits", "\"every_ms\":10000,\"times_ms\":[12000]"); /* the 10th tick */
    expect_json(history, "digits", "\"latency_p50_ns\":[4]");
    expect_json(history, "", "\"mesh_here\":[0,0,");
    struct snapshot later = look(&counters, 23 * NS_PER_S); /* nobody looked for ten seconds */
    history_add(history, &later, 10);
    snapshot_free(&later);
    expect_json(history, "digits", ",12000,13000,23000]");
    expect_json(history, "digits", "\"every_ms\":10000,\"times_ms\":[12000,23000]");
    history_destroy(history);
    counters_close(&counters);
}

TEST_CASE(test_history_does_not_grow)
{
    enum { NAMES = 2 * HISTORY_TRACKS_MAX, HOUR = 3700 };
    static struct counters_spec specs[NAMES + 1] = {{SCOPE_NODE, 0, "node"}};
    static char names[NAMES][8];
    struct counters counters;
    struct error error = ERROR_NONE;
    for (uint32_t i = 0; i < NAMES; i++) {
        snprintf(names[i], sizeof(names[i]), "p%u", i);
        specs[i + 1] = (struct counters_spec){SCOPE_PIPELINE, 0, names[i]};
    }
    assert_int_equal(counters_create(&counters, path, specs, NAMES + 1, &error), STATUS_OK);
    struct chart_history *history = history_create();
    add(history, &counters, 1);
    add(history, &counters, 2);
    size_t bytes = history_bytes(history);
    assert_true(bytes < (size_t)8 << 20);
    struct snapshot snapshot = look(&counters, 0);
    for (uint32_t i = 0; i < snapshot.scope_count; i++) /* other names, of which none were seen */
        snapshot.scopes[i].name[0] = snapshot.scopes[i].kind == SCOPE_PIPELINE ? 'q' : 'n';
    for (int64_t second = 3; second < 20; second++) {
        snapshot.taken_ns = snapshot.taken_unix_ns = second * NS_PER_S;
        history_add(history, &snapshot, 1);
    }
    assert_int_equal(history_bytes(history), bytes);
    expect_json(history, "q0", "\"tracks\":[]");
    snapshot_free(&snapshot);
    counters_close(&counters);
    specs[1].name = "q0"; /* one of them, for longer than an hour */
    assert_int_equal(counters_create(&counters, path, specs, 2, &error), STATUS_OK);
    snapshot = look(&counters, 0);
    for (int64_t second = 20; second < 20 + HOUR; second++) {
        snapshot.taken_ns = snapshot.taken_unix_ns = second * NS_PER_S;
        history_add(history, &snapshot, 1);
    }
    assert_int_equal(history_bytes(history), bytes);
    expect_json(history, "q0", "\"ok\":[");
    snapshot_free(&snapshot);
    history_destroy(history);
    counters_close(&counters);
}

/* ---- the events ---- */

static char *
recent_events_text(struct recent_events *events, uint64_t after, uint64_t *newest)
{
    struct bytes text = {0};
    struct json json = json_begin(&text, JSON_STYLE_ANY);
    *newest = recent_events_json(events, after, &json);
    bytes_put_char(&text, '\0');
    size_t count;
    return bytes_take(&text, &count);
}

TEST_CASE_WITH(test_journal_keeps_the_newest, NULL, NULL)
{
    uint64_t newest;
    log_init("test", LOG_NOTHING);
    struct recent_events *events = recent_events_start();
    char *text = recent_events_text(events, 0, &newest);
    assert_string_equal(text, "[]");
    free(text);
    log_debug("unseen");
    log_info("model_evicted model=\"%s\"", "a\"b\x01");
    text = recent_events_text(events, 0, &newest);
    assert_int_equal(newest, 1);
    assert_non_null(strstr(
        text, "\"level\":\"info\",\"text\":\"model_evicted model=\\\"a\\\\\\\"b\\\\u0001\\\"\"}]"));
    free(text);
    for (int i = 0; i < 2 * RECENT_EVENTS_MAX; i++)
        log_warn("number i=%d", i);
    text = recent_events_text(events, 1, &newest);
    assert_int_equal(newest, 2 * RECENT_EVENTS_MAX + 1);
    assert_null(strstr(text, "i=511\""));
    assert_non_null(strstr(text, "[{\"number\":514,"));
    assert_non_null(strstr(text, "i=1023\"}]"));
    free(text);
    text = recent_events_text(events, newest, &newest);
    assert_string_equal(text, "[]");
    free(text);
    recent_events_stop();
    log_info("nobody is told");
}

TEST_MAIN(.setup = setup, .teardown = teardown)
