/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server that may say anything: answers that are cut, doubled, of the wrong shape, redirected,
 * with absurd numbers. A write without a sound answer is unknown, and was sent once; secrets do not
 * come into errors. Callbacks cancel, close and begin calls at will.
 */
#include "rig.h"
#include "script.h"

static struct script *script;
static struct etcd *etcd;

#define HASTY                                                                                      \
    (struct etcd_options)                                                                          \
    {                                                                                              \
        .call_timeout_ns = 30 * NS_PER_S, .retry_ns_max = NS_PER_S / 20                            \
    }

struct kept {
    struct etcd_session *session;
    enum { AT_NOTHING, AT_GRANTED, AT_LOST, AT_SESSION_TROUBLE } closes;
    size_t granted, lost, troubles;
};

static struct kept kept;

static int
begin(void **state)
{
    (void)state;
    script = script_start();
    etcd = rig_client_of(script_url(script), HASTY);
    return 0;
}

static void
kept_close(void)
{
    if (kept.session != NULL)
        etcd_session_close(kept.session);
    kept.session = NULL;
}

static int
end(void **state)
{
    (void)state;
    kept_close(); /* of a test that failed */
    etcd_destroy(etcd);
    script_stop(script);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    rig_end();
    return 0;
}

static struct etcd_op
write_op(void)
{
    return (struct etcd_op){.kind = ETCD_PUT, .range = one("a"), .value = etcd_text("1")};
}

static void
ask(struct etcd_op op)
{
    size_t requests = script_requests(script);
    etcd_op(etcd, &op, to_got(0));
    WAIT_UNTIL(script_requests(script) == requests + 1);
}

/* Of a write: it was sent once, and is unknown. */
static void
assert_unknown(void)
{
    size_t requests = script_requests(script);
    assert_int_equal(got_wait()->fate, ETCD_UNKNOWN);
    rig_turn();
    assert_int_equal(script_requests(script), requests);
}

TEST_CASE(writes_with_wrong_answers)
{
    static const char *const wrong[] = {
        "",
        "{}",
        "null",
        "{" SCRIPT_HEADER("5") "}{" SCRIPT_HEADER("5") "}",
        "{" SCRIPT_HEADER("9223372036854775807") "}",
        "{" SCRIPT_HEADER("-5") "}",
        "{" SCRIPT_HEADER("5") ",\"prev_kv\":[]}",
        "{\"header\":{\"cluster_id\":\"7\",\"revision\":\"5\"}}", /* another cluster's */
    };
    ask(write_op());
    script_answer(script, 200, "{" SCRIPT_HEADER("5") ",\"prev_kv\":null}");
    assert_int_equal(done(got_wait())->revision, 5);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        ask(write_op());
        script_answer(script, 200, wrong[i]);
        assert_unknown();
    }
    ask(write_op());
    static const char cut[] = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{" SCRIPT_HEADER("5");
    script_say(script, cut, strlen(cut));
    script_hang_up(script);
    assert_unknown();
    ask(write_op());
    script_say(script, "HTTP/1.1 2", 10);
    script_hang_up(script);
    assert_unknown();
    ask(write_op());
    script_say(script, "no HTTP\r\n\r\n", 11);
    script_hang_up(script);
    assert_unknown();
}

/* A sent request does not follow a redirection. */
TEST_CASE(redirections)
{
    ask(write_op());
    char answer[256];
    snprintf(answer, sizeof(answer),
             "HTTP/1.1 307 X\r\nLocation: %s/v3/kv/put\r\nContent-Length: 0\r\n\r\n",
             script_url(script));
    script_say(script, answer, strlen(answer));
    assert_unknown();
}

TEST_CASE(responses_are_counted)
{
    struct etcd_op ops[] = {write_op(), write_op()};
    struct etcd_compare compare = {.range = one("a"), .target = ETCD_CREATE};
    struct etcd_txn txn = {&compare, 1, ops, 2, ops, 1};
    static const struct {
        const char *text;
        enum etcd_fate fate;
    } cases[] = {
        {",\"succeeded\":true,\"responses\":[{\"response_put\":{}},{\"response_put\":{}}]}",
         ETCD_DONE},
        {",\"responses\":[{\"response_put\":{}}]}", ETCD_DONE},
        {",\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}", ETCD_UNKNOWN},
        {",\"succeeded\":true}", ETCD_UNKNOWN},
        {",\"responses\":[{\"response_put\":{}},{\"response_put\":{}}]}", ETCD_UNKNOWN},
        {",\"succeeded\":true,\"responses\":[{\"response_put\":{}},{}]}", ETCD_UNKNOWN},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        char body[512];
        size_t requests = script_requests(script);
        etcd_txn(etcd, &txn, to_got(0));
        WAIT_UNTIL(script_requests(script) == requests + 1);
        snprintf(body, sizeof(body), "{" SCRIPT_HEADER("5") "%s", cases[i].text);
        script_answer(script, 200, body);
        if (got_wait()->fate != cases[i].fate)
            fail_msg("%s", cases[i].text);
    }
}

/* A transaction that only reads is refused an old answer as a read is, unless it asked for one. */
TEST_CASE(old_answers)
{
    ask(write_op());
    script_answer(script, 200, "{" SCRIPT_HEADER("50") "}");
    done(got_wait());
    static const char body[] = ",\"succeeded\":true,\"responses\":[{\"response_range\":{}}]}";
    char old[512];
    char new[512];
    snprintf(old, sizeof(old), "{" SCRIPT_HEADER("49") "%s", body);
    snprintf(new, sizeof(new), "{" SCRIPT_HEADER("50") "%s", body);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("a")};
    struct etcd_txn txn = {.success = &read, .success_count = 1};
    etcd_txn(etcd, &txn, to_got(0));
    WAIT_UNTIL(script_requests(script) == 2);
    script_answer(script, 200, old);
    WAIT_UNTIL(script_requests(script) == 3);
    assert_false(got.here);
    script_answer(script, 200, new);
    assert_int_equal(done(got_wait())->revision, 50);
    read.freshness = ETCD_SERIALIZABLE;
    etcd_txn(etcd, &txn, to_got(0));
    WAIT_UNTIL(script_requests(script) == 4);
    script_answer(script, 200, old);
    assert_int_equal(done(got_wait())->revision, 49);
}

TEST_CASE(secrets_are_not_reported)
{
    static const char *const wrong[] = {
        "{" SCRIPT_HEADER("5") ",\"token\":\"s3cret",
        "{" SCRIPT_HEADER("5") ",\"token\":s3cret}",
        "{" SCRIPT_HEADER("5") ",\"token\":\"s3cret\"\"s3cret\"}",
        "{" SCRIPT_HEADER("5") ",\"token\":[\"s3cret\"]}",
        "{" SCRIPT_HEADER("5") ",\"token\":\"s3cret\\r\\n\"}",
    };
    struct etcd_options options = HASTY;
    options.user = "u";
    options.password = "s3cret";
    options.call_timeout_ns = NS_PER_S / 4; /* of the call for the token */
    etcd_destroy(etcd);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        etcd = rig_client_of(script_url(script), options);
        struct etcd_op op = write_op();
        size_t requests = script_requests(script);
        etcd_op(etcd, &op, to_got(NS_PER_S));
        while (!got.here) {
            if (script_requests(script) > requests)
                script_answer(script, 200, wrong[i]);
            requests = script_requests(script);
            rig_turn();
        }
        assert_int_equal(got.answer.fate, ETCD_NOT_DONE);
        assert_string_equal(script_path(script), "/v3/auth/authenticate");
        if (strstr(got.answer.error.text, "s3cret") != NULL ||
            strstr(got.answer.error.text, "no token") == NULL)
            fail_msg("%s", got.answer.error.text);
        if (i + 1 < ARRAY_COUNT(wrong))
            etcd_destroy(etcd);
    }
}

static void
never_answered(void *context, const struct etcd_answer *answer)
{
    (void)context;
    (void)answer;
    fail_msg("a call that was cancelled is answered");
}

static void
watch_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    (void)context;
    (void)range_index;
    (void)events;
    (void)count;
    fail_msg("a watch that was closed shows events");
}

static void
watch_end(void *context, enum etcd_watch_end ended, const struct error *error)
{
    (void)context;
    fail_msg("a watch that was closed ends: %d %s", ended, error->text);
}

/* Calls and watches that wait for a token may be cancelled; the others get it. */
TEST_CASE(leaving_before_the_token)
{
    struct etcd_options options = HASTY;
    options.user = options.password = "u";
    etcd_destroy(etcd);
    etcd = rig_client_of(script_url(script), options);
    struct etcd_op op = write_op();
    struct etcd_range range = prefix("a");
    struct etcd_watch_options watched = {
        .ranges = &range, .range_count = 1, .on_events = watch_events, .on_end = watch_end};
    struct etcd_call *first = etcd_op(etcd, &op, (struct etcd_reply){never_answered, NULL, 0});
    struct etcd_watch *watch;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(etcd, &watched, &watch, &error), STATUS_OK);
    etcd_op(etcd, &op, to_got(0));
    struct etcd_call *last = etcd_op(etcd, &op, (struct etcd_reply){never_answered, NULL, 0});
    WAIT_UNTIL(script_requests(script) == 1);
    assert_string_equal(script_path(script), "/v3/auth/authenticate");
    rig_turn();
    etcd_cancel(first);
    etcd_watch_close(watch);
    etcd_cancel(last);
    script_answer(script, 200, "{" SCRIPT_HEADER("5") ",\"token\":\"t\"}");
    WAIT_UNTIL(script_requests(script) == 2);
    assert_string_equal(script_path(script), "/v3/kv/put");
    script_answer(script, 200, "{" SCRIPT_HEADER("6") "}");
    assert_int_equal(done(got_wait())->revision, 6);
    assert_int_equal(script_requests(script), 2);
}

/* Times far beyond what libcurl and clocks can take are taken for long. */
TEST_CASE(long_times)
{
    struct etcd_op op = write_op();
    static const int64_t times_ns[] = {INT64_MAX, 40 * 86400 * NS_PER_S};
    for (size_t i = 0; i < ARRAY_COUNT(times_ns); i++) {
        etcd_op(etcd, &op, to_got(times_ns[i]));
        WAIT_UNTIL(script_requests(script) == i + 1);
        script_answer(script, 200, "{" SCRIPT_HEADER("5") "}");
        done(got_wait());
    }
    struct etcd *none;
    struct error error = ERROR_NONE;
    const char *url = script_url(script);
    struct etcd_options options = {
        .endpoints = &url, .endpoint_count = 1, .connect_timeout_ns = INT64_MAX};
    assert_int_equal(etcd_create(rig_base(), &options, &none, &error), STATUS_INVALID_ARGUMENT);
}

/* ---- calls in callbacks ---- */

static struct etcd_call *calls[16]; /* NULL: answered */

static void
cancel_others(void *context, const struct etcd_answer *answer)
{
    struct etcd_op op = write_op();
    done(answer);
    *(struct etcd_call **)context = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++)
        if (calls[i] != NULL)
            etcd_cancel(calls[i]);
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) /* and some that never begin */
        etcd_cancel(etcd_op(etcd, &op, (struct etcd_reply){never_answered, NULL, 0}));
    etcd_op(etcd, &op, to_got(0));
}

/* The first that is answered cancels all others: running, answered and waiting ones. */
TEST_CASE(callback_cancels)
{
    struct etcd_op op = write_op();
    got.here = false;
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++)
        calls[i] = etcd_op(etcd, &op, (struct etcd_reply){cancel_others, &calls[i], 0});
    WAIT_UNTIL(script_requests(script) == 8); /* as many as run at once */
    script_answer_all(script, 200, "{" SCRIPT_HEADER("5") "}");
    WAIT_UNTIL(script_requests(script) == 9);
    script_answer(script, 200, "{" SCRIPT_HEADER("6") "}");
    assert_int_equal(done(got_wait())->revision, 6);
}

/* ---- sessions ---- */

static void
on_granted(void *context, int64_t lease_id)
{
    (void)context;
    assert_int_equal(lease_id, 7);
    kept.granted++;
    if (kept.closes == AT_GRANTED)
        kept_close();
}

static void
on_lost(void *context, const struct error *error)
{
    (void)context;
    assert_int_equal(error->status, STATUS_NOT_FOUND);
    kept.lost++;
    if (kept.closes == AT_LOST)
        kept_close();
}

static void
on_session_trouble(void *context, const struct error *error)
{
    (void)context;
    assert_true(error->text[0] != '\0');
    kept.troubles++;
    if (kept.closes == AT_SESSION_TROUBLE)
        kept_close();
}

TEST_CASE(session_closes_itself)
{
    for (int closes = AT_GRANTED; closes <= AT_SESSION_TROUBLE; closes++) {
        kept = (struct kept){.closes = closes};
        struct etcd_session_options options = {
            .ttl_s = 60,
            .on_granted = on_granted,
            .on_lost = on_lost,
            .on_trouble = on_session_trouble,
        };
        size_t requests = script_requests(script);
        kept.session = etcd_session_open(etcd, &options);
        WAIT_UNTIL(script_requests(script) == requests + 1);
        if (closes == AT_SESSION_TROUBLE)
            script_answer(script, 200, "{}");
        else
            script_answer(script, 200, "{" SCRIPT_HEADER("5") ",\"ID\":\"7\",\"TTL\":\"6\"}");
        if (closes == AT_LOST) {
            WAIT_UNTIL(script_requests(script) == requests + 2);
            script_answer(script, 200, "{\"result\":{" SCRIPT_HEADER("5") ",\"ID\":\"7\"}}\n");
        }
        WAIT_UNTIL(kept.session == NULL);
        assert_int_equal(kept.lost, closes == AT_LOST);
        assert_int_equal(kept.troubles, closes == AT_SESSION_TROUBLE);
        rig_turn();
    }
}

/* etcd counts from when it has the request, which may be long before its answer is here: grants and
 * renewals count from when they were asked for. */
TEST_CASE(leases_count_from_asking)
{
    kept = (struct kept){0};
    struct etcd_session_options options = {
        .ttl_s = 30, .on_granted = on_granted, .on_lost = on_lost};
    kept.session = etcd_session_open(etcd, &options);
    WAIT_UNTIL(script_requests(script) == 1);
    rig_wait_ns(2 * NS_PER_S);
    script_answer(script, 200, "{" SCRIPT_HEADER("5") ",\"ID\":\"7\",\"TTL\":\"10\"}");
    WAIT_UNTIL(kept.granted == 1);
    assert_in_range(etcd_session_left_ns(kept.session), 1, 7 * NS_PER_S);
    WAIT_UNTIL(script_requests(script) == 2);
    rig_wait_ns(NS_PER_S);
    script_answer(script, 200,
                  "{\"result\":{" SCRIPT_HEADER("5") ",\"ID\":\"7\",\"TTL\":\"100\"}}\n");
    WAIT_UNTIL(etcd_session_left_ns(kept.session) > 20 * NS_PER_S);
    assert_in_range(etcd_session_left_ns(kept.session), 1, 89 * NS_PER_S);
    assert_int_equal(kept.lost, 0);
    kept_close();
}

/* A lease for longer than times can be counted is none; one for 60 years is kept. */
TEST_CASE(absurd_leases)
{
    kept = (struct kept){0};
    struct etcd_session_options options = {.ttl_s = 60,
                                           .on_granted = on_granted,
                                           .on_lost = on_lost,
                                           .on_trouble = on_session_trouble};
    kept.session = etcd_session_open(etcd, &options);
    WAIT_UNTIL(script_requests(script) == 1);
    script_answer(script, 200, "{" SCRIPT_HEADER("5") ",\"ID\":\"7\",\"TTL\":\"9000000000\"}");
    WAIT_UNTIL(kept.troubles == 1);
    WAIT_UNTIL(script_requests(script) == 2);
    script_answer(script, 200, "{" SCRIPT_HEADER("5") ",\"ID\":\"7\",\"TTL\":\"2147483647\"}");
    WAIT_UNTIL(kept.granted == 1);
    assert_true(etcd_session_left_ns(kept.session) > 1000000000LL * NS_PER_S);
    kept_close();
}

TEST_MAIN(.setup = begin, .teardown = end, .group_teardown = stop)
