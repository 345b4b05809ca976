/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One fetch, carried out from its beginning to its end by one thread. fetch.c has the order of
 * steps, job.c what all of them need; remote.c asks servers, local.c copies, sink.c writes files.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "serving/storage/cache.h"
#include "serving/storage/digest.h"
#include "serving/storage/pace.h"
#include "serving/storage/place.h"
#include "serving/storage/storage.h"
#include "serving/storage/transfer.h"

#define DIGEST_ENDING ".sha256" /* of the file beside FILE that states its digest */

struct storage_sink {
    struct storage_job *job;
    int fd; /* -1: not open */
    uint64_t at;
    struct digest *digest;
};

struct stored_file {
    char *name; /* beneath the model's folder */
    char *etag; /* NULL: not known */
    uint64_t bytes;
    char digest[DIGEST_BYTES]; /* "": not stored yet; of a link: of its target */
    bool is_link;
};

struct job_options {
    struct cache *cache;
    struct transfers *transfers; /* the thread's */
    struct place_options place;
    struct role *role; /* of the node, for all fetches */
    const char *pvc_mounts;
    const char *files; /* NULL: none */
    struct pace *pace; /* of what servers send */
};

struct storage_job {
    const struct job_options *options;
    const struct storage_request *request;
    bool (*is_cancelled)(void *context);
    void (*show)(void *context, const struct storage_progress *progress);
    void *context;

    struct storage_place place;
    char source[CACHE_ID_BYTES];
    struct cache_record last; /* what the source had last; content "": not known */
    struct cache_record now;
    struct cache_partial partial;
    struct stored_file *files;
    uint32_t file_count;
    char *archive;  /* in which the files came; NULL: none */
    bool is_single; /* the model is one file */
    bool unchanged; /* the source still has what it had last, or another fetch has fetched it */
    bool is_stale;  /* the source could not be asked */

    uint64_t retries, received_bytes; /* for the counters */
    struct storage_progress progress;
    int64_t logged_ns; /* when its progress was, or the fetch began */
};

/* The whole; the lease is the caller's. */
enum status job_run(struct storage_job *job, struct storage_model *model,
                    struct error *error) WARN_UNUSED;
/* The kind of success of a job. */
enum job_end { JOB_FETCHED, JOB_HIT, JOB_STALE };
enum job_end job_ended(const struct storage_job *job);

/* ---- for the steps ---- */

/* CANCELLED, DEADLINE_EXCEEDED: it must end now. */
enum status job_check(const struct storage_job *job, struct error *error) WARN_UNUSED;
/* INVALID_ARGUMENT: the name leads out of the folder. */
enum status job_check_name(const char *name, struct error *error) WARN_UNUSED;
/* Adds a file, after job_check_name. */
enum status job_add_file(struct storage_job *job, const char *name, const char *etag,
                         uint64_t bytes, struct error *error) WARN_UNUSED;
void job_drop_files(struct storage_job *job);
/* Checks that each digest of the key belongs to a file; also once an archive is unpacked. */
enum status job_check_digests(const struct storage_job *job, struct error *error) WARN_UNUSED;
/* A file is stored: compares its digest with the key's. DATA_LOSS. */
enum status job_judge_file(struct storage_job *job, struct stored_file *file,
                           struct error *error) WARN_UNUSED;
/* Compares each file that has a digest file beside it, after all are stored. DATA_LOSS. */
enum status job_judge_beside(struct storage_job *job, struct error *error) WARN_UNUSED;
/* Compares a file's digest with what the one beside it begins with. DATA_LOSS. */
enum status job_compare_beside(const struct stored_file *file, const char *stated,
                               struct error *error) WARN_UNUSED;
/* A server has sent so much: waits as the pace wants it. */
enum status job_pace(const struct storage_job *job, uint64_t bytes,
                     struct error *error) WARN_UNUSED;
/* The files have more bytes now, or fewer, than before: shows that, and logs it now and then. */
void job_progress(struct storage_job *job, int64_t more);
/* The bytes of all files of which they are known. */
uint64_t job_bytes(const struct storage_job *job);
/* Returns whether the model is one stored file that is an archive by its name. */
bool job_is_archive(const struct storage_job *job);

/* ---- sink.c ---- */

/* Opens a file of the partial model and reads what it has. */
enum status sink_open(struct storage_job *job, struct storage_sink *sink, const char *name,
                      struct error *error) WARN_UNUSED;
enum status sink_restart(struct storage_sink *sink, struct error *error) WARN_UNUSED;
enum status sink_write(struct storage_sink *sink, const void *data, size_t bytes,
                       struct error *error) WARN_UNUSED;
/* Closes it and writes its digest; NULL: only closes it. */
void sink_close(struct storage_sink *sink, char digest[DIGEST_BYTES]);

/* ---- unpack.c ---- */

/* Stores what the archive has in its place. */
enum status unpack_archive(struct storage_job *job, struct error *error) WARN_UNUSED;

/* ---- remote.c, tasks.c ---- */

/* Each of these fills `files`, or says that the source is unchanged; then stores the files. */
enum status s3_list(struct storage_job *job, struct error *error) WARN_UNUSED;
enum status s3_store(struct storage_job *job, struct error *error) WARN_UNUSED;
enum status http_list(struct storage_job *job, struct error *error) WARN_UNUSED;
enum status http_store(struct storage_job *job, struct error *error) WARN_UNUSED;
enum status local_list(struct storage_job *job, struct error *error) WARN_UNUSED;
enum status local_store(struct storage_job *job, struct error *error) WARN_UNUSED;
