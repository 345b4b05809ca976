/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cache on disk. Its folder has
 *
 *     models/CONTENT/…    complete models, named by the SHA-256 over their files' names and digests
 *     sources/SOURCE      which content a source had last, and by which validator
 *     partial/SOURCE/     what is being fetched, or was when the process ended: resumed
 *     trash/              on its way out
 *
 * A model appears by one rename after all of it is on the disk, and leaves by one rename before any
 * of it is deleted. A lease holds a shared flock on the model's folder, and only a folder without
 * locks is evicted: so two processes, one of which replaces the other, may share the cache. All
 * functions are thread-safe and may block on the disk, except cache_release and cache_look.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct cache;
struct storage_lease;

enum {
    CACHE_ID_BYTES = 65, /* of CONTENT and SOURCE: hexadecimal digits */
    CACHE_ENTRY_BYTES = 256,
    CACHE_VALIDATOR_BYTES = 320
};

struct cache_record {
    char content[CACHE_ID_BYTES];
    char entry[CACHE_ENTRY_BYTES]; /* of a model that is one file: its name; "": a folder */
    char validator[CACHE_VALIDATOR_BYTES];
};

enum status cache_create(const char *folder, uint64_t bytes_max, struct cache **cache,
                         struct error *error) WARN_UNUSED;
void cache_destroy(struct cache *cache);
/* The folder of models, to be freed. */
char *cache_folder(const struct cache *cache);

/* False: nothing, or nothing readable, is known of the source. */
bool cache_recall(struct cache *cache, const char *source, struct cache_record *record);
enum status cache_remember(struct cache *cache, const char *source,
                           const struct cache_record *record, struct error *error) WARN_UNUSED;

/* Keeps a content. NULL: the cache does not have it. */
struct storage_lease *cache_lease(struct cache *cache, const char *content);
void cache_release(struct cache *cache, struct storage_lease *lease);
uint64_t cache_lease_bytes(const struct storage_lease *lease);
void cache_lease_path(const struct cache *cache, const struct storage_lease *lease,
                      const char *entry, char path[PATH_MAX]);

/* ---- a model that is being fetched ---- */

struct cache_partial {
    char id[CACHE_ID_BYTES];
    char files[PATH_MAX]; /* folder for its files */
    char folder[PATH_MAX];
    int lock_fd; /* -1: not open */
    uint64_t reserved_bytes;
};

/* Locks the source's partial folder and makes it empty, unless it was begun with the same validator
 * since the machine started. "" is the same as no other. ABORTED: another fetch has it: try again
 * soon. */
enum status cache_partial_open(struct cache *cache, const char *source, const char *validator,
                               struct cache_partial *partial, struct error *error) WARN_UNUSED;
/* The validator with which it was begun; "": none, and it is empty. */
void cache_partial_validator(const struct cache_partial *partial,
                             char validator[CACHE_VALIDATOR_BYTES]);
/* Empties it and begins it with that validator. */
enum status cache_partial_restart(struct cache_partial *partial, const char *validator,
                                  struct error *error) WARN_UNUSED;
/* Goes on with another folder for files, which is empty. The former one stays for the next attempt,
 * if this one fails. */
enum status cache_partial_unpack(struct cache_partial *partial, struct error *error) WARN_UNUSED;
/* Reserves the size of the whole, and evicts what nobody uses for it. RESOURCE_EXHAUSTED. */
enum status cache_partial_reserve(struct cache *cache, struct cache_partial *partial,
                                  uint64_t bytes, struct error *error) WARN_UNUSED;
/* The disk is full although the limit is not reached: evicts something. False: nothing is left. */
bool cache_evict_any(struct cache *cache);
/* Makes it a model of `bytes`, with a lease. It stays locked, so that the content is remembered
 * before another fetch of the same looks. */
enum status cache_partial_commit(struct cache *cache, struct cache_partial *partial,
                                 const char *content, uint64_t bytes, struct storage_lease **lease,
                                 struct error *error) WARN_UNUSED;
/* Keeps it for the next attempt, or deletes it. Does nothing if it is not open. */
enum cache_left { CACHE_KEEP, CACHE_DROP };
void cache_partial_close(struct cache *cache, struct cache_partial *partial, enum cache_left left);

/* ---- looking at it ---- */

struct cache_counts {
    uint64_t bytes, evictions;
};

void cache_look(struct cache *cache, struct cache_counts *counts);
