/* SPDX-License-Identifier: Apache-2.0 */
/*
 * KServe's v1 form, both ways: instances become the tensors that a model declares, nested as deep
 * as its shapes, whether its inputs are one, several, of open rank, empty; they come back as
 * predictions; every mistake is reported with the instance or the tensor. The rig's model answers
 * with its inputs.
 */
#include "test_oip_json_rig.h"

static struct json_rig *rig;

#define SPEC(name, type, rank, ...)                                                                \
    {                                                                                              \
        name, type, rank,                                                                          \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }

static const struct handshake_tensor matrix[] = {SPEC("x", SHOAL_INT32, 2, -1, 2)};
static const struct handshake_tensor vector[] = {SPEC("x", SHOAL_FP32, 1, -1)};
static const struct handshake_tensor texts[] = {SPEC("x", SHOAL_BYTES, 2, -1, -1)};
static const struct handshake_tensor open[] = {SPEC("x", SHOAL_INT8, SHOAL_RANK_ANY, 0)};
static const struct handshake_tensor cube[] = {SPEC("x", SHOAL_UINT64, 3, -1, 1, 2)};
static const struct handshake_tensor pair[] = {SPEC("a", SHOAL_INT32, 2, -1, 2),
                                               SPEC("b", SHOAL_BYTES, 1, -1)};
static const struct handshake_tensor any_type[] = {SPEC("x", SHOAL_DATATYPE_ANY, 1, -1)};
static const struct handshake_tensor scalar[] = {SPEC("x", SHOAL_INT32, 0, 0)};
static const struct handshake_tensor half[] = {SPEC("x", SHOAL_FP16, 1, -1)};

enum { PAIR = 2, ONE = 1, NONE = 0 };

struct rows_case {
    const struct handshake_tensor *inputs;
    uint32_t count;
    const char *body;
    const char *wanted; /* the beginning of the answer, or of the error */
};

#define X "tensor \"x\": "
#define ROWS(text) "{\"instances\":" text "}"
#define GOT(text) "{\"predictions\":" text "}"
#define ELSE ": call it by /v2/models/NAME/infer"

static const struct rows_case cases[] = {
    {matrix, ONE, ROWS("[[1,2],[3,4]]"), GOT("[[1,2],[3,4]]")},
    {matrix, ONE, ROWS(" [ [ 1 , 2 ] ] "), GOT("[[1,2]]")},
    {matrix, ONE, "{\"signature_name\":\"s\",\"instances\":[[1,2]],\"more\":{\"instances\":[3]}}",
     GOT("[[1,2]]")},
    {matrix, ONE, "{\"inst\\u0061nces\":[[1,2]]}", GOT("[[1,2]]")},
    {matrix, ONE, ROWS("[]"), GOT("[]")},
    {matrix, ONE, ROWS("[{\"x\":[1,2]},{\"x\":[3,4]}]"), GOT("[[1,2],[3,4]]")},
    {vector, ONE, ROWS("[1,2.5,\"NaN\"]"), GOT("[1.0,2.5,\"NaN\"]")},
    {vector, ONE, ROWS("[{\"x\":1},{\"x\":2}]"), GOT("[1.0,2.0]")},
    {texts, ONE, ROWS("[[\"a\",\"]\\\"\"],[\"\",\"h\xc3\xa4\"]]"),
     GOT("[[\"a\",\"]\\\"\"],[\"\",\"h\xc3\xa4\"]]")},
    {open, ONE, ROWS("[[[1],[2]]]"), GOT("[[[1],[2]]]")},
    {open, ONE, ROWS("[1]"), GOT("[1]")},
    {open, ONE, ROWS("[[],[]]"), GOT("[[],[]]")},
    {cube, ONE, ROWS("[[[0,18446744073709551615]]]"), GOT("[[[0,18446744073709551615]]]")},
    {pair, PAIR, ROWS("[{\"a\":[1,2],\"b\":\"x\"},{\"b\" : \"}\" , \"a\":[3,4]}]"),
     GOT("[{\"a\":[1,2],\"b\":\"x\"},{\"a\":[3,4],\"b\":\"}\"}]")},
    {pair, PAIR, ROWS("[{\"\\u0061\":[1,2],\"b\":\"x\"}]"), GOT("[{\"a\":[1,2],\"b\":\"x\"}]")},

    {matrix, ONE, ROWS("[[1,2],[3]]"),
     X "data has an array of 1 in dimension 1, which is 2 by the shape"},
    {matrix, ONE, ROWS("[1,2]"),
     X "the instances are nested 1 deep, but the model's input has 2 dimensions, the first of "
       "which counts instances"},
    {matrix, ONE, ROWS("[[[1,2]]]"),
     X "the instances are nested 3 deep, but the model's input has 2 dimensions, the first of "
       "which counts instances"},
    {matrix, ONE, ROWS("[[1,\"a\"]]"), X "element 1: a string is no INT32"},
    {matrix, ONE, ROWS("[[1,2],{\"x\":[1,2]}]"), X "data has elements at different depths"},
    {matrix, ONE, ROWS("[[1,2],]"), X "data has elements at different depths"},
    {matrix, ONE, ROWS("[[1 2]]"), X "data is not JSON, seen at its byte 4"},
    {matrix, ONE, ROWS("{}"), "\"instances\" is missing, or not an array"},
    {matrix, ONE, "{\"inputs\":[]}", "\"instances\" is missing, or not an array"},
    {matrix, ONE, "{\"instances\":[[1,2]", "the JSON ends within \"instances\""},
    {matrix, ONE, "{\"instances\":[[1,2]],\"instances\":[[1,2]]}",
     "the body is not valid JSON: duplicate object key"},
    {matrix, ONE, "[[1,2]]", "the body must be a JSON object"},
    {matrix, ONE, "", "the body is empty: it must be a JSON object"},
    {pair, PAIR, ROWS("[[1,2]]"),
     "model \"m\" has 2 inputs: each instance must be an object with a row for each of them"},
    {pair, PAIR, ROWS("[{\"a\":[1,2]}]"), "instance 0: input \"b\" is missing"},
    {pair, PAIR, ROWS("[{\"a\":[1,2],\"b\":\"\"},{\"a\":[1,2],\"a\":[1,2],\"b\":\"\"}]"),
     "instance 1: input \"a\" twice"},
    {pair, PAIR, ROWS("[{\"a\":[1,2],\"b\":\"\",\"c\":1}]"),
     "instance 0: model \"m\" has no input \"c\""},
    {pair, PAIR, ROWS("[{\"a\":[1,2],\"b\":\"\"},7]"),
     "instance 1 is not a JSON object with an input's name and row"},
    {pair, PAIR, ROWS("[{a:1}]"), "instance 0 is not a JSON object with an input's name and row"},
    {pair, PAIR, ROWS("[{\"a\"}]"), "instance 0 is not a JSON object with an input's name and row"},
    {pair, PAIR, ROWS("[{\"a\":[1,2] \"b\":\"\"}]"),
     "instance 0 is not a JSON object with an input's name and row"},
    {pair, PAIR, ROWS("[{\"a\":[1,2],\"b\":\"\"} {\"a\":[1,2],\"b\":\"\"}]"),
     "instance 1 is not a JSON object with an input's name and row"},
    {pair, PAIR, ROWS("[{\"a\":[1,2,3],\"b\":\"\"},{\"a\":[1,2],\"b\":\"\"}]"),
     "tensor \"a\": data has an array of 2 in dimension 1, which is 3 by the shape"},
    {half, ONE, ROWS("[1]"), X "FP16 has no JSON form: send it as binary data (binary_data_size)"},
    {NULL, NONE, ROWS("[1]"), "model \"m\" does not declare its inputs, which v1 needs" ELSE},
    {any_type, ONE, ROWS("[1]"),
     "model \"m\": input \"x\" takes any type, which `instances` do not give" ELSE},
    {scalar, ONE, ROWS("[1]"),
     "model \"m\": input \"x\" takes no rows, which `instances` do not give" ELSE},
};

TEST_CASE(test_cases)
{
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        const struct rows_case *one = &cases[i];
        const struct oip_model_info model = {
            .name = "m", .version = "1", .inputs = one->inputs, .input_count = one->count};
        rig->rows_of = &model;
        const char *got = json_rig_ask(rig, one->body, strlen(one->body), NULL, 0);
        rig->rows_of = NULL;
        if (strncmp(got, one->wanted, strlen(one->wanted)) != 0)
            fail_msg("%s: %s, not %s", one->body, got, one->wanted);
    }
}

/* Every piece of a good body is refused, and nothing past its end is read. */
TEST_CASE(test_cut)
{
    static const char body[] = ROWS("[{\"a\":[1,2],\"b\":\"x\\\"\"},{\"b\":\"y\",\"a\":[3,4]}]");
    const struct oip_model_info model = {
        .name = "m", .version = "1", .inputs = pair, .input_count = PAIR};
    rig->rows_of = &model;
    for (size_t i = 0; i < sizeof(body) - 1; i++) {
        (void)json_rig_ask(rig, body, i, NULL, 0);
        assert_int_equal(rig->error.status, STATUS_INVALID_ARGUMENT);
    }
    rig->rows_of = NULL;
}

TEST_CASE(test_binary)
{
    static const char body[] = ROWS("[[1,2]]");
    const struct oip_model_info model = {
        .name = "m", .version = "1", .inputs = matrix, .input_count = ONE};
    rig->rows_of = &model;
    assert_string_equal(json_rig_ask(rig, body, sizeof(body) - 1, "abc", 3),
                        "3 bytes after the JSON belong to no input");
    rig->rows_of = NULL;
}

TEST_CASE(test_too_large)
{
    struct bytes body = {0};
    bytes_put_text(&body, "{\"instances\":[0");
    while (body.used < RIG_MESSAGE_BYTES / 2 + 64)
        bytes_put_text(&body, ",0");
    bytes_put_text(&body, "]}");
    const struct oip_model_info model = {
        .name = "m", .version = "1", .inputs = vector, .input_count = ONE};
    rig->rows_of = &model;
    (void)json_rig_ask(rig, body.data, body.used, NULL, 0);
    assert_int_equal(rig->error.status, STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(rig->text, "message_mib"));
    rig->rows_of = NULL;
    bytes_fini(&body);
}

static void
put_output(struct bytes *out, const char *datatype, const int64_t *shape, uint32_t rank)
{
    struct bytes output = {0};
    struct bytes packed = {0};
    wire_append_run(&output, 1, "y", 1);
    wire_append_run(&output, 2, datatype, strlen(datatype));
    for (uint32_t i = 0; i < rank; i++)
        wire_append_varint(&packed, (uint64_t)shape[i]);
    wire_append_run(&output, 3, packed.data, packed.used);
    wire_append_run(out, 5, output.data, output.used);
    bytes_fini(&output);
    bytes_fini(&packed);
}

/* Shapes that a worker or runtime may claim, but their contents do not have. */
TEST_CASE(test_claimed_shapes)
{
    static const struct {
        const char *datatype;
        int64_t shape[3];
        size_t bytes;
        const char *wanted; /* NULL: INTERNAL */
    } claims[] = {
        {"INT8", {1, 2, 3}, 6, GOT("[[[0,0,0],[0,0,0]]]")},
        {"INT8", {2, 0, 7}, 0, GOT("[[],[]]")},
        {"INT8", {0, INT64_MAX, 7}, 0, GOT("[]")},
        {"INT8", {INT64_MAX, 0, 1}, 0, NULL},
        {"INT8", {INT64_MAX, INT64_MAX, 0}, 0, NULL},
        {"INT8", {1, -1, 1}, 1, NULL},
        {"INT8", {1, 2, 3}, 5, NULL},
        {"INT8", {1, 1, 1}, 2, NULL},
        {"BYTES", {1, 1, 2}, 8, GOT("[[[\"\",\"\"]]]")},
        {"BYTES", {1, 1, 3}, 8, NULL},
        {"WHAT", {1, 1, 1}, 1, NULL},
    };
    static const char zeros[16];
    const struct oip_model_info model = {
        .name = "m", .version = "1", .inputs = matrix, .input_count = ONE};
    static const char body[] = ROWS("[[1,2]]");
    const struct oip_json_ask ask = {
        "m", "", body, sizeof(body) - 1, sizeof(body) - 1, RIG_MESSAGE_BYTES, &model, NULL};
    struct error error = ERROR_NONE;
    struct oip_json *json;
    assert_int_equal(oip_json_read(&ask, &json, &error), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(claims); i++) {
        struct bytes out = {0};
        struct oip_json_answer answer = {0};
        put_output(&out, claims[i].datatype, claims[i].shape, 3);
        wire_append_run(&out, 6, zeros, claims[i].bytes);
        const struct wire_span span = {out.data, out.used};
        const struct wire_message response = {&span, 1, out.used};
        enum status status = oip_json_write(json, &response, &answer, &error);
        assert_int_equal(status, claims[i].wanted == NULL ? STATUS_INTERNAL : STATUS_OK);
        bytes_put_char(&answer.text, '\0');
        if (claims[i].wanted != NULL)
            assert_string_equal(answer.text.data, claims[i].wanted);
        oip_json_answer_fini(&answer);
        bytes_fini(&out);
        error_clear(&error);
    }
    oip_json_destroy(json);
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
