/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "ctl/mesh_call.h"
#include "ctl/mesh_print.h"

/* NULL: it failed. Free the result with protobuf_c_message_free_unpacked. */
static void *
ask(const struct mesh_call_settings *settings, struct client *client, const char *method,
    const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer, struct error *error)
{
    char path[64];
    snprintf(path, sizeof(path), "/mmesh.ModelMesh/%s", method);
    void *message = client_ask(client, path, request, answer,
                               clock_now_ns() + settings->timeout_ms * NS_PER_MS, error);
    if (message == NULL && error->status == STATUS_UNIMPLEMENTED &&
        strncmp(error->text, "mmesh.", strlen("mmesh.")) != 0)
        error_set(error, STATUS_UNIMPLEMENTED,
                  "the node at %.200s is in no mesh: its configuration has no `mesh`",
                  settings->target);
    return message;
}

/* Prints a model's status and frees it. */
static enum status
end_model(const struct mesh_call_settings *settings, Mmesh__ModelStatusInfo *info, bool *good,
          struct error *error)
{
    if (info == NULL)
        return error->status;
    mesh_print_model(settings->words[0], info, settings->output);
    *good = mesh_model_is_good(info);
    mmesh__model_status_info__free_unpacked(info, NULL);
    return STATUS_OK;
}

/* No load was requested, so a model that is not loaded is a success. */
static enum status
end_registered(const struct mesh_call_settings *settings, Mmesh__ModelStatusInfo *info, bool *good,
               struct error *error)
{
    bool not_loaded = info->status == MMESH__MODEL_STATUS_INFO__MODEL_STATUS__NOT_LOADED;
    printf("%s is registered%s\n", settings->words[0],
           not_loaded ? ": its first call loads it" : "");
    if (!not_loaded)
        return end_model(settings, info, good, error);
    *good = true;
    mmesh__model_status_info__free_unpacked(info, NULL);
    return STATUS_OK;
}

static enum status
end_vmodel(const struct mesh_call_settings *settings, Mmesh__VModelStatusInfo *info, bool *good,
           struct error *error)
{
    if (info == NULL)
        return error->status;
    mesh_print_vmodel(settings->words[0], info, settings->output);
    *good = mesh_vmodel_is_good(info);
    mmesh__vmodel_status_info__free_unpacked(info, NULL);
    return STATUS_OK;
}

/* The answer is empty; `what` and `done` describe the new state in JSON and as text. */
static enum status
end_nothing(const struct mesh_call_settings *settings, void *answer, const char *what,
            const char *done, bool *good, struct error *error)
{
    if (answer == NULL)
        return error->status;
    protobuf_c_message_free_unpacked(answer, NULL);
    *good = true;
    if (settings->output == CTL_TEXT) {
        printf("%s %s\n", settings->words[0], done);
        return STATUS_OK;
    }
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    json_open(&json, '{');
    json_field_string(&json, "id", settings->words[0]);
    json_field_string(&json, "done", what);
    json_close(&json, '}');
    ctl_print_line(&line, stdout);
    return STATUS_OK;
}

static Mmesh__ModelInfo
info_of(const struct mesh_call_settings *settings, char *path)
{
    Mmesh__ModelInfo info = MMESH__MODEL_INFO__INIT;
    info.type = settings->type;
    info.path = path;
    info.key = settings->key;
    return info;
}

enum status
mesh_order_register(const struct mesh_call_settings *settings, struct client *client, bool *good,
                    struct error *error)
{
    Mmesh__RegisterModelRequest request = MMESH__REGISTER_MODEL_REQUEST__INIT;
    Mmesh__ModelInfo info = info_of(settings, settings->words[1]);
    request.modelid = settings->words[0];
    request.modelinfo = &info;
    request.loadnow = settings->load || settings->wait;
    request.sync = settings->wait;
    Mmesh__ModelStatusInfo *status = ask(settings, client, "registerModel", &request.base,
                                         &mmesh__model_status_info__descriptor, error);
    if (status == NULL || settings->output == CTL_JSON || request.loadnow)
        return end_model(settings, status, good, error);
    return end_registered(settings, status, good, error);
}

enum status
mesh_order_unregister(const struct mesh_call_settings *settings, struct client *client, bool *good,
                      struct error *error)
{
    Mmesh__UnregisterModelRequest request = MMESH__UNREGISTER_MODEL_REQUEST__INIT;
    request.modelid = settings->words[0];
    return end_nothing(settings,
                       ask(settings, client, "unregisterModel", &request.base,
                           &mmesh__unregister_model_response__descriptor, error),
                       "unregistered", "is unregistered", good, error);
}

enum status
mesh_order_status(const struct mesh_call_settings *settings, struct client *client, bool *good,
                  struct error *error)
{
    Mmesh__GetStatusRequest request = MMESH__GET_STATUS_REQUEST__INIT;
    request.modelid = settings->words[0];
    return end_model(settings,
                     ask(settings, client, "getModelStatus", &request.base,
                         &mmesh__model_status_info__descriptor, error),
                     good, error);
}

enum status
mesh_order_load(const struct mesh_call_settings *settings, struct client *client, bool *good,
                struct error *error)
{
    Mmesh__EnsureLoadedRequest request = MMESH__ENSURE_LOADED_REQUEST__INIT;
    request.modelid = settings->words[0];
    request.sync = settings->wait;
    return end_model(settings,
                     ask(settings, client, "ensureLoaded", &request.base,
                         &mmesh__model_status_info__descriptor, error),
                     good, error);
}

enum status
mesh_order_set_vmodel(const struct mesh_call_settings *settings, struct client *client, bool *good,
                      struct error *error)
{
    Mmesh__SetVModelRequest request = MMESH__SET_VMODEL_REQUEST__INIT;
    Mmesh__ModelInfo info = info_of(settings, settings->path);
    request.vmodelid = settings->words[0];
    request.targetmodelid = settings->words[1];
    request.updateonly = settings->update;
    if (settings->type[0] != '\0')
        request.modelinfo = &info;
    request.autodeletetargetmodel = settings->auto_delete;
    request.loadnow = settings->load;
    request.force = settings->force;
    request.sync = settings->wait;
    request.expectedtargetmodelid = settings->expected;
    request.owner = settings->owner;
    return end_vmodel(settings,
                      ask(settings, client, "setVModel", &request.base,
                          &mmesh__vmodel_status_info__descriptor, error),
                      good, error);
}

enum status
mesh_order_delete_vmodel(const struct mesh_call_settings *settings, struct client *client,
                         bool *good, struct error *error)
{
    Mmesh__DeleteVModelRequest request = MMESH__DELETE_VMODEL_REQUEST__INIT;
    request.vmodelid = settings->words[0];
    request.owner = settings->owner;
    return end_nothing(settings,
                       ask(settings, client, "deleteVModel", &request.base,
                           &mmesh__delete_vmodel_response__descriptor, error),
                       "deleted", "is deleted", good, error);
}

enum status
mesh_order_vmodel(const struct mesh_call_settings *settings, struct client *client, bool *good,
                  struct error *error)
{
    Mmesh__GetVModelStatusRequest request = MMESH__GET_VMODEL_STATUS_REQUEST__INIT;
    request.vmodelid = settings->words[0];
    request.owner = settings->owner;
    return end_vmodel(settings,
                      ask(settings, client, "getVModelStatus", &request.base,
                          &mmesh__vmodel_status_info__descriptor, error),
                      good, error);
}
