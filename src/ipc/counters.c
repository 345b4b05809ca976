/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/counters.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/check.h"
#include "base/checked.h"
#include "base/clock.h"

/*
 * ---- where each counter is, computed by the compiler ----
 *
 * AT_<scope>_<id> numbers the words of all counters in the order of the table, a scope's offset in
 * its own values is that less FIRST_<scope>. So the table must keep each scope together; it is
 * asserted.
 */

enum { WORDS_COUNT = 1, WORDS_GAUGE = 1, WORDS_HISTOGRAM = HISTOGRAM_WORDS };

enum {
#define COUNTER(scope, id, type, unit, help)                                                       \
    AT_##scope##_##id, END_##scope##_##id = AT_##scope##_##id + WORDS_##type - 1,
#include "ipc/counters.def"
#undef COUNTER
    /* NOLINTBEGIN(bugprone-macro-parentheses): terms of sums */
    WORDS_NODE = 0
#define COUNTER(scope, id, type, unit, help) +(SCOPE_##scope == SCOPE_NODE) * WORDS_##type
#include "ipc/counters.def"
#undef COUNTER
    ,
    WORDS_PIPELINE = 0
#define COUNTER(scope, id, type, unit, help) +(SCOPE_##scope == SCOPE_PIPELINE) * WORDS_##type
#include "ipc/counters.def"
#undef COUNTER
    ,
    WORDS_STAGE = 0
#define COUNTER(scope, id, type, unit, help) +(SCOPE_##scope == SCOPE_STAGE) * WORDS_##type
#include "ipc/counters.def"
#undef COUNTER
    ,
    WORDS_WORKER = 0
#define COUNTER(scope, id, type, unit, help) +(SCOPE_##scope == SCOPE_WORKER) * WORDS_##type
#include "ipc/counters.def"
#undef COUNTER
    ,
    WORDS_OLDEST = 0
#define COUNTER(scope, id, type, unit, help) +(SCOPE_##scope == SCOPE_OLDEST) * WORDS_##type
#include "ipc/counters.def"
#undef COUNTER
    ,
    /* NOLINTEND(bugprone-macro-parentheses) */
    FIRST_NODE = 0,
    FIRST_PIPELINE = FIRST_NODE + WORDS_NODE,
    FIRST_STAGE = FIRST_PIPELINE + WORDS_PIPELINE,
    FIRST_WORKER = FIRST_STAGE + WORDS_STAGE,
    FIRST_OLDEST = FIRST_WORKER + WORDS_WORKER,
};

#define COUNTER(scope, id, type, unit, help)                                                       \
    _Static_assert(AT_##scope##_##id >= FIRST_##scope &&                                           \
                       END_##scope##_##id < FIRST_##scope + WORDS_##scope,                         \
                   "counters.def: keep the " #scope " counters together");
#include "ipc/counters.def"
#undef COUNTER

const uint32_t counter_offset[COUNTER_TABLE_COUNT] = {
#define COUNTER(scope, id, type, unit, help) AT_##scope##_##id - FIRST_##scope,
#include "ipc/counters.def"
#undef COUNTER
};

static const uint32_t scope_words[SCOPE_COUNT] = {
    WORDS_NODE,
    WORDS_PIPELINE,
    WORDS_STAGE,
    WORDS_WORKER,
    WORDS_OLDEST,
    WORDS_STAGE > WORDS_WORKER ? WORDS_STAGE : WORDS_WORKER, /* spare: may become either */
};

/* ---- the table ---- */

/*
 * The printed name is the id in lower case, which the preprocessor cannot produce: converted once,
 * before main. The table itself is constant; its names point here.
 */
enum { NAME_ROOM = 32 };

static char names[COUNTER_TABLE_COUNT][NAME_ROOM] = {
#define COUNTER(scope, id, type, unit, help) #id,
#include "ipc/counters.def"
#undef COUNTER
};

#define COUNTER(scope, id, type, unit, help)                                                       \
    _Static_assert(sizeof(#id) <= NAME_ROOM, #id " is too long a name");
#include "ipc/counters.def"
#undef COUNTER

const struct counter_entry counter_table[COUNTER_TABLE_COUNT] = {
#define COUNTER(scope, id, type, unit, help)                                                       \
    {SCOPE_##scope, TYPE_##type, UNIT_##unit, names[scope##_##id], help},
#include "ipc/counters.def"
#undef COUNTER
};

__attribute__((constructor)) static void
lower_names(void)
{
    for (size_t i = 0; i < COUNTER_TABLE_COUNT; i++)
        for (char *c = names[i]; *c != '\0'; c++)
            if (*c >= 'A' && *c <= 'Z')
                *c = (char)(*c + ('a' - 'A'));
}

/* FNV-1a, of words and of texts. Not hash.h, which takes bytes: files in use keep their hash. */
static uint64_t
hash_word(uint64_t hash, uint64_t word)
{
    return (hash ^ word) * UINT64_C(0x100000001b3);
}

static uint64_t
hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++)
        hash = hash_word(hash, (unsigned char)*text);
    return hash_word(hash, 0);
}

/* Changes if a value moves or changes its meaning, but not with a help text. */
uint64_t
counters_table_hash(void)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = hash_word(hash, sizeof(struct counters_header));
    hash = hash_word(hash, sizeof(struct counters_scope));
    hash = hash_word(hash, HISTOGRAM_WORDS);
    for (size_t i = 0; i < COUNTER_TABLE_COUNT; i++) {
        const struct counter_entry *entry = &counter_table[i];
        hash = hash_word(hash, entry->scope);
        hash = hash_word(hash, entry->type);
        hash = hash_word(hash, entry->unit);
        hash = hash_word(hash, counter_offset[i]);
        hash = hash_text(hash, entry->name);
    }
    return hash;
}

/* ---- layout ---- */

enum { CACHE_LINE_BYTES = 64, SCOPES_MAX = 1 << 20 };

static uint64_t
round_to_page(uint64_t value)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
    return (value + page_bytes - 1) / page_bytes * page_bytes;
}

static uint64_t
scopes_end(uint32_t scope_count)
{
    return sizeof(struct counters_header) + (uint64_t)scope_count * sizeof(struct counters_scope);
}

/* Each scope's values have pages of their own, so that their writer can reach no others. */
static uint64_t
layout_scopes(const struct counters_spec *specs, struct counters_scope *scopes, uint32_t count)
{
    uint64_t offset = round_to_page(scopes_end(count));
    for (uint32_t i = 0; i < count; i++) {
        size_t length = strlen(specs[i].name);
        CHECK(specs[i].kind < SCOPE_COUNT && length < COUNTERS_NAME_BYTES);
        scopes[i] = (struct counters_scope){
            .kind = specs[i].kind, .parent = specs[i].parent, .values_offset = offset};
        memcpy(scopes[i].name, specs[i].name, length);
        offset += round_to_page(scope_words[specs[i].kind] * sizeof(uint64_t));
    }
    return offset;
}

static enum status
wrong(struct error *error, const char *what)
{
    return error_set(error, STATUS_DATA_LOSS, "counters: corrupt: %s", what);
}

static enum status
scope_validate(const struct counters_scope *scopes, uint32_t index, uint32_t count, uint64_t bytes,
               struct error *error)
{
    const struct counters_scope *scope = &scopes[index];
    if (scope->kind >= SCOPE_COUNT || (scope->kind == SCOPE_NODE) != (index == 0))
        return wrong(error, "a scope of the wrong kind");
    static const enum counter_scope parents[SCOPE_COUNT] = {[SCOPE_NODE] = SCOPE_NODE,
                                                            [SCOPE_PIPELINE] = SCOPE_NODE,
                                                            [SCOPE_STAGE] = SCOPE_PIPELINE,
                                                            [SCOPE_WORKER] = SCOPE_STAGE,
                                                            [SCOPE_OLDEST] = SCOPE_PIPELINE};
    bool spare = scope->kind == SCOPE_SPARE;
    bool before = scope->parent < index || (index == 0 && scope->parent == 0);
    if (!before || (!spare && scopes[scope->parent].kind != parents[scope->kind]))
        return wrong(error, "a scope with the wrong parent");
    size_t length = strnlen(scope->name, sizeof(scope->name));
    if (length == sizeof(scope->name))
        return wrong(error, "a scope's name without an end");
    for (size_t i = 0; i < length; i++)
        if (scope->name[i] <= 0x20 || scope->name[i] >= 0x7f)
            return wrong(error, "a scope's name that is not plain text");
    if (scope->values_offset % CACHE_LINE_BYTES != 0 || scope->values_offset < scopes_end(count) ||
        !range_ok(scope->values_offset, scope_words[scope->kind] * sizeof(uint64_t), bytes))
        return wrong(error, "a scope's values outside the file");
    return STATUS_OK;
}

static enum status
header_validate(const struct counters_header *header, uint64_t bytes, struct error *error)
{
    if (header->magic != COUNTERS_MAGIC)
        return error_set(error, STATUS_FAILED_PRECONDITION, "not a Shoal counters file");
    if (header->table_hash != counters_table_hash())
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "counters: file and program are of different builds (their tables hash to "
                         "%016llx and %016llx): use the shoalctl that came with the shoald",
                         (unsigned long long)header->table_hash,
                         (unsigned long long)counters_table_hash());
    if (header->file_bytes != bytes)
        return wrong(error, "the size differs from the header's");
    if (header->scope_count < 1 || scopes_end(header->scope_count) > bytes)
        return wrong(error, "more scopes than the file has room for");
    return STATUS_OK;
}

/* Readers load each word after the first count and before the second (acquire); the writer stores
 * it after the odd count and before the even one (release). */
union scope_words {
    struct counters_scope scope;
    uint64_t words[sizeof(struct counters_scope) / sizeof(uint64_t)];
};

_Static_assert(sizeof(union scope_words) == sizeof(struct counters_scope), "whole words");

static void
scope_load(struct counters_scope *copy, const struct counters_scope *shared)
{
    const _Atomic uint64_t *from = (const _Atomic uint64_t *)(const void *)shared;
    union scope_words to;
    for (size_t i = 0; i < ARRAY_COUNT(to.words); i++)
        to.words[i] = atomic_load_explicit(&from[i], memory_order_acquire);
    *copy = to.scope;
}

static void
scope_store(struct counters_scope *shared, const struct counters_scope *scope)
{
    _Atomic uint64_t *to = (_Atomic uint64_t *)(void *)shared;
    union scope_words from = {.scope = *scope};
    for (size_t i = 0; i < ARRAY_COUNT(from.words); i++)
        atomic_store_explicit(&to[i], from.words[i], memory_order_release);
}

/* Tries to copy while no change happens. A change takes less than a microsecond, but a file that
 * changes all the time must not block its reader. */
enum { COPY_LOOKS_MAX = 1000 };

static void
scopes_copy(struct counters *counters, uint32_t count)
{
    struct counters_header *header = counters->header;
    for (int look = 0; look < COPY_LOOKS_MAX; look++) {
        uint32_t before = atomic_load_explicit(&header->scope_changes, memory_order_acquire);
        for (uint32_t i = 0; i < count; i++)
            scope_load(&counters->scopes[i], &header->scopes[i]);
        counters->changes = before;
        if (before % 2 == 0 &&
            atomic_load_explicit(&header->scope_changes, memory_order_relaxed) == before)
            return;
        sched_yield(); /* the writer may have lost its CPU during the change */
    }
}

/* Copies first and validates the copy: the file may change between two looks. */
static enum status
view_validate(struct counters *counters, struct error *error)
{
    struct counters_header header;
    memcpy(&header, counters->base, sizeof(header));
    enum status status = header_validate(&header, counters->bytes, error);
    if (status != STATUS_OK)
        return status;
    counters->scopes = calloc(header.scope_count, sizeof(struct counters_scope));
    if (counters->scopes == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "counters: out of memory");
    scopes_copy(counters, header.scope_count);
    counters->scope_count = header.scope_count;
    for (uint32_t i = 0; i < header.scope_count && status == STATUS_OK; i++)
        status = scope_validate(counters->scopes, i, header.scope_count, counters->bytes, error);
    return status;
}

/* ---- the view ---- */

static const struct counters counters_empty = {.fd = -1, .lock_fd = -1};

static void
close_quietly(int fd)
{
    if (fd >= 0)
        close(fd);
}

static void
view_drop(struct counters *counters)
{
    if (counters->base != NULL)
        CHECK(munmap(counters->base, counters->bytes) == 0);
    free(counters->scopes);
    free(counters->claims);
    close_quietly(counters->fd);
    close_quietly(counters->lock_fd);
    *counters = counters_empty;
}

static enum status
view_map(struct counters *counters, int fd, int protection, struct error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set_errno(error, "counters: descriptor %d", fd);
    if (!S_ISREG(info.st_mode))
        return error_set(error, STATUS_FAILED_PRECONDITION, "not a Shoal counters file");
    if ((uint64_t)info.st_size < sizeof(struct counters_header))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%lld bytes are too few: not a counters file, or its node is starting",
                         (long long)info.st_size);
    void *base = mmap(NULL, (size_t)info.st_size, protection, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return error_set_errno(error, "mapping %lld bytes of counters", (long long)info.st_size);
    counters->base = base;
    counters->header = base;
    counters->bytes = (size_t)info.st_size;
    return STATUS_OK;
}

_Atomic uint64_t *
counters_values(const struct counters *counters, uint32_t scope)
{
    CHECK(scope < counters->scope_count);
    return (_Atomic uint64_t *)(void *)(counters->base + counters->scopes[scope].values_offset);
}

/* ---- the lock ---- */

static struct flock
whole_file_lock(void)
{
    return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET};
}

static pid_t
pid_in(int fd)
{
    struct counters_header header;
    bool whole = pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header);
    return whole && header.magic == COUNTERS_MAGIC ? header.pid : 0;
}

static enum status
lock_take(int fd, const char *path, struct error *error)
{
    struct flock lock = whole_file_lock();
    if (fcntl(fd, F_OFD_SETLK, &lock) == 0)
        return STATUS_OK;
    if (errno != EAGAIN && errno != EACCES)
        return error_set_errno(error, "locking %s", path);
    pid_t pid = pid_in(fd);
    if (pid == 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "another node is starting with %s: set `counters` to another path", path);
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "the node with pid %d has %s: stop it, or set `counters` to another path",
                     (int)pid, path);
}

/* Returns true if `path` still names the file that `fd` is. */
static bool
names_file(const char *path, int fd)
{
    struct stat named;
    struct stat open;
    return lstat(path, &named) == 0 && fstat(fd, &open) == 0 && named.st_dev == open.st_dev &&
           named.st_ino == open.st_ino;
}

/*
 * Locks the file that `path` names, creating it if necessary: the owner of the lock may replace the
 * file. A node that ends may remove the name meanwhile, so check afterwards that the path still
 * names the locked file.
 */
enum { NAME_LOOKS_MAX = 64 };

static enum status
name_lock(const char *path, int *out, struct error *error)
{
    for (int look = 0; look < NAME_LOOKS_MAX; look++) {
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
        if (fd < 0)
            return error_set_errno(error, "counters: %s", path);
        enum status status = lock_take(fd, path, error);
        if (status != STATUS_OK) {
            close(fd);
            return status;
        }
        if (names_file(path, fd)) {
            *out = fd;
            return STATUS_OK;
        }
        close(fd);
    }
    return error_set(error, STATUS_ABORTED, "counters: %s keeps being replaced", path);
}

/* A file that is not a counters file was named by mistake: do not replace it. */
static enum status
replaceable(int fd, const char *path, struct error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set_errno(error, "counters: %s", path);
    uint64_t magic = 0;
    bool ours = info.st_size == 0 ||
                (pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == COUNTERS_MAGIC);
    if (S_ISREG(info.st_mode) && ours)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "%s is not a counters file: move it away, or set `counters` to another path",
                     path);
}

/* In another user's folder the name could be given to another file at any time. */
static enum status
directory_make(const char *path, struct error *error)
{
    char directory[COUNTERS_PATH_BYTES_MAX + 1];
    const char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path)
        return STATUS_OK;
    snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    if (mkdir(directory, 0755) != 0 && errno != EEXIST)
        return error_set_errno(error, "counters: making the folder %s", directory);
    struct stat info;
    if (stat(directory, &info) != 0)
        return error_set_errno(error, "counters: %s", directory);
    if (geteuid() != 0 && info.st_uid != 0 && info.st_uid != geteuid())
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "the folder %s belongs to another user (uid %u): set `counters` to a path "
                         "in one of yours",
                         directory, (unsigned)info.st_uid);
    return STATUS_OK;
}

/* ---- creating ---- */

static void
header_write(struct counters *counters)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    struct counters_header *header = counters->header;
    memcpy(header->scopes, counters->scopes, counters->scope_count * sizeof(*counters->scopes));
    header->table_hash = counters_table_hash();
    header->file_bytes = counters->bytes;
    header->scope_count = counters->scope_count;
    header->started_unix_ns = now.tv_sec * NS_PER_S + now.tv_nsec;
    header->pid = (int32_t)getpid();
    atomic_store_explicit(&header->state, NODE_STARTING, memory_order_relaxed);
    atomic_store_explicit(&header->heartbeat_ns, clock_now_ns(), memory_order_relaxed);
    header->magic = COUNTERS_MAGIC;
}

/* Lays out, allocates, maps and fills the file behind lock_fd. */
static enum status
file_fill(struct counters *counters, const struct counters_spec *specs, uint32_t count,
          struct error *error)
{
    counters->scopes = calloc(count, sizeof(*counters->scopes));
    counters->claims = calloc(count, sizeof(*counters->claims));
    if (counters->scopes == NULL || counters->claims == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "counters: out of memory");
    counters->scope_count = count;
    uint64_t bytes = layout_scopes(specs, counters->scopes, count);
    for (uint32_t i = 0; i < count; i++)
        CHECK(scope_validate(counters->scopes, i, count, bytes, error) == STATUS_OK);
    /* allocate: on a full file system a mere size would later fail with SIGBUS */
    int failed = posix_fallocate(counters->lock_fd, 0, (off_t)bytes);
    if (failed != 0) {
        errno = failed;
        return error_set_errno(error, "allocating %llu bytes of counters",
                               (unsigned long long)bytes);
    }
    enum status status = view_map(counters, counters->lock_fd, PROT_READ | PROT_WRITE, error);
    if (status == STATUS_OK)
        header_write(counters);
    return status;
}

enum { FRESH_BYTES = COUNTERS_PATH_BYTES_MAX + sizeof(".new") };

static void
fresh_name(char fresh[FRESH_BYTES], const char *path)
{
    snprintf(fresh, FRESH_BYTES, "%s.new", path);
}

/* Creates the new file under another name, complete before it gets its own. */
static enum status
file_make(struct counters *counters, const char *path, const struct counters_spec *specs,
          uint32_t count, struct error *error)
{
    char fresh[FRESH_BYTES];
    fresh_name(fresh, path);
    unlink(fresh); /* left by a process that was killed here; the owner of the name's lock may
                    * remove it */
    counters->lock_fd = open(fresh, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (counters->lock_fd < 0)
        return error_set_errno(error, "counters: %s", fresh);
    enum status status = lock_take(counters->lock_fd, fresh, error);
    if (status == STATUS_OK && fchmod(counters->lock_fd, 0644) != 0)
        status = error_set_errno(error, "counters: %s", fresh);
    if (status == STATUS_OK)
        status = file_fill(counters, specs, count, error);
    if (status == STATUS_OK) {
        /* opened again: a worker that keeps this descriptor open does not keep the lock */
        counters->fd = open(fresh, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (counters->fd < 0 || (!counters->is_beside && rename(fresh, path) != 0))
            status = error_set_errno(error, "counters: %s", path);
    }
    if (status != STATUS_OK)
        unlink(fresh);
    return status;
}

/* Returns whether the lock on that path is held by this process. */
static bool
is_owned_by(const char *path, int owner)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct flock lock = whole_file_lock();
    bool is_owned = fd >= 0 && fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK &&
                    pid_in(fd) == owner;
    close_quietly(fd);
    return is_owned;
}

enum status
counters_create(struct counters *counters, const char *path, const struct counters_spec *scopes,
                uint32_t scope_count, struct error *error)
{
    return counters_create_beside(counters, path, 0, scopes, scope_count, error);
}

enum status
counters_create_beside(struct counters *counters, const char *path, int owner,
                       const struct counters_spec *scopes, uint32_t scope_count,
                       struct error *error)
{
    CHECK(scope_count >= 1 && scope_count <= SCOPES_MAX);
    *counters = counters_empty;
    if (strlen(path) > COUNTERS_PATH_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "counters: a path of %zu bytes: must be at most %d", strlen(path),
                         COUNTERS_PATH_BYTES_MAX);
    int name_fd = -1;
    enum status status = directory_make(path, error);
    counters->is_beside = status == STATUS_OK && owner != 0 && is_owned_by(path, owner);
    if (status == STATUS_OK && !counters->is_beside)
        status = name_lock(path, &name_fd, error);
    if (status == STATUS_OK && !counters->is_beside)
        status = replaceable(name_fd, path, error);
    if (status == STATUS_OK)
        status = file_make(counters, path, scopes, scope_count, error);
    if (status == STATUS_OK)
        snprintf(counters->path, sizeof(counters->path), "%s", path);
    else
        view_drop(counters);
    close_quietly(name_fd);
    return status;
}

enum status
counters_take_name(struct counters *counters, enum counters_owner owner, struct error *error)
{
    char fresh[FRESH_BYTES];
    int name_fd = -1;
    enum status status = STATUS_OK;
    if (!counters->is_beside)
        return STATUS_OK;
    fresh_name(fresh, counters->path);
    if (owner == COUNTERS_OWNER_DEAD)
        status = name_lock(counters->path, &name_fd, error);
    if (status == STATUS_OK && !names_file(fresh, counters->lock_fd))
        status = error_set(error, STATUS_FAILED_PRECONDITION,
                           "counters: %s is gone: another node has started there", fresh);
    if (status == STATUS_OK && rename(fresh, counters->path) != 0)
        status = error_set_errno(error, "counters: %s", counters->path);
    counters->is_beside = status != STATUS_OK;
    close_quietly(name_fd);
    return status;
}

void
counters_remove_beside(const struct counters *counters)
{
    char fresh[FRESH_BYTES];
    fresh_name(fresh, counters->path);
    unlink(fresh);
}

/* ---- claiming ---- */

/*
 * The creator's own copy keeps a scope's identity, `kind` included; the file shows a hidden scope
 * as spare.
 */
static void
scope_show(struct counters *counters, uint32_t scope, bool seen)
{
    struct counters_header *header = counters->header;
    struct counters_scope shown = counters->scopes[scope];
    if (!seen)
        shown.kind = SCOPE_SPARE;
    uint32_t changes = atomic_load_explicit(&header->scope_changes, memory_order_relaxed) & ~1u;
    atomic_store_explicit(&header->scope_changes, changes + 1, memory_order_relaxed);
    scope_store(&header->scopes[scope], &shown);
    atomic_store_explicit(&header->scope_changes, changes + 2, memory_order_release);
}

static bool
scope_is(const struct counters_scope *scope, enum counter_scope kind, uint32_t parent,
         const char *name)
{
    return scope->kind == kind && scope->parent == parent && strcmp(scope->name, name) == 0;
}

/*
 * Returns the scope to claim, or `scope_count`: the one of that name, else a spare one, else an
 * unclaimed one, whose values are lost.
 */
static uint32_t
scope_choose(const struct counters *counters, enum counter_scope kind, uint32_t parent,
             const char *name)
{
    uint32_t spare = counters->scope_count;
    uint32_t stale = counters->scope_count;
    for (uint32_t i = counters->scope_count - 1; i > parent; i--) {
        const struct counters_scope *scope = &counters->scopes[i];
        bool free = counters->claims[i] == 0;
        if (scope_is(scope, kind, parent, name) && (kind == SCOPE_STAGE || free))
            return i;
        if (scope->kind == SCOPE_SPARE)
            spare = i;
        else if (scope->kind == (uint32_t)kind && free)
            stale = i;
    }
    return spare < counters->scope_count ? spare : stale;
}

enum status
counters_claim(struct counters *counters, enum counter_scope kind, uint32_t parent,
               const char *name, uint32_t *claimed, struct error *error)
{
    CHECK((kind == SCOPE_STAGE || kind == SCOPE_WORKER) && strlen(name) < COUNTERS_NAME_BYTES);
    CHECK(parent < counters->scope_count && counters->scopes[parent].kind + 1 == kind);
    uint32_t index = scope_choose(counters, kind, parent, name);
    if (index == counters->scope_count)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the counters file has no room left for \"%s\": only a restart of shoald "
                         "makes a larger one",
                         name);
    struct counters_scope *scope = &counters->scopes[index];
    if (!scope_is(scope, kind, parent, name)) /* it may have been another's */
        memset((char *)counters->base + scope->values_offset, 0,
               scope_words[kind] * sizeof(uint64_t));
    scope->kind = kind;
    scope->parent = parent;
    snprintf(scope->name, sizeof(scope->name), "%s", name);
    counters->claims[index]++;
    scope_show(counters, index, true);
    *claimed = index;
    return STATUS_OK;
}

void
counters_release(struct counters *counters, uint32_t scope)
{
    CHECK(scope < counters->scope_count && counters->claims[scope] > 0);
    if (--counters->claims[scope] > 0 || counters->scopes[scope].kind != SCOPE_STAGE)
        return;
    /* the workers first: none is visible without its stage */
    for (uint32_t i = scope + 1; i < counters->scope_count; i++)
        if (counters->scopes[i].kind == SCOPE_WORKER && counters->scopes[i].parent == scope)
            scope_show(counters, i, false);
    scope_show(counters, scope, false);
}

/* ---- the other ends ---- */

enum status
counters_attach(struct counters *counters, int fd, uint64_t values_offset, struct error *error)
{
    *counters = counters_empty;
    struct stat info;
    size_t bytes = round_to_page(scope_words[SCOPE_WORKER] * sizeof(uint64_t));
    if (fstat(fd, &info) != 0)
        return error_set_errno(error, "counters: descriptor %d", fd);
    if (!S_ISREG(info.st_mode) || values_offset != round_to_page(values_offset) ||
        values_offset == 0 || !range_ok(values_offset, bytes, (uint64_t)info.st_size))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "counters: no values of a worker at %llu of a file of %lld bytes",
                         (unsigned long long)values_offset, (long long)info.st_size);
    counters->scopes = calloc(1, sizeof(*counters->scopes));
    if (counters->scopes == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "counters: out of memory");
    counters->scopes[0].kind = SCOPE_WORKER;
    counters->scope_count = 1;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)values_offset);
    if (base == MAP_FAILED) {
        view_drop(counters);
        return error_set_errno(error, "mapping %zu bytes of counters", bytes);
    }
    counters->base = base;
    counters->bytes = bytes;
    close(fd);
    return STATUS_OK;
}

enum status
counters_open(struct counters *counters, const char *path, bool *live, struct error *error)
{
    *counters = counters_empty;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_set_errno(error, "%s", path);
    enum status status = view_map(counters, fd, PROT_READ, error);
    if (status == STATUS_OK)
        status = view_validate(counters, error);
    struct flock lock = whole_file_lock();
    if (status == STATUS_OK && fcntl(fd, F_OFD_GETLK, &lock) != 0)
        status = error_set_errno(error, "querying the lock");
    close(fd);
    if (status != STATUS_OK) {
        view_drop(counters);
        return error_prefix(error, "%s", path);
    }
    *live = lock.l_type != F_UNLCK;
    return STATUS_OK;
}

bool
counters_unchanged(const struct counters *counters)
{
    atomic_thread_fence(memory_order_acquire); /* orders the earlier reads of the file before the
                                                * load below */
    return atomic_load_explicit(&counters->header->scope_changes, memory_order_relaxed) ==
           counters->changes;
}

void
counters_close(struct counters *counters)
{
    char fresh[FRESH_BYTES];
    fresh_name(fresh, counters->path);
    const char *path = counters->is_beside ? fresh : counters->path;
    if (counters->lock_fd >= 0 && names_file(path, counters->lock_fd))
        unlink(path);
    view_drop(counters);
}

void
counters_default_path(char *path, size_t room)
{
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (geteuid() == 0)
        snprintf(path, room, COUNTERS_PATH_SERVICE);
    else if (runtime != NULL && runtime[0] == '/')
        snprintf(path, room, "%s/shoal/counters", runtime);
    else
        snprintf(path, room, "/tmp/shoal-%u/counters", (unsigned)geteuid());
}
