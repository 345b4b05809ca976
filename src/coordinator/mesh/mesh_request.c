/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_request.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "wire/wire.h"

/* ---- the fields of each request ---- */

enum slot_kind { SLOT_TEXT, SLOT_TIME, SLOT_FLAG, SLOT_INFO };

struct request_slot {
    uint32_t number; /* 0: the end */
    enum slot_kind kind;
    size_t offset; /* in struct mesh_order */
};

#define TEXT(number, field)                                                                        \
    {                                                                                              \
        number, SLOT_TEXT, offsetof(struct mesh_order, field)                                      \
    }
#define TIME(number, field)                                                                        \
    {                                                                                              \
        number, SLOT_TIME, offsetof(struct mesh_order, field)                                      \
    }
#define FLAG(number, field)                                                                        \
    {                                                                                              \
        number, SLOT_FLAG, offsetof(struct mesh_order, field)                                      \
    }
#define INFO(number)                                                                               \
    {                                                                                              \
        number, SLOT_INFO, 0                                                                       \
    }

enum { SLOTS_MAX = 11 };

static const struct request_slot slots[][SLOTS_MAX] = {
    [MESH_REGISTER] = {TEXT(1, model), INFO(2), FLAG(3, load_now), FLAG(4, sync), TIME(5, used_ms)},
    [MESH_UNREGISTER] = {TEXT(1, model)},
    [MESH_MODEL_STATUS] = {TEXT(1, model)},
    [MESH_ENSURE_LOADED] = {TEXT(1, model), TIME(2, used_ms), FLAG(4, sync)},
    [MESH_SET_VMODEL] = {TEXT(1, vmodel), TEXT(2, model), FLAG(3, update_only), INFO(4),
                         FLAG(5, auto_delete), FLAG(6, load_now), FLAG(7, force), FLAG(8, sync),
                         TEXT(9, expected), TEXT(10, owner)},
    [MESH_DELETE_VMODEL] = {TEXT(1, vmodel), TEXT(2, owner)},
    [MESH_VMODEL_STATUS] = {TEXT(1, vmodel), TEXT(2, owner)},
};

static const struct request_slot info_slots[SLOTS_MAX] = {TEXT(1, type), TEXT(2, path),
                                                          TEXT(3, key)};

/* ---- reading ---- */

struct mesh_request_reader {
    struct mesh_request *request;
    char *free; /* room for further texts: a message holds no more than its bytes */
};

static enum status
malformed(struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "request is not a valid message of mmesh.ModelMesh");
}

static enum status
read_text(struct mesh_request_reader *reader, struct wire_field *field, const char **text,
          struct error *error)
{
    size_t bytes = (size_t)field->value;
    char *to = reader->free;
    wire_read(&field->data, to, bytes);
    to[bytes] = '\0';
    reader->free += bytes + 1;
    if (!wire_text_ok((const unsigned char *)to, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "field %u of the request is not UTF-8 text without a zero byte",
                         field->number);
    *text = bytes > 0 ? to : NULL; /* the last of several occurrences of a field counts */
    return STATUS_OK;
}

static enum status read_fields(struct mesh_request_reader *reader, struct wire_cursor cursor,
                               const struct request_slot *known, struct error *error);

static enum status
read_field(struct mesh_request_reader *reader, const struct request_slot *slot,
           struct wire_field *field, struct error *error)
{
    void *at = (char *)&reader->request->order + slot->offset;
    bool number = slot->kind == SLOT_FLAG || slot->kind == SLOT_TIME;
    if (field->type != (number ? WIRE_VARINT : WIRE_BYTES))
        return STATUS_OK; /* to protobuf an unknown field */
    switch (slot->kind) {
    case SLOT_TEXT: return read_text(reader, field, at, error);
    case SLOT_FLAG: *(bool *)at = field->value != 0; return STATUS_OK;
    case SLOT_TIME:
        *(int64_t *)at = field->value < INT64_MAX ? (int64_t)field->value : INT64_MAX;
        return STATUS_OK;
    case SLOT_INFO: return read_fields(reader, field->data, info_slots, error);
    }
    UNREACHABLE();
}

static enum status
read_fields(struct mesh_request_reader *reader, struct wire_cursor cursor,
            const struct request_slot *known, struct error *error)
{
    struct wire_field field;
    enum wire_result result;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        const struct request_slot *slot = known;
        while (slot->number != 0 && slot->number != field.number)
            slot++;
        if (slot->number != 0 && read_field(reader, slot, &field, error) != STATUS_OK)
            return error->status;
    }
    return result == WIRE_MALFORMED ? malformed(error) : STATUS_OK;
}

/* ---- judging ---- */

static enum status
check_length(const char *what, const char *text, size_t bytes_max, struct error *error)
{
    if (text == NULL || strlen(text) <= bytes_max)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s has %zu bytes: must be at most %zu", what,
                     strlen(text), bytes_max);
}

/* `missing` is the text if there is none; ModelMesh's, verbatim. */
static enum status
check_id(const char *what, const char *id, const char *missing, struct error *error)
{
    if (id == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s", missing);
    return check_length(what, id, MESH_ID_BYTES_MAX, error);
}

static enum status
check_target(const struct mesh_order *order, struct error *error)
{
    if (order->model == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "Must provide target modelId for vmodel %.300s", order->vmodel);
    return check_length("targetModelId", order->model, MESH_ID_BYTES_MAX, error);
}

static bool
is_of_vmodel(enum mesh_order_kind kind)
{
    return kind == MESH_SET_VMODEL || kind == MESH_DELETE_VMODEL || kind == MESH_VMODEL_STATUS;
}

static enum status
check(const struct mesh_request *request, struct error *error)
{
    const struct mesh_order *order = &request->order;
    bool sets = order->kind == MESH_SET_VMODEL;
    /* For ModelMesh an empty modelInfo is none. */
    bool has_info = order->type != NULL || order->path != NULL || order->key != NULL;
    enum status status;
    if (is_of_vmodel(order->kind))
        status = check_id("vModelId", order->vmodel, "Must provide vModelId", error);
    else
        status = check_id("modelId", order->model, "must provide non-empty modelId", error);
    if (status == STATUS_OK && sets)
        status = check_target(order, error);
    if (status == STATUS_OK && (order->kind == MESH_REGISTER || has_info))
        status =
            check_id("model type", order->type, "Must provide non-empty model type string", error);
    if (status == STATUS_OK)
        status = check_length("model path", order->path, MESH_REQUEST_PATH_BYTES_MAX, error);
    if (status == STATUS_OK)
        status = check_length("model key", order->key, MESH_REQUEST_KEY_BYTES_MAX, error);
    if (status == STATUS_OK)
        status = check_length("expectedTargetModelId", order->expected, MESH_ID_BYTES_MAX, error);
    return status == STATUS_OK ? check_length("owner", order->owner, MESH_ID_BYTES_MAX, error)
                               : status;
}

enum status
mesh_request_read(enum mesh_order_kind kind, const struct wire_message *message, const char *owner,
                  struct mesh_request *request, struct error *error)
{
    *request = (struct mesh_request){.order = {.kind = kind}};
    if (message->bytes > MESH_REQUEST_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "request has %zu bytes: must be at most %d", message->bytes,
                         MESH_REQUEST_BYTES_MAX);
    /* a field costs two bytes at least, so each text's NUL finds room */
    request->texts = malloc(message->bytes + 1);
    CHECK(request->texts != NULL);
    struct mesh_request_reader reader = {request, request->texts};
    enum status status = read_fields(&reader, wire_begin(message), slots[kind], error);
    if (request->order.owner == NULL && is_of_vmodel(kind))
        request->order.owner = owner;
    return status == STATUS_OK ? check(request, error) : status;
}

void
mesh_request_fini(struct mesh_request *request)
{
    free(request->texts);
    request->texts = NULL;
}
