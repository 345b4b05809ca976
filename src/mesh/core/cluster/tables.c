/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/tables.h"
#include "base/check.h"
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { TYPES_MAX = 65536, REASONS_MAX = 1 << 20, DEPARTED_MS = 600000 };

void
tables_init(struct tables *tables, const struct mesh_config *config)
{
    uint64_t key = config->seed ^ UINT64_C(0x6d65736820696473);
    *tables = (struct tables){0};
    names_init(&tables->model_names, config->models_max, key);
    names_init(&tables->instance_names, config->instances_max, key);
    names_init(&tables->type_names, TYPES_MAX, key);
    names_init(&tables->reasons, REASONS_MAX, key);
    names_init(&tables->label_sets, config->instances_max + DEPARTED_MAX, key);
    types_init(&tables->types, key);
    generations_init(&tables->generations, config->instances_max + 1, key);
    for (uint32_t i = 0; i < DEPARTED_MAX; i++)
        tables->departed[i].label_set = NAME_NONE;
    CHECK(tables_hold_instance(tables, config->instance) == INSTANCE_SELF);
}

static void
drop_pools(struct instance *instance)
{
    free(instance->pool_names);
    free(instance->pools);
    instance->pool_names = NULL;
    instance->pools = NULL;
    instance->pool_count = 0;
}

void
tables_fini(struct tables *tables)
{
    for (uint32_t i = 0; i < tables->model_names.used; i++) {
        free(tables->models[i].path);
        free(tables->models[i].wanting);
        free(tables->models[i].places);
    }
    free(tables->models);
    for (uint32_t i = 0; i < tables->instance_names.used; i++)
        drop_pools(&tables->instances[i]);
    free(tables->instances);
    free(tables->candidates);
    names_fini(&tables->model_names);
    names_fini(&tables->instance_names);
    names_fini(&tables->type_names);
    names_fini(&tables->reasons);
    names_fini(&tables->label_sets);
    types_fini(&tables->types);
    generations_fini(&tables->generations);
}

const struct core_place *
model_place(const struct core_model *model, uint16_t instance)
{
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++)
        if (places[i].instance == instance)
            return &places[i];
    return NULL;
}

uint32_t
model_copies(const struct tables *tables, const struct core_model *model)
{
    const struct core_place *places = model_places(model);
    uint32_t copies = 0;
    for (uint32_t i = 0; i < model->place_count; i++)
        copies += place_is_copy(tables, &places[i]);
    return copies;
}

uint32_t
model_staying(const struct tables *tables, const struct core_model *model,
              enum mesh_place_kind least)
{
    const struct type_rule *rule = tables_rule(tables, model);
    const struct core_place *places = model_places(model);
    uint32_t copies = 0;
    for (uint32_t i = 0; i < model->place_count; i++) {
        const struct instance *instance = &tables->instances[places[i].instance];
        copies += place_is_copy(tables, &places[i]) && places[i].kind >= least &&
                  !instance->draining && types_allow(rule, instance->labels);
    }
    return copies;
}

bool
model_is_at_most(const struct tables *tables, const struct core_model *model)
{
    uint32_t most = model->bounds.copies_max;
    return most != 0 && model_staying(tables, model, MESH_PLACE_LOADING) >= most;
}

uint32_t
tables_model(const struct tables *tables, const char *id)
{
    return names_find(&tables->model_names, id);
}

uint32_t
tables_instance(const struct tables *tables, const char *id)
{
    return names_find(&tables->instance_names, id);
}

uint32_t
tables_hold_instance(struct tables *tables, const char *id)
{
    uint32_t number = names_hold(&tables->instance_names, id);
    if (number == NAME_NONE)
        return NAME_NONE;
    scratch_grow((void **)&tables->instances, &tables->instance_capacity, number + 1,
                 sizeof(*tables->instances));
    scratch_grow((void **)&tables->candidates, &tables->candidate_capacity, number + 1,
                 sizeof(*tables->candidates));
    if (tables->instance_names.at[number].references == 1)
        tables->instances[number] =
            (struct instance){.label_set = NAME_NONE, .generation = NAME_NONE};
    return number;
}

uint32_t
tables_hold_model(struct tables *tables, const char *id)
{
    uint32_t number = names_hold(&tables->model_names, id);
    if (number == NAME_NONE)
        return NAME_NONE;
    scratch_grow((void **)&tables->models, &tables->model_capacity, number + 1,
                 sizeof(*tables->models));
    if (tables->model_names.at[number].references == 1)
        tables->models[number] =
            (struct core_model){.txn_compare = TXN_COMPARED_NONE, .entry = ENTRY_NONE};
    return number;
}

/* Adds (1) or subtracts (-1) the record's part of the sums, by its text, for dead instances, too.
 */
static void
count_places(struct tables *tables, const struct core_model *model, int sign)
{
    const struct core_place *places = model_places(model);
    bool held = false;
    bool failed = false;
    for (uint32_t i = 0; i < model->place_count; i++) {
        held |= places[i].kind != MESH_PLACE_FAILED;
        failed |= places[i].kind == MESH_PLACE_FAILED;
    }
    tables->held += (uint32_t)(sign * held);
    tables->failed += (uint32_t)(sign * failed);
    tables->bound += (uint32_t)(sign * (model->bounds.copies_min + model->bounds.copies_max > 0));
}

static void
clear_record(struct tables *tables, struct core_model *model)
{
    const struct core_place *places = model_places(model);
    count_places(tables, model, -1);
    for (uint32_t i = 0; i < model->place_count; i++) {
        names_release(&tables->instance_names, places[i].instance);
        if (places[i].reason != NAME_NONE)
            names_release(&tables->reasons, places[i].reason);
    }
    free(model->places);
    free(model->path);
    free(model->wanting);
    model->places = NULL;
    model->path = NULL;
    model->wanting = NULL;
    model->place_count = 0;
    model->bounds = (struct mesh_bounds){0};
    if (model->known)
        names_release(&tables->type_names, model->type);
    tables->known -= model->known;
    model->known = false;
}

/* A second place of an instance, or one beyond the limit, is ignored. */
static void
read_places(struct tables *tables, struct core_model *model, const struct mesh_model *record)
{
    uint32_t count = record->place_count < MESH_PLACES_MAX ? record->place_count : MESH_PLACES_MAX;
    if (count > PLACES_INLINE) {
        model->places = calloc(count, sizeof(*model->places));
        CHECK(model->places != NULL);
    }
    struct core_place *places = model->places != NULL ? model->places : model->few;
    for (uint32_t i = 0; i < count; i++) {
        const struct mesh_place *given = &record->places[i];
        uint32_t instance = tables_hold_instance(tables, given->instance);
        if (instance == NAME_NONE)
            continue;
        if (model_place(model, (uint16_t)instance) != NULL) {
            names_release(&tables->instance_names, instance);
            continue;
        }
        bool reason = given->kind == MESH_PLACE_FAILED && given->reason != NULL;
        places[model->place_count++] = (struct core_place){
            .since_ms = stamp_judge(given->since_ms),
            .reason = reason ? names_hold(&tables->reasons, given->reason) : NAME_NONE,
            .instance = (uint16_t)instance,
            .kind = (uint8_t)given->kind,
        };
    }
}

static char *
path_and_key(const struct mesh_model *record)
{
    size_t path = strlen(record->path) + 1;
    size_t key = strlen(record->key) + 1;
    char *both = malloc(path + key);
    CHECK(both != NULL);
    memcpy(both, record->path, path);
    memcpy(both + path, record->key, key);
    return both;
}

static const char *
key_of(const struct core_model *model)
{
    return model->path + strlen(model->path) + 1;
}

bool
tables_put_model(struct tables *tables, const struct mesh_model *record, uint32_t *number)
{
    uint32_t at = tables_model(tables, record->id);
    if (at != NAME_NONE && record->revision <= tables->models[at].revision)
        return false;
    uint32_t type = names_hold(&tables->type_names, record->type);
    if (type == NAME_NONE)
        return false;
    if (at == NAME_NONE) {
        at = tables_hold_model(tables, record->id);
        if (at == NAME_NONE) {
            names_release(&tables->type_names, type);
            return false;
        }
        tables->models[at].listed = true;
    }
    struct core_model *model = &tables->models[at];
    if (!model->listed)
        names_keep(&tables->model_names, at);
    struct core_model former = *model; /* released last: an instance in both survives */
    former.wanting = NULL;
    model->places = NULL;
    model->place_count = 0;
    model->listed = true;
    model->known = true;
    tables->known++;
    model->type = type;
    model->path = path_and_key(record);
    model->create_revision = record->create_revision;
    model->revision = record->revision;
    model->used_ms = stamp_judge(record->used_ms);
    model->unloaded_ms = stamp_judge(record->unloaded_ms);
    model->references = record->references;
    model->auto_delete = record->auto_delete;
    model->bounds = record->bounds;
    if (!former.known || former.type != type || strcmp(key_of(&former), key_of(model)) != 0)
        model->pool_name = POOL_NAME_UNKNOWN;
    read_places(tables, model, record);
    count_places(tables, model, 1);
    clear_record(tables, &former);
    *number = at;
    return true;
}

bool
tables_drop_model(struct tables *tables, const char *id, uint64_t revision, uint32_t *number)
{
    uint32_t at = tables_model(tables, id);
    if (at == NAME_NONE || revision <= tables->models[at].revision)
        return false;
    clear_record(tables, &tables->models[at]);
    tables->models[at].revision = revision;
    *number = at;
    return true;
}

void
tables_forget_model(struct tables *tables, uint32_t number)
{
    struct core_model *model = &tables->models[number];
    if (model->known || model->entry != ENTRY_NONE || !model->listed)
        return;
    model->listed = false;
    names_release(&tables->model_names, number);
}

static void
set_labels(struct tables *tables, struct instance *instance, const char *labels)
{
    uint32_t before = instance->label_set;
    instance->label_set = names_hold(&tables->label_sets, labels);
    instance->labels = types_labels(&tables->types, labels);
    if (before != NAME_NONE)
        names_release(&tables->label_sets, before);
}

/* U1. An instance that changes its generation has left the old one. */
static void
set_generation(struct tables *tables, struct instance *instance, const struct mesh_instance *record,
               int64_t now_ms)
{
    struct generations *generations = &tables->generations;
    uint32_t before = instance->generation;
    instance->generation = NAME_NONE;
    if (instance->label_set != NAME_NONE)
        instance->generation = generations_join(generations, record->id, record->version,
                                                instance->label_set, stamp_judge(record->start_ms));
    if (before != NAME_NONE && before != instance->generation)
        generations_lose(generations, before, now_ms);
    if (before != NAME_NONE)
        generations_leave(generations, before);
    if (instance->generation != NAME_NONE && record->draining && !instance->draining)
        generations_lose(generations, instance->generation, now_ms);
}

static void
leave_generation(struct tables *tables, struct instance *instance, int64_t now_ms)
{
    if (instance->generation == NAME_NONE)
        return;
    generations_lose(&tables->generations, instance->generation, now_ms);
    generations_leave(&tables->generations, instance->generation);
    instance->generation = NAME_NONE;
}

/* Clamps the figures so that sums and differences do not overflow. */
static struct mesh_figures
figures_judge(struct mesh_figures figures)
{
    const uint64_t units_max = UINT64_C(1) << 47; /* even summed over 65,535 instances */
    if (figures.capacity_units > units_max)
        figures.capacity_units = units_max;
    if (figures.free_units > figures.capacity_units)
        figures.free_units = figures.capacity_units;
    figures.oldest_ms = stamp_judge(figures.oldest_ms);
    return figures;
}

/* Stores the figures of an instance, from its record. */
static void
tables_notify_figures(struct instance *instance, const struct mesh_figures *figures, int64_t now_ms)
{
    if (!figures_are_bare(&instance->figures))
        instance->bare_ms = now_ms;
    instance->figures = figures_judge(*figures);
    instance->pending_units = 0; /* P5 */
}

static void
set_pool(struct instance_pool *pool, const struct mesh_figures *figures, int64_t now_ms)
{
    if (!figures_are_bare(&pool->figures))
        pool->bare_ms = now_ms;
    pool->figures = figures_judge(*figures);
}

void
tables_notify_reply(struct instance *instance, const struct core_model *model,
                    const struct mesh_figures *figures, int64_t now_ms)
{
    if (instance->pool_names == NULL) {
        tables_notify_figures(instance, figures, now_ms);
        return;
    }
    uint32_t pool =
        model == NULL ? POOL_UNNAMED : pool_names_find(instance->pool_names, model->pool_name);
    if (pool == POOL_UNNAMED)
        return;
    set_pool(&instance->pools[pool], figures, now_ms);
    instance->pending_units = 0; /* P5 */
}

/* A process has the same pools in all of its records. */
static void
set_pools(struct instance *instance, const struct mesh_instance *record, int64_t now_ms)
{
    if (instance->pool_count != record->pool_count)
        drop_pools(instance);
    if (record->pool_count == 0)
        return;
    if (instance->pools == NULL) {
        instance->pools = calloc(record->pool_count, sizeof(*instance->pools));
        CHECK(instance->pools != NULL);
        instance->pool_count = record->pool_count;
    }
    free(instance->pool_names);
    instance->pool_names = pool_names_create(record->pool_types, record->pool_count);
    for (uint32_t i = 0; i < record->pool_count; i++)
        set_pool(&instance->pools[i], &record->pool_figures[i], now_ms);
}

bool
tables_put_instance(struct tables *tables, const struct mesh_instance *record, int64_t now_ms)
{
    uint32_t at = tables_instance(tables, record->id);
    if (at != NAME_NONE && tables->instances[at].session != 0) {
        if (record->revision <= tables->instances[at].revision)
            return false;
    } else {
        if (at != NAME_NONE && record->revision <= tables->instances[at].revision)
            return false;
        at = tables_hold_instance(tables, record->id); /* the key's own reference */
        if (at == NAME_NONE)
            return false;
        tables->live++;
    }
    struct instance *instance = &tables->instances[at];
    if (instance->session != record->session) {
        instance->unreachable_until_ms = now_ms;
        tables->joins++;
    }
    instance->session = record->session;
    instance->lost = false;
    instance->revision = record->revision;
    instance->start_ms = stamp_judge(record->start_ms);
    instance->version = record->version;
    tables_notify_figures(instance, &record->figures, now_ms);
    if (at != INSTANCE_SELF) /* its own are known better */
        set_pools(instance, record, now_ms);
    set_labels(tables, instance, record->labels);
    set_generation(tables, instance, record, now_ms);
    instance->draining = record->draining;
    return true;
}

/* Replaces the oldest departure; takes over the reference to the labels. */
static void
note_departed(struct tables *tables, const struct instance *instance, int64_t now_ms)
{
    struct departed *departed = &tables->departed[tables->departed_count++ % DEPARTED_MAX];
    if (departed->label_set != NAME_NONE)
        names_release(&tables->label_sets, departed->label_set);
    *departed = (struct departed){.capacity_units = instance->figures.capacity_units,
                                  .gone_ms = now_ms,
                                  .label_set = instance->label_set};
}

bool
tables_has_departed(const struct tables *tables, const struct type_rule *rule, uint32_t units,
                    int64_t now_ms)
{
    for (uint32_t i = 0; i < DEPARTED_MAX; i++) {
        const struct departed *departed = &tables->departed[i];
        if (departed->label_set == NAME_NONE || now_ms - departed->gone_ms >= DEPARTED_MS ||
            (departed->capacity_units != 0 && departed->capacity_units < units))
            continue;
        const char *labels = names_text(&tables->label_sets, departed->label_set);
        if (types_allow(rule, types_labels(&tables->types, labels)))
            return true;
    }
    return false;
}

bool
tables_drop_instance(struct tables *tables, const char *id, uint64_t revision, int64_t now_ms)
{
    uint32_t at = tables_instance(tables, id);
    if (at == NAME_NONE || tables->instances[at].session == 0 ||
        revision <= tables->instances[at].revision)
        return false;
    struct instance *instance = &tables->instances[at];
    leave_generation(tables, instance, now_ms);
    if (at != INSTANCE_SELF) { /* this node keeps its labels without a key */
        note_departed(tables, instance, now_ms);
        drop_pools(instance);
        instance->label_set = NAME_NONE;
    }
    instance->session = 0;
    instance->lost = false;
    instance->revision = revision;
    instance->gone_ms = now_ms;
    tables->live--;
    names_release(&tables->instance_names, at);
    return true;
}

void
tables_relabel(struct tables *tables)
{
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        struct instance *instance = &tables->instances[i];
        if (names_text(&tables->instance_names, i) != NULL && instance->label_set != NAME_NONE)
            instance->labels =
                types_labels(&tables->types, names_text(&tables->label_sets, instance->label_set));
    }
}

void
tables_notify_old(struct tables *tables, int64_t now_ms, int64_t wall_ms)
{
    struct generations *generations = &tables->generations;
    generations_begin(generations);
    for (uint32_t i = 0; i < tables->instance_names.used; i++)
        if (tables->instances[i].generation != NAME_NONE)
            generations_show(generations, tables->instances[i].generation,
                             tables->instances[i].start_ms, wall_ms);
    generations_judge(generations, now_ms, wall_ms);
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        struct instance *instance = &tables->instances[i];
        instance->old =
            instance->generation != NAME_NONE && generations->at[instance->generation].old;
    }
}

const struct type_rule *
tables_rule(const struct tables *tables, const struct core_model *model)
{
    return types_rule(&tables->types, names_text(&tables->type_names, model->type));
}

struct tables_room
tables_room(const struct tables *tables, const struct core_model *model)
{
    const struct type_rule *rule = tables_rule(tables, model);
    struct tables_room room = {.oldest_ms = STAMP_MAX};
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        if (instance->session == 0 || instance->draining || !types_allow(rule, instance->labels))
            continue;
        const struct mesh_figures *figures = figures_for(instance, model);
        room.capacity_units += figures->capacity_units;
        room.free_units += figures->free_units;
        if (figures->oldest_ms < room.oldest_ms)
            room.oldest_ms = figures->oldest_ms;
    }
    return room;
}
