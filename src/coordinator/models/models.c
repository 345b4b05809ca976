/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry, and the orders of registrars, except directories (replacement.c). An order only
 * says what is to be (listed, ordered, by which path and key); catalog.c brings it about from any
 * state of the model.
 */
#include "coordinator/models/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"

const char *
model_state_name(enum model_state state)
{
    static const char *const names[] = {"known", "loading", "loaded", "unloading", "failed"};
    return names[state];
}

/* ---- the table ---- */

struct model_registry *
registry_create(struct storage *storage)
{
    struct model_registry *registry = calloc(1, sizeof(*registry));
    CHECK(registry != NULL);
    CHECK(pthread_mutex_init(&registry->lock, NULL) == 0);
    registry->storage = storage;
    return registry;
}

void
registry_destroy(struct model_registry *registry)
{
    if (registry == NULL)
        return;
    CHECK(registry->models.count == 0);
    pthread_mutex_destroy(&registry->lock);
    hash_table_fini(&registry->models);
    free(registry->list);
    free(registry);
}

/* A registrar that chose colliding ids would slow down only its own node. */
static uint64_t
hash_of(const char *id, size_t bytes)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, bytes);
}

static struct model *
find(const struct model_registry *registry, const char *id, size_t bytes)
{
    struct hash_entry *at = hash_table_first(&registry->models, hash_of(id, bytes));
    for (; at != NULL; at = hash_table_next(at)) {
        struct model *model = (struct model *)at;
        if (!model->hidden && strncmp(model->id, id, bytes) == 0 && model->id[bytes] == '\0')
            return model;
    }
    return NULL;
}

struct model *
registry_find(const struct model_registry *registry, const char *id)
{
    return find(registry, id, strlen(id));
}

/* A version that is served beside its model has an id of its own. */
struct model *
registry_find_named(const struct model_registry *registry, const struct model_name *name)
{
    char id[SHOAL_NAME_BYTES_MAX + 1];
    struct model *release = NULL;
    if (name->version[0] != '\0') {
        int bytes = snprintf(id, sizeof(id), "%.*s%c%s", (int)name->id_bytes, name->id,
                             MODEL_RELEASE_MARK, name->version);
        if ((size_t)bytes < sizeof(id))
            release = find(registry, id, (size_t)bytes);
    }
    bool is_release = model_is_there(release) && strcmp(release->name, release->id) != 0;
    return is_release ? release : find(registry, name->id, name->id_bytes);
}

struct model *
registry_walk(const struct model_registry *registry, const struct model *before)
{
    return (struct model *)hash_table_walk(&registry->models,
                                           before == NULL ? NULL : &before->entry);
}

struct model **
registry_all(const struct model_registry *registry, const struct catalog *only, uint32_t *count)
{
    struct model **models = calloc(registry->models.count + 1, sizeof(struct model *));
    CHECK(models != NULL);
    *count = 0;
    for (struct model *model = registry_walk(registry, NULL); model != NULL;
         model = registry_walk(registry, model))
        if (only == NULL || model->catalog == only)
            models[(*count)++] = model;
    return models;
}

/* ---- one model ---- */

void
model_source_set(struct model_source *source, const struct model_spec *spec, const char *path)
{
    model_source_fini(source);
    source->given = strdup(spec->path);
    source->path = strdup(path);
    source->key = strdup(spec->key);
    if (spec->tensors != NULL && (spec->tensors->count > 0 || spec->tensors->rows_max > 0)) {
        source->tensors = malloc(sizeof(*source->tensors));
        CHECK(source->tensors != NULL);
        *source->tensors = *spec->tensors;
    }
    if (spec->release != NULL)
        snprintf(source->release, sizeof(source->release), "%s", spec->release);
    CHECK(source->given != NULL && source->path != NULL && source->key != NULL);
}

void
model_source_fini(struct model_source *source)
{
    free(source->given);
    free(source->path);
    free(source->key);
    free(source->tensors);
    *source = (struct model_source){0};
}

bool
model_source_is(const struct model_source *source, const char *path, const char *key)
{
    return source->path != NULL && strcmp(source->path, path) == 0 && strcmp(source->key, key) == 0;
}

/* The number that has been free longest; 0: all are in use. */
static uint32_t
free_number(struct catalog *catalog)
{
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        catalog->number_last = catalog->number_last % MODELS_MAX + 1;
        if (catalog->numbers[catalog->number_last] == NULL)
            return catalog->number_last;
    }
    return 0;
}

struct model *
model_make(struct catalog *catalog, const struct model_spec *spec, const char *path)
{
    struct model_registry *registry = catalog->registry;
    struct model *model = calloc(1, sizeof(*model));
    CHECK(model != NULL);
    model->registry = registry;
    model->catalog = catalog;
    model->id = strdup(spec->id);
    const char *mark = spec->release != NULL ? strrchr(spec->id, MODEL_RELEASE_MARK) : NULL;
    model->name = strndup(spec->id, mark != NULL ? (size_t)(mark - spec->id) : strlen(spec->id));
    CHECK(model->id != NULL && model->name != NULL);
    model_source_set(&model->source, spec, path);
    registry_lock(registry);
    model->hidden = registry_find(registry, spec->id) != NULL;
    model->number = free_number(catalog);
    if (model->number == 0) {
        registry_unlock(registry);
        model_source_fini(&model->source);
        free(model->name);
        free(model->id);
        free(model);
        return NULL;
    }
    catalog->numbers[model->number] = model;
    hash_table_add(&registry->models, &model->entry, hash_of(model->id, strlen(model->id)));
    registry_unlock(registry);
    if (!model->hidden)
        model_list_add(model);
    catalog->known++;
    return model;
}

static void
free_infos(struct model_info **infos)
{
    struct model_info *info = *infos;
    *infos = NULL; /* model_free_unused may be called again, by the last that looks at the model */
    while (info != NULL) {
        struct model_info *next = info->older;
        free(info);
        info = next;
    }
}

void
model_set_info(struct model *model, struct model_info *info)
{
    if (model->info != NULL) {
        model->info->older = model->old_infos;
        model->old_infos = model->info;
    }
    model->info = info;
    model_free_unused(model);
}

void
model_free_unused(struct model *model)
{
    if (model->place.users > 0)
        return;
    free_infos(&model->old_infos);
    if (model->forgotten)
        free_infos(&model->info);
    if (!model->forgotten || model->attention || model->swept)
        return; /* somebody still looks at it */
    CHECK(model->catalog->numbers[model->number] == model);
    model->catalog->numbers[model->number] = NULL;
    model_source_fini(&model->source);
    model_source_fini(&model->next);
    free(model->kept);
    free(model->releases);
    free(model->name);
    free(model->id);
    free(model);
}

void
model_forget(struct model *model)
{
    hash_table_remove(&model->registry->models, &model->entry);
    if (!model->hidden)
        model_list_remove(model);
    CHECK(!model->forgotten && model->catalog->known > 0);
    model->forgotten = true;
    model->catalog->known--;
    model_free_unused(model);
}

/* ---- the request path ---- */

bool
model_is_there(const struct model *model)
{
    return model != NULL && (model->place.listed || model->place.ordered);
}

struct model *
registry_enter(struct model_registry *registry, const struct model_name *name,
               struct pipeline **pipeline)
{
    int64_t now_ns = clock_now_ns();
    registry_lock(registry);
    struct model *model = registry_find_named(registry, name);
    if (!model_is_there(model)) {
        model = NULL;
    } else {
        model->place.users++;
        model_cache_touch(&model->catalog->cache, &model->place, now_ns);
        *pipeline = model->catalog->pipeline;
    }
    registry_unlock(registry);
    return model;
}

struct model *
registry_enter_loaded(struct model_registry *registry, const char *id, size_t id_bytes,
                      enum model_count count, struct pipeline **pipeline)
{
    int64_t now_ns = clock_now_ns();
    registry_lock(registry);
    struct model *model = find(registry, id, id_bytes);
    if (model != NULL &&
        (model->place.state != MODEL_IS_LOADED || (count == MODEL_COUNTED && !model->is_open)))
        model = NULL;
    if (model != NULL) {
        model->place.users++;
        model->sent++;
        model->uses += count == MODEL_COUNTED;
        model_cache_touch(&model->catalog->cache, &model->place, now_ns);
        *pipeline = model->catalog->pipeline;
    }
    registry_unlock(registry);
    return model;
}

void
registry_admit(struct model_registry *registry, const char *id, enum model_admission admission)
{
    registry_lock(registry);
    struct model *model = find(registry, id, strlen(id));
    if (model != NULL)
        model->is_open = admission == MODEL_OPEN;
    registry_unlock(registry);
}

void
model_leave_loaded(struct model *model)
{
    struct model_registry *registry = model->registry;
    registry_lock(registry);
    model_drop_sent(model);
    model_drop_user(model);
    registry_unlock(registry);
}

void
model_drop_sent(struct model *model)
{
    CHECK(model->sent > 0);
    bool last = --model->sent == 0 && model->place.state != MODEL_IS_LOADED;
    if (last && !model->forgotten)
        catalog_attend(model);
}

void
model_drop_user(struct model *model)
{
    struct catalog *catalog = model->catalog;
    CHECK(model->place.users >
          model->sent); /* those in the stages leave by model_drop_sent first */
    if (--model->place.users > 0)
        return;
    if (catalog->room_wanted)
        catalog_kick(catalog);
    if (model->hidden && !model->forgotten)
        catalog_attend(model);
    model_free_unused(model);
}

void
model_leave(struct model *model)
{
    struct model_registry *registry = model->registry;
    registry_lock(registry);
    model_drop_user(model);
    registry_unlock(registry);
}

/* ---- telling ---- */

void
registry_on_loaded(struct model_registry *registry, void (*reported)(void *context, const char *id),
                   void *context)
{
    CHECK(registry->on_loaded == NULL);
    registry->on_loaded = reported;
    registry->on_loaded_context = context;
}

struct models_later {
    model_done *done;
    void *context;
    bool failed;
    bool has_facts;
    struct error error;
    struct model_facts facts;
};

static void
notify_now(void *context)
{
    struct models_later *later = context;
    later->done(later->context, later->failed ? &later->error : NULL,
                later->has_facts ? &later->facts : NULL);
    free(later);
}

void
notify_later(struct model_registry *registry, model_done *done, void *context,
             const struct error *error, const struct model_facts *facts)
{
    struct models_later *later = calloc(1, sizeof(*later));
    CHECK(later != NULL);
    later->done = done;
    later->context = context;
    if (error != NULL) {
        later->failed = true;
        later->error = *error;
    } else if (facts != NULL) {
        later->has_facts = true;
        later->facts = *facts;
    }
    loop_post(registry->loop, notify_now, later);
}

static void
waiters_add(struct model_waiter **waiters, model_done *done, void *context)
{
    struct model_waiter *waiter = calloc(1, sizeof(*waiter));
    CHECK(waiter != NULL);
    *waiter = (struct model_waiter){.done = done, .context = context};
    while (*waiters != NULL)
        waiters = &(*waiters)->next;
    *waiters = waiter;
}

void
waiters_end(struct model_registry *registry, struct model_waiter **waiters,
            const struct error *error, const struct model_facts *facts)
{
    struct model_waiter *waiter = *waiters;
    *waiters = NULL;
    while (waiter != NULL) {
        struct model_waiter *next = waiter->next;
        notify_later(registry, waiter->done, waiter->context, error, facts);
        free(waiter);
        waiter = next;
    }
}

/* ---- orders ---- */

static enum status
check_spec(const struct catalog *catalog, const struct model_spec *spec, struct error *error)
{
    size_t bytes = strlen(spec->id);
    if (bytes < 1 || bytes > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a model's id has 1 to %d bytes, not %zu",
                         SHOAL_NAME_BYTES_MAX, bytes);
    for (const char *c = spec->id; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "the model's id holds a control character");
    if (strlen(spec->key) >= HANDSHAKE_KEY_BYTES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the key of model \"%s\" has %zu bytes: at most %d", spec->id,
                         strlen(spec->key), HANDSHAKE_KEY_BYTES - 1);
    const struct model_registry *registry = catalog->registry;
    for (uint32_t i = 0; i < registry->pipeline_count; i++)
        if (strcmp(registry->pipelines[i], spec->id) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "\"%s\" is the name of a pipeline: a model needs another id",
                             spec->id);
    return STATUS_OK;
}

struct model *
model_find_or_make(struct catalog *catalog, const struct model_spec *spec,
                   struct model_place *place, struct error *error)
{
    if (catalog->stopping) {
        error_set(error, STATUS_UNAVAILABLE, "the node is stopping");
        return NULL;
    }
    if (check_spec(catalog, spec, error) != STATUS_OK)
        return NULL;
    if (catalog_find_place(catalog, spec, place, error) != STATUS_OK) {
        error_prefix(error, "model \"%s\"", spec->id);
        return NULL;
    }
    struct model *model = registry_find(catalog->registry, spec->id);
    if (model != NULL && model->catalog != catalog && !model_is_there(model)) {
        error_set(error, STATUS_ABORTED,
                  "model \"%s\" is still being unloaded by pipeline \"%s\": try again", spec->id,
                  model->catalog->pipeline->name);
        return NULL;
    }
    if (model != NULL && model->catalog != catalog) {
        error_set(error, STATUS_ALREADY_EXISTS, "model \"%s\" is of pipeline \"%s\"", spec->id,
                  model->catalog->pipeline->name);
        return NULL;
    }
    if (model == NULL)
        model = model_make(catalog, spec, place->path);
    if (model == NULL)
        error_set(error, STATUS_RESOURCE_EXHAUSTED,
                  "pipeline \"%s\" knows %d models, as many as it can", catalog->pipeline->name,
                  MODELS_MAX);
    return model;
}

struct model_source *
model_source_to_be(struct model *model)
{
    if (model->successor != NULL)
        return &model->successor->source;
    return model->next.path != NULL ? &model->next : &model->source;
}

static bool
at_rest(const struct model *model)
{
    return model->phase == PHASE_REST && model->place.state != MODEL_IS_LOADED &&
           !model->place.queued;
}

void
model_move_to(struct model *model, const struct model_spec *spec, const char *path)
{
    model_source_set(&model->next, spec, path);
    if (!model->falls_back) /* it leaves already */
        catalog_unload(model);
}

void
model_set_mark(struct model *model, enum model_mark mark)
{
    registry_lock(model->registry);
    if (mark == MODEL_LISTED || mark == MODEL_UNLISTED)
        model->place.listed = mark == MODEL_LISTED;
    else
        model->place.ordered = mark == MODEL_ORDERED;
    registry_unlock(model->registry);
}

/* Logs where it was, but answers the caller only what it was. */
static void
refuse(struct catalog *catalog, const struct model_spec *spec, struct error *error,
       model_done *done, void *context)
{
    log_warn_limited("model_refused pipeline=%s model=\"%s\" error=\"%s\" root=\"%s\"",
                     catalog->pipeline->name, spec->id, error->text, catalog->root.configured);
    model_path_hide(&catalog->root, error, error);
    notify_later(catalog->registry, done, context, error, NULL);
}

void
models_load(struct catalog *catalog, const struct model_spec *spec, model_done *done, void *context)
{
    struct error error = ERROR_NONE;
    struct model_place place;
    struct model *model = model_find_or_make(catalog, spec, &place, &error);
    bool same = model != NULL && model_source_is(model_source_to_be(model), place.path, spec->key);
    if (model != NULL && !same && model_is_there(model))
        error_set(&error, STATUS_ALREADY_EXISTS,
                  "model \"%s\" is known by another path or key: unload it first", spec->id);
    if (error.status != STATUS_OK) {
        refuse(catalog, spec, &error, done, context);
        return;
    }
    model_set_mark(model, MODEL_ORDERED);
    if (!same)
        model_move_to(model, spec, place.path);
    if (model->phase == PHASE_REST && model->place.state == MODEL_IS_LOADED) {
        struct model_facts facts = {model->place.bytes, model->max_concurrency};
        notify_later(catalog->registry, done, context, NULL, &facts);
        return;
    }
    waiters_add(&model->loaders, done, context);
    if (at_rest(model))
        catalog_want(model, MODEL_CACHE_ORDERED);
}

static void
unload(struct model *model, model_done *done, void *context)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_ABORTED, "model \"%s\" was unloaded while it was to be loaded",
              model->id);
    waiters_add(&model->unloaders, done, context);
    model_set_mark(model, MODEL_UNORDERED);
    waiters_end(model->registry, &model->loaders, &error, NULL);
    catalog_unload(model);
}

void
models_unload(struct model_registry *registry, const char *id, model_done *done, void *context)
{
    struct model *model = registry_find(registry, id);
    if (model == NULL || model->catalog->stopping) {
        notify_later(registry, done, context, NULL, NULL);
        return;
    }
    unload(model, done, context);
}

/* Ends when all of several unloads have ended. */
struct purge {
    struct model_registry *registry;
    uint32_t open;
    model_done *done;
    void *context;
};

static void
purge_one_done(void *context, const struct error *error, const struct model_facts *facts)
{
    struct purge *purge = context;
    (void)error, (void)facts;
    if (--purge->open > 0)
        return;
    notify_later(purge->registry, purge->done, purge->context, NULL, NULL);
    free(purge);
}

void
models_purge(struct model_registry *registry, model_done *done, void *context)
{
    struct purge *purge = calloc(1, sizeof(*purge));
    CHECK(purge != NULL);
    *purge = (struct purge){registry, 1, done, context};
    uint32_t count;
    struct model **models = registry_all(registry, NULL, &count);
    for (uint32_t i = 0; i < count; i++) {
        if (models[i]->catalog->stopping)
            continue;
        purge->open++;
        unload(models[i], purge_one_done, purge);
    }
    free(models);
    purge_one_done(purge, NULL, NULL);
}

/* Predicts the size of a known or an unknown model. */
void
models_predict(struct catalog *catalog, const struct model_spec *spec, model_done *done,
               void *context)
{
    struct error error = ERROR_NONE;
    struct model_place place;
    enum status status = check_spec(catalog, spec, &error);
    if (status == STATUS_OK && catalog->stopping)
        status = error_set(&error, STATUS_UNAVAILABLE, "the node is stopping");
    if (status == STATUS_OK)
        status = catalog_find_place(catalog, spec, &place, &error);
    if (status != STATUS_OK) {
        refuse(catalog, spec, &error, done, context);
        return;
    }
    if (place.path[0] != '/') { /* nothing of it is here: workers could not say more */
        const struct model_hints hints = {
            .default_bytes = catalog->pipeline->generation->config->models.default_bytes};
        struct model_facts facts = {.bytes = model_size_predict(&catalog->sizes, &hints)};
        notify_later(catalog->registry, done, context, NULL, &facts);
        return;
    }
    struct prediction *prediction = calloc(1, sizeof(*prediction));
    struct model *stranger = calloc(1, sizeof(*stranger));
    CHECK(prediction != NULL && stranger != NULL);
    *prediction = (struct prediction){.catalog = catalog, .done = done, .context = context};
    prediction->hints.file_bytes = place.bytes;
    /* a number that no model of the worker needs to have: it keeps nothing of a prediction */
    *stranger = (struct model){.number = MODELS_MAX, .life = ++catalog->prediction_serial};
    stranger->id = (char *)(uintptr_t)spec->id;
    stranger->source =
        (struct model_source){.path = place.path, .key = (char *)(uintptr_t)spec->key};
    catalog_predict(prediction, stranger);
    free(stranger);
}

/* ---- what there is ---- */

bool
models_take_type(const struct catalog *catalog, const char *type)
{
    const struct config_models *config = &catalog->pipeline->generation->config->models;
    for (uint32_t i = 0; i < config->type_count; i++)
        if (strcmp(config->types[i], type) == 0)
            return true;
    return false;
}

struct catalog *
models_catalog_for(struct pipeline *const *pipelines, uint32_t count, const char *type)
{
    struct catalog *only = NULL;
    uint32_t catalogs = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct catalog *catalog = pipelines[i]->catalog;
        if (catalog == NULL)
            continue;
        if (type[0] != '\0' && models_take_type(catalog, type))
            return catalog;
        only = catalog;
        catalogs++;
    }
    return catalogs == 1 ? only : NULL;
}

static void
add_leaked(struct worker_models *worker_models, void *context)
{
    uint64_t *bytes = context;
    *bytes += worker_models_leaked_bytes(worker_models);
}

void
models_facts(const struct catalog *constant, struct catalog_facts *facts)
{
    struct catalog *catalog = (struct catalog *)(uintptr_t)constant;
    const struct config_models *config = &catalog->pipeline->generation->config->models;
    const struct storage *storage = catalog->registry->storage;
    registry_lock(catalog->registry);
    *facts = (struct catalog_facts){
        .capacity_bytes = config->memory_bytes,
        .used_bytes = catalog->cache.used_bytes,
        .default_bytes = config->default_bytes,
        /* a mesh may order as many more as are fetched meanwhile */
        .load_concurrency =
            config->load_concurrency + (storage != NULL ? storage_fetches_max(storage) : 0),
        .load_timeout_ns = config->load_timeout_ns,
        .known = catalog->known,
        .loaded = catalog->cache.loaded,
        .serving = catalog->pipeline->reported_serving && !catalog->stopping,
    };
    registry_unlock(catalog->registry);
    catalog_each_worker_models(catalog, add_leaked, &facts->leaked_bytes);
}

/* Copies one catalog's uses into `used`, which has room for all loaded models. */
static uint32_t
collect_used(struct catalog *catalog, struct model **used)
{
    uint32_t count = 0;
    for (struct model_cache_entry *place = model_cache_used_before(&catalog->cache, NULL);
         place != NULL && place->used_ns >= catalog->harvested_ns;
         place = model_cache_used_before(&catalog->cache, place)) {
        struct model *model = model_of_place(place);
        if (model->uses > 0)
            used[count++] = model;
    }
    return count;
}

/* Releases the lock while it calls `visit`, which takes other locks. Nobody frees models that are
 * not forgotten, and only this thread forgets them. */
static void
harvest(struct catalog *catalog,
        void (*visit)(void *context, const char *id, uint32_t count, int64_t used_ns),
        void *context)
{
    int64_t now_ns = clock_now_ns();
    struct model **used = calloc((size_t)catalog->cache.loaded + 1, sizeof(struct model *));
    CHECK(used != NULL);
    registry_lock(catalog->registry);
    uint32_t count = collect_used(catalog, used);
    catalog->harvested_ns = now_ns;
    registry_unlock(catalog->registry);
    for (uint32_t i = 0; i < count; i++) {
        registry_lock(catalog->registry);
        uint32_t uses = used[i]->uses;
        int64_t used_ns = used[i]->place.used_ns;
        used[i]->uses = 0;
        registry_unlock(catalog->registry);
        visit(context, used[i]->id, uses, used_ns);
    }
    free(used);
}

void
models_harvest(struct model_registry *registry,
               void (*visit)(void *context, const char *id, uint32_t count, int64_t used_ns),
               void *context)
{
    for (uint32_t i = 0; i < registry->catalog_count; i++)
        harvest(registry->catalogs[i], visit, context);
}

bool
models_size(struct model_registry *registry, const char *id, uint64_t *bytes)
{
    const struct model *model = registry_find(registry, id);
    if (model == NULL || model->place.state != MODEL_IS_LOADED)
        return false;
    *bytes = model->place.bytes;
    return true;
}
