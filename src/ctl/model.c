/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl model: loads, unloads and lists the local node's models.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <shoal/modelet.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/utf8.h"
#include "ctl/row_table.h"

enum { TIMEOUT_MS = 600000 };

struct model_settings {
    struct control_request request;
    const char *state; /* of the models to list; NULL: any */
    const char *counters;
    char key[CONTROL_KEY_BYTES]; /* from a file */
    int64_t timeout_ms;
    enum ctl_output output;
};

static enum status
wants_id(void *context, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    if (settings->request.id != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "one model at a time; \"%.64s\" is an "
                         "unexpected argument",
                         value);
    return ctl_take_text(&settings->request.id, SHOAL_NAME_BYTES_MAX + 1, "a model's id", value,
                         error);
}

static enum status
wants_id_and_path(void *context, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    if (settings->request.id == NULL || settings->request.path != NULL)
        return wants_id(settings, value, error);
    return ctl_take_text(&settings->request.path, CONTROL_PATH_BYTES, "a path", value, error);
}

static enum status
take_file(struct model_settings *settings, const char *path, struct error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return error_set_errno(error, "%s", path);
    size_t bytes = fread(settings->key, 1, sizeof(settings->key), file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set(error, STATUS_UNAVAILABLE, "%s: cannot be read", path);
    if (bytes == sizeof(settings->key) || memchr(settings->key, '\0', bytes) != NULL ||
        !utf8_is_text(settings->key, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: a key is a string of at most %zu bytes", path,
                         sizeof(settings->key) - 1);
    settings->key[bytes] = '\0';
    settings->request.key = settings->key;
    return STATUS_OK;
}

static enum status
take_key(void *context, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    if (value[0] == '@')
        return take_file(settings, value + 1, error);
    return ctl_take_text(&settings->request.key, CONTROL_KEY_BYTES, "a key", value, error);
}

static enum status
take_state(void *context, const char *value, struct error *error)
{
    static const char *const states[] = {"known", "loading", "loaded", "unloading", "failed"};
    struct model_settings *settings = context;
    for (size_t i = 0; i < ARRAY_COUNT(states); i++)
        if (strcmp(states[i], value) == 0)
            settings->state = states[i];
    if (settings->state != NULL)
        return STATUS_OK;
    const char *nearest = ctl_nearest(value, states, ARRAY_COUNT(states));
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is not a state%s%s", value,
                     nearest != NULL ? ", did you mean " : "", nearest != NULL ? nearest : "");
}

/* ---- options ---- */

#define AT(field) offsetof(struct model_settings, field)
#define COUNTERS_OPTION                                                                            \
    {                                                                                              \
        "counters", "PATH", ASK_COUNTERS_HELP, .form = CTL_WORD, .at = AT(counters)                \
    }
#define TIMEOUT_OPTION(text)                                                                       \
    {                                                                                              \
        "timeout-ms", "N", text, .form = CTL_WHOLE, .at = AT(timeout_ms),                          \
                                 .most = ASK_TIMEOUT_MS_MAX                                        \
    }
#define JSON_OPTION(text)                                                                          \
    {                                                                                              \
        "json", NULL, text, .form = CTL_AS_JSON, .at = AT(output)                                  \
    }

static const struct ctl_option load_options[] = {
    {"key", "TEXT",
     "passed to the modelet, by convention a JSON object, such as\n"
     "'{\"sha256\": \"…\"}'; @FILE reads it from a file",
     .take = take_key},
    {"pipeline", "NAME", "the pipeline; default: the only one with models", .form = CTL_NAME,
     .at = AT(request.pipeline), .most = CONTROL_NAME_BYTES, .what = "a pipeline's name"},
    COUNTERS_OPTION,
    TIMEOUT_OPTION("how long to wait; default 600000. The node continues afterwards"),
    JSON_OPTION("one line of JSON"),
};

static const struct ctl_option plain_options[] = {
    COUNTERS_OPTION,
    TIMEOUT_OPTION("how long to wait; default 600000. The node continues afterwards"),
    JSON_OPTION("one line of JSON"),
};

static const struct ctl_option list_options[] = {
    {"state", "S", "only models in this state: known, loading, loaded, unloading, failed",
     .take = take_state},
    COUNTERS_OPTION,
    TIMEOUT_OPTION("how long to wait; default 600000"),
    JSON_OPTION("one line of JSON for each model"),
};

/* ---- asking ---- */

static void
show_progress(const struct model_settings *settings, const char *doing, int64_t since_ns)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "\r%s %s: %lld s", doing, settings->request.id,
                (long long)((clock_now_ns() - since_ns) / NS_PER_S));
}

static void
end_progress(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

static enum ctl_exit
wait_answer(const struct model_settings *settings, struct ctl_ask *ask, const char *doing,
            json_t **answer, struct error *error)
{
    int64_t since_ns = clock_now_ns();
    int64_t deadline_ns = since_ns + settings->timeout_ms * NS_PER_MS;
    enum ctl_exit code;
    do {
        int64_t left_ns = deadline_ns - clock_now_ns();
        code = ask_receive(ask, left_ns < NS_PER_S ? left_ns : NS_PER_S, answer, error);
        if (code == CTL_LATE)
            show_progress(settings, doing, since_ns);
    } while (code == CTL_LATE && clock_now_ns() < deadline_ns);
    end_progress();
    if (code == CTL_LATE)
        error_set(error, STATUS_DEADLINE_EXCEEDED,
                  "no answer within %lld ms; the node continues: see `shoalctl model list`",
                  (long long)settings->timeout_ms);
    return code;
}

static int
ask_and_print(const struct model_settings *settings, const char *doing)
{
    struct error error = ERROR_NONE;
    struct ctl_ask ask;
    json_t *answer = NULL;
    enum ctl_exit code = CTL_UNREACHABLE;
    if (ask_send(&ask, settings->counters, &settings->request, &error) == STATUS_OK) {
        code = wait_answer(settings, &ask, doing, &answer, &error);
        ask_close(&ask);
    }
    return ask_end(code, settings->output, answer, &error);
}

/* ---- load, unload and rollback ---- */

static const struct ctl_command load_command = {
    .name = "model load",
    .arguments = "[options] ID PATH",
    .summary = "Load a model until it is unloaded by name",
    .about = "PATH is a file or a directory below the `root` of the pipeline's `models`, relative "
             "to it\n"
             "or absolute. Returns when every worker that needs the model has loaded it. An\n"
             "interruption or time-out does not stop the load.\n",
    .exits =
        "  0  the model is loaded\n"
        "  1  it is not: the text gives the reason (the modelet's error, no room, no such path)\n",
    .example = "  shoalctl model load fraud-7 fraud/7 --key '{\"model_type\": {\"name\": "
               "\"xgboost\"}}'\n",
    CTL_OPTIONS(load_options),
};

static const struct ctl_command unload_command = {
    .name = "model unload",
    .arguments = "[options] ID",
    .summary = "Unload a model when its last request is answered",
    .about =
        "A model that its directory lists stays known and is loaded again by its next call: to\n"
        "remove it, remove it from the directory.\n",
    .exits = "  0  no worker has the model any more\n"
             "  1  the node knows no such model\n",
    .example = "  shoalctl model unload fraud-7\n",
    CTL_OPTIONS(plain_options),
};

static const struct ctl_command rollback_command = {
    .name = "model rollback",
    .arguments = "[options] ID",
    .summary = "Serve the next lower version of a model",
    .about =
        "For models with numbered versions in their folder, ID/1, ID/2, … The lower version loads\n"
        "beside the one that serves and replaces it. The higher one is passed over until its "
        "files\n"
        "change or the node restarts: remove it. Repeated, it goes back further.\n",
    .exits = "  0  the lower version is being loaded\n"
             "  1  the model has no numbered versions, or no lower one\n",
    .example = "  shoalctl model rollback fraud\n",
    CTL_OPTIONS(plain_options),
};

static const struct model_verb {
    const struct ctl_command *command;
    enum control_verb verb;
    ctl_on_argument *on_argument;
    const char *lack, *doing;
} orders[] = {
    {&load_command, CONTROL_MODEL_LOAD, wants_id_and_path,
     "the model's id and path are missing: ID PATH", "loading"},
    {&unload_command, CONTROL_MODEL_UNLOAD, wants_id, "the model's id is missing: ID", "unloading"},
    {&rollback_command, CONTROL_MODEL_ROLLBACK, wants_id, "the model's id is missing: ID",
     "rolling back"},
};

static int
order_run(int argc, char **argv)
{
    const struct model_verb *order = orders;
    while (strcmp(order->command->name + strlen("model "), argv[0]) != 0)
        order++;
    struct model_settings settings = {
        .request.verb = order->verb, .counters = ctl_counters_default(), .timeout_ms = TIMEOUT_MS};
    struct error error = ERROR_NONE;
    int code = ctl_options_read(order->command, argc, argv, order->on_argument, &settings);
    if (code >= 0)
        return code;
    bool lacks_path = order->verb == CONTROL_MODEL_LOAD && settings.request.path == NULL;
    if (settings.request.id == NULL || lacks_path) {
        error_set(&error, STATUS_INVALID_ARGUMENT, "%s; see shoalctl %s --help", order->lack,
                  order->command->name);
        return ctl_fail(CTL_USAGE, settings.output, &error);
    }
    return ask_and_print(&settings, order->doing);
}

/* ---- list ---- */

/* Leaves out the rows in other states. */
static void
select_state(struct rows *rows, const char *state)
{
    size_t count = 0;
    for (size_t i = 0; i < rows->count; i++)
        if (strcmp(ask_text(rows->at[i], "state"), state) == 0)
            rows->at[count++] = rows->at[i];
    rows->count = count;
}

static const struct ctl_command list_command = {
    .name = "model list",
    .arguments = "[options]",
    .summary = "List the models of the node, their state and memory",
    .about =
        "A listed model is in the directory of its pipeline's `models`: calls load it, and it is\n"
        "evicted for others. An ordered model was loaded by name and stays. SIZE is its share of\n"
        "the pipeline's memory, an estimate while it loads; IDLE the time since its last "
        "request.\n"
        "Below are the reasons why a model failed, or a loaded one's changed file is not served.\n",
    .exits = "  0  success\n"
             "  1  the node answered with an error\n",
    .example = "  shoalctl model list --state failed\n"
               "  shoalctl model list --json | jq -r 'select(.users > 0).id'\n",
    CTL_OPTIONS(list_options),
};

static int
list_run(int argc, char **argv)
{
    struct model_settings settings = {.request.verb = CONTROL_MODEL_LIST,
                                      .counters = ctl_counters_default(),
                                      .timeout_ms = TIMEOUT_MS};
    int code = ctl_options_read(&list_command, argc, argv, NULL, &settings);
    if (code >= 0)
        return code;
    struct rows rows;
    struct error error = ERROR_NONE;
    struct rows_fetch fetch = {
        .counters = settings.counters,
        .request = settings.request,
        .limit = SIZE_MAX,
        .deadline_ns = clock_now_ns() + settings.timeout_ms * NS_PER_MS,
    };
    code = rows_fetch(&fetch, &rows, &error);
    if (code == CTL_OK && settings.state != NULL)
        select_state(&rows, settings.state);
    if (code != CTL_OK)
        ctl_fail((enum ctl_exit)code, settings.output, &error);
    else if (settings.output == CTL_TEXT)
        row_table_print(CONTROL_MODEL_LIST, &rows, stdout);
    else
        for (size_t i = 0; i < rows.count; i++)
            row_table_json(rows.at[i], stdout);
    rows_free(&rows);
    return code;
}

/* ---- dispatch ---- */

static const struct ctl_part parts[] = {
    {"load", order_run}, {"unload", order_run}, {"rollback", order_run}, {"list", list_run}};

static int
model_run(int argc, char **argv)
{
    return ctl_parts_run(&model_command, argc, argv);
}

const struct ctl_command model_command = {
    .name = "model",
    .arguments = "load|unload|rollback|list [options] ...",
    .summary = "Load, unload, roll back and list the models of a node",
    .about =
        "  load ID PATH   load a model until it is unloaded by name\n"
        "  unload ID      unload it when its last request is answered\n"
        "  rollback ID    serve the next lower of its numbered versions\n"
        "  list           list the models, their state and memory\n\n"
        "Each has its own --help. They ask the local node over the socket beside its counters,\n"
        "for root and the node's user.\n",
    .example = "  shoalctl model load fraud-7 fraud/7\n"
               "  shoalctl model list --state loaded\n"
               "  shoalctl model unload fraud-7\n",
    .parts = parts,
    .part_count = ARRAY_COUNT(parts),
    .run = model_run,
};
