/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/assembly.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/catalog.h"
#include "coordinator/models/models.h"
#include "coordinator/node_storage.h"
#include "coordinator/protocol/shared_memory.h"
#include "coordinator/workers/worker_pools.h"
#include "coordinator/workers/spawn.h"
#include "ipc/handshake.h"
#include "serving/storage/storage.h"

/* Threads inherit their creator's CPUs, but those of the log and of signals are older than the
 * configuration. */
static void
pin_threads(const cpu_set_t *set)
{
    DIR *tasks = opendir("/proc/self/task");
    if (tasks == NULL) {
        log_warn("not_pinned errno=%d", errno);
        return;
    }
    const struct dirent *task;
    while ((task = readdir(tasks)) != NULL) {
        int thread = atoi(task->d_name);
        if (thread > 0 && sched_setaffinity(thread, sizeof(*set), set) != 0)
            log_warn("not_pinned errno=%d", errno);
    }
    closedir(tasks);
}

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
    pin_threads(&set);
}

/* ---- counters: one scope for the node, each pipeline, each stage, each worker ---- */

/* Room beyond the scopes of the start, as much again for each possible lane: ending generations
 * exist beside the one that serves and the one that is to take over. */
enum { SPARE_SCOPES = 64 };

static uint32_t
scope_total(const struct config *config)
{
    uint32_t total = 1 + SPARE_SCOPES;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        total += 1 + OLDEST_MAX + config->pipelines[p].stage_count;
        for (uint32_t s = 0; s < config->pipelines[p].stage_count; s++)
            total += LANES_MAX * config->pipelines[p].stages[s].worker_count;
    }
    return total;
}

static const char numbers[STAGE_WORKERS_MAX][3] = {
    "0",  "1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12", "13", "14", "15",
    "16", "17", "18", "19", "20", "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31",
    "32", "33", "34", "35", "36", "37", "38", "39", "40", "41", "42", "43", "44", "45", "46", "47",
    "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58", "59", "60", "61", "62", "63",
};

/* Order: the node; per pipeline itself, its oldest requests, its stages and their workers; the
 * spare scopes. */
static uint32_t
fill_specs(struct assembly *assembly, struct counters_spec *specs)
{
    const struct config *config = &assembly->options.source->config;
    specs[0] = (struct counters_spec){SCOPE_NODE, 0, "node"};
    uint32_t next = 1;
    for (uint32_t p = 0; p < config->pipeline_count; p++) {
        const struct config_pipeline *pipeline = &config->pipelines[p];
        uint32_t pipeline_scope = assembly->pipeline_scopes[p] = next++;
        specs[pipeline_scope] = (struct counters_spec){SCOPE_PIPELINE, 0, pipeline->name};
        assembly->oldest_scopes[p] = next;
        for (uint32_t i = 0; i < OLDEST_MAX; i++)
            specs[next++] = (struct counters_spec){SCOPE_OLDEST, pipeline_scope, numbers[i]};
        uint32_t first_stage = next;
        for (uint32_t s = 0; s < pipeline->stage_count; s++)
            specs[next++] =
                (struct counters_spec){SCOPE_STAGE, pipeline_scope, pipeline->stages[s].name};
        for (uint32_t s = 0; s < pipeline->stage_count; s++)
            for (uint32_t w = 0; w < pipeline->stages[s].worker_count; w++)
                specs[next++] = (struct counters_spec){SCOPE_WORKER, first_stage + s, numbers[w]};
    }
    return next;
}

const char *
assembly_counters_path(const struct config *config, const char *asked, char *path, size_t room)
{
    counters_default_path(path, room);
    return asked != NULL ? asked : config->counters != NULL ? config->counters : path;
}

static enum status
create_counters(struct assembly *assembly, struct error *error)
{
    const struct config *config = &assembly->options.source->config;
    uint32_t total = scope_total(config);
    struct counters_spec *specs = calloc(total, sizeof(*specs));
    CHECK(specs != NULL);
    for (uint32_t next = fill_specs(assembly, specs); next < total; next++)
        specs[next] = (struct counters_spec){SCOPE_SPARE, 0, ""};
    char path[HANDSHAKE_PATH_BYTES];
    const char *chosen =
        assembly_counters_path(config, assembly->options.counters_path, path, sizeof(path));
    enum status status = counters_create_beside(&assembly->counters, chosen,
                                                assembly->options.predecessor, specs, total, error);
    assembly->counters_created = status == STATUS_OK;
    free(specs);
    return status;
}

/* ---- pipelines ---- */

static uint32_t
worker_log_level(const struct assembly_options *options)
{
    if (options->log_level >= 0)
        return (uint32_t)options->log_level;
    const char *name = options->source->config.log_level;
    return (uint32_t)(name == NULL ? LOG_INFO : log_level_from_name(name));
}

static enum status
create_pipeline(struct assembly *assembly, uint32_t p, struct error *error)
{
    const struct assembly_options *options = &assembly->options;
    struct pipeline_options pipeline = {
        .source = options->source,
        .config = &options->source->config.pipelines[p],
        .worker_program = options->worker_program,
        .loop = options->loop,
        .counters = &assembly->counters,
        .scope = assembly->pipeline_scopes[p],
        .oldest_scopes = assembly->oldest_scopes[p],
        .workers = &assembly->workers,
        .models = &assembly->models,
        .shared_memory = assembly->shared_memory,
        .pin = options->pin,
        .log_level = worker_log_level(options),
        .events = &options->events,
    };
    enum status status = pipeline_create(&pipeline, p, &assembly->pipelines[p], error);
    if (status == STATUS_OK)
        assembly->pipeline_count++;
    return status;
}

static enum status
create_pipelines(struct assembly *assembly, struct error *error)
{
    enum status status = STATUS_OK;
    uint32_t count = assembly->options.source->config.pipeline_count;
    for (uint32_t p = 0; p < count && status == STATUS_OK; p++)
        status = create_pipeline(assembly, p, error);
    return status;
}

/* ---- the whole ---- */

static void
publish_storage(struct assembly *assembly)
{
    _Atomic uint64_t *node = counters_values(&assembly->counters, 0);
    struct storage_counts counts;
    if (assembly->storage == NULL)
        return;
    storage_look(assembly->storage, &counts);
    counter_set(node, NODE_STORAGE_FETCHES, counts.fetches);
    counter_set(node, NODE_STORAGE_HITS, counts.hits);
    counter_set(node, NODE_STORAGE_STALE, counts.stale);
    counter_set(node, NODE_STORAGE_FAILED, counts.failures);
    counter_set(node, NODE_STORAGE_RETRIES, counts.retries);
    counter_set(node, NODE_STORAGE_RECEIVED, counts.received_bytes);
    counter_set(node, NODE_STORAGE_EVICTIONS, counts.evictions);
    counter_set(node, NODE_STORAGE_CACHE, counts.cache_bytes);
    counter_set(node, NODE_STORAGE_FETCHING, counts.running);
    counter_set(node, NODE_STORAGE_WAITING, counts.waiting);
}

static struct shared_memory *
shared_memory_open(const struct config *config)
{
    return shared_memory_create(&(struct shared_memory_options){
        .rule = config->mesh.on              ? SHARED_MEMORY_OF_MESH
                : config_has_control(config) ? SHARED_MEMORY_ON
                                             : SHARED_MEMORY_OFF,
        .regions_max = config->shared_memory_regions,
        .request_bytes_max = config->message_bytes_max,
    });
}

enum status
assembly_init(struct assembly *assembly, const struct assembly_options *options,
              struct error *error)
{
    assembly->options = *options;
    const struct config *config = &options->source->config;
    enum status status =
        node_storage_open(&config->storage, options->loop, &assembly->storage, error);
    if (status != STATUS_OK)
        return status;
    assembly->registry = registry_create(assembly->storage);
    assembly->shared_memory = shared_memory_open(&options->source->config);
    assembly->workers = worker_pools_lane_workers(&catalog_member_models);
    assembly->models = registry_pipeline_models(assembly->registry);
    status = create_counters(assembly, error);
    return status == STATUS_OK ? create_pipelines(assembly, error) : status;
}

void
assembly_end_gathering(struct assembly *assembly)
{
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        for (uint32_t k = 0; k < LANES_MAX; k++)
            lane_end_gathering(&assembly->pipelines[i]->lanes[k]);
}

void
assembly_fini(struct assembly *assembly)
{
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        pipeline_destroy(assembly->pipelines[i]);
    registry_destroy(assembly->registry);
    storage_destroy(assembly->storage);
    shared_memory_destroy(assembly->shared_memory);
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
    counter_set(counters_values(&assembly->counters, 0), NODE_SHARED_MEMORY_REGIONS,
                shared_memory_count(assembly->shared_memory));
    publish_storage(assembly);
}

uint64_t
assembly_in_flight(struct assembly *assembly)
{
    uint64_t in_flight = 0;
    for (uint32_t i = 0; i < assembly->pipeline_count; i++)
        in_flight += pipeline_in_flight(assembly->pipelines[i]);
    return in_flight;
}
