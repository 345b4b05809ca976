/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl mesh: registers models with a mesh, has them loaded, moves vmodels, and says how they
 * are. Any node of the mesh will do: it is asked over gRPC, as mmesh.ModelMesh.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/json.h"
#include "ctl/mesh_print.h"

enum {
    TIMEOUT_MS = 60000,
    TIMEOUT_MS_MAX = 24 * 3600 * 1000,
    WORDS_MAX = 2,
    KEY_BYTES_MAX = 65536,
    REACH_MS_MAX = 5000,
};

struct settings {
    const struct part *part;
    char *words[WORDS_MAX]; /* ids, a path; the messages want them not const, and change none */
    size_t word_count;
    char *type, *path, *key, *owner, *expected;
    char *key_read; /* what `key` points to, if it came from a file */
    const char *target;
    struct client_tls tls;
    int64_t timeout_ms;
    bool load, wait, update, force, auto_delete, json;
};

/* One thing that can be asked. `call` prints the answer; whether all is well goes into `good`. */
struct part {
    struct ctl_command command;
    const char *word;
    size_t word_count;
    const char *wants; /* those words */
    enum status (*call)(const struct settings *settings, struct client *client, bool *good,
                        struct error *error);
};

/* ---- options, of whichever part ---- */

static char *
loose(const char *text)
{
    return (char *)(uintptr_t)text;
}

static enum status
take_key(struct settings *settings, const char *value, struct error *error)
{
    settings->key = loose(value);
    if (value[0] != '@')
        return STATUS_OK;
    FILE *file = fopen(value + 1, "re");
    if (file == NULL)
        return error_set_errno(error, "%s", value + 1);
    free(settings->key_read);
    settings->key = settings->key_read = ctl_allocate(KEY_BYTES_MAX + 1, 1);
    size_t bytes = fread(settings->key, 1, KEY_BYTES_MAX + 1, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set(error, STATUS_UNAVAILABLE, "%s: cannot be read", value + 1);
    if (bytes > KEY_BYTES_MAX || memchr(settings->key, '\0', bytes) != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: a key is a text of at most %d bytes",
                         value + 1, KEY_BYTES_MAX);
    return STATUS_OK;
}

static bool
take_flag(struct settings *settings, const char *name)
{
    const struct {
        const char *name;
        bool *flag;
    } flags[] = {
        {"load", &settings->load},   {"wait", &settings->wait},
        {"force", &settings->force}, {"update", &settings->update},
        {"json", &settings->json},   {"auto-delete", &settings->auto_delete},
    };
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++)
        if (strcmp(flags[i].name, name) == 0) {
            *flags[i].flag = true;
            return true;
        }
    return false;
}

static enum status
on_option(void *context, size_t index, const char *value, struct error *error)
{
    struct settings *settings = context;
    const char *name = settings->part->command.options[index].name;
    const struct {
        const char *name;
        char **text;
    } texts[] = {
        {"type", &settings->type},
        {"path", &settings->path},
        {"owner", &settings->owner},
        {"expect", &settings->expected},
    };
    if (take_flag(settings, name) || client_tls_take(&settings->tls, name, value))
        return STATUS_OK;
    if (strcmp(name, "target") == 0) {
        settings->target = value;
        return STATUS_OK;
    }
    if (strcmp(name, "timeout-ms") == 0)
        return ctl_read_whole(value, 1, TIMEOUT_MS_MAX, &settings->timeout_ms, error);
    if (strcmp(name, "key") == 0)
        return take_key(settings, value, error);
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        if (strcmp(texts[i].name, name) == 0)
            *texts[i].text = loose(value);
    return STATUS_OK;
}

static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct settings *settings = context;
    if (settings->word_count == settings->part->word_count)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.64s\" is one argument too many",
                         value);
    if (value[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "an argument is empty; it takes %s",
                         settings->part->wants);
    settings->words[settings->word_count++] = loose(value);
    return STATUS_OK;
}

/* ---- calls ---- */

/* NULL: it failed. To be freed with protobuf_c_message_free_unpacked. */
static void *
ask(const struct settings *settings, struct client *client, const char *method,
    const ProtobufCMessage *request, const ProtobufCMessageDescriptor *answer, struct error *error)
{
    char path[64];
    snprintf(path, sizeof(path), "/mmesh.ModelMesh/%s", method);
    size_t bytes = protobuf_c_message_get_packed_size(request);
    uint8_t *packed = ctl_allocate(bytes, 1);
    protobuf_c_message_pack(request, packed);
    void *response = NULL;
    size_t response_bytes = 0;
    enum status status = rpc_channel_call(client->channel, path, packed, bytes,
                                          clock_now_ns() + settings->timeout_ms * NS_PER_MS,
                                          &response, &response_bytes, error);
    free(packed);
    if (status == STATUS_UNIMPLEMENTED)
        error_set(error, status,
                  "the node at %.200s is in no mesh: its configuration has no `mesh`",
                  settings->target);
    if (status != STATUS_OK)
        return NULL;
    void *message = protobuf_c_message_unpack(answer, NULL, response_bytes, response);
    free(response);
    if (message == NULL)
        error_set(error, STATUS_DATA_LOSS, "the answer cannot be read");
    return message;
}

/* Prints a model's status, and lets go of it. */
static enum status
end_model(const struct settings *settings, Mmesh__ModelStatusInfo *info, bool *good,
          struct error *error)
{
    if (info == NULL)
        return error->status;
    mesh_print_model(settings->words[0], info, settings->json);
    *good = mesh_model_is_good(info);
    mmesh__model_status_info__free_unpacked(info, NULL);
    return STATUS_OK;
}

static enum status
end_vmodel(const struct settings *settings, Mmesh__VModelStatusInfo *info, bool *good,
           struct error *error)
{
    if (info == NULL)
        return error->status;
    mesh_print_vmodel(settings->words[0], info, settings->json);
    *good = mesh_vmodel_is_good(info);
    mmesh__vmodel_status_info__free_unpacked(info, NULL);
    return STATUS_OK;
}

/* The answer says nothing; `what` is what has been done. */
static enum status
end_nothing(const struct settings *settings, void *answer, const char *what, bool *good,
            struct error *error)
{
    if (answer == NULL)
        return error->status;
    protobuf_c_message_free_unpacked(answer, NULL);
    *good = true;
    if (!settings->json) {
        printf("%s is %s\n", settings->words[0], what);
        return STATUS_OK;
    }
    struct json json;
    json_init(&json, stdout);
    json_object_begin(&json);
    json_field_string(&json, "id", settings->words[0]);
    json_field_string(&json, "done", what);
    json_object_end(&json);
    putchar('\n');
    return STATUS_OK;
}

static Mmesh__ModelInfo
info_of(const struct settings *settings, char *path)
{
    Mmesh__ModelInfo info = MMESH__MODEL_INFO__INIT;
    info.type = settings->type;
    info.path = path;
    info.key = settings->key;
    return info;
}

static enum status
call_register(const struct settings *settings, struct client *client, bool *good,
              struct error *error)
{
    Mmesh__RegisterModelRequest request = MMESH__REGISTER_MODEL_REQUEST__INIT;
    Mmesh__ModelInfo info = info_of(settings, settings->words[1]);
    request.modelid = settings->words[0];
    request.modelinfo = &info;
    request.loadnow = settings->load || settings->wait;
    request.sync = settings->wait;
    return end_model(settings,
                     ask(settings, client, "registerModel", &request.base,
                         &mmesh__model_status_info__descriptor, error),
                     good, error);
}

static enum status
call_unregister(const struct settings *settings, struct client *client, bool *good,
                struct error *error)
{
    Mmesh__UnregisterModelRequest request = MMESH__UNREGISTER_MODEL_REQUEST__INIT;
    request.modelid = settings->words[0];
    return end_nothing(settings,
                       ask(settings, client, "unregisterModel", &request.base,
                           &mmesh__unregister_model_response__descriptor, error),
                       "not registered", good, error);
}

static enum status
call_status(const struct settings *settings, struct client *client, bool *good, struct error *error)
{
    Mmesh__GetStatusRequest request = MMESH__GET_STATUS_REQUEST__INIT;
    request.modelid = settings->words[0];
    return end_model(settings,
                     ask(settings, client, "getModelStatus", &request.base,
                         &mmesh__model_status_info__descriptor, error),
                     good, error);
}

static enum status
call_load(const struct settings *settings, struct client *client, bool *good, struct error *error)
{
    Mmesh__EnsureLoadedRequest request = MMESH__ENSURE_LOADED_REQUEST__INIT;
    request.modelid = settings->words[0];
    request.sync = settings->wait;
    return end_model(settings,
                     ask(settings, client, "ensureLoaded", &request.base,
                         &mmesh__model_status_info__descriptor, error),
                     good, error);
}

static enum status
call_set_vmodel(const struct settings *settings, struct client *client, bool *good,
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

static enum status
call_delete_vmodel(const struct settings *settings, struct client *client, bool *good,
                   struct error *error)
{
    Mmesh__DeleteVModelRequest request = MMESH__DELETE_VMODEL_REQUEST__INIT;
    request.vmodelid = settings->words[0];
    request.owner = settings->owner;
    return end_nothing(settings,
                       ask(settings, client, "deleteVModel", &request.base,
                           &mmesh__delete_vmodel_response__descriptor, error),
                       "no vmodel", good, error);
}

static enum status
call_vmodel(const struct settings *settings, struct client *client, bool *good, struct error *error)
{
    Mmesh__GetVModelStatusRequest request = MMESH__GET_VMODEL_STATUS_REQUEST__INIT;
    request.vmodelid = settings->words[0];
    request.owner = settings->owner;
    return end_vmodel(settings,
                      ask(settings, client, "getVModelStatus", &request.base,
                          &mmesh__vmodel_status_info__descriptor, error),
                      good, error);
}

/* ---- the parts ---- */

#define COMMON_OPTIONS                                                                             \
    {"target", "ADDRESS", "any node of the mesh; default $SHOAL_TARGET, else 127.0.0.1:8033"},     \
        CLIENT_TLS_CA, CLIENT_TLS_CERT, CLIENT_TLS_KEY, CLIENT_TLS_NAME,                           \
        {"timeout-ms", "N", "how long to wait; default 60000. What was begun goes on"},            \
    {                                                                                              \
        "json", NULL, "one line of JSON"                                                           \
    }
#define MODEL_OPTIONS                                                                              \
    {                                                                                              \
        "key", "TEXT",                                                                             \
            "what the modelet is to know, by convention a JSON object; @FILE: what\n"              \
            "stands there"                                                                         \
    }
#define OWNER_OPTION                                                                               \
    {                                                                                              \
        "owner", "NAME", "whose it is; default: the node's `vmodel_owner`"                         \
    }

static const struct ctl_option register_options[] = {
    {"type", "TYPE", "what `type_constraints` go by; must be given"},
    MODEL_OPTIONS,
    {"load", NULL, "load it now, not when it is first called"},
    {"wait", NULL, "the same, and wait until it is loaded, or has failed"},
    COMMON_OPTIONS,
};
static const struct ctl_option plain_options[] = {COMMON_OPTIONS};
static const struct ctl_option load_options[] = {
    {"wait", NULL, "wait until it is loaded, or has failed"}, COMMON_OPTIONS};
static const struct ctl_option owner_options[] = {OWNER_OPTION, COMMON_OPTIONS};
static const struct ctl_option set_options[] = {
    {"wait", NULL, "wait until it has gone over, or the model could not be loaded"},
    {"force", NULL, "go over at once, whether the model is loaded or not"},
    {"load", NULL, "load the model also if the vmodel is new"},
    {"update", NULL, "fail if there is no such vmodel"},
    {"expect", "MODEL", "fail if its target is another one now"},
    {"type", "TYPE", "register the model with it: its type"},
    {"path", "PATH", "with --type: where it lies"},
    MODEL_OPTIONS,
    {"auto-delete", NULL, "unregister the model when no vmodel refers to it any more"},
    OWNER_OPTION,
    COMMON_OPTIONS,
};

#define OPTIONS(table) .options = (table), .option_count = ARRAY_COUNT(table)
#define MODEL_EXITS                                                                                \
    "  0  it is registered, and has not failed to load\n"                                          \
    "  1  it is not, or the mesh answered with an error\n"
#define VMODEL_EXITS                                                                               \
    "  0  there is such a vmodel, and it has not failed to go over\n"                              \
    "  1  otherwise, or the mesh answered with an error\n"

static const struct part parts[] = {
    {{.name = "mesh register",
      .arguments = "[options] --type TYPE ID PATH",
      .summary = "Make a model known to all nodes of the mesh",
      .about = "PATH is beneath the `root` of each node's models. The same again is fine; another\n"
               "type, path or key under the same id is refused: unregister it first.\n",
      .exits = MODEL_EXITS,
      .example = "  shoalctl mesh register --type xgboost fraud-7 fraud/7 --wait\n",
      OPTIONS(register_options)},
     "register",
     2,
     "ID PATH",
     call_register},
    {{.name = "mesh unregister",
      .arguments = "[options] ID",
      .summary = "Forget a model, and have it unloaded everywhere",
      .about = "One that is not known is fine; one that a vmodel refers to is refused.\n",
      .example = "  shoalctl mesh unregister fraud-6\n",
      OPTIONS(plain_options)},
     "unregister",
     1,
     "ID",
     call_unregister},
    {{.name = "mesh status",
      .arguments = "[options] ID",
      .summary = "Say which nodes have a model, are loading it, or could not, and why",
      .exits = MODEL_EXITS,
      .example = "  shoalctl mesh status fraud-7\n",
      OPTIONS(plain_options)},
     "status",
     1,
     "ID",
     call_status},
    {{.name = "mesh load",
      .arguments = "[options] ID",
      .summary = "Load a registered model now, where there is most room",
      .exits = MODEL_EXITS,
      .example = "  shoalctl mesh load fraud-7 --wait\n",
      OPTIONS(load_options)},
     "load",
     1,
     "ID",
     call_load},
    {{.name = "mesh set-vmodel",
      .arguments = "[options] VMODEL MODEL",
      .summary = "Make a vmodel, or have it go over to another model",
      .about = "The model that it has now answers until the new one is loaded as widely.\n",
      .exits = VMODEL_EXITS,
      .example = "  shoalctl mesh set-vmodel fraud fraud-7 --wait\n",
      OPTIONS(set_options)},
     "set-vmodel",
     2,
     "VMODEL MODEL",
     call_set_vmodel},
    {{.name = "mesh delete-vmodel",
      .arguments = "[options] VMODEL",
      .summary = "Delete a vmodel; its models stay, unless they were set with --auto-delete",
      .example = "  shoalctl mesh delete-vmodel fraud\n",
      OPTIONS(owner_options)},
     "delete-vmodel",
     1,
     "VMODEL",
     call_delete_vmodel},
    {{.name = "mesh vmodel",
      .arguments = "[options] VMODEL",
      .summary = "Say which model a vmodel has, and whether it goes over to another",
      .exits = VMODEL_EXITS,
      .example = "  shoalctl mesh vmodel fraud --json\n",
      OPTIONS(owner_options)},
     "vmodel",
     1,
     "VMODEL",
     call_vmodel},
};

/* ---- running one ---- */

static int
run_call(const struct settings *settings)
{
    struct client client;
    struct error error = ERROR_NONE;
    int64_t reach_ms = settings->timeout_ms < REACH_MS_MAX ? settings->timeout_ms : REACH_MS_MAX;
    bool good = false;
    rpc_init();
    enum ctl_exit code = CTL_UNREACHABLE;
    enum status status = client_open(&client, settings->target, &settings->tls, &error);
    if (status == STATUS_OK)
        status = client_reach(&client, clock_now_ns() + reach_ms * NS_PER_MS, &error);
    if (status == STATUS_OK) {
        status = settings->part->call(settings, &client, &good, &error);
        code = status == STATUS_DEADLINE_EXCEEDED ? CTL_LATE : good ? CTL_OK : CTL_NEGATIVE;
        if (status != STATUS_OK)
            error_prefix(&error, "%.64s: %s", settings->words[0], status_name(status));
    }
    if (status != STATUS_OK)
        ctl_fail(code, settings->json, &error);
    client_close(&client);
    rpc_shutdown();
    return code;
}

static enum status
check(const struct settings *settings, struct error *error)
{
    const struct part *part = settings->part;
    bool typed = settings->type[0] != '\0';
    if (settings->word_count < part->word_count)
        return error_set(error, STATUS_INVALID_ARGUMENT, "it takes %s; see shoalctl %s --help",
                         part->wants, part->command.name);
    if (part->call == call_register && !typed)
        return error_set(error, STATUS_INVALID_ARGUMENT, "--type is missing: of what type is it?");
    if (part->call == call_set_vmodel && typed != (settings->path[0] != '\0'))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--type and --path register the model together: one is missing");
    if (part->call == call_set_vmodel && !typed && settings->key[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "--key needs --type and --path");
    return STATUS_OK;
}

static int
run_part(const struct part *part, int argc, char **argv)
{
    static char nothing[] = "";
    struct settings settings = {
        .part = part,
        .type = nothing,
        .path = nothing,
        .key = nothing,
        .owner = nothing,
        .expected = nothing,
        .target = ctl_target_default(),
        .timeout_ms = TIMEOUT_MS,
    };
    struct ctl_reader reader = {on_option, on_argument, &settings};
    struct error error = ERROR_NONE;
    int code = ctl_options_read(&part->command, &reader, argc, argv);
    if (code < 0)
        code = check(&settings, &error) == STATUS_OK ? run_call(&settings)
                                                     : ctl_fail(CTL_USAGE, settings.json, &error);
    free(settings.key_read);
    return code;
}

static enum status
unknown_part(void *context, const char *value, struct error *error)
{
    const char *words[ARRAY_COUNT(parts)];
    (void)context;
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        words[i] = parts[i].word;
    const char *nearest = ctl_nearest(value, words, ARRAY_COUNT(parts));
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is nothing it does%s%s", value,
                     nearest != NULL ? ": meant " : "", nearest != NULL ? nearest : "");
}

static enum status
no_option(void *context, size_t index, const char *value, struct error *error)
{
    (void)context;
    (void)index;
    (void)value;
    return error_set(error, STATUS_INVALID_ARGUMENT, "takes no option");
}

static int
mesh_run(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < ARRAY_COUNT(parts); i++)
        if (strcmp(argv[1], parts[i].word) == 0)
            return run_part(&parts[i], argc - 1, argv + 1);
    struct ctl_reader reader = {no_option, unknown_part, NULL};
    int code = ctl_options_read(&mesh_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    fprintf(stderr, "shoalctl mesh: say what; see shoalctl mesh --help\n");
    return CTL_USAGE;
}

const struct ctl_command mesh_command = {
    .name = "mesh",
    .arguments = "register|unregister|status|load|set-vmodel|delete-vmodel|vmodel [options] ...",
    .summary = "Manage the models and vmodels of a mesh, through any of its nodes",
    .about = "  register ID PATH         makes a model known to all nodes\n"
             "  unregister ID            forgets it\n"
             "  status ID                says which nodes have it, or why they have not\n"
             "  load ID                  loads it now\n"
             "  set-vmodel VMODEL MODEL  makes a vmodel, or has it go over to another model\n"
             "  delete-vmodel VMODEL     deletes it\n"
             "  vmodel VMODEL            says which model it has\n\n"
             "Each has a --help of its own.\n",
    .example = "  shoalctl mesh register --type xgboost fraud-7 fraud/7\n"
               "  shoalctl mesh set-vmodel fraud fraud-7 --wait\n",
    .run = mesh_run,
};
