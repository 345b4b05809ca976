/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of a fetch: resolve, ask the source what it has, compare with the cache, store the
 * files, commit. Each scheme has its own way to list and to store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "serving/storage/job.h"

enum {
    CHANGES_MAX = 3, /* a source that changes while it is fetched */
    TURN_MS = 50,    /* between looks for the end of another fetch of the same */
};

static const struct {
    enum status (*list)(struct storage_job *job, struct error *error);
    enum status (*store)(struct storage_job *job, struct error *error);
} ways[] = {
    [PLACE_HTTP] = {http_list, http_store},
    [PLACE_S3] = {s3_list, s3_store},
    [PLACE_PVC] = {local_list, local_store},
    [PLACE_FILE] = {local_list, local_store},
};

/* ---- what is known of the source ---- */

/* Credentials belong to it: a caller without them gets nothing that others have fetched. */
static void
name_source(struct storage_job *job)
{
    const struct storage_place *place = &job->place;
    struct digest *digest = digest_begin();
    char kind[16];
    snprintf(kind, sizeof(kind), "%d", (int)place->kind);
    char *digests = place_digests_text(place); /* what was stored without them was not checked */
    const char *const parts[] = {
        kind,          place->url,    place->bucket, place->path,       place->region,
        place->key_id, place->secret, place->digest, place->client_key, digests};
    for (size_t i = 0; i < ARRAY_COUNT(parts); i++)
        digest_add_text(digest, parts[i]);
    for (unsigned i = 0; i < place->header_count; i++)
        digest_add_text(digest, place->headers[i]);
    if (place->role != NULL)
        digest_add_text(digest, place->role);
    digest_end(digest, job->source);
    free(digests);
}

/* Names a listing by names, sizes and versions of all files. */
static void
name_listing(struct storage_job *job)
{
    struct digest *digest = digest_begin();
    char text[DIGEST_BYTES];
    for (uint32_t i = 0; i < job->file_count; i++) {
        char bytes[32];
        snprintf(bytes, sizeof(bytes), "%llu", (unsigned long long)job->files[i].bytes);
        digest_add_text(digest, job->files[i].name);
        digest_add_text(digest, bytes);
        digest_add_text(digest, job->files[i].etag);
    }
    digest_end(digest, text);
    snprintf(job->now.validator, sizeof(job->now.validator), "listing %s", text);
}

static void
name_content(struct storage_job *job)
{
    struct digest *digest = digest_begin();
    for (uint32_t i = 0; i < job->file_count; i++) {
        digest_add_text(digest, job->files[i].name);
        digest_add_text(digest, job->files[i].digest);
        if (job->files[i].is_link)
            digest_add_text(digest, ""); /* as no name is */
    }
    digest_end(digest, job->now.content);
    snprintf(job->now.entry, sizeof(job->now.entry), "%s",
             job->is_single ? job->files[0].name : "");
}

static bool
give(struct storage_job *job, const struct cache_record *record, struct storage_lease *lease,
     struct storage_model *model)
{
    if (lease == NULL)
        return false;
    model->lease = lease;
    model->bytes = cache_lease_bytes(lease);
    cache_lease_path(job->options->cache, lease, record->entry, model->path);
    return true;
}

static bool
take_last(struct storage_job *job, struct storage_model *model)
{
    return job->last.content[0] != '\0' &&
           give(job, &job->last, cache_lease(job->options->cache, job->last.content), model);
}

/* ---- the steps ---- */

/* Opens the partial folder, after another fetch of the same has ended. `*done`: that one has
 * fetched what this one needs. */
static enum status
take_turn(struct storage_job *job, struct storage_model *model, bool *done, struct error *error)
{
    struct cache *cache = job->options->cache;
    enum status status;
    *done = false;
    for (;;) {
        error_clear(error);
        status = cache_partial_open(cache, job->source, job->now.validator, &job->partial, error);
        if (status != STATUS_ABORTED)
            break;
        status = job_check(job, error);
        if (status != STATUS_OK)
            return status;
        (void)transfers_wait(job->options->transfers,
                             clock_now_ns() + (int64_t)TURN_MS * NS_PER_MS);
    }
    struct cache_record record;
    bool is_known = status == STATUS_OK && cache_recall(cache, job->source, &record);
    if (is_known)
        job->last = record; /* HTTP asks whether that is still it */
    if (!is_known || job->now.validator[0] == '\0' ||
        strcmp(record.validator, job->now.validator) != 0)
        return status;
    *done = give(job, &record, cache_lease(cache, record.content), model);
    if (*done)
        cache_partial_close(cache, &job->partial, CACHE_DROP);
    return STATUS_OK;
}

static bool
is_temporary(enum status status)
{
    return status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED ||
           status == STATUS_CANCELLED || status == STATUS_RESOURCE_EXHAUSTED;
}

static enum status
store(struct storage_job *job, struct storage_model *model, struct error *error)
{
    struct cache *cache = job->options->cache;
    struct storage_lease *lease = NULL;
    enum status status = cache_partial_reserve(cache, &job->partial, job_bytes(job), error);
    job->progress = (struct storage_progress){.total = job_bytes(job)};
    if (status == STATUS_OK)
        status = ways[job->place.kind].store(job, error);
    if (status == STATUS_OK && job->unchanged) {
        cache_partial_close(cache, &job->partial, CACHE_DROP);
        return take_last(job, model) ? STATUS_OK
                                     : error_set(error, STATUS_ABORTED, "it has just been evicted");
    }
    if (status == STATUS_OK && job_is_archive(job))
        status = unpack_archive(job, error);
    if (status == STATUS_OK)
        status = job_judge_beside(job, error);
    if (status == STATUS_OK) {
        name_content(job);
        status = cache_partial_commit(cache, &job->partial, job->now.content, job_bytes(job),
                                      &lease, error);
    }
    if (status == STATUS_OK) {
        struct error ignored = ERROR_NONE; /* the next fetch asks the source for all of it again */
        if (cache_remember(cache, job->source, &job->now, &ignored) != STATUS_OK)
            log_warn_limited("storage_not_remembered error=\"%s\"", ignored.text);
        (void)give(job, &job->now, lease, model);
    }
    cache_partial_close(cache, &job->partial, is_temporary(status) ? CACHE_KEEP : CACHE_DROP);
    return status;
}

static enum status
fetch_once(struct storage_job *job, struct storage_model *model, struct error *error)
{
    bool done = false;
    job_drop_files(job);
    job->unchanged = job->is_single = false;
    job->now = (struct cache_record){.content = ""};
    if (!cache_recall(job->options->cache, job->source, &job->last))
        job->last.content[0] = '\0';
    /* A file of that digest can be nothing else. */
    if (job->place.digest[0] != '\0' && job->last.entry[0] != '\0' && take_last(job, model)) {
        job->unchanged = true;
        return STATUS_OK;
    }
    enum status status = ways[job->place.kind].list(job, error);
    if (status != STATUS_OK)
        return status;
    if (job->place.kind != PLACE_HTTP && job->file_count == 0)
        return error_set(error, STATUS_NOT_FOUND, "there is no file");
    status = job_check_digests(job, error);
    if (status != STATUS_OK)
        return status;
    if (job->place.kind != PLACE_HTTP)
        name_listing(job);
    if (job->place.kind != PLACE_HTTP && strcmp(job->last.validator, job->now.validator) == 0 &&
        take_last(job, model)) {
        job->unchanged = true;
        return STATUS_OK;
    }
    status = take_turn(job, model, &done, error);
    job->unchanged = done;
    return status != STATUS_OK || done ? status : store(job, model, error);
}

enum job_end
job_ended(const struct storage_job *job)
{
    return job->is_stale ? JOB_STALE : job->unchanged ? JOB_HIT : JOB_FETCHED;
}

/* The source cannot be asked, but the cache has what it had last. */
static bool
take_stale(struct storage_job *job, struct storage_model *model, const struct error *error)
{
    if (error->status != STATUS_UNAVAILABLE || !take_last(job, model))
        return false;
    job->is_stale = true;
    log_warn_limited("storage_stale source=\"%s\" error=\"%s\"", job->place.shown, error->text);
    return true;
}

enum status
job_run(struct storage_job *job, struct storage_model *model, struct error *error)
{
    job->partial.lock_fd = -1;
    job->logged_ns = clock_now_ns();
    enum status status =
        place_resolve(&job->options->place, &job->request->source, &job->place, error);
    if (status == STATUS_OK) {
        name_source(job);
        uint32_t changes = 0;
        do {
            error_clear(error);
            status = fetch_once(job, model, error);
        } while (status == STATUS_ABORTED && ++changes < CHANGES_MAX);
        if (status == STATUS_ABORTED)
            status = error->status = STATUS_UNAVAILABLE;
    }
    if (status != STATUS_OK && take_stale(job, model, error))
        status = STATUS_OK;
    if (status != STATUS_OK)
        (void)error_prefix(error, "%s", job->place.shown);
    job_drop_files(job);
    place_fini(&job->place);
    return status;
}
