/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/check.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "coordinator/assembly.h"
#include "coordinator/check_addresses.h"
#include "coordinator/config/certificates.h"
#include "coordinator/dashboard/gate.h"
#include "coordinator/limits.h"
#include "coordinator/mesh/mesh_files_check.h"
#include "coordinator/mesh/mesh_management.h"
#include "coordinator/models/runtime_place.h"
#include "coordinator/trial.h"

uint32_t
check_listens_on(const struct node_options *options, const struct config *config,
                 const char *const **addresses)
{
    bool replaced = options->listen_count > 0;
    *addresses = replaced ? options->listen : (const char *const *)config->listen.items;
    return replaced ? options->listen_count : config->listen.count;
}

static enum status
check_management(const struct node_options *options, const struct config *config,
                 struct error *error)
{
    const char *const *listen;
    uint32_t count = check_listens_on(options, config, &listen);
    char path[HANDSHAKE_PATH_BYTES];
    const char *counters =
        assembly_counters_path(config, options->counters_path, path, sizeof(path));
    struct management_place place;
    return management_place_find(config, counters, listen, count, &place, error);
}

/* Checks beyond the file: `--listen` may stand for its `listen`. */
static enum status
check_places(const struct node_options *options, const struct config *config, struct error *error)
{
    const char *const *listen;
    uint32_t count = check_listens_on(options, config, &listen);
    struct runtime_place place;
    enum status status = runtime_place_find(&config->runtime, listen, count, &place, error);
    if (status == STATUS_OK && config->mesh.on)
        status = check_management(options, config, error);
    return status == STATUS_OK ? STATUS_OK : error_prefix(error, "%s", options->config_path);
}

/* Prints every mistake, and returns the first as the error. */
static enum status
check_load(const struct node_options *options, struct config *config, struct error *error)
{
    struct config_errors errors = {0};
    struct config_options how = {.pinning = options->pin ? CONFIG_PIN : CONFIG_NO_PIN};
    enum status status = config_load(options->config_path, &how, config, &errors, error);
    if (config->log_format != NULL && strcmp(config->log_format, "json") == 0)
        log_set_format(LOG_FORMAT_JSON);
    if (status == STATUS_OK)
        status = check_places(options, config, error);
    for (uint32_t i = 0; i < errors.count; i++)
        log_plain("%s", errors.lines[i]);
    if (status != STATUS_OK && errors.count == 0)
        log_plain("%s", error->text);
    if (errors.count > 0) {
        log_plain("shoald: %u mistake%s in %s; nothing was started", errors.count,
                  errors.count == 1 ? "" : "s", options->config_path);
        status = error_set(error, STATUS_INVALID_ARGUMENT, "%s%s", errors.lines[0],
                           errors.count > 1 ? " (and more: see above)" : "");
    }
    config_errors_free(&errors);
    return status;
}

enum status
check_start(const struct node_options *options, struct config *config)
{
    struct error error = ERROR_NONE;
    enum status status = check_load(options, config, &error);
    if (status == STATUS_OK) {
        status = limits_allow(config, &error);
        if (status != STATUS_OK)
            log_plain("shoald: %s", error.text);
    }
    if (status == STATUS_OK)
        return STATUS_OK;
    log_error("start_failed error=\"%s\"", error.text);
    config_free(config);
    return status;
}

static void
say_mistake(const char *mistake)
{
    log_plain("shoald: %s", mistake);
}

struct checked {
    uint32_t pipelines;
    uint32_t stages;
    uint32_t roots;
    uint32_t models;
    uint32_t certificates;
    struct addresses_found addresses;
    bool has_mesh;
};

static void
count(const struct config *config, struct checked *checked)
{
    checked->pipelines = config->pipeline_count;
    checked->has_mesh = config->mesh.on;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        checked->stages += config->pipelines[i].stage_count;
        checked->roots += config->pipelines[i].models.root != NULL;
    }
}

static void
say_good(const struct node_options *options, const struct checked *checked)
{
    printf("%s: configuration is good: %u pipeline%s\n", options->config_path, checked->pipelines,
           checked->pipelines == 1 ? "" : "s");
    printf("  stages whose modelets were loaded in a worker: %u\n", checked->stages);
    if (checked->roots > 0 && options->loads_models)
        printf("  models of folders that were loaded in a worker: %u\n", checked->models);
    else if (checked->roots > 0)
        printf("  folders of models read, the models not loaded: %u\n", checked->roots);
    printf("  addresses that can be listened on: %u\n", checked->addresses.free);
    if (checked->addresses.in_use > 0)
        printf("  addresses in use, by a running node: %u\n", checked->addresses.in_use);
    if (checked->certificates > 0)
        printf("  certificates read: %u\n", checked->certificates);
    if (checked->has_mesh)
        printf("  files of the mesh read; its store and its other nodes were not asked\n");
}

static uint32_t
check_token(const struct config *config)
{
    struct gate gate;
    struct error error = ERROR_NONE;
    if (gate_init(&gate, config->dashboard.token_file, config->http_hosts, &error) == STATUS_OK)
        return 0;
    say_mistake(error.text);
    return 1;
}

/* Checks without workers come first. */
int
node_check(const struct node_options *options)
{
    struct config config = {0};
    struct checked checked = {0};
    struct error error = ERROR_NONE;
    int code = CHECK_REFUSED;
    if (check_load(options, &config, &error) == STATUS_OK) {
        const char *const *listen;
        uint32_t listen_count = check_listens_on(options, &config, &listen);
        count(&config, &checked);
        uint32_t mistakes = certificates_check(&config, &checked.certificates, say_mistake);
        mistakes += check_token(&config);
        mistakes += mesh_files_check(&config.mesh, say_mistake);
        mistakes += check_addresses(&config, listen, listen_count, &checked.addresses, say_mistake);
        mistakes += trial_run(options, &config, say_mistake, &checked.models);
        if (mistakes == 0)
            say_good(options, &checked);
        code = mistakes == 0 ? CHECK_GOOD : CHECK_REFUSED;
    }
    config_free(&config);
    return code;
}
