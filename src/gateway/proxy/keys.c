/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/proxy/keys.h"

#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/hash_table.h"
#include "base/log.h"
#include "gateway/config/key_file.h"
#include "loop/timer.h"

enum { WATCH_MS = 1000 };

/* Stays as long as the ring, so that its use is not forgotten when the file loses it for a while;
 * KEYS_MAX is also the limit of all that there were. */
struct api_key {
    struct hash_entry entry; /* by the first bytes of its digest: nobody chooses those */
    bool is_listed;
    unsigned char digest[KEY_DIGEST_BYTES];
    struct quota quota;
};

struct key_ring {
    const char *path;
    struct loop_timer *watch;
    struct stat seen;
    struct hash_table table;
    struct api_key keys[KEYS_MAX];
    uint32_t count;
};

static int64_t
now_ms(void)
{
    return clock_now_ns() / NS_PER_MS;
}

static struct api_key *
find(struct key_ring *ring, const unsigned char digest[KEY_DIGEST_BYTES])
{
    uint64_t hash;
    memcpy(&hash, digest, sizeof(hash));
    struct hash_entry *entry = hash_table_first(&ring->table, hash);
    while (entry != NULL &&
           memcmp(((struct api_key *)entry)->digest, digest, KEY_DIGEST_BYTES) != 0)
        entry = hash_table_next(entry);
    return (struct api_key *)entry;
}

static void
list(struct key_ring *ring, const struct key_entry *entry)
{
    struct api_key *key = find(ring, entry->digest);
    uint64_t hash;
    if (key == NULL && ring->count == KEYS_MAX) {
        log_warn("api_key_refused error=\"more than %d keys since the start\"", KEYS_MAX);
        return;
    }
    if (key == NULL) {
        key = &ring->keys[ring->count++];
        memcpy(key->digest, entry->digest, KEY_DIGEST_BYTES);
        memcpy(&hash, entry->digest, sizeof(hash));
        hash_table_add(&ring->table, &key->entry, hash);
        quota_init(&key->quota, &entry->limits, now_ms());
    }
    quota_change(&key->quota, &entry->limits);
    key->is_listed = true;
}

static enum status
read_file(struct key_ring *ring, struct error *error)
{
    uint32_t count;
    struct key_entry *entries = calloc(KEYS_MAX, sizeof(*entries));
    CHECK(entries != NULL);
    enum status status = key_file_read(ring->path, entries, &count, error);
    for (uint32_t i = 0; i < ring->count && status == STATUS_OK; i++)
        ring->keys[i].is_listed = false;
    for (uint32_t i = 0; i < count && status == STATUS_OK; i++)
        list(ring, &entries[i]);
    if (status == STATUS_OK)
        log_info("api_keys_read path=\"%s\" count=%u", ring->path, count);
    free(entries);
    return status;
}

static void
on_watch(void *context)
{
    struct key_ring *ring = context;
    struct error error = ERROR_NONE;
    struct stat now;
    loop_timer_set(ring->watch, (int64_t)WATCH_MS * NS_PER_MS);
    if (stat(ring->path, &now) != 0 ||
        (now.st_ino == ring->seen.st_ino && now.st_size == ring->seen.st_size &&
         now.st_mtim.tv_sec == ring->seen.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == ring->seen.st_mtim.tv_nsec))
        return;
    ring->seen = now;
    if (read_file(ring, &error) != STATUS_OK)
        log_warn("api_keys_refused error=\"%s\"", error.text);
}

struct api_key *
key_ring_find(struct key_ring *ring, const char *authorization)
{
    static const char scheme[] = "Bearer ";
    unsigned char digest[KEY_DIGEST_BYTES];
    unsigned int bytes = 0;
    if (authorization == NULL || strncasecmp(authorization, scheme, sizeof(scheme) - 1) != 0)
        return NULL;
    const char *text = authorization + sizeof(scheme) - 1;
    CHECK(EVP_Digest(text, strlen(text), digest, &bytes, EVP_sha256(), NULL) == 1 &&
          bytes == sizeof(digest));
    struct api_key *key = find(ring, digest);
    return key != NULL && key->is_listed ? key : NULL;
}

int64_t
api_key_take(struct api_key *key)
{
    return quota_take(&key->quota, now_ms());
}

void
api_key_release(struct api_key *key, uint64_t tokens)
{
    quota_release(&key->quota, tokens);
}

enum status
key_ring_create(struct event_base *base, const char *path, struct key_ring **created,
                struct error *error)
{
    struct key_ring *ring = calloc(1, sizeof(*ring));
    CHECK(ring != NULL);
    ring->path = path;
    ring->watch = loop_timer_create(base, on_watch, ring);
    (void)stat(path, &ring->seen);
    enum status status = read_file(ring, error);
    if (status != STATUS_OK) {
        key_ring_destroy(ring);
        return status;
    }
    loop_timer_set(ring->watch, (int64_t)WATCH_MS * NS_PER_MS);
    *created = ring;
    return STATUS_OK;
}

void
key_ring_destroy(struct key_ring *ring)
{
    if (ring == NULL)
        return;
    loop_timer_destroy(ring->watch);
    hash_table_fini(&ring->table);
    free(ring);
}
