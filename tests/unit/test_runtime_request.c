/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of mmesh.ModelRuntime, read and judged: messages cut at every byte, texts at and
 * beyond their limits, keys that are JSON and that are not, and random bytes, of which
 * AddressSanitizer would see a read or a write past an end.
 */
#include "test_oip_rig.h"

#include "coordinator/models/runtime_request.h"

enum { FIELD_ID = 1, FIELD_TYPE, FIELD_PATH, FIELD_KEY };

#define LONGEST_ID ((size_t)SHOAL_NAME_BYTES_MAX)

static struct blob
message_of(const char *id, const char *path, const char *key)
{
    struct blob blob = {0};
    blob_field_text(&blob, FIELD_ID, id);
    blob_field_text(&blob, FIELD_TYPE, "to be ignored");
    blob_field_text(&blob, FIELD_PATH, path);
    blob_field_text(&blob, FIELD_KEY, key);
    return blob;
}

/* Takes the blob over. */
static enum status
judge(struct blob *blob, struct runtime_request *request, struct error *error)
{
    struct spans spans = spans_whole(blob);
    enum status status = runtime_request_read(&spans.message, request, error);
    if (status == STATUS_OK)
        status = runtime_request_check(request, error);
    spans_free(&spans);
    blob_free(blob);
    return status;
}

static void
refuse(struct blob blob, const char *text)
{
    struct runtime_request request;
    struct error error = ERROR_NONE;
    assert_int_equal(judge(&blob, &request, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
}

TEST_CASE(test_cut_anywhere)
{
    struct blob blob = message_of("größe", "a/path", "{\"model_type\": {\"name\": \"n\"}}");
    for (size_t at = 0; at <= blob.used; at++) {
        struct spans spans = spans_cut(blob.bytes, blob.used, at);
        struct runtime_request request;
        struct error error = ERROR_NONE;
        assert_int_equal(runtime_request_read(&spans.message, &request, &error), STATUS_OK);
        assert_int_equal(runtime_request_check(&request, &error), STATUS_OK);
        assert_string_equal(request.id, "größe");
        assert_string_equal(request.path, "a/path");
        assert_string_equal(request.type, "n");
        spans_free(&spans);
    }
    blob_free(&blob);
}

/* Whether what is too long, or has a zero in it, ever counts as its beginning. */
TEST_CASE(test_limits)
{
    char id[LONGEST_ID + 2];
    struct runtime_request request;
    struct error error = ERROR_NONE;
    memset(id, 'i', sizeof(id));
    id[LONGEST_ID] = '\0';
    struct blob blob = message_of(id, "p", "");
    assert_int_equal(judge(&blob, &request, &error), STATUS_OK);
    assert_string_equal(request.id, id);
    id[LONGEST_ID] = 'i';
    id[LONGEST_ID + 1] = '\0';
    blob = message_of(id, "p", "");
    struct spans spans = spans_whole(&blob);
    assert_int_equal(runtime_request_read(&spans.message, &request, &error), STATUS_OK);
    assert_string_equal(request.id, "");
    spans_free(&spans);
    refuse(blob, "modelId has 128 bytes: must be at most 127");
    blob = (struct blob){0};
    blob_field_bytes(&blob, FIELD_ID, "a\0b", 3);
    refuse(blob, "field 1");
    blob = (struct blob){0};
    blob_field_text(&blob, FIELD_PATH, "\xff");
    refuse(blob, "field 3");
    refuse(message_of("", "p", ""), "modelId is missing");
    refuse(message_of("i", "", ""), "modelPath is missing");
}

TEST_CASE(test_keys)
{
    static const struct {
        const char *key;
        const char *type; /* NULL: refused, with `text` in the reason */
        const char *text;
    } cases[] = {
        {"", "", NULL},
        {"{}", "", NULL},
        {"{\"model_type\": null}", "", NULL},
        {"{\"model_type\": {}}", "", NULL},
        {"{\"model_type\": {\"name\": null, \"version\": \"1\"}}", "", NULL},
        {"{\"model_type\": {\"name\": \"n\", \"version\": 1}, \"more\": [{}]}", "n", NULL},
        {"{\"model_type\": \"n\"}", "n", NULL},
        {"{", NULL, "not JSON"},
        {"{} {}", NULL, "not JSON"},
        {"nothing", NULL, "not JSON"},
        {"\"n\"", NULL, "not JSON"},
        {"[]", NULL, "not a JSON object"},
        {"{\"model_type\": \"a\\u0000b\"}", NULL, "not JSON"},
        {"{\"model_type\": 1}", NULL, "model_type"},
        {"{\"model_type\": {\"name\": [\"n\"]}}", NULL, "model_type"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct runtime_request request;
        struct error error = ERROR_NONE;
        struct blob blob = message_of("i", "p", cases[i].key);
        print_message("%s\n", cases[i].key);
        if (cases[i].type == NULL) {
            refuse(blob, cases[i].text);
            continue;
        }
        assert_int_equal(judge(&blob, &request, &error), STATUS_OK);
        assert_string_equal(request.type, cases[i].type);
    }
}

/* A field that comes twice is the later one, and one of another type is none of ours. */
TEST_CASE(test_odd_fields)
{
    struct runtime_request request;
    struct error error = ERROR_NONE;
    struct blob blob = message_of("before", "p", "");
    blob_field_text(&blob, FIELD_ID, "after");
    blob_field_varint(&blob, FIELD_ID, 5);
    blob_field_text(&blob, 99, "from the future");
    assert_int_equal(judge(&blob, &request, &error), STATUS_OK);
    assert_string_equal(request.id, "after");
}

TEST_CASE(test_random)
{
    random_init();
    for (int turn = 0; turn < 20000; turn++) {
        unsigned char bytes[64];
        size_t count = random_draw(&random_state) % sizeof(bytes);
        for (size_t i = 0; i < count; i++)
            bytes[i] = (unsigned char)(random_draw(&random_state) % (turn % 2 ? 256 : 40));
        struct spans spans = spans_cut(bytes, count, count > 0 ? (size_t)turn % count : 0);
        struct runtime_request request;
        struct error error = ERROR_NONE;
        enum status status = runtime_request_read(&spans.message, &request, &error);
        if (status == STATUS_OK)
            status = runtime_request_check(&request, &error);
        assert_true(status == STATUS_OK || status == STATUS_INVALID_ARGUMENT);
        spans_free(&spans);
    }
}

TEST_MAIN()
