/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "coordinator/telemetry/trace_sink.h"

struct file_sink {
    struct trace_sink sink; /* first: the tracer's view of it */
    char *path;
    int fd; /* -1: to be opened */
};

static struct file_sink *
file_of(struct trace_sink *sink)
{
    return (struct file_sink *)(void *)sink;
}

static enum status
file_open(struct file_sink *file, struct error *error)
{
    struct stat info;
    /* non-blocking: the name may be a pipe that nobody reads */
    int fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK,
                  S_IRUSR | S_IWUSR | S_IRGRP);
    if (fd < 0)
        return error_set_errno(error, "opening %s for traces", file->path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        close(fd);
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s, for traces, is not a regular file",
                         file->path);
    }
    file->fd = fd;
    return STATUS_OK;
}

/* Returns whether the name still names the open file. */
static bool
is_in_place(const struct file_sink *file)
{
    struct stat named;
    struct stat opened;
    return stat(file->path, &named) == 0 && fstat(file->fd, &opened) == 0 &&
           named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

static bool
write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t written = write(fd, text, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return false;
        text += written;
        bytes -= (size_t)written;
    }
    return true;
}

static enum trace_sink_result
file_send(struct trace_sink *sink, const char *text, size_t bytes, struct trace_sink_answer *answer)
{
    struct file_sink *file = file_of(sink);
    if (file->fd >= 0 && !is_in_place(file)) {
        close(file->fd);
        file->fd = -1;
    }
    if (file->fd < 0 && file_open(file, &answer->error) != STATUS_OK)
        return SINK_LATER;
    off_t before = lseek(file->fd, 0, SEEK_END);
    if (write_all(file->fd, text, bytes) && write_all(file->fd, "\n", 1))
        return SINK_TAKEN;
    error_set_errno(&answer->error, "writing traces to %s", file->path);
    if (before >= 0 && ftruncate(file->fd, before) != 0)
        error_prefix(&answer->error, "half a line stays");
    return SINK_LATER;
}

/* Writing to a file does not wait. */
static void
file_hurry(struct trace_sink *sink, int64_t until_ns)
{
    (void)sink;
    (void)until_ns;
}

static void
file_close(struct trace_sink *sink)
{
    struct file_sink *file = file_of(sink);
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file);
}

enum status
trace_file_open(const char *path, struct trace_sink **sink, struct error *error)
{
    struct file_sink *file = calloc(1, sizeof(*file));
    CHECK(file != NULL);
    file->sink = (struct trace_sink){.send = file_send, .hurry = file_hurry, .close = file_close};
    file->path = strdup(path);
    CHECK(file->path != NULL);
    file->fd = -1;
    if (file_open(file, error) != STATUS_OK) {
        file_close(&file->sink);
        return error->status;
    }
    *sink = &file->sink;
    return STATUS_OK;
}
