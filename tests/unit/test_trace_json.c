/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of traces become exactly these lines of OTLP/JSON: a request with a parent through two
 * stages, one without, a refusal, a failure in a stage, a worker's death; and texts that are no
 * UTF-8, ids of zeros. A collector's answers are read as well.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "coordinator/telemetry/trace_json.h"

#define OFFSET_NS INT64_C(1700000000000000000)
#define STAMP_OF(...) ((struct stamp){__VA_ARGS__})

static const struct trace_resource resource = {"shoald", "9.8", "host", 4711};
static const struct trace_origin origin = {
    "S/M", {{"rpc.system", "grpc"}, {"rpc.service", "S"}, {"rpc.method", "M"}}};
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

/* Golden texts have single quotes for double ones. */
static void
as_json(char *text)
{
    for (char *c = text; *c != '\0'; c++)
        if (*c == '\'')
            *c = '"';
}

static void
expect(uint32_t spans, const char *spans_text)
{
    static const char head[] = "{'resourceSpans':[{'resource':{'attributes':["
                               "{'key':'service.name','value':{'stringValue':'shoald'}},"
                               "{'key':'service.version','value':{'stringValue':'9.8'}},"
                               "{'key':'host.name','value':{'stringValue':'host'}},"
                               "{'key':'process.pid','value':{'intValue':'4711'}}]},"
                               "'scopeSpans':[{'scope':{'name':'shoal'},'spans':[";
    char wanted[4096];
    size_t bytes;
    snprintf(wanted, sizeof(wanted), "%s%s]}]}]}", head, spans_text);
    as_json(wanted);
    struct trace_export *export = trace_export_create(&resource);
    assert_int_equal(trace_export_add(export, &trace, &ids, OFFSET_NS), spans);
    char *text = trace_export_finish(export, &bytes);
    assert_string_equal(text, wanted);
    assert_int_equal(bytes, strlen(wanted));
    free(text);
}

TEST_CASE(test_with_parent_through_two_stages)
{
    admit(2);
    trace.has_parent = true;
    for (uint32_t i = 0; i < TRACE_ID_BYTES; i++)
        trace.context.parent.trace_id[i] = (uint8_t)(i + 1);
    memset(trace.context.parent.span_id, 0xcd, SPAN_ID_BYTES);
    tracestate_init(&trace.context.state);
    tracestate_add(&trace.context.state, "v=1", 3);
    stamp(0, STAMP_OF(1100, 1200, 1300, .batch_items = 8, .worker = 1, .pid = 12));
    stamp(1, STAMP_OF(1300, 1400, 1900, .batch_items = 1, .worker = 0, .pid = 13));
    expect(3, "{'traceId':'0102030405060708090a0b0c0d0e0f10',"
              "'spanId':'1010101010101010',"
              "'parentSpanId':'cdcdcdcdcdcdcdcd',"
              "'traceState':'v=1',"
              "'name':'S/M','kind':2,"
              "'startTimeUnixNano':'1700000000000001000',"
              "'endTimeUnixNano':'1700000000000002000',"
              "'attributes':["
              "{'key':'rpc.system','value':{'stringValue':'grpc'}},"
              "{'key':'rpc.service','value':{'stringValue':'S'}},"
              "{'key':'rpc.method','value':{'stringValue':'M'}},"
              "{'key':'rpc.grpc.status_code','value':{'intValue':'0'}},"
              "{'key':'shoal.pipeline','value':{'stringValue':'p'}},"
              "{'key':'shoal.generation','value':{'intValue':'2'}},"
              "{'key':'shoal.worker.deaths','value':{'intValue':'0'}}]"
              "},"
              "{'traceId':'0102030405060708090a0b0c0d0e0f10',"
              "'spanId':'1111111111111111',"
              "'parentSpanId':'1010101010101010',"
              "'traceState':'v=1',"
              "'name':'stage s0','kind':1,"
              "'startTimeUnixNano':'1700000000000001100',"
              "'endTimeUnixNano':'1700000000000001300',"
              "'attributes':["
              "{'key':'shoal.stage','value':{'stringValue':'s0'}},"
              "{'key':'shoal.stage.index','value':{'intValue':'0'}},"
              "{'key':'shoal.attempt','value':{'intValue':'1'}},"
              "{'key':'shoal.worker.index','value':{'intValue':'1'}},"
              "{'key':'shoal.worker.pid','value':{'intValue':'12'}},"
              "{'key':'shoal.batch.size','value':{'intValue':'8'}},"
              "{'key':'shoal.queue_ns','value':{'intValue':'100'}},"
              "{'key':'shoal.run_ns','value':{'intValue':'100'}}],"
              "'events':[{'timeUnixNano':'1700000000000001200','name':'run'}]"
              "},"
              "{'traceId':'0102030405060708090a0b0c0d0e0f10',"
              "'spanId':'1212121212121212',"
              "'parentSpanId':'1010101010101010',"
              "'traceState':'v=1',"
              "'name':'stage s1','kind':1,"
              "'startTimeUnixNano':'1700000000000001300',"
              "'endTimeUnixNano':'1700000000000001900',"
              "'attributes':["
              "{'key':'shoal.stage','value':{'stringValue':'s1'}},"
              "{'key':'shoal.stage.index','value':{'intValue':'1'}},"
              "{'key':'shoal.attempt','value':{'intValue':'1'}},"
              "{'key':'shoal.worker.index','value':{'intValue':'0'}},"
              "{'key':'shoal.worker.pid','value':{'intValue':'13'}},"
              "{'key':'shoal.batch.size','value':{'intValue':'1'}},"
              "{'key':'shoal.queue_ns','value':{'intValue':'100'}},"
              "{'key':'shoal.run_ns','value':{'intValue':'500'}}],"
              "'events':[{'timeUnixNano':'1700000000000001400','name':'run'}]"
              "}");
}

TEST_CASE(test_refusal)
{
    trace.status = STATUS_NOT_FOUND;
    snprintf(trace.text, sizeof(trace.text), "no `such` thing\n");
    expect(1, "{'traceId':'abababababababababababababababab',"
              "'spanId':'1010101010101010',"
              "'name':'S/M','kind':2,"
              "'startTimeUnixNano':'1700000000000001000',"
              "'endTimeUnixNano':'1700000000000002000',"
              "'attributes':["
              "{'key':'rpc.system','value':{'stringValue':'grpc'}},"
              "{'key':'rpc.service','value':{'stringValue':'S'}},"
              "{'key':'rpc.method','value':{'stringValue':'M'}},"
              "{'key':'rpc.grpc.status_code','value':{'intValue':'5'}}],"
              "'status':{'code':2,'message':'no `such` thing\\n'}"
              "}");
}

TEST_CASE(test_failure_in_a_stage)
{
    admit(1);
    trace.status = STATUS_CANCELLED;
    trace.failed_stage = 0;
    stamp(0, STAMP_OF(1100, 0, 1300, .worker = 7));
    expect(2, "{'traceId':'abababababababababababababababab',"
              "'spanId':'1010101010101010',"
              "'name':'S/M','kind':2,"
              "'startTimeUnixNano':'1700000000000001000',"
              "'endTimeUnixNano':'1700000000000002000',"
              "'attributes':["
              "{'key':'rpc.system','value':{'stringValue':'grpc'}},"
              "{'key':'rpc.service','value':{'stringValue':'S'}},"
              "{'key':'rpc.method','value':{'stringValue':'M'}},"
              "{'key':'rpc.grpc.status_code','value':{'intValue':'1'}},"
              "{'key':'shoal.pipeline','value':{'stringValue':'p'}},"
              "{'key':'shoal.generation','value':{'intValue':'2'}},"
              "{'key':'shoal.worker.deaths','value':{'intValue':'0'}}],"
              "'status':{'code':2,'message':'CANCELLED'}"
              "},"
              "{'traceId':'abababababababababababababababab',"
              "'spanId':'1111111111111111',"
              "'parentSpanId':'1010101010101010',"
              "'name':'stage s0','kind':1,"
              "'startTimeUnixNano':'1700000000000001100',"
              "'endTimeUnixNano':'1700000000000001300',"
              "'attributes':["
              "{'key':'shoal.stage','value':{'stringValue':'s0'}},"
              "{'key':'shoal.stage.index','value':{'intValue':'0'}},"
              "{'key':'shoal.attempt','value':{'intValue':'1'}},"
              "{'key':'shoal.queue_ns','value':{'intValue':'200'}},"
              "{'key':'shoal.run_ns','value':{'intValue':'0'}}],"
              "'status':{'code':2,'message':'CANCELLED'}"
              "}");
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

/* Where the part, written as golden texts are, begins in the line. */
static const char *
find(const char *line, const char *part)
{
    char wanted[512];
    snprintf(wanted, sizeof(wanted), "%s", part);
    as_json(wanted);
    const char *found = strstr(line, wanted);
    if (found == NULL)
        fail_msg("no %s in\n%s", wanted, line);
    return found;
}

TEST_CASE(test_death)
{
    admit(1);
    trace.deaths = 1;
    trace.lost_count = 1;
    trace.lost[0] = STAMP_OF(1100, 1200, 1300, .batch_items = 2, .worker = 0, .pid = 12);
    stamp(0, STAMP_OF(1100, 1500, 0, .batch_items = 1, .worker = 1, .pid = 13));
    char *line = line_of_trace();
    find(line, "{'key':'shoal.worker.deaths','value':{'intValue':'1'}}");
    const char *lost = find(line, "'name':'stage s0','kind':1,"
                                  "'startTimeUnixNano':'1700000000000001100',"
                                  "'endTimeUnixNano':'1700000000000001300'");
    const char *second = find(lost, "'name':'stage s0','kind':1,"
                                    "'startTimeUnixNano':'1700000000000001300',"
                                    "'endTimeUnixNano':'1700000000000002000'");
    assert_true(find(lost, "{'key':'shoal.attempt','value':{'intValue':'1'}}") < second);
    assert_true(find(lost, "'status':{'code':2,'message':'the worker died'}}") < second);
    find(second, "{'key':'shoal.attempt','value':{'intValue':'2'}}");
    find(second, "'status':{'code':2,'message':'not finished when the request was answered'}}");
    free(line);
}

TEST_CASE(test_invalid_utf8)
{
    trace.status = STATUS_INTERNAL;
    snprintf(trace.text, sizeof(trace.text), "a\xff\xc3\xa4z");
    char *line = line_of_trace();
    find(line, "'message':'a\\ufffd\xc3\xa4z'");
    free(line);
    snprintf(trace.text, sizeof(trace.text), "\"");
    line = line_of_trace();
    find(line, "'message':'\\''");
    free(line);
    snprintf(trace.text, sizeof(trace.text), "a\xc3\xa4z");
    line = line_of_trace();
    find(line, "'message':'a\xc3\xa4z'");
    free(line);
}

TEST_CASE(test_no_id_is_zero)
{
    memset(&ids, 0, sizeof(ids));
    char *line = line_of_trace();
    find(line, "{'traceId':'00000000000000000000000000000001','spanId':'0000000000000001',");
    free(line);
}

TEST_CASE(test_several_and_none)
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

TEST_CASE_WITH(test_answers, NULL, NULL)
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

TEST_MAIN(.setup = setup)
