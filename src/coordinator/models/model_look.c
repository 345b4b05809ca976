/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_look.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/hash.h"
#include "coordinator/models/runtime_request.h"
#include "wire/wire.h"

/* The part of a name that is the model's id. Not 0: names do not begin with ".". */
static size_t
id_bytes(const char *name, enum look_kind kind)
{
    const char *ending = kind == LOOK_FILE ? strrchr(name, '.') : NULL;
    return ending == NULL ? strlen(name) : (size_t)(ending - name);
}

void
look_id(const char *name, enum look_kind kind, char id[SHOAL_NAME_BYTES_MAX + 1])
{
    snprintf(id, SHOAL_NAME_BYTES_MAX + 1, "%.*s", (int)id_bytes(name, kind), name);
}

static enum status
check_name(const char *name, enum look_kind kind, struct error *error)
{
    size_t bytes = id_bytes(name, kind);
    if (bytes > SHOAL_NAME_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "its name has %zu bytes, a model's id at most %d", bytes,
                         SHOAL_NAME_BYTES_MAX);
    if (!wire_text_ok((const unsigned char *)name, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT, "its name is not UTF-8");
    return STATUS_OK;
}

static int
open_beneath(int root_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
}

/* ---- the version ---- */

struct tally {
    uint64_t sum;      /* sum of the entries' hashes, so their order does not count */
    int64_t newest_ns; /* time of change */
    uint32_t count;
};

static int64_t
changed_ns(const struct stat *stat)
{
    return stat->st_mtim.tv_sec * NS_PER_S + stat->st_mtim.tv_nsec;
}

static void
tally_entry(struct tally *tally, int directory_fd, const char *name)
{
    struct stat stat;
    if (fstatat(directory_fd, name, &stat, 0) != 0 &&
        fstatat(directory_fd, name, &stat, AT_SYMLINK_NOFOLLOW) != 0)
        return; /* gone again */
    const uint64_t facts[] = {stat.st_dev, stat.st_ino, (uint64_t)stat.st_size,
                              (uint64_t)changed_ns(&stat)};
    uint64_t seed = hash_fnv1a(HASH_FNV1A_SEED, name, strlen(name));
    tally->sum += hash_fnv1a(seed, facts, sizeof(facts));
    tally->count++;
    if (changed_ns(&stat) > tally->newest_ns)
        tally->newest_ns = changed_ns(&stat);
}

int
look_compare_releases(const char *a, const char *b)
{
    size_t a_bytes = strlen(a);
    size_t b_bytes = strlen(b);
    return a_bytes != b_bytes ? (a_bytes < b_bytes ? -1 : 1) : strcmp(a, b);
}

/* Notes a name that is a sidecar's or a release's; of too many releases the lowest is dropped. */
static void
note_name(struct model_look *look, const char *name)
{
    for (int kind = 0; kind < SIDECAR_KINDS; kind++)
        look->has_sidecar[kind] = look->has_sidecar[kind] || strcmp(name, sidecar_files[kind]) == 0;
    size_t bytes = strlen(name);
    if (name[0] == '0' || bytes >= LOOK_RELEASE_BYTES || strspn(name, "0123456789") != bytes)
        return;
    uint32_t at = 0;
    while (at < look->release_count && look_compare_releases(look->releases[at].number, name) > 0)
        at++;
    if (at == LOOK_RELEASES_MAX)
        return;
    if (look->release_count < LOOK_RELEASES_MAX)
        look->release_count++;
    memmove(&look->releases[at + 1], &look->releases[at],
            (look->release_count - 1 - at) * sizeof(look->releases[0]));
    memcpy(look->releases[at].number, name, bytes + 1);
}

/* Returns 0, or -1 with errno. Not opendir, which would allocate for each of thousands. `look`
 * NULL: releases do not matter. */
static int
tally_directory(struct tally *tally, int fd, struct model_look *look)
{
    _Alignas(struct dirent64) char room[4096];
    ssize_t bytes;
    while ((bytes = getdents64(fd, room, sizeof(room))) > 0)
        for (ssize_t at = 0; at < bytes;) {
            const struct dirent64 *entry = (const struct dirent64 *)(const void *)(room + at);
            at += entry->d_reclen;
            if (entry->d_name[0] == '.')
                continue;
            if (tally->count == LOOK_FILES_MAX)
                return 0;
            tally_entry(tally, fd, entry->d_name);
            if (look != NULL)
                note_name(look, entry->d_name);
        }
    return bytes < 0 ? -1 : 0;
}

/* A time far in the future comes from another machine's clock and means nothing. */
static enum look_result
judge_age(int64_t now_unix_ns, int64_t newest_ns)
{
    int64_t age_ns = now_unix_ns - newest_ns;
    return now_unix_ns != 0 && age_ns < LOOK_SETTLED_NS && age_ns > -LOOK_SETTLED_NS
               ? LOOK_UNSETTLED
               : LOOK_MODEL;
}

static enum look_result
read_version(int fd, int64_t now_unix_ns, uint64_t *version, struct model_look *look,
             struct error *error)
{
    struct stat stat;
    struct tally tally = {.sum = 0};
    if (fstat(fd, &stat) != 0 || tally_directory(&tally, fd, look) != 0) {
        if (errno == ENOENT) /* removed after it was opened */
            return LOOK_NO_MODEL;
        error_set_errno(error, "reading it");
        return LOOK_UNSURE;
    }
    /* The time of its directory reveals a new file that is still empty. */
    if (changed_ns(&stat) > tally.newest_ns)
        tally.newest_ns = changed_ns(&stat);
    *version = hash_fnv1a(tally.sum, &stat.st_dev, sizeof(stat.st_dev));
    return tally.count == 0 && look == NULL ? LOOK_NO_MODEL
                                            : judge_age(now_unix_ns, tally.newest_ns);
}

/* LOOK_NO_MODEL: no directory, or an empty one. */
static enum look_result
read_release(int root_fd, const char *name, int64_t now_unix_ns, struct look_release *release,
             struct error *error)
{
    char path[SHOAL_NAME_BYTES_MAX + 1 + LOOK_RELEASE_BYTES];
    snprintf(path, sizeof(path), "%s/%s", name, release->number);
    int fd = open_beneath(root_fd, path, O_DIRECTORY);
    if (fd < 0)
        return errno == EAGAIN ? LOOK_UNSETTLED : LOOK_NO_MODEL;
    enum look_result result = read_version(fd, now_unix_ns, &release->version, NULL, error);
    close(fd);
    return result;
}

static enum look_result
read_releases(int root_fd, const char *name, int64_t now_unix_ns, struct model_look *look,
              struct error *error)
{
    uint32_t count = 0;
    if (look->release_count > 0 && look_for_format(root_fd, name) != NULL)
        look->release_count = 0;
    for (uint32_t i = 0; i < look->release_count; i++) {
        struct look_release *release = &look->releases[i];
        enum look_result result = read_release(root_fd, name, now_unix_ns, release, error);
        if (result == LOOK_NO_MODEL)
            continue;
        if (result != LOOK_MODEL)
            return result;
        look->version = hash_fnv1a(look->version, &release->version, sizeof(release->version));
        look->releases[count++] = *release;
    }
    look->release_count = count;
    return LOOK_MODEL;
}

/* ---- the key ---- */

static enum status
check_key(const char *key, size_t bytes, struct error *error)
{
    json_error_t mistake;
    json_t *json = json_loadb(key, bytes, JSON_REJECT_DUPLICATES, &mistake);
    bool object = json_is_object(json);
    bool read = json != NULL;
    json_decref(json);
    if (!read)
        return error_set(error, STATUS_INVALID_ARGUMENT, LOOK_KEY_NAME ": line %d: %s",
                         mistake.line, mistake.text);
    if (!object)
        return error_set(error, STATUS_INVALID_ARGUMENT, LOOK_KEY_NAME ": not a JSON object");
    if (memchr(key, '\0', bytes) != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, LOOK_KEY_NAME ": has a zero byte");
    return STATUS_OK;
}

static enum status
read_key_of(int fd, char *key, struct error *error)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return error_set_errno(error, LOOK_KEY_NAME);
    if (!S_ISREG(stat.st_mode))
        return error_set(error, STATUS_INVALID_ARGUMENT, LOOK_KEY_NAME ": not a regular file");
    size_t used = 0;
    ssize_t bytes;
    while (used <= LOOK_KEY_BYTES_MAX &&
           (bytes = read(fd, key + used, LOOK_KEY_BYTES_MAX + 1 - used)) != 0) {
        if (bytes < 0)
            return error_set_errno(error, LOOK_KEY_NAME);
        used += (size_t)bytes;
    }
    if (used > LOOK_KEY_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, LOOK_KEY_NAME ": more than %d bytes",
                         LOOK_KEY_BYTES_MAX);
    key[used] = '\0';
    return check_key(key, used, error);
}

/* It may have been truncated for rewriting after its directory was looked at. Judged by the time of
 * the inode's change, which nobody can set. */
static bool
is_being_written(int fd, int64_t now_unix_ns)
{
    struct stat stat;
    if (now_unix_ns == 0 || fstat(fd, &stat) != 0)
        return false;
    int64_t age_ns = now_unix_ns - (stat.st_ctim.tv_sec * NS_PER_S + stat.st_ctim.tv_nsec);
    return age_ns < LOOK_SETTLED_NS && age_ns > -LOOK_SETTLED_NS;
}

static enum look_result
read_key(int root_fd, const char *name, int64_t now_unix_ns, char *key, struct error *error)
{
    char path[SHOAL_NAME_BYTES_MAX + sizeof("/" LOOK_KEY_NAME)];
    snprintf(path, sizeof(path), "%s/" LOOK_KEY_NAME, name);
    int fd = open_beneath(root_fd, path, 0);
    key[0] = '\0';
    if (fd < 0 && errno == ENOENT)
        return LOOK_MODEL;
    if (fd < 0 && errno == EAGAIN) /* a link that goes upwards, while something was renamed */
        return LOOK_UNSETTLED;
    if (fd < 0) {
        error_set_errno(error, LOOK_KEY_NAME);
        return LOOK_UNFIT;
    }
    enum look_result result = LOOK_MODEL;
    struct error unfit = ERROR_NONE;
    if (read_key_of(fd, key, &unfit) != STATUS_OK)
        result = is_being_written(fd, now_unix_ns) ? LOOK_UNSETTLED : LOOK_UNFIT;
    if (result == LOOK_UNFIT)
        *error = unfit;
    close(fd);
    return result;
}

/* ---- the format ---- */

static bool
is_regular(int fd)
{
    struct stat stat;
    return fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode);
}

const struct model_format *
look_at_format(int fd)
{
    unsigned char room[FORMAT_BYTES];
    ssize_t bytes = is_regular(fd) ? read(fd, room, sizeof(room)) : -1;
    return bytes <= 0 ? NULL : model_format_of(room, (size_t)bytes);
}

struct formats_seen {
    const struct model_format *preferred; /* of `model` with any ending */
    const struct model_format *one;
    uint32_t count;
    bool differ;
};

static void
see_format(struct formats_seen *seen, int fd, const char *name)
{
    if (name[0] == '.' || strcmp(name, LOOK_KEY_NAME) == 0 || seen->count++ == LOOK_FILES_MAX)
        return;
    int file_fd = open_beneath(fd, name, 0);
    const struct model_format *format = file_fd >= 0 ? look_at_format(file_fd) : NULL;
    if (file_fd >= 0)
        close(file_fd);
    if (format == NULL)
        return;
    if (strncmp(name, "model.", sizeof("model.") - 1) == 0)
        seen->preferred = format;
    seen->differ = seen->differ || (seen->one != NULL && seen->one != format);
    seen->one = format;
}

const struct model_format *
look_for_format(int root_fd, const char *name)
{
    struct formats_seen seen = {.count = 0};
    int fd = open_beneath(root_fd, name, O_DIRECTORY);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (stream == NULL) {
        if (fd >= 0)
            close(fd);
        return NULL;
    }
    const struct dirent *entry;
    while ((entry = readdir(stream)) != NULL && seen.count <= LOOK_FILES_MAX)
        see_format(&seen, fd, entry->d_name);
    closedir(stream);
    if (seen.preferred != NULL)
        return seen.preferred;
    return seen.differ ? NULL : seen.one;
}

const struct model_format *
look_for_format_of(int root_fd, const char *name, const struct model_look *look)
{
    const struct model_format *format = NULL;
    char path[SHOAL_NAME_BYTES_MAX + 1 + LOOK_RELEASE_BYTES];
    if (look->release_count == 0)
        return look_for_format(root_fd, name);
    for (uint32_t i = 0; i < look->release_count && format == NULL; i++) {
        snprintf(path, sizeof(path), "%.127s/%s", name, look->releases[i].number);
        format = look_for_format(root_fd, path);
    }
    return format;
}

/* ---- sidecars ---- */

typedef enum status sidecar_reader(struct sidecar *sidecar, const char *id, const char *text,
                                   size_t bytes, struct error *error);

/* `text` has room for one byte more than a sidecar may have. */
static enum status
read_sidecar_of(int fd, char *text, size_t *used, struct error *error)
{
    ssize_t bytes = 0;
    if (!is_regular(fd))
        return error_set(error, STATUS_INVALID_ARGUMENT, "not a regular file");
    *used = 0;
    while (*used <= SIDECAR_BYTES_MAX &&
           (bytes = read(fd, text + *used, SIDECAR_BYTES_MAX + 1 - *used)) > 0)
        *used += (size_t)bytes;
    if (bytes < 0)
        return error_set_errno(error, "reading it");
    return *used > SIDECAR_BYTES_MAX
               ? error_set(error, STATUS_INVALID_ARGUMENT, "more than %d bytes", SIDECAR_BYTES_MAX)
               : STATUS_OK;
}

static enum look_result
read_sidecar(int fd, const char *id, enum sidecar_kind kind, struct sidecar *sidecar,
             struct error *error)
{
    static sidecar_reader *const readers[] = {sidecar_read_triton, sidecar_read_mlserver};
    size_t used = 0;
    char *text = malloc(SIDECAR_BYTES_MAX + 1);
    CHECK(text != NULL);
    enum status status = read_sidecar_of(fd, text, &used, error);
    if (status != STATUS_OK)
        error_prefix(error, "%s", sidecar_files[kind]);
    else
        status = readers[kind](sidecar, id, text, used, error);
    free(text);
    return status == STATUS_OK ? LOOK_MODEL : LOOK_UNFIT;
}

static enum look_result
open_sidecar(int root_fd, const char *name, enum sidecar_kind kind, struct model_look *look,
             struct error *error)
{
    char path[SHOAL_NAME_BYTES_MAX + 32];
    snprintf(path, sizeof(path), "%s/%s", name, sidecar_files[kind]);
    int fd = open_beneath(root_fd, path, 0);
    if (fd < 0 && errno == ENOENT)
        return LOOK_MODEL;
    if (fd < 0 && errno == EAGAIN) /* as in read_key */
        return LOOK_UNSETTLED;
    if (fd < 0) {
        error_set_errno(error, "%s", sidecar_files[kind]);
        return LOOK_UNFIT;
    }
    enum look_result result =
        read_sidecar(fd, look->id != NULL ? look->id : name, kind, &look->sidecar, error);
    close(fd);
    return result;
}

static enum look_result
read_sidecars(int root_fd, const char *name, struct model_look *look, struct error *error)
{
    enum look_result result = LOOK_MODEL;
    for (enum sidecar_kind kind = 0; kind < SIDECAR_KINDS && result == LOOK_MODEL; kind++)
        if (look->has_sidecar[kind])
            result = open_sidecar(root_fd, name, kind, look, error);
    if (look->sidecar.format == NULL || result != LOOK_MODEL)
        return result;
    const struct model_format *format = look_for_format_of(root_fd, name, look);
    return sidecar_check_format(&look->sidecar, format, error) == STATUS_OK ? LOOK_MODEL
                                                                            : LOOK_UNFIT;
}

/* ---- the whole ---- */

static enum look_result
could_not_open(struct error *error)
{
    switch (errno) {
    case ENOENT:
    case ENOTDIR: return LOOK_NO_MODEL;
    case EAGAIN: return LOOK_UNSETTLED; /* as in read_key */
    case EXDEV:
        error_set(error, STATUS_INVALID_ARGUMENT, "it is a link that leads out of the root");
        return LOOK_UNFIT;
    case ELOOP:
    case EACCES: error_set_errno(error, "opening it"); return LOOK_UNFIT;
    default: error_set_errno(error, "opening it"); return LOOK_UNSURE;
    }
}

static enum look_result
look_at_directory(int root_fd, int fd, const char *name, int64_t now_unix_ns,
                  struct model_look *look, struct error *error)
{
    if (check_name(name, look->kind, error) != STATUS_OK)
        return LOOK_UNFIT;
    enum look_result result = read_version(fd, now_unix_ns, &look->version, look, error);
    if (result == LOOK_MODEL)
        result = read_releases(root_fd, name, now_unix_ns, look, error);
    if (result == LOOK_MODEL)
        result = read_key(root_fd, name, now_unix_ns, look->key, error);
    if (result == LOOK_MODEL)
        result = read_sidecars(root_fd, name, look, error);
    if (result == LOOK_MODEL)
        runtime_key_type(look->key, look->type);
    return result;
}

static enum look_result
look_at_file(int root_fd, int fd, const char *name, int64_t now_unix_ns, struct model_look *look,
             struct error *error)
{
    struct tally tally = {.sum = 0};
    look->key[0] = '\0';
    const struct model_format *format = look_at_format(fd);
    tally_entry(&tally, root_fd, name);
    look->version = tally.sum;
    if (judge_age(now_unix_ns, tally.newest_ns) != LOOK_MODEL)
        return LOOK_UNSETTLED;
    if (format == NULL) {
        error_set(error, STATUS_INVALID_ARGUMENT,
                  "its content is not of a known format (XGBoost's JSON or UBJSON, ONNX, mlp)");
        return is_regular(fd) && model_format_name(name) == FORMAT_NAME_MODEL ? LOOK_UNFIT
                                                                              : LOOK_FOREIGN;
    }
    if (check_name(name, look->kind, error) != STATUS_OK)
        return LOOK_UNFIT;
    snprintf(look->type, sizeof(look->type), "%s", format->name);
    return LOOK_MODEL;
}

enum look_result
look_at_model(int root_fd, const char *name, int64_t now_unix_ns, struct model_look *look,
              struct error *error)
{
    look->type[0] = '\0';
    look->release_count = 0;
    look->sidecar = (struct sidecar){.format = NULL};
    memset(look->has_sidecar, 0, sizeof(look->has_sidecar));
    bool is_file = false;
    int fd = open_beneath(root_fd, name, O_DIRECTORY);
    if (fd < 0 && errno == ENOTDIR) {
        is_file = true;
        fd = open_beneath(root_fd, name, 0);
    }
    if (fd < 0)
        return could_not_open(error);
    look->kind = is_file ? LOOK_FILE : LOOK_DIRECTORY;
    enum look_result result =
        (is_file ? look_at_file : look_at_directory)(root_fd, fd, name, now_unix_ns, look, error);
    close(fd);
    return result;
}
