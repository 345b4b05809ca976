/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models whose files are elsewhere: they are fetched at the beginning of each load, and stay in the
 * cache until no worker has anything of the model.
 *
 * A path is remote if it is an URI, or if the key names a storage and the node has a cache; else it
 * is beneath the root; and if nothing is there, and the node has a storage-config, it is in the
 * default storage of its type.
 * Sources of remote models have a path that is not absolute.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"

#define HANG_NS (5 * NS_PER_S)

bool
model_source_is_remote(const struct model_source *source)
{
    return source->path[0] != '/';
}

static enum status
place_remotely(const struct model_spec *spec, struct model_place *place, struct error *error)
{
    const char *path = spec->path + strspn(spec->path, "/");
    int bytes = snprintf(place->path, sizeof(place->path), "%s", path);
    place->bytes = 0;
    if (bytes < 0 || (size_t)bytes >= sizeof(place->path))
        return error_set(error, STATUS_INVALID_ARGUMENT, "the path has more than %zu bytes",
                         sizeof(place->path) - 1);
    return STATUS_OK;
}

enum status
catalog_find_place(const struct catalog *catalog, const struct model_spec *spec,
                   struct model_place *place, struct error *error)
{
    struct storage *storage = catalog->registry->storage;
    const struct storage_source source = {spec->path, spec->key};
    bool is_named = storage != NULL ? storage_is_named(&source) : storage_is_uri(spec->path);
    if (spec->in_root || !is_named) {
        enum status status = model_path_find(&catalog->root, spec->path, place, error);
        if (status != STATUS_NOT_FOUND || spec->in_root || storage == NULL ||
            !storage_has_default(storage))
            return status;
        error_clear(error);
    }
    if (storage == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "this node fetches no models: give it disk space, `models_cache_gib`");
    return place_remotely(spec, place, error);
}

static void
on_fetched(void *context, const struct error *error, const struct storage_model *fetched)
{
    struct model *model = context;
    model->fetch = NULL;
    if (error != NULL) {
        catalog_fail(model, error->status, error->text);
        return;
    }
    log_info_limited("model_fetched pipeline=%s model=\"%s\" bytes=%llu ms=%lld",
                     model->catalog->pipeline->name, model->id, (unsigned long long)fetched->bytes,
                     (long long)((clock_now_ns() - model->phase_since_ns) / NS_PER_MS));
    model->lease = fetched->lease;
    model->fetched = strdup(fetched->path);
    CHECK(model->fetched != NULL);
    if (strlen(fetched->path) >= HANDSHAKE_PATH_BYTES)
        catalog_fail(model, STATUS_INVALID_ARGUMENT,
                     "its place in the cache has a path that is too long: shorten `models_cache`");
    else {
        model->fetched_bytes = fetched->bytes;
        model_enter_phase(model, PHASE_FETCHED);
        catalog_kick(model->catalog);
    }
}

void
catalog_fetch(struct model *model)
{
    const struct catalog *catalog = model->catalog;
    const struct config_models *config = &catalog->pipeline->generation->config->models;
    const struct storage_request request = {
        .source = {model->source.path, model->source.key},
        .id = model->id,
        .deadline_ns = clock_now_ns() + config->load_timeout_ns,
        .done = on_fetched,
        .context = model,
    };
    registry_lock(model->registry);
    model_cache_step_aside(&model->catalog->cache, &model->place);
    registry_unlock(model->registry);
    model_enter_phase(model, PHASE_FETCHING);
    model->fetch = storage_fetch(model->registry->storage, &request);
}

bool
catalog_fetch_hangs(const struct model *model, int64_t now_ns)
{
    int64_t timeout_ns = model->catalog->pipeline->generation->config->models.load_timeout_ns;
    return now_ns - model->phase_since_ns > timeout_ns + HANG_NS;
}

void
model_end_fetch(struct model *model)
{
    if (model->fetch != NULL)
        storage_cancel(model->fetch);
    model->fetch = NULL;
}

void
model_drop_fetched(struct model *model)
{
    if (model->lease != NULL)
        storage_release(model->registry->storage, model->lease);
    model->lease = NULL;
    free(model->fetched);
    model->fetched = NULL;
}
