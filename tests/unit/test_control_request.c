/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An operator's request, as the node reads it: each member arrives as it was sent, unknown ones are
 * ignored, and each thing that a hostile client may send instead is refused with a text that says
 * what is wrong.
 */
#include <stdio.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/loop/control_request.h"

static char packet[CONTROL_REQUEST_BYTES];
static struct control_request request;
static struct error error;

static enum status
read_bytes(const char *text, size_t bytes)
{
    error = ERROR_NONE;
    memcpy(packet, text, bytes);
    return control_request_read(packet, bytes, &request, &error);
}

TEST_CASE(test_every_member)
{
    static const char whole[] =
        "{\"later\": {\"a\": [null]}, \"version\": 5, \"verb\": \"mesh copies\", \"id\": "
        "\"h\\u00e9\", \"pipeline\": \"p\", \"path\": \"a/b\", \"key\": \"{}\", \"prefix\": "
        "\"f-\", "
        "\"node\": \"n\", \"config\": \"c\", \"from\": 4294967295, \"limit\": 7, \"no_wait\": "
        "true}";
    assert_int_equal(read_bytes(whole, strlen(whole)), STATUS_OK);
    assert_int_equal(request.verb, CONTROL_MESH_COPIES);
    assert_string_equal(request.id, "h\xc3\xa9");
    assert_string_equal(request.pipeline, "p");
    assert_string_equal(request.path, "a/b");
    assert_string_equal(request.key, "{}");
    assert_string_equal(request.prefix, "f-");
    assert_string_equal(request.node, "n");
    assert_string_equal(request.config, "c");
    assert_int_equal(request.from, UINT32_MAX);
    assert_int_equal(request.limit, 7);
    assert_true(request.no_wait);
}

TEST_CASE(test_defaults_and_verbs)
{
    char text[128];
    for (enum control_verb verb = 0; verb < CONTROL_VERBS; verb++) {
        snprintf(text, sizeof(text), "{\"version\":5,\"verb\":\"%s\"}", control_verb_name(verb));
        assert_int_equal(read_bytes(text, strlen(text)), STATUS_OK);
        assert_int_equal(request.verb, verb);
    }
    const char *const texts[] = {request.pipeline, request.id,   request.path,  request.key,
                                 request.prefix,   request.node, request.config};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        assert_string_equal(texts[i], "");
    assert_true(request.from == 0 && request.limit == 0 && !request.no_wait);
}

TEST_CASE(test_refusals)
{
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"x", "at byte 1"},
        {"\"a\"", "'[' or '{' expected"},
        {"[{}]", "an object with an integer `version`"},
        {"{}", "an object with an integer `version`"},
        {"{\"version\":\"5\"}", "an object with an integer `version`"},
        {"{\"version\":4,\"verb\":\"drain\"}", "its version is 4, not 5"},
        {"{\"version\":5}", "verb is missing"},
        {"{\"version\":5,\"verb\":3}", "verb is missing, or not a string"},
        {"{\"version\":5,\"verb\":\"drains\"}", "unknown verb \"drains\""},
        {"{\"version\":5,\"version\":5,\"verb\":\"drain\"}", "duplicate object key"},
        {"{\"version\":5,\"verb\":\"drain\",\"x\":\"\xff\"}", "unable to decode byte 0xff"},
        {"{\"version\":5,\"verb\":\"model unload\",\"id\":\"\\u0000\"}", "\\u0000 is not allowed"},
        {"{\"version\":5,\"verb\":\"drain\"} {}", "end of file expected"},
        {"{\"version\":5,\"verb\":\"drain\",\"no_wait\":1}", "no_wait is not true or false"},
        {"{\"version\":5,\"verb\":\"mesh nodes\",\"from\":-1}", "from is not an integer from 0 to"},
        {"{\"version\":5,\"verb\":\"mesh nodes\",\"limit\":4294967296}", "limit is not an integer"},
        {"{\"version\":5,\"verb\":\"mesh nodes\",\"limit\":1.0}", "limit is not an integer"},
        {"{\"version\":5,\"verb\":\"mesh nodes\",\"limit\":99999999999999999999}",
         "too big integer"},
        {"{\"version\":5,\"verb\":\"mesh nodes\",\"prefix\":[]}", "prefix is not a string"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        assert_int_not_equal(read_bytes(cases[i].text, strlen(cases[i].text)), STATUS_OK);
        if (strstr(error.text, cases[i].words) == NULL ||
            strncmp(error.text, "not a request: ", strlen("not a request: ")) != 0)
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].text, error.text, cases[i].words);
    }
    assert_int_equal(read_bytes(cases[8].text, strlen(cases[8].text)), STATUS_UNIMPLEMENTED);
    assert_int_equal(read_bytes("{\"version\":5}\0", 14), STATUS_INVALID_ARGUMENT);
}

/* Each text has its limit, which the error names. */
TEST_CASE(test_limits)
{
    static const struct {
        const char *verb, *name;
        int bytes_max;
    } texts[] = {
        {"reload", "pipeline", 63},    {"model load", "id", 127},   {"mesh copies", "id", 4095},
        {"model load", "path", 1023},  {"model load", "key", 4095}, {"mesh models", "prefix", 4095},
        {"mesh models", "node", 1023}, {"upgrade", "config", 1023},
    };
    char text[CONTROL_REQUEST_BYTES + 1];
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        for (int more = 0; more < 2; more++) {
            int bytes =
                snprintf(text, sizeof(text), "{\"version\":5,\"verb\":\"%s\",\"%s\":\"%0*d\"}",
                         texts[i].verb, texts[i].name, texts[i].bytes_max + more, 0);
            assert_int_equal(read_bytes(text, (size_t)bytes),
                             more ? STATUS_INVALID_ARGUMENT : STATUS_OK);
            assert_true(!more || strstr(error.text, texts[i].name) != NULL);
        }
    memset(text, '[', sizeof(text));
    assert_int_equal(read_bytes(text, CONTROL_REQUEST_BYTES), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "maximum parsing depth reached"));
    error = ERROR_NONE;
    assert_int_equal(control_request_read(packet, CONTROL_REQUEST_BYTES + 1, &request, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "it has 32769 bytes, at most 32768 are read"));
}

TEST_MAIN()
