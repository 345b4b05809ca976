/* SPDX-License-Identifier: Apache-2.0 */
/* pvc:// and file://: copies of what lies beneath a folder that the node's configuration names. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "serving/storage/job.h"

enum { DEPTH_MAX = 32, BLOCK_BYTES = 1 << 20 };

static int
open_beneath(int fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, fd, path, &how, sizeof(how));
}

/* Opens the model; `*name` is its last part. */
static enum status
open_model(const struct storage_job *job, int *fd, char name[CACHE_ENTRY_BYTES],
           struct error *error)
{
    const struct storage_place *place = &job->place;
    const char *root = place->kind == PLACE_PVC ? job->options->pvc_mounts : job->options->files;
    char path[PATH_MAX];
    size_t skip = 0;
    if (root == NULL)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "no files may be named: set `files_root`");
    if (place->kind == PLACE_FILE) {
        skip = strlen(root);
        while (skip > 0 && root[skip - 1] == '/')
            skip--;
        if (strncmp(place->path, root, skip) != 0 || place->path[skip] != '/')
            return error_set(error, STATUS_PERMISSION_DENIED, "it is not beneath `files_root`");
    }
    const char *rest = place->path + skip + strspn(place->path + skip, "/");
    snprintf(path, sizeof(path), "%.255s%s%.3000s", place->kind == PLACE_PVC ? place->bucket : ".",
             rest[0] != '\0' ? "/" : "", rest);
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    *fd = root_fd < 0 ? -1 : open_beneath(root_fd, path, 0);
    int saved = errno;
    if (root_fd >= 0)
        close(root_fd);
    errno = saved;
    if (*fd < 0 && (errno == EXDEV || errno == ELOOP))
        return error_set(error, STATUS_PERMISSION_DENIED, "a link in it leads elsewhere");
    if (*fd < 0)
        return error_set_errno(error, "opening it");
    while (path[strlen(path) - 1] == '/')
        path[strlen(path) - 1] = '\0';
    const char *slash = strrchr(path, '/');
    snprintf(name, CACHE_ENTRY_BYTES, "%.255s", slash != NULL ? slash + 1 : path);
    return STATUS_OK;
}

enum { VERSION_BYTES = 80 };

static void
name_version(const struct stat *info, char version[VERSION_BYTES])
{
    snprintf(version, VERSION_BYTES, "%llu.%lld.%ld", (unsigned long long)info->st_ino,
             (long long)info->st_mtim.tv_sec, info->st_mtim.tv_nsec);
}

static enum status
add_file(struct storage_job *job, const char *name, const struct stat *info, struct error *error)
{
    char version[VERSION_BYTES];
    name_version(info, version);
    return job_add_file(job, name, version, (uint64_t)info->st_size, error);
}

/* Adds all files of a folder; `within` is its name in the model, "" at the top. */
static enum status
add_folder(struct storage_job *job, int fd, const char *within, unsigned depth, struct error *error)
{
    int copied = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = copied < 0 ? NULL : fdopendir(copied);
    if (stream == NULL || depth > DEPTH_MAX) {
        if (stream != NULL)
            closedir(stream);
        return depth > DEPTH_MAX ? error_set(error, STATUS_INVALID_ARGUMENT,
                                             "its folders are more than %d deep", DEPTH_MAX)
                                 : error_set_errno(error, "reading folder \"%.100s\"", within);
    }
    enum status status = job_check(job, error);
    const struct dirent *entry;
    while (status == STATUS_OK && (entry = readdir(stream)) != NULL) {
        char name[PATH_MAX];
        struct stat info;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(name, sizeof(name), "%.3000s%s%s", within, within[0] != '\0' ? "/" : "",
                 entry->d_name);
        int child = open_beneath(fd, entry->d_name, 0);
        if (child < 0 || fstat(child, &info) != 0)
            status = error_set_errno(error, "\"%.200s\"", name);
        else if (S_ISDIR(info.st_mode))
            status = add_folder(job, child, name, depth + 1, error);
        else if (S_ISREG(info.st_mode))
            status = add_file(job, name, &info, error);
        if (child >= 0)
            close(child);
    }
    closedir(stream);
    return status;
}

static int
by_name(const void *one, const void *other)
{
    return strcmp(((const struct stored_file *)one)->name,
                  ((const struct stored_file *)other)->name);
}

enum status
local_list(struct storage_job *job, struct error *error)
{
    char name[CACHE_ENTRY_BYTES];
    struct stat info;
    int fd = -1;
    enum status status = open_model(job, &fd, name, error);
    if (status != STATUS_OK)
        return status;
    if (fstat(fd, &info) != 0)
        status = error_set_errno(error, "looking at it");
    else if (S_ISDIR(info.st_mode))
        status = add_folder(job, fd, "", 0, error);
    else if (S_ISREG(info.st_mode))
        status = add_file(job, name, &info, error);
    else
        status = error_set(error, STATUS_FAILED_PRECONDITION, "it is no file and no folder");
    job->is_single = status == STATUS_OK && S_ISREG(info.st_mode);
    close(fd);
    if (job->file_count > 1)
        qsort(job->files, job->file_count, sizeof(struct stored_file), by_name);
    return status;
}

/* A file that changes meanwhile has another length or version at its end. */
static enum status
copy(struct storage_job *job, int fd, struct stored_file *file, struct error *error)
{
    struct storage_sink sink;
    struct stat info;
    char version[VERSION_BYTES];
    char *block = malloc(BLOCK_BYTES);
    CHECK(block != NULL);
    enum status status = sink_open(job, &sink, file->name, error);
    if (status == STATUS_OK && sink.at > 0)
        status = sink_restart(&sink, error);
    ssize_t bytes = 1;
    while (status == STATUS_OK && (bytes = read(fd, block, BLOCK_BYTES)) > 0) {
        status = sink_write(&sink, block, (size_t)bytes, error);
        job->received_bytes += (uint64_t)bytes;
        if (status == STATUS_OK)
            status = job_check(job, error);
    }
    if (status == STATUS_OK && bytes < 0)
        status = error_set_errno(error, "reading \"%.200s\"", file->name);
    bool is_seen = status == STATUS_OK && fstat(fd, &info) == 0;
    if (is_seen)
        name_version(&info, version);
    if (status == STATUS_OK &&
        (!is_seen || sink.at != file->bytes || strcmp(version, file->etag) != 0))
        status =
            error_set(error, STATUS_UNAVAILABLE, "\"%.200s\" changes: try again later", file->name);
    sink_close(&sink, status == STATUS_OK ? file->digest : NULL);
    free(block);
    return status == STATUS_OK ? job_judge_file(job, file, error) : status;
}

enum status
local_store(struct storage_job *job, struct error *error)
{
    char name[CACHE_ENTRY_BYTES];
    int fd = -1;
    enum status status = open_model(job, &fd, name, error);
    for (uint32_t i = 0; i < job->file_count && status == STATUS_OK; i++) {
        int file = job->is_single ? fd : open_beneath(fd, job->files[i].name, 0);
        status = file < 0 ? error_set_errno(error, "\"%.200s\"", job->files[i].name)
                          : copy(job, file, &job->files[i], error);
        if (file >= 0 && !job->is_single)
            close(file);
    }
    if (fd >= 0)
        close(fd);
    return status;
}
