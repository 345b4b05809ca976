/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The servers' management APIs: the model repository extension of the Open Inference Protocol,
 * which Triton and MLServer have, and TensorFlow Serving's reload of its whole list of models.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/external_wire.h"
#include "serving/adapter/inside.h"
#include "wire/wire.h"

#define OIP "inference.GRPCInferenceService/"
#define PREDICTION "tensorflow.serving.PredictionService/"

enum { METHODS_MAX = 4, ID_DEPTH_MAX = 2 };

struct api {
    const char *name;
    const char *probe;
    const char *methods[METHODS_MAX]; /* for callers */
    uint32_t id_depth;                /* the id is field 1 of field 1 … */
    bool is_serial;
};

/* MLServer is ready only while all of its models are; a broken one must not keep it away. */
static const struct api APIS[ADAPTER_TYPES] = {
    [ADAPTER_TRITON] = {"triton",
                        "/" OIP "ServerReady",
                        {OIP "ModelInfer", OIP "ModelMetadata", OIP "ModelStreamInfer"},
                        1,
                        false},
    [ADAPTER_MLSERVER] = {"mlserver",
                          "/" OIP "ServerLive",
                          {OIP "ModelInfer", OIP "ModelMetadata", OIP "ModelStreamInfer"},
                          1,
                          false},
    [ADAPTER_TFSERVING] = {"tfserving",
                           "/tensorflow.serving.ModelService/HandleReloadConfigRequest",
                           {PREDICTION "Predict", PREDICTION "Classify", PREDICTION "Regress",
                            PREDICTION "GetModelMetadata"},
                           2,
                           true},
};

static const struct api *
api_of(const struct adapter *adapter)
{
    return &APIS[adapter->server.type];
}

bool
server_has_index(const struct adapter *adapter)
{
    return adapter->server.type != ADAPTER_TFSERVING;
}

bool
server_is_serial(const struct adapter *adapter)
{
    return api_of(adapter)->is_serial;
}

/* ---- requests ---- */

static void
append_text(struct bytes *out, uint32_t number, const char *text)
{
    wire_append_run(out, number, text, strlen(text));
}

static void
append_message(struct bytes *out, uint32_t number, struct bytes *message)
{
    wire_append_run(out, number, message->data, message->used);
    bytes_fini(message);
}

/* ModelConfig: name 1, base_path 2, model_platform 4. */
static void
append_model(struct bytes *list, const struct adapter *adapter, const char *name)
{
    struct bytes model = {.data = NULL};
    append_text(&model, 1, name);
    char path[PATH_MAX + EXTERNAL_NAME_BYTES];
    snprintf(path, sizeof(path), "%s/%s", adapter->repository, name);
    append_text(&model, 2, path);
    append_text(&model, 4, "tensorflow");
    append_message(list, 1, &model);
}

/* ReloadConfigRequest {config 1 {model_config_list 1}}. An empty list must be there: a
 * configuration without one changes nothing. */
static void
write_reload(const struct adapter *adapter, const char *more, struct bytes *out)
{
    struct bytes list = {.data = NULL};
    struct bytes config = {.data = NULL};
    for (uint32_t i = 0; i < adapter->loaded.count; i++)
        append_model(&list, adapter, adapter->loaded.at[i]);
    if (more != NULL)
        append_model(&list, adapter, more);
    append_message(&config, 1, &list);
    append_message(out, 1, &config);
}

const char *
server_request(struct adapter_task *task, enum server_call call, const char *name,
               struct bytes *out)
{
    const struct api *api = api_of(task->adapter);
    if (api->is_serial) {
        write_reload(task->adapter, call == SERVER_LOAD ? name : NULL, out);
        return api->probe;
    }
    switch (call) {
    case SERVER_PROBE: return api->probe;
    case SERVER_INDEX: return "/" OIP "RepositoryIndex";
    case SERVER_LOAD: append_text(out, 2, name); return "/" OIP "RepositoryModelLoad";
    case SERVER_UNLOAD: append_text(out, 2, name); return "/" OIP "RepositoryModelUnload";
    }
    UNREACHABLE();
}

/* ---- answers ---- */

static bool
contains(const char *text, const char *part)
{
    return strstr(text, part) != NULL;
}

/* ReloadConfigResponse: status 1 {error_code 1, error_message 2}. */
static enum status
read_reload(const struct wire_message *message, struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field status;
    struct wire_field field;
    char text[ERROR_TEXT_MAX / 2] = "";
    uint64_t code = 0;
    while (wire_next(&cursor, &status) == WIRE_FIELD) {
        if (status.number != 1 || status.type != WIRE_BYTES)
            continue;
        while (wire_next(&status.data, &field) == WIRE_FIELD) {
            if (field.number == 1 && field.type == WIRE_VARINT)
                code = field.value;
            if (field.number != 2 || field.type != WIRE_BYTES)
                continue;
            size_t bytes = field.value < sizeof(text) ? (size_t)field.value : sizeof(text) - 1;
            wire_read(&field.data, text, bytes);
            text[bytes] = '\0';
        }
    }
    if (code == 0)
        return STATUS_OK;
    return error_set(error, status_from_number(code > 255 ? 255 : (long)code), "%s", text);
}

/* Translates a server's error about a model: Triton's INTERNAL and MLServer's UNKNOWN are errors
 * of the model, and repeating them changes nothing. */
static enum status
status_of(enum server_call call, enum status status, const char *text)
{
    bool is_model = call == SERVER_LOAD || call == SERVER_UNLOAD;
    if (!is_model || status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED ||
        status == STATUS_CANCELLED)
        return status;
    if (status == STATUS_INVALID_ARGUMENT && contains(text, "Model ") &&
        contains(text, " not found"))
        return STATUS_NOT_FOUND;
    if (contains(text, "out of memory") || contains(text, "bad_alloc"))
        return STATUS_RESOURCE_EXHAUSTED;
    if (call == SERVER_LOAD && (status == STATUS_INTERNAL || status == STATUS_UNKNOWN))
        return STATUS_FAILED_PRECONDITION;
    return status;
}

enum status
server_judge(const struct adapter *adapter, enum server_call call, const struct rpc_client_end *end,
             struct error *error)
{
    const struct api *api = api_of(adapter);
    enum status status = end->status;
    if (status != STATUS_OK) {
        int bytes =
            end->text.bytes < ERROR_TEXT_MAX / 2 ? (int)end->text.bytes : ERROR_TEXT_MAX / 2;
        (void)error_set(error, status, "%.*s", bytes,
                        bytes == 0 ? "" : (const char *)end->text.data);
    } else if (api->is_serial) {
        status = read_reload(end->message, error);
    } else if (call == SERVER_PROBE && !external_read_server_ready(end->message)) {
        status = error_set(error, STATUS_UNAVAILABLE, "it is not ready");
    }
    if (status == STATUS_OK)
        return STATUS_OK;
    error->status = status_of(call, status, error->text);
    return error_prefix(error, "%s", api->name);
}

/* ---- the index: models 1 {name 1, version 2, state 3} ---- */

static void
read_text(struct wire_field *field, char *text, size_t room)
{
    size_t bytes = field->value < room ? (size_t)field->value : room - 1;
    wire_read(&field->data, text, bytes);
    text[bytes] = '\0';
}

/* A state of "" or UNAVAILABLE: it is in the repository, and not loaded. MLServer's UNKNOWN: it is
 * loaded, and broken. */
static bool
read_entry(struct wire_cursor entry, struct model_names *names)
{
    struct wire_field field;
    enum wire_result result;
    char name[1024] = "";
    char state[32] = "";
    while ((result = wire_next(&entry, &field)) == WIRE_FIELD) {
        if (field.type == WIRE_BYTES && field.number == 1)
            read_text(&field, name, sizeof(name));
        else if (field.type == WIRE_BYTES && field.number == 3)
            read_text(&field, state, sizeof(state));
    }
    if (state[0] != '\0' && strcmp(state, "UNAVAILABLE") != 0) {
        model_names_remove(names, name); /* once, with several versions */
        model_names_add(names, name);
    }
    return result == WIRE_END;
}

bool
server_read_index(const struct wire_message *message, struct model_names *names)
{
    struct wire_cursor cursor = wire_begin(message);
    struct wire_field field;
    enum wire_result result;
    bool is_good = true;
    while ((result = wire_next(&cursor, &field)) == WIRE_FIELD)
        if (field.type == WIRE_BYTES && field.number == 1)
            is_good = read_entry(field.data, names) && is_good;
    return is_good && result == WIRE_END;
}

/* ---- the status for the mesh ---- */

static void
append_method(struct bytes *out, const struct api *api, const char *method)
{
    static const unsigned char path[ID_DEPTH_MAX] = {1, 1};
    struct bytes info = {.data = NULL};
    struct bytes entry = {.data = NULL};
    wire_append_run(&info, 1, path, api->id_depth);
    append_text(&entry, 1, method);
    append_message(&entry, 2, &info);
    append_message(out, 8, &entry);
}

void
server_write_status(const struct adapter *adapter, struct bytes *out)
{
    const struct adapter_server *server = &adapter->server;
    const struct api *api = api_of(adapter);
    wire_append_number(out, 1, EXTERNAL_READY);
    wire_append_number(out, 2, server->capacity_bytes);
    wire_append_number(out, 3, api->is_serial ? 1 : server->loaders);
    wire_append_number(out, 4, server->load_timeout_ms);
    wire_append_number(out, 5, server->default_bytes);
    append_text(out, 6, api->name);
    for (uint32_t i = 0; i < METHODS_MAX && api->methods[i] != NULL; i++)
        append_method(out, api, api->methods[i]);
}
