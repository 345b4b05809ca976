/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "serving/storage/cache_tree.h"

#define MIB_OF(bytes) ((unsigned long long)((bytes) >> 20))

enum item_kind { ITEM_MODEL, ITEM_PARTIAL };

/* A model, or what is left of a fetch. */
struct storage_lease {
    struct storage_lease *next;
    enum item_kind kind;
    char id[CACHE_ID_BYTES];
    uint64_t bytes;
    struct timespec used; /* its folder's time */
    uint32_t refs;        /* [counts] */
    int lock_fd;          /* while it has references [counts] */
};

struct cache {
    char folder[PATH_MAX / 2];
    uint64_t bytes_max;
    /* `lock` is held over disk operations, so the loop thread takes `counts_lock` alone; the order
     * is lock, counts_lock. Members are of `lock` unless marked [counts]. */
    pthread_mutex_t lock, counts_lock;
    struct storage_lease *items;
    uint64_t used_bytes;   /* of items and reservations [counts] */
    uint64_t evictions;    /* [counts] */
    uint64_t trash_serial; /* names in trash/ */
};

static void
item_path(const struct cache *cache, enum item_kind kind, const char *id, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/%s/%s", cache->folder, kind == ITEM_MODEL ? "models" : "partial",
             id);
}

/* Opens and locks a folder. -1: it is gone, or another process or fetch has it. */
static int
open_locked(const char *path, int operation)
{
    struct stat opened;
    struct stat named;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (flock(fd, operation | LOCK_NB) == 0 && fstat(fd, &opened) == 0 && stat(path, &named) == 0 &&
        opened.st_ino == named.st_ino && opened.st_dev == named.st_dev)
        return fd; /* and the path still names it */
    close(fd);
    return -1;
}

static void
count_bytes(struct cache *cache, uint64_t more, uint64_t less)
{
    pthread_mutex_lock(&cache->counts_lock);
    cache->used_bytes += more;
    cache->used_bytes -= less;
    pthread_mutex_unlock(&cache->counts_lock);
}

static uint64_t
used_bytes(struct cache *cache)
{
    pthread_mutex_lock(&cache->counts_lock);
    uint64_t bytes = cache->used_bytes;
    pthread_mutex_unlock(&cache->counts_lock);
    return bytes;
}

/* ---- items ---- */

static struct storage_lease *
item_add(struct cache *cache, enum item_kind kind, const char *id, uint64_t bytes)
{
    struct storage_lease *item = calloc(1, sizeof(*item));
    CHECK(item != NULL);
    item->kind = kind;
    snprintf(item->id, sizeof(item->id), "%s", id);
    item->bytes = bytes;
    item->lock_fd = -1;
    clock_gettime(CLOCK_REALTIME, &item->used);
    item->next = cache->items;
    cache->items = item;
    count_bytes(cache, bytes, 0);
    return item;
}

static struct storage_lease *
item_find(const struct cache *cache, enum item_kind kind, const char *id)
{
    struct storage_lease *item = cache->items;
    while (item != NULL && (item->kind != kind || strcmp(item->id, id) != 0))
        item = item->next;
    return item;
}

static bool
item_is_held(struct cache *cache, const struct storage_lease *item)
{
    pthread_mutex_lock(&cache->counts_lock);
    bool held = item->refs > 0;
    pthread_mutex_unlock(&cache->counts_lock);
    return held;
}

static void
item_remove(struct cache *cache, struct storage_lease *item)
{
    struct storage_lease **at = &cache->items;
    while (*at != item)
        at = &(*at)->next;
    *at = item->next;
    count_bytes(cache, 0, item->bytes);
    free(item);
}

static bool
is_id(const char *name)
{
    return strlen(name) == CACHE_ID_BYTES - 1 &&
           strspn(name, "0123456789abcdef") == CACHE_ID_BYTES - 1;
}

static void
scan(struct cache *cache, enum item_kind kind)
{
    char path[PATH_MAX];
    struct stat info;
    item_path(cache, kind, "", path);
    DIR *stream = opendir(path);
    const struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        if (!is_id(entry->d_name))
            continue;
        item_path(cache, kind, entry->d_name, path);
        struct storage_lease *item = item_add(cache, kind, entry->d_name, tree_bytes(path));
        if (stat(path, &info) == 0)
            item->used = info.st_mtim;
    }
    if (stream != NULL)
        closedir(stream);
}

static bool
take_line(FILE *file, char *text, size_t room)
{
    if (fgets(text, (int)room, file) == NULL)
        return false;
    size_t bytes = strcspn(text, "\n");
    bool whole = text[bytes] == '\n';
    text[bytes] = '\0';
    return whole;
}

/* Forgets sources whose last content is gone. */
static void
prune_sources(const struct cache *cache)
{
    char path[PATH_MAX];
    char content[CACHE_ID_BYTES + 1];
    struct stat info;
    snprintf(path, sizeof(path), "%s/sources", cache->folder);
    DIR *stream = opendir(path);
    const struct dirent *entry;
    while (stream != NULL && (entry = readdir(stream)) != NULL) {
        if (!is_id(entry->d_name)) /* being written */
            continue;
        snprintf(path, sizeof(path), "%s/sources/%s", cache->folder, entry->d_name);
        FILE *file = fopen(path, "re");
        bool is_known = file != NULL && take_line(file, content, sizeof(content)) && is_id(content);
        if (file != NULL)
            fclose(file);
        item_path(cache, ITEM_MODEL, content, path);
        if (is_known && stat(path, &info) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/sources/%s", cache->folder, entry->d_name);
        (void)unlink(path);
    }
    if (stream != NULL)
        closedir(stream);
}

/* ---- eviction ---- */

static bool
used_before(const struct storage_lease *one, const struct storage_lease *other)
{
    if (one->used.tv_sec != other->used.tv_sec)
        return one->used.tv_sec < other->used.tv_sec;
    return one->used.tv_nsec < other->used.tv_nsec;
}

/* Moves it out of sight. False: somebody uses it. */
static bool
discard(struct cache *cache, struct storage_lease *item, char trash[PATH_MAX])
{
    char path[PATH_MAX];
    struct stat info;
    item_path(cache, item->kind, item->id, path);
    int fd = open_locked(path, LOCK_EX);
    if (fd < 0)
        return stat(path, &info) != 0 && errno == ENOENT; /* another process has evicted it */
    snprintf(trash, PATH_MAX, "%s/trash/%d.%llu", cache->folder, (int)getpid(),
             (unsigned long long)++cache->trash_serial);
    bool moved = rename(path, trash) == 0;
    close(fd);
    return moved;
}

/* Call with the lock. Returns false if everything left is in use. */
static bool
evict_one(struct cache *cache)
{
    struct storage_lease *oldest = NULL;
    char trash[PATH_MAX] = "";
    for (;;) {
        struct storage_lease *before = oldest;
        oldest = NULL;
        for (struct storage_lease *item = cache->items; item != NULL; item = item->next) {
            bool is_free = !item_is_held(cache, item);
            bool is_later = before == NULL || used_before(before, item);
            if (is_free && is_later && (oldest == NULL || used_before(item, oldest)))
                oldest = item;
        }
        if (oldest == NULL)
            return false;
        if (discard(cache, oldest, trash))
            break;
    }
    log_info_limited("storage_evicted content=%.16s bytes=%llu", oldest->id,
                     (unsigned long long)oldest->bytes);
    item_remove(cache, oldest);
    pthread_mutex_lock(&cache->counts_lock);
    cache->evictions++;
    pthread_mutex_unlock(&cache->counts_lock);
    if (trash[0] != '\0')
        tree_remove(trash);
    prune_sources(cache);
    return true;
}

bool
cache_evict_any(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    bool evicted = evict_one(cache);
    pthread_mutex_unlock(&cache->lock);
    return evicted;
}

/* ---- life ---- */

/* Call at the start, and again before each fetch: an operator may delete the cache. */
static enum status
make_folders(const char *folder, struct error *error)
{
    static const char *const parts[] = {"models", "sources", "partial", "trash"};
    char path[PATH_MAX];
    enum status status = STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(parts) && status == STATUS_OK; i++) {
        snprintf(path, sizeof(path), "%.4000s/%s", folder, parts[i]);
        status = tree_make(path, error);
        if (status == STATUS_OK && access(path, R_OK | W_OK | X_OK) != 0)
            status = error_set_errno(error, "models_cache: %.300s", path);
    }
    return status;
}

enum status
cache_create(const char *folder, uint64_t bytes_max, struct cache **created, struct error *error)
{
    char path[PATH_MAX];
    if (strlen(folder) >= PATH_MAX / 4)
        return error_set(error, STATUS_INVALID_ARGUMENT, "models_cache: the path is too long");
    struct cache *cache = calloc(1, sizeof(*cache));
    CHECK(cache != NULL);
    snprintf(cache->folder, sizeof(cache->folder), "%s", folder);
    cache->bytes_max = bytes_max;
    enum status status = make_folders(folder, error);
    if (status != STATUS_OK) {
        free(cache);
        return status;
    }
    char *real = realpath(folder, NULL); /* workers compare paths without links */
    if (real != NULL)
        snprintf(cache->folder, sizeof(cache->folder), "%s", real);
    free(real);
    pthread_mutex_init(&cache->lock, NULL);
    pthread_mutex_init(&cache->counts_lock, NULL);
    snprintf(path, sizeof(path), "%.4000s/trash", cache->folder);
    tree_remove(path); /* nobody needs its content */
    status = tree_make(path, error);
    scan(cache, ITEM_MODEL);
    scan(cache, ITEM_PARTIAL);
    prune_sources(cache);
    while (used_bytes(cache) > bytes_max && evict_one(cache))
        continue;
    *created = cache;
    if (status != STATUS_OK)
        cache_destroy(cache);
    return status;
}

void
cache_destroy(struct cache *cache)
{
    while (cache->items != NULL) {
        if (cache->items->lock_fd >= 0)
            close(cache->items->lock_fd);
        item_remove(cache, cache->items);
    }
    pthread_mutex_destroy(&cache->lock);
    pthread_mutex_destroy(&cache->counts_lock);
    free(cache);
}

char *
cache_folder(const struct cache *cache)
{
    char *path = NULL;
    CHECK(asprintf(&path, "%s/models", cache->folder) >= 0);
    return path;
}

void
cache_look(struct cache *cache, struct cache_counts *counts)
{
    pthread_mutex_lock(&cache->counts_lock);
    *counts = (struct cache_counts){cache->used_bytes, cache->evictions};
    pthread_mutex_unlock(&cache->counts_lock);
}

/* ---- sources ---- */

bool
cache_recall(struct cache *cache, const char *source, struct cache_record *record)
{
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/sources/%s", cache->folder, source);
    *record = (struct cache_record){.content = ""};
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char content[CACHE_ID_BYTES + 1];
    bool read = take_line(file, content, sizeof(content)) && is_id(content) &&
                take_line(file, record->entry, sizeof(record->entry)) &&
                take_line(file, record->validator, sizeof(record->validator)) &&
                strchr(record->entry, '/') == NULL;
    fclose(file);
    if (read)
        memcpy(record->content, content, CACHE_ID_BYTES);
    return read;
}

enum status
cache_remember(struct cache *cache, const char *source, const struct cache_record *record,
               struct error *error)
{
    char path[PATH_MAX];
    char text[CACHE_ID_BYTES + CACHE_ENTRY_BYTES + CACHE_VALIDATOR_BYTES + 4];
    snprintf(path, sizeof(path), "%s/sources/%s", cache->folder, source);
    snprintf(text, sizeof(text), "%s\n%s\n%s\n", record->content, record->entry, record->validator);
    return tree_write(path, text, error);
}

/* ---- leases ---- */

/* Call with the lock. Returns false if its folder is gone. */
static bool
hold(struct cache *cache, struct storage_lease *item)
{
    char path[PATH_MAX];
    item_path(cache, ITEM_MODEL, item->id, path);
    pthread_mutex_lock(&cache->counts_lock);
    bool held = item->refs > 0;
    item->refs += held;
    pthread_mutex_unlock(&cache->counts_lock);
    if (held)
        return true;
    int fd = open_locked(path, LOCK_SH);
    if (fd < 0)
        return false;
    pthread_mutex_lock(&cache->counts_lock);
    item->refs = 1;
    item->lock_fd = fd;
    pthread_mutex_unlock(&cache->counts_lock);
    return true;
}

struct storage_lease *
cache_lease(struct cache *cache, const char *content)
{
    char path[PATH_MAX];
    struct stat info;
    item_path(cache, ITEM_MODEL, content, path);
    pthread_mutex_lock(&cache->lock);
    struct storage_lease *item = item_find(cache, ITEM_MODEL, content);
    bool is_there = stat(path, &info) == 0;
    if (item == NULL && is_there) /* another process has fetched it */
        item = item_add(cache, ITEM_MODEL, content, tree_bytes(path));
    if (!is_there && item != NULL && item_is_held(cache, item)) /* deleted by somebody else */
        item = NULL;
    if (item != NULL && !hold(cache, item)) {
        item_remove(cache, item);
        item = NULL;
    }
    if (item != NULL) {
        (void)utimensat(AT_FDCWD, path, NULL, 0);
        clock_gettime(CLOCK_REALTIME, &item->used);
    }
    pthread_mutex_unlock(&cache->lock);
    return item;
}

void
cache_release(struct cache *cache, struct storage_lease *lease)
{
    int fd = -1;
    pthread_mutex_lock(&cache->counts_lock);
    CHECK(lease->refs > 0);
    if (--lease->refs == 0) {
        fd = lease->lock_fd;
        lease->lock_fd = -1;
    }
    pthread_mutex_unlock(&cache->counts_lock);
    if (fd >= 0)
        close(fd);
}

uint64_t
cache_lease_bytes(const struct storage_lease *lease)
{
    return lease->bytes;
}

void
cache_lease_path(const struct cache *cache, const struct storage_lease *lease, const char *entry,
                 char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%s/models/%s%s%s", cache->folder, lease->id,
             entry[0] != '\0' ? "/" : "", entry);
}

/* ---- partial models ---- */

/* A crash of the machine may have lost what files say they have; a validator of another boot is
 * none. */
static void
boot_id(char id[40])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    id[0] = '\0';
    if (file != NULL && fgets(id, 40, file) != NULL)
        id[strcspn(id, "\n")] = '\0';
    if (file != NULL)
        fclose(file);
}

static void
validator_path(const struct cache_partial *partial, char path[PATH_MAX])
{
    snprintf(path, PATH_MAX, "%.4000s/validator", partial->folder);
}

void
cache_partial_validator(const struct cache_partial *partial, char validator[CACHE_VALIDATOR_BYTES])
{
    char path[PATH_MAX];
    char boot[40];
    char line[48];
    boot_id(boot);
    validator_path(partial, path);
    validator[0] = '\0';
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    bool is_ours = take_line(file, line, sizeof(line)) && strcmp(line, boot) == 0 &&
                   take_line(file, validator, CACHE_VALIDATOR_BYTES);
    fclose(file);
    if (!is_ours)
        validator[0] = '\0';
}

enum status
cache_partial_restart(struct cache_partial *partial, const char *validator, struct error *error)
{
    char path[PATH_MAX];
    char boot[40];
    char text[CACHE_VALIDATOR_BYTES + 48];
    tree_remove(partial->files);
    validator_path(partial, path);
    (void)unlink(path);
    enum status status = tree_make(partial->files, error);
    if (status != STATUS_OK || validator[0] == '\0')
        return status;
    boot_id(boot);
    snprintf(text, sizeof(text), "%s\n%s\n", boot, validator);
    return tree_write(path, text, error);
}

enum status
cache_partial_unpack(struct cache_partial *partial, struct error *error)
{
    snprintf(partial->files, sizeof(partial->files), "%.4000s/unpacked", partial->folder);
    tree_remove(partial->files); /* of an attempt that was killed */
    return tree_make(partial->files, error);
}

enum status
cache_partial_open(struct cache *cache, const char *source, const char *validator,
                   struct cache_partial *partial, struct error *error)
{
    char found[CACHE_VALIDATOR_BYTES];
    *partial = (struct cache_partial){.lock_fd = -1};
    snprintf(partial->id, sizeof(partial->id), "%s", source);
    item_path(cache, ITEM_PARTIAL, source, partial->folder);
    snprintf(partial->files, sizeof(partial->files), "%.4000s/files", partial->folder);
    pthread_mutex_lock(&cache->lock);
    enum status status = make_folders(cache->folder, error);
    if (status == STATUS_OK)
        status = tree_make(partial->folder, error);
    if (status == STATUS_OK)
        partial->lock_fd = open_locked(partial->folder, LOCK_EX);
    struct storage_lease *item = item_find(cache, ITEM_PARTIAL, source);
    if (partial->lock_fd >= 0 && item != NULL)
        item_remove(cache, item); /* it counts by its reservation now */
    pthread_mutex_unlock(&cache->lock);
    if (status != STATUS_OK)
        return status;
    if (partial->lock_fd < 0)
        return error_set(error, STATUS_ABORTED, "another fetch of the same is under way");
    cache_partial_validator(partial, found);
    bool goes_on = found[0] != '\0' && (validator[0] == '\0' || strcmp(found, validator) == 0);
    if (!goes_on)
        status = cache_partial_restart(partial, validator, error);
    if (status == STATUS_OK)
        status = cache_partial_reserve(cache, partial, tree_bytes(partial->folder), error);
    if (status != STATUS_OK)
        cache_partial_close(cache, partial, CACHE_DROP);
    return status;
}

enum status
cache_partial_reserve(struct cache *cache, struct cache_partial *partial, uint64_t bytes,
                      struct error *error)
{
    if (bytes <= partial->reserved_bytes)
        return STATUS_OK;
    uint64_t more = bytes - partial->reserved_bytes;
    enum status status = STATUS_OK;
    pthread_mutex_lock(&cache->lock);
    while (bytes <= cache->bytes_max && used_bytes(cache) + more > cache->bytes_max &&
           evict_one(cache))
        continue;
    uint64_t used = used_bytes(cache);
    if (bytes > cache->bytes_max)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED,
                           "it has %llu MiB, more than the whole cache may have: raise "
                           "models_cache_gib",
                           MIB_OF(bytes));
    else if (used + more > cache->bytes_max)
        status = error_set(error, STATUS_RESOURCE_EXHAUSTED,
                           "it has %llu MiB, and of the %llu MiB of the cache %llu MiB are of "
                           "models that are loaded or being fetched: raise models_cache_gib",
                           MIB_OF(bytes), MIB_OF(cache->bytes_max), MIB_OF(used));
    else {
        count_bytes(cache, more, 0);
        partial->reserved_bytes = bytes;
    }
    pthread_mutex_unlock(&cache->lock);
    return status;
}

static void
partial_end(struct cache *cache, struct cache_partial *partial)
{
    count_bytes(cache, 0, partial->reserved_bytes);
    partial->reserved_bytes = 0;
    close(partial->lock_fd);
    partial->lock_fd = -1;
}

void
cache_partial_close(struct cache *cache, struct cache_partial *partial, enum cache_left left)
{
    if (partial->lock_fd < 0)
        return;
    if (left == CACHE_DROP)
        tree_remove(partial->folder);
    pthread_mutex_lock(&cache->lock);
    if (left == CACHE_KEEP)
        (void)item_add(cache, ITEM_PARTIAL, partial->id, tree_bytes(partial->folder));
    partial_end(cache, partial);
    pthread_mutex_unlock(&cache->lock);
}

/* One sync of the file system is cheaper than thousands of files'. */
static enum status
move_in(const struct cache *cache, const struct cache_partial *partial, const char *model,
        struct error *error)
{
    char path[PATH_MAX];
    item_path(cache, ITEM_MODEL, "", path);
    if (syncfs(partial->lock_fd) != 0)
        return error_set_errno(error, "writing the model to the disk");
    bool moved = rename(partial->files, model) == 0;
    if (!moved && errno != ENOTEMPTY && errno != EEXIST) /* a fetch of the same content was first */
        return error_set_errno(error, "moving the model into the cache");
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return synced ? STATUS_OK : error_set_errno(error, "writing the cache's folder");
}

enum status
cache_partial_commit(struct cache *cache, struct cache_partial *partial, const char *content,
                     uint64_t bytes, struct storage_lease **lease, struct error *error)
{
    char model[PATH_MAX];
    struct stat info;
    item_path(cache, ITEM_MODEL, content, model);
    enum status status = STATUS_OK;
    *lease = cache_lease(cache, content); /* another source has the same content */
    if (*lease == NULL && stat(model, &info) != 0)
        status = move_in(cache, partial, model, error);
    if (status == STATUS_OK && *lease == NULL) {
        pthread_mutex_lock(&cache->lock);
        struct storage_lease *item = item_find(cache, ITEM_MODEL, content);
        if (item == NULL)
            item = item_add(cache, ITEM_MODEL, content, bytes);
        *lease = hold(cache, item) ? item : NULL;
        pthread_mutex_unlock(&cache->lock);
    }
    if (status == STATUS_OK && *lease == NULL)
        status = error_set(error, STATUS_ABORTED, "the model was evicted while it was stored");
    if (status == STATUS_OK) {
        count_bytes(cache, 0, partial->reserved_bytes);
        partial->reserved_bytes = 0;
    }
    return status;
}
