/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline that a call means, among pipelines of every kind: called by name or by a method,
 * with models or without; and ids as messages and metadata give them. No models are known here:
 * those are met in tests/integration, and the rules for metadata in test_inbound.c.
 */
#include "coordinator/models/models.h"
#include "coordinator/models/target.h"
#include "test_oip_rig.h"

enum { PLAIN, BOUND, BOUND_OTHER, STORE, BOUND_STORE, BOUND_STORE_BY_FIELD, PIPELINES };

static uint32_t id_path[] = {1, 20};
static char methods[PIPELINES][16] = {
    [BOUND] = "/a.B/Bound",
    [BOUND_OTHER] = "/a.B/Other",
    [BOUND_STORE] = "/a.B/Store",
    [BOUND_STORE_BY_FIELD] = "/a.B/ByField",
};

static struct config_stage stage;

static struct config_pipeline configs[PIPELINES] = {
    [BOUND] = {.method = methods[BOUND]},
    [BOUND_OTHER] = {.method = methods[BOUND_OTHER]},
    [BOUND_STORE] = {.method = methods[BOUND_STORE]},
    [BOUND_STORE_BY_FIELD] = {.method = methods[BOUND_STORE_BY_FIELD],
                              .id_path = id_path,
                              .id_path_count = 2},
};

static const char *const names[] = {"plain", "bound", "other", "store", "bound-store", "by-field"};

struct rig {
    struct pipeline *pipelines[PIPELINES];
    struct target_scope scope;
};

static struct rig *
rig_create(void)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    CHECK(rig != NULL);
    rig->scope = (struct target_scope){rig->pipelines, PIPELINES, registry_create(NULL), false};
    for (int i = 0; i < PIPELINES; i++) {
        struct pipeline *pipeline = rig->pipelines[i] = calloc(1, sizeof(*pipeline));
        CHECK(pipeline != NULL);
        pipeline->name = names[i];
        pipeline->options.config = &configs[i];
        configs[i].stages = &stage;
        configs[i].stage_count = 1;
        if (i >= STORE) /* only whether there is one is looked at */
            pipeline->catalog = (struct catalog *)pipeline;
    }
    return rig;
}

static void
rig_destroy(struct rig *rig)
{
    for (int i = 0; i < PIPELINES; i++)
        free(rig->pipelines[i]);
    registry_destroy(rig->scope.registry);
    free(rig);
}

enum { BY_NAME = -1 };

struct call {
    int bound; /* or BY_NAME */
    const char *id;
    int found; /* with a status of OK */
    enum status status;
    const char *text;
};

static const struct call calls[] = {
    {BY_NAME, "plain", PLAIN, STATUS_OK, NULL},
    {BOUND, "", BOUND, STATUS_OK, NULL},
    {BOUND, "bound", BOUND, STATUS_OK, NULL},
    {BY_NAME, "", 0, STATUS_INVALID_ARGUMENT,
     "no model is named: neither model_name nor metadata mm-model-id is given"},
    {BOUND_STORE, "", 0, STATUS_INVALID_ARGUMENT,
     "no model is named: /a.B/Store needs its id in metadata mm-model-id"},
    {BOUND_STORE_BY_FIELD, "", 0, STATUS_INVALID_ARGUMENT,
     "no model is named: /a.B/ByField needs its id in metadata mm-model-id, or in the request's "
     "field 1.20"},
    {BY_NAME, "nobody", 0, STATUS_NOT_FOUND,
     "Request for unknown model: \"nobody\" is not known to this node"},
    {BOUND, "nobody", 0, STATUS_NOT_FOUND,
     "Request for unknown model: \"nobody\" is not known to this node"},
    {BY_NAME, "store", 0, STATUS_INVALID_ARGUMENT,
     "pipeline \"store\" serves models: name one of them"},
    {BOUND_STORE, "bound-store", 0, STATUS_INVALID_ARGUMENT,
     "pipeline \"bound-store\" serves models: name one of them"},
    {BY_NAME, "bound", 0, STATUS_INVALID_ARGUMENT,
     "model \"bound\" is called by /a.B/Bound, not by the Open Inference Protocol"},
    {BOUND, "plain", 0, STATUS_INVALID_ARGUMENT,
     "model \"plain\" is called by the Open Inference Protocol, not by /a.B/Bound"},
    {BOUND, "other", 0, STATUS_INVALID_ARGUMENT,
     "model \"other\" is called by /a.B/Other, not by /a.B/Bound"},
};

TEST_CASE(test_find)
{
    struct rig *rig = rig_create();
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) {
        const struct call *call = &calls[i];
        struct target_id id;
        struct target target;
        struct error error = ERROR_NONE;
        const struct wire_span name = {call->id, strlen(call->id)};
        assert_int_equal(target_id_set(&id, "id", &name, SHOAL_NAME_BYTES_MAX, &error), STATUS_OK);
        struct pipeline *bound = call->bound == BY_NAME ? NULL : rig->pipelines[call->bound];
        enum status status = target_find(&rig->scope, bound, &id, "", &target, &error);
        assert_int_equal(status, call->status);
        if (status == STATUS_OK) {
            assert_ptr_equal(target.pipeline, rig->pipelines[call->found]);
            target_leave(&target);
        } else {
            assert_string_equal(error.text, call->text);
        }
        assert_null(target.model);
    }
    rig_destroy(rig);
}

/* ---- ids ---- */

TEST_CASE(test_values)
{
    char text[SHOAL_NAME_BYTES_MAX + 2];
    struct target_id id;
    struct error error = ERROR_NONE;
    struct wire_span value = {text, SHOAL_NAME_BYTES_MAX + 1};
    memset(text, 'n', sizeof(text));
    assert_int_equal(target_id_set(&id, "key", &value, SHOAL_NAME_BYTES_MAX, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "key: a model's id has at most 127 bytes, not 128");
    value.bytes--;
    assert_int_equal(target_id_set(&id, "key", &value, SHOAL_NAME_BYTES_MAX, &error), STATUS_OK);
    assert_int_equal(id.bytes, SHOAL_NAME_BYTES_MAX);
    text[SHOAL_NAME_BYTES_MAX] = '\0';
    assert_string_equal(id.text, text);
    text[7] = '\0';
    assert_int_equal(target_id_set(&id, "key", &value, SHOAL_NAME_BYTES_MAX, &error),
                     STATUS_INVALID_ARGUMENT);
}

/* The result of a field of `bytes`. */
static enum status
id_of(const void *text, size_t bytes, struct target_id *id, struct error *error)
{
    struct blob blob = {0};
    struct blob inner = {0};
    blob_field_bytes(&inner, 20, text, bytes);
    blob_field_blob(&blob, 1, &inner);
    struct spans spans = spans_cut(blob.bytes, blob.used, blob.used / 2);
    *id = (struct target_id){.bytes = 77};
    enum status status =
        target_id_of_message(&spans.message, id_path, 2, SHOAL_NAME_BYTES_MAX, id, error);
    spans_free(&spans);
    blob_free(&blob);
    return status;
}

TEST_CASE(test_messages)
{
    struct target_id id;
    struct error error = ERROR_NONE;
    char longest[SHOAL_NAME_BYTES_MAX + 1];
    memset(longest, 'n', sizeof(longest));
    assert_int_equal(id_of("Fl\xc3\xa4"
                           "che",
                           7, &id, &error),
                     STATUS_OK);
    assert_string_equal(id.text, "Fl\xc3\xa4"
                                 "che");
    assert_int_equal(id.bytes, 7);
    assert_int_equal(id_of("", 0, &id, &error), STATUS_OK);
    assert_int_equal(id.bytes, 0);
    assert_int_equal(id_of(longest, SHOAL_NAME_BYTES_MAX, &id, &error), STATUS_OK);
    assert_int_equal(id.bytes, SHOAL_NAME_BYTES_MAX);
    assert_int_equal(id_of(longest, sizeof(longest), &id, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "the request: a model's id has at most 127 bytes, not 128");
    assert_int_equal(id_of("a\0b", 3, &id, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "the request: a model's id must be UTF-8 without a zero byte");
    assert_int_equal(id_of("\xc3", 1, &id, &error), STATUS_INVALID_ARGUMENT);
    struct spans none = spans_cut("\x10\x01", 2, 1);
    assert_int_equal(
        target_id_of_message(&none.message, id_path, 2, SHOAL_NAME_BYTES_MAX, &id, &error),
        STATUS_OK);
    assert_int_equal(id.bytes, 0);
    spans_free(&none);
    struct spans wrong = spans_cut("\x08\x01", 2, 1);
    assert_int_equal(
        target_id_of_message(&wrong.message, id_path, 2, SHOAL_NAME_BYTES_MAX, &id, &error),
        STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "field 1 has wire type 0, not that of a message");
    spans_free(&wrong);
}

TEST_MAIN()
