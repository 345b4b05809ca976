/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests against what a model takes and gives, each rule broken alone, and the five small methods
 * against a node with one model: their answers unpacked by protobuf-c, their errors word for word.
 */
#include "test_oip_rig.h"

static const struct handshake_tensor inputs[] = {
    {"pixels", SHOAL_FP32, 2, {-1, 64}},
    {"name", SHOAL_BYTES, 0, {0}},
};
static const struct handshake_tensor outputs[] = {{"label", SHOAL_INT64, 1, {-1}}};

static const struct oip_model_info known = {"digits", "1",     NULL, "xgboost", inputs,
                                            2,        outputs, 1,    0};
static const struct oip_model_info few = {"few", "1", NULL, "", inputs, 2, outputs, 1, 3};
/* A dimension of nothing is a dimension, not a wildcard. */
static const struct handshake_tensor nothing_spec = {"x", SHOAL_INT8, 1, {0}};
static const struct oip_model_info nothing = {"nothing", "1",  NULL, "", &nothing_spec,
                                              1,         NULL, 0,    0};
static const struct oip_model_info unknown = {"any", "1", NULL, "", NULL, 0, NULL, 0, 0};

struct tensor {
    const char *name;
    const char *datatype;
    size_t rank;
    int64_t shape[3];
    const char *raw;
    size_t raw_bytes;
};

#define FLOATS_64 "................................................................"
#define PIXELS                                                                                     \
    {                                                                                              \
        "pixels", "FP32", 2, {1, 64}, FLOATS_64 FLOATS_64 FLOATS_64 FLOATS_64, 256                 \
    }
#define NAME                                                                                       \
    {                                                                                              \
        "name", "BYTES", 0, {0}, "\0\0\0\0", 4                                                     \
    }

static struct blob
make_request(const char *version, const struct tensor *tensors, size_t count, const char *output)
{
    struct blob blob = {0};
    blob_field_text(&blob, 1, "digits");
    blob_field_text(&blob, 2, version);
    for (size_t i = 0; i < count && tensors[i].name != NULL; i++) {
        struct blob inner = {0};
        blob_field_text(&inner, 1, tensors[i].name);
        blob_field_text(&inner, 2, tensors[i].datatype);
        for (size_t k = 0; k < tensors[i].rank; k++)
            blob_field_varint(&inner, 3, (uint64_t)tensors[i].shape[k]);
        blob_field_blob(&blob, 5, &inner);
        blob_field_bytes(&blob, 7, tensors[i].raw, tensors[i].raw_bytes);
    }
    if (output != NULL) {
        struct blob inner = {0};
        blob_field_text(&inner, 1, output);
        blob_field_blob(&blob, 6, &inner);
    }
    return blob;
}

static const char rows[4 * 256];

static const struct {
    const struct oip_model_info *model;
    enum status status;
    const char *text;
    const char *version;
    struct tensor tensors[3];
    const char *output;
} model_cases[] = {
    {&known, STATUS_OK, "", "", {PIXELS, NAME}, NULL},
    {&known, STATUS_OK, "", "1", {NAME, PIXELS}, "label"},
    {&known,
     STATUS_NOT_FOUND,
     "model \"digits\": no version \"2\", but \"1\"",
     "2",
     {PIXELS, NAME},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"pixel\": model \"digits\" has no such input",
     "",
     {{"pixel", "INT8", 0, {0}, "a", 1}},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"name\": missing, model \"digits\" takes it",
     "",
     {PIXELS},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"pixels\": missing, model \"digits\" takes it",
     "",
     {{NULL, NULL, 0, {0}, NULL, 0}},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"pixels\": datatype FP64, the model takes FP32",
     "",
     {{"pixels", "FP64", 2, {0, 64}, "", 0}, NAME},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"pixels\": shape [0,63], the model takes [-1,64]",
     "",
     {{"pixels", "FP32", 2, {0, 63}, "", 0}, NAME},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"pixels\": shape [0], the model takes [-1,64]",
     "",
     {{"pixels", "FP32", 1, {0}, "", 0}, NAME},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "tensor \"name\": shape [1], the model takes []",
     "",
     {PIXELS, {"name", "BYTES", 1, {1}, "\0\0\0\0", 4}},
     NULL},
    {&known,
     STATUS_INVALID_ARGUMENT,
     "requested output \"labels\": model \"digits\" has no such output",
     "",
     {PIXELS, NAME},
     "labels"},
    {&few, STATUS_OK, "", "", {NAME, {"pixels", "FP32", 2, {3, 64}, rows, 3 * 256}}, NULL},
    {&few,
     STATUS_INVALID_ARGUMENT,
     "tensor \"pixels\": 4 rows, but model \"few\" takes at most 3 in a request (max_batch_size)",
     "",
     {NAME, {"pixels", "FP32", 2, {4, 64}, rows, 4 * 256}},
     NULL},
    {&nothing, STATUS_OK, "", "", {{"x", "INT8", 1, {0}, "", 0}}, NULL},
    {&nothing,
     STATUS_INVALID_ARGUMENT,
     "tensor \"x\": shape [1], the model takes [0]",
     "",
     {{"x", "INT8", 1, {1}, "a", 1}},
     NULL},
    {&unknown, STATUS_OK, "", "", {{"x", "FP16", 1, {1}, "ab", 2}}, "y"},
    {&unknown, STATUS_OK, "", "", {{NULL, NULL, 0, {0}, NULL, 0}}, NULL},
};

TEST_CASE(test_check_model)
{
    struct oip_request *request = oip_request_create();
    for (size_t i = 0; i < ARRAY_COUNT(model_cases); i++) {
        struct blob blob =
            make_request(model_cases[i].version, model_cases[i].tensors, 3, model_cases[i].output);
        struct spans spans = spans_whole(&blob);
        struct error error = ERROR_NONE;
        if (oip_decode(request, &spans.message, &error) != STATUS_OK)
            fail_msg("case %zu: %s", i, error.text);
        enum status status = oip_check_model(request, model_cases[i].model, &error);
        if (status != model_cases[i].status || strcmp(error.text, model_cases[i].text) != 0)
            fail_msg("case %zu: %s \"%s\"", i, status_name(status), error.text);
        spans_free(&spans);
        blob_free(&blob);
    }
    oip_request_destroy(request);
}

/* A spec is a worker's word: more dimensions than there can be are shown as far as they go. */
TEST_CASE(test_wild_spec)
{
    struct handshake_tensor wild = {.name = "x", .datatype = SHOAL_INT8, .rank = 1000};
    memset(wild.shape, 0x80, sizeof(wild.shape));
    struct oip_model_info model = {"wild", "1", NULL, "", &wild, 1, NULL, 0, 0};
    struct tensor tensor = {"x", "INT8", 0, {0}, "a", 1};
    struct blob blob = make_request("", &tensor, 1, NULL);
    struct spans spans = spans_whole(&blob);
    struct oip_request *request = oip_request_create();
    struct error error = ERROR_NONE;
    assert_int_equal(oip_decode(request, &spans.message, &error), STATUS_OK);
    assert_int_equal(oip_check_model(request, &model, &error), STATUS_INVALID_ARGUMENT);
    wild.datatype = 999;
    assert_int_equal(oip_check_model(request, &model, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "tensor \"x\": datatype INT8, the model takes unknown");
    oip_request_destroy(request);
    spans_free(&spans);
    blob_free(&blob);
}

/* ---- the small methods ---- */

struct fake_node {
    bool ready;
    bool model_ready;
};

static bool
node_ready(void *context)
{
    return ((struct fake_node *)context)->ready;
}

static enum status
node_model(void *context, const struct oip_named *named, struct oip_model_info *info, bool *ready,
           struct error *error)
{
    if (strcmp(named->name, "digits") != 0)
        return error_set(error, STATUS_NOT_FOUND, "model \"%s\": not known here", named->name);
    *info = known;
    *ready = ((struct fake_node *)context)->model_ready;
    return STATUS_OK;
}

static enum status
ask(const struct fake_node *fake, enum oip_method method, const struct blob *blob, void **response,
    size_t *bytes, struct error *error)
{
    struct oip_node node = {"a-name", node_ready, node_model, oip_loose(fake)};
    struct spans spans = spans_random(blob->bytes, blob->used);
    *error = ERROR_NONE;
    enum status status = oip_answer(method, &node, &spans.message, response, bytes, error);
    spans_free(&spans);
    return status;
}

TEST_CASE(test_server)
{
    struct fake_node fake = {false, false};
    struct blob empty = {0};
    struct error error;
    void *response;
    size_t bytes;
    assert_int_equal(ask(&fake, OIP_SERVER_LIVE, &empty, &response, &bytes, &error), STATUS_OK);
    assert_int_equal(bytes, 2);
    assert_memory_equal(response, "\x08\x01", 2);
    free(response);
    assert_int_equal(ask(&fake, OIP_SERVER_READY, &empty, &response, &bytes, &error), STATUS_OK);
    assert_int_equal(bytes, 0); /* false is the default */
    free(response);
    fake.ready = true;
    assert_int_equal(ask(&fake, OIP_SERVER_READY, &empty, &response, &bytes, &error), STATUS_OK);
    assert_int_equal(bytes, 2);
    assert_memory_equal(response, "\x08\x01", 2);
    free(response);
    assert_int_equal(ask(&fake, OIP_SERVER_METADATA, &empty, &response, &bytes, &error), STATUS_OK);
    Inference__ServerMetadataResponse *metadata =
        inference__server_metadata_response__unpack(NULL, bytes, response);
    assert_non_null(metadata);
    assert_string_equal(metadata->name, "a-name");
    assert_string_equal(metadata->version, SHOAL_VERSION);
    assert_int_equal(metadata->n_extensions, 0);
    inference__server_metadata_response__free_unpacked(metadata, NULL);
    free(response);
}

TEST_CASE(test_malformed)
{
    static const char *const types[] = {"ServerLiveRequest", "ServerReadyRequest",
                                        "ServerMetadataRequest", "ModelReadyRequest",
                                        "ModelMetadataRequest"};
    struct fake_node fake = {true, true};
    for (size_t i = 0; i < ARRAY_COUNT(types); i++) {
        struct blob cut = {0};
        struct error error;
        void *response;
        size_t bytes;
        char text[128];
        blob_put(&cut, "\x0a\x02x", 3);
        assert_int_equal(ask(&fake, (enum oip_method)i, &cut, &response, &bytes, &error),
                         STATUS_INVALID_ARGUMENT);
        snprintf(text, sizeof(text), "request is not a valid %s: malformed, or cut short",
                 types[i]);
        assert_string_equal(error.text, text);
        blob_free(&cut);
    }
}

TEST_CASE(test_model_ready)
{
    static const struct {
        const char *name;
        const char *version;
        enum status status;
        const char *text;
    } cases[] = {
        {"digits", "", STATUS_OK, ""},
        {"digits", "1", STATUS_OK, ""},
        {"digits", "3", STATUS_NOT_FOUND, "model \"digits\": no version \"3\", but \"1\""},
        {"digit", "", STATUS_NOT_FOUND, "model \"digit\": not known here"},
        {"", "", STATUS_NOT_FOUND, "model \"\": not known here"},
        {"\xff", "", STATUS_INVALID_ARGUMENT,
         "request is not a valid ModelReadyRequest: name is not UTF-8, or has a zero byte in it"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        for (int ready = 0; ready < 2; ready++) {
            struct fake_node fake = {true, ready != 0};
            struct blob blob = {0};
            struct error error;
            void *response;
            size_t bytes;
            blob_field_text(&blob, 1, cases[i].name);
            blob_field_text(&blob, 2, cases[i].version);
            blob_field_text(&blob, 9, "later");
            enum status status = ask(&fake, OIP_MODEL_READY, &blob, &response, &bytes, &error);
            assert_int_equal(status, cases[i].status);
            assert_string_equal(error.text, cases[i].text);
            if (status == STATUS_OK) {
                assert_int_equal(bytes, ready ? 2 : 0);
                free(response);
            }
            blob_free(&blob);
        }
    }
}

TEST_CASE(test_model_metadata)
{
    struct fake_node fake = {true, true};
    struct blob blob = {0};
    struct error error;
    void *response;
    size_t bytes;
    blob_field_text(&blob, 1, "digits");
    assert_int_equal(ask(&fake, OIP_MODEL_METADATA, &blob, &response, &bytes, &error), STATUS_OK);
    Inference__ModelMetadataResponse *metadata =
        inference__model_metadata_response__unpack(NULL, bytes, response);
    assert_non_null(metadata);
    assert_string_equal(metadata->name, "digits");
    assert_int_equal(metadata->n_versions, 1);
    assert_string_equal(metadata->versions[0], "1");
    assert_string_equal(metadata->platform, "xgboost");
    assert_int_equal(metadata->n_inputs, 2);
    assert_string_equal(metadata->inputs[0]->name, "pixels");
    assert_string_equal(metadata->inputs[0]->datatype, "FP32");
    assert_int_equal(metadata->inputs[0]->n_shape, 2);
    assert_int_equal(metadata->inputs[0]->shape[0], -1);
    assert_int_equal(metadata->inputs[0]->shape[1], 64);
    assert_string_equal(metadata->inputs[1]->name, "name");
    assert_string_equal(metadata->inputs[1]->datatype, "BYTES");
    assert_int_equal(metadata->inputs[1]->n_shape, 0);
    assert_int_equal(metadata->n_outputs, 1);
    assert_string_equal(metadata->outputs[0]->name, "label");
    assert_string_equal(metadata->outputs[0]->datatype, "INT64");
    inference__model_metadata_response__free_unpacked(metadata, NULL);
    free(response);
    blob_free(&blob);
}

static int
setup(void **state)
{
    (void)state;
    random_init();
    return 0;
}

TEST_MAIN(.group_setup = setup)
