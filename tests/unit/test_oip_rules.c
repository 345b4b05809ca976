/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every rule that a ModelInferRequest can break, each with a request that breaks this rule alone
 * and the words that the caller gets; beside each limit, the request that just keeps to it.
 * Requests are written by hand, byte by byte where a library would refuse to write them.
 */
#include "test_oip_rig.h"

/* Bytes with their number, from a literal. */
struct literal {
    const char *bytes;
    size_t count;
};

#define BYTES(text)                                                                                \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

struct test_input {
    const char *name;
    const char *datatype;
    size_t rank;
    int64_t shape[10];
    struct literal contents; /* an InferTensorContents */
};

struct rule_case {
    const char *rule;
    const char *text; /* of the error, or NULL: the request is fine */
    struct test_input inputs[3];
    size_t raw_count;
    struct literal raw[3];
    const char *outputs[3];
};

static void
put_input(struct blob *request, const struct test_input *input)
{
    struct blob inner = {0};
    blob_field_text(&inner, 1, input->name);
    blob_field_text(&inner, 2, input->datatype);
    for (size_t i = 0; i < input->rank; i++)
        blob_field_varint(&inner, 3, (uint64_t)input->shape[i]);
    if (input->contents.bytes != NULL)
        blob_field_bytes(&inner, 5, input->contents.bytes, input->contents.count);
    blob_field_blob(request, 5, &inner);
}

static void
put_output(struct blob *request, const char *name)
{
    struct blob inner = {0};
    blob_field_text(&inner, 1, name);
    blob_field_blob(request, 6, &inner);
}

static struct blob
case_request(const struct rule_case *rule)
{
    struct blob request = {0};
    blob_field_text(&request, 1, "m");
    for (size_t i = 0; i < ARRAY_COUNT(rule->inputs) && rule->inputs[i].name != NULL; i++)
        put_input(&request, &rule->inputs[i]);
    for (size_t i = 0; i < ARRAY_COUNT(rule->outputs) && rule->outputs[i] != NULL; i++)
        put_output(&request, rule->outputs[i]);
    for (size_t i = 0; i < rule->raw_count; i++)
        blob_field_bytes(&request, 7, rule->raw[i].bytes, rule->raw[i].count);
    return request;
}

#define MALFORMED "request is not a valid ModelInferRequest: "
#define RAW(...)                                                                                   \
    ARRAY_COUNT(((struct literal[]){__VA_ARGS__})),                                                \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static const struct rule_case cases[] = {
    /* names */
    {"no inputs", NULL, {{0}}, 0, {{0}}, {NULL}},
    {"empty name",
     "input 1: the name is empty",
     {{"x", "INT8", 1, {0}, {0}}, {"", "INT8", 1, {0}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"duplicate",
     "tensor \"x\": given more than once",
     {{"x", "INT8", 1, {0}, {0}}, {"x", "FP32", 1, {0}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"empty output name", "requested output 0: the name is empty", {{0}}, 0, {{0}}, {""}},
    {"duplicate output",
     "requested output \"y\": asked for more than once",
     {{0}},
     0,
     {{0}},
     {"z", "y", "y"}},
    {"not UTF-8",
     MALFORMED "inputs: name is not UTF-8, or has a zero byte in it",
     {{"\xc0\x80", "INT8", 1, {0}, {0}}},
     0,
     {{0}},
     {NULL}},

    /* datatypes and shapes */
    {"unknown datatype",
     "tensor \"x\": unknown datatype \"FP33\"",
     {{"x", "FP33", 1, {0}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"datatype in another case",
     "tensor \"x\": unknown datatype \"fp32\"",
     {{"x", "fp32", 1, {0}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"no datatype",
     "tensor \"x\": unknown datatype \"\"",
     {{"x", "", 1, {0}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"negative dimension",
     "tensor \"x\": dimension 1 is negative: -2",
     {{"x", "INT8", 2, {1, -2}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"overflow",
     "tensor \"x\": the product of the dimensions overflows",
     {{"x", "INT8", 2, {INT64_MAX, 3}, {0}}},
     RAW(BYTES("")),
     {NULL}},
    {"more than a size can be",
     "tensor \"x\": the product of the dimensions overflows",
     {{"x", "INT8", 2, {INT64_MAX, 2}, {0}}},
     RAW(BYTES("")),
     {NULL}},
    {"overflow by the element",
     "tensor \"x\": the product of the dimensions overflows",
     {{"x", "FP64", 2, {INT64_MAX / 2, 2}, {0}}},
     RAW(BYTES("")),
     {NULL}},
    {"overflow before a zero",
     "tensor \"x\": the product of the dimensions overflows",
     {{"x", "INT8", 3, {INT64_MAX, 4, 0}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"rank 8", NULL, {{"x", "INT8", 8, {1, 1, 1, 1, 1, 1, 1, 1}, {0}}}, RAW(BYTES("a")), {NULL}},
    {"rank 9",
     "tensor \"x\": 9 dimensions, at most 8 are taken",
     {{"x", "INT8", 9, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {0}}},
     RAW(BYTES("a")),
     {NULL}},

    /* raw contents */
    {"raw",
     NULL,
     {{"x", "FP16", 1, {2}, {0}}, {"y", "BF16", 1, {1}, {0}}},
     RAW(BYTES("abcd"), BYTES("ef")),
     {NULL}},
    {"raw scalar", NULL, {{"x", "INT32", 0, {0}, {0}}}, RAW(BYTES("abcd")), {NULL}},
    {"raw too short",
     "tensor \"x\": raw contents have 7 bytes, FP32 and the shape want 8",
     {{"x", "FP32", 1, {2}, {0}}},
     RAW(BYTES("abcdefg")),
     {NULL}},
    {"raw too long",
     "tensor \"x\": raw contents have 9 bytes, FP32 and the shape want 8",
     {{"x", "FP32", 1, {2}, {0}}},
     RAW(BYTES("abcdefghi")),
     {NULL}},
    {"too few raw",
     "raw_input_contents: 1 for 2 inputs, one for each is required",
     {{"x", "INT8", 1, {1}, {0}}, {"y", "INT8", 1, {1}, {0}}},
     RAW(BYTES("a")),
     {NULL}},
    {"too many raw",
     "raw_input_contents: 2 for 1 inputs, one for each is required",
     {{"x", "INT8", 1, {1}, {0}}},
     RAW(BYTES("a"), BYTES("b")),
     {NULL}},
    {"raw and typed",
     "tensor \"y\": has contents, and there are raw_input_contents too: one or the other",
     {{"x", "INT8", 1, {1}, {0}}, {"y", "INT8", 1, {1}, BYTES("\x12\x01\x05")}},
     RAW(BYTES("a"), BYTES("b")),
     {NULL}},
    {"raw and empty contents", NULL, {{"x", "INT8", 1, {1}, BYTES("")}}, RAW(BYTES("a")), {NULL}},
    {"raw BYTES", NULL, {{"x", "BYTES", 1, {2}, {0}}}, RAW(BYTES("\x02\0\0\0ab\0\0\0\0")), {NULL}},
    {"raw BYTES scalar", NULL, {{"x", "BYTES", 0, {0}, {0}}}, RAW(BYTES("\x01\0\0\0a")), {NULL}},
    {"raw BYTES, none", NULL, {{"x", "BYTES", 2, {0, 5}, {0}}}, RAW(BYTES("")), {NULL}},
    {"raw BYTES, half a length",
     "tensor \"x\": raw contents end within the length of element 1",
     {{"x", "BYTES", 1, {2}, {0}}},
     RAW(BYTES("\x01\0\0\0a\0\0\0")),
     {NULL}},
    {"raw BYTES, too long an element",
     "tensor \"x\": element 1 has 3 bytes, its raw contents only 2 more",
     {{"x", "BYTES", 1, {2}, {0}}},
     RAW(BYTES("\x01\0\0\0a\x03\0\0\0bc")),
     {NULL}},
    {"raw BYTES, a huge element",
     "tensor \"x\": element 0 has 4294967295 bytes, its raw contents only 1 more",
     {{"x", "BYTES", 1, {1}, {0}}},
     RAW(BYTES("\xff\xff\xff\xff"
               "a")),
     {NULL}},
    {"raw BYTES, one too many",
     "tensor \"x\": raw contents have 2 elements, the shape 1",
     {{"x", "BYTES", 1, {1}, {0}}},
     RAW(BYTES("\0\0\0\0\0\0\0\0")),
     {NULL}},
    {"raw BYTES, one too few",
     "tensor \"x\": raw contents have 1 elements, the shape 2",
     {{"x", "BYTES", 1, {2}, {0}}},
     RAW(BYTES("\0\0\0\0")),
     {NULL}},

    /* typed contents: 1 bool, 2 int, 3 int64, 4 uint, 5 uint64, 6 fp32, 7 fp64, 8 bytes */
    {"typed", NULL, {{"x", "INT8", 1, {2}, BYTES("\x12\x02\x01\x02")}}, 0, {{0}}, {NULL}},
    {"typed, not packed",
     NULL,
     {{"x", "INT8", 1, {2}, BYTES("\x10\x01\x10\x02")}},
     0,
     {{0}},
     {NULL}},
    {"typed scalar", NULL, {{"x", "BOOL", 0, {0}, BYTES("\x0a\x01\x01")}}, 0, {{0}}, {NULL}},
    {"typed, too few",
     "tensor \"x\": contents have 1 elements, the shape 2",
     {{"x", "INT8", 1, {2}, BYTES("\x12\x01\x01")}},
     0,
     {{0}},
     {NULL}},
    {"typed, none",
     "tensor \"x\": contents have 0 elements, the shape 2",
     {{"x", "INT8", 1, {2}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"typed, too many",
     "tensor \"x\": contents have 2 elements, the shape 1",
     {{"x", "INT8", 1, {1}, BYTES("\x12\x02\x01\x02")}},
     0,
     {{0}},
     {NULL}},
    {"typed, wrong member",
     "tensor \"x\": FP32 belongs in fp32_contents, not in int_contents",
     {{"x", "FP32", 1, {1}, BYTES("\x12\x01\x01")}},
     0,
     {{0}},
     {NULL}},
    {"typed, wrong width",
     "tensor \"x\": INT64 belongs in int64_contents, not in int_contents",
     {{"x", "INT64", 1, {1}, BYTES("\x12\x01\x01")}},
     0,
     {{0}},
     {NULL}},
    {"typed, wrong sign",
     "tensor \"x\": UINT8 belongs in uint_contents, not in int_contents",
     {{"x", "UINT8", 1, {1}, BYTES("\x12\x01\x01")}},
     0,
     {{0}},
     {NULL}},
    {"typed, two members",
     "tensor \"x\": both int_contents and uint_contents are filled",
     {{"x", "INT8", 1, {1}, BYTES("\x12\x01\x01\x22\x01\x01")}},
     0,
     {{0}},
     {NULL}},
    {"typed, the other member empty",
     NULL,
     {{"x", "INT8", 1, {1}, BYTES("\x12\x01\x01\x22\x00")}},
     0,
     {{0}},
     {NULL}},
    {"typed, contents twice", MALFORMED "inputs: contents is given twice", {{0}}, 0, {{0}}, {NULL}},
    {"FP16 typed",
     "tensor \"x\": FP16 travels in raw_input_contents only",
     {{"x", "FP16", 1, {1}, BYTES("\x32\x04\0\0\0\0")}},
     0,
     {{0}},
     {NULL}},
    {"BF16 without contents",
     "tensor \"x\": BF16 travels in raw_input_contents only",
     {{"x", "BF16", 1, {1}, {0}}},
     0,
     {{0}},
     {NULL}},
    {"FP16 of no elements", NULL, {{"x", "FP16", 1, {0}, {0}}}, 0, {{0}}, {NULL}},
    {"INT8 range",
     "tensor \"x\": int_contents: element 1, 128, is out of INT8's range",
     {{"x", "INT8", 1, {2}, BYTES("\x12\x03\x7f\x80\x01")}},
     0,
     {{0}},
     {NULL}},
    {"INT8 range below",
     "tensor \"x\": int_contents: element 0, -129, is out of INT8's range",
     {{"x", "INT8", 1, {1}, BYTES("\x10\xff\xfe\xff\xff\xff\xff\xff\xff\xff\x01")}},
     0,
     {{0}},
     {NULL}},
    {"INT16 range",
     "tensor \"x\": int_contents: element 0, 32768, is out of INT16's range",
     {{"x", "INT16", 1, {1}, BYTES("\x12\x03\x80\x80\x02")}},
     0,
     {{0}},
     {NULL}},
    {"UINT8 range",
     "tensor \"x\": uint_contents: element 0, 256, is out of UINT8's range",
     {{"x", "UINT8", 1, {1}, BYTES("\x22\x02\x80\x02")}},
     0,
     {{0}},
     {NULL}},
    {"UINT16 range",
     "tensor \"x\": uint_contents: element 0, 65536, is out of UINT16's range",
     {{"x", "UINT16", 1, {1}, BYTES("\x22\x03\x80\x80\x04")}},
     0,
     {{0}},
     {NULL}},
    {"fp32 cut",
     "tensor \"x\": fp32_contents: 5 bytes are no whole number of FP32",
     {{"x", "FP32", 1, {1}, BYTES("\x32\x05\0\0\0\0\0")}},
     0,
     {{0}},
     {NULL}},
    {"fp64 cut",
     "tensor \"x\": fp64_contents: 4 bytes are no whole number of FP64",
     {{"x", "FP64", 1, {1}, BYTES("\x3a\x04\0\0\0\0")}},
     0,
     {{0}},
     {NULL}},
    {"a varint cut",
     "tensor \"x\": int_contents: malformed, or cut short",
     {{"x", "INT8", 1, {1}, BYTES("\x12\x01\x80")}},
     0,
     {{0}},
     {NULL}},
    {"a varint of 11 bytes",
     "tensor \"x\": int64_contents: malformed, or cut short",
     {{"x", "INT64", 1, {1}, BYTES("\x1a\x0b\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01")}},
     0,
     {{0}},
     {NULL}},
    {"contents cut",
     "tensor \"x\": contents are malformed, or cut short",
     {{"x", "INT8", 1, {1}, BYTES("\x12\x02\x01")}},
     0,
     {{0}},
     {NULL}},
    {"wire type of a member",
     "tensor \"x\": fp32_contents: wire type 0",
     {{"x", "FP32", 1, {1}, BYTES("\x30\x01")}},
     0,
     {{0}},
     {NULL}},
    {"unknown member",
     NULL,
     {{"x", "INT8", 1, {1}, BYTES("\x7a\x01z\x12\x01\x01")}},
     0,
     {{0}},
     {NULL}},
    {"BYTES typed",
     NULL,
     {{"x",
       "BYTES",
       1,
       {2},
       BYTES("\x42\x01"
             "a\x42\x00")}},
     0,
     {{0}},
     {NULL}},
    {"BYTES typed, too few",
     "tensor \"x\": contents have 1 elements, the shape 2",
     {{"x",
       "BYTES",
       1,
       {2},
       BYTES("\x42\x01"
             "a")}},
     0,
     {{0}},
     {NULL}},
};

static void
assert_decodes(const struct blob *request, const char *rule, const char *text)
{
    struct oip_request *decoder = oip_request_create();
    struct spans spans = spans_whole(request);
    struct error error = ERROR_NONE;
    enum status status = oip_decode(decoder, &spans.message, &error);
    if (text == NULL && status != STATUS_OK)
        fail_msg("%s: %s", rule, error.text);
    if (text != NULL && (status != STATUS_INVALID_ARGUMENT || strcmp(error.text, text) != 0))
        fail_msg("%s: %s \"%s\", not \"%s\"", rule, status_name(status), error.text, text);
    spans_free(&spans);
    oip_request_destroy(decoder);
}

TEST_CASE(test_rules)
{
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct blob request = case_request(&cases[i]);
        if (strcmp(cases[i].rule, "typed, contents twice") == 0) {
            static const unsigned char contents[] = {0x2a, 3, 0x12, 1, 1, 0x2a, 3, 0x12, 1, 1};
            blob_field_bytes(&request, 5, contents, sizeof(contents));
        }
        assert_decodes(&request, cases[i].rule, cases[i].text);
        blob_free(&request);
    }
}

/* ---- limits: what just fits, and one more ---- */

static void
put_inputs(struct blob *request, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%u", i);
        put_input(request, &(struct test_input){name, "INT8", 1, {0}, {0}});
    }
}

static void
put_outputs(struct blob *request, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "t%u", i);
        put_output(request, name);
    }
}

static void
put_raws(struct blob *request, unsigned count)
{
    put_inputs(request, 64);
    for (unsigned i = 0; i < count; i++)
        blob_field_bytes(request, 7, "", 0);
}

static void
put_parameter(struct blob *request, const char *key, uint32_t field, uint64_t value)
{
    struct blob entry = {0};
    struct blob inner = {0};
    blob_field_text(&entry, 1, key);
    blob_field_varint(&inner, field, value);
    blob_field_blob(&entry, 2, &inner);
    blob_field_blob(request, 4, &entry);
}

static void
put_parameters(struct blob *request, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char key[16];
        snprintf(key, sizeof(key), "k%u", i);
        put_parameter(request, key, 2, i);
    }
}

static void
put_named_input(struct blob *request, unsigned bytes)
{
    char name[256] = {0};
    memset(name, 'n', bytes);
    put_input(request, &(struct test_input){name, "INT8", 1, {0}, {0}});
}

static void
put_named_output(struct blob *request, unsigned bytes)
{
    char name[256] = {0};
    memset(name, 'n', bytes);
    put_output(request, name);
}

static void
put_named_parameter(struct blob *request, unsigned bytes)
{
    char name[256] = {0};
    memset(name, 'n', bytes);
    put_parameter(request, name, 1, 1);
}

/* The id and its own four bytes of tag and length, the request's model name and version before it.
 */
static void
put_id(struct blob *request, unsigned bytes)
{
    char *id = malloc(bytes);
    CHECK(id != NULL);
    memset(id, 'i', bytes);
    blob_field_bytes(request, 3, id, bytes);
    free(id);
}

static void
put_unknown(struct blob *request, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        blob_field_varint(request, 99, i);
}

TEST_CASE(test_limits)
{
    static const struct {
        void (*put)(struct blob *request, unsigned count);
        unsigned most;
        const char *text; /* for one more */
    } limits[] = {
        {put_inputs, 64, MALFORMED "more than 64 inputs"},
        {put_outputs, 64, MALFORMED "more than 64 outputs"},
        {put_raws, 64, MALFORMED "more than 64 raw_input_contents"},
        {put_parameters, 32, MALFORMED "more than 32 parameters"},
        {put_named_input, 127, "input 0: a name has at most 127 bytes, not 128"},
        {put_named_output, 127, "requested output 0: a name has at most 127 bytes, not 128"},
        {put_named_parameter, 127, "parameter 0: a name has at most 127 bytes, not 128"},
        /* 20 are asked for per field, for its tag and length. */
        {put_id, OIP_SMALL_BYTES_MAX - 3 - 20,
         MALFORMED "names, shapes, id and parameters take more than 65536 bytes"},
        /* The model's name is one, too. */
        {put_unknown, OIP_FIELDS_MAX - 1, MALFORMED "more than 16384 fields"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(limits); i++) {
        for (unsigned more = 0; more < 2; more++) {
            struct blob request = {0};
            blob_field_text(&request, 1, "m");
            limits[i].put(&request, limits[i].most + more);
            assert_decodes(&request, limits[i].text, more == 0 ? NULL : limits[i].text);
            blob_free(&request);
        }
    }
}

/* ---- what no library would write ---- */

TEST_CASE(test_malformed)
{
    static const struct {
        const char *rule;
        const char *text;
        struct literal request;
    } malformed[] = {
        {"nothing", NULL, BYTES("")}, /* metadata may name the model: target.h */
        {"a tag of field 0", MALFORMED "malformed, or cut short", BYTES("\x02\x00")},
        {"a group", MALFORMED "malformed, or cut short", BYTES("\x0b\x0c")},
        {"wire type 7", MALFORMED "malformed, or cut short", BYTES("\x0f\x00")},
        {"a tag of 64 bits", MALFORMED "malformed, or cut short",
         BYTES("\xfa\xff\xff\xff\xff\x01\x00")},
        {"a length beyond the end", MALFORMED "malformed, or cut short", BYTES("\x0a\x02m")},
        {"a length of 64 bits", MALFORMED "malformed, or cut short",
         BYTES("\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01m")},
        {"an input's length beyond the end", MALFORMED "malformed, or cut short",
         BYTES("\x0a\x01m\x2a\x05\x0a\x01x")},
        {"a name beyond its input", MALFORMED "inputs: malformed, or cut short",
         BYTES("\x0a\x01m\x2a\x03\x0a\x02x\x12\x04INT8")},
        {"a number as a name", MALFORMED "model_name has wire type 0", BYTES("\x08\x01")},
        {"a number as an input", MALFORMED "inputs has wire type 0", BYTES("\x28\x01")},
        {"a number as raw contents", MALFORMED "raw_input_contents has wire type 5",
         BYTES("\x3d\x01\x00\x00\x00")},
        {"a packed shape cut short", MALFORMED "inputs: shape is malformed, or cut short",
         BYTES("\x0a\x01m\x2a\x06\x0a\x01x\x1a\x01\x80")},
        {"a zero byte in the model's name",
         MALFORMED "model_name is not UTF-8, or has a zero byte in it", BYTES("\x0a\x03m\0m")},
        {"a zero byte in a parameter",
         MALFORMED "parameters: value: string_param is not UTF-8, or has a zero byte in it",
         BYTES("\x0a\x01m\x22\x09\x0a\x01k\x12\x04\x1a\x02v\0")},
        {"a surrogate in the id", MALFORMED "id is not UTF-8, or has a zero byte in it",
         BYTES("\x0a\x01m\x1a\x03\xed\xa0\x80")},
        {"three bytes for what fits two", MALFORMED "id is not UTF-8, or has a zero byte in it",
         BYTES("\x0a\x01m\x1a\x03\xe0\x9f\xbf")},
        {"four bytes for what fits three", MALFORMED "id is not UTF-8, or has a zero byte in it",
         BYTES("\x0a\x01m\x1a\x04\xf0\x8f\xbf\xbf")},
        {"beyond Unicode", MALFORMED "id is not UTF-8, or has a zero byte in it",
         BYTES("\x0a\x01m\x1a\x04\xf4\x90\x80\x80")},
        {"a character cut short", MALFORMED "id is not UTF-8, or has a zero byte in it",
         BYTES("\x0a\x01m\x1a\x02\xe2\x82")},
        {"characters of all lengths", NULL,
         BYTES("\x0a\x01m\x1a\x0a"
               "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x9f")},
        {"a parameter without a value", "parameter \"k\": has no value",
         BYTES("\x0a\x01m\x22\x03\x0a\x01k")},
        {"a parameter with an empty value", "parameter \"k\": has no value",
         BYTES("\x0a\x01m\x22\x05\x0a\x01k\x12\x00")},
        {"a parameter without a name", "parameter 0: the name is empty",
         BYTES("\x0a\x01m\x22\x04\x12\x02\x08\x01")},
    };
    for (size_t i = 0; i < ARRAY_COUNT(malformed); i++) {
        struct blob request = {0};
        blob_put(&request, malformed[i].request.bytes, malformed[i].request.count);
        assert_decodes(&request, malformed[i].rule, malformed[i].text);
        blob_free(&request);
    }
}

/* A datatype is spelled in one way, both ways. */
TEST_CASE(test_datatype_names)
{
    static const char *const names[] = {"BOOL", "UINT8", "UINT16", "UINT32", "UINT64",
                                        "INT8", "INT16", "INT32",  "INT64",  "FP16",
                                        "FP32", "FP64",  "BYTES",  "BF16"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        uint64_t scalar_bytes = shoal_datatype_bytes((uint32_t)i + 1);
        struct rule_case rule = {
            .inputs = {{names[i], names[i], 0, {0}, {0}}},
            .raw_count = 1,
            .raw = {{"\0\0\0\0\0\0\0\0", scalar_bytes > 0 ? scalar_bytes : 4}}};
        struct blob request = case_request(&rule);
        assert_decodes(&request, names[i], NULL);
        blob_free(&request);
    }
}

TEST_MAIN()
