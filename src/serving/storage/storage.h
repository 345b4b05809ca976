/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fetches models from http(s)://, s3://, pvc:// and file:// into a bounded cache on disk
 * (DESIGN.md). Threads of its own do all that may block; the functions here return at once. Loop
 * thread, except storage_create, which may touch the disk.
 *
 * A fetched model is a file or a folder that never changes and that the cache keeps until
 * storage_release.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "loop/loop.h"

struct storage;
struct storage_fetch;
struct storage_lease;

enum {
    STORAGE_FETCHES_MAX = 64, /* threads */
    STORAGE_FILES_MAX = 65536 /* of one model */
};

struct storage_options {
    struct loop *loop;
    const char *cache;        /* absolute; made if it is missing */
    uint64_t cache_bytes_max; /* of all files in it */
    const char *entries;      /* storage-config: a folder of JSON files, one per key; NULL: none */
    const char *pvc_mounts;   /* folder in which each claim is mounted */
    const char *files;        /* folder whose files file:// may name; NULL: none */
    const char *metadata;     /* URL of the metadata service of this machine; NULL: none */
    uint32_t fetches_max;
    uint64_t bytes_per_s; /* that all fetches together receive from servers; 0: no limit */
};

/* FAILED_PRECONDITION, PERMISSION_DENIED …: the cache's folder cannot be used. */
enum status storage_create(const struct storage_options *options, struct storage **storage,
                           struct error *error) WARN_UNUSED;
/* Ends all fetches, whose `done` is not called any more. After all releases. NULL is ignored. */
void storage_destroy(struct storage *storage);

/* Returns how many models are fetched at once. */
uint32_t storage_fetches_max(const struct storage *storage);
/* The folder of fetched models, absolute, without links. */
const char *storage_folder(const struct storage *storage);

/* An entry of storage-config: its text is a JSON object. */
struct storage_entry {
    const char *name, *text;
};

/* Replaces the entries that are not in the folder `entries`, whose own come first. Copied; fetches
 * that have begun keep the former ones. */
void storage_set_entries(struct storage *storage, const struct storage_entry *entries,
                         uint32_t count);

/* ---- where a model is ---- */

/* A source as a registrar gives it: a path or URI, and a key as JSON, by which `storage_key`,
 * `storage_params`, `bucket`, `model_type` and `sha256` count. */
struct storage_source {
    const char *path;
    const char *key; /* "" or text that is no JSON object: none of these */
};

/* Returns whether the path is an URI. Pure, as the next one. */
bool storage_is_uri(const char *path);
/* Writes a path for people: an URI's query and user, which may be secrets, are left out. */
void storage_show_path(const char *path, char *shown, size_t room);
/* Returns whether the path is an URI or the key names a storage: except an absolute path with a key
 * that has `disk_size_bytes`, which KServe's storage helper has fetched already. */
bool storage_is_named(const struct storage_source *source);
/* The length of a file's name without the ending of an archive, which is unpacked; 0: it has none.
 */
size_t storage_archive_stem(const char *name);
/* Returns whether storage-config may have a default for this model, which names none. */
bool storage_has_default(struct storage *storage);

/* ---- fetching ---- */

struct storage_model {
    char path[PATH_MAX]; /* of the file or folder */
    uint64_t bytes;      /* of all of its files */
    struct storage_lease *lease;
};

/* Called once, unless the fetch is cancelled first. `error` NULL: success; the lease is the
 * callee's. UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED: the same fetch may succeed later;
 * other codes need a change. Texts hold no secrets. */
typedef void storage_done(void *context, const struct error *error,
                          const struct storage_model *model);

struct storage_request {
    struct storage_source source; /* copied */
    const char *id;               /* of the model, for storage_find; copied; NULL: none */
    int64_t deadline_ns;
    storage_done *done;
    void *context;
};

struct storage_fetch *storage_fetch(struct storage *storage, const struct storage_request *request);
/* `done` will not be called. Fetched files stay for the next attempt. */
void storage_cancel(struct storage_fetch *fetch);
/* The cache may drop it from now on. NULL is ignored. */
void storage_release(struct storage *storage, struct storage_lease *lease);

/* ---- looking at it ---- */

struct storage_progress {
    uint64_t bytes;
    uint64_t total; /* 0: not known, as of one that waits for others */
};

/* False: no fetch for a model of that id is under way. */
bool storage_find(struct storage *storage, const char *id, struct storage_progress *progress);

struct storage_counts {
    uint64_t fetches, hits, stale, failures; /* ended fetches, by result */
    uint64_t retries;                        /* of requests */
    uint64_t received_bytes;
    uint64_t evictions;
    uint64_t cache_bytes, running, waiting; /* now */
};

void storage_look(struct storage *storage, struct storage_counts *counts);
