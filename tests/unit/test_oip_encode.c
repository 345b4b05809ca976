/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses, put together from their pieces as the transport would, are what protobuf-c makes of
 * them: names, types, shapes, order, contents. Data is lent from the arena, never copied, and each
 * lent piece is released once. A worker that writes over its output's name harms nobody.
 */
#include "test_oip_rig.h"

static struct payload_rig *rig;
static struct oip_request *request;

static const struct oip_model_info model = {.name = "digits", .version = "1"};

static unsigned released;

static void
on_release(void *context)
{
    assert_ptr_equal(context, rig);
    released++;
}

/* For an output that is to lie in four bytes of shared memory. */
static void
put_place(struct blob *output)
{
    struct blob entries[2] = {{0}, {0}};
    struct blob values[2] = {{0}, {0}};
    blob_field_text(&values[0], 3, "region");
    blob_field_varint(&values[1], 2, 4);
    blob_field_text(&entries[0], 1, "shared_memory_region");
    blob_field_text(&entries[1], 1, "shared_memory_byte_size");
    for (size_t i = 0; i < ARRAY_COUNT(entries); i++) {
        blob_field_blob(&entries[i], 2, &values[i]);
        blob_field_blob(output, 2, &entries[i]);
    }
}

/* Decodes a request without tensors that asks for these outputs, and for `shared`, which may be
 * NULL, in shared memory. */
static void
ask_for_shared(const char *const *outputs, size_t count, const char *shared)
{
    struct blob blob = {0};
    blob_field_text(&blob, 1, "digits");
    blob_field_text(&blob, 3, "the id");
    for (size_t i = 0; i < count; i++) {
        struct blob output = {0};
        blob_field_text(&output, 1, outputs[i]);
        if (shared != NULL && strcmp(outputs[i], shared) == 0)
            put_place(&output);
        blob_field_blob(&blob, 6, &output);
    }
    struct spans spans = spans_whole(&blob);
    struct error error = ERROR_NONE;
    if (oip_decode(request, &spans.message, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    spans_free(&spans);
    blob_free(&blob);
}

static void
ask_for(const char *const *outputs, size_t count)
{
    ask_for_shared(outputs, count, NULL);
}

static void *
add_output(const char *name, uint32_t datatype, uint32_t rank, const int64_t *shape,
           const void *data, size_t bytes)
{
    struct shoal_tensor tensor = {.name = name, .datatype = datatype, .rank = rank, .bytes = bytes};
    if (rank > 0)
        memcpy(tensor.shape, shape, rank * sizeof(shape[0]));
    void *memory;
    struct error error = ERROR_NONE;
    if (builder_add(&rig->builder, &tensor, &memory, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    memcpy(memory, data, bytes);
    return memory;
}

/* Three outputs, one of them without elements. */
static void
build_outputs(void)
{
    static const float scores[] = {0.25f, 0.75f};
    payload_rig_begin(rig);
    add_output("scores", SHOAL_FP32, 2, (const int64_t[]){1, 2}, scores, sizeof(scores));
    add_output("empty", SHOAL_INT64, 2, (const int64_t[]){0, 4}, "", 0);
    add_output("label", SHOAL_BYTES, 0, NULL, "\x05\0\0\0three", 9);
    payload_rig_seal(rig);
}

struct encoded {
    struct blob bytes;
    size_t pieces;
    size_t lent;
    Inference__ModelInferResponse *response;
};

static enum status
encode_into(struct oip_pieces *out, struct error *error)
{
    struct oip_release release = {on_release, rig};
    return oip_encode_response(request, &model, &rig->view, &release, out, error);
}

static struct encoded
encode(void)
{
    struct encoded encoded = {0};
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    if (encode_into(&out, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    const struct rpc_piece *pieces = out.pieces;
    encoded.pieces = out.count;
    encoded.lent = out.lent_count;
    size_t lent = 0;
    released = 0;
    for (size_t i = 0; i < encoded.pieces; i++) {
        assert_true(pieces[i].bytes > 0);
        blob_put(&encoded.bytes, pieces[i].data, pieces[i].bytes);
        if (pieces[i].release != NULL) {
            pieces[i].release(pieces[i].release_context);
            lent++;
        }
    }
    assert_int_equal(lent, encoded.lent);
    assert_int_equal(lent, released);
    encoded.response =
        inference__model_infer_response__unpack(NULL, encoded.bytes.used, encoded.bytes.bytes);
    assert_non_null(encoded.response);
    assert_string_equal(encoded.response->model_name, "digits");
    assert_string_equal(encoded.response->model_version, "1");
    assert_string_equal(encoded.response->id, "the id");
    assert_int_equal(encoded.response->n_parameters, 0);
    assert_int_equal(encoded.response->n_outputs, encoded.response->n_raw_output_contents);
    return encoded;
}

static void
encoded_free(struct encoded *encoded)
{
    inference__model_infer_response__free_unpacked(encoded->response, NULL);
    blob_free(&encoded->bytes);
}

static void
assert_output(const struct encoded *encoded, size_t index, const char *name, const char *datatype,
              size_t rank, const int64_t *shape, const void *data, size_t bytes)
{
    const Inference__ModelInferResponse__InferOutputTensor *output =
        encoded->response->outputs[index];
    assert_string_equal(output->name, name);
    assert_string_equal(output->datatype, datatype);
    assert_int_equal(output->n_shape, rank);
    for (size_t i = 0; i < rank; i++)
        assert_int_equal(output->shape[i], shape[i]);
    assert_int_equal(output->n_parameters, 0);
    assert_null(output->contents);
    const ProtobufCBinaryData *raw = &encoded->response->raw_output_contents[index];
    assert_int_equal(raw->len, bytes);
    if (bytes > 0)
        assert_memory_equal(raw->data, data, bytes);
}

TEST_CASE(test_all)
{
    ask_for(NULL, 0);
    build_outputs();
    struct encoded encoded = encode();
    static const float scores[] = {0.25f, 0.75f};
    assert_int_equal(encoded.response->n_outputs, 3);
    assert_output(&encoded, 0, "scores", "FP32", 2, (const int64_t[]){1, 2}, scores,
                  sizeof(scores));
    assert_output(&encoded, 1, "empty", "INT64", 2, (const int64_t[]){0, 4}, NULL, 0);
    assert_output(&encoded, 2, "label", "BYTES", 0, NULL, "\x05\0\0\0three", 9);
    assert_int_equal(encoded.lent, 2);
    assert_int_equal(encoded.pieces, 4);
    encoded_free(&encoded);
    payload_rig_end(rig);
}

TEST_CASE(test_requested)
{
    static const char *const outputs[] = {"label", "scores"};
    ask_for(outputs, 2);
    build_outputs();
    struct encoded encoded = encode();
    assert_int_equal(encoded.response->n_outputs, 2);
    assert_string_equal(encoded.response->outputs[0]->name, "label");
    assert_string_equal(encoded.response->outputs[1]->name, "scores");
    assert_int_equal(encoded.response->raw_output_contents[0].len, 9);
    assert_int_equal(encoded.response->raw_output_contents[1].len, 8);
    encoded_free(&encoded);
    static const char *const missing[] = {"label", "labels"};
    ask_for(missing, 2);
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    assert_int_equal(encode_into(&out, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "requested output \"labels\": the model gave no such output");
    payload_rig_end(rig);
}

/* An output that a piece lacks leaves its place in shared memory alone. */
TEST_CASE(test_place_of_an_output_that_a_piece_lacks)
{
    static const char *const outputs[] = {"usage", "scores"};
    ask_for_shared(outputs, 2, "usage");
    build_outputs();
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    if (oip_encode_response(request, &model, &rig->view, NULL, &out, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(out.count, 2);
    assert_int_equal(out.pieces[1].bytes, 2 * sizeof(float));
    payload_rig_end(rig);
}

/* No part of an answer in pieces need have all that was asked for, nor the last one. */
TEST_CASE(test_requested_of_pieces)
{
    static const char *const outputs[] = {"usage", "label", "scores"};
    ask_for(outputs, 3);
    build_outputs();
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    assert_int_equal(encode_into(&out, &error), STATUS_INVALID_ARGUMENT);
    error_clear(&error);
    assert_int_equal(oip_encode_response(request, &model, &rig->view, NULL, &out, &error),
                     STATUS_OK);
    assert_int_equal(out.lent_count, 0);
    struct encoded encoded = encode();
    assert_int_equal(encoded.response->n_outputs, 2);
    assert_string_equal(encoded.response->outputs[0]->name, "label");
    assert_string_equal(encoded.response->outputs[1]->name, "scores");
    encoded_free(&encoded);
    ask_for(outputs, 3); /* another answer */
    assert_int_equal(encode_into(&out, &error), STATUS_INVALID_ARGUMENT);
    payload_rig_end(rig);
}

/* The data of a piece is the arena's own. */
TEST_CASE(test_no_copy)
{
    ask_for(NULL, 0);
    payload_rig_begin(rig);
    size_t bytes = 100000;
    void *zeros = calloc(1, bytes);
    CHECK(zeros != NULL);
    void *memory = add_output("y", SHOAL_UINT8, 1, (const int64_t[]){(int64_t)bytes}, zeros, bytes);
    free(zeros);
    payload_rig_seal(rig);
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    assert_int_equal(encode_into(&out, &error), STATUS_OK);
    const struct rpc_piece *pieces = out.pieces;
    assert_int_equal(out.count, 2);
    assert_int_equal(out.lent_count, 1);
    assert_ptr_equal(pieces[1].data, memory);
    assert_int_equal(pieces[1].bytes, bytes);
    assert_ptr_equal(pieces[1].release, on_release);
    assert_null(pieces[0].release);
    payload_rig_end(rig);
}

TEST_CASE(test_many)
{
    ask_for(NULL, 0);
    payload_rig_begin(rig);
    for (uint32_t i = 0; i < SHOAL_TENSORS_MAX; i++) {
        char name[SHOAL_NAME_BYTES_MAX + 1];
        snprintf(name, sizeof(name), "%0127u", i);
        static const int64_t shape[] = {1, 1, 1, 1, 1, 1, 1, 4};
        add_output(name, SHOAL_UINT8, SHOAL_RANK_MAX, shape, &i, sizeof(i));
    }
    payload_rig_seal(rig);
    struct encoded encoded = encode();
    assert_int_equal(encoded.lent, SHOAL_TENSORS_MAX);
    assert_int_equal(encoded.response->n_outputs, SHOAL_TENSORS_MAX);
    for (uint32_t i = 0; i < SHOAL_TENSORS_MAX; i++) {
        assert_int_equal(strtoul(encoded.response->outputs[i]->name, NULL, 10), i);
        assert_memory_equal(encoded.response->raw_output_contents[i].data, &i, sizeof(i));
    }
    encoded_free(&encoded);
    payload_rig_end(rig);
}

TEST_CASE(test_none)
{
    ask_for(NULL, 0);
    payload_rig_begin(rig);
    payload_rig_seal(rig);
    struct encoded encoded = encode();
    assert_int_equal(encoded.response->n_outputs, 0);
    assert_int_equal(encoded.pieces, 1);
    assert_int_equal(encoded.lent, 0);
    encoded_free(&encoded);
    payload_rig_end(rig);
}

/* After the payload was validated, its owner writes over the names: no end in one, a zero byte in
 * another, bytes that are no text in a third. */
TEST_CASE(test_hostile_names)
{
    static const struct {
        const char *name;
        const char *text; /* NULL: still a response */
    } names[] = {
        {"scoresscores", NULL},
        {"sc\xffres", "output 0: the last stage gave it a name that is not UTF-8"},
        {"sco\0es", "output 0: the last stage gave it a name that is not UTF-8"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        ask_for(NULL, 0);
        build_outputs();
        char *endless = malloc(6); /* exactly the promised bytes, and no zero byte after them */
        CHECK(endless != NULL);
        memcpy(endless, names[i].name, 6);
        rig->view.tensors[0].name = endless;
        if (names[i].text == NULL) {
            struct encoded encoded = encode();
            assert_string_equal(encoded.response->outputs[0]->name, "scores");
            encoded_free(&encoded);
        } else {
            struct oip_pieces out;
            struct error error = ERROR_NONE;
            assert_int_equal(encode_into(&out, &error), STATUS_DATA_LOSS);
            assert_string_equal(error.text, names[i].text);
        }
        free(endless);
        payload_rig_end(rig);
    }
}

static int
setup(void **state)
{
    (void)state;
    rig = payload_rig_create();
    request = oip_request_create();
    return request == NULL;
}

static int
teardown(void **state)
{
    (void)state;
    oip_request_destroy(request);
    payload_rig_destroy(rig);
    return 0;
}

TEST_MAIN(.group_setup = setup, .group_teardown = teardown)
