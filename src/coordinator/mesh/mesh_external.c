/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_external.h"

#include "coordinator/mesh/mesh_fetch.h"
#include "serving/adapter/adapter.h"
#include "serving/storage/storage.h"

#define EXTERNAL_START_NS (INT64_MAX / 4)

static void
on_served(void *context, const char *method, enum status status, int64_t took_ns)
{
    struct meters *meters = context;
    const struct meters_call call = {
        .method = meters_method(meters, method), .status = status, .took_ns = took_ns};
    meters_record(meters, METER_SERVED, &call);
}

/* Returns the translator of `mesh: adapter`, or of the runtimes with a built-in adapter that the
 * node runs. */
static struct external_translator
translator_of(const struct mesh_external_options *options)
{
    const struct config *config = options->config;
    const struct config_adapter *adapter = &config->mesh.adapter;
    const bool is_there = adapter->server_type != NULL;
    if (!is_there && config->mesh.images == NULL)
        return (struct external_translator){.start = NULL};
    struct adapter_server server = {.type = ADAPTER_TRITON};
    if (is_there)
        server = (struct adapter_server){
            .type = adapter_type_of(adapter->server_type),
            .size_percent = adapter->size_percent,
            .loaders = adapter->loaders,
            .load_timeout_ms = adapter->load_timeout_ms,
            .capacity_bytes = adapter->memory_bytes - adapter->buffer_bytes,
            .default_bytes = adapter->default_bytes,
        };
    const char *cache = options->storage != NULL ? storage_folder(options->storage) : NULL;
    return adapter_create(&(struct adapter_options){
        .repository = is_there ? adapter->repository : options->repository,
        .roots = {config->storage.files, cache},
        .home = options->queues[0],
        .server = is_there ? &server : NULL,
    });
}

/* Waits for it without end: pods start in any order. */
struct external *
mesh_external_open(const struct mesh_external_options *options)
{
    const struct config *config = options->config;
    const struct config_mesh *mesh = &config->mesh;
    const char *const targets[] = {mesh->runtime, mesh->runtime_else};
    const struct external_options made = {
        .targets = targets,
        .target_count = (mesh->runtime != NULL) + (mesh->runtime_else != NULL),
        .serving = mesh->runtime_calls,
        .pool = options->pool,
        .queues = options->queues,
        .queue_count = options->queue_count,
        .message_bytes_max = config->message_bytes_max,
        .stream_window_bytes = config->stream_window_bytes,
        .start_ns = EXTERNAL_START_NS,
        .on_served = options->meters != NULL ? on_served : NULL,
        .context = options->meters,
        .on_change = options->on_change,
        .on_change_context = options->context,
        .files = mesh_fetch_files(options->storage),
        .translator = translator_of(options),
    };
    return external_create(&made);
}
