/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/serve.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json.h"
#include "coordinator/config/config.h"
#include "coordinator/models/model_look.h"
#include "coordinator/node_storage.h"

enum {
    WORKERS_DEFAULT_MAX = 4,
    BATCH_SIZE = 64,
    MEMORY_MIB_MIN = 64,
    MEMORY_SHARE = 2, /* models may take this part of the memory that is free */
    MODELS_MAX = CONFIG_PIPELINES_MAX - FORMAT_COUNT,
};

/* The characters of names of pipelines. */
static const char name_bytes[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* Files that are recognized by their names, and only if they are named themselves: a folder of
 * models serves no code, which pickles hold too. */
static const struct model_format script_format = {"python", "libpython_modelet.so", ".py", NULL};
static const struct model_format pickle_format = {"scikit-learn", "scikit_learn.py",
                                                  ".pkl, .joblib", NULL};

struct served_model {
    char id[SHOAL_NAME_BYTES_MAX + 1];
    char path[PATH_MAX];
    const struct model_format *format;
    bool is_versioned;
    bool is_batched; /* a script: its code has @shoal.batched */
};

struct serve {
    const struct serve_options *options;
    struct served_model *models;
    uint32_t model_count;
    char root[PATH_MAX]; /* the folder of models; "": none */
    const char *name;    /* of what is added, if its path does not show it; else NULL */
};

/* ---- the named paths ---- */

/* Returns whether a folder is a model itself, not a folder of models. */
static bool
is_model_folder(const char *path)
{
    static const char *const marks[] = {LOOK_KEY_NAME, "model.json", "model.ubj", "model.onnx",
                                        "model.mlp"};
    char file[PATH_MAX + 16];
    for (size_t i = 0; i < ARRAY_COUNT(marks); i++) {
        snprintf(file, sizeof(file), "%s/%s", path, marks[i]);
        if (access(file, F_OK) == 0)
            return true;
    }
    return false;
}

/* The look at a folder whose versions, 1/, 2/, …, have a known format; NULL: it has none. */
static const struct model_format *
versions_format(const char *path)
{
    struct model_look look = {.id = strrchr(path, '/') + 1, .kind = LOOK_DIRECTORY};
    struct error ignored = ERROR_NONE; /* the node says what is wrong beside them */
    const struct model_format *format = NULL;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0)
        (void)look_at_model(fd, ".", 0, &look, &ignored);
    if (look.release_count > 0)
        format = look_for_format_of(fd, ".", &look);
    if (fd >= 0)
        close(fd);
    return format;
}

static bool
is_installed(const struct model_format *format)
{
    char *tried;
    char *modelet = config_modelet_path("", format->modelet, &tried);
    bool installed = modelet != NULL;
    free(modelet);
    free(tried);
    return installed;
}

static enum status
add_model(struct serve *serve, const char *path, enum look_kind kind,
          const struct model_format *format, struct error *error)
{
    const char *name =
        serve->name != NULL && kind == LOOK_DIRECTORY ? serve->name : strrchr(path, '/') + 1;
    if (format == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: no model of a known format (XGBoost's JSON or UBJSON, ONNX, mlp; by "
                         "name .py, and .pkl or .joblib of scikit-learn)",
                         path);
    if (serve->model_count == MODELS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: more than %d models: name the folder that they are in", path,
                         MODELS_MAX);
    struct served_model *model = &serve->models[serve->model_count++];
    look_id(name, kind, model->id);
    if (strlen(model->id) > CONFIG_NAME_BYTES_MAX ||
        model->id[strspn(model->id, name_bytes)] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: \"%s\" cannot name a model (1 to %d letters, digits, `.`, `_`, `-`): "
                         "rename it, or name the folder that it is in",
                         path, model->id, CONFIG_NAME_BYTES_MAX);
    snprintf(model->path, sizeof(model->path), "%s", path);
    model->format = format;
    for (uint32_t i = 0; i + 1 < serve->model_count; i++)
        if (strcmp(serve->models[i].id, model->id) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s and %s are both model \"%s\": rename one of them",
                             serve->models[i].path, path, model->id);
    if (!is_installed(format))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%s is of format %s, and its modelet %s is not installed: install it, or "
                         "name its folder in SHOAL_MODELET_PATH",
                         path, format->name, format->modelet);
    return STATUS_OK;
}

static bool
ends_with(const char *text, const char *ending)
{
    size_t length = strlen(text);
    size_t bytes = strlen(ending);
    return length > bytes && strcmp(text + length - bytes, ending) == 0;
}

/* Returns whether a line begins with the decorator. */
static bool
has_decorator(const char *text, size_t bytes, const char *decorator)
{
    const char *end = text + bytes;
    size_t length = strlen(decorator);
    const char *at = memmem(text, bytes, decorator, length);
    for (; at != NULL; at = memmem(at + length, (size_t)(end - at) - length, decorator, length)) {
        const char *begin = at;
        while (begin > text && (begin[-1] == ' ' || begin[-1] == '\t'))
            begin--;
        if (begin == text || begin[-1] == '\n')
            return true;
    }
    return false;
}

/* Returns whether a script uses the decorator. If this is wrong about that, its workers say so. */
static bool
is_batched(int fd)
{
    enum { SCRIPT_BYTES_MAX = 1 << 16 };
    static char text[SCRIPT_BYTES_MAX];
    ssize_t bytes = pread(fd, text, sizeof(text), 0);
    return bytes > 0 && (has_decorator(text, (size_t)bytes, "@shoal.batched") ||
                         has_decorator(text, (size_t)bytes, "@batched"));
}

static enum status
add_file(struct serve *serve, const char *path, int fd, struct error *error)
{
    bool is_script = ends_with(path, ".py");
    bool is_pickle = ends_with(path, ".pkl") || ends_with(path, ".joblib");
    const struct model_format *format = is_script   ? &script_format
                                        : is_pickle ? &pickle_format
                                                    : look_at_format(fd);
    enum status status = add_model(serve, path, LOOK_FILE, format, error);
    if (status == STATUS_OK && is_script)
        serve->models[serve->model_count - 1].is_batched = is_batched(fd);
    return status;
}

static enum status
add_root(struct serve *serve, const char *path, struct error *error)
{
    if (serve->root[0] != '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s and %s are both folders of models: put the models into one folder",
                         serve->root, path);
    snprintf(serve->root, sizeof(serve->root), "%s", path);
    return STATUS_OK;
}

/* `root_fd`: "/". */
static enum status
add_folder(struct serve *serve, int root_fd, const char *path, struct error *error)
{
    const struct model_format *format = versions_format(path);
    if (format == NULL && is_model_folder(path))
        return add_model(serve, path, LOOK_DIRECTORY, look_for_format(root_fd, path + 1), error);
    if (format == NULL)
        return add_root(serve, path, error);
    enum status status = add_model(serve, path, LOOK_DIRECTORY, format, error);
    if (status == STATUS_OK)
        serve->models[serve->model_count - 1].is_versioned = true;
    return status;
}

static enum status
add_path(struct serve *serve, const char *given, struct error *error)
{
    char path[PATH_MAX];
    struct stat stat;
    if (realpath(given, path) == NULL)
        return error_set_errno(error, "%s", given);
    int root_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    enum status status = STATUS_OK;
    if (root_fd < 0 || fd < 0 || fstat(fd, &stat) != 0)
        status = error_set_errno(error, "%s", given);
    else if (strcmp(path, "/") == 0)
        status = error_set(error, STATUS_INVALID_ARGUMENT, "/ is no folder of models");
    else if (S_ISDIR(stat.st_mode))
        status = add_folder(serve, root_fd, path, error);
    else
        status = add_file(serve, path, fd, error);
    if (fd >= 0)
        close(fd);
    if (root_fd >= 0)
        close(root_fd);
    return status;
}

/* A user who can write to the server must not run code here by that. */
static enum status
refuse_code(const char *uri, const char *path, struct error *error)
{
    static const char *const endings[] = {".py", ".pkl", ".joblib"};
    for (size_t i = 0; i < ARRAY_COUNT(endings); i++)
        if (ends_with(path, endings[i]))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "%s: a file of this kind is code, and code is not fetched: download "
                             "it, and name the file",
                             uri);
    return STATUS_OK;
}

/* A folder of the cache has a digest for a name; the model's is the URI's last part. */
static enum status
add_uri(struct serve *serve, const char *uri, struct error *error)
{
    const struct config_storage storage = {.cache_bytes = (uint64_t)serve->options->cache_gib << 30,
                                           .fetches_max = 1};
    char path[PATH_MAX];
    char name[PATH_MAX];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(uri, "?#"), uri);
    while (name[0] != '\0' && name[strlen(name) - 1] == '/')
        name[strlen(name) - 1] = '\0';
    fprintf(stderr, "shoald serve: fetching %s\n", name);
    enum status status = node_storage_fetch(&storage, uri, path, error);
    if (status == STATUS_OK) /* the file's name, which a URI may encode */
        status = refuse_code(name, path, error);
    size_t stem = storage_archive_stem(name);
    if (stem > 0)
        name[stem] = '\0';
    const char *slash = strrchr(name, '/');
    serve->name = slash != NULL ? slash + 1 : name;
    if (status == STATUS_OK)
        status = add_path(serve, path, error);
    serve->name = NULL;
    return status;
}

/* ---- the configuration ---- */

static void put(struct bytes *yaml, const char *format, ...) PRINTF_LIKE(2, 3);

static void
put(struct bytes *yaml, const char *format, ...)
{
    char text[512];
    va_list args;
    va_start(args, format);
    int bytes = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    CHECK(bytes >= 0 && (size_t)bytes < sizeof(text));
    bytes_put(yaml, text, (size_t)bytes);
}

/* YAML reads the strings of JSON. */
static void
put_quoted(struct bytes *yaml, const char *text)
{
    json_quote(yaml, text, strlen(text), JSON_STYLE_NUMERIC);
}

static void
put_address(struct bytes *yaml, const struct serve_options *options, const char *key, uint16_t port)
{
    char address[SERVE_ADDRESS_BYTES];
    if (port == 0)
        return;
    snprintf(address, sizeof(address), "%.255s:%u", options->host, port);
    put(yaml, "%s: [", key);
    put_quoted(yaml, address);
    put(yaml, "]\n");
}

/* Puts the dashboard on this machine alone, where no token is needed, wherever models are
 * served. */
static void
put_dashboard(struct bytes *yaml, const struct serve_options *options)
{
    if (options->dashboard_port != 0)
        put(yaml, "dashboard: [\"127.0.0.1:%u\"]\ndashboard_infer: on\n", options->dashboard_port);
}

static uint32_t
workers(const struct serve_options *options)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (options->workers > 0)
        return options->workers;
    return processors < 1                     ? 1
           : processors > WORKERS_DEFAULT_MAX ? WORKERS_DEFAULT_MAX
                                              : (uint32_t)processors;
}

static uint32_t
memory_mib(const struct serve_options *options, uint32_t pipelines)
{
    uint64_t pages = (uint64_t)sysconf(_SC_AVPHYS_PAGES);
    uint64_t mib = pages * (uint64_t)sysconf(_SC_PAGESIZE) >> 20;
    uint64_t chosen = options->memory_mib > 0 ? options->memory_mib : mib / MEMORY_SHARE;
    chosen /= pipelines;
    return chosen < MEMORY_MIB_MIN ? MEMORY_MIB_MIN : (uint32_t)chosen;
}

static void
put_stage(struct bytes *yaml, const struct serve *serve, const struct model_format *format)
{
    put(yaml, "    stages:\n      - { name: predict, modelet: %s, workers: %u, batch_size: %d",
        format->modelet, workers(serve->options), BATCH_SIZE);
    if (format->params != NULL)
        put(yaml, ",\n          params: { %s }", format->params);
}

static void
put_versioned(struct bytes *yaml, const struct serve *serve, const struct served_model *model)
{
    char name[CONFIG_NAME_BYTES_MAX + 16]; /* no model may have a pipeline's */
    snprintf(name, sizeof(name), "%.*s-versions", CONFIG_NAME_BYTES_MAX - 9, model->id);
    put(yaml, "  - name: ");
    put_quoted(yaml, name);
    put(yaml, "\n    models: { root: ");
    put_quoted(yaml, model->path);
    put(yaml, ", id: ");
    put_quoted(yaml, model->id);
    put(yaml, ", memory_mib: %u }\n", memory_mib(serve->options, 1));
    put_stage(yaml, serve, model->format);
    put(yaml, " }\n");
}

static void
put_model(struct bytes *yaml, const struct serve *serve, const struct served_model *model)
{
    if (model->is_versioned) {
        put_versioned(yaml, serve, model);
        return;
    }
    put(yaml, "  - name: ");
    put_quoted(yaml, model->id);
    put(yaml, "\n");
    if (model->format == &script_format) {
        put(yaml, "    stages:\n      - { name: predict, modelet: ");
        put_quoted(yaml, model->path);
        put(yaml, ", workers: %u, batch_size: %d }\n", workers(serve->options),
            model->is_batched ? BATCH_SIZE : 0);
        return;
    }
    put_stage(yaml, serve, model->format);
    put(yaml, ",\n          model: { id: ");
    put_quoted(yaml, model->id);
    put(yaml, ", path: ");
    put_quoted(yaml, model->path);
    put(yaml, " } }\n");
}

static enum status
put_root(struct bytes *yaml, const struct serve *serve, struct error *error)
{
    bool installed[FORMAT_COUNT];
    uint32_t count = 0;
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        installed[i] = is_installed(&model_formats[i]);
        count += installed[i];
    }
    if (count == 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "no modelet that loads models is installed: name their folder in "
                         "SHOAL_MODELET_PATH");
    for (uint32_t i = 0; i < FORMAT_COUNT; i++) {
        if (!installed[i])
            continue;
        put(yaml, "  - name: %s-models\n    models: { root: ", model_formats[i].name);
        put_quoted(yaml, serve->root);
        put(yaml, ", types: [%s], memory_mib: %u }\n", model_formats[i].name,
            memory_mib(serve->options, count));
        put_stage(yaml, serve, &model_formats[i]);
        put(yaml, " }\n");
    }
    return STATUS_OK;
}

static enum status
write_config(const struct serve *serve, struct bytes *yaml, struct error *error)
{
    const struct serve_options *options = serve->options;
    put(yaml, "# Made by `shoald serve`. Saved as a file, it is what `shoald FILE` serves.\n");
    put_address(yaml, options, "listen", options->grpc_port);
    put_address(yaml, options, "http", options->http_port);
    put_address(yaml, options, "metrics", options->metrics_port);
    put_dashboard(yaml, options);
    if (options->server_name != NULL) {
        put(yaml, "server_name: ");
        put_quoted(yaml, options->server_name);
        put(yaml, "\n");
    }
    put(yaml, "log_level: warn\npipelines:\n");
    for (uint32_t i = 0; i < serve->model_count; i++)
        put_model(yaml, serve, &serve->models[i]);
    enum status status = STATUS_OK;
    if (serve->root[0] != '\0')
        status = put_root(yaml, serve, error);
    if (yaml->failed && status == STATUS_OK)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for the configuration");
    return status;
}

enum status
serve_write_config(const struct serve_options *options, struct bytes *yaml, struct error *error)
{
    struct serve serve = {.options = options};
    serve.models = calloc(MODELS_MAX, sizeof(*serve.models));
    CHECK(serve.models != NULL);
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < options->path_count && status == STATUS_OK; i++)
        status = storage_is_uri(options->paths[i]) ? add_uri(&serve, options->paths[i], error)
                                                   : add_path(&serve, options->paths[i], error);
    if (status == STATUS_OK)
        status = write_config(&serve, yaml, error);
    free(serve.models);
    return status;
}

enum status
serve_keep_config(const struct bytes *yaml, char path[SERVE_PATH_BYTES], struct error *error)
{
    int fd = memfd_create("shoald-serve", MFD_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, "keeping the configuration");
    ssize_t bytes = write(fd, yaml->data, yaml->used);
    if (bytes != (ssize_t)yaml->used)
        return error_set_errno(error, "keeping the configuration");
    snprintf(path, SERVE_PATH_BYTES, "/proc/self/fd/%d", fd);
    return STATUS_OK;
}
