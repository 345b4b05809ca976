/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The meaning of the gateway's answers, in all forms of its versions, and the treatment of answers
 * that are none: numbers of 64 bits, fields left out, errors with and without codes, lines of
 * watches. Above all: which failures prove that a write did not happen.
 */
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "mesh/etcd/answer.h"
#include "mesh/etcd/request.h"

#define HEADER "\"header\":{\"cluster_id\":\"14841639068965178418\",\"revision\":\"7\"}"

static enum status
read_as(enum etcd_answer_kind kind, const char *text, struct etcd_reading *reading)
{
    struct error error = ERROR_NONE;
    return etcd_answer_read(kind, text, strlen(text), reading, &error);
}

TEST_CASE(ranges)
{
    struct etcd_reading reading;
    assert_int_equal(read_as(ETCD_KIND_RANGE, "{" HEADER "}", &reading), STATUS_OK);
    assert_int_equal(reading.answer.revision, 7);
    assert_true(reading.answer.cluster_id == UINT64_C(14841639068965178418));
    assert_int_equal(reading.answer.responses[0].kv_count, 0);
    etcd_reading_fini(&reading);
    assert_int_equal(read_as(ETCD_KIND_RANGE,
                             "{" HEADER ",\"kvs\":[{\"key\":\"YQ==\",\"lease\":"
                             "\"9223372036854775807\",\"mod_revision\":5}],"
                             "\"more\":true,\"count\":\"2\",\"unheard_of\":[{}],"
                             "\"prev_kvs\":null}",
                             &reading),
                     STATUS_OK);
    const struct etcd_response *response = &reading.answer.responses[0];
    assert_true(response->more);
    assert_int_equal(response->count, 2);
    assert_int_equal(response->kvs[0].lease_id, INT64_MAX);
    assert_int_equal(response->kvs[0].mod_revision, 5);
    assert_memory_equal(response->kvs[0].key.data, "a", 1);
    assert_int_equal(response->kvs[0].value.bytes, 0);
    etcd_reading_fini(&reading);
    assert_int_equal(read_as(ETCD_KIND_RANGE,
                             "{" HEADER ",\"kvs\":null,\"more\":null,\"count\":null}", &reading),
                     STATUS_OK); /* each is its default */
    assert_int_equal(reading.answer.responses[0].kv_count, 0);
    etcd_reading_fini(&reading);
}

TEST_CASE(malformed)
{
    static const char *const texts[] = {
        "",
        "[]",
        "{",
        "null",
        "{}",
        "{\"header\":[]}",
        "{\"header\":{\"revision\":\"x\"}}",
        "{\"header\":{\"revision\":\"-1\"}}",
        "{\"header\":{\"revision\":\"9223372036854775808\"}}",
        "{\"header\":{\"revision\":\"9223372036854775807\"}}", /* it has no next one */
        "{\"header\":{\"revision\":9223372036854775808}}",
        "{\"header\":{\"revision\":\"7 \"}}",
        "{\"header\":{\"revision\":7.0}}",
        "{\"header\":{\"cluster_id\":\"-1\"}}",
        "{" HEADER ",\"kvs\":{}}",
        "{" HEADER ",\"kvs\":[1]}",
        "{" HEADER ",\"kvs\":[{\"key\":\"YQ\"}]}",
        "{" HEADER ",\"kvs\":[{\"key\":1}]}",
        "{" HEADER ",\"more\":1}",
        "{" HEADER ",\"count\":\"\"}",
        "{" HEADER ",\"count\":1.5}",
        "{" HEADER "} x",
    };
    struct etcd_reading reading;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        if (read_as(ETCD_KIND_RANGE, texts[i], &reading) != STATUS_INTERNAL)
            fail_msg("%s", texts[i]);
        etcd_reading_fini(&reading);
    }
    size_t deep = 100000;
    char *text = malloc(deep + 1);
    assert_non_null(text);
    memset(text, '[', deep);
    text[deep] = '\0';
    assert_int_equal(read_as(ETCD_KIND_RANGE, text, &reading), STATUS_INTERNAL);
    etcd_reading_fini(&reading);
    free(text);
}

TEST_CASE(leases_and_tokens)
{
    struct etcd_reading reading;
    static const struct {
        enum etcd_answer_kind kind;
        const char *text;
        enum status status;
        int64_t ttl_s;
    } cases[] = {
        {ETCD_KIND_RENEW, "{\"result\":{" HEADER ",\"ID\":\"5\",\"TTL\":\"10\"}}\n", STATUS_OK, 10},
        {ETCD_KIND_RENEW, "{\"result\":{" HEADER ",\"ID\":\"5\"}}\n", STATUS_OK, 0},
        {ETCD_KIND_RENEW, "{" HEADER ",\"ID\":\"5\"}\n", STATUS_INTERNAL, 0},
        {ETCD_KIND_RENEW, "{\"result\":{" HEADER ",\"TTL\":\"-1\"}}\n", STATUS_INTERNAL, 0},
        {ETCD_KIND_RENEW, "{\"result\":{" HEADER ",\"TTL\":\"4294967296\"}}\n", STATUS_INTERNAL, 0},
        {ETCD_KIND_LEASE, "{" HEADER ",\"ID\":\"5\",\"TTL\":\"10\"}", STATUS_OK, 10},
        {ETCD_KIND_LEASE, "{" HEADER ",\"ID\":\"5\"}", STATUS_INTERNAL, 0},
        {ETCD_KIND_LEASE, "{" HEADER ",\"TTL\":\"10\"}", STATUS_INTERNAL, 0},
        {ETCD_KIND_TOKEN, "{" HEADER ",\"token\":\"a.1\"}", STATUS_OK, 0},
        {ETCD_KIND_TOKEN, "{" HEADER "}", STATUS_INTERNAL, 0},
        {ETCD_KIND_TOKEN, "{" HEADER ",\"token\":\"a\\r\\nX: 1\"}", STATUS_INTERNAL, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        if (read_as(cases[i].kind, cases[i].text, &reading) != cases[i].status)
            fail_msg("%s", cases[i].text);
        if (cases[i].status == STATUS_OK)
            assert_int_equal(reading.answer.ttl_s, cases[i].ttl_s);
        etcd_reading_fini(&reading);
    }
}

TEST_CASE(failures)
{
    static const struct {
        long http_status;
        const char *text;
        enum status status;
        enum etcd_fate fate;
        bool endpoint_bad, token_bad;
    } cases[] = {
        {400, "{\"error\":\"etcdserver: mvcc: required revision has been compacted\",\"code\":11}",
         STATUS_OUT_OF_RANGE, ETCD_NOT_DONE, false, false},
        {404, "{\"code\":5,\"message\":\"etcdserver: requested lease not found\",\"details\":[]}",
         STATUS_NOT_FOUND, ETCD_NOT_DONE, false, false},
        {401, "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}", STATUS_UNAUTHENTICATED,
         ETCD_NOT_DONE, false, true},
        {400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}", STATUS_INVALID_ARGUMENT,
         ETCD_NOT_DONE, false, true},
        {429, "{\"error\":\"grpc: received message larger than max\",\"code\":8}",
         STATUS_RESOURCE_EXHAUSTED, ETCD_NOT_DONE, false, false},
        {429, "{\"error\":\"etcdserver: mvcc: database space exceeded\",\"code\":8}",
         STATUS_RESOURCE_EXHAUSTED, ETCD_UNKNOWN, false, false},
        {503, "{\"error\":\"etcdserver: rpc not supported for learner\",\"code\":14}",
         STATUS_UNAVAILABLE, ETCD_NOT_DONE, true, false},
        {500, "{\"error\":\"context deadline exceeded\",\"code\":2}", STATUS_UNKNOWN, ETCD_UNKNOWN,
         true, false},
        {503, "{\"error\":\"etcdserver: request timed out\",\"code\":14}", STATUS_UNAVAILABLE,
         ETCD_UNKNOWN, true, false},
        {503, "{\"error\":\"etcdserver: leader changed\",\"code\":14}", STATUS_UNAVAILABLE,
         ETCD_UNKNOWN, true, false},
        {503, "{\"error\":\"etcdserver: no leader\",\"code\":14}", STATUS_UNAVAILABLE,
         ETCD_NOT_DONE, true, false},
        {408, "{\"error\":\"context canceled\",\"code\":1}", STATUS_CANCELLED, ETCD_UNKNOWN, true,
         false},
        {499, "{\"code\":1,\"message\":\"context canceled\"}", STATUS_CANCELLED, ETCD_UNKNOWN, true,
         false},
        {421, "", STATUS_INVALID_ARGUMENT, ETCD_NOT_DONE, false, false},
        {502, "<html>bad gateway</html>", STATUS_UNAVAILABLE, ETCD_UNKNOWN, true, false},
        {504, "", STATUS_DEADLINE_EXCEEDED, ETCD_UNKNOWN, true, false},
        {302, "", STATUS_UNAVAILABLE, ETCD_UNKNOWN, true, false},
        {500, "{\"code\":99}", STATUS_UNAVAILABLE, ETCD_UNKNOWN, true, false},
        {200,
         "{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"etcdserver: no leader\"}}",
         STATUS_UNAVAILABLE, ETCD_NOT_DONE, true, false},
        {200,
         "{\"error\":{\"code\":7,\"message\":\"etcdserver: permission denied\",\"details\":[]}}",
         STATUS_PERMISSION_DENIED, ETCD_NOT_DONE, false, false},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct etcd_verdict verdict;
        etcd_answer_judge("http://e", cases[i].http_status, cases[i].text, strlen(cases[i].text),
                          &verdict);
        if (verdict.error.status != cases[i].status || verdict.fate != cases[i].fate ||
            verdict.endpoint_bad != cases[i].endpoint_bad ||
            verdict.token_bad != cases[i].token_bad)
            fail_msg("%ld %s: %s fate %d", cases[i].http_status, cases[i].text, verdict.error.text,
                     verdict.fate);
        assert_true(strncmp(verdict.error.text, "http://e: ", 10) == 0);
    }
}

TEST_CASE(watch_lines)
{
    static const char put[] = "{\"result\":{" HEADER ",\"watch_id\":\"2\",\"fragment\":true,"
                              "\"events\":[{\"kv\":{\"key\":\"YQ==\",\"mod_revision\":\"7\"}},"
                              "{\"type\":\"DELETE\",\"kv\":{\"mod_revision\":\"7\"}}]}}";
    struct etcd_watch_line line;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_line_read("e", put, strlen(put), &line, &error), STATUS_OK);
    assert_int_equal(line.watch_id, 2);
    assert_int_equal(line.revision, 7);
    assert_true(line.fragment && !line.created && !line.canceled && !line.failed);
    assert_int_equal(line.event_count, 2);
    assert_int_equal(line.events[0].kind, ETCD_EVENT_PUT);
    assert_int_equal(line.events[1].kind, ETCD_EVENT_DELETE);
    etcd_watch_line_fini(&line);
    static const char gone[] = "{\"result\":{\"header\":{},\"watch_id\":\"1\",\"canceled\":true,"
                               "\"compact_revision\":\"22\"}}";
    assert_int_equal(etcd_watch_line_read("e", gone, strlen(gone), &line, &error), STATUS_OK);
    assert_true(line.canceled);
    assert_int_equal(line.compact_revision, 22);
    assert_int_equal(line.revision, 0);
    etcd_watch_line_fini(&line);
    static const char *const texts[] = {
        "",
        "{}",
        "{\"result\":{}}",
        "{\"result\":{" HEADER ",\"events\":{}}}",
        "{\"result\":{" HEADER ",\"events\":[{\"kv\":{}}]}}",
        "{\"result\":{" HEADER
        ",\"events\":[{\"type\":\"MOVE\",\"kv\":{\"mod_revision\":\"7\"}}]}}",
        "{\"result\":{" HEADER ",\"events\":[{\"type\":1,\"kv\":{\"mod_revision\":\"7\"}}]}}",
    };
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        if (etcd_watch_line_read("e", texts[i], strlen(texts[i]), &line, &error) != STATUS_INTERNAL)
            fail_msg("%s", texts[i]);
        etcd_watch_line_fini(&line);
    }
}

TEST_CASE(rests_of_ranges)
{
    struct etcd_range range = {.span = ETCD_PREFIX, .key = etcd_text("a\xff")};
    struct etcd_range rest = etcd_range_rest(&range, etcd_text("a\xff"
                                                               "b"));
    assert_int_equal(rest.span, ETCD_UNTIL);
    assert_int_equal(rest.key.bytes, 4);
    assert_memory_equal(rest.key.data,
                        "a\xff"
                        "b",
                        4);
    assert_int_equal(rest.end.bytes, 1);
    assert_memory_equal(rest.end.data, "b", 1);
    etcd_range_free(&rest);
    range.key = etcd_text("\xff\xff");
    rest = etcd_range_rest(&range, etcd_text("\xff\xff"
                                             "b"));
    assert_int_equal(rest.span, ETCD_FROM);
    etcd_range_free(&rest);
}

TEST_MAIN()
