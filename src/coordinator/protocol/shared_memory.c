/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/shared_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/check.h"
#include "base/checked.h"
#include "wire/wire.h"

#define DIRECTORY "/dev/shm/"

enum { KEY_BYTES_MAX = 255 }; /* NAME_MAX */

struct shared_region {
    struct shared_memory *memory;
    uint32_t holds; /* of the table and of requests; under the memory's lock */
    int fd;
    uint64_t offset;
    uint64_t bytes;
    char *key; /* as it was given */
    char name[];
};

struct shared_memory {
    struct shared_memory_options options;
    pthread_mutex_t lock; /* of what follows */
    struct shared_region **regions;
    uint32_t count;
    uint32_t held; /* regions that exist, in the table or not */
};

/* ---- life ---- */

struct shared_memory *
shared_memory_create(const struct shared_memory_options *options)
{
    struct shared_memory *memory = calloc(1, sizeof(*memory));
    CHECK(memory != NULL);
    memory->options = *options;
    memory->regions = calloc((size_t)options->regions_max + 1, sizeof(struct shared_region *));
    CHECK(memory->regions != NULL);
    CHECK(pthread_mutex_init(&memory->lock, NULL) == 0);
    return memory;
}

void
shared_memory_destroy(struct shared_memory *memory)
{
    if (memory == NULL)
        return;
    shared_memory_unregister(memory, "");
    CHECK(memory->held == 0);
    pthread_mutex_destroy(&memory->lock);
    free(memory->regions);
    free(memory);
}

enum status
shared_memory_judge(enum shared_memory_rule rule, struct error *error)
{
    if (rule == SHARED_MEMORY_ON)
        return STATUS_OK;
    if (rule == SHARED_MEMORY_OF_MESH)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the node is one of a mesh, whose nodes take calls for one another, and "
                         "has no shared memory: send tensors in the message");
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "callers may not use shared memory: `http_control: on` in the node's "
                     "configuration permits it");
}

enum status
shared_memory_permit(const struct shared_memory *memory, struct error *error)
{
    return shared_memory_judge(memory == NULL ? SHARED_MEMORY_OFF : memory->options.rule, error);
}

bool
shared_memory_is_on(const struct shared_memory *memory)
{
    return memory != NULL && memory->options.rule == SHARED_MEMORY_ON;
}

enum status
shared_memory_refuse_far(struct error *error)
{
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "shared memory is for callers of the same machine: call the node by a "
                     "loopback address or a unix socket, or show a certificate");
}

uint64_t
shared_memory_request_bytes_max(const struct shared_memory *memory)
{
    return memory->options.request_bytes_max;
}

uint32_t
shared_memory_count(struct shared_memory *memory)
{
    pthread_mutex_lock(&memory->lock);
    uint32_t count = memory->count;
    pthread_mutex_unlock(&memory->lock);
    return count;
}

/* ---- the object ---- */

/* The name below /dev/shm; NULL: shm_open would not take the key. */
static const char *
name_of_key(const char *key)
{
    const char *name = key[0] == '/' ? key + 1 : key;
    bool is_name = name[0] != '\0' && strchr(name, '/') == NULL && strcmp(name, ".") != 0 &&
                   strcmp(name, "..") != 0 && strlen(name) <= KEY_BYTES_MAX;
    return is_name ? name : NULL;
}

static enum status
not_opened(const char *key, struct error *error)
{
    if (errno == ELOOP)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.200s\" is a symbolic link", key);
    if (errno == EWOULDBLOCK)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.200s\": another process has a lease on it", key);
    if (errno == EISDIR || errno == ENXIO || errno == ENODEV)
        return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.200s\" is not shared memory", key);
    if (errno == EACCES)
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "\"%.200s\": its mode does not let the node's user read and write it",
                         key);
    return error_set_errno(error, "opening \"%.200s\"", key);
}

static enum status
check_object(int fd, const struct shared_region_spec *spec, struct error *error)
{
    struct stat stat;
    struct statfs system;
    uint64_t end;
    if (fstat(fd, &stat) != 0 || fstatfs(fd, &system) != 0)
        return error_set_errno(error, "looking at \"%.200s\"", spec->key);
    if (!S_ISREG(stat.st_mode) || system.f_type != TMPFS_MAGIC)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.200s\" is not shared memory: it must be a file on tmpfs", spec->key);
    if (spec->bytes == 0 || !add_ok(spec->offset, spec->bytes, &end) ||
        end > (uint64_t)stat.st_size)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.200s\" has %lld bytes, not %llu from byte %llu on", spec->key,
                         (long long)stat.st_size, (unsigned long long)spec->bytes,
                         (unsigned long long)spec->offset);
    return STATUS_OK;
}

static enum status
open_object(const struct shared_region_spec *spec, int *fd, struct error *error)
{
    char path[sizeof(DIRECTORY) + KEY_BYTES_MAX];
    const char *name = name_of_key(spec->key);
    if (name == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "key \"%.200s\": must be a name of 1 to %d bytes without a slash in it",
                         spec->key, KEY_BYTES_MAX);
    snprintf(path, sizeof(path), DIRECTORY "%s", name);
    *fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (*fd < 0)
        return not_opened(spec->key, error);
    enum status status = check_object(*fd, spec, error);
    if (status != STATUS_OK)
        (void)close(*fd);
    return status;
}

/* ---- the table ---- */

/* Returns the index of a name; `count`: it is not there. Call under the lock. */
static uint32_t
find(const struct shared_memory *memory, const char *name)
{
    uint32_t i = 0;
    while (i < memory->count && strcmp(memory->regions[i]->name, name) != 0)
        i++;
    return i;
}

static void
region_free(struct shared_region *region)
{
    (void)close(region->fd);
    free(region->key);
    free(region);
}

static struct shared_region *
region_create(struct shared_memory *memory, const struct shared_region_spec *spec, int fd)
{
    size_t bytes = strlen(spec->name) + 1;
    struct shared_region *region = malloc(sizeof(*region) + bytes);
    CHECK(region != NULL);
    *region = (struct shared_region){.memory = memory,
                                     .holds = 1,
                                     .fd = fd,
                                     .offset = spec->offset,
                                     .bytes = spec->bytes,
                                     .key = strdup(spec->key)};
    CHECK(region->key != NULL);
    memcpy(region->name, spec->name, bytes);
    return region;
}

/* Call under the lock. */
static enum status
check_room(const struct shared_memory *memory, const char *name, struct error *error)
{
    if (find(memory, name) < memory->count)
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "the name is registered already: unregister it first");
    if (memory->held == memory->options.regions_max)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "%u regions are registered and %u others still used by calls, no more may "
                         "be (shared_memory_regions): unregister some",
                         memory->count, memory->held - memory->count);
    return STATUS_OK;
}

enum status
shared_memory_register(struct shared_memory *memory, const struct shared_region_spec *spec,
                       struct error *error)
{
    int fd = -1;
    if (spec->name[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "the region's name is empty");
    enum status status = open_object(spec, &fd, error);
    if (status == STATUS_OK) {
        struct shared_region *region = region_create(memory, spec, fd);
        pthread_mutex_lock(&memory->lock);
        status = check_room(memory, spec->name, error);
        if (status == STATUS_OK) {
            memory->regions[memory->count++] = region;
            memory->held++;
        }
        pthread_mutex_unlock(&memory->lock);
        if (status != STATUS_OK)
            region_free(region);
    }
    return status == STATUS_OK
               ? status
               : error_prefix(error, "registering shared memory region \"%.200s\"", spec->name);
}

/* Returns whether that was the last hold: then the region is to be freed without the lock. Call
 * under the lock. */
static bool
let_go(struct shared_region *region)
{
    CHECK(region->holds > 0);
    if (--region->holds > 0)
        return false;
    region->memory->held--;
    return true;
}

/* Takes one region out of the table; false: there is none. */
static bool
unregister_one(struct shared_memory *memory, const char *name)
{
    pthread_mutex_lock(&memory->lock);
    uint32_t place = name[0] == '\0' ? 0 : find(memory, name);
    bool is_there = place < memory->count;
    struct shared_region *region = is_there ? memory->regions[place] : NULL;
    if (is_there) {
        memory->count--;
        memmove(&memory->regions[place], &memory->regions[place + 1],
                (memory->count - place) * sizeof(struct shared_region *));
    }
    bool is_last = is_there && let_go(region);
    pthread_mutex_unlock(&memory->lock);
    if (is_last)
        region_free(region);
    return is_there;
}

void
shared_memory_unregister(struct shared_memory *memory, const char *name)
{
    bool is_all = name[0] == '\0';
    while (unregister_one(memory, name) && is_all)
        continue;
}

static void
put_region(struct bytes *out, const struct shared_region *region)
{
    struct bytes status = {0};
    struct bytes entry = {0};
    wire_append_run(&status, 1, region->name, strlen(region->name));
    wire_append_run(&status, 2, region->key, strlen(region->key));
    wire_append_number(&status, 3, region->offset);
    wire_append_number(&status, 4, region->bytes);
    wire_append_run(&entry, 1, region->name, strlen(region->name));
    wire_append_run(&entry, 2, status.data, status.used);
    wire_append_run(out, 1, entry.data, entry.used);
    out->failed = out->failed || status.failed || entry.failed;
    bytes_fini(&status);
    bytes_fini(&entry);
}

static enum status
not_registered(const char *name, struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND, "Unable to find shared memory region: '%.200s'",
                     name);
}

enum status
shared_memory_put_status(struct shared_memory *memory, const char *name, struct bytes *out,
                         struct error *error)
{
    bool is_all = name[0] == '\0';
    pthread_mutex_lock(&memory->lock);
    uint32_t place = is_all ? 0 : find(memory, name);
    uint32_t end = is_all || place == memory->count ? memory->count : place + 1;
    for (uint32_t i = place; i < end; i++)
        put_region(out, memory->regions[i]);
    pthread_mutex_unlock(&memory->lock);
    return is_all || place < end ? STATUS_OK : not_registered(name, error);
}

/* ---- for a request ---- */

enum status
shared_memory_hold(struct shared_memory *memory, const char *name, struct shared_region **held,
                   struct error *error)
{
    pthread_mutex_lock(&memory->lock);
    uint32_t place = find(memory, name);
    bool is_there = place < memory->count;
    if (is_there) {
        *held = memory->regions[place];
        (*held)->holds++;
    }
    pthread_mutex_unlock(&memory->lock);
    return is_there ? STATUS_OK : not_registered(name, error);
}

void
shared_region_release(struct shared_region *region)
{
    struct shared_memory *memory = region->memory;
    pthread_mutex_lock(&memory->lock);
    bool is_last = let_go(region);
    pthread_mutex_unlock(&memory->lock);
    if (is_last)
        region_free(region);
}

enum status
shared_region_check(const struct shared_region *region, uint64_t offset, uint64_t bytes,
                    struct error *error)
{
    if (range_ok(offset, bytes, region->bytes))
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "shared memory region '%.200s' has %llu bytes, not %llu from byte %llu on",
                     region->name, (unsigned long long)region->bytes, (unsigned long long)bytes,
                     (unsigned long long)offset);
}

static enum status
cut_short(const struct shared_region *region, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "shared memory region '%.200s': \"%.200s\" has become too short", region->name,
                     region->key);
}

enum status
shared_region_read(const struct shared_region *region, uint64_t offset, void *to, uint64_t bytes,
                   struct error *error)
{
    char *next = to;
    off_t at = (off_t)(region->offset + offset);
    while (bytes > 0) {
        ssize_t count = pread(region->fd, next, bytes, at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return error_set_errno(error, "reading shared memory region '%.200s'", region->name);
        if (count == 0)
            return cut_short(region, error);
        next += count;
        at += count;
        bytes -= (uint64_t)count;
    }
    return STATUS_OK;
}

/* A write must not make an object longer that was cut short. If that happens after the look, the
 * object, which is its owner's, gets longer again. */
enum status
shared_region_write(const struct shared_region *region, uint64_t offset, const void *from,
                    uint64_t bytes, struct error *error)
{
    const char *next = from;
    struct stat stat;
    off_t at = (off_t)(region->offset + offset);
    if (fstat(region->fd, &stat) != 0)
        return error_set_errno(error, "looking at shared memory region '%.200s'", region->name);
    if ((uint64_t)stat.st_size < (uint64_t)at + bytes)
        return cut_short(region, error);
    while (bytes > 0) {
        ssize_t count = pwrite(region->fd, next, bytes, at);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return error_set_errno(error, "writing shared memory region '%.200s'", region->name);
        if (count == 0)
            return cut_short(region, error);
        next += count;
        at += count;
        bytes -= (uint64_t)count;
    }
    return STATUS_OK;
}
