/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's generate form, both ways: members become the inputs that a model declares, or
 * parameters, and outputs become members; every mistake is reported. The rig's model answers with
 * its inputs.
 */
#include "test_oip_json_rig.h"

static struct json_rig *rig;

static const struct handshake_tensor text[] = {{"text_input", SHOAL_BYTES, 1, {-1}}};
static const struct handshake_tensor rows[] = {{"x", SHOAL_INT32, 2, {-1, 2}}};
static const struct handshake_tensor open[] = {{"x", SHOAL_INT8, SHOAL_RANK_ANY, {0}}};
static const struct handshake_tensor pair[] = {{"a", SHOAL_FP32, 1, {-1}},
                                               {"b", SHOAL_BOOL, 1, {1}}};
static const struct handshake_tensor any_type[] = {{"x", SHOAL_DATATYPE_ANY, 1, {-1}}};
static const struct handshake_tensor scalar[] = {{"x", SHOAL_INT32, 0, {0}}};

struct generate_case {
    const struct handshake_tensor *inputs;
    uint32_t count;
    const char *body;
    const char *wanted; /* the beginning of the answer, or of the error */
};

#define GOT(text) "{\"model_name\":\"m\",\"model_version\":\"1\"," text "}"
#define ELSE ": call it by /v2/models/NAME/infer"
#define NO_JSON "the body is not valid JSON: it must be an object"

static const struct generate_case cases[] = {
    {text, 1, "{\"text_input\":\"a } b\"}", GOT("\"text_input\":\"a } b\"")},
    {text, 1, " { \"text_input\" : [ \"a\" , \"\" ] } ", GOT("\"text_input\":[\"a\",\"\"]")},
    {text, 1, "{\"text\\u005finput\":\"a\"}", GOT("\"text_input\":\"a\"")},
    {text, 1, "{\"\\u0074\\u0065\\u0078\\u0074\\u005f\\u0069\\u006e\\u0070\\u0075\\u0074\":\"a\"}",
     GOT("\"text_input\":\"a\"")},
    {text, 1, "{\"id\":\"7\",\"text_input\":\"\"}", GOT("\"id\":\"7\",\"text_input\":\"\"")},
    {text, 1, "{\"parameters\":{},\"text_input\":\"a\"}", GOT("\"text_input\":\"a\"")},
    {text, 1, "{\"parameters\":{\"text_input\":\"a\",\"n\":1.5},\"stream\":true}",
     GOT("\"text_input\":\"a\"")},
    {text, 1, "{\"text_input\":[]}", GOT("\"text_input\":[]")},
    {rows, 1, "{\"x\":[1,2]}", GOT("\"x\":[1,2]")},
    {rows, 1, "{\"x\":[[1,2],[3,4]]}", GOT("\"x\":[1,2,3,4]")},
    {open, 1, "{\"x\":7}", GOT("\"x\":7")},
    {open, 1, "{\"x\":[[[7]]]}", GOT("\"x\":7")},
    /* whether an input is missing is judged later */
    {text, 1, " {} ", "{\"model_name\":\"m\",\"model_version\":\"1\"}"},
    {pair, 2, "{\"b\":true,\"a\":[1,2.5]}", GOT("\"b\":true,\"a\":[1.0,2.5]")},

    {text, 1, "", "the body must be a JSON object"},
    {text, 1, "[\"a\"]", "the body must be a JSON object"},
    {text, 1, "{\"text_input\":\"a\"", NO_JSON},
    {text, 1, "{\"text_input\":\"a\"} x", NO_JSON},
    {text, 1, "{\"text_input\" \"a\"}", NO_JSON},
    {text, 1, "{text_input:1}", NO_JSON},
    {text, 1, "{\"n\":1 \"text_input\":\"a\"}", NO_JSON},
    {text, 1, "{\"n\":1,}", NO_JSON},
    {text, 1, "{\"text_input\":1}", "tensor \"text_input\": element 0: "},
    {text, 1, "{\"text_input\":{}}", "tensor \"text_input\": "},
    {text, 1, "{\"text_input\":\"a\",\"text_input\":\"b\"}", "input \"text_input\" twice"},
    {text, 1, "{\"text_input\":\"a\",\"parameters\":{\"text_input\":\"b\"}}",
     "input \"text_input\" twice"},
    {text, 1, "{\"id\":7}", "\"id\" must be a string"},
    {text, 1, "{\"parameters\":[]}", "\"parameters\" must be an object"},
    {text, 1, "{\"parameters\":{\"n\":1]}", NO_JSON},
    {text, 1, "{\"other\":[1]}", "\"other\" is no input of model \"m\"; a parameter must be a"},
    {text, 1, "{\"other\":null}", "parameter \"other\": must be a string, a number or a boolean"},
    {text, 1, "{\"other\":nul}", "\"other\" is no input of model \"m\"; a parameter must be a"},
    {text, 1, "{\"o\\u0000\":1}", "the body is not valid JSON: a key"},
    {text, 1, "{\"timeout\":\"1\"}", "parameter \"timeout\": must be a number of microseconds"},
    {rows, 1, "{\"x\":[[[1,2]]]}",
     "tensor \"x\": the value is nested deeper than the 2 dimensions of the model's input"},
    {NULL, 0, "{\"x\":1}", "model \"m\" does not declare its inputs, which generate needs" ELSE},
    {any_type, 1, "{\"x\":1}",
     "model \"m\": input \"x\" takes any type, which a member does not give" ELSE},
    {scalar, 1, "{\"x\":1}",
     "model \"m\": input \"x\" takes no dimensions, which a member does not give" ELSE},
};

TEST_CASE(test_cases)
{
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct generate_case *one = &cases[i];
        const struct oip_model_info model = {
            .name = "m", .version = "1", .inputs = one->inputs, .input_count = one->count};
        rig->members_of = &model;
        const char *got = json_rig_ask(rig, one->body, strlen(one->body), NULL, 0);
        if (strncmp(got, one->wanted, strlen(one->wanted)) != 0)
            fail_msg("%s: %s, not %s", one->body, got, one->wanted);
        rig->members_of = NULL;
    }
}

/* Every piece of a good body is refused, and nothing past its end is read. */
TEST_CASE(test_cut)
{
    static const char body[] = "{\"id\":\"7\",\"parameters\":{\"n\":1.5},\"a\":[1,2],\"b\":true}";
    static const struct oip_model_info model = {
        .name = "m", .version = "1", .inputs = pair, .input_count = 2};
    rig->members_of = &model;
    for (size_t i = 0; i < sizeof(body) - 1; i++) {
        (void)json_rig_ask(rig, body, i, NULL, 0);
        assert_int_equal(rig->error.status, STATUS_INVALID_ARGUMENT);
    }
}

TEST_CASE(test_limits)
{
    struct bytes body = {0};
    static const struct oip_model_info model = {
        .name = "m", .version = "1", .inputs = text, .input_count = 1};
    rig->members_of = &model;
    assert_string_equal(json_rig_ask(rig, "{}", 2, "abc", 3),
                        "3 bytes after the JSON belong to no input");
    bytes_put_text(&body, "{\"n\":\"");
    while (body.used < SKIM_BYTES_MAX + 64)
        bytes_put_char(&body, 'n');
    bytes_put_text(&body, "\"}");
    (void)json_rig_ask(rig, body.data, body.used, NULL, 0);
    assert_int_equal(rig->error.status, STATUS_INVALID_ARGUMENT);
    bytes_fini(&body);
    bytes_put_text(&body, "{\"text_input\":[\"\"");
    while (body.used < RIG_MESSAGE_BYTES)
        bytes_put_text(&body, ",\"\"");
    bytes_put_text(&body, "]}");
    (void)json_rig_ask(rig, body.data, body.used, NULL, 0);
    assert_int_equal(rig->error.status, STATUS_OUT_OF_RANGE);
    bytes_fini(&body);
}

static int
start(void **state)
{
    (void)state;
    rig = json_rig_create();
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    json_rig_destroy(rig);
    return 0;
}

TEST_MAIN(.group_setup = start, .group_teardown = stop)
