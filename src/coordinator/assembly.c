/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/assembly.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/spawn.h"
#include "shm/handshake.h"

void
coordinator_pin(const struct config *config)
{
    if (config->cpus == NULL)
        return;
    spawn_keep_cpus();
    cpu_set_t set;
    CPU_ZERO(&set);
    for (uint32_t i = 0; i < config->cpu_count; i++)
        CPU_SET((size_t)config->cpus[i], &set);
    if (sched_setaffinity(0, sizeof(set), &set) != 0)
        log_warn("not_pinned errno=%d", errno);
}

/* ---- counters: one scope for the node, each pipeline, each stage, each seat ---- */

static uint32_t
scope_total(const struct config *config)
{
    uint32_t total = 1;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        total += 1 + config->pipelines[p].stage_count;
        for (uint32_t s = 0; s < config->pipelines[p].stage_count; s++)
            total += config->pipelines[p].stages[s].worker_count;
    }
    return total;
}

static const char worker_names[STAGE_WORKERS_MAX][3] = {
    "0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12", "13", "14", "15",
    "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
    "32", "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45", "46", "47",
    "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60", "61", "62", "63",
};

/* Node, then per pipeline: itself, its stages, their workers in order. */
static enum status
create_counters(struct assembly *assembly, struct error *error)
{
    const struct config *config = assembly->options.config;
    uint32_t total = scope_total(config);
    struct counters_spec *specs = calloc(total, sizeof(*specs));
    CHECK(specs != NULL);
    specs[0] = (struct counters_spec){SCOPE_NODE, 0, "node"};
    uint32_t next = 1;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        const struct config_pipeline *pipeline = &config->pipelines[p];
        uint32_t pipeline_scope = next++;
        specs[pipeline_scope] = (struct counters_spec){SCOPE_PIPELINE, 0, pipeline->name};
        uint32_t first_stage = next;
        for (uint32_t s = 0; s < pipeline->stage_count; s++)
            specs[next++] =
                (struct counters_spec){SCOPE_STAGE, pipeline_scope, pipeline->stages[s].name};
        for (uint32_t s = 0; s < pipeline->stage_count; s++)
            for (uint32_t w = 0; w < pipeline->stages[s].worker_count; w++)
                specs[next++] =
                    (struct counters_spec){SCOPE_WORKER, first_stage + s, worker_names[w]};
    }
    CHECK(next == total);
    char path[HANDSHAKE_PATH_BYTES];
    counters_default_path(path, sizeof(path));
    const char *chosen = assembly->options.counters_path != NULL ? assembly->options.counters_path
                         : config->counters != NULL              ? config->counters
                                                                 : path;
    enum status status = counters_create(&assembly->counters, chosen, specs, total, error);
    assembly->counters_created = status == STATUS_OK;
    free(specs);
    return status;
}

/* ---- pipelines ---- */

static void
add_scope(struct assembly *assembly, uint32_t *next_scope)
{
    assembly->scopes[*next_scope] = *next_scope;
    (*next_scope)++;
}

static uint32_t
worker_log_level(const struct assembly_options *options)
{
    if (options->log_level >= 0)
        return (uint32_t)options->log_level;
    const char *name = options->config->log_level;
    return (uint32_t)(name == NULL ? LOG_INFO : log_level_from_name(name));
}

/* The options of pipeline p; lays out its scopes as create_counters did. */
static enum status
create_pipeline(struct assembly *assembly, uint32_t p, uint32_t *next_scope, struct error *error)
{
    const struct assembly_options *options = &assembly->options;
    const struct config_pipeline *config = &options->config->pipelines[p];
    uint32_t pipeline_scope = (*next_scope)++;
    uint32_t *stage_scopes = &assembly->scopes[*next_scope];
    for (uint32_t s = 0; s < config->stage_count; s++)
        add_scope(assembly, next_scope);
    const uint32_t **worker_scopes = &assembly->worker_scopes[(size_t)p * STAGES_MAX];
    for (uint32_t s = 0; s < config->stage_count; s++) {
        worker_scopes[s] = &assembly->scopes[*next_scope];
        for (uint32_t w = 0; w < config->stages[s].worker_count; w++)
            add_scope(assembly, next_scope);
    }
    struct pipeline_options pipeline = {
        .config = options->config,
        .pipeline = config,
        .worker_program = options->worker_program,
        .loop = options->loop,
        .counters = &assembly->counters,
        .scope = pipeline_scope,
        .stage_scopes = stage_scopes,
        .worker_scopes = worker_scopes,
        .pin = options->pin,
        .log_level = worker_log_level(options),
        .events = &options->events,
    };
    return pipeline_create(&pipeline, p, &assembly->pipelines[assembly->pipeline_count++], error);
}

static enum status
create_pipelines(struct assembly *assembly, struct error *error)
{
    const struct config *config = assembly->options.config;
    assembly->scopes = calloc(scope_total(config), sizeof(*assembly->scopes));
    assembly->worker_scopes =
        calloc((size_t)config->pipeline_count * STAGES_MAX, sizeof(*assembly->worker_scopes));
    CHECK(assembly->scopes != NULL && assembly->worker_scopes != NULL);
    uint32_t next_scope = 1;
    enum status status = STATUS_OK;
    for (uint32_t p = 0; p < config->pipeline_count && status == STATUS_OK; p++)
        status = create_pipeline(assembly, p, &next_scope, error);
    return status;
}

/* ---- the whole ---- */

enum status
assembly_init(struct assembly *assembly, const struct assembly_options *options,
              struct error *error)
{
    assembly->options = *options;
    enum status status = create_counters(assembly, error);
    return status == STATUS_OK ? create_pipelines(assembly, error) : status;
}

void
assembly_fini(struct assembly *assembly)
{
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        pipeline_destroy(assembly->pipelines[i]);
    free(assembly->scopes);
    free(assembly->worker_scopes);
    if (assembly->counters_created) {
        assembly_set_state(assembly, NODE_STOPPED);
        counters_close(&assembly->counters);
    }
    *assembly = (struct assembly){.pipeline_count = 0};
}

enum status
assembly_start(struct assembly *assembly, struct error *error)
{
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < assembly->pipeline_count && status == STATUS_OK; i++)
        status = pipeline_start(assembly->pipelines[i], error);
    return status;
}

void
assembly_stop(struct assembly *assembly)
{
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        pipeline_stop(assembly->pipelines[i]);
}

void
assembly_set_state(struct assembly *assembly, enum node_state state)
{
    atomic_store(&assembly->counters.header->state, (uint32_t)state);
}

void
assembly_publish(struct assembly *assembly)
{
    atomic_store(&assembly->counters.header->heartbeat_ns, clock_now_ns());
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        pipeline_publish(assembly->pipelines[i]);
}

uint64_t
assembly_in_flight(struct assembly *assembly)
{
    uint64_t in_flight = 0;
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        in_flight += pipeline_in_flight(assembly->pipelines[i]);
    return in_flight;
}
