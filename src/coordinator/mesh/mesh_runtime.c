/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_runtime.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_external.h"
#include "coordinator/mesh/mesh_hosting.h"
#include "coordinator/mesh/mesh_repository.h"

struct mesh_runtime {
    struct mesh_runtime_options options;
    struct external *external;
    struct mesh_repository repository;
    struct mesh_hosting *hosting; /* NULL: the runtime is there already, or not started yet */
    pthread_mutex_t lock;
    bool is_posted; /* with the lock */
};

static void
on_posted(void *context)
{
    struct mesh_runtime *runtime = context;
    pthread_mutex_lock(&runtime->lock);
    runtime->is_posted = false;
    pthread_mutex_unlock(&runtime->lock);
    mesh_hosting_touch(runtime->hosting);
}

/* Any thread. */
static void
on_change(void *context)
{
    struct mesh_runtime *runtime = context;
    pthread_mutex_lock(&runtime->lock);
    bool is_first = !runtime->is_posted;
    runtime->is_posted = true;
    pthread_mutex_unlock(&runtime->lock);
    if (is_first)
        loop_post(runtime->options.loop, on_posted, runtime);
}

struct mesh_runtime *
mesh_runtime_create(const struct mesh_runtime_options *options)
{
    const struct config_mesh *config = &options->config->mesh;
    if (config->runtime == NULL && config->images == NULL)
        return NULL;
    struct mesh_runtime *runtime = calloc(1, sizeof(*runtime));
    CHECK(runtime != NULL && pthread_mutex_init(&runtime->lock, NULL) == 0);
    runtime->options = *options;
    mesh_repository_init(&runtime->repository, options->config);
    runtime->external = mesh_external_open(&(struct mesh_external_options){
        .config = options->config,
        .storage = options->storage,
        .repository = runtime->repository.path,
        .queues = options->queues,
        .queue_count = options->queue_count,
        .pool = options->pool,
        .meters = options->meters,
        .on_change = config->images != NULL ? on_change : NULL,
        .context = runtime,
    });
    return runtime;
}

struct external *
mesh_runtime_external(const struct mesh_runtime *runtime)
{
    return runtime != NULL ? runtime->external : NULL;
}

void
mesh_runtime_start(struct mesh_runtime *runtime, const struct mesh_runtime_bound *bound)
{
    if (runtime == NULL)
        return;
    external_start(runtime->external, bound->runner);
    if (runtime->options.config->mesh.images != NULL)
        runtime->hosting = mesh_hosting_create(&(struct mesh_hosting_options){
            .config = runtime->options.config,
            .loop = runtime->options.loop,
            .external = runtime->external,
            .repository = &runtime->repository,
            .runner = bound->runner,
            .leader = bound->leader,
            .address = bound->address,
            .counters = runtime->options.counters,
            .worker_program = runtime->options.worker_program,
        });
}

void
mesh_runtime_stop(struct mesh_runtime *runtime)
{
    if (runtime == NULL)
        return;
    external_close(runtime->external);
    mesh_hosting_stop(runtime->hosting);
}

bool
mesh_runtime_is_stopping(const struct mesh_runtime *runtime)
{
    return runtime != NULL && mesh_hosting_is_running(runtime->hosting);
}

void
mesh_runtime_kill(struct mesh_runtime *runtime)
{
    if (runtime != NULL)
        mesh_hosting_kill(runtime->hosting);
}

void
mesh_runtime_end_calls(struct mesh_runtime *runtime)
{
    if (runtime == NULL)
        return;
    external_destroy(runtime->external);
    runtime->external = NULL;
}

void
mesh_runtime_destroy(struct mesh_runtime *runtime)
{
    if (runtime == NULL)
        return;
    mesh_hosting_destroy(runtime->hosting);
    mesh_repository_fini(&runtime->repository);
    pthread_mutex_destroy(&runtime->lock);
    free(runtime);
}
