/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_fetch.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/check.h"
#include "base/hash.h"
#include "base/hash_table.h"
#include "serving/storage/storage.h"

/* A model whose files are fetched, or are here for the runtime. */
struct fetched_model {
    struct hash_entry entry;
    struct mesh_fetch *owner;
    struct storage_fetch *fetch; /* NULL: it has ended */
    struct external_ask *ask;    /* waits for it */
    struct storage_lease *lease;
    uint64_t number;
    char *key;
    char id[];
};

struct mesh_fetch {
    struct storage *storage;
    pthread_mutex_t lock;     /* of the table: a runtime's answers come on its own thread */
    struct hash_table models; /* by id, and one more while a lost runtime's is fetched */
    uint64_t begun;
    bool is_stopped;
};

/* ---- the table: with the lock ---- */

static uint64_t
hash_of(const char *id)
{
    return hash_fnv1a(HASH_FNV1A_SEED, id, strlen(id));
}

static struct fetched_model *
find(const struct mesh_fetch *fetch, const char *id)
{
    struct hash_entry *at = hash_table_first(&fetch->models, hash_of(id));
    while (at != NULL && strcmp(((struct fetched_model *)at)->id, id) != 0)
        at = hash_table_next(at);
    return (struct fetched_model *)at;
}

/* The oldest of that id that has been fetched; NULL: none. */
static struct fetched_model *
find_fetched(const struct mesh_fetch *fetch, const char *id)
{
    struct fetched_model *oldest = NULL;
    struct hash_entry *at = hash_table_first(&fetch->models, hash_of(id));
    for (; at != NULL; at = hash_table_next(at)) {
        struct fetched_model *model = (struct fetched_model *)at;
        if (model->fetch == NULL && strcmp(model->id, id) == 0 &&
            (oldest == NULL || model->number < oldest->number))
            oldest = model;
    }
    return oldest;
}

static void
drop(struct fetched_model *model)
{
    struct mesh_fetch *fetch = model->owner;
    hash_table_remove(&fetch->models, &model->entry);
    storage_release(fetch->storage, model->lease);
    free(model->key);
    free(model);
}

/* ---- the key for the runtime ---- */

static char *
key_for_runtime(const char *key, uint64_t bytes)
{
    json_t *reported = json_loads(key, 0, NULL);
    if (!json_is_object(reported)) {
        json_decref(reported);
        reported = json_object();
    }
    json_t *bucket = json_object_get(json_object_get(reported, "storage_params"), "bucket");
    if (bucket != NULL && json_object_get(reported, "bucket") == NULL)
        (void)json_object_set(reported, "bucket", bucket);
    (void)json_object_del(reported, "storage_params");
    (void)json_object_set_new(reported, "disk_size_bytes", json_integer((json_int_t)bytes));
    char *text = json_dumps(reported, JSON_SORT_KEYS);
    json_decref(reported);
    CHECK(text != NULL);
    return text;
}

/* ---- requests of the runtime's edge ---- */

static void
on_fetched(void *context, const struct error *error, const struct storage_model *fetched)
{
    struct fetched_model *model = context;
    struct mesh_fetch *fetch = model->owner;
    struct external_ask *ask = model->ask;
    pthread_mutex_lock(&fetch->lock);
    model->fetch = NULL;
    model->ask = NULL;
    if (error != NULL)
        drop(model);
    else
        model->lease = fetched->lease;
    pthread_mutex_unlock(&fetch->lock);
    if (error != NULL) {
        external_fetched(ask, NULL, error);
        return;
    }
    char *key = key_for_runtime(model->key, fetched->bytes);
    const struct external_place place = {fetched->path, key};
    external_fetched(ask, &place, NULL);
    free(key);
}

static bool
fetch_begin(void *context, const struct runner_model *asked, int64_t deadline_ns,
            struct external_ask *ask)
{
    struct mesh_fetch *fetch = context;
    const char *key = asked->key != NULL ? asked->key : "";
    const struct storage_source source = {asked->path != NULL ? asked->path : "", key};
    if (fetch->is_stopped || !storage_is_named(&source))
        return false;
    size_t bytes = strlen(asked->id) + 1;
    struct fetched_model *model = calloc(1, sizeof(*model) + bytes);
    CHECK(model != NULL);
    model->owner = fetch;
    model->ask = ask;
    model->key = strdup(key);
    CHECK(model->key != NULL);
    memcpy(model->id, asked->id, bytes);
    pthread_mutex_lock(&fetch->lock);
    model->number = fetch->begun++;
    struct fetched_model *before = find_fetched(fetch, asked->id);
    if (before != NULL)
        drop(before); /* the runtime has lost it */
    hash_table_add(&fetch->models, &model->entry, hash_of(model->id));
    const struct storage_request request = {.source = source,
                                            .id = asked->id,
                                            .deadline_ns = deadline_ns,
                                            .done = on_fetched,
                                            .context = model};
    model->fetch = storage_fetch(fetch->storage, &request);
    pthread_mutex_unlock(&fetch->lock);
    return true;
}

/* Loop thread. */
static void
end_fetch(struct mesh_fetch *fetch, struct fetched_model *model)
{
    struct external_ask *ask = model->ask;
    struct error error = ERROR_NONE;
    storage_cancel(model->fetch);
    pthread_mutex_lock(&fetch->lock);
    drop(model);
    pthread_mutex_unlock(&fetch->lock);
    error_set(&error, STATUS_ABORTED, "the model was unloaded while it was fetched");
    external_fetched(ask, NULL, &error);
}

static void
fetch_cancel(void *context, const char *id)
{
    struct mesh_fetch *fetch = context;
    pthread_mutex_lock(&fetch->lock);
    struct fetched_model *model = find(fetch, id);
    bool is_fetching = model != NULL && model->fetch != NULL;
    pthread_mutex_unlock(&fetch->lock);
    if (is_fetching)
        end_fetch(fetch, model);
}

static void
fetch_release(void *context, const char *id)
{
    struct mesh_fetch *fetch = context;
    struct hash_entry *next;
    pthread_mutex_lock(&fetch->lock);
    struct fetched_model *one = id != NULL ? find_fetched(fetch, id) : NULL;
    if (one != NULL)
        drop(one);
    struct hash_entry *at = id != NULL ? NULL : hash_table_walk(&fetch->models, NULL);
    for (; at != NULL; at = next) {
        struct fetched_model *model = (struct fetched_model *)at;
        next = hash_table_walk(&fetch->models, at);
        if (model->fetch == NULL)
            drop(model);
    }
    pthread_mutex_unlock(&fetch->lock);
}

/* ---- life ---- */

static void
stop(void *context)
{
    struct mesh_fetch *fetch = context;
    fetch->is_stopped = true;
    for (;;) {
        pthread_mutex_lock(&fetch->lock);
        struct fetched_model *model = (struct fetched_model *)hash_table_walk(&fetch->models, NULL);
        while (model != NULL && model->fetch == NULL) {
            drop(model);
            model = (struct fetched_model *)hash_table_walk(&fetch->models, NULL);
        }
        pthread_mutex_unlock(&fetch->lock);
        if (model == NULL)
            return;
        end_fetch(fetch, model);
    }
}

static void
destroy(void *context)
{
    struct mesh_fetch *fetch = context;
    hash_table_fini(&fetch->models);
    pthread_mutex_destroy(&fetch->lock);
    free(fetch);
}

struct external_files
mesh_fetch_files(struct storage *storage)
{
    if (storage == NULL)
        return (struct external_files){.fetch = NULL};
    struct mesh_fetch *fetch = calloc(1, sizeof(*fetch));
    CHECK(fetch != NULL && pthread_mutex_init(&fetch->lock, NULL) == 0);
    fetch->storage = storage;
    return (struct external_files){.context = fetch,
                                   .fetches_max = storage_fetches_max(storage),
                                   .fetch = fetch_begin,
                                   .cancel = fetch_cancel,
                                   .release = fetch_release,
                                   .stop = stop,
                                   .destroy = destroy};
}
