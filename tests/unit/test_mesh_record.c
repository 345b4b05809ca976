/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models' records: what the incumbent writes is read into what the core wants and comes out again
 * byte for byte; what nobody knows stays, whether the whole former value is given or the unknown
 * fields alone; `loaded` counts only beside the same stamp. Hostile values end in an error that
 * says where, and nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "mesh/record/record.h"

static struct record_source
source_of(const char *value)
{
    return (struct record_source){"m-1", value, strlen(value), 40, 44};
}

static struct record_model *
read_ok(const char *value)
{
    struct record_model *record = NULL;
    struct error error = ERROR_NONE;
    struct record_source source = source_of(value);
    if (record_model_read(&source, &record, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return record;
}

/* The error's text says this. */
static void
refused(const char *value, const char *text)
{
    struct record_model *record = NULL;
    struct error error = ERROR_NONE;
    struct record_source source = source_of(value);
    assert_int_equal(record_model_read(&source, &record, &error), STATUS_INVALID_ARGUMENT);
    assert_null(record);
    if (strstr(error.text, text) == NULL || strncmp(error.text, "model record \"m-1\": ", 20) != 0)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static void
writes(const struct mesh_model *model, const char *former, const char *expected)
{
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    if (record_model_write(model, former, strlen(former), &to, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    bytes_put_char(&to, '\0');
    assert_string_equal(to.data, expected);
    bytes_fini(&to);
}

/* ---- the incumbent's ---- */

static const char *const theirs[] = {
    "{\"type\":\"mt:onnx\"}",
    "{\"type\":\"rt:triton-2.x\",\"encKey\":\"{\\\"storage_key\\\":\\\"s3\\\"}\",\"mPath\":\"a/b\","
    "\"autoDel\":true,\"instanceIds\":{\"5bd6f8-4xk2p\":1700000000001,\"5bd6f8-zz9qq\":"
    "1700000000000"
    "},\"failedIn\":{\"7c9d44-aaaaa\":1699999999999},\"fails\":{\"7c9d44-aaaaa\":{\"msg\":\"out of "
    "memory\"}},\"refs\":2,\"lu\":1700000000500,\"lul\":1699999990000}",
    "{\"type\":\"t\",\"failedIn\":{\"a\":1,\"b\":2},\"fails\":{\"b\":{\"msg\":"
    "\"\\\"quoted\\\"\\n\","
    "\"more\":[1,2]}},\"lu\":9223372036854775807}",
    "{\"type\":\"größe\",\"mPath\":\"\\u0001\\u001F\\t\\\\/\",\"actionable\":true,\"refs\":1}",
    "{\"type\":\"t\",\"instanceIds\":{\"a\":5},\"alpha\":{\"z\":1,\"a\":[true,null,-3,0.1]},"
    "\"loaded\":{"
    "\"a\":5},\"zulu\":\"\"}",
    "{\"type\":\"t\",\"loader\":1,\"maxCopies\":3,\"minCopies\":2,\"more\":1,\"sizeUnits\":12800}",
};

TEST_CASE(round_trips)
{
    for (size_t i = 0; i < ARRAY_COUNT(theirs); i++) {
        struct record_model *record = read_ok(theirs[i]);
        writes(&record->model, theirs[i], theirs[i]);
        writes(&record->model, record->unknown_fields, theirs[i]);
        free(record);
    }
}

TEST_CASE(says_what_the_core_wants)
{
    struct record_model *record = read_ok(theirs[1]);
    const struct mesh_model *model = &record->model;
    assert_string_equal(model->id, "m-1");
    assert_string_equal(model->type, "rt:triton-2.x");
    assert_string_equal(model->key, "{\"storage_key\":\"s3\"}");
    assert_string_equal(model->path, "a/b");
    assert_true(model->auto_delete);
    assert_int_equal(model->references, 2);
    assert_int_equal(model->used_ms, 1700000000500);
    assert_int_equal(model->unloaded_ms, 1699999990000);
    assert_int_equal(model->create_revision, 40);
    assert_int_equal(model->revision, 44);
    assert_int_equal(model->place_count, 3);
    assert_string_equal(model->places[0].instance, "5bd6f8-4xk2p");
    assert_int_equal(model->places[0].kind, MESH_PLACE_LOADING);
    assert_int_equal(model->places[0].since_ms, 1700000000001);
    assert_string_equal(model->places[2].instance, "7c9d44-aaaaa");
    assert_int_equal(model->places[2].kind, MESH_PLACE_FAILED);
    assert_string_equal(model->places[2].reason, "out of memory");
    assert_string_equal(record->unknown_fields, "");
    free(record);
}

TEST_CASE(defaults)
{
    struct record_model *record = read_ok("{\"type\":null,\"mPath\":null,\"refs\":-4}");
    assert_string_equal(record->model.type, "NLCLASSIFIER");
    assert_string_equal(record->model.path, "");
    assert_string_equal(record->model.key, "");
    assert_int_equal(record->model.references, 0);
    assert_int_equal(record->model.place_count, 0);
    free(record);
}

/* ---- ours ---- */

TEST_CASE(bounds)
{
    struct record_model *record = read_ok(theirs[5]);
    assert_int_equal(record->model.bounds.copies_min, 2);
    assert_int_equal(record->model.bounds.copies_max, 3);
    assert_int_equal(record->model.bounds.size_units, 12800);
    record->model.bounds = (struct mesh_bounds){0};
    writes(&record->model, theirs[5], "{\"type\":\"t\",\"loader\":1,\"more\":1}");
    free(record);
    record = read_ok("{\"type\":\"t\",\"maxCopies\":99999999999,\"minCopies\":4294967298}");
    assert_int_equal(record->model.bounds.copies_min, INT32_MAX);
    assert_int_equal(record->model.bounds.copies_max, INT32_MAX);
    free(record);
    refused("{\"minCopies\":\"2\"}", "minCopies: expected a whole number, not a string");
    refused("{\"sizeUnits\":9999999999}", "sizeUnits: 9999999999 is more than 4294967295");
}

TEST_CASE(loaded_beside_the_same_stamp)
{
    struct record_model *record =
        read_ok("{\"type\":\"t\",\"instanceIds\":{\"a\":1,\"b\":2,\"c\":3},"
                "\"loaded\":{\"a\":1,\"b\":1,\"d\":4,\"c\":\"3\"}}");
    assert_int_equal(record->model.place_count, 3);
    assert_int_equal(record->model.places[0].kind, MESH_PLACE_LOADED);
    assert_int_equal(record->model.places[1].kind, MESH_PLACE_LOADING); /* anew, by the incumbent */
    assert_int_equal(record->model.places[2].kind, MESH_PLACE_LOADING);
    writes(&record->model, "",
           "{\"type\":\"t\",\"instanceIds\":{\"a\":1,\"b\":2,\"c\":3},\"loaded\":{\"a\":1}}");
    free(record);
}

/* The core's fields replace the former ones, and nothing else. */
TEST_CASE(changes)
{
    const char *former =
        "{\"type\":\"t\",\"instanceIds\":{\"a\":1},\"failedIn\":{\"b\":7,\"c\":8},\"fails\":{"
        "\"b\":{\"msg\":\"x\",\"code\":3},\"c\":{\"msg\":\"y\"}},\"new\":{\"deep\":[{}]}}";
    const struct mesh_place places[] = {
        {"d", NULL, 9, MESH_PLACE_LOADING},
        {"a", "late", 10, MESH_PLACE_FAILED},
        {"b", "x", 7, MESH_PLACE_FAILED},
        {"Z", "", 6, MESH_PLACE_LOADED},
    };
    struct mesh_model model = {
        .id = "m", .type = "u", .places = places, .place_count = 4, .used_ms = 12};
    writes(&model, former,
           "{\"type\":\"u\",\"instanceIds\":{\"Z\":6,\"d\":9},\"failedIn\":{\"a\":10,\"b\":7},"
           "\"fails\":{\"a\":{\"msg\":\"late\"},\"b\":{\"msg\":\"x\",\"code\":3}},\"lu\":12,"
           "\"loaded\":{\"Z\":6},\"new\":{\"deep\":[{}]}}");
    model.place_count = 0;
    model.used_ms = 0;
    writes(&model, "", "{\"type\":\"u\"}");
}

TEST_CASE(keeps_what_nobody_knows)
{
    struct record_model *record = read_ok(
        "{\"z\":1.5,\"type\":\"t\",\"y\":1e300,\"x\":2.0,\"w\":-9223372036854775808,"
        "\"\":\"\",\"failedIn\":{\"b\":7},\"fails\":{\"b\":{\"code\":3},\"gone\":{\"code\":4}},"
        "\"actionable\":\"odd\"}");
    assert_string_equal(record->unknown_fields,
                        "{\"actionable\":\"odd\",\"fails\":{\"b\":{\"code\":3}},\"\":\"\","
                        "\"w\":-9223372036854775808,\"x\":2.0,\"y\":1e+300,\"z\":1.5}");
    writes(&record->model, record->unknown_fields,
           "{\"type\":\"t\",\"actionable\":\"odd\",\"failedIn\":{\"b\":7},\"fails\":{\"b\":{"
           "\"code\":3}},\"\":\"\",\"w\":-9223372036854775808,\"x\":2.0,\"y\":1e+300,\"z\":1.5}");
    free(record);
}

TEST_CASE(keeps_numbers_beyond_64_bits)
{
    static const char former[] =
        "{\"type\":\"t\",\"a\":18446744073709551616,\"b\":[-9223372036854775809,1],"
        "\"c\":{\"d\":1.25e999,\"e\":\"\\\"99999999999999999999\"}}";
    struct record_model *record = read_ok(former);
    assert_string_equal(record->unknown_fields,
                        "{\"a\":18446744073709551616,\"b\":[-9223372036854775809,1],"
                        "\"c\":{\"d\":1.25e999,\"e\":\"\\\"99999999999999999999\"}}");
    writes(&record->model, former, former);
    writes(&record->model, record->unknown_fields, former);
    free(record);
}

/* ---- hostile ---- */

TEST_CASE(wrong_shapes)
{
    refused("", "not JSON: empty");
    refused("{", "not JSON: ");
    refused("[1]", "not an object");
    refused("{\"type\":\"a\",\"type\":\"b\"}", "duplicate");
    refused("{\"type\":\"a\",\"instanceIds\":{\"i\":1,\"i\":2}}", "duplicate");
    refused("{\"type\":\"\xff\"}", "not JSON: ");
    refused("{\"type\":\"a\\u0000b\"}", "not JSON: ");
    refused("{\"type\":\"\"}", "type: is empty");
    refused("{\"type\":7}", "type: expected a string, not a number");
    refused("{\"encKey\":{}}", "encKey: expected a string, not an object");
    refused("{\"autoDel\":1}", "autoDel: expected true or false, not a number");
    refused("{\"refs\":1.5}", "refs: expected a whole number, not a fraction");
    refused("{\"refs\":2147483648}", "refs: 2147483648 is more than 2147483647");
    refused("{\"lu\":9223372036854775808}", "lu: expected a whole number, not a number beyond");
    refused("{\"type\":9223372036854775808}", "type: expected a string, not a number beyond");
    refused("{\"instanceIds\":{\"i\":1e999}}", "i: expected a whole number, not a number beyond");
    refused("{\"a\":99999999999999999999,\"b\":\"\\u0000\"}", "not JSON: ");
    refused("{\"a\":99999999999999999999-3}", "not JSON: ");
    refused("{\"a\":0099999999999999999999}", "not JSON: ");
    refused("{\"a\":99999999999999999999,\"b\":\"\\", "not JSON: ");
    refused("{\"instanceIds\":[]}", "instanceIds: expected an object, not an array");
    refused("{\"instanceIds\":{\"i\":null}}", "instanceIds: i: expected a whole number, not null");
    refused("{\"instanceIds\":{\"\":1}}", "instanceIds: an instance's id has 0 bytes");
    refused("{\"failedIn\":{\"i\":\"1\"}}", "failedIn: i: expected a whole number, not a string");
    refused("{\"loaded\":7}", "loaded: expected an object, not a number");
    refused("{\"fails\":\"no\"}", "fails: expected an object, not a string");
}

TEST_CASE(too_much)
{
    struct bytes value = {0};
    bytes_put_text(&value, "{\"instanceIds\":{\"i\":1");
    for (int i = 0; i < 10000; i++) {
        char place[32];
        snprintf(place, sizeof(place), ",\"i%d\":%d", i, i);
        bytes_put_text(&value, place);
    }
    bytes_put(&value, "}}", 3);
    refused(value.data, "10001 instances; at most 4096 are taken");
    value.used = 0;
    bytes_put_text(&value, "{\"deep\":");
    for (int i = 0; i < 100; i++)
        bytes_put_char(&value, '[');
    for (int i = 0; i < 100; i++)
        bytes_put_char(&value, ']');
    bytes_put(&value, "}", 2);
    refused(value.data, "deep: nested deeper than 64");
    value.used = 0;
    for (int i = 0; i < 100000; i++)
        bytes_put_text(&value, "{\"a\":");
    bytes_put_char(&value, '\0');
    refused(value.data, "not JSON: ");
    value.used = 0;
    for (int i = 0; i <= RECORD_BYTES_MAX; i++)
        bytes_put_char(&value, ' ');
    bytes_put_char(&value, '\0');
    refused(value.data, "1048577 bytes; at most 1048576 are taken");
    bytes_fini(&value);
}

/* A runtime's text for people may be anything; the record stays JSON, and small. */
TEST_CASE(any_reason)
{
    static char reason[100000];
    struct mesh_place place = {"a", "ok \xc3\xa9 \xff\xc3 \xed\xa0\x80 \xf4\x90\x80\x80 \xc0\xaf",
                               1, MESH_PLACE_FAILED};
    struct mesh_model model = {.id = "m", .type = "t", .places = &place, .place_count = 1};
    writes(&model, "",
           "{\"type\":\"t\",\"failedIn\":{\"a\":1},\"fails\":{\"a\":{\"msg\":\"ok \xc3\xa9 "
           "\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd "
           "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd \xef\xbf\xbd\xef\xbf\xbd\"}}}");
    memset(reason, 'x', sizeof(reason) - 1);
    place.reason = reason;
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(record_model_write(&model, NULL, 0, &to, &error), STATUS_OK);
    assert_in_range(to.used, RECORD_REASON_BYTES_MAX, RECORD_REASON_BYTES_MAX + 100);
    bytes_put_char(&to, '\0');
    assert_non_null(strstr(to.data, "x\xe2\x80\xa6\"")); /* and says that it is not all */
    struct record_model *record = read_ok(to.data);
    writes(&record->model, record->unknown_fields, to.data); /* does not change any more */
    free(record);
    bytes_fini(&to);
}

/* A text that names a model is not changed silently: it is not written. */
TEST_CASE(no_utf8)
{
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    struct mesh_model model = {.id = "m", .type = "t", .path = "a\xff"};
    assert_int_equal(record_model_write(&model, NULL, 0, &to, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "model record \"m\": it contains a byte that is not UTF-8"));
    bytes_fini(&to);
}

/* A former value that is none is not written over. */
TEST_CASE(wrong_former)
{
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    struct mesh_model model = {.id = "m", .type = "t"};
    assert_int_equal(record_model_write(&model, "nonsense", 8, &to, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "model record \"m\": not JSON"));
    assert_int_equal(to.used, 0);
    bytes_fini(&to);
}

TEST_MAIN()
