/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rules for when content is durable:
 *
 *   1. A frame is written after the last one, then fdatasync, and only then reported. If the write
 *      fails, the file is truncated to its former size. If that or the fdatasync fails, the content
 *      after a crash is unknown (the kernel forgets a page that it could not write and reports
 *      success the next time): the file is broken and rewritten from memory before anything is
 *      reported.
 *   2. A rewrite uses another name, fsync, rename over the old file, fsync of the folder. A crash
 *      leaves the old file or the new one; a leftover is overwritten.
 *   3. A new file is created the same way, so a file without a head never has the final name.
 *   4. One process at a time: a lock on a separate file, because the file itself is replaced.
 */
#include "mesh/store/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "mesh/store/frame.h"
#include "mesh/store/table.h"

enum {
    LONG_TIMES = 2, /* its content */
    LONG_BYTES_MIN = 1 << 20,
    REWRITE_FRAME_BYTES = 1 << 20,
    FRAME_BYTES_KEPT = 1 << 20, /* memory kept from one commit to the next */
};

struct journal {
    char *path;
    char *path_new;
    int fd;
    int lock_fd;
    off_t size;     /* up to which it is complete */
    off_t long_min; /* shorter files are not rewritten */
    struct bytes frame;
    bool broken;
};

/* ---- files ---- */

static char *
path_with(const char *path, const char *suffix)
{
    char *made;
    CHECK(asprintf(&made, "%s%s", path, suffix) >= 0);
    return made;
}

/* False: see errno; a part may have been written. */
static bool
write_all(int fd, const char *data, size_t bytes, off_t at)
{
    while (bytes > 0) {
        ssize_t written = pwrite(fd, data, bytes, at);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        data += written;
        bytes -= (size_t)written;
        at += written;
    }
    return true;
}

/* Makes a name in the folder durable. */
static bool
sync_folder(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash == NULL ? strdup(".") : strndup(path, (size_t)(slash - path) + 1);
    CHECK(folder != NULL);
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(folder);
    bool done = fd >= 0 && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return done;
}

static enum status
lock(struct journal *journal, struct error *error)
{
    char *path = path_with(journal->path, ".lock");
    journal->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (journal->lock_fd < 0)
        error_set_errno(error, "%s", path);
    else if (flock(journal->lock_fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        error_set(error, STATUS_UNAVAILABLE,
                  "%s: another process uses it; a registry file belongs to one node",
                  journal->path);
    free(path);
    return error->status;
}

/* ---- writing anew ---- */

struct rewrite {
    int fd;
    off_t size;
    struct bytes frame;
    bool failed;
};

static void
rewrite_flush(struct rewrite *rewrite)
{
    if (rewrite->frame.used == 0)
        return;
    if (rewrite->size > 0)
        frame_close(&rewrite->frame, 0);
    if (!write_all(rewrite->fd, rewrite->frame.data, rewrite->frame.used, rewrite->size))
        rewrite->failed = true;
    rewrite->size += (off_t)rewrite->frame.used;
    rewrite->frame.used = 0;
}

static void
rewrite_entry(struct rewrite *rewrite, enum frame_kind kind, const struct store_record *record)
{
    if (rewrite->failed)
        return;
    if (rewrite->frame.used == 0)
        frame_open(&rewrite->frame);
    frame_entry_put(&rewrite->frame, kind, record);
    if (rewrite->frame.used >= REWRITE_FRAME_BYTES)
        rewrite_flush(rewrite);
}

static void
rewrite_record(void *context, const struct store_record *record)
{
    if (record->table != STORE_INSTANCES) /* they end with the process */
        rewrite_entry(context, FRAME_PUT, record);
}

static bool
rewrite_all(struct rewrite *rewrite, const struct record_table *table, uint64_t revision)
{
    const struct store_record mark = {.id = "", .revision = revision};
    frame_file_put(&rewrite->frame);
    rewrite_flush(rewrite);
    rewrite_entry(rewrite, FRAME_REVISION, &mark);
    table_walk(table, rewrite_record, rewrite);
    if (!rewrite->failed)
        rewrite_flush(rewrite);
    return !rewrite->failed && fsync(rewrite->fd) == 0;
}

enum status
journal_rewrite(struct journal *journal, const struct record_table *table, uint64_t revision,
                struct error *error)
{
    struct rewrite rewrite = {0};
    journal->long_min = 2 * journal->size; /* after a failure, not again at each frame */
    rewrite.fd = open(journal->path_new, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (rewrite.fd < 0)
        return error_set_errno(error, "%s", journal->path_new);
    bool written = rewrite_all(&rewrite, table, revision);
    bytes_fini(&rewrite.frame);
    if (!written || rename(journal->path_new, journal->path) != 0) {
        error_set_errno(error, "%s", journal->path_new);
        unlink(journal->path_new);
        close(rewrite.fd);
        return error->status;
    }
    if (journal->fd >= 0)
        close(journal->fd);
    journal->fd = rewrite.fd;
    journal->size = rewrite.size;
    journal->long_min = LONG_BYTES_MIN;
    /* Renamed, but perhaps not durably: later frames would be in a file that a crash may remove. */
    journal->broken = !sync_folder(journal->path);
    if (journal->broken)
        return error_set_errno(error, "%s: its folder", journal->path);
    return STATUS_OK;
}

/* ---- opening ---- */

static enum status
read_whole(struct journal *journal, char **data, size_t *bytes, struct error *error)
{
    struct stat stat;
    if (fstat(journal->fd, &stat) != 0)
        return error_set_errno(error, "%s", journal->path);
    size_t left = (size_t)stat.st_size;
    char *to = malloc(left + 1);
    if (to == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s: out of memory for its %zu bytes",
                         journal->path, left);
    *data = to;
    *bytes = 0;
    while (left > 0) {
        ssize_t got = pread(journal->fd, to + *bytes, left, (off_t)*bytes);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return error_set_errno(error, "%s", journal->path);
        if (got == 0)
            break;
        *bytes += (size_t)got;
        left -= (size_t)got;
    }
    return STATUS_OK;
}

/* 0: no complete frame follows. */
static size_t
next_whole(const char *data, size_t bytes, size_t at)
{
    size_t frame_bytes;
    while (++at < bytes)
        if (frame_is_whole(data + at, bytes - at, &frame_bytes))
            return at;
    return 0;
}

static enum status
read_frames(struct journal *journal, const char *data, size_t bytes,
            const struct journal_reader *reader, struct error *error)
{
    size_t at = FRAME_FILE_BYTES;
    size_t frame_bytes;
    while (at < bytes && frame_is_whole(data + at, bytes - at, &frame_bytes)) {
        if (frame_read(data + at, frame_bytes, reader, error) != STATUS_OK)
            return error_prefix(error, "%s: at byte %zu", journal->path, at);
        at += frame_bytes;
    }
    size_t whole = at < bytes ? next_whole(data, bytes, at) : 0;
    if (whole != 0)
        return error_set(
            error, STATUS_DATA_LOSS,
            "%s: is damaged from byte %zu to %zu and intact after that, which no crash "
            "causes. Replace it by a copy, or remove it and register all models again",
            journal->path, at, whole);
    journal->size = (off_t)at;
    return STATUS_OK;
}

static enum status
read_file(struct journal *journal, const struct journal_reader *reader, size_t *cut,
          struct error *error)
{
    char *data = NULL;
    size_t bytes = 0;
    struct bytes head = {0};
    frame_file_put(&head);
    if (read_whole(journal, &data, &bytes, error) != STATUS_OK)
        goto out;
    if (bytes < FRAME_FILE_BYTES || memcmp(data, head.data, FRAME_FILE_BYTES) != 0) {
        error_set(error, STATUS_DATA_LOSS,
                  "%s: is not a registry file, or has an unknown version; it is left unchanged. "
                  "Name another file, or move this one away",
                  journal->path);
        goto out;
    }
    if (read_frames(journal, data, bytes, reader, error) != STATUS_OK)
        goto out;
    *cut = bytes - (size_t)journal->size;
    if (*cut > 0 && (ftruncate(journal->fd, journal->size) != 0 || fsync(journal->fd) != 0))
        error_set_errno(error, "%s", journal->path);
out:
    bytes_fini(&head);
    free(data);
    return error->status;
}

static enum status
open_or_make(struct journal *journal, const struct journal_reader *reader, size_t *cut,
             struct error *error)
{
    const struct record_table none = {0};
    if (lock(journal, error) != STATUS_OK)
        return error->status;
    journal->fd = open(journal->path, O_RDWR | O_CLOEXEC);
    if (journal->fd >= 0)
        return read_file(journal, reader, cut, error);
    if (errno != ENOENT)
        return error_set_errno(error, "%s", journal->path);
    return journal_rewrite(journal, &none, 0, error);
}

enum status
journal_open(const char *path, const struct journal_reader *reader, struct journal **opened,
             size_t *cut, struct error *error)
{
    struct journal *journal = calloc(1, sizeof(*journal));
    CHECK(journal != NULL);
    journal->path = path_with(path, "");
    journal->path_new = path_with(path, ".new");
    journal->fd = -1;
    journal->lock_fd = -1;
    journal->long_min = LONG_BYTES_MIN;
    *cut = 0;
    error_clear(error);
    if (open_or_make(journal, reader, cut, error) != STATUS_OK) {
        journal_close(journal);
        return error_prefix(error, "the registry file");
    }
    *opened = journal;
    return STATUS_OK;
}

void
journal_close(struct journal *journal)
{
    if (journal == NULL)
        return;
    if (journal->fd >= 0)
        close(journal->fd);
    if (journal->lock_fd >= 0)
        close(journal->lock_fd);
    bytes_fini(&journal->frame);
    free(journal->path);
    free(journal->path_new);
    free(journal);
}

/* ---- appending ---- */

static void
entry(struct journal *journal, enum frame_kind kind, const struct store_record *record)
{
    if (journal->frame.used == 0)
        frame_open(&journal->frame);
    frame_entry_put(&journal->frame, kind, record);
}

void
journal_put(struct journal *journal, const struct store_record *record)
{
    entry(journal, FRAME_PUT, record);
}

void
journal_delete(struct journal *journal, enum store_table table, const char *id, uint64_t revision)
{
    entry(journal, FRAME_DELETE,
          &(struct store_record){.table = table, .id = id, .revision = revision});
}

static enum journal_end
append(struct journal *journal, struct error *error)
{
    if (!write_all(journal->fd, journal->frame.data, journal->frame.used, journal->size)) {
        error_set_errno(error, "the registry file: %s", journal->path);
        if (ftruncate(journal->fd, journal->size) == 0 && fdatasync(journal->fd) == 0)
            return JOURNAL_NOT_DONE;
    } else if (fdatasync(journal->fd) == 0) {
        journal->size += (off_t)journal->frame.used;
        return JOURNAL_DONE;
    } else {
        error_set_errno(error, "the registry file: %s: flushing it", journal->path);
    }
    journal->broken = true;
    return JOURNAL_UNKNOWN;
}

enum journal_end
journal_commit(struct journal *journal, struct error *error)
{
    enum journal_end end = JOURNAL_DONE;
    if (journal->frame.used > 0) {
        CHECK(!journal->broken);
        frame_close(&journal->frame, 0);
        end = append(journal, error);
    }
    journal->frame.used = 0;
    if (journal->frame.capacity > FRAME_BYTES_KEPT)
        bytes_fini(&journal->frame);
    return end;
}

bool
journal_is_broken(const struct journal *journal)
{
    return journal->broken;
}

bool
journal_is_long(const struct journal *journal, const struct record_table *table)
{
    size_t said = table->bytes + table->count * FRAME_ENTRY_BYTES;
    return journal->size > journal->long_min && (size_t)journal->size / LONG_TIMES > said;
}
