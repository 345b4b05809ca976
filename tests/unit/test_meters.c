/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls by method and code. Records of several threads at once are all printed,
 * in the buckets of KServe ModelMesh, whose bounds are included; a method beyond those there is
 * room for is "other"; and what a method is called may be anything.
 * ctest: presets=tsan
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/telemetry/meters.h"

#define INFER "/inference.GRPCInferenceService/ModelInfer"
#define OK "{method=\"ModelInfer\",code=\"OK\""
#define NOT_FOUND "{method=\"ModelInfer\",code=\"NOT_FOUND\""

static char *
print(const struct meters *meters)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    meters_print(meters, out);
    fclose(out);
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

TEST_CASE(test_known_calls)
{
    struct meters *meters = meters_create(METERS_SHORT);
    uint32_t infer = meters_method(meters, INFER);
    assert_int_equal(meters_method(meters, INFER), infer);
    assert_int_not_equal(meters_method(meters, "/a.B/Other"), infer);
    const struct meters_call calls[] = {
        {infer, STATUS_OK, 500 * NS_PER_US, 128, 129},
        {infer, STATUS_OK, 500 * NS_PER_US + 1, 0, UINT32_MAX},
        {infer, STATUS_OK, 400 * NS_PER_S, 2097152, 512},
        {infer, STATUS_NOT_FOUND, -1, 7, 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++)
        meters_record(meters, METER_REQUEST, &calls[i]);
    meters_record(meters, METER_SERVED, &calls[0]);
    char *text = print(meters);
    static const char *const lines[] = {
        "# TYPE modelmesh_api_request_milliseconds histogram",
        "modelmesh_api_request_milliseconds_bucket" OK ",le=\"0.5\"} 1",
        "modelmesh_api_request_milliseconds_bucket" OK ",le=\"1.0\"} 2",
        "modelmesh_api_request_milliseconds_bucket" OK ",le=\"300000.0\"} 2",
        "modelmesh_api_request_milliseconds_bucket" OK ",le=\"+Inf\"} 3",
        "modelmesh_api_request_milliseconds_sum" OK "} 400001.000001",
        "modelmesh_api_request_milliseconds_count" OK "} 3",
        "modelmesh_api_request_milliseconds_sum" NOT_FOUND "} 0",
        "modelmesh_invoke_model_milliseconds_count" OK "} 1",
        "modelmesh_request_size_bytes_bucket" OK ",le=\"128.0\"} 2",
        "modelmesh_request_size_bytes_bucket" OK ",le=\"2097152.0\"} 3",
        "modelmesh_response_size_bytes_bucket" OK ",le=\"128.0\"} 0",
        "modelmesh_response_size_bytes_bucket" OK ",le=\"512.0\"} 2",
        "modelmesh_response_size_bytes_bucket" OK ",le=\"+Inf\"} 3",
    };
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
        assert_line(text, lines[i]);
    assert_null(strstr(text, "modelmesh_invoke_model_milliseconds_count" NOT_FOUND));
    assert_null(strstr(text, "Other")); /* nobody has called it */
    free(text);
    meters_destroy(meters);
}

TEST_CASE(test_methods)
{
    struct meters *meters = meters_create(METERS_FULL);
    char path[METERS_METHOD_BYTES_MAX + 10];
    uint32_t odd = meters_method(meters, "/a.B/\"\n\\");
    for (uint32_t i = 1; i < METERS_METHODS_MAX; i++) {
        snprintf(path, sizeof(path), "/a.B/M%u", i);
        assert_int_equal(meters_method(meters, path), i);
    }
    assert_int_equal(meters_method(meters, "/one/more"), METERS_METHODS_MAX);
    assert_int_equal(meters_method(meters, "/a.B/M7"), 7);
    memset(path, 'x', sizeof(path) - 1);
    path[sizeof(path) - 1] = '\0';
    assert_int_equal(meters_method(meters, path), METERS_METHODS_MAX);
    struct meters_call call = {.method = odd, .status = STATUS_OK};
    meters_record(meters, METER_SERVED, &call);
    call = (struct meters_call){.method = METERS_METHODS_MAX, .status = (enum status)99};
    meters_record(meters, METER_SERVED, &call);
    call = (struct meters_call){.method = 7, .status = STATUS_UNAVAILABLE};
    meters_record(meters, METER_SERVED, &call);
    char *text = print(meters);
    assert_line(text, "modelmesh_invoke_model_milliseconds_count"
                      "{method=\"a.B/\\\"\\n\\\\\",code=\"OK\"} 1");
    assert_line(text,
                "modelmesh_invoke_model_milliseconds_count{method=\"other\",code=\"UNKNOWN\"} 1");
    assert_line(
        text,
        "modelmesh_invoke_model_milliseconds_count{method=\"a.B/M7\",code=\"UNAVAILABLE\"} 1");
    free(text);
    meters_destroy(meters);
}

TEST_CASE(test_nobody)
{
    const struct meters_call call = {.method = meters_method(NULL, INFER)};
    meters_record(NULL, METER_REQUEST, &call);
    meters_destroy(NULL);
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 4000000 };

static pthread_barrier_t begins;

static void *
run(void *context)
{
    struct meters *meters = context;
    const uint32_t methods[] = {meters_method(meters, "/s/B"), meters_method(meters, "/s/A")};
    pthread_barrier_wait(&begins);
    for (uint32_t i = 0; i < ROUNDS; i++) {
        const struct meters_call call = {.method = methods[i % 2],
                                         .status = i % 4 < 2 ? STATUS_OK : STATUS_INTERNAL,
                                         .took_ns = 3 * NS_PER_MS,
                                         .request_bytes = 1};
        meters_record(meters, i % 2 ? METER_REQUEST : METER_SERVED, &call);
    }
    return NULL;
}

TEST_CASE(test_threads)
{
    struct meters *meters = meters_create(METERS_SHORT);
    pthread_t threads[THREADS];
    assert_int_equal(pthread_barrier_init(&begins, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, run, meters), 0);
    free(print(meters));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    char *text = print(meters);
    assert_line(text, "modelmesh_api_request_milliseconds_count{method=\"A\",code=\"OK\"} 4000000");
    assert_line(text,
                "modelmesh_invoke_model_milliseconds_sum{method=\"B\",code=\"INTERNAL\"} 12000000");
    assert_line(text, "modelmesh_request_size_bytes_sum{method=\"A\",code=\"INTERNAL\"} 4000000");
    free(text);
    meters_destroy(meters);
}

TEST_MAIN()
