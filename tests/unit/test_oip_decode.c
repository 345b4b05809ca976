/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests written by protobuf-c arrive in the payload as they were meant: every datatype, typed
 * and raw, and the parameters. The same message cut at every byte, and at random ones, gives the
 * same payload; cut short or with changed bytes it gives an error or a payload, and nothing else
 * (the sanitizers watch; the seed is printed). In the steady state nothing is allocated.
 */
#include "wire/field_path.h"
#include "test_oip_rig.h"

static struct payload_rig *rig;

/* ---- requests, by protobuf-c ---- */

enum { INPUTS = 4 };

struct typed_request {
    Inference__ModelInferRequest message;
    Inference__ModelInferRequest__InferInputTensor inputs[INPUTS];
    Inference__ModelInferRequest__InferInputTensor *input_list[INPUTS];
    Inference__InferTensorContents contents[INPUTS];
};

static void
typed_init(struct typed_request *request, size_t input_count)
{
    inference__model_infer_request__init(&request->message);
    request->message.model_name = oip_loose("digits");
    request->message.inputs = request->input_list;
    request->message.n_inputs = input_count;
    for (size_t i = 0; i < INPUTS; i++) {
        inference__model_infer_request__infer_input_tensor__init(&request->inputs[i]);
        inference__infer_tensor_contents__init(&request->contents[i]);
        request->input_list[i] = &request->inputs[i];
    }
}

static void
typed_input(struct typed_request *request, size_t index, const char *name, const char *datatype,
            size_t rank, int64_t *shape)
{
    Inference__ModelInferRequest__InferInputTensor *input = &request->inputs[index];
    input->name = oip_loose(name);
    input->datatype = oip_loose(datatype);
    input->n_shape = rank;
    input->shape = shape;
}

static struct blob
pack(const Inference__ModelInferRequest *message)
{
    struct blob blob = {0};
    blob.used = blob.capacity = inference__model_infer_request__get_packed_size(message);
    blob.bytes = malloc(blob.used + 1);
    CHECK(blob.bytes != NULL);
    inference__model_infer_request__pack(message, blob.bytes);
    return blob;
}

/* A small request of all kinds: a parameter of each type, requested outputs, an id, tensors. */
static struct blob
mixed_request(bool raw)
{
    struct typed_request request;
    typed_init(&request, 3);
    request.message.model_version = oip_loose("1");
    request.message.id = oip_loose("request-\xe2\x82\xac");
    int64_t matrix[] = {2, 2};
    int64_t pair[] = {2};
    typed_input(&request, 0, "pixels", "FP32", 2, matrix);
    typed_input(&request, 1, "count", "INT16", 0, NULL);
    typed_input(&request, 2, "words", "BYTES", 1, pair);
    float floats[] = {1.5f, -2.0f, 0.0f, 3e30f};
    int32_t integers[] = {-300};
    ProtobufCBinaryData words[] = {{3, oip_loose("one")}, {0, NULL}};
    ProtobufCBinaryData raws[] = {{sizeof(floats), (uint8_t *)floats},
                                  {2, oip_loose("\xd4\xfe")},
                                  {11, oip_loose("\x03\0\0\0one\0\0\0")}};
    if (raw) {
        request.message.n_raw_input_contents = 3;
        request.message.raw_input_contents = raws;
    } else {
        for (size_t i = 0; i < 3; i++)
            request.inputs[i].contents = &request.contents[i];
        request.contents[0].n_fp32_contents = 4;
        request.contents[0].fp32_contents = floats;
        request.contents[1].n_int_contents = 1;
        request.contents[1].int_contents = integers;
        request.contents[2].n_bytes_contents = 2;
        request.contents[2].bytes_contents = words;
    }
    Inference__InferParameter values[5];
    Inference__ModelInferRequest__ParametersEntry entries[5];
    Inference__ModelInferRequest__ParametersEntry *entry_list[5];
    static const char *const keys[] = {"bool", "int64", "string", "double", "uint64"};
    for (size_t i = 0; i < 5; i++) {
        inference__infer_parameter__init(&values[i]);
        inference__model_infer_request__parameters_entry__init(&entries[i]);
        values[i].parameter_choice_case = (Inference__InferParameter__ParameterChoiceCase)(i + 1);
        entries[i].key = oip_loose(keys[i]);
        entries[i].value = &values[i];
        entry_list[i] = &entries[i];
    }
    values[0].bool_param = true;
    values[1].int64_param = INT64_MIN;
    values[2].string_param = oip_loose("text");
    values[3].double_param = -0.5;
    values[4].uint64_param = UINT64_MAX;
    request.message.n_parameters = 5;
    request.message.parameters = entry_list;
    Inference__ModelInferRequest__InferRequestedOutputTensor output =
        INFERENCE__MODEL_INFER_REQUEST__INFER_REQUESTED_OUTPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferRequestedOutputTensor *output_list[] = {&output};
    output.name = oip_loose("label");
    request.message.n_outputs = 1;
    request.message.outputs = output_list;
    return pack(&request.message);
}

/* ---- what arrives ---- */

static void
assert_tensor(uint32_t index, const char *name, uint32_t datatype, uint32_t rank, const void *data,
              size_t bytes)
{
    const struct shoal_tensor *tensor = &rig->view.tensors[index];
    assert_string_equal(tensor->name, name);
    assert_int_equal(tensor->datatype, datatype);
    assert_int_equal(tensor->rank, rank);
    assert_int_equal(tensor->bytes, bytes);
    assert_memory_equal(tensor->data, data, bytes);
    assert_int_equal((uintptr_t)tensor->data % PAYLOAD_ALIGNMENT, 0);
}

static void
assert_parameters(void)
{
    struct shoal_parameter value;
    assert_int_equal(payload_parameter_find(&rig->view, "bool", &value), 1);
    assert_true(value.type == SHOAL_PARAMETER_BOOL && value.value.int64 == 1);
    assert_int_equal(payload_parameter_find(&rig->view, "int64", &value), 1);
    assert_true(value.type == SHOAL_PARAMETER_INT64 && value.value.int64 == INT64_MIN);
    assert_int_equal(payload_parameter_find(&rig->view, "string", &value), 1);
    assert_true(value.type == SHOAL_PARAMETER_STRING && value.string_bytes == 4);
    assert_string_equal(value.string, "text");
    assert_int_equal(payload_parameter_find(&rig->view, "double", &value), 1);
    assert_true(value.type == SHOAL_PARAMETER_DOUBLE && value.value.float64 == -0.5);
    assert_int_equal(payload_parameter_find(&rig->view, "uint64", &value), 1);
    assert_true(value.type == SHOAL_PARAMETER_UINT64 && value.value.uint64 == UINT64_MAX);
}

TEST_CASE(test_mixed)
{
    struct oip_request *request = oip_request_create();
    for (int raw = 0; raw < 2; raw++) {
        struct blob blob = mixed_request(raw != 0);
        struct spans spans = spans_whole(&blob);
        struct error error = ERROR_NONE;
        if (payload_rig_decode(rig, request, &spans.message, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        assert_string_equal(request->message->model_name, "digits");
        assert_string_equal(request->message->model_version, "1");
        assert_int_equal(oip_tensor_bytes(request), 3 * PAYLOAD_ALIGNMENT);
        assert_int_equal(rig->view.tensor_count, 3);
        static const float floats[] = {1.5f, -2.0f, 0.0f, 3e30f};
        assert_tensor(0, "pixels", SHOAL_FP32, 2, floats, sizeof(floats));
        assert_int_equal(rig->view.tensors[0].shape[0], 2);
        assert_int_equal(rig->view.tensors[0].shape[1], 2);
        assert_tensor(1, "count", SHOAL_INT16, 0, "\xd4\xfe", 2);
        assert_tensor(2, "words", SHOAL_BYTES, 1, "\x03\0\0\0one\0\0\0\0", 11);
        assert_parameters();
        payload_rig_end(rig);
        spans_free(&spans);
        blob_free(&blob);
    }
    oip_request_destroy(request);
}

/* Sends `elements` as typed contents and looks for `raw` in the arena. */
static void
assert_typed(const char *datatype, uint32_t number, void (*fill)(Inference__InferTensorContents *),
             const void *raw, size_t raw_bytes)
{
    struct oip_request *request = oip_request_create();
    struct typed_request typed;
    int64_t shape[] = {3};
    typed_init(&typed, 1);
    typed_input(&typed, 0, "x", datatype, 1, shape);
    typed.inputs[0].contents = &typed.contents[0];
    fill(&typed.contents[0]);
    struct blob blob = pack(&typed.message);
    struct spans spans = spans_whole(&blob);
    struct error error = ERROR_NONE;
    if (payload_rig_decode(rig, request, &spans.message, &error) != STATUS_OK)
        fail_msg("%s: %s", datatype, error.text);
    assert_tensor(0, "x", number, 1, raw, raw_bytes);
    payload_rig_end(rig);
    spans_free(&spans);
    blob_free(&blob);
    oip_request_destroy(request);
}

#define FILL(function, member, type, ...)                                                          \
    static void function(Inference__InferTensorContents *contents)                                 \
    {                                                                                              \
        static type elements[] = {__VA_ARGS__};                                                    \
        contents->n_##member = 3;                                                                  \
        contents->member = elements;                                                               \
    }

FILL(fill_bool, bool_contents, protobuf_c_boolean, 1, 0, 1)
FILL(fill_int8, int_contents, int32_t, INT8_MIN, -1, INT8_MAX)
FILL(fill_int16, int_contents, int32_t, INT16_MIN, -1, INT16_MAX)
FILL(fill_int32, int_contents, int32_t, INT32_MIN, -1, INT32_MAX)
FILL(fill_int64, int64_contents, int64_t, INT64_MIN, -1, INT64_MAX)
FILL(fill_uint8, uint_contents, uint32_t, 0, 128, UINT8_MAX)
FILL(fill_uint16, uint_contents, uint32_t, 0, 128, UINT16_MAX)
FILL(fill_uint32, uint_contents, uint32_t, 0, 128, UINT32_MAX)
FILL(fill_uint64, uint64_contents, uint64_t, 0, 128, UINT64_MAX)
FILL(fill_fp32, fp32_contents, float, 1.0f, -2.5f, 1e-40f)
FILL(fill_fp64, fp64_contents, double, 1.0, -2.5, 1e300)

TEST_CASE(test_typed)
{
    static const uint8_t bools[] = {1, 0, 1};
    static const int8_t int8s[] = {INT8_MIN, -1, INT8_MAX};
    static const int16_t int16s[] = {INT16_MIN, -1, INT16_MAX};
    static const int32_t int32s[] = {INT32_MIN, -1, INT32_MAX};
    static const int64_t int64s[] = {INT64_MIN, -1, INT64_MAX};
    static const uint8_t uint8s[] = {0, 128, UINT8_MAX};
    static const uint16_t uint16s[] = {0, 128, UINT16_MAX};
    static const uint32_t uint32s[] = {0, 128, UINT32_MAX};
    static const uint64_t uint64s[] = {0, 128, UINT64_MAX};
    static const float fp32s[] = {1.0f, -2.5f, 1e-40f};
    static const double fp64s[] = {1.0, -2.5, 1e300};
    assert_typed("BOOL", SHOAL_BOOL, fill_bool, bools, sizeof(bools));
    assert_typed("INT8", SHOAL_INT8, fill_int8, int8s, sizeof(int8s));
    assert_typed("INT16", SHOAL_INT16, fill_int16, int16s, sizeof(int16s));
    assert_typed("INT32", SHOAL_INT32, fill_int32, int32s, sizeof(int32s));
    assert_typed("INT64", SHOAL_INT64, fill_int64, int64s, sizeof(int64s));
    assert_typed("UINT8", SHOAL_UINT8, fill_uint8, uint8s, sizeof(uint8s));
    assert_typed("UINT16", SHOAL_UINT16, fill_uint16, uint16s, sizeof(uint16s));
    assert_typed("UINT32", SHOAL_UINT32, fill_uint32, uint32s, sizeof(uint32s));
    assert_typed("UINT64", SHOAL_UINT64, fill_uint64, uint64s, sizeof(uint64s));
    assert_typed("FP32", SHOAL_FP32, fill_fp32, fp32s, sizeof(fp32s));
    assert_typed("FP64", SHOAL_FP64, fill_fp64, fp64s, sizeof(fp64s));
}

/* An element by itself, several packed runs, and both in one: all are lists of one kind. */
TEST_CASE(test_packed_in_parts)
{
    static const unsigned char contents[] = {0x32, 4, 0, 0, 0x80, 0x3f, /* packed: 1.0 */
                                             0x35, 0, 0, 0, 0x40,       /* alone: 2.0 */
                                             0x32, 8, 0, 0, 0x40, 0x40, 0, 0, 0x80, 0x40};
    struct blob blob = {0};
    struct blob input = {0};
    blob_field_text(&blob, 1, "m");
    blob_field_text(&input, 1, "x");
    blob_field_text(&input, 2, "FP32");
    blob_field_bytes(&input, 3, "\x02\x02", 2); /* the shape packed, as libraries do it */
    blob_field_bytes(&input, 5, contents, sizeof(contents));
    blob_field_blob(&blob, 5, &input);
    static const float floats[] = {1.0f, 2.0f, 3.0f, 4.0f};
    struct oip_request *request = oip_request_create();
    for (size_t at = 1; at <= blob.used; at++) {
        struct spans spans = spans_cut(blob.bytes, blob.used, at);
        struct error error = ERROR_NONE;
        if (payload_rig_decode(rig, request, &spans.message, &error) != STATUS_OK)
            fail_msg("%s", error.text);
        assert_tensor(0, "x", SHOAL_FP32, 2, floats, sizeof(floats));
        payload_rig_end(rig);
        spans_free(&spans);
    }
    blob_free(&blob);
    oip_request_destroy(request);
}

/* Fields from a newer protocol, at every level, change nothing. */
TEST_CASE(test_unknown_fields)
{
    static const unsigned char unknown[] = {0xf8, 0x07, 5,                /* a number */
                                            0xfa, 0x07, 3, 'a', 'b', 'c', /* bytes */
                                            0xfd, 0x07, 1, 2,   3,   4,   /* 32 bits */
                                            0xf9, 0x07, 1, 2,   3,   4,   5, 6, 7, 8}; /* 64 bits */
    struct blob blob = {0};
    struct blob input = {0};
    blob_put(&blob, unknown, sizeof(unknown));
    blob_field_text(&blob, 1, "m");
    blob_put(&input, unknown, sizeof(unknown));
    blob_field_text(&input, 1, "x");
    blob_field_text(&input, 2, "UINT8");
    blob_field_blob(&input, 4, &(struct blob){0}); /* a parameter of the tensor's own: not ours */
    blob_put(&input, unknown, sizeof(unknown));
    blob_field_blob(&blob, 5, &input);
    blob_put(&blob, unknown, sizeof(unknown));
    blob_field_bytes(&blob, 7, "z", 1);
    struct oip_request *request = oip_request_create();
    struct spans spans = spans_whole(&blob);
    struct error error = ERROR_NONE;
    if (payload_rig_decode(rig, request, &spans.message, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(rig->view.tensor_count, 1);
    assert_tensor(0, "x", SHOAL_UINT8, 0, "z", 1);
    payload_rig_end(rig);
    spans_free(&spans);
    blob_free(&blob);
    oip_request_destroy(request);
}

/* A key given twice has its last value, as a map has. */
TEST_CASE(test_parameter_twice)
{
    static const unsigned char entries[] = {0x22, 7, 0x0a, 1, 'k', 0x12, 2, 0x10, 1,
                                            0x22, 7, 0x0a, 1, 'k', 0x12, 2, 0x10, 2};
    struct blob blob = {0};
    blob_field_text(&blob, 1, "m");
    blob_put(&blob, entries, sizeof(entries));
    struct oip_request *request = oip_request_create();
    struct spans spans = spans_whole(&blob);
    struct error error = ERROR_NONE;
    assert_int_equal(payload_rig_decode(rig, request, &spans.message, &error), STATUS_OK);
    struct shoal_parameter value;
    assert_int_equal(payload_parameter_find(&rig->view, "k", &value), 1);
    assert_int_equal(value.value.int64, 2);
    assert_int_equal(rig->view.payload.parameter_count, 1);
    payload_rig_end(rig);
    spans_free(&spans);
    blob_free(&blob);
    oip_request_destroy(request);
}

/* ---- wherever the message is cut ---- */

static void
assert_same(struct oip_request *request, struct spans *spans, const struct blob *expected)
{
    struct error error = ERROR_NONE;
    if (payload_rig_decode(rig, request, &spans->message, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    struct blob seen = payload_rig_bytes(rig);
    assert_int_equal(seen.used, expected->used);
    assert_memory_equal(seen.bytes, expected->bytes, seen.used);
    assert_parameters();
    payload_rig_end(rig);
    blob_free(&seen);
    spans_free(spans);
}

TEST_CASE(test_cuts)
{
    struct oip_request *request = oip_request_create();
    for (int raw = 0; raw < 2; raw++) {
        struct blob blob = mixed_request(raw != 0);
        struct spans whole = spans_whole(&blob);
        struct error error = ERROR_NONE;
        assert_int_equal(payload_rig_decode(rig, request, &whole.message, &error), STATUS_OK);
        struct blob expected = payload_rig_bytes(rig);
        payload_rig_end(rig);
        spans_free(&whole);
        for (size_t at = 0; at <= blob.used; at++) {
            struct spans spans = spans_cut(blob.bytes, blob.used, at);
            assert_same(request, &spans, &expected);
        }
        for (int i = 0; i < 300; i++) {
            struct spans spans = spans_random(blob.bytes, blob.used);
            assert_same(request, &spans, &expected);
        }
        blob_free(&expected);
        blob_free(&blob);
    }
    oip_request_destroy(request);
}

/* Cut short anywhere, a message is refused, unless the cut is between two fields. */
TEST_CASE(test_truncations)
{
    struct oip_request *request = oip_request_create();
    for (int raw = 0; raw < 2; raw++) {
        struct blob blob = mixed_request(raw != 0);
        unsigned refused = 0;
        for (size_t bytes = 0; bytes < blob.used; bytes++) {
            struct blob cut = {.bytes = blob.bytes, .used = bytes};
            struct spans spans = spans_whole(&cut);
            struct error error = ERROR_NONE;
            enum status status = payload_rig_decode(rig, request, &spans.message, &error);
            if (status == STATUS_OK)
                payload_rig_end(rig);
            else
                assert_int_equal(status, STATUS_INVALID_ARGUMENT);
            refused += status != STATUS_OK;
            spans_free(&spans);
        }
        assert_true(refused > blob.used * 9 / 10);
        blob_free(&blob);
    }
    oip_request_destroy(request);
}

static void
mutate(struct blob *blob)
{
    static const unsigned char edges[] = {0x00, 0x01, 0x7f, 0x80, 0xff};
    for (uint64_t changes = 1 + random_below(6); changes > 0 && blob->used > 0; changes--) {
        size_t at = random_below(blob->used);
        switch (random_below(4)) {
        case 0: blob->bytes[at] = edges[random_below(sizeof(edges))]; break;
        case 1: blob->bytes[at] ^= (unsigned char)(1u << random_below(8)); break;
        case 2: blob->bytes[at] = (unsigned char)random_below(256); break;
        default:
            memmove(blob->bytes + at, blob->bytes + random_below(at + 1), blob->used - at);
            break;
        }
    }
}

/* The decoded name must be the one used for routing. */
static void
assert_skim_agrees(const struct wire_message *message, const struct oip_request *request)
{
    static const uint32_t name_path[] = {1};
    const char *name = request->message->model_name;
    char text[256];
    struct wire_cursor found;
    bool any;
    struct error error = ERROR_NONE;
    assert_int_equal(field_path_find(message, name_path, 1, &found, &any, &error), STATUS_OK);
    assert_int_equal(found.left, strlen(name));
    if (found.left > sizeof(text))
        return;
    wire_read(&found, text, found.left);
    assert_memory_equal(text, name, strlen(name));
}

TEST_CASE(test_mutations)
{
    struct oip_request *request = oip_request_create();
    struct blob seeds[] = {mixed_request(false), mixed_request(true)};
    unsigned accepted = 0;
    unsigned refused = 0;
    for (int i = 0; i < 20000; i++) {
        struct blob mutant = {0};
        const struct blob *seed = &seeds[random_below(2)];
        blob_put(&mutant, seed->bytes, seed->used);
        mutate(&mutant);
        struct spans spans = spans_random(mutant.bytes, mutant.used);
        struct error error = ERROR_NONE;
        if (payload_rig_decode(rig, request, &spans.message, &error) == STATUS_OK) {
            assert_skim_agrees(&spans.message, request);
            payload_rig_end(rig);
            accepted++;
        } else {
            assert_true(error.status == STATUS_INVALID_ARGUMENT ||
                        error.status == STATUS_RESOURCE_EXHAUSTED);
            refused++;
        }
        spans_free(&spans);
        blob_free(&mutant);
    }
    print_message("%u mutants accepted, %u refused\n", accepted, refused);
    assert_true(accepted > 100 && refused > 100);
    blob_free(&seeds[0]);
    blob_free(&seeds[1]);
    oip_request_destroy(request);
}

/* ---- memory ---- */

/* A request of many parts makes its memory grow; from the next one on it stays where it is. */
TEST_CASE(test_memory_is_kept)
{
    struct blob blob = {0};
    blob_field_text(&blob, 1, "m");
    for (int i = 0; i < 64; i++) {
        char name[100];
        snprintf(name, sizeof(name), "%099d", i);
        struct blob input = {0};
        blob_field_text(&input, 1, name);
        blob_field_text(&input, 2, "BYTES");
        blob_field_varint(&input, 3, 0);
        blob_field_blob(&blob, 5, &input);
    }
    struct spans spans = spans_whole(&blob);
    struct oip_request *request = oip_request_create();
    struct error error = ERROR_NONE;
    for (int i = 0; i < 2; i++)
        assert_int_equal(oip_decode(request, &spans.message, &error), STATUS_OK);
    const void *chunk = request->scratch.chunks;
    size_t total = request->scratch.total;
    assert_true(total > BUMP_BYTES_FIRST && total <= BUMP_BYTES_KEPT_MAX);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(oip_decode(request, &spans.message, &error), STATUS_OK);
        assert_ptr_equal(request->scratch.chunks, chunk);
        assert_int_equal(request->scratch.total, total);
    }
    oip_request_destroy(request);
    spans_free(&spans);
    blob_free(&blob);
}

/* The worst that the limits let through: many small fields, each a large thing once unpacked. */
TEST_CASE(test_memory_is_bounded)
{
    struct blob blob = {0};
    struct blob input = {0};
    blob_field_text(&blob, 1, "m");
    blob_field_text(&input, 1, "x");
    blob_field_text(&input, 2, "INT8");
    for (int i = 0; i < OIP_FIELDS_MAX - 4; i++)
        blob_field_varint(&input, 3, 1);
    blob_field_blob(&blob, 5, &input);
    struct spans spans = spans_whole(&blob);
    struct oip_request *request = oip_request_create();
    struct error error = ERROR_NONE;
    assert_int_equal(oip_decode(request, &spans.message, &error), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "dimensions, at most 8 are taken"));
    assert_true(request->scratch.total < (size_t)4 << 20);
    struct blob small = mixed_request(true);
    struct spans next = spans_whole(&small);
    assert_int_equal(oip_decode(request, &next.message, &error), STATUS_OK);
    assert_true(request->scratch.total <= BUMP_BYTES_KEPT_MAX);
    spans_free(&next);
    spans_free(&spans);
    blob_free(&small);
    blob_free(&blob);
    oip_request_destroy(request);
}

/* Tensors that no block of the arena can hold, however empty it is, are the caller's mistake. */
TEST_CASE(test_larger_than_any_block)
{
    struct blob blob = {0};
    struct blob input = {0};
    size_t bytes = (size_t)8 * RIG_MESSAGE_BYTES;
    unsigned char *raw = calloc(1, bytes);
    CHECK(raw != NULL);
    blob_field_text(&blob, 1, "m");
    blob_field_text(&input, 1, "x");
    blob_field_text(&input, 2, "UINT8");
    blob_field_varint(&input, 3, bytes);
    blob_field_blob(&blob, 5, &input);
    blob_field_bytes(&blob, 7, raw, bytes);
    struct oip_request *request = oip_request_create();
    struct spans spans = spans_whole(&blob);
    struct error error = ERROR_NONE;
    assert_int_equal(payload_rig_decode(rig, request, &spans.message, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "the largest block of the arena has room for"));
    spans_free(&spans);
    blob_free(&blob);
    free(raw);
    oip_request_destroy(request);
}

static int
setup(void **state)
{
    (void)state;
    random_init();
    rig = payload_rig_create();
    return 0;
}

static int
teardown(void **state)
{
    (void)state;
    payload_rig_destroy(rig);
    return 0;
}

TEST_MAIN(.group_setup = setup, .group_teardown = teardown)
