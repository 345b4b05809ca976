/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of mmesh.ModelMesh, read and judged: every field of every request by its number,
 * messages cut at every byte, what is missing or too long, and random bytes, of which
 * AddressSanitizer would see a read or a write past an end.
 */
#include "test_oip_rig.h"

#include "coordinator/mesh/mesh_request.h"

/* Takes the blob over; the request's texts are in its own memory. */
static enum status
read_blob(struct blob *blob, enum mesh_order_kind kind, const char *owner,
          struct mesh_request *request, struct error *error)
{
    struct spans spans = spans_whole(blob);
    enum status status = mesh_request_read(kind, &spans.message, owner, request, error);
    spans_free(&spans);
    blob_free(blob);
    return status;
}

static void
refuse(struct blob blob, enum mesh_order_kind kind, const char *text)
{
    struct mesh_request request;
    struct error error = ERROR_NONE;
    assert_int_equal(read_blob(&blob, kind, NULL, &request, &error), STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", text, error.text);
    mesh_request_fini(&request);
}

static void
put_info(struct blob *blob, uint32_t field)
{
    struct blob info = {0};
    blob_field_text(&info, 1, "kind");
    blob_field_text(&info, 2, "a/path");
    blob_field_text(&info, 3, "{}");
    blob_field_blob(blob, field, &info);
}

static struct blob
a_register(void)
{
    struct blob blob = {0};
    blob_field_text(&blob, 1, "größe");
    put_info(&blob, 2);
    blob_field_varint(&blob, 3, 1);
    blob_field_varint(&blob, 4, 1);
    blob_field_varint(&blob, 5, 1700000000000);
    blob_field_varint(&blob, 77, 5); /* of a later version */
    return blob;
}

static struct blob
a_set(void)
{
    struct blob blob = {0};
    blob_field_text(&blob, 1, "vmodel");
    blob_field_text(&blob, 2, "model");
    blob_field_varint(&blob, 3, 1);
    put_info(&blob, 4);
    blob_field_varint(&blob, 5, 1);
    blob_field_varint(&blob, 6, 1);
    blob_field_varint(&blob, 7, 1);
    blob_field_varint(&blob, 8, 1);
    blob_field_text(&blob, 9, "expected");
    blob_field_text(&blob, 10, "owner");
    return blob;
}

TEST_CASE(test_fields)
{
    struct mesh_request request;
    struct error error = ERROR_NONE;
    struct blob blob = a_register();
    assert_int_equal(read_blob(&blob, MESH_REGISTER, NULL, &request, &error), STATUS_OK);
    const struct mesh_order *order = &request.order;
    assert_int_equal(order->kind, MESH_REGISTER);
    assert_string_equal(order->model, "größe");
    assert_string_equal(order->type, "kind");
    assert_string_equal(order->path, "a/path");
    assert_string_equal(order->key, "{}");
    assert_true(order->load_now && order->sync);
    assert_int_equal(order->used_ms, 1700000000000);
    assert_null(order->owner);
    mesh_request_fini(&request);

    blob = a_set();
    assert_int_equal(read_blob(&blob, MESH_SET_VMODEL, "default", &request, &error), STATUS_OK);
    assert_string_equal(order->vmodel, "vmodel");
    assert_string_equal(order->model, "model");
    assert_string_equal(order->type, "kind");
    assert_string_equal(order->expected, "expected");
    assert_string_equal(order->owner, "owner");
    assert_true(order->update_only && order->auto_delete && order->load_now && order->force &&
                order->sync);
    mesh_request_fini(&request);

    blob = (struct blob){0};
    blob_field_text(&blob, 1, "m");
    blob_field_varint(&blob, 2, 5);
    blob_field_varint(&blob, 3, 1); /* reserved */
    blob_field_varint(&blob, 4, 1);
    assert_int_equal(read_blob(&blob, MESH_ENSURE_LOADED, NULL, &request, &error), STATUS_OK);
    assert_int_equal(order->used_ms, 5);
    assert_true(order->sync && !order->load_now);
    mesh_request_fini(&request);

    blob = (struct blob){0};
    blob_field_text(&blob, 1, "v");
    assert_int_equal(read_blob(&blob, MESH_DELETE_VMODEL, "default", &request, &error), STATUS_OK);
    assert_string_equal(order->vmodel, "v");
    assert_string_equal(order->owner, "default");
    mesh_request_fini(&request);
}

/* The last of several counts; an empty one is none. */
TEST_CASE(test_several_times)
{
    struct mesh_request request;
    struct error error = ERROR_NONE;
    struct blob blob = a_register();
    blob_field_text(&blob, 1, "last");
    struct blob info = {0};
    blob_field_text(&info, 3, "");
    blob_field_blob(&blob, 2, &info);
    assert_int_equal(read_blob(&blob, MESH_REGISTER, NULL, &request, &error), STATUS_OK);
    assert_string_equal(request.order.model, "last");
    assert_string_equal(request.order.type, "kind");
    assert_null(request.order.key);
    mesh_request_fini(&request);
}

TEST_CASE(test_missing)
{
    for (enum mesh_order_kind kind = MESH_REGISTER; kind <= MESH_ENSURE_LOADED; kind++)
        refuse((struct blob){0}, kind, "must provide non-empty modelId");
    for (enum mesh_order_kind kind = MESH_SET_VMODEL; kind <= MESH_VMODEL_STATUS; kind++)
        refuse((struct blob){0}, kind, "Must provide vModelId");
    struct blob blob = {0};
    blob_field_text(&blob, 1, "v");
    refuse(blob, MESH_SET_VMODEL, "Must provide target modelId for vmodel v");
    blob = (struct blob){0};
    blob_field_text(&blob, 1, "m");
    refuse(blob, MESH_REGISTER, "Must provide non-empty model type string");
    blob = (struct blob){0};
    blob_field_text(&blob, 1, "v");
    blob_field_text(&blob, 2, "m");
    blob_field_bytes(&blob, 4, "\x12\1p", 3);
    refuse(blob, MESH_SET_VMODEL, "Must provide non-empty model type string");
}

TEST_CASE(test_empty_info_is_none)
{
    struct mesh_request request;
    struct error error = ERROR_NONE;
    struct blob blob = {0};
    blob_field_text(&blob, 1, "v");
    blob_field_text(&blob, 2, "m");
    blob_field_bytes(&blob, 4, "", 0);
    assert_int_equal(read_blob(&blob, MESH_SET_VMODEL, NULL, &request, &error), STATUS_OK);
    assert_null(request.order.type);
    mesh_request_fini(&request);
}

TEST_CASE(test_too_long)
{
    static const struct {
        uint32_t field;
        size_t most;
        const char *text;
    } texts[] = {{1, MESH_ID_BYTES_MAX, "vModelId has"},
                 {2, MESH_ID_BYTES_MAX, "targetModelId has"},
                 {9, MESH_ID_BYTES_MAX, "expectedTargetModelId has"},
                 {10, MESH_ID_BYTES_MAX, "owner has"}};
    char *text = calloc(1, MESH_REQUEST_BYTES_MAX + 2);
    assert_non_null(text);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct mesh_request request;
        struct error error = ERROR_NONE;
        memset(text, 'x', texts[i].most);
        struct blob blob = a_set();
        blob_field_text(&blob, texts[i].field, text);
        assert_int_equal(read_blob(&blob, MESH_SET_VMODEL, NULL, &request, &error), STATUS_OK);
        mesh_request_fini(&request);
        text[texts[i].most] = 'x';
        blob = a_set();
        blob_field_text(&blob, texts[i].field, text);
        refuse(blob, MESH_SET_VMODEL, texts[i].text);
        memset(text, 0, texts[i].most + 1);
    }
    memset(text, 'x', MESH_REQUEST_BYTES_MAX);
    struct blob blob = {0};
    blob_field_text(&blob, 1, text);
    refuse(blob, MESH_UNREGISTER, "must be at most 262144");
    free(text);
}

TEST_CASE(test_no_text)
{
    struct blob blob = {0};
    blob_field_bytes(&blob, 1, "a\0b", 3);
    refuse(blob, MESH_UNREGISTER, "field 1 of the request is not UTF-8 text");
    blob = (struct blob){0};
    blob_field_bytes(&blob, 1, "\xff", 1);
    refuse(blob, MESH_UNREGISTER, "field 1 of the request is not UTF-8 text");
}

/* Of another wire type it is another field, which nobody knows. */
TEST_CASE(test_wire_types)
{
    struct blob blob = {0};
    blob_field_varint(&blob, 1, 7);
    refuse(blob, MESH_UNREGISTER, "must provide non-empty modelId");
}

TEST_CASE(test_cut_anywhere)
{
    struct blob blob = a_set();
    for (size_t at = 0; at <= blob.used; at++) {
        struct spans spans = spans_cut(blob.bytes, blob.used, at);
        struct mesh_request request;
        struct error error = ERROR_NONE;
        assert_int_equal(mesh_request_read(MESH_SET_VMODEL, &spans.message, NULL, &request, &error),
                         STATUS_OK);
        assert_string_equal(request.order.owner, "owner");
        mesh_request_fini(&request);
        spans_free(&spans);
        struct blob begin = {0};
        blob_put(&begin, blob.bytes, at);
        (void)read_blob(&begin, MESH_SET_VMODEL, NULL, &request, &error);
        mesh_request_fini(&request);
    }
    blob_free(&blob);
}

TEST_CASE(test_random)
{
    random_init();
    for (int turn = 0; turn < 20000; turn++) {
        struct blob blob = {0};
        for (uint64_t left = random_draw(&random_state) % 60; left > 0; left--) {
            unsigned char byte =
                (unsigned char)(random_draw(&random_state) % (turn % 2 ? 256 : 20));
            blob_put(&blob, &byte, 1);
        }
        struct mesh_request request;
        struct error error = ERROR_NONE;
        enum mesh_order_kind kind = (enum mesh_order_kind)(random_draw(&random_state) % 7);
        (void)read_blob(&blob, kind, "owner", &request, &error);
        mesh_request_fini(&request);
    }
}

TEST_MAIN()
