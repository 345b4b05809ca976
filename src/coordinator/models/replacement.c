/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listed models, and how one is replaced whose files, path or key have changed.
 *
 *  R1. A model that is loaded goes on serving while its *successor*, a hidden model of the same id,
 *      loads. When the successor is loaded, callers get it from one call to the next, and requests
 *      are checked against its tensors. The old one is unloaded when its last user has left.
 *  R2. If the successor cannot be loaded, or the changed files can be no model, the old one is
 *      *kept* (`model_kept`). The next change is the next attempt.
 *  R3. If there is no room for both, or the old one is unloaded meanwhile for any reason, the
 *      successor is given up, and the old model takes the new source when it is loaded next.
 *      Requests that come in between wait.
 *  R4. A model that is not loaded has no successor: R3 without the unload.
 *  R5. If there is no old model, and a lower release of it lies there, that is its next source. It
 *      is reported as by R2: why the higher one is not served.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"

static void
separate(struct model *model, struct model *successor)
{
    CHECK(model->successor == successor && successor->predecessor == model);
    model->successor = NULL;
    successor->predecessor = NULL;
}

/* Called when nothing is kept from callers any more: the model is unloaded, or its files have
 * changed again. */
static void
replacement_forget_kept(struct model *model)
{
    model->catalog->kept -= model->kept != NULL;
    free(model->kept);
    model->kept = NULL;
}

/* R2. Logs each reason once. Only a release has its own files, which can be loaded again. */
static void
keep(struct model *model, const char *reason)
{
    char why[ERROR_TEXT_MAX];
    bool has_files = model->source.release[0] != '\0';
    snprintf(why, sizeof(why), "%s%s", reason,
             has_files
                 ? ""
                 : ": mend the file; what serves is only in memory, and a worker or node that "
                   "restarts cannot load it");
    if (model->kept != NULL && strcmp(model->kept, why) == 0)
        return;
    replacement_forget_kept(model);
    model->kept = strdup(why);
    CHECK(model->kept != NULL);
    model->catalog->kept++;
    log_warn_limited("model_kept pipeline=%s model=\"%s\" error=\"%s\"",
                     model->catalog->pipeline->name, model->id, why);
}

/* Retires in the loop's next turn, because this may be a step of one of the two. */
static void
retire_later(struct model *model)
{
    registry_lock(model->registry);
    catalog_attend(model);
    registry_unlock(model->registry);
}

bool
replacement_retire(struct model *model)
{
    registry_lock(model->registry);
    bool retires = model->hidden && model->predecessor == NULL && model->place.users == 0;
    registry_unlock(model->registry);
    if (retires)
        catalog_unload(model);
    return retires;
}

void
replacement_take_over(struct model *successor)
{
    struct model *model = successor->predecessor;
    separate(model, successor);
    registry_lock(model->registry);
    successor->place.listed = model->place.listed;
    successor->place.ordered = model->place.ordered;
    model->place.listed = model->place.ordered = false;
    successor->hidden = false;
    model->hidden = true;
    registry_unlock(model->registry);
    model_list_replace(model, successor);
    log_info_limited("model_replaced pipeline=%s model=\"%s\"", model->catalog->pipeline->name,
                     model->id);
    (void)replacement_retire(model); /* at once, if it can: the budget may need its room */
}

/* R3. The texts are copied, as the successor still exists. */
static void
give_source(struct model *model, const struct model *successor)
{
    const struct model_source *source = &successor->source;
    const struct model_spec spec = {.path = source->given,
                                    .key = source->key,
                                    .tensors = source->tensors,
                                    .release = source->release[0] != '\0' ? source->release : NULL};
    model_source_set(&model->next, &spec, source->path);
    model->next.version = source->version;
    model_set_releases(model, successor->releases);
}

void
replacement_fail(struct model *successor)
{
    struct model *model = successor->predecessor;
    bool lacked_room =
        successor->error.status == STATUS_RESOURCE_EXHAUSTED && successor->phase == PHASE_ROOM;
    separate(model, successor);
    if (!lacked_room) {
        keep(model, successor->error.text);
        return;
    }
    give_source(model, successor);
    catalog_unload(model);
}

/* Returns whether the model's files are wrong, not whether room, workers or time are missing. */
static bool
is_broken(const struct model *model)
{
    enum status status = model->error.status;
    return status != STATUS_RESOURCE_EXHAUSTED && status != STATUS_UNAVAILABLE &&
           status != STATUS_DEADLINE_EXCEEDED;
}

bool
replacement_falls_back(struct model *model)
{
    struct model_registry *registry = model->registry;
    if (registry->fall_back == NULL || registry->in_mesh || !model->place.listed || model->hidden ||
        model->successor != NULL || model->next.path != NULL || model->source.release[0] == '\0' ||
        !is_broken(model))
        return false;
    model->falls_back = true;
    (void)registry->fall_back(registry->fall_back_context, model->id, model->source.release);
    model->falls_back = model->next.path != NULL;
    return model->falls_back;
}

void
replacement_fell_back(struct model *model)
{
    if (model->falls_back)
        keep(model, model->error.text);
    model->falls_back = false;
}

void
registry_on_broken(struct model_registry *registry, registry_fall_back *fall_back, void *context)
{
    CHECK(registry->fall_back == NULL || fall_back == NULL);
    registry->fall_back = fall_back;
    registry->fall_back_context = context;
}

void
replacement_end(struct model *model)
{
    replacement_forget_kept(model);
    struct model *predecessor = model->predecessor;
    struct model *successor = model->successor;
    if (predecessor != NULL) { /* a purge, which is about to unload the successor, too */
        separate(predecessor, model);
        give_source(predecessor, model);
    }
    if (successor == NULL)
        return;
    separate(model, successor);
    if (model->next.path == NULL)
        give_source(model, successor);
    retire_later(successor);
}

/* ---- what a directory asks for ---- */

/* False: R4, or there are too many models. */
static bool
load_successor(struct model *model, const struct model_spec *spec, const char *path,
               uint64_t version)
{
    if (model->phase != PHASE_REST || model->place.state != MODEL_IS_LOADED)
        return false;
    struct model *successor = model_make(model->catalog, spec, path);
    if (successor == NULL)
        return false;
    successor->source.version = version;
    successor->predecessor = model;
    model->successor = successor;
    model->preload = false;
    catalog_want(successor, MODEL_CACHE_ORDERED);
    return true;
}

static uint32_t
rows_max_of(const struct sidecar_tensors *tensors)
{
    return tensors != NULL ? tensors->rows_max : 0;
}

/* Returns whether config.pbtxt describes the same tensors. */
static bool
tensors_are(const struct model_source *source, const struct model_spec *spec)
{
    uint32_t count = spec->tensors == NULL ? 0 : spec->tensors->count;
    if (count != (source->tensors == NULL ? 0 : source->tensors->count))
        return false;
    if (rows_max_of(spec->tensors) != rows_max_of(source->tensors))
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct sidecar_tensor *now = &spec->tensors->at[i];
        const struct sidecar_tensor *before = &source->tensors->at[i];
        if (strcmp(now->member, before->member) != 0 || strcmp(now->name, before->name) != 0 ||
            strcmp(now->datatype, before->datatype) != 0 || now->rank != before->rank ||
            memcmp(now->shape, before->shape, now->rank * sizeof(now->shape[0])) != 0)
            return false;
    }
    return true;
}

static void
replace(struct model *model, const struct model_spec *spec, const char *path, uint64_t version)
{
    struct model *successor = model->successor;
    replacement_forget_kept(model);
    if (successor != NULL) {
        separate(model, successor);
        retire_later(successor);
        if (model_source_is(&model->source, path, spec->key) && tensors_are(&model->source, spec) &&
            model->source.version == version)
            return; /* back to the version that serves */
    }
    if (load_successor(model, spec, path, version))
        return;
    model_move_to(model, spec, path);
    model_source_to_be(model)->version = version;
}

/* Returns whether listed models are loaded before anybody calls them. In a mesh its core
 * decides. */
static bool
is_preloaded(const struct catalog *catalog)
{
    const char *preload = catalog->pipeline->generation->config->models.preload;
    return !catalog->registry->in_mesh && (preload == NULL || preload[0] != 'n');
}

enum status
models_list(struct catalog *catalog, const struct model_spec *spec, uint64_t version,
            struct error *error)
{
    struct model_place place;
    struct model *model = model_find_or_make(catalog, spec, &place, error);
    if (model == NULL)
        return error->status;
    bool was_there = model_is_there(model);
    model_set_mark(model, MODEL_LISTED);
    struct model_source *source = model_source_to_be(model);
    bool same = model_source_is(source, place.path, spec->key) && tensors_are(source, spec);
    bool another_version = source->version != version && !model->place.ordered && was_there;
    if (!same || another_version || !was_there)
        model->preload = is_preloaded(catalog);
    if (!same || another_version)
        replace(model, spec, place.path, version);
    else
        replacement_forget_kept(model);
    model_source_to_be(model)->version = version;
    model_set_releases(model->successor != NULL ? model->successor : model, spec->releases);
    catalog_preload(model);
    return STATUS_OK;
}

bool
models_is_listed(const struct catalog *catalog, const char *id)
{
    const struct model *model = registry_find(catalog->registry, id);
    return model != NULL && model->catalog == catalog && model->place.listed;
}

void
models_keep(struct catalog *catalog, const char *id, const struct error *why)
{
    struct model *model = registry_find(catalog->registry, id);
    if (models_is_listed(catalog, id) && model->phase == PHASE_REST &&
        model->place.state == MODEL_IS_LOADED)
        keep(model, why->text);
}

bool
models_unlist(struct catalog *catalog, const char *id)
{
    if (!models_is_listed(catalog, id))
        return false;
    struct model *model = registry_find(catalog->registry, id);
    model_set_mark(model, MODEL_UNLISTED);
    if (!model->place.ordered)
        catalog_unload(model);
    return true;
}
