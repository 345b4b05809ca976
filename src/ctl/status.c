/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl status: whether a node is live and ready, and which parts are not. It reads the node's
 * counters file, asks the node itself, or both; everything is collected before anything is printed.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/client.h"
#include "ctl/ctl.h"
#include "ctl/datatype.h"
#include "ctl/figure.h"
#include "ctl/oldest.h"
#include "ctl/report.h"
#include "ipc/snapshot_json.h"
#include "ipc/sandbox.h"
#include "ipc/snapshot.h"

#define POLL_NS (20LL * NS_PER_MS)

enum { MODELS_MAX = 1024 };

struct status_settings {
    const char *target; /* NULL: do not ask */
    struct client_tls tls;
    const char *counters; /* NULL: the default one, if it exists and the node is local */
    const char *counters_default;
    const char *models[MODELS_MAX]; /* named by the user; none: those in the file */
    size_t model_count;
    int64_t wait_ns;
    int64_t timeout_ms;
    enum ctl_output output;
};

#define AT(field) offsetof(struct status_settings, field)

static const struct ctl_option options[] = {
    {"target", "ADDRESS", "also ask the node at this address: unix:/path or host:port",
     .form = CTL_WORD, .at = AT(target)},
    CLIENT_TLS_OPTIONS(AT(tls)),
    {"counters", "PATH",
     "the node's counters file; default /run/shoal/counters for root, else\n"
     "$XDG_RUNTIME_DIR/shoal/counters or /tmp/shoal-<uid>/counters",
     .form = CTL_WORD, .at = AT(counters)},
    {"wait-ready", "SECONDS", "wait until the node and all models in question are ready",
     .form = CTL_SECONDS, .at = AT(wait_ns)},
    {"timeout-ms", "N", "how long the node may take to answer; default 5000", .form = CTL_WHOLE,
     .at = AT(timeout_ms), .most = 86400000},
    {"json", NULL, "one line of JSON", .form = CTL_AS_JSON, .at = AT(output)},
};

/* The collected state. */
struct status_model {
    const char *name; /* owned by the settings or the snapshot */
    bool ready;
    char why[96]; /* why it is not ready, or not quite */
};

struct status_look {
    const char *path;         /* NULL: no file was read */
    struct snapshot snapshot; /* empty if it could not be read */
    struct error file_error;

    struct error target_error; /* UNAVAILABLE: no node there */
    bool live;
    bool ready;
    Inference__ServerMetadataResponse *metadata;

    struct status_model *models;
    size_t model_count;
};

/* ---- asking the node ---- */

struct status_asked {
    struct client *client;
    int64_t deadline_ns;
};

/* Makes one of the small calls. NULL: it failed with `error`. */
static void *
ask(const struct status_asked *asked, const char *path, const ProtobufCMessage *request,
    const ProtobufCMessageDescriptor *answer, struct error *error)
{
    void *message = client_ask(asked->client, path, request, answer, asked->deadline_ns, error);
    if (message == NULL)
        error_prefix(error, "%s: %s", path + strlen(CLIENT_SERVICE), status_name(error->status));
    return message;
}

static bool
ask_ready(const struct status_asked *asked, struct error *error)
{
    Inference__ServerReadyRequest request = INFERENCE__SERVER_READY_REQUEST__INIT;
    Inference__ServerReadyResponse *answer =
        ask(asked, CLIENT_SERVICE "ServerReady", &request.base,
            &inference__server_ready_response__descriptor, error);
    bool ready = answer != NULL && answer->ready;
    inference__server_ready_response__free_unpacked(answer, NULL);
    return ready;
}

static bool
ask_live(const struct status_asked *asked, struct error *error)
{
    Inference__ServerLiveRequest request = INFERENCE__SERVER_LIVE_REQUEST__INIT;
    Inference__ServerLiveResponse *answer =
        ask(asked, CLIENT_SERVICE "ServerLive", &request.base,
            &inference__server_live_response__descriptor, error);
    bool live = answer != NULL && answer->live;
    inference__server_live_response__free_unpacked(answer, NULL);
    return live;
}

static void
ask_model(const struct status_asked *asked, struct status_model *model)
{
    struct error error = ERROR_NONE;
    Inference__ModelReadyRequest request = INFERENCE__MODEL_READY_REQUEST__INIT;
    request.name = (char *)(uintptr_t)model->name;
    Inference__ModelReadyResponse *answer =
        ask(asked, CLIENT_SERVICE "ModelReady", &request.base,
            &inference__model_ready_response__descriptor, &error);
    model->ready = answer != NULL && answer->ready;
    snprintf(model->why, sizeof model->why, "%.95s",
             error.status != STATUS_OK ? error.text
             : model->ready            ? ""
                                       : "not ready");
    inference__model_ready_response__free_unpacked(answer, NULL);
}

static void
look_at_target(struct status_look *look, struct client *client, int64_t deadline_ns)
{
    struct error *error = &look->target_error;
    struct status_asked asked = {client, deadline_ns};
    Inference__ServerMetadataRequest metadata = INFERENCE__SERVER_METADATA_REQUEST__INIT;
    if (client_reach(client, deadline_ns, error) != STATUS_OK)
        return;
    look->live = ask_live(&asked, error);
    if (error->status == STATUS_OK)
        look->ready = ask_ready(&asked, error);
    if (error->status == STATUS_OK)
        look->metadata = ask(&asked, CLIENT_SERVICE "ServerMetadata", &metadata.base,
                             &inference__server_metadata_response__descriptor, error);
    for (size_t i = 0; i < look->model_count && error->status == STATUS_OK; i++)
        ask_model(&asked, &look->models[i]);
}

/* ---- reading the file ---- */

static const struct snapshot_scope *
pipeline_named(const struct snapshot *snapshot, const char *name)
{
    for (const struct snapshot_scope *scope = NULL;
         (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;)
        if (strcmp(scope->name, name) == 0)
            return scope;
    return NULL;
}

/* The name of a quarantined stage; NULL: none. */
static const char *
quarantined_stage(const struct snapshot *snapshot, const struct snapshot_scope *pipeline)
{
    uint32_t parent = snapshot_index(snapshot, pipeline);
    for (const struct snapshot_scope *stage = NULL;
         (stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL;)
        if (snapshot_value(stage, STAGE_QUARANTINED) != 0)
            return stage->name;
    return NULL;
}

/* Collects the models to examine and their state in the file. */
static void
models_list(struct status_look *look, const struct status_settings *settings)
{
    const struct snapshot *snapshot = &look->snapshot;
    look->models =
        ctl_allocate(settings->model_count + snapshot->scope_count, sizeof *look->models);
    for (size_t i = 0; i < settings->model_count; i++)
        look->models[look->model_count++].name = settings->models[i];
    if (settings->model_count == 0)
        for (const struct snapshot_scope *scope = NULL;
             (scope = snapshot_next(snapshot, SCOPE_PIPELINE, 0, scope)) != NULL;)
            look->models[look->model_count++].name = scope->name;
    for (size_t i = 0; i < look->model_count && snapshot->scopes != NULL; i++) {
        struct status_model *model = &look->models[i];
        const struct snapshot_scope *scope = pipeline_named(snapshot, model->name);
        model->ready = scope != NULL && snapshot_pipeline_ready(snapshot, scope);
        const char *quarantined = scope == NULL ? NULL : quarantined_stage(snapshot, scope);
        const char *why = "";
        if (scope == NULL)
            why = "not configured";
        else if (!snapshot->live)
            why = "the node is dead";
        else if (!model->ready)
            why = "a stage has no worker, or the node is not ready";
        else if (snapshot_value(scope, PIPELINE_MODELS_OUTDATED) > 0)
            why = "serves an old version: see `shoalctl model list`";
        if (quarantined != NULL && snapshot->live)
            snprintf(model->why, sizeof model->why, "stage \"%s\" is quarantined", quarantined);
        else
            snprintf(model->why, sizeof model->why, "%s", why);
    }
}

static bool
target_is_here(const char *target)
{
    static const char *const here[] = {"unix:", "localhost:", "127.", "[::1]:", "ipv4:127."};
    for (size_t i = 0; i < ARRAY_COUNT(here); i++)
        if (strncmp(target, here[i], strlen(here[i])) == 0)
            return true;
    return false;
}

static void
look_take(struct status_look *look, const struct status_settings *settings, struct client *client,
          int64_t deadline_ns)
{
    *look = (struct status_look){0};
    if (settings->counters != NULL) {
        look->path = settings->counters;
    } else if (settings->target == NULL || (target_is_here(settings->target) &&
                                            access(settings->counters_default, R_OK) == 0)) {
        look->path = settings->counters_default;
    }
    if (look->path != NULL &&
        snapshot_read(&look->snapshot, look->path, &look->file_error) != STATUS_OK)
        look->snapshot = (struct snapshot){0};
    models_list(look, settings);
    if (client != NULL)
        look_at_target(look, client, deadline_ns);
}

static void
look_free(struct status_look *look)
{
    snapshot_free(&look->snapshot);
    if (look->metadata != NULL)
        inference__server_metadata_response__free_unpacked(look->metadata, NULL);
    free(look->models);
    *look = (struct status_look){0};
}

/* ---- the verdict ---- */

static bool
all_ready(const struct status_look *look, const struct status_settings *settings)
{
    if (look->file_error.status != STATUS_OK || look->target_error.status != STATUS_OK)
        return false;
    if (look->path != NULL && (!look->snapshot.live || look->snapshot.state != NODE_READY))
        return false;
    if (settings->target != NULL && (!look->live || !look->ready))
        return false;
    for (size_t i = 0; i < look->model_count; i++)
        if (!look->models[i].ready)
            return false;
    return true;
}

static enum ctl_exit
verdict(const struct status_look *look, const struct status_settings *settings)
{
    if (look->target_error.status == STATUS_DEADLINE_EXCEEDED)
        return CTL_LATE;
    if (look->file_error.status != STATUS_OK || look->target_error.status == STATUS_UNAVAILABLE)
        return CTL_UNREACHABLE;
    return all_ready(look, settings) ? CTL_OK : CTL_NEGATIVE;
}

/* ---- printing ---- */

static const char *
worker_state(const struct snapshot *snapshot, const struct snapshot_scope *stage,
             const struct snapshot_scope *worker)
{
    if (snapshot_value(worker, WORKER_PID) == 0)
        return snapshot_value(stage, STAGE_QUARANTINED) != 0 ? "quarantined" : "none";
    if (!snapshot->live)
        return "gone";
    return snapshot_value(worker, WORKER_HEARTBEAT) == 0 ? "starting" : "up";
}

/* Parts that the worker's sandbox should have and lacks. */
static uint32_t
sandbox_missing(const struct snapshot_scope *worker)
{
    return sandbox_parts((uint32_t)snapshot_value(worker, WORKER_SANDBOX_ALLOW)) &
           ~(uint32_t)snapshot_value(worker, WORKER_SANDBOX);
}

/* No worker has reported its sandbox yet. */
static bool
sandbox_unknown(const struct snapshot_scope *worker)
{
    return snapshot_value(worker, WORKER_SANDBOX_ALLOW) == 0 &&
           snapshot_value(worker, WORKER_SANDBOX) == 0;
}

/* "a,b": the names of the bits that are set; `room` fits all of them. */
static void
bits_text(uint64_t bits, const char *(*name)(uint32_t index), uint32_t count, char *text,
          size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used < room; i++)
        if (bits & UINT64_C(1) << i)
            used +=
                (size_t)snprintf(text + used, room - used, "%s%s", used > 0 ? "," : "", name(i));
}

/* "whole", "allows files", "lacks landlock_files": one word in the usual case. */
static void
sandbox_add(struct figure_table *table, const struct snapshot_scope *worker)
{
    char allows[128];
    char lacks[256];
    uint64_t allow = snapshot_value(worker, WORKER_SANDBOX_ALLOW);
    bits_text(allow, sandbox_allow_name, SANDBOX_ALLOW_COUNT, allows, sizeof allows);
    bits_text(sandbox_missing(worker), sandbox_part_name, SANDBOX_PART_COUNT, lacks, sizeof lacks);
    if (sandbox_unknown(worker))
        table_add(table, "-");
    else if (allow & SANDBOX_ALLOW_ALL)
        table_add(table, "off");
    else if (allows[0] == '\0' && lacks[0] == '\0')
        table_add(table, "whole");
    else
        table_add(table, "%s%s%s%s%s", allows[0] != '\0' ? "allows " : "", allows,
                  allows[0] != '\0' && lacks[0] != '\0' ? "; " : "",
                  lacks[0] != '\0' ? "lacks " : "", lacks);
}

static void
bits_array(struct json *json, const char *key, uint64_t bits, const char *(*name)(uint32_t index),
           uint32_t count)
{
    json_field_open(json, key, '[');
    for (uint32_t i = 0; i < count; i++)
        if (bits & UINT64_C(1) << i)
            json_put_string(json, name(i));
    json_close(json, ']');
}

static void
sandbox_json(struct json *json, const struct snapshot_scope *worker)
{
    if (sandbox_unknown(worker))
        return;
    json_field_open(json, "sandbox", '{');
    bits_array(json, "allows", snapshot_value(worker, WORKER_SANDBOX_ALLOW), sandbox_allow_name,
               SANDBOX_ALLOW_COUNT);
    bits_array(json, "in_force", snapshot_value(worker, WORKER_SANDBOX), sandbox_part_name,
               SANDBOX_PART_COUNT);
    bits_array(json, "lacks", sandbox_missing(worker), sandbox_part_name, SANDBOX_PART_COUNT);
    json_close(json, '}');
}

/* Calls `each` for every worker of the node. */
static void
workers_visit(const struct snapshot *snapshot,
              void (*each)(void *context, const struct snapshot_scope *pipeline,
                           const struct snapshot_scope *stage, const struct snapshot_scope *worker),
              void *context)
{
    const struct snapshot_scope *pipeline = NULL;
    while ((pipeline = snapshot_next(snapshot, SCOPE_PIPELINE, 0, pipeline)) != NULL) {
        const struct snapshot_scope *stage = NULL;
        uint32_t parent = snapshot_index(snapshot, pipeline);
        while ((stage = snapshot_next(snapshot, SCOPE_STAGE, parent, stage)) != NULL) {
            const struct snapshot_scope *worker = NULL;
            uint32_t index = snapshot_index(snapshot, stage);
            while ((worker = snapshot_next(snapshot, SCOPE_WORKER, index, worker)) != NULL)
                each(context, pipeline, stage, worker);
        }
    }
}

struct workers_context {
    const struct snapshot *snapshot;
    struct figure_table *table;
    struct json *json;
};

static void
worker_row(void *context, const struct snapshot_scope *pipeline, const struct snapshot_scope *stage,
           const struct snapshot_scope *worker)
{
    const struct workers_context *self = context;
    const char *state = worker_state(self->snapshot, stage, worker);
    int64_t heartbeat_ns = (int64_t)snapshot_value(worker, WORKER_HEARTBEAT);
    table_add(self->table, "%s", pipeline->name);
    table_add(self->table, "%s", stage->name);
    table_add(self->table, "%s", worker->name);
    table_add(self->table, "%s", state);
    table_add(self->table, "%" PRIu64, snapshot_value(worker, WORKER_PID));
    if (heartbeat_ns == 0)
        table_add(self->table, "-");
    else
        table_add_duration(self->table, snapshot_age_ns(self->snapshot, heartbeat_ns));
    table_add_count(self->table, snapshot_value(stage, STAGE_RESTARTS));
    sandbox_add(self->table, worker);
}

static void
worker_object(void *context, const struct snapshot_scope *pipeline,
              const struct snapshot_scope *stage, const struct snapshot_scope *worker)
{
    const struct workers_context *self = context;
    struct json *json = self->json;
    int64_t heartbeat_ns = (int64_t)snapshot_value(worker, WORKER_HEARTBEAT);
    json_open(json, '{');
    json_field_string(json, "pipeline", pipeline->name);
    json_field_string(json, "stage", stage->name);
    json_field_string(json, "worker", worker->name);
    json_field_string(json, "state", worker_state(self->snapshot, stage, worker));
    json_field_uint(json, "pid", snapshot_value(worker, WORKER_PID));
    if (heartbeat_ns != 0)
        json_field_int(json, "heartbeat_age_ns", snapshot_age_ns(self->snapshot, heartbeat_ns));
    json_field_uint(json, "stage_restarts", snapshot_value(stage, STAGE_RESTARTS));
    sandbox_json(json, worker);
    json_close(json, '}');
}

static void
target_print(const struct status_look *look, const struct status_settings *settings)
{
    const Inference__ServerMetadataResponse *metadata = look->metadata;
    printf("target %s  ", settings->target);
    if (look->target_error.status != STATUS_OK) {
        puts(look->target_error.text);
        return;
    }
    printf("%s, %s", look->live ? "live" : "not live", look->ready ? "ready" : "not ready");
    if (metadata != NULL) {
        fputs(", server ", stdout);
        text_print(metadata->name, strlen(metadata->name), stdout);
        fputs(" version ", stdout);
        text_print(metadata->version, strlen(metadata->version), stdout);
        for (size_t i = 0; i < metadata->n_extensions; i++) {
            fputs(i == 0 ? ", extensions " : " ", stdout);
            text_print(metadata->extensions[i], strlen(metadata->extensions[i]), stdout);
        }
    }
    putchar('\n');
}

static bool
registry_is_full(const struct status_look *look)
{
    return snapshot_value(&look->snapshot.scopes[0], NODE_MESH_STORE_FULL) != 0;
}

static void
look_print(const struct status_look *look, const struct status_settings *settings)
{
    static const char *const worker_headings[] = {"pipeline",       "stage",   "worker",
                                                  "state",          "pid",     "heartbeat",
                                                  "stage restarts", "sandbox", NULL};
    if (look->snapshot.scopes != NULL) {
        fputs("node   ", stdout);
        report_node_line(&look->snapshot, stdout);
        if (registry_is_full(look))
            puts("mesh   etcd refuses writes for lack of space: free it (docs/operating.md)");
    }
    if (look->path != NULL)
        printf("file   %s\n",
               look->file_error.status == STATUS_OK ? look->path : look->file_error.text);
    if (settings->target != NULL)
        target_print(look, settings);
    for (size_t i = 0; i < look->model_count; i++) {
        const struct status_model *model = &look->models[i];
        const char *link = model->ready && model->why[0] != '\0' ? ", but " : "";
        printf("model  %s  %s%s%s\n", model->name, model->ready ? "ready" : "", link, model->why);
    }
    if (look->snapshot.scopes != NULL) {
        struct figure_table table;
        struct workers_context context = {.snapshot = &look->snapshot, .table = &table};
        table_init(&table, 4, worker_headings);
        workers_visit(&look->snapshot, worker_row, &context);
        putchar('\n');
        table_print(&table, stdout);
        table_free(&table);
        oldest_print(&look->snapshot, stdout);
    }
}

static void
target_json(const struct status_look *look, const struct status_settings *settings,
            struct json *json)
{
    json_field_open(json, "target", '{');
    json_field_string(json, "address", settings->target);
    json_field_bool(json, "live", look->live);
    json_field_bool(json, "ready", look->ready);
    if (look->target_error.status != STATUS_OK)
        json_field_string(json, "error", look->target_error.text);
    if (look->metadata != NULL) {
        json_field_string(json, "name", look->metadata->name);
        json_field_string(json, "version", look->metadata->version);
        json_field_open(json, "extensions", '[');
        for (size_t i = 0; i < look->metadata->n_extensions; i++)
            json_put_string(json, look->metadata->extensions[i]);
        json_close(json, ']');
    }
    json_close(json, '}');
}

static void
node_json(const struct status_look *look, struct json *json)
{
    json_field_open(json, "node", '{');
    json_field_string(json, "path", look->path);
    if (look->file_error.status != STATUS_OK)
        json_field_string(json, "error", look->file_error.text);
    else
        snapshot_node_json(&look->snapshot, json);
    if (look->snapshot.scopes != NULL)
        json_field_bool(json, "registry_full", registry_is_full(look));
    json_close(json, '}');
}

static void
look_json(const struct status_look *look, const struct status_settings *settings)
{
    struct bytes line = {0};
    struct json json = json_begin(&line, JSON_STYLE_SPACED);
    struct workers_context context = {.snapshot = &look->snapshot, .json = &json};
    json_open(&json, '{');
    json_field_bool(&json, "ready", all_ready(look, settings));
    if (look->path != NULL)
        node_json(look, &json);
    if (settings->target != NULL)
        target_json(look, settings, &json);
    json_field_open(&json, "models", '[');
    for (size_t i = 0; i < look->model_count; i++) {
        json_open(&json, '{');
        json_field_string(&json, "name", look->models[i].name);
        json_field_bool(&json, "ready", look->models[i].ready);
        if (look->models[i].why[0] != '\0')
            json_field_string(&json, "why", look->models[i].why);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    json_field_open(&json, "workers", '[');
    workers_visit(&look->snapshot, worker_object, &context);
    json_close(&json, ']');
    json_name(&json, "oldest");
    snapshot_oldest_json(&look->snapshot, NULL, &json);
    json_close(&json, '}');
    ctl_print_line(&line, stdout);
}

/* ---- the command ---- */

static enum status
on_argument(void *given, const char *value, struct error *error)
{
    struct status_settings *settings = given;
    if (settings->model_count == MODELS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d models", MODELS_MAX);
    settings->models[settings->model_count++] = value;
    return STATUS_OK;
}

static int
status_show(const struct status_settings *settings, struct client *client)
{
    struct status_look look;
    int64_t timeout_ns = settings->timeout_ms * NS_PER_MS;
    int64_t until_ns = settings->wait_ns > 0 ? clock_now_ns() + settings->wait_ns : 0;
    enum ctl_exit code;
    for (;;) {
        int64_t now_ns = clock_now_ns();
        int64_t call_ns = now_ns + timeout_ns;
        look_take(&look, settings, client,
                  until_ns > now_ns && until_ns < call_ns ? until_ns : call_ns);
        code = verdict(&look, settings);
        if (code == CTL_OK || clock_now_ns() >= until_ns)
            break;
        look_free(&look);
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    if (settings->output == CTL_JSON)
        look_json(&look, settings);
    else
        look_print(&look, settings);
    if (code != CTL_OK && settings->wait_ns > 0) {
        fflush(stdout);
        fprintf(stderr, "shoalctl: not ready after %.3g s\n",
                (double)settings->wait_ns / (double)NS_PER_S);
        code = CTL_LATE;
    }
    look_free(&look);
    return code;
}

static int
status_run(int argc, char **argv)
{
    struct status_settings *settings = ctl_allocate(1, sizeof *settings);
    struct client client = {0};
    struct error error = ERROR_NONE;
    settings->timeout_ms = 5000;
    settings->counters_default = ctl_counters_default();
    int code = ctl_options_read(&status_command, argc, argv, on_argument, settings);
    if (code >= 0)
        goto out;
    if (settings->target == NULL && settings->counters == NULL && getenv("SHOAL_TARGET") != NULL)
        settings->target = ctl_target_default();
    if (settings->target == NULL) {
        code = status_show(settings, NULL);
        goto out;
    }
    rpc_init();
    if (client_open(&client, settings->target, &settings->tls, &error) == STATUS_OK)
        code = status_show(settings, &client);
    else
        code = ctl_fail(CTL_UNREACHABLE, settings->output, &error);
    client_close(&client);
    rpc_shutdown();
out:
    free(settings);
    return code;
}

const struct ctl_command status_command = {
    .name = "status",
    .arguments = "[MODEL ...] [options]",
    .summary = "Show whether a node is live and ready, and which parts are not",
    .about =
        "Reads the local node's counters file, also after its death, and with --target (or\n"
        "$SHOAL_TARGET, unless --counters is given) asks the node itself. The models given as\n"
        "arguments must be ready; without any, all that the file contains. A remote node has no\n"
        "file here, so name its models.\n",
    .exits = "  0  live and ready, its models too\n"
             "  1  not ready, dead, or a model is not ready\n",
    .example = "  shoalctl status --target unix:/tmp/shoal-digits.sock --wait-ready 10\n",
    CTL_OPTIONS(options),
    .run = status_run,
};
