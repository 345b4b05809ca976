/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/config.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/memory.h"
#include "coordinator/config/config_tree.h"

/* The folder of a file, absolute; as written if the file does not exist. */
static char *
directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *named = slash == NULL   ? must_copy(".")
                  : slash == path ? must_copy("/")
                                  : must_format("%.*s", (int)(slash - path), path);
    char *absolute = realpath(named, NULL);
    if (absolute == NULL)
        return named;
    free(named);
    return absolute;
}

/* The deepest value of a valid file has depth 7: a parameter of a stage of a pipeline. */
static const struct tree_limits limits = {
    .what = "configuration",
    .empty = "the file is empty: at least `pipelines` is needed",
    .bytes_max = CONFIG_FILE_BYTES_MAX,
    .depth_max = 16,
    .nodes_max = 100000,
    .documents_max = 1,
};

enum status
config_parse(const struct config_text *text, const struct config_options *options,
             struct config *config, struct config_errors *errors, struct error *error)
{
    *config = (struct config){.path = must_copy(text->path), .directory = directory_of(text->path)};
    struct tree_report report = {.file = text->path};
    struct config_reader reader = {.config = config, .report = &report};
    if (options != NULL)
        reader.options = *options;
    struct tree_node *tree = tree_read(text->text, text->bytes, &limits, &report);
    struct config_given given;
    if (tree != NULL && config_read(&reader, tree, &given)) {
        config_read_environment(&reader, &given);
        config_check_top(&reader, &given);
    }
    tree_free(tree);
    uint32_t count = report_total(&report);
    errors->lines = report_finish(&report, &errors->count);
    if (count == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %u mistake%s", text->path, count,
                     count == 1 ? "" : "s");
}

enum status
config_load(const char *path, const struct config_options *options, struct config *config,
            struct config_errors *errors, struct error *error)
{
    *config = (struct config){0};
    *errors = (struct config_errors){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, "%s", path);
    /* One byte more than allowed, so that an excess is noticed. */
    size_t room = CONFIG_FILE_BYTES_MAX + 1;
    char *text = must_allocate(room, 1);
    size_t size = 0;
    ssize_t got;
    while (size < room && (got = read(fd, text + size, room - size)) != 0) {
        if (got < 0) {
            error_set_errno(error, "reading %s", path);
            close(fd);
            free(text);
            return error->status;
        }
        size += (size_t)got;
    }
    close(fd);
    struct config_text file = {.path = path, .text = text, .bytes = size};
    enum status status = config_parse(&file, options, config, errors, error);
    free(text);
    return status;
}

static void
variables_free(char **variables)
{
    for (uint32_t i = 0; variables != NULL && variables[i] != NULL; i++)
        free(variables[i]);
    free(variables);
}

static void
stage_free(struct config_stage *stage)
{
    for (uint32_t i = 0; i < stage->param_count; i++) {
        free(stage->params[i].name);
        free(stage->params[i].value);
    }
    free(stage->params);
    variables_free(stage->variables);
    free(stage->name);
    free(stage->modelet);
    free(stage->interpreter);
    free(stage->cpus);
    free(stage->batch_wait);
    free(stage->collect);
    free(stage->model_id);
    free(stage->model_path);
    free(stage->model_key);
}

bool
config_gives_pieces(const struct config_pipeline *pipeline)
{
    const char *collect = pipeline->stages[pipeline->stage_count - 1].collect;
    bool is_unary = pipeline->method != NULL && collect != NULL && strcmp(collect, "refuse") != 0;
    return pipeline->stream_bytes > 0 && !is_unary;
}

bool
config_has_tls(const struct config_addresses *addresses, uint32_t index)
{
    const char *tls = addresses->transports[index].tls;
    return tls != NULL && strcmp(tls, "yes") == 0;
}

static void
addresses_free(struct config_addresses *addresses)
{
    for (uint32_t i = 0; i < addresses->count; i++) {
        free(addresses->items[i]);
        free(addresses->transports[i].tls);
        free(addresses->transports[i].plain);
    }
}

static void
tls_free(struct config_tls *tls)
{
    free(tls->certificate);
    free(tls->key);
    free(tls->key_password_file);
    free(tls->ca);
    free(tls->client_auth);
    free(tls->peer_name);
    memory_free_secret(tls->key_password);
}

static void
management_free(struct config_management *management)
{
    for (uint32_t i = 0; i < management->allow_count; i++) {
        struct config_allow *allow = &management->allow[i];
        for (uint32_t j = 0; j < allow->model_count; j++)
            free(allow->models[j]);
        free(allow->models);
        free(allow->identity);
    }
    free(management->allow);
    free(management->socket_mode);
    addresses_free(&management->addresses);
}

static void
mesh_free(struct config_mesh *mesh)
{
    char *const texts[] = {mesh->store,
                           mesh->store_place,
                           mesh->prefix,
                           mesh->service,
                           mesh->instance,
                           mesh->labels,
                           mesh->location,
                           mesh->zone,
                           mesh->type_constraints,
                           mesh->address,
                           mesh->vmodel_owner,
                           mesh->names,
                           mesh->fail_fast,
                           mesh->runtime,
                           mesh->runtime_calls,
                           mesh->runtime_else,
                           mesh->dataplane,
                           mesh->runtime_types,
                           mesh->registered,
                           mesh->adapter.server_type,
                           mesh->adapter.repository,
                           mesh->run_commands,
                           mesh->node_labels,
                           mesh->node_taints};
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++)
        free(texts[i]);
    variables_free(mesh->images);
    addresses_free(&mesh->peers);
    addresses_free(&mesh->upgrade_peers);
    management_free(&mesh->management);
    tls_free(&mesh->tls);
}

void
config_free(struct config *config)
{
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        struct config_pipeline *pipeline = &config->pipelines[i];
        for (uint32_t j = 0; j < pipeline->stage_count; j++)
            stage_free(&pipeline->stages[j]);
        free(pipeline->stages);
        for (uint32_t j = 0; j < pipeline->models.type_count; j++)
            free(pipeline->models.types[j]);
        free(pipeline->models.types);
        free(pipeline->models.root);
        free(pipeline->models.watch);
        free(pipeline->models.preload);
        free(pipeline->models.id);
        free(pipeline->name);
        free(pipeline->method);
        free(pipeline->id_path);
    }
    free(config->pipelines);
    addresses_free(&config->listen);
    addresses_free(&config->metrics);
    addresses_free(&config->dashboard.addresses);
    free(config->dashboard.token_file);
    free(config->dashboard.infer);
    addresses_free(&config->http);
    addresses_free(&config->probes);
    addresses_free(&config->prestop);
    addresses_free(&config->runtime);
    mesh_free(&config->mesh);
    tls_free(&config->tls);
    free(config->cpus);
    free(config->counters);
    free(config->compression);
    free(config->log_level);
    free(config->log_format);
    free(config->socket_mode);
    free(config->server_name);
    free(config->caller_metadata);
    free(config->caller_proxies);
    free(config->http_control);
    free(config->http_hosts);
    free(config->sandbox);
    free(config->manifests);
    free(config->traces);
    free(config->storage.cache);
    free(config->storage.entries);
    free(config->storage.pvc_mounts);
    free(config->storage.files);
    free(config->storage.metadata);
    free(config->directory);
    free(config->path);
    *config = (struct config){0};
}

void
config_errors_free(struct config_errors *errors)
{
    for (uint32_t i = 0; i < errors->count; i++)
        free(errors->lines[i]);
    free(errors->lines);
    *errors = (struct config_errors){0};
}

bool
config_labels_have(const char *labels, const void *label, size_t bytes)
{
    while (labels != NULL) {
        const char *end = strchrnul(labels, ',');
        if ((size_t)(end - labels) == bytes && memcmp(labels, label, bytes) == 0)
            return true;
        labels = *end == ',' ? end + 1 : NULL;
    }
    return false;
}

bool
config_has_control(const struct config *config)
{
    return config->http_control != NULL && strcmp(config->http_control, "on") == 0;
}

const char *
config_server_name(const struct config *config)
{
    return config->server_name != NULL ? config->server_name : "shoal";
}

/* Like other programs' caches. */
bool
config_cache_folder(const struct config_storage *storage, char path[PATH_MAX])
{
    const char *systemd = getenv("CACHE_DIRECTORY");
    const char *user = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    int bytes = 0;
    if (storage->cache != NULL)
        bytes = snprintf(path, PATH_MAX, "%s", storage->cache);
    else if (systemd != NULL && systemd[0] == '/')
        bytes = snprintf(path, PATH_MAX, "%.*s/models", (int)strcspn(systemd, ":"), systemd);
    else if (user != NULL && user[0] == '/')
        bytes = snprintf(path, PATH_MAX, "%s/shoal/models", user);
    else if (geteuid() == 0)
        bytes = snprintf(path, PATH_MAX, "/var/cache/shoal/models");
    else if (home != NULL && home[0] == '/')
        bytes = snprintf(path, PATH_MAX, "%s/.cache/shoal/models", home);
    return bytes > 0 && bytes < PATH_MAX;
}
