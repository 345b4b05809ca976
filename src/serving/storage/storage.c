/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The threads. A fetch waits in one list until a thread takes it, runs, and is put into another,
 * from which the loop thread reports its end. A cancelled fetch that runs goes the same way, only
 * faster, and its end is not reported; one that waits is dropped.
 */
#include "serving/storage/storage.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "serving/storage/cache.h"
#include "serving/storage/storage_entries.h"
#include "serving/storage/job.h"
#include "serving/storage/role.h"

struct storage_fetch {
    struct storage_fetch *next;
    struct storage *storage;
    struct storage_request request; /* its texts are owned */
    char *path, *key, *id;
    bool is_cancelled;                /* [lock] */
    struct storage_progress progress; /* [lock] */
    struct error error;
    struct storage_model model;
};

struct fetch_list {
    struct storage_fetch *first, **last;
};

struct fetcher {
    struct storage *storage;
    pthread_t thread;
    struct transfers *transfers;
    struct storage_fetch *fetch; /* that it carries out [lock] */
};

struct storage {
    struct storage_options options;
    char *entries, *pvc_mounts, *files, *metadata;
    struct role *role;
    char *folder; /* of fetched models */
    struct cache *cache;
    struct pace pace;
    pthread_mutex_t lock; /* never held over anything that may block */
    pthread_cond_t more;
    struct fetch_list waiting, ended; /* [lock] */
    struct storage_counts counts;     /* [lock] */
    struct storage_entries *given;    /* by storage_set_entries; NULL: none [lock] */
    bool is_stopping;                 /* [lock] */
    bool is_posted;                   /* the loop will look at `ended` [lock] */
    struct fetcher workers[STORAGE_FETCHES_MAX];
    uint32_t worker_count; /* that were started, at the first fetch */
};

static void
list_init(struct fetch_list *list)
{
    list->first = NULL;
    list->last = &list->first;
}

static void
list_add(struct fetch_list *list, struct storage_fetch *fetch)
{
    fetch->next = NULL;
    *list->last = fetch;
    list->last = &fetch->next;
}

static struct storage_fetch *
list_take(struct fetch_list *list)
{
    struct storage_fetch *fetch = list->first;
    if (fetch == NULL)
        return NULL;
    list->first = fetch->next;
    if (list->first == NULL)
        list->last = &list->first;
    return fetch;
}

/* False: it is not in the list. */
static bool
list_remove(struct fetch_list *list, struct storage_fetch *fetch)
{
    struct storage_fetch **at = &list->first;
    while (*at != NULL && *at != fetch)
        at = &(*at)->next;
    if (*at == NULL)
        return false;
    *at = fetch->next;
    if (list->last == &fetch->next)
        list->last = at;
    return true;
}

static void
fetch_free(struct storage_fetch *fetch)
{
    free(fetch->path);
    free(fetch->key);
    free(fetch->id);
    free(fetch);
}

/* ---- telling ends: the loop thread ---- */

static void
notify_ended(void *context)
{
    struct storage *storage = context;
    pthread_mutex_lock(&storage->lock);
    storage->is_posted = false;
    struct storage_fetch *fetch;
    while ((fetch = list_take(&storage->ended)) != NULL) {
        bool is_reported = !fetch->is_cancelled;
        pthread_mutex_unlock(&storage->lock);
        bool is_good = fetch->error.status == STATUS_OK;
        if (!is_reported && is_good)
            cache_release(storage->cache, fetch->model.lease);
        if (is_reported)
            fetch->request.done(fetch->request.context, is_good ? NULL : &fetch->error,
                                is_good ? &fetch->model : NULL);
        fetch_free(fetch);
        pthread_mutex_lock(&storage->lock);
    }
    pthread_mutex_unlock(&storage->lock);
}

/* ---- the threads ---- */

static bool
is_cancelled(void *context)
{
    struct storage_fetch *fetch = context;
    pthread_mutex_lock(&fetch->storage->lock);
    bool cancelled = fetch->is_cancelled || fetch->storage->is_stopping;
    pthread_mutex_unlock(&fetch->storage->lock);
    return cancelled;
}

static void
show(void *context, const struct storage_progress *progress)
{
    struct storage_fetch *fetch = context;
    pthread_mutex_lock(&fetch->storage->lock);
    fetch->progress = *progress;
    pthread_mutex_unlock(&fetch->storage->lock);
}

/* Call with the lock. */
static void
count_end(struct storage_counts *counts, const struct storage_fetch *fetch,
          const struct storage_job *job)
{
    counts->retries += job->retries;
    counts->received_bytes += job->received_bytes;
    counts->fetches++;
    if (fetch->error.status != STATUS_OK)
        counts->failures += fetch->error.status != STATUS_CANCELLED;
    else if (job_ended(job) == JOB_STALE)
        counts->stale++;
    else if (job_ended(job) == JOB_HIT)
        counts->hits++;
}

static struct storage_entries *
share_entries(struct storage *storage)
{
    pthread_mutex_lock(&storage->lock);
    struct storage_entries *entries = storage->given;
    if (entries != NULL)
        entries->users++;
    pthread_mutex_unlock(&storage->lock);
    return entries;
}

static void
drop_entries(struct storage *storage, struct storage_entries *entries)
{
    pthread_mutex_lock(&storage->lock);
    bool is_last = entries != NULL && --entries->users == 0;
    pthread_mutex_unlock(&storage->lock);
    if (is_last)
        entries_free(entries);
}

static void
carry_out(struct fetcher *worker, struct storage_fetch *fetch)
{
    struct storage *storage = worker->storage;
    struct storage_entries *given = share_entries(storage);
    const struct job_options options = {.cache = storage->cache,
                                        .transfers = worker->transfers,
                                        .place = {storage->metadata, storage->entries, given},
                                        .role = storage->role,
                                        .pvc_mounts = storage->pvc_mounts,
                                        .files = storage->files,
                                        .pace = &storage->pace};
    struct storage_job job = {.options = &options,
                              .request = &fetch->request,
                              .is_cancelled = is_cancelled,
                              .show = show,
                              .context = fetch};
    error_clear(&fetch->error);
    if (job_run(&job, &fetch->model, &fetch->error) == STATUS_OK)
        error_clear(&fetch->error); /* of a stale model */
    drop_entries(storage, given);
    pthread_mutex_lock(&storage->lock);
    CHECK(worker->fetch == fetch);
    worker->fetch = NULL;
    count_end(&storage->counts, fetch, &job);
    list_add(&storage->ended, fetch);
    bool posts = !storage->is_posted && !storage->is_stopping;
    storage->is_posted = storage->is_posted || posts;
    pthread_mutex_unlock(&storage->lock);
    if (posts)
        loop_post(storage->options.loop, notify_ended, storage);
}

static void *
work(void *context)
{
    struct fetcher *worker = context;
    struct storage *storage = worker->storage;
    pthread_setname_np(pthread_self(), "storage");
    for (;;) {
        pthread_mutex_lock(&storage->lock);
        while (storage->waiting.first == NULL && !storage->is_stopping)
            pthread_cond_wait(&storage->more, &storage->lock);
        struct storage_fetch *fetch = storage->is_stopping ? NULL : list_take(&storage->waiting);
        worker->fetch = fetch;
        pthread_mutex_unlock(&storage->lock);
        if (fetch == NULL)
            return NULL;
        carry_out(worker, fetch);
    }
}

/* Starts as many threads as there are fetches, at most fetches_max. */
static void
start_worker(struct storage *storage)
{
    uint32_t busy = 0;
    uint32_t waiting = 0;
    pthread_mutex_lock(&storage->lock);
    for (uint32_t i = 0; i < storage->worker_count; i++)
        busy += storage->workers[i].fetch != NULL;
    for (const struct storage_fetch *fetch = storage->waiting.first; fetch != NULL;
         fetch = fetch->next)
        waiting++;
    pthread_mutex_unlock(&storage->lock);
    if (storage->worker_count == storage->options.fetches_max ||
        storage->worker_count >= busy + waiting)
        return;
    struct fetcher *worker = &storage->workers[storage->worker_count];
    *worker = (struct fetcher){.storage = storage, .transfers = transfers_create()};
    if (pthread_create(&worker->thread, NULL, work, worker) == 0) {
        storage->worker_count++;
        return;
    }
    transfers_destroy(worker->transfers);
    CHECK(storage->worker_count > 0); /* without threads nothing can be reported */
    log_warn_limited("storage_threads_lacking threads=%u", storage->worker_count);
}

/* ---- what others call ---- */

static char *
copy(const char *text)
{
    char *copied = text != NULL ? strdup(text) : NULL;
    CHECK(text == NULL || copied != NULL);
    return copied;
}

enum status
storage_create(const struct storage_options *options, struct storage **created, struct error *error)
{
    struct cache *cache;
    enum status status = cache_create(options->cache, options->cache_bytes_max, &cache, error);
    if (status != STATUS_OK)
        return status;
    struct storage *storage = calloc(1, sizeof(*storage));
    CHECK(storage != NULL);
    CHECK(options->fetches_max > 0 && options->fetches_max <= STORAGE_FETCHES_MAX);
    storage->options = *options;
    storage->pace.bytes_per_s = options->bytes_per_s;
    storage->entries = copy(options->entries);
    storage->pvc_mounts = copy(options->pvc_mounts);
    storage->files = copy(options->files);
    storage->metadata = copy(options->metadata);
    storage->role = role_create();
    storage->cache = cache;
    storage->folder = cache_folder(cache);
    list_init(&storage->waiting);
    list_init(&storage->ended);
    CHECK(pthread_mutex_init(&storage->lock, NULL) == 0 &&
          pthread_mutex_init(&storage->pace.lock, NULL) == 0 &&
          pthread_cond_init(&storage->more, NULL) == 0);
    *created = storage;
    return STATUS_OK;
}

const char *
storage_folder(const struct storage *storage)
{
    return storage->folder;
}

uint32_t
storage_fetches_max(const struct storage *storage)
{
    return storage->options.fetches_max;
}

bool
storage_has_default(struct storage *storage)
{
    pthread_mutex_lock(&storage->lock);
    bool is_given = storage->given != NULL;
    pthread_mutex_unlock(&storage->lock);
    return storage->entries != NULL || is_given;
}

void
storage_set_entries(struct storage *storage, const struct storage_entry *entries, uint32_t count)
{
    struct storage_entries *given = count > 0 ? entries_make(entries, count) : NULL;
    pthread_mutex_lock(&storage->lock);
    struct storage_entries *former = storage->given;
    storage->given = given;
    pthread_mutex_unlock(&storage->lock);
    drop_entries(storage, former);
}

struct storage_fetch *
storage_fetch(struct storage *storage, const struct storage_request *request)
{
    struct storage_fetch *fetch = calloc(1, sizeof(*fetch));
    CHECK(fetch != NULL);
    fetch->storage = storage;
    fetch->request = *request;
    fetch->path = copy(request->source.path);
    fetch->key = copy(request->source.key);
    fetch->id = copy(request->id);
    fetch->request.id = fetch->id;
    fetch->request.source = (struct storage_source){fetch->path, fetch->key};
    pthread_mutex_lock(&storage->lock);
    list_add(&storage->waiting, fetch);
    pthread_cond_signal(&storage->more);
    pthread_mutex_unlock(&storage->lock);
    start_worker(storage);
    return fetch;
}

void
storage_cancel(struct storage_fetch *fetch)
{
    struct storage *storage = fetch->storage;
    pthread_mutex_lock(&storage->lock);
    fetch->is_cancelled = true;
    bool has_waited = list_remove(&storage->waiting, fetch);
    for (uint32_t i = 0; i < storage->worker_count; i++)
        if (storage->workers[i].fetch == fetch)
            transfers_wake(storage->workers[i].transfers);
    pthread_mutex_unlock(&storage->lock);
    if (has_waited) /* threads that hang would keep it */
        fetch_free(fetch);
}

void
storage_release(struct storage *storage, struct storage_lease *lease)
{
    if (lease != NULL)
        cache_release(storage->cache, lease);
}

void
storage_look(struct storage *storage, struct storage_counts *counts)
{
    struct cache_counts cache;
    cache_look(storage->cache, &cache);
    pthread_mutex_lock(&storage->lock);
    *counts = storage->counts;
    for (uint32_t i = 0; i < storage->worker_count; i++)
        counts->running += storage->workers[i].fetch != NULL;
    for (const struct storage_fetch *fetch = storage->waiting.first; fetch != NULL;
         fetch = fetch->next)
        counts->waiting++;
    pthread_mutex_unlock(&storage->lock);
    counts->cache_bytes = cache.bytes;
    counts->evictions = cache.evictions;
}

static bool
is_of(const struct storage_fetch *fetch, const char *id)
{
    return fetch != NULL && !fetch->is_cancelled && fetch->id != NULL && strcmp(fetch->id, id) == 0;
}

bool
storage_find(struct storage *storage, const char *id, struct storage_progress *progress)
{
    const struct storage_fetch *found = NULL;
    pthread_mutex_lock(&storage->lock);
    for (uint32_t i = 0; i < storage->worker_count && found == NULL; i++)
        if (is_of(storage->workers[i].fetch, id))
            found = storage->workers[i].fetch;
    for (const struct storage_fetch *fetch = storage->waiting.first; fetch != NULL && found == NULL;
         fetch = fetch->next)
        if (is_of(fetch, id))
            found = fetch;
    if (found != NULL)
        *progress = found->progress;
    pthread_mutex_unlock(&storage->lock);
    return found != NULL;
}

static void
free_all(struct storage *storage, struct fetch_list *list)
{
    struct storage_fetch *fetch;
    while ((fetch = list_take(list)) != NULL) {
        if (list == &storage->ended && fetch->error.status == STATUS_OK)
            cache_release(storage->cache, fetch->model.lease);
        fetch_free(fetch);
    }
}

void
storage_destroy(struct storage *storage)
{
    if (storage == NULL)
        return;
    pthread_mutex_lock(&storage->lock);
    storage->is_stopping = true;
    pthread_cond_broadcast(&storage->more);
    for (uint32_t i = 0; i < storage->worker_count; i++)
        transfers_wake(storage->workers[i].transfers);
    pthread_mutex_unlock(&storage->lock);
    for (uint32_t i = 0; i < storage->worker_count; i++) {
        CHECK(pthread_join(storage->workers[i].thread, NULL) == 0);
        transfers_destroy(storage->workers[i].transfers);
    }
    free_all(storage, &storage->waiting);
    free_all(storage, &storage->ended);
    cache_destroy(storage->cache);
    entries_free(storage->given);
    pthread_mutex_destroy(&storage->lock);
    pthread_mutex_destroy(&storage->pace.lock);
    pthread_cond_destroy(&storage->more);
    free(storage->folder);
    free(storage->entries);
    free(storage->pvc_mounts);
    free(storage->files);
    free(storage->metadata);
    role_destroy(storage->role);
    free(storage);
}
