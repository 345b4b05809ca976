/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "coordinator/catalog.h"
#include "coordinator/pipeline.h"

struct registry {
    pthread_mutex_t lock;
    struct catalog *catalogs[CONFIG_PIPELINES_MAX];
    uint32_t catalog_count;
    struct loop *loop;
};

struct catalog {
    struct registry *registry;
    struct pipeline *pipeline;
};

const char *
model_state_name(enum model_state state)
{
    static const char *const names[] = {"known", "loading", "loaded", "unloading", "failed"};
    return names[state];
}

struct registry *
registry_create(void)
{
    struct registry *registry = calloc(1, sizeof(*registry));
    CHECK(registry != NULL);
    CHECK(pthread_mutex_init(&registry->lock, NULL) == 0);
    return registry;
}

void
registry_destroy(struct registry *registry)
{
    if (registry == NULL)
        return;
    pthread_mutex_destroy(&registry->lock);
    free(registry);
}

struct catalog *
catalog_create(struct registry *registry, struct pipeline *pipeline)
{
    struct catalog *catalog = calloc(1, sizeof(*catalog));
    CHECK(catalog != NULL);
    catalog->registry = registry;
    catalog->pipeline = pipeline;
    registry->loop = pipeline->options.loop;
    registry->catalogs[registry->catalog_count++] = catalog;
    return catalog;
}

void
catalog_destroy(struct catalog *catalog)
{
    free(catalog);
}

struct model *
registry_enter(struct registry *registry, const char *id, size_t id_bytes,
               struct pipeline **pipeline)
{
    (void)registry, (void)id, (void)id_bytes;
    *pipeline = NULL;
    return NULL;
}

void
model_leave(struct model *model)
{
    (void)model;
}

bool
registry_describe(struct registry *registry, const char *id, struct oip_model_info *info,
                  bool *ready, struct model **model)
{
    (void)registry, (void)id, (void)info, (void)ready, (void)model;
    return false;
}

struct later {
    model_done *done;
    void *context;
};

static void
tell(void *context)
{
    struct later *later = context;
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_UNIMPLEMENTED, "models can't be loaded yet");
    later->done(later->context, &error, NULL);
    free(later);
}

static void
answer_later(struct registry *registry, model_done *done, void *context)
{
    struct later *later = calloc(1, sizeof(*later));
    CHECK(later != NULL);
    *later = (struct later){done, context};
    loop_post(registry->loop, tell, later);
}

void
models_load(struct catalog *catalog, const struct model_spec *spec, model_done *done, void *context)
{
    (void)spec;
    answer_later(catalog->registry, done, context);
}

void
models_unload(struct registry *registry, const char *id, model_done *done, void *context)
{
    (void)id;
    answer_later(registry, done, context);
}

void
models_purge(struct registry *registry, model_done *done, void *context)
{
    answer_later(registry, done, context);
}

void
models_predict(struct catalog *catalog, const struct model_spec *spec, model_done *done,
               void *context)
{
    (void)spec;
    answer_later(catalog->registry, done, context);
}

enum status
models_list(struct catalog *catalog, const struct model_spec *spec, struct error *error)
{
    (void)catalog, (void)spec;
    return error_set(error, STATUS_UNIMPLEMENTED, "models can't be listed yet");
}

void
models_unlist(struct catalog *catalog, const char *id)
{
    (void)catalog, (void)id;
}

struct catalog *
models_catalog_for(struct pipeline *const *pipelines, uint32_t count, const char *type)
{
    (void)type;
    for (uint32_t i = 0; i < count; i++)
        if (pipelines[i]->catalog != NULL)
            return pipelines[i]->catalog;
    return NULL;
}

void
models_facts(const struct catalog *catalog, struct catalog_facts *facts)
{
    const struct config_models *config = &catalog->pipeline->generation->config->models;
    *facts = (struct catalog_facts){
        .capacity_bytes = config->memory_bytes,
        .default_bytes = config->default_bytes,
        .load_concurrency = config->load_concurrency,
        .load_timeout_ns = config->load_timeout_ns,
    };
}

bool
models_size(struct registry *registry, const char *id, uint64_t *bytes)
{
    (void)registry, (void)id, (void)bytes;
    return false;
}

void
models_visit(struct registry *registry, void (*visit)(void *context, const struct model_row *),
             void *context)
{
    (void)registry, (void)visit, (void)context;
}
