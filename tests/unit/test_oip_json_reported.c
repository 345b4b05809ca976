/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers of others as JSON: of nodes and runtimes behind this one, whose messages come from
 * unknown programs. Metadata and readiness; typed contents, as raw ones; each message also cut into
 * spans of one byte, and cut short anywhere, which must be refused or read, and nothing else.
 */
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "coordinator/protocol/oip_json.h"

enum { BYTES_MAX = 256 };

/* A message in spans of one byte each, which end where its memory ends. */
struct scattered {
    char *bytes[BYTES_MAX];
    struct wire_span spans[BYTES_MAX];
    struct wire_message message;
};

static void
scatter(struct scattered *scattered, const char *data, size_t bytes)
{
    assert_true(bytes <= BYTES_MAX);
    scattered->message = (struct wire_message){scattered->spans, bytes, bytes};
    for (size_t i = 0; i < bytes; i++) {
        scattered->bytes[i] = malloc(1);
        assert_non_null(scattered->bytes[i]);
        *scattered->bytes[i] = data[i];
        scattered->spans[i] = (struct wire_span){scattered->bytes[i], 1};
    }
}

static void
scattered_fini(struct scattered *scattered)
{
    for (size_t i = 0; i < scattered->message.span_count; i++)
        free(scattered->bytes[i]);
}

static void
check_text(struct bytes *out, const char *wanted)
{
    bytes_put_char(out, '\0');
    assert_false(out->failed);
    assert_string_equal(out->data, wanted);
    bytes_fini(out);
}

/* ---- the small methods ---- */

#define MODEL                                                                                      \
    "\x0a\x01m\x12\x01\x31\x12\x01\x32\x1a\x02pf\x22\x0c\x0a\x01x\x12\x04"                         \
    "FP32\x1a\x01\x02\x2a\x05\x0a\x03\"y\""

TEST_CASE(test_model)
{
    static const char message[] = MODEL;
    for (size_t bytes = 0; bytes < sizeof(message); bytes++) {
        struct scattered scattered;
        struct bytes out = {0};
        struct error error = ERROR_NONE;
        scatter(&scattered, message, bytes);
        enum status status = oip_json_put_model(&out, &scattered.message, &error);
        scattered_fini(&scattered);
        if (bytes == sizeof(message) - 1) {
            assert_int_equal(status, STATUS_OK);
            check_text(&out,
                       "{\"name\":\"m\",\"versions\":[\"1\",\"2\"],\"platform\":\"pf\","
                       "\"inputs\":[{\"name\":\"x\",\"datatype\":\"FP32\",\"shape\":[2]}],"
                       "\"outputs\":[{\"name\":\"\\\"y\\\"\",\"datatype\":\"\",\"shape\":[]}]}");
        } else if (status != STATUS_OK) {
            assert_int_equal(status, STATUS_INTERNAL);
            assert_string_equal(error.text, "the response is no ModelMetadataResponse");
            assert_int_equal(out.used, 0);
        }
        bytes_fini(&out);
    }
}

static void
check_ready(const char *data, size_t bytes, enum status wanted, bool wanted_ready)
{
    const struct wire_span span = {data, bytes};
    const struct wire_message message = {&span, bytes > 0, bytes};
    struct bytes out = {0};
    struct error error = ERROR_NONE;
    bool ready;
    assert_int_equal(oip_json_put_model_ready(&out, "m\"", &message, &ready, &error), wanted);
    assert_int_equal(ready, wanted_ready);
    if (wanted == STATUS_OK)
        check_text(&out, wanted_ready ? "{\"name\":\"m\\\"\",\"ready\":true}"
                                      : "{\"name\":\"m\\\"\",\"ready\":false}");
    else
        assert_string_equal(error.text, "the response is no ModelReadyResponse");
}

TEST_CASE(test_ready)
{
    check_ready("", 0, STATUS_OK, false);
    check_ready("\x08\x01", 2, STATUS_OK, true);
    check_ready("\x08\x01\x08\x00", 4, STATUS_OK, false);
    check_ready("\x12\x01x", 3, STATUS_OK, false);
    check_ready("\x08", 1, STATUS_INTERNAL, false);
}

TEST_CASE(test_named)
{
    struct bytes out = {0};
    oip_json_put_named(&out, "model", "");
    check_text(&out, "\x0a\x05model");
    oip_json_put_named(&out, "m", "7");
    check_text(&out, "\x0a\x01m\x12\x01\x37");
    oip_json_put_named(&out, "", "");
    assert_int_equal(out.used, 0);
}

/* ---- typed contents ---- */

static struct oip_json *
read_request(const char *body)
{
    struct oip_json *json;
    struct error error = ERROR_NONE;
    const struct oip_json_ask ask = {.model = "m",
                                     .version = "",
                                     .body = body,
                                     .body_bytes = strlen(body),
                                     .json_bytes = strlen(body),
                                     .message_bytes_max = 1 << 20};
    assert_int_equal(oip_json_read(&ask, &json, &error), STATUS_OK);
    return json;
}

static enum status
write_answer(const char *body, const char *data, size_t bytes, struct oip_json_answer *answer,
             struct scattered *scattered)
{
    struct error error = ERROR_NONE;
    struct oip_json *json = read_request(body);
    scatter(scattered, data, bytes);
    enum status status = oip_json_write(json, &scattered->message, answer, &error);
    oip_json_destroy(json);
    assert_true(status == STATUS_OK || status == STATUS_INTERNAL);
    return status;
}

#define JSON_WANTED "{\"inputs\":[]}"
#define BINARY_WANTED "{\"inputs\":[],\"parameters\":{\"binary_data_output\":true}}"

/* x, INT8 [2], 7 and -1; y, BYTES [2], "a" and "" */
#define TYPED                                                                                      \
    "\x2a\x1b\x0a\x01x\x12\x04INT8\x1a\x01\x02\x2a\x0d\x12\x0b\x07\xff\xff\xff\xff\xff\xff\xff"    \
    "\xff\xff\x01"                                                                                 \
    "\x2a\x14\x0a\x01y\x12\x05"                                                                    \
    "BYTES\x1a\x01\x02\x2a\x05\x42\x01\x61\x42\x00"

TEST_CASE(test_typed)
{
    static const char message[] = TYPED;
    struct oip_json_answer answer;
    struct scattered scattered;
    for (size_t bytes = 0; bytes < sizeof(message) - 1; bytes++) {
        (void)write_answer(JSON_WANTED, message, bytes, &answer, &scattered);
        oip_json_answer_fini(&answer);
        scattered_fini(&scattered);
    }
    assert_int_equal(write_answer(JSON_WANTED, message, sizeof(message) - 1, &answer, &scattered),
                     STATUS_OK);
    check_text(&answer.text,
               "{\"outputs\":[{\"name\":\"x\",\"datatype\":\"INT8\",\"shape\":[2],\"data\":[7,-1]},"
               "{\"name\":\"y\",\"datatype\":\"BYTES\",\"shape\":[2],\"data\":[\"a\",\"\"]}]}");
    oip_json_answer_fini(&answer);
    scattered_fini(&scattered);
}

/* It lies in the answer, and outlives the message. */
TEST_CASE(test_typed_as_binary)
{
    static const char message[] = TYPED;
    static const char wanted[] = "\x07\xff\x01\0\0\0a\0\0\0\0";
    struct oip_json_answer answer;
    struct scattered scattered;
    char got[sizeof(wanted)];
    size_t used = 0;
    assert_int_equal(write_answer(BINARY_WANTED, message, sizeof(message) - 1, &answer, &scattered),
                     STATUS_OK);
    scattered_fini(&scattered);
    assert_true(answer.binary);
    for (size_t i = 0; i < answer.data_count; i++) {
        assert_true(answer.data[i].bytes <= sizeof(got) - used);
        memcpy(got + used, answer.data[i].data, answer.data[i].bytes);
        used += answer.data[i].bytes;
    }
    assert_int_equal(used, sizeof(wanted) - 1);
    assert_memory_equal(got, wanted, used);
    oip_json_answer_fini(&answer);
}

struct mistake {
    const char *data;
    size_t bytes;
};

#define MISTAKE(text)                                                                              \
    {                                                                                              \
        text, sizeof(text) - 1                                                                     \
    }

TEST_CASE(test_typed_mistakes)
{
    static const struct mistake mistakes[] = {
        /* one element for a shape of two; a member of another type; FP16, which no member has */
        MISTAKE("\x2a\x11\x0a\x01x\x12\x04INT8\x1a\x01\x02\x2a\x03\x12\x01\x07"),
        MISTAKE("\x2a\x12\x0a\x01x\x12\x04INT8\x1a\x01\x02\x2a\x04\x1a\x02\x07\x07"),
        MISTAKE("\x2a\x12\x0a\x01x\x12\x04"
                "FP16\x1a\x01\x02\x2a\x04\x12\x02\x07\x07"),
        /* no such datatype; a negative dimension; dimensions that overflow; nothing at all */
        MISTAKE("\x2a\x12\x0a\x01x\x12\x04INT9\x1a\x01\x02\x2a\x04\x12\x02\x07\x07"),
        MISTAKE("\x2a\x19\x0a\x01x\x12\x04INT8\x1a\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                "\x2a\x02\x12\x00"),
        MISTAKE("\x2a\x1d\x0a\x01x\x12\x04INT8\x1a\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff"
                "\xff\xff\xff\xff\xff\xff\x7f"),
        MISTAKE("\x2a\x0c\x0a\x01x\x12\x04INT8\x1a\x01\x02"),
        /* one raw for two outputs */
        MISTAKE(TYPED "\x32\x01\x00"),
    };
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        struct oip_json_answer answer;
        struct scattered scattered;
        assert_int_equal(
            write_answer(JSON_WANTED, mistakes[i].data, mistakes[i].bytes, &answer, &scattered),
            STATUS_INTERNAL);
        oip_json_answer_fini(&answer);
        scattered_fini(&scattered);
    }
}

TEST_MAIN()
