/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "serving/storage/cache_tree.h"
#include "serving/storage/job.h"

enum { FILE_MODE = 0640, BLOCK_BYTES = 256 * 1024 };

static enum status
failed(const char *what, struct error *error)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "the file system of models_cache is full, and nothing in the cache is "
                         "free to be evicted: make room, or lower models_cache_gib");
    return error_set_errno(error, "%s a file of the cache", what);
}

/* Reads what an earlier attempt has left, into the digest. */
static enum status
read_rest(struct storage_job *job, struct storage_sink *sink, struct error *error)
{
    static _Thread_local char block[BLOCK_BYTES];
    ssize_t bytes;
    while ((bytes = read(sink->fd, block, sizeof(block))) > 0) {
        digest_add(sink->digest, block, (size_t)bytes);
        sink->at += (uint64_t)bytes;
        job_progress(job, bytes);
        if (job_check(job, error) != STATUS_OK)
            return error->status;
    }
    return bytes == 0 ? STATUS_OK : failed("reading", error);
}

/* Keys of S3 may be `a` and `a/b`. */
static enum status
clashes(const char *name, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "\"%.200s\": a file would have the name of a folder: rename one of them",
                     name);
}

enum status
sink_open(struct storage_job *job, struct storage_sink *sink, const char *name, struct error *error)
{
    char path[PATH_MAX];
    *sink = (struct storage_sink){.job = job, .fd = -1};
    int bytes = snprintf(path, sizeof(path), "%s/%s", job->partial.files, name);
    if (bytes < 0 || (size_t)bytes >= sizeof(path))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%.80s…: the name is too long", name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    enum status status = tree_make(path, error);
    *slash = '/';
    if (status != STATUS_OK)
        return errno == ENOTDIR ? clashes(name, error) : status;
    sink->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    while (sink->fd < 0 && errno == ENOSPC && cache_evict_any(job->options->cache))
        sink->fd = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, FILE_MODE);
    if (sink->fd < 0 && (errno == ENOTDIR || errno == EISDIR))
        return clashes(name, error);
    if (sink->fd < 0)
        return failed("making", error);
    sink->digest = digest_begin();
    return read_rest(job, sink, error);
}

enum status
sink_restart(struct storage_sink *sink, struct error *error)
{
    digest_end(sink->digest, NULL);
    sink->digest = digest_begin();
    job_progress(sink->job, -(int64_t)sink->at);
    sink->at = 0;
    if (ftruncate(sink->fd, 0) != 0 || lseek(sink->fd, 0, SEEK_SET) != 0)
        return failed("emptying", error);
    return STATUS_OK;
}

enum status
sink_write(struct storage_sink *sink, const void *data, size_t bytes, struct error *error)
{
    const char *at = data;
    digest_add(sink->digest, data, bytes);
    while (bytes > 0) {
        ssize_t written = write(sink->fd, at, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0 && errno == ENOSPC && cache_evict_any(sink->job->options->cache))
            continue;
        if (written < 0)
            return failed("writing", error);
        at += written;
        bytes -= (size_t)written;
        sink->at += (uint64_t)written;
        job_progress(sink->job, written);
    }
    return STATUS_OK;
}

void
sink_close(struct storage_sink *sink, char digest[DIGEST_BYTES])
{
    digest_end(sink->digest, digest);
    sink->digest = NULL;
    if (sink->fd >= 0 && digest == NULL)
        job_progress(sink->job, -(int64_t)sink->at);
    if (sink->fd >= 0)
        close(sink->fd);
    sink->fd = -1;
}
