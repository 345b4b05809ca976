/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `mesh` of file and environment together: the store, this node's identity, and keys that do not go
 * with a mesh.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/tcp_address.h"
#include "coordinator/config/config_tree.h"
#include "coordinator/config/config_types.h"

enum { SOCKET_PATH_BYTES_MAX = 107 };

/* The line to report for a key: its own, or that of `mesh` if the environment gave it. */
static int
line_of(const struct config_reader *reader, enum config_key_index key)
{
    const struct tree_node *node = reader->mesh_given.nodes[key];
    return node != NULL ? node->line : reader->config->mesh.line;
}

static bool
begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Endpoints never begin like this: etcd's are URLs or HOST:PORT. */
static bool
is_path(const char *place)
{
    size_t bytes = strlen(place);
    return place[0] == '/' || place[0] == '.' ||
           (bytes > 5 && strcmp(place + bytes - 5, ".json") == 0);
}

static void
check_store(struct config_reader *reader)
{
    struct config_mesh *mesh = &reader->config->mesh;
    char shown[REPORT_VALUE_BYTES];
    const char *store = mesh->store;
    if (begins(store, "file:") && store[5] != '\0') {
        mesh->store_kind = CONFIG_STORE_FILE;
        mesh->store_place = config_resolve(reader->config, must_copy(store + 5));
    } else if (begins(store, "etcd:") && is_path(store + 5)) {
        mesh->store_kind = CONFIG_STORE_ETCD_FILE;
        mesh->store_place = config_resolve(reader->config, must_copy(store + 5));
    } else if (begins(store, "etcd:") && store[5] != '\0' && store[5] != ';') {
        mesh->store_kind = CONFIG_STORE_ENDPOINTS;
        mesh->store_place = must_copy(store + 5);
    } else if (strcmp(store, "memory") != 0) {
        report_add(reader->report, line_of(reader, KEY_MESH_STORE),
                   "`store`: %s is not a store: write \"memory\", \"file:/path\", "
                   "\"etcd:http://host:2379\" or \"etcd:/path.json\"",
                   text_show(store, shown));
    }
    if (mesh->store_kind == CONFIG_STORE_ENDPOINTS && strpbrk(mesh->store_place, " \t") != NULL)
        report_add(reader->report, line_of(reader, KEY_MESH_STORE),
                   "`store`: %s contains a space: separate endpoints by commas",
                   text_show(store, shown));
}

static bool
is_alone(const struct config_mesh *mesh)
{
    return mesh->store_kind == CONFIG_STORE_MEMORY || mesh->store_kind == CONFIG_STORE_FILE;
}

/* Names in etcd's keys: a host's name is one already, except for characters that it should not
 * have. NULL: it has none. */
static char *
instance_of_host(void)
{
    char host[256] = "";
    if (gethostname(host, sizeof(host) - 1) != 0 || host[0] == '\0')
        return NULL;
    size_t bytes = strlen(host);
    char *instance =
        must_copy(bytes > CONFIG_INSTANCE_BYTES ? host + bytes - CONFIG_INSTANCE_BYTES : host);
    for (char *c = instance; *c != '\0'; c++)
        if (strchr("/,", *c) != NULL || (unsigned char)*c <= 0x20 || (unsigned char)*c >= 0x7f)
            *c = '-';
    return instance;
}

static void
check_instance(struct config_reader *reader)
{
    struct config_mesh *mesh = &reader->config->mesh;
    if (mesh->instance == NULL)
        mesh->instance = instance_of_host();
    if (mesh->instance != NULL)
        return;
    if (!is_alone(mesh))
        report_add(reader->report, line_of(reader, KEY_MESH_INSTANCE),
                   "`instance` is missing: this host has no name to use instead");
    mesh->instance = must_copy("shoal");
}

static void
check_alone(struct config_reader *reader)
{
    static const enum config_key_index keys[] = {KEY_MESH_PEERS, KEY_MESH_UPGRADE_PEERS,
                                                 KEY_MESH_ADDRESS, KEY_MESH_TLS,
                                                 KEY_MESH_STORE_WAITING};
    if (!is_alone(&reader->config->mesh))
        return;
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
        if (reader->mesh_given.nodes[keys[i]] != NULL)
            report_add(reader->report, line_of(reader, keys[i]),
                       "`%s` needs etcd as `store`: with any other the mesh has one node",
                       config_keys[keys[i]].name);
}

/* Writes the target in gRPC's form; a relative path of a socket starts at the file's directory. */
static void
check_target(struct config_reader *reader, enum config_key_index key, char **target)
{
    struct tcp_address address;
    char shown[REPORT_VALUE_BYTES];
    if (*target == NULL)
        return;
    if (begins(*target, "unix:") && (*target)[5] != '\0') {
        char *path = config_resolve(reader->config, must_copy(*target + 5));
        free(*target);
        *target = must_format("unix:%s", path);
        if (strlen(path) > SOCKET_PATH_BYTES_MAX)
            report_add(reader->report, line_of(reader, key),
                       "`%s`: the path of a socket must have at most %d bytes, not %zu: %s",
                       config_keys[key].name, SOCKET_PATH_BYTES_MAX, strlen(path),
                       text_show(path, shown));
        free(path);
    } else if (strpbrk(*target, " \t/") != NULL || !tcp_address_parse(*target, &address) ||
               address.host[0] == '\0' || strcmp(address.port, "0") == 0) {
        report_add(reader->report, line_of(reader, key),
                   "`%s`: %s is not an address to call: write \"localhost:8085\", \"[::1]:8085\" "
                   "or \"unix:/path\"",
                   config_keys[key].name, text_show(*target, shown));
    }
}

/* Reports names of `runtime_types` that a pipeline has, too. */
static void
check_runtime_types(struct config_reader *reader, const struct config_models *models)
{
    const char *types = reader->config->mesh.runtime_types;
    for (uint32_t i = 0; i < models->type_count && types != NULL; i++)
        if (config_types_lists(types, models->types[i]))
            report_add(reader->report, line_of(reader, KEY_MESH_RUNTIME_TYPES),
                       "`runtime_types`: \"%s\" is in the `types` of a pipeline, too: one of them "
                       "must load it",
                       models->types[i]);
}

/* A model's type must decide which pool loads it. */
static void
check_shared(struct config_reader *reader)
{
    const struct config *config = reader->config;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct config_pipeline *pipeline = &config->pipelines[i];
        if (pipeline->models.root == NULL)
            continue;
        if (pipeline->models.type_count == 0)
            report_add(
                reader->report, pipeline->line,
                "a pipeline with `models` beside a runtime of `mesh` needs `types`: all others "
                "go to that runtime");
        check_runtime_types(reader, &pipeline->models);
    }
}

/* `KEY=VALUE`, and of a taint, `KEY[=VALUE]:EFFECT`. */
static bool
is_attribute(enum config_key_index key, const char *text, size_t bytes)
{
    static const char *const effects[] = {":NoSchedule", ":NoExecute", ":PreferNoSchedule"};
    const char *equals = memchr(text, '=', bytes);
    if (key == KEY_MESH_NODE_LABELS)
        return equals != NULL && equals > text;
    for (size_t i = 0; i < ARRAY_COUNT(effects); i++) {
        size_t length = strlen(effects[i]);
        if (bytes > length && memcmp(text + bytes - length, effects[i], length) == 0)
            return text[0] != '=' && text[0] != ':';
    }
    return false;
}

static void
check_attributes(struct config_reader *reader, enum config_key_index key, const char *list)
{
    while (list != NULL && *list != '\0') {
        size_t bytes = strcspn(list, ",");
        if (!is_attribute(key, list, bytes))
            report_add(reader->report, line_of(reader, key), "`%s`: \"%.*s\" must be %s",
                       config_keys[key].name, (int)bytes, list,
                       key == KEY_MESH_NODE_LABELS
                           ? "KEY=VALUE"
                           : "KEY=VALUE:EFFECT or KEY:EFFECT, with the effect NoSchedule, "
                             "NoExecute or PreferNoSchedule");
        list += bytes + (list[bytes] == ',');
    }
}

/* ServingRuntimes that this node runs. */
static void
check_hosting(struct config_reader *reader)
{
    static const enum config_key_index keys[] = {KEY_MESH_RUN_COMMANDS, KEY_MESH_NODE_LABELS,
                                                 KEY_MESH_NODE_TAINTS};
    const struct config_mesh *mesh = &reader->config->mesh;
    check_attributes(reader, KEY_MESH_NODE_LABELS, mesh->node_labels);
    check_attributes(reader, KEY_MESH_NODE_TAINTS, mesh->node_taints);
    for (size_t i = 0; i < ARRAY_COUNT(keys) && mesh->images == NULL; i++)
        if (reader->mesh_given.nodes[keys[i]] != NULL && !reader->mesh_given.refused[keys[i]])
            report_add(reader->report, line_of(reader, keys[i]),
                       "`%s` without `images`: this node runs no ServingRuntimes",
                       config_keys[keys[i]].name);
}

static void
check_adapter(struct config_reader *reader)
{
    struct config_mesh *mesh = &reader->config->mesh;
    struct config_adapter *adapter = &mesh->adapter;
    if (adapter->server_type == NULL)
        return;
    if (adapter->repository != NULL)
        adapter->repository = config_resolve(reader->config, adapter->repository);
    if (mesh->runtime == NULL && !reader->mesh_given.refused[KEY_MESH_RUNTIME])
        report_add(reader->report, line_of(reader, KEY_MESH_ADAPTER),
                   "`adapter` without `runtime`: name the server's gRPC address there, such as "
                   "\"localhost:8001\"");
    if (adapter->memory_bytes > 0 &&
        adapter->memory_bytes < adapter->buffer_bytes + 2 * adapter->default_bytes)
        report_add(reader->report, line_of(reader, KEY_MESH_ADAPTER),
                   "`adapter`: `memory_mib` must hold `buffer_mib` and two models of "
                   "`default_size_mib`");
}

static void
check_runtime(struct config_reader *reader, const struct config_given *given)
{
    struct config *config = reader->config;
    struct config_mesh *mesh = &config->mesh;
    bool shared = config_types_are_shared(config);
    const bool *refused = reader->mesh_given.refused;
    bool is_known = !given->refused[KEY_PIPELINES] && !refused[KEY_MESH_RUNTIME] &&
                    !refused[KEY_MESH_RUNTIME_TYPES];
    check_target(reader, KEY_MESH_RUNTIME, &mesh->runtime);
    check_target(reader, KEY_MESH_CALLS, &mesh->runtime_calls);
    check_adapter(reader);
    if (mesh->runtime == NULL && mesh->runtime_calls != NULL)
        report_add(reader->report, line_of(reader, KEY_MESH_CALLS),
                   "`runtime_calls` without `runtime`: name the process that loads the models");
    if (!shared && is_known && mesh->runtime_types != NULL)
        report_add(reader->report, line_of(reader, KEY_MESH_RUNTIME_TYPES),
                   "`runtime_types` is for a node that has `runtime` and pipelines with `models`: "
                   "one of them alone loads all that it can");
    check_hosting(reader);
    if (mesh->runtime != NULL && mesh->images != NULL)
        report_add(reader->report, line_of(reader, KEY_MESH_IMAGES),
                   "`runtime` and `images` exclude each other: the node has one runtime, which is "
                   "either started already or the one of a manifest");
    if (shared && !refused[KEY_MESH_IMAGES])
        check_shared(reader);
}

/* Refuses keys of catalogs for decisions that the mesh makes. */
static void
check_beside(struct config_reader *reader, const struct config_given *given)
{
    struct config *config = reader->config;
    bool any = false;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        struct config_models *models = &config->pipelines[i].models;
        any = any || models->root != NULL;
        if (models->root == NULL || models->watch == NULL || models->watch[0] == 'n')
            continue;
        if (models->watch_line > 0)
            report_add(reader->report, models->watch_line,
                       "`watch: yes` and `mesh` exclude each other: models are registered with "
                       "the mesh");
        free(models->watch);
        models->watch = must_copy("no");
    }
    if (!any && !config_has_runtime(config) && !given->refused[KEY_PIPELINES])
        report_add(reader->report, config->mesh.line,
                   "`mesh`, but no pipeline has `models`, and it has no `runtime` and no `images`: "
                   "nothing could load them");
    if (config->runtime.count > 0)
        report_add(reader->report, given->nodes[KEY_RUNTIME]->key_line,
                   "`runtime` and `mesh` exclude each other: two meshes would load and unload the "
                   "same models");
}

/* The mesh keeps up to a tenth of a pool free, for models that are being unloaded while others load
 * (the core's K). */
static void
check_sizes(struct config_reader *reader)
{
    const struct config *config = reader->config;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct config_models *models = &config->pipelines[i].models;
        uint64_t usable = models->memory_bytes - models->memory_bytes / 10;
        if (models->root == NULL || models->default_line == 0 || models->default_bytes <= usable ||
            models->default_bytes > models->memory_bytes)
            continue; /* more than all is refused without a mesh, too */
        unsigned long long usual_mib = models->default_bytes >> 20;
        report_add(reader->report, models->default_line,
                   "`default_size_mib` is %llu of `memory_mib` (%llu), and a mesh keeps a tenth of "
                   "that free: no model could be loaded. Give `memory_mib` at least %llu, or a "
                   "smaller `default_size_mib`",
                   usual_mib, (unsigned long long)(models->memory_bytes >> 20),
                   (usual_mib * 10 + 8) / 9);
    }
}

void
config_check_mesh(struct config_reader *reader, const struct config_given *given)
{
    struct config_mesh *mesh = &reader->config->mesh;
    char **manifests = &reader->config->manifests;
    if (*manifests != NULL)
        *manifests = config_resolve(reader->config, *manifests);
    if (*manifests != NULL && !mesh->on && !given->refused[KEY_MESH])
        report_add(reader->report, given->nodes[KEY_MANIFESTS]->key_line,
                   "`manifests` without `mesh`: write `mesh: {}` for a mesh of this node alone");
    if (!mesh->on)
        return;
    if (mesh->store != NULL)
        check_store(reader);
    check_alone(reader);
    check_runtime(reader, given);
    check_beside(reader, given);
    check_sizes(reader);
    check_instance(reader);
    if (mesh->labels == NULL)
        mesh->labels = must_copy("");
    char **files[] = {&mesh->type_constraints, &mesh->dataplane, &mesh->registered};
    for (size_t i = 0; i < ARRAY_COUNT(files); i++)
        if (*files[i] != NULL && !config_is_json(*files[i]))
            *files[i] = config_resolve(reader->config, *files[i]);
}
