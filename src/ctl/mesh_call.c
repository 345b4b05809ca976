/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/mesh_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ctl/ask.h"
#include "ctl/mesh.h"
#include "ipc/control.h"

enum {
    KEY_BYTES_MAX = 65536,
    REACH_MS_MAX = 5000,
};

/* ---- options of all requests ---- */

static char *
loose(const char *text)
{
    return (char *)(uintptr_t)text;
}

static enum status
take_key(void *context, const char *value, struct error *error)
{
    struct mesh_call_settings *settings = context;
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
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: a key is a string of at most %d bytes", value + 1, KEY_BYTES_MAX);
    return STATUS_OK;
}

static enum status
on_argument(void *context, const char *value, struct error *error)
{
    struct mesh_call_settings *settings = context;
    if (settings->word_count == settings->part->word_count)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.64s\" is an unexpected argument",
                         value);
    if (value[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "an argument is empty; expected %s",
                         settings->part->wants);
    settings->words[settings->word_count++] = loose(value);
    return STATUS_OK;
}

/* ---- the requests ---- */

#define AT(field) offsetof(struct mesh_call_settings, field)
#define FLAG(name, field, help)                                                                    \
    {                                                                                              \
        name, NULL, help, .form = CTL_FLAG, .at = AT(field)                                        \
    }
#define WORD(name, value, field, help)                                                             \
    {                                                                                              \
        name, value, help, .form = CTL_WORD, .at = AT(field)                                       \
    }

#define KEY_OPTION                                                                                 \
    {                                                                                              \
        "key", "TEXT",                                                                             \
            "passed to the modelet, by convention a JSON object; @FILE reads it\n"                 \
            "from a file",                                                                         \
            .take = take_key                                                                       \
    }
#define OWNER_OPTION WORD("owner", "NAME", owner, "owner; default: the node's `vmodel_owner`")

static const struct ctl_option register_options[] = {
    WORD("type", "TYPE", type, "the type, for `type_constraints`; required"),
    KEY_OPTION,
    FLAG("load", load, "load it now, not at its first call"),
    FLAG("wait", wait, "the same, and wait until it is loaded or has failed"),
    MESH_CALL_OPTIONS(0),
};
static const struct ctl_option plain_options[] = {MESH_CALL_OPTIONS(0)};
static const struct ctl_option load_options[] = {
    FLAG("wait", wait, "wait until it is loaded or has failed"), MESH_CALL_OPTIONS(0)};
static const struct ctl_option owner_options[] = {OWNER_OPTION, MESH_CALL_OPTIONS(0)};
static const struct ctl_option set_options[] = {
    FLAG("wait", wait, "wait until it has moved, or the model could not be loaded"),
    FLAG("force", force, "move at once, even if the model is not loaded"),
    FLAG("load", load, "load the model even if the vmodel is new"),
    FLAG("update", update, "fail if the vmodel does not exist"),
    WORD("expect", "MODEL", expected, "fail if its current target is another model"),
    WORD("type", "TYPE", type, "also register the model, with this type"),
    WORD("path", "PATH", path, "with --type: the path of the model"),
    KEY_OPTION,
    FLAG("auto-delete", auto_delete, "unregister the model when no vmodel refers to it any more"),
    OWNER_OPTION,
    MESH_CALL_OPTIONS(0),
};

#define MODEL_EXITS                                                                                \
    "  0  the model is registered and has not failed to load\n"                                    \
    "  1  otherwise, or the mesh answered with an error\n"
#define VMODEL_EXITS                                                                               \
    "  0  the vmodel exists and has not failed to move\n"                                          \
    "  1  otherwise, or the mesh answered with an error\n"

static const struct mesh_part parts[] = {
    {{.name = "mesh register",
      .arguments = "[options] --type TYPE ID PATH",
      .summary = "Register a model with all nodes of the mesh",
      .about = "PATH is relative to the `root` of each node's models. Repeating it is harmless; "
               "another\n"
               "type, path or key under the same id is refused: unregister it first.\n",
      .exits = MODEL_EXITS,
      .example = "  shoalctl mesh register --type xgboost fraud-7 fraud/7 --wait\n",
      CTL_OPTIONS(register_options)},
     "register",
     2,
     "ID PATH",
     mesh_order_register},
    {{.name = "mesh unregister",
      .arguments = "[options] ID",
      .summary = "Remove a model and unload it everywhere",
      .about = "An unknown model is no error; a model that a vmodel refers to is refused.\n",
      .example = "  shoalctl mesh unregister fraud-6\n",
      CTL_OPTIONS(plain_options)},
     "unregister",
     1,
     "ID",
     mesh_order_unregister},
    {{.name = "mesh status",
      .arguments = "[options] ID",
      .summary = "Show which nodes have loaded a model, are loading it, or failed, and why",
      .exits = MODEL_EXITS,
      .example = "  shoalctl mesh status fraud-7\n",
      CTL_OPTIONS(plain_options)},
     "status",
     1,
     "ID",
     mesh_order_status},
    {{.name = "mesh load",
      .arguments = "[options] ID",
      .summary = "Load a registered model now, where there is most room",
      .exits = MODEL_EXITS,
      .example = "  shoalctl mesh load fraud-7 --wait\n",
      CTL_OPTIONS(load_options)},
     "load",
     1,
     "ID",
     mesh_order_load},
    {{.name = "mesh set-vmodel",
      .arguments = "[options] VMODEL MODEL",
      .summary = "Create a vmodel, or move it to another model",
      .about = "Its current model answers until the new one is loaded on as many nodes.\n",
      .exits = VMODEL_EXITS,
      .example = "  shoalctl mesh set-vmodel fraud fraud-7 --wait\n",
      CTL_OPTIONS(set_options)},
     "set-vmodel",
     2,
     "VMODEL MODEL",
     mesh_order_set_vmodel},
    {{.name = "mesh delete-vmodel",
      .arguments = "[options] VMODEL",
      .summary = "Delete a vmodel; its models stay, unless they were set with --auto-delete",
      .example = "  shoalctl mesh delete-vmodel fraud\n",
      CTL_OPTIONS(owner_options)},
     "delete-vmodel",
     1,
     "VMODEL",
     mesh_order_delete_vmodel},
    {{.name = "mesh vmodel",
      .arguments = "[options] VMODEL",
      .summary = "Show the model of a vmodel and its transition to another",
      .exits = VMODEL_EXITS,
      .example = "  shoalctl mesh vmodel fraud --json\n",
      CTL_OPTIONS(owner_options)},
     "vmodel",
     1,
     "VMODEL",
     mesh_order_vmodel},
};

/* ---- running a request ---- */

enum status
mesh_call_find(struct mesh_call_settings *settings, struct error *error)
{
    static const char scheme[] = "unix:";
    const char *counters = settings->counters != NULL ? settings->counters : ctl_counters_default();
    if (settings->target != NULL)
        return STATUS_OK;
    memcpy(settings->socket, scheme, sizeof(scheme));
    settings->target = settings->socket;
    return control_manage_path(counters, settings->socket + strlen(scheme),
                               sizeof(settings->socket) - strlen(scheme), error);
}

enum status
mesh_call_reach(const struct mesh_call_settings *settings, struct client *client,
                struct error *error)
{
    int64_t reach_ms = settings->timeout_ms < REACH_MS_MAX ? settings->timeout_ms : REACH_MS_MAX;
    enum status status = client_reach(client, clock_now_ns() + reach_ms * NS_PER_MS, error);
    if (status == STATUS_UNAVAILABLE && settings->target == settings->socket)
        return error_set(
            error, status,
            "no node of a mesh answers at %.200s: --counters names a node's counters file, "
            "--target the management address of another node",
            settings->target);
    return status;
}

static int
run_call(struct mesh_call_settings *settings)
{
    struct client client;
    struct error error = ERROR_NONE;
    bool good = false;
    if (mesh_call_find(settings, &error) != STATUS_OK)
        return ctl_fail(CTL_USAGE, settings->output, &error);
    rpc_init();
    enum ctl_exit code = CTL_UNREACHABLE;
    enum status status = client_open(&client, settings->target, &settings->tls, &error);
    if (status == STATUS_OK)
        status = mesh_call_reach(settings, &client, &error);
    if (status == STATUS_OK) {
        status = settings->part->call(settings, &client, &good, &error);
        code = status == STATUS_DEADLINE_EXCEEDED ? CTL_LATE : good ? CTL_OK : CTL_NEGATIVE;
        if (status != STATUS_OK)
            error_prefix(&error, "%.64s: %s", settings->words[0], status_name(status));
    }
    if (status != STATUS_OK)
        ctl_fail(code, settings->output, &error);
    client_close(&client);
    rpc_shutdown();
    return code;
}

enum status
mesh_call_check(const struct mesh_call_settings *settings, struct error *error)
{
    const struct client_tls *tls = &settings->tls;
    bool secured = tls->ca != NULL || tls->cert != NULL || tls->key != NULL || tls->name != NULL;
    if (settings->target != NULL && settings->counters != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--target and --counters exclude each other");
    if (settings->target == NULL && secured)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "TLS needs --target: the local node's socket has none");
    return STATUS_OK;
}

static enum status
check(const struct mesh_call_settings *settings, struct error *error)
{
    const struct mesh_part *part = settings->part;
    bool typed = settings->type[0] != '\0';
    if (settings->word_count < part->word_count)
        return error_set(error, STATUS_INVALID_ARGUMENT, "expected %s; see shoalctl %s --help",
                         part->wants, part->command.name);
    if (mesh_call_check(settings, error) != STATUS_OK)
        return error->status;
    if (part->call == mesh_order_register && !typed)
        return error_set(error, STATUS_INVALID_ARGUMENT, "--type is missing");
    if (part->call == mesh_order_set_vmodel && typed != (settings->path[0] != '\0'))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "--type and --path belong together: one is missing");
    if (part->call == mesh_order_set_vmodel && !typed && settings->key[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "--key needs --type and --path");
    return STATUS_OK;
}

int
mesh_call_run(int argc, char **argv)
{
    static char nothing[] = "";
    const struct mesh_part *part = parts;
    while (strcmp(part->word, argv[0]) != 0)
        part++;
    struct mesh_call_settings settings = {
        .part = part,
        .type = nothing,
        .path = nothing,
        .key = nothing,
        .owner = nothing,
        .expected = nothing,
        .timeout_ms = MESH_CALL_TIMEOUT_MS,
    };
    struct error error = ERROR_NONE;
    int code = ctl_options_read(&part->command, argc, argv, on_argument, &settings);
    if (code < 0)
        code = check(&settings, &error) == STATUS_OK ? run_call(&settings)
                                                     : ctl_fail(CTL_USAGE, settings.output, &error);
    free(settings.key_read);
    return code;
}
