/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rules that the table cannot express: keys that exclude or need each other, names that must
 * differ, and things that must exist outside the file (CPUs, modelets).
 */
#include <arpa/inet.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "coordinator/config/config_tree.h"
#include "coordinator/config/config_types.h"
#include "ipc/counters.h"
#include "ipc/handshake.h"

static char *check_root(struct config_reader *reader, char *root, int line);

/* ---- pipelines and stages ---- */

/* All that a worker is sent fits into one message of fixed size (ipc/handshake.h). */
static void
check_length(struct config_reader *reader, int line, const char *what, const char *text,
             size_t room)
{
    if (text != NULL && strlen(text) >= room)
        report_add(reader->report, line, "%s has %zu bytes: must be at most %zu", what,
                   strlen(text), room - 1);
}

static void
check_lengths(struct config_reader *reader, const struct config_stage *stage, int modelet_line)
{
    check_length(reader, modelet_line, "`modelet`", stage->modelet, HANDSHAKE_PATH_BYTES);
    check_length(reader, stage->line, "`model`: `id`", stage->model_id, SHOAL_NAME_BYTES_MAX + 1);
    check_length(reader, stage->line, "`model`: `path`", stage->model_path, HANDSHAKE_PATH_BYTES);
    check_length(reader, stage->line, "`model`: `key`", stage->model_key, HANDSHAKE_VALUE_BYTES);
    for (uint32_t i = 0; i < stage->param_count; i++) {
        const struct config_param *param = &stage->params[i];
        check_length(reader, stage->line, "`params`: a name", param->name, HANDSHAKE_NAME_BYTES);
        check_length(reader, stage->line, "`params`: a value", param->value, HANDSHAKE_VALUE_BYTES);
    }
}

/* The plug-in that runs a script; NULL: `modelet` is none. */
static char *
find_interpreter(struct config_reader *reader, const char *modelet, int line)
{
    size_t length = strlen(modelet);
    if (length < 4 || strcmp(modelet + length - 3, ".py") != 0)
        return NULL;
    return config_find_modelet(reader, must_copy("libpython_modelet.so"), line);
}

void
config_check_models(struct config_reader *reader, struct config_pipeline *pipeline,
                    const struct config_given *given)
{
    const struct config *config = reader->config;
    struct config_models *models = &pipeline->models;
    if (models->root != NULL)
        models->root = check_root(reader, models->root, given->nodes[KEY_MODELS_ROOT]->line);
    if (given->nodes[KEY_MODELS_WATCH] != NULL)
        models->watch_line = given->nodes[KEY_MODELS_WATCH]->line;
    const struct tree_node *size = given->nodes[KEY_MODELS_DEFAULT];
    if (size != NULL)
        models->default_line = size->line;
    if (models->memory_bytes > 0 && size != NULL && models->default_bytes > models->memory_bytes)
        report_add(reader->report, size->line,
                   "`default_size_mib` is more than `memory_mib` (%llu): no model could be loaded",
                   (unsigned long long)(models->memory_bytes >> 20));
    else if (models->memory_bytes > 0 && size == NULL &&
             models->default_bytes > models->memory_bytes / 2)
        models->default_bytes = models->memory_bytes / 2;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        const struct config_models *other = &config->pipelines[p].models;
        for (uint32_t i = 0; i < other->type_count; i++)
            for (uint32_t k = 0; k < models->type_count; k++)
                if (strcmp(other->types[i], models->types[k]) == 0)
                    report_add(
                        reader->report, given->nodes[KEY_MODELS_TYPES]->line,
                        "`types`: \"%s\" is also listed by the pipeline that begins on line %d",
                        other->types[i], config->pipelines[p].line);
    }
}

/* Refuses keys that do not go with `models`. */
static void
check_beside_models(struct config_reader *reader, const struct config_pipeline *pipeline,
                    const struct config_given *given)
{
    const struct tree_node *const *nodes = given->nodes;
    if (nodes[KEY_MODELS] == NULL)
        return;
    if (pipeline->local_clients > 0)
        report_add(reader->report, nodes[KEY_LOCAL_CLIENTS]->key_line,
                   "`local_clients` and `models` exclude each other: local clients name no model");
    uint32_t fixed = 0;
    for (uint32_t i = 0; i < pipeline->stage_count; i++)
        fixed += pipeline->stages[i].model_id != NULL;
    if (fixed > 0 && fixed == pipeline->stage_count)
        report_add(reader->report, nodes[KEY_MODELS]->key_line,
                   "`models`, but every stage has a `model` of its own: no stage would load them");
}

/* Also sets the default of `batch_wait_ms` where it differs from the table's. */
static void
check_batch_wait(struct tree_report *report, struct config_stage *stage,
                 const struct config_given *given)
{
    const struct tree_node *const *nodes = given->nodes;
    bool adaptive = stage->batch_wait != NULL && strcmp(stage->batch_wait, "adaptive") == 0;
    if (nodes[KEY_BATCH_WAIT_MS] == NULL) {
        if (!adaptive || stage->batch_size == 0)
            stage->batch_wait_ns = 0;
        return;
    }
    if (given->refused[KEY_BATCH_WAIT_MS])
        return;
    if (stage->batch_wait_ns > 0 && stage->batch_size == 0 && !given->refused[KEY_BATCH_SIZE])
        report_add(report, nodes[KEY_BATCH_WAIT_MS]->line,
                   "`batch_wait_ms` without a `batch_size` above 0: requests then run one at a "
                   "time and do not wait");
    if (adaptive && nodes[KEY_BATCH_WAIT] != NULL && stage->batch_wait_ns == 0)
        report_add(report, nodes[KEY_BATCH_WAIT]->line,
                   "`batch_wait: adaptive` with `batch_wait_ms: 0`: a batch would never wait");
}

void
config_check_stage(struct config_reader *reader, const struct config_pipeline *pipeline,
                   struct config_stage *stage, const struct config_given *given)
{
    struct tree_report *report = reader->report;
    const struct tree_node *const *nodes = given->nodes;
    for (uint32_t i = 0; i < pipeline->stage_count && stage->name != NULL; i++) {
        const struct config_stage *other = &pipeline->stages[i];
        if (other->name != NULL && strcmp(other->name, stage->name) == 0) {
            report_add(report, nodes[KEY_STAGE_NAME]->line,
                       "a stage named \"%s\" begins on line %d: give this one another name",
                       stage->name, other->line);
            break;
        }
    }
    if (nodes[KEY_STAGE_CPUS] != NULL && nodes[KEY_WORKERS] != NULL)
        report_add(report, nodes[KEY_WORKERS]->key_line,
                   "`workers` and `cpus` exclude each other: `cpus` has one worker per element");
    if (stage->batch_size > pipeline->slot_count)
        report_add(report, nodes[KEY_BATCH_SIZE]->line,
                   "`batch_size` is %u, more than the pipeline's %u `slots`: a batch could never "
                   "fill",
                   stage->batch_size, pipeline->slot_count);
    check_batch_wait(report, stage, given);
    if (stage->modelet != NULL) {
        stage->modelet = config_find_modelet(reader, stage->modelet, nodes[KEY_MODELET]->line);
        stage->interpreter = find_interpreter(reader, stage->modelet, nodes[KEY_MODELET]->line);
    }
    if (stage->model_path != NULL)
        stage->model_path = config_resolve(reader->config, stage->model_path);
    if (nodes[KEY_MODELET] != NULL)
        check_lengths(reader, stage, nodes[KEY_MODELET]->line);
}

void
config_check_pipeline(struct config_reader *reader, const struct config_pipeline *pipeline,
                      const struct config_given *given)
{
    const struct config *config = reader->config;
    for (uint32_t i = 0; i < config->pipeline_count && pipeline->name != NULL; i++) {
        const struct config_pipeline *other = &config->pipelines[i];
        if (other->name != NULL && strcmp(other->name, pipeline->name) == 0) {
            report_add(reader->report, given->nodes[KEY_PIPELINE_NAME]->line,
                       "a pipeline named \"%s\" begins on line %d: give this one another name",
                       pipeline->name, other->line);
            break;
        }
    }
    check_beside_models(reader, pipeline, given);
    config_check_method(reader, pipeline, given);
    struct region_plan plan = {.slot_count = pipeline->slot_count};
    struct error error = ERROR_NONE;
    if (pipeline->arena_bytes > 0 &&
        plan_arena(&plan, config->message_bytes_max, pipeline->arena_bytes, &error) != STATUS_OK)
        report_add(reader->report, given->nodes[KEY_ARENA_MIB]->line, "`arena_mib`: %s",
                   error.text);
}

static void
check_storage(struct config_reader *reader, const struct config_given *given)
{
    struct config_storage *storage = &reader->config->storage;
    char **const paths[] = {&storage->cache, &storage->entries, &storage->pvc_mounts,
                            &storage->files};
    static const enum config_key_index keys[] = {KEY_MODELS_CACHE, KEY_STORAGE_CONFIG,
                                                 KEY_PVC_MOUNTS, KEY_FILES_ROOT};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        if (*paths[i] == NULL)
            continue;
        *paths[i] = config_resolve(reader->config, *paths[i]);
        const struct config_mesh *mesh = &reader->config->mesh;
        bool is_for_adapter =
            (keys[i] == KEY_FILES_ROOT && mesh->adapter.server_type != NULL) ||
            ((keys[i] == KEY_FILES_ROOT || keys[i] == KEY_MODELS_CACHE) && mesh->images != NULL);
        if (storage->cache_bytes == 0 && !given->refused[KEY_MODELS_CACHE_GIB] && !is_for_adapter)
            report_add(reader->report, given->nodes[keys[i]]->key_line,
                       "`%s` without `models_cache_gib`: say how much disk fetched models may take",
                       config_keys[keys[i]].name);
    }
}

/* Makes a file's path absolute. */
static void
check_traces(struct config_reader *reader, const struct config_given *given)
{
    static const char file[] = "file:";
    struct config *config = reader->config;
    char shown[REPORT_VALUE_BYTES];
    if (given->nodes[KEY_TRACE_SAMPLE] != NULL && config->trace_sample > 0 &&
        config->traces == NULL && !given->refused[KEY_TRACES])
        report_add(reader->report, given->nodes[KEY_TRACE_SAMPLE]->key_line,
                   "`trace_sample` without `traces`: the spans have no destination");
    if (config->traces == NULL || strncmp(config->traces, "http://", 7) == 0 ||
        strncmp(config->traces, "https://", 8) == 0)
        return;
    if (strncmp(config->traces, file, strlen(file)) != 0 || config->traces[strlen(file)] == '\0') {
        report_add(reader->report, given->nodes[KEY_TRACES]->line,
                   "`traces` must be \"file:PATH\" or an http or https URL such as "
                   "\"http://127.0.0.1:4318/v1/traces\", not %s",
                   text_show(config->traces, shown));
        return;
    }
    char *path = config_resolve(config, must_copy(config->traces + strlen(file)));
    free(config->traces);
    config->traces = must_format("%s%s", file, path);
    free(path);
}

static void
check_runtime(struct config_reader *reader, const struct config_given *given)
{
    const struct config *config = reader->config;
    if (config->runtime.count == 0 || given->refused[KEY_PIPELINES])
        return;
    for (uint32_t i = 0; i < config->pipeline_count; i++)
        if (config->pipelines[i].models.root != NULL)
            return;
    report_add(reader->report, given->nodes[KEY_RUNTIME]->key_line,
               "`runtime`, but no pipeline has `models`: there is nothing to load");
}

static void
check_socket_mode(struct config_reader *reader, const struct config_given *given)
{
    struct config *config = reader->config;
    if (config->socket_mode != NULL &&
        !config_read_mode(config->socket_mode, &config->socket_mode_bits))
        report_add(reader->report, given->nodes[KEY_SOCKET_MODE]->line,
                   "`socket_mode`: \"%s\" is not a mode such as 0660: octal digits, 0777 at most",
                   config->socket_mode);
}

void
config_check_top(struct config_reader *reader, const struct config_given *given)
{
    struct config *config = reader->config;
    check_length(reader, 1, "the folder's path", config->directory, HANDSHAKE_PATH_BYTES);
    if (config->caller_metadata != NULL &&
        strpbrk(config->caller_metadata, "ABCDEFGHIJKLMNOPQRSTUVWXYZ") != NULL)
        report_add(reader->report, given->nodes[KEY_CALLER_METADATA]->line,
                   "`caller_metadata`: \"%s\" has capital letters: keys of metadata are in lower "
                   "case",
                   config->caller_metadata);
    if (config->caller_proxies != NULL && !config_asks_for_certificates(&config->tls))
        report_add(
            reader->report, given->nodes[KEY_CALLER_PROXIES]->line,
            "`caller_proxies` needs `tls` at the top with `client_ca`: proxies are identified by "
            "their certificates");
    if (config->http_hosts != NULL &&
        strpbrk(config->http_hosts, "ABCDEFGHIJKLMNOPQRSTUVWXYZ:/[] ") != NULL)
        report_add(reader->report, given->nodes[KEY_HTTP_HOSTS]->line,
                   "`http_hosts` must list names in lower case, without ports, not \"%s\"",
                   config->http_hosts);
    check_socket_mode(reader, given);
    check_traces(reader, given);
    check_storage(reader, given);
    if (given->nodes[KEY_PIPELINES] == NULL && !config_has_runtime(config))
        report_add(reader->report, 1, "`pipelines` is missing: the top level needs it (%s)",
                   config_type_name(CONFIG_PIPELINES));
    check_runtime(reader, given);
    config_check_mesh(reader, given);
    config_check_tls(reader);
    config_check_management(reader);
    if (config->counters == NULL)
        return;
    config->counters = config_resolve(config, config->counters);
    if (strlen(config->counters) > COUNTERS_PATH_BYTES_MAX)
        report_add(reader->report, given->nodes[KEY_COUNTERS]->line,
                   "`counters`: a path of %zu bytes (%s): must be at most %d",
                   strlen(config->counters), config->counters, COUNTERS_PATH_BYTES_MAX);
}

/* ---- addresses ---- */

enum { UNIX_PATH_BYTES_MAX = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1 };

static bool
is_port(const char *text)
{
    size_t length = strlen(text);
    return length >= 1 && length <= 5 && strspn(text, "0123456789") == length &&
           atoi(text) <= UINT16_MAX;
}

static bool
is_host(const char *host, size_t length)
{
    char text[256];
    if (length == 0 || length >= sizeof(text))
        return false;
    memcpy(text, host, length);
    text[length] = '\0';
    if (text[0] != '[')
        return text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                 "0123456789.-_")] == '\0';
    struct in6_addr ignored;
    if (text[length - 1] != ']')
        return false;
    text[length - 1] = '\0';
    char *interface = strchr(text, '%');
    if (interface != NULL)
        *interface = '\0';
    return inet_pton(AF_INET6, text + 1, &ignored) == 1;
}

static char *
check_unix(struct config_reader *reader, const struct config_key *key, const struct tree_node *node,
           const char *path)
{
    char shown[REPORT_VALUE_BYTES];
    char *resolved = config_resolve(reader->config, must_copy(path));
    size_t length = strlen(resolved);
    char *address = NULL;
    if (path[0] == '\0')
        report_add(reader->report, node->line, "`%s`: \"unix:\" needs a path after it", key->name);
    else if (length > UNIX_PATH_BYTES_MAX)
        report_add(reader->report, node->line,
                   "`%s`: a unix path of %zu bytes (%s): must be at most %d", key->name, length,
                   text_show(resolved, shown), UNIX_PATH_BYTES_MAX);
    else
        address = must_format("unix:%s", resolved);
    free(resolved);
    return address;
}

static char *
check_tcp(struct config_reader *reader, const struct config_key *key, const struct tree_node *node)
{
    char shown[REPORT_VALUE_BYTES];
    const char *colon = strrchr(node->text, ':');
    if (colon == NULL || !is_host(node->text, (size_t)(colon - node->text))) {
        report_add(reader->report, node->line, "`%s`: %s is not an address: write %s", key->name,
                   text_show(node->text, shown),
                   key->type == CONFIG_ADDRESSES
                       ? "\"port:8033\", \"127.0.0.1:8033\", \"[::1]:8033\" or "
                         "\"unix:/path\""
                       : "\"port:2112\", \"127.0.0.1:2112\", \"[::1]:2112\" or "
                         "\"unix:/path\"");
        return NULL;
    }
    if (!is_port(colon + 1)) {
        report_add(reader->report, node->line, "`%s`: the port in %s must be 0 to 65535", key->name,
                   text_show(node->text, shown));
        return NULL;
    }
    return must_copy(node->text);
}

char *
config_check_address(struct config_reader *reader, const struct config_key *key,
                     const struct tree_node *node, const struct config_addresses *others)
{
    char shown[REPORT_VALUE_BYTES];
    if (node->kind != NODE_SCALAR || node_is_null(node)) {
        report_add(reader->report, node->line,
                   "`%s` must list addresses such as \"port:8033\", not %s", key->name,
                   node_show(node, shown));
        return NULL;
    }
    for (const char *c = node->text; *c != '\0'; c++)
        if ((unsigned char)*c <= 0x20 || *c == 0x7f) {
            report_add(reader->report, node->line, "`%s`: %s holds a space or a control character",
                       key->name, text_show(node->text, shown));
            return NULL;
        }
    bool unix_socket = strncmp(node->text, "unix:", 5) == 0;
    char *address =
        unix_socket ? check_unix(reader, key, node, node->text + 5) : check_tcp(reader, key, node);
    for (uint32_t i = 0; i < others->count && address != NULL; i++)
        if (strcmp(others->items[i], address) == 0) {
            report_add(reader->report, node->line, "`%s`: %s is given twice", key->name,
                       text_show(node->text, shown));
            free(address);
            address = NULL;
        }
    return address;
}

/* ---- CPUs ---- */

/* "0-3,6": the CPUs of a set. */
static void
set_text(const cpu_set_t *set, char *text, size_t room)
{
    size_t used = 0;
    text[0] = '\0';
    for (int cpu = 0; cpu < CPU_SETSIZE && used < room; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        int last = cpu;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, set))
            last++;
        const char *comma = used > 0 ? "," : "";
        used +=
            (size_t)(last > cpu ? snprintf(text + used, room - used, "%s%d-%d", comma, cpu, last)
                                : snprintf(text + used, room - used, "%s%d", comma, cpu));
        cpu = last;
    }
}

void
config_check_cpu(struct config_reader *reader, int line, int cpu)
{
    if (reader->options.pinning == CONFIG_NO_PIN)
        return;
    cpu_set_t own;
    CPU_ZERO(&own);
    if (sched_getaffinity(0, sizeof(own), &own) != 0 || CPU_ISSET(cpu, &own))
        return;
    /* A CPU outside this process's set; shoald may be pinned itself, and only the kernel knows what
     * it would grant. */
    cpu_set_t wanted;
    CPU_ZERO(&wanted);
    CPU_SET(cpu, &wanted);
    if (sched_setaffinity(0, sizeof(wanted), &wanted) == 0) {
        (void)sched_setaffinity(0, sizeof(own), &own);
        return;
    }
    char text[256];
    set_text(&own, text, sizeof(text));
    report_add(reader->report, line,
               "CPU %d does not exist or is not available to shoald: available are %s (or start "
               "shoald with --no-pin)",
               cpu, text);
}

/* ---- files ---- */

static bool
is_file(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, R_OK) == 0;
}

/* The root as an absolute path; frees `root`. */
static char *
check_root(struct config_reader *reader, char *root, int line)
{
    root = config_resolve(reader->config, root);
    struct stat info;
    if (strlen(root) >= HANDSHAKE_PATH_BYTES)
        report_add(reader->report, line, "`root` has %zu bytes: must be at most %d", strlen(root),
                   HANDSHAKE_PATH_BYTES - 1);
    else if (reader->options.modelets == CONFIG_MODELETS_FIND &&
             (stat(root, &info) != 0 || !S_ISDIR(info.st_mode) || access(root, R_OK | X_OK) != 0))
        report_add(reader->report, line,
                   "`root`: no readable directory %s (paths are relative to %s)", root,
                   reader->config->directory);
    return root;
}

/* The colon-separated folders in which a bare name is searched for. */
static char *
search_places(const char *directory)
{
    char program[PATH_MAX];
    const char *listed = getenv("SHOAL_MODELET_PATH");
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    program[length > 0 ? length : 0] = '\0';
    for (int up = 0; up < 2; up++) { /* the prefix of <prefix>/bin/shoald */
        char *slash = strrchr(program, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    return must_format("%s:%s:%s/lib/shoal", directory, listed != NULL ? listed : "", program);
}

char *
config_modelet_path(const char *directory, const char *name, char **tried)
{
    char *places = search_places(directory);
    char *found = NULL;
    char *rest = NULL;
    *tried = must_copy("");
    for (char *place = strtok_r(places, ":", &rest); place != NULL && found == NULL;
         place = strtok_r(NULL, ":", &rest)) {
        char *path = must_format("%s/%s", place, name);
        char *longer = must_format("%s%s%s", *tried, (*tried)[0] != '\0' ? ", " : "", place);
        free(*tried);
        *tried = longer;
        if (is_file(path))
            found = path;
        else
            free(path);
    }
    free(places);
    return found;
}

char *
config_find_modelet(struct config_reader *reader, char *modelet, int line)
{
    bool bare = strchr(modelet, '/') == NULL;
    if (!bare)
        modelet = config_resolve(reader->config, modelet);
    if (reader->options.modelets == CONFIG_MODELETS_UNSEEN)
        return modelet;
    if (!bare) {
        if (!is_file(modelet))
            report_add(reader->report, line,
                       "`modelet`: no readable file %s (paths are relative to %s)", modelet,
                       reader->config->directory);
        return modelet;
    }
    char *tried;
    char *found = config_modelet_path(reader->config->directory, modelet, &tried);
    if (found == NULL)
        report_add(reader->report, line, "`modelet`: no file %s in any of %s", modelet, tried);
    free(tried);
    if (found == NULL)
        return modelet;
    free(modelet);
    return found;
}
