/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl model: loads, unloads and lists the local node's models.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "ctl/ask.h"
#include "ctl/ctl.h"
#include "ctl/figure.h"
#include "ctl/json.h"
#include "ipc/counters.h"

enum { TIMEOUT_MS = 600000 };

struct model_settings {
    struct control_request request;
    bool has_id, has_path;
    const char *state; /* of the models to list; NULL: any */
    const char *counters;
    char counters_default[256];
    int64_t timeout_ms;
    bool json;
};

static void
settings_init(struct model_settings *settings, enum control_verb verb)
{
    *settings = (struct model_settings){.timeout_ms = TIMEOUT_MS};
    settings->request.version = CONTROL_VERSION;
    settings->request.verb = verb;
    counters_default_path(settings->counters_default, sizeof(settings->counters_default));
    settings->counters = settings->counters_default;
}

/* Copies a value into a text of the request. */
static enum status
take_text(char *to, size_t room, const char *what, const char *value, struct error *error)
{
    size_t bytes = strlen(value);
    if (bytes == 0 || bytes >= room)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has 1 to %zu bytes, not %zu", what,
                         room - 1, bytes);
    memcpy(to, value, bytes + 1);
    return STATUS_OK;
}

static enum status
take_id(struct model_settings *settings, const char *value, struct error *error)
{
    if (settings->has_id)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "one model at a time; \"%.64s\" is an "
                         "unexpected argument",
                         value);
    settings->has_id = true;
    return take_text(settings->request.id, sizeof(settings->request.id), "a model's id", value,
                     error);
}

static enum status
wants_id(void *context, const char *value, struct error *error)
{
    return take_id(context, value, error);
}

static enum status
wants_id_and_path(void *context, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    if (!settings->has_id || settings->has_path)
        return take_id(settings, value, error);
    settings->has_path = true;
    return take_text(settings->request.path, sizeof(settings->request.path), "a path", value,
                     error);
}

static enum status
wants_nothing(void *context, const char *value, struct error *error)
{
    (void)context;
    return error_set(error, STATUS_INVALID_ARGUMENT, "takes no argument, not \"%.64s\"", value);
}

/* Reads the file: at most `room` - 1 bytes of text. */
static enum status
take_file(char *to, size_t room, const char *path, struct error *error)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return error_set_errno(error, "%s", path);
    size_t bytes = fread(to, 1, room, file);
    bool failed = ferror(file) != 0;
    fclose(file);
    if (failed)
        return error_set(error, STATUS_UNAVAILABLE, "%s: cannot be read", path);
    if (bytes == room || memchr(to, '\0', bytes) != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: a key is a text of at most %zu bytes",
                         path, room - 1);
    to[bytes] = '\0';
    return STATUS_OK;
}

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

static enum status
wait_answer(const struct model_settings *settings, struct ctl_ask *ask, const char *doing,
            struct control_answer *answer, int *list_fd, struct error *error)
{
    int64_t since_ns = clock_now_ns();
    int64_t deadline_ns = since_ns + settings->timeout_ms * NS_PER_MS;
    enum status status;
    do {
        int64_t left_ns = deadline_ns - clock_now_ns();
        int64_t slice_ns = left_ns < NS_PER_S ? left_ns : NS_PER_S;
        status = ask_receive(ask, slice_ns, answer, list_fd, error);
        if (status == STATUS_DEADLINE_EXCEEDED)
            show_progress(settings, doing, since_ns);
    } while (status == STATUS_DEADLINE_EXCEEDED && clock_now_ns() < deadline_ns);
    end_progress();
    if (status != STATUS_DEADLINE_EXCEEDED)
        return status;
    return error_set(error, status,
                     "no answer within %lld ms; the node continues: see `shoalctl model list`",
                     (long long)settings->timeout_ms);
}

static enum status
ask(const struct model_settings *settings, const char *doing, struct control_answer *answer,
    int *list_fd, struct error *error)
{
    struct ctl_ask asked;
    enum status status = ask_send(&asked, settings->counters, &settings->request, error);
    if (status != STATUS_OK)
        return status;
    status = wait_answer(settings, &asked, doing, answer, list_fd, error);
    ask_close(&asked);
    return status;
}

static int
ask_and_tell(const struct model_settings *settings, const char *doing)
{
    struct control_answer answer = {0};
    struct error error = ERROR_NONE;
    if (ask(settings, doing, &answer, NULL, &error) != STATUS_OK)
        return ask_failed(settings->json, &error);
    return ask_notify(settings->json, &answer);
}

/* ---- load ---- */

#define OPTION_COUNTERS_LINE                                                                       \
    {                                                                                              \
        "counters", "PATH", ASK_COUNTERS_HELP                                                      \
    }
#define OPTION_TIMEOUT_LINE                                                                        \
    {                                                                                              \
        "timeout-ms", "N", "how long to wait; default 600000. The node continues afterwards"       \
    }

enum load_option { LOAD_KEY, LOAD_PIPELINE, LOAD_COUNTERS, LOAD_TIMEOUT, LOAD_JSON };

static const struct ctl_option load_options[] = {
    [LOAD_KEY] = {"key", "TEXT",
                  "passed to the modelet, by convention a JSON object, such as\n"
                  "'{\"sha256\": \"…\"}'; @FILE reads it from a file"},
    [LOAD_PIPELINE] = {"pipeline", "NAME", "the pipeline; default: the only one with models"},
    [LOAD_COUNTERS] = OPTION_COUNTERS_LINE,
    [LOAD_TIMEOUT] = OPTION_TIMEOUT_LINE,
    [LOAD_JSON] = {"json", NULL, "one line of JSON"},
};

static enum status
on_load_option(void *context, size_t index, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    struct control_request *request = &settings->request;
    switch ((enum load_option)index) {
    case LOAD_KEY:
        if (value[0] == '@')
            return take_file(request->key, sizeof(request->key), value + 1, error);
        return take_text(request->key, sizeof(request->key), "a key", value, error);
    case LOAD_PIPELINE:
        return take_text(request->pipeline, sizeof(request->pipeline), "a pipeline's name", value,
                         error);
    case LOAD_COUNTERS: settings->counters = value; break;
    case LOAD_TIMEOUT:
        return ctl_read_whole(value, 1, ASK_TIMEOUT_MS_MAX, &settings->timeout_ms, error);
    case LOAD_JSON: settings->json = true; break;
    }
    return STATUS_OK;
}

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
    .options = load_options,
    .option_count = ARRAY_COUNT(load_options),
};

static int
lacks(const struct model_settings *settings, const char *command, const char *what)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_INVALID_ARGUMENT, "%s; see shoalctl model %s --help", what, command);
    return ctl_fail(CTL_USAGE, settings->json, &error);
}

static int
load_run(int argc, char **argv)
{
    struct model_settings settings;
    settings_init(&settings, CONTROL_MODEL_LOAD);
    struct ctl_reader reader = {on_load_option, wants_id_and_path, &settings};
    int code = ctl_options_read(&load_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    if (!settings.has_path)
        return lacks(&settings, "load", "the model's id and path are missing: ID PATH");
    return ask_and_tell(&settings, "loading");
}

/* ---- unload ---- */

enum unload_option { UNLOAD_COUNTERS, UNLOAD_TIMEOUT, UNLOAD_JSON };

static const struct ctl_option unload_options[] = {
    [UNLOAD_COUNTERS] = OPTION_COUNTERS_LINE,
    [UNLOAD_TIMEOUT] = OPTION_TIMEOUT_LINE,
    [UNLOAD_JSON] = {"json", NULL, "one line of JSON"},
};

static enum status
on_unload_option(void *context, size_t index, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    switch ((enum unload_option)index) {
    case UNLOAD_COUNTERS: settings->counters = value; break;
    case UNLOAD_TIMEOUT:
        return ctl_read_whole(value, 1, ASK_TIMEOUT_MS_MAX, &settings->timeout_ms, error);
    case UNLOAD_JSON: settings->json = true; break;
    }
    return STATUS_OK;
}

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
    .options = unload_options,
    .option_count = ARRAY_COUNT(unload_options),
};

static int
unload_run(int argc, char **argv)
{
    struct model_settings settings;
    settings_init(&settings, CONTROL_MODEL_UNLOAD);
    struct ctl_reader reader = {on_unload_option, wants_id, &settings};
    int code = ctl_options_read(&unload_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    if (!settings.has_id)
        return lacks(&settings, "unload", "the model's id is missing: ID");
    return ask_and_tell(&settings, "unloading");
}

/* ---- list ---- */

enum list_option { LIST_STATE, LIST_COUNTERS, LIST_TIMEOUT, LIST_JSON };

static const struct ctl_option list_options[] = {
    [LIST_STATE] = {"state", "S",
                    "only models in this state: known, loading, loaded, unloading, failed"},
    [LIST_COUNTERS] = OPTION_COUNTERS_LINE,
    [LIST_TIMEOUT] = {"timeout-ms", "N", "how long to wait; default 600000"},
    [LIST_JSON] = {"json", NULL, "one line of JSON for each model"},
};

static enum status
take_state(struct model_settings *settings, const char *value, struct error *error)
{
    static const char *const states[] = {"known", "loading", "loaded", "unloading", "failed"};
    for (size_t i = 0; i < ARRAY_COUNT(states); i++)
        if (strcmp(states[i], value) == 0)
            settings->state = states[i];
    if (settings->state != NULL)
        return STATUS_OK;
    const char *nearest = ctl_nearest(value, states, ARRAY_COUNT(states));
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is not a state%s%s", value,
                     nearest != NULL ? ", did you mean " : "", nearest != NULL ? nearest : "");
}

static enum status
on_list_option(void *context, size_t index, const char *value, struct error *error)
{
    struct model_settings *settings = context;
    switch ((enum list_option)index) {
    case LIST_STATE: return take_state(settings, value, error);
    case LIST_COUNTERS: settings->counters = value; break;
    case LIST_TIMEOUT:
        return ctl_read_whole(value, 1, ASK_TIMEOUT_MS_MAX, &settings->timeout_ms, error);
    case LIST_JSON: settings->json = true; break;
    }
    return STATUS_OK;
}

struct model_sums {
    uint64_t count, loaded, failed, bytes;
};

/* Prints a list's rows, as JSON or a table. */
struct rows {
    const struct model_settings *settings;
    int64_t now_ns;
    struct figure_table table;
    struct model_sums sums;
};

static void
row_as_json(const struct rows *rows, const struct control_model *model, const char *const *texts)
{
    struct json json;
    json_init(&json, stdout);
    json_object_begin(&json);
    json_field_string(&json, "id", texts[CONTROL_TEXT_ID]);
    json_field_string(&json, "pipeline", texts[CONTROL_TEXT_PIPELINE]);
    json_field_string(&json, "state", texts[CONTROL_TEXT_STATE]);
    json_field_string(&json, "path", texts[CONTROL_TEXT_PATH]);
    json_field_string(&json, "key", texts[CONTROL_TEXT_KEY]);
    json_field_bool(&json, "listed", (model->flags & CONTROL_LISTED) != 0);
    json_field_bool(&json, "ordered", (model->flags & CONTROL_ORDERED) != 0);
    json_field_uint(&json, "bytes", model->size_bytes);
    json_field_uint(&json, "users", model->users);
    json_key(&json, "idle_ns");
    if (model->used_ns != 0)
        json_int(&json, rows->now_ns - model->used_ns);
    else
        json_null(&json);
    json_field_string(&json, "error", texts[CONTROL_TEXT_ERROR]);
    json_object_end(&json);
    putchar('\n');
}

static const char *
why_there(uint32_t flags)
{
    static const char *const words[] = {
        [0] = "-",
        [CONTROL_LISTED] = "listed",
        [CONTROL_ORDERED] = "ordered",
        [CONTROL_LISTED | CONTROL_ORDERED] = "listed, ordered",
    };
    return words[flags & (CONTROL_LISTED | CONTROL_ORDERED)];
}

static void
row_to_table(struct rows *rows, const struct control_model *model, const char *const *texts)
{
    struct figure_table *table = &rows->table;
    char bytes[FIGURE_ROOM] = "-";
    table_add(table, "%s", texts[CONTROL_TEXT_ID]);
    table_add(table, "%s", texts[CONTROL_TEXT_PIPELINE]);
    table_add(table, "%s", texts[CONTROL_TEXT_STATE]);
    table_add(table, "%s", why_there(model->flags));
    table_add(table, "%s", texts[CONTROL_TEXT_PATH]);
    if (model->size_bytes != 0)
        figure_bytes(bytes, model->size_bytes);
    table_add(table, "%s", bytes);
    table_add_count(table, model->users);
    if (model->used_ns != 0)
        table_add_duration(table, rows->now_ns - model->used_ns);
    else
        table_add(table, "-");
}

static void
sum_up(struct model_sums *sums, const struct control_model *model, const char *state)
{
    bool loaded = strcmp(state, "loaded") == 0;
    sums->count++;
    sums->loaded += loaded;
    sums->failed += strcmp(state, "failed") == 0;
    sums->bytes += loaded ? model->size_bytes : 0;
}

/* True: the whole memory is a valid list. */
static bool
each_row(struct rows *rows, const char *list, size_t bytes,
         void (*act)(struct rows *, const struct control_model *, const char *const *))
{
    for (size_t at = 0; at < bytes;) {
        const char *texts[CONTROL_TEXT_COUNT];
        const struct control_model *model = (const struct control_model *)(const void *)(list + at);
        if (!control_model_read(model, bytes - at, texts))
            return false;
        at += model->bytes;
        if (rows->settings->state == NULL ||
            strcmp(rows->settings->state, texts[CONTROL_TEXT_STATE]) == 0)
            act(rows, model, texts);
    }
    return true;
}

static void
print_row(struct rows *rows, const struct control_model *model, const char *const *texts)
{
    sum_up(&rows->sums, model, texts[CONTROL_TEXT_STATE]);
    if (rows->settings->json)
        row_as_json(rows, model, texts);
    else
        row_to_table(rows, model, texts);
}

static void
print_failure(struct rows *rows, const struct control_model *model, const char *const *texts)
{
    (void)rows;
    (void)model;
    if (texts[CONTROL_TEXT_ERROR][0] != '\0')
        printf("%s: %s\n", texts[CONTROL_TEXT_ID], texts[CONTROL_TEXT_ERROR]);
}

static void
print_sums(const struct model_sums *sums)
{
    char count[FIGURE_ROOM];
    char loaded[FIGURE_ROOM];
    char failed[FIGURE_ROOM];
    char bytes[FIGURE_ROOM];
    figure_count(count, sums->count);
    figure_count(loaded, sums->loaded);
    figure_count(failed, sums->failed);
    figure_bytes(bytes, sums->bytes);
    printf("%s model%s, %s loaded (%s), %s failed\n", count, sums->count == 1 ? "" : "s", loaded,
           bytes, failed);
}

static bool
print_list(const struct model_settings *settings, const char *list, size_t bytes)
{
    static const char *const headings[] = {"MODEL", "PIPELINE", "STATE", "BY", "PATH",
                                           "SIZE",  "USERS",    "IDLE",  NULL};
    enum { TEXT_COLUMNS = 5 };
    struct rows rows = {.settings = settings, .now_ns = clock_now_ns()};
    table_init(&rows.table, TEXT_COLUMNS, headings);
    bool good = each_row(&rows, list, bytes, print_row);
    if (good && !settings->json) {
        if (rows.sums.count > 0)
            table_print(&rows.table, stdout);
        (void)each_row(&rows, list, bytes, print_failure);
        print_sums(&rows.sums);
    }
    table_free(&rows.table);
    return good;
}

static enum status
read_list(const struct model_settings *settings, int fd, struct error *error)
{
    struct stat stat;
    if (fd < 0 || fstat(fd, &stat) != 0)
        return error_set(error, STATUS_UNAVAILABLE, "the node's answer came without its list");
    size_t bytes = (size_t)stat.st_size;
    void *list = NULL;
    if (bytes > 0) {
        list = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
        if (list == MAP_FAILED)
            return error_set_errno(error, "reading the node's list");
    }
    bool good = print_list(settings, list, bytes);
    if (bytes > 0)
        munmap(list, bytes);
    return good ? STATUS_OK
                : error_set(error, STATUS_UNAVAILABLE,
                            "the node's list cannot be read: use the "
                            "shoalctl that came with it");
}

static const struct ctl_command list_command = {
    .name = "model list",
    .arguments = "[options]",
    .summary = "List the models of the node, their state and memory",
    .about =
        "A listed model is in the directory of its pipeline's `models`: calls load it, and it is\n"
        "evicted for others. An ordered model was loaded by name and stays. SIZE is its share of\n"
        "the pipeline's memory, an estimate while it loads; IDLE the time since its last "
        "request.\n",
    .exits = "  0  success\n"
             "  1  the node answered with an error\n",
    .example = "  shoalctl model list --state failed\n"
               "  shoalctl model list --json | jq -r 'select(.users > 0).id'\n",
    .options = list_options,
    .option_count = ARRAY_COUNT(list_options),
};

static int
list_run(int argc, char **argv)
{
    struct model_settings settings;
    settings_init(&settings, CONTROL_MODEL_LIST);
    struct ctl_reader reader = {on_list_option, wants_nothing, &settings};
    int code = ctl_options_read(&list_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    struct control_answer answer = {0};
    struct error error = ERROR_NONE;
    int fd = -1;
    enum status status = ask(&settings, "listing", &answer, &fd, &error);
    if (status == STATUS_OK && answer.status != STATUS_OK)
        return ask_notify(settings.json, &answer);
    if (status == STATUS_OK)
        status = read_list(&settings, fd, &error);
    if (fd >= 0)
        close(fd);
    return status == STATUS_OK ? CTL_OK : ask_failed(settings.json, &error);
}

/* ---- dispatch ---- */

static const struct ctl_part parts[] = {
    {"load", load_run}, {"unload", unload_run}, {"list", list_run}};

static enum status
unknown_part(void *context, const char *value, struct error *error)
{
    const char *words[ARRAY_COUNT(parts)];
    (void)context;
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        words[i] = parts[i].word;
    const char *nearest = ctl_nearest(value, words, ARRAY_COUNT(parts));
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "expected load, unload or list, not \"%.32s\"%s%s", value,
                     nearest != NULL ? ": did you mean " : "", nearest != NULL ? nearest : "");
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
model_run(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < ARRAY_COUNT(parts); i++)
        if (strcmp(argv[1], parts[i].word) == 0)
            return parts[i].run(argc - 1, argv + 1);
    struct ctl_reader reader = {no_option, unknown_part, NULL};
    int code = ctl_options_read(&model_command, &reader, argc, argv);
    if (code >= 0)
        return code;
    fprintf(stderr, "shoalctl model: load, unload or list is missing; see shoalctl model --help\n");
    return CTL_USAGE;
}

const struct ctl_command model_command = {
    .name = "model",
    .arguments = "load|unload|list [options] ...",
    .summary = "Load, unload and list the models of a node",
    .about =
        "  load ID PATH   load a model until it is unloaded by name\n"
        "  unload ID      unload it when its last request is answered\n"
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
