/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of traces become exactly these lines of OTLP/JSON: a request with a parent through two
 * stages, one without, a refusal, a failure in a stage, a worker's death; and texts that are no
 * UTF-8, ids of zeros. What a collector answers is read as well.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coordinator/trace_json.h"

#define OFFSET_NS INT64_C(1700000000000000000)
#define STAMP_OF(...) ((struct stamp){__VA_ARGS__})

static const struct trace_resource resource = {"shoald", "9.8", "host", 4711};
static const struct trace_origin origin = {"S/M", "S", "M"};
static struct trace trace;
static struct trace_ids ids;

static int
setup(void **state)
{
    (void)state;
    memset(&trace, 0, sizeof(trace));
    trace.origin = &origin;
    trace.began_ns = 1000;
    trace.ended_ns = 2000;
    trace.failed_stage = TRACE_STAGE_NONE;
    memset(ids.trace_id, 0xab, sizeof(ids.trace_id));
    for (uint32_t i = 0; i < TRACE_SPANS_MAX; i++)
        memset(ids.span_ids[i], (int)(0x10 + i), SPAN_ID_BYTES);
    return 0;
}

static void
admit(uint32_t stages)
{
    trace.admitted = true;
    trace.generation = 2;
    trace.stage_count = stages;
    snprintf(trace.pipeline, sizeof(trace.pipeline), "p");
    for (uint32_t i = 0; i < stages; i++) {
        snprintf(trace.stages[i].name, sizeof(trace.stages[i].name), "s%u", i);
        trace.stages[i].worker_count = 2;
        trace.stages[i].batch_size = 8;
    }
}

static void
stamp(uint32_t stage, struct stamp stamp)
{
    trace.stages[stage].stamped = true;
    trace.stages[stage].stamp = stamp;
}

#define HEAD                                                                                       \
    "{\"resourceSpans\":[{\"resource\":{\"attributes\":["                                          \
    "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"shoald\"}},"                           \
    "{\"key\":\"service.version\",\"value\":{\"stringValue\":\"9.8\"}},"                           \
    "{\"key\":\"host.name\",\"value\":{\"stringValue\":\"host\"}},"                                \
    "{\"key\":\"process.pid\",\"value\":{\"intValue\":\"4711\"}}]},"                               \
    "\"scopeSpans\":[{\"scope\":{\"name\":\"shoal\"},\"spans\":["
#define TAIL "]}]}]}"
#define TEXT(key, value) "{\"key\":\"" key "\",\"value\":{\"stringValue\":\"" value "\"}}"
#define NUMBER(key, value) "{\"key\":\"" key "\",\"value\":{\"intValue\":\"" value "\"}}"
#define IDS(trace, span) "{\"traceId\":\"" trace "\",\"spanId\":\"" span "\","
#define TIMES(start, end)                                                                          \
    "\"startTimeUnixNano\":\"170000000000000" start "\",\"endTimeUnixNano\":\"170000000000000" end \
    "\","
#define RUN(at) "\"events\":[{\"timeUnixNano\":\"170000000000000" at "\",\"name\":\"run\"}]"
#define FAILED(message) "\"status\":{\"code\":2,\"message\":\"" message "\"}"
#define OURS "abababababababababababababababab"
#define THEIRS "0102030405060708090a0b0c0d0e0f10"
#define RPC                                                                                        \
    TEXT("rpc.system", "grpc")                                                                     \
    "," TEXT("rpc.service", "S") "," TEXT("rpc.method", "M") ","

static void
expect(uint32_t spans, const char *wanted)
{
    size_t bytes;
    struct trace_export *export = trace_export_create(&resource);
    assert_int_equal(trace_export_add(export, &trace, &ids, OFFSET_NS), spans);
    char *text = trace_export_finish(export, &bytes);
    assert_string_equal(text, wanted);
    assert_int_equal(bytes, strlen(wanted));
    free(text);
}

static void
test_with_parent_through_two_stages(void **state)
{
    (void)state;
    admit(2);
    trace.has_parent = true;
    for (uint32_t i = 0; i < TRACE_ID_BYTES; i++)
        trace.context.parent.trace_id[i] = (uint8_t)(i + 1);
    memset(trace.context.parent.span_id, 0xcd, SPAN_ID_BYTES);
    tracestate_init(&trace.context.state);
    tracestate_add(&trace.context.state, "v=1", 3);
    stamp(0, STAMP_OF(1100, 1200, 1300, .batch_items = 8, .worker = 1, .pid = 12));
    stamp(1, STAMP_OF(1300, 1400, 1900, .batch_items = 1, .worker = 0, .pid = 13));
    expect(3, HEAD
                  IDS(THEIRS,
                      "1010101010101010") "\"parentSpanId\":\"cdcdcdcdcdcdcdcd\","
                                          "\"traceState\":\"v=1\",\"name\":\"S/"
                                          "M\",\"kind\":2," TIMES(
                                              "1000",
                                              "2000") "\"attributes\":[" RPC NUMBER("rpc.grpc."
                                                                                    "status_code",
                                                                                    "0") "," TEXT("shoal.pipeline", "p") "," NUMBER("shoal.generation", "2") "," NUMBER("shoal.worker.deaths", "0") "]}," IDS(THEIRS, "1111111111111111") "\"parentSpanId\":\"1010101010101010\","
                                                                                                                                                                                                                                          "\"traceState\":\"v=1\",\"name\":\"stage s0\",\"kind\":1," TIMES("1100", "1300") "\"attributes\":[" TEXT("shoal.stage", "s0") "," NUMBER("shoal.stage.index", "0") "," NUMBER("shoal.attempt",
                                                                                                                                                                                                                                                                                                                                                                                                                        "1") "," NUMBER("shoal.worker.index",
                                                                                                                                                                                                                                                                                                                                                                                                                                        "1") "," NUMBER("shoal.worker.pid",
                                                                                                                                                                                                                                                                                                                                                                                                                                                        "12") "," NUMBER("shoal.batch.size",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "8") "," NUMBER("shoal.queue_ns",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                         "100") "," NUMBER("shoal.run_ns", "100") "]," RUN("1200") "}," IDS(THEIRS,
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                            "1212121212121212") "\"parentSpanId\":\"1010101010101010\","
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                "\"traceState\":\"v=1\",\"name\":\"stage s1\",\"kind\":1," TIMES("1300", "1900") "\"attributes\":[" TEXT(
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                    "shoal.stage",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                    "s1") "," NUMBER("shoal.stage.index",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                     "1") "," NUMBER("shoal.attempt", "1") "," NUMBER("shoal.worker.index",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      "0") "," NUMBER("shoal.worker.pid",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                      "13") "," NUMBER("shoal.batch.size", "1") "," NUMBER("shoal.queue_ns",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                           "100") "," NUMBER("shoal.run_ns",
                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                                             "500") "]," RUN("1400") "}" TAIL);
}

static void
test_refusal(void **state)
{
    (void)state;
    trace.status = STATUS_NOT_FOUND;
    snprintf(trace.text, sizeof(trace.text), "no \"such\" thing\n");
    expect(1, HEAD IDS(OURS, "1010101010101010") "\"name\":\"S/M\",\"kind\":2," TIMES(
                  "1000", "2000") "\"attributes\":[" RPC
                  NUMBER("rpc.grpc.status_code",
                         "5") "]," FAILED("no \\\"such\\\" thing\\n") "}" TAIL);
}

static void
test_failure_in_a_stage(void **state)
{
    (void)state;
    admit(1);
    trace.status = STATUS_CANCELLED;
    trace.failed_stage = 0;
    stamp(0, STAMP_OF(1100, 0, 1300, .worker = 7));
    expect(2,
           HEAD
               IDS(OURS, "1010101010101010") "\"name\":\"S/M\",\"kind\":2," TIMES(
                   "1000", "2000") "\"attributes\":[" RPC
                   NUMBER("rpc.grpc.status_code", "1") "," TEXT("shoal.pipeline", "p") "," NUMBER("shoal.generation", "2") "," NUMBER("shoal.worker.deaths", "0") "]," FAILED("CANCELLED") "}," IDS(
                       OURS,
                       "1111111111111111") "\"parentSpanId\":\"1010101010101010\","
                                           "\"name\":\"stage s0\",\"kind\":1," TIMES("1100", "1300") "\"attributes\":[" TEXT(
                                               "shoal.stage",
                                               "s0") "," NUMBER("shoal.stage.index",
                                                                "0") "," NUMBER("shoal.attempt",
                                                                                "1") "," NUMBER("sh"
                                                                                                "oa"
                                                                                                "l."
                                                                                                "qu"
                                                                                                "eu"
                                                                                                "e_"
                                                                                                "n"
                                                                                                "s",
                                                                                                "20"
                                                                                                "0") "," NUMBER("shoal.run_ns",
                                                                                                                "0") "]," FAILED("CANCELLED") "}" TAIL);
}

/* Whose text the whole has. */
static char *
line_of_trace(void)
{
    size_t bytes;
    struct trace_export *export = trace_export_create(&resource);
    (void)trace_export_add(export, &trace, &ids, OFFSET_NS);
    return trace_export_finish(export, &bytes);
}

static void
test_death(void **state)
{
    (void)state;
    admit(1);
    trace.deaths = 1;
    trace.lost_count = 1;
    trace.lost[0] = STAMP_OF(1100, 1200, 1300, .batch_items = 2, .worker = 0, .pid = 12);
    stamp(0, STAMP_OF(1100, 1500, 0, .batch_items = 1, .worker = 1, .pid = 13));
    char *line = line_of_trace();
    assert_non_null(strstr(line, NUMBER("shoal.worker.deaths", "1")));
    const char *lost =
        strstr(line, TIMES("1100", "1300") "\"attributes\":[" TEXT("shoal.stage", "s0") "," NUMBER(
                         "shoal.stage.index", "0") "," NUMBER("shoal.attempt", "1"));
    assert_non_null(lost);
    assert_non_null(strstr(lost, RUN("1200") "," FAILED("the worker died") "},"));
    const char *second =
        strstr(lost, TIMES("1300", "2000") "\"attributes\":[" TEXT("shoal.stage", "s0") "," NUMBER(
                         "shoal.stage.index", "0") "," NUMBER("shoal.attempt", "2"));
    assert_non_null(second);
    assert_non_null(
        strstr(second, RUN("1500") "," FAILED("not finished when the request was answered")));
    free(line);
}

static void
test_what_is_no_text(void **state)
{
    (void)state;
    trace.status = STATUS_INTERNAL;
    snprintf(trace.text, sizeof(trace.text), "a\xff\xc3\xa4z");
    char *line = line_of_trace();
    assert_non_null(strstr(line, FAILED("a???z")));
    free(line);
    snprintf(trace.text, sizeof(trace.text), "a\xc3\xa4z");
    line = line_of_trace();
    assert_non_null(strstr(line, FAILED("a\xc3\xa4z")));
    free(line);
}

static void
test_no_id_is_zero(void **state)
{
    (void)state;
    memset(&ids, 0, sizeof(ids));
    char *line = line_of_trace();
    assert_non_null(strstr(line, IDS("00000000000000000000000000000001", "0000000000000001")));
    free(line);
}

static void
test_several_and_none(void **state)
{
    size_t bytes;
    (void)state;
    struct trace_export *export = trace_export_create(&resource);
    assert_null(trace_export_finish(export, &bytes));
    assert_int_equal(bytes, 0);
    export = trace_export_create(&resource);
    (void)trace_export_add(export, &trace, &ids, OFFSET_NS);
    (void)trace_export_add(export, &trace, &ids, OFFSET_NS);
    char *text = trace_export_finish(export, &bytes);
    const char *first = strstr(text, "\"traceId\"");
    assert_non_null(first);
    assert_non_null(strstr(first + 1, "\"traceId\""));
    assert_null(strchr(text, '\n'));
    free(text);
}

static void
test_answers(void **state)
{
    static const struct {
        const char *text;
        uint64_t rejected;
    } cases[] = {
        {"", 0},
        {"{}", 0},
        {"no json", 0},
        {"[1]", 0},
        {"{\"partialSuccess\":{}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":\"12\",\"errorMessage\":\"x\"}}", 12},
        {"{\"partialSuccess\":{\"rejectedSpans\":7}}", 7},
        {"{\"partialSuccess\":{\"rejectedSpans\":-7}}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":null}}", 0},
        {"{\"partialSuccess\":3}", 0},
        {"{\"partialSuccess\":{\"rejectedSpans\":7", 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        assert_int_equal(trace_answer_rejected(cases[i].text, strlen(cases[i].text)),
                         cases[i].rejected);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_with_parent_through_two_stages, setup),
        cmocka_unit_test_setup(test_refusal, setup),
        cmocka_unit_test_setup(test_failure_in_a_stage, setup),
        cmocka_unit_test_setup(test_death, setup),
        cmocka_unit_test_setup(test_what_is_no_text, setup),
        cmocka_unit_test_setup(test_no_id_is_zero, setup),
        cmocka_unit_test_setup(test_several_and_none, setup),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
