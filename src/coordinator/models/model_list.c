/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of all models that callers get, in the order of their ids: an array, so that a page of
 * it costs a search and its own rows, however many models there are. It belongs to the loop thread.
 */
#include <stdlib.h>
#include <string.h>

#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"

/* The place of the first model whose id is not less. */
static uint32_t
place_of(const struct model_registry *registry, const char *id)
{
    uint32_t low = 0;
    uint32_t high = registry->list_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (strcmp(registry->list[middle]->id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void
model_list_add(struct model *model)
{
    struct model_registry *registry = model->registry;
    uint32_t place = place_of(registry, model->id);
    if (registry->list_count == registry->list_room) {
        registry->list_room = registry->list_room == 0 ? 64 : 2 * registry->list_room;
        registry->list = realloc(registry->list, registry->list_room * sizeof(struct model *));
        CHECK(registry->list != NULL);
    }
    struct model **at = registry->list + place;
    memmove(at + 1, at, (registry->list_count - place) * sizeof(struct model *));
    *at = model;
    registry->list_count++;
}

void
model_list_remove(const struct model *model)
{
    struct model_registry *registry = model->registry;
    uint32_t place = place_of(registry, model->id);
    CHECK(place < registry->list_count && registry->list[place] == model);
    registry->list_count--;
    struct model **at = registry->list + place;
    memmove(at, at + 1, (registry->list_count - place) * sizeof(struct model *));
}

void
model_list_replace(const struct model *model, struct model *successor)
{
    struct model_registry *registry = model->registry;
    uint32_t place = place_of(registry, model->id);
    CHECK(place < registry->list_count && registry->list[place] == model);
    registry->list[place] = successor;
}

/* ---- visits ---- */

static bool
visit_row(const struct model *model, model_visit *visit, void *context)
{
    registry_lock(model->registry);
    const struct model_cache_entry place = model->place;
    const struct model_answers answers = model->answers;
    registry_unlock(model->registry);
    struct storage_progress fetched = {0};
    bool is_fetched =
        model->fetch != NULL && storage_find(model->registry->storage, model->id, &fetched);
    const struct model_row row = {
        .id = model->id,
        .name = model->name,
        .version = model->source.release[0] != '\0' ? model->source.release : "1",
        .path = model->source.given,
        .in_root = !model_source_is_remote(&model->source),
        .key = model->source.key,
        .pipeline = model->catalog->pipeline->name,
        .state = place.state,
        .listed = place.listed,
        .ordered = place.ordered,
        .bytes = place.bytes,
        .is_fetched = is_fetched,
        .fetched = fetched,
        .users = place.users,
        .used_ns = place.used_ns,
        .answers = answers,
        .error = place.state == MODEL_IS_FAILED ? model->error.text
                 : model->kept != NULL          ? model->kept
                                                : "",
    };
    return visit(context, &row);
}

void
models_visit_one(struct model_registry *registry, const char *id, model_visit *visit, void *context)
{
    const struct model *model = registry_find(registry, id);
    if (model != NULL)
        (void)visit_row(model, visit, context);
}

bool
models_visit(struct model_registry *registry, const struct model_range *range, model_visit *visit,
             void *context)
{
    uint32_t at = place_of(registry, range->from);
    uint32_t left = range->most;
    at += range->skip < registry->list_count - at ? range->skip : registry->list_count - at;
    for (; at < registry->list_count && left > 0; at++, left--)
        if (!visit_row(registry->list[at], visit, context))
            return false;
    return at < registry->list_count;
}
