/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_path.h"

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
#include "base/hide_paths.h"

/* O_PATH: if the file cannot be read, the worker says so; and a FIFO or device is not touched. */
static int
open_beneath(int root, const char *path)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
}

/* The kernel's name for it; false: too long. */
static bool
name_of(int fd, char name[HANDSHAKE_PATH_BYTES])
{
    char link[32];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t bytes = readlink(link, name, HANDSHAKE_PATH_BYTES);
    if (bytes < 0 || bytes >= HANDSHAKE_PATH_BYTES)
        return false;
    name[bytes] = '\0';
    return true;
}

enum status
model_root_open(struct model_root *root, const char *path, struct error *error)
{
    char name[HANDSHAKE_PATH_BYTES];
    *root = (struct model_root){.fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (root->fd < 0)
        return error_set_errno(error, "models: root %s", path);
    int itself = open_beneath(root->fd, ".");
    if (itself < 0) {
        enum status status =
            errno == ENOSYS || errno == EPERM || errno == EINVAL
                ? error_set(error, STATUS_FAILED_PRECONDITION,
                            "models: openat2 is not available (Linux before 5.6, or a "
                            "container that forbids it), and models' paths are safe only with it")
                : error_set_errno(error, "models: root %s", path);
        model_root_close(root);
        return status;
    }
    close(itself);
    if (!name_of(root->fd, name)) {
        model_root_close(root);
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "models: root %s has a name of more than %d bytes, or /proc is missing",
                         path, HANDSHAKE_PATH_BYTES - 1);
    }
    root->path = strdup(name);
    root->configured = strdup(path);
    CHECK(root->path != NULL && root->configured != NULL);
    return STATUS_OK;
}

void
model_root_close(struct model_root *root)
{
    if (root->fd >= 0)
        close(root->fd);
    free(root->path);
    free(root->configured);
    *root = (struct model_root){.fd = -1};
}

/* The part of an absolute path behind the root; NULL: it does not begin with the root. */
static const char *
behind(const char *path, const char *root)
{
    size_t bytes = strlen(root);
    while (bytes > 0 && root[bytes - 1] == '/')
        bytes--;
    if (strncmp(path, root, bytes) != 0 || (path[bytes] != '/' && path[bytes] != '\0'))
        return NULL;
    return path + bytes + strspn(path + bytes, "/");
}

/* The sum of the files directly in it; an estimate, in which unreadable ones count 0. */
static uint64_t
directory_bytes(int fd)
{
    int readable = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *directory = readable < 0 ? NULL : fdopendir(readable);
    uint64_t bytes = 0;
    if (directory == NULL) {
        if (readable >= 0)
            close(readable);
        return 0;
    }
    enum { ENTRIES_MAX = 1000 };
    struct dirent *entry;
    for (int i = 0; i < ENTRIES_MAX && (entry = readdir(directory)) != NULL; i++) {
        struct stat info;
        if (fstatat(fd, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode))
            bytes += (uint64_t)info.st_size;
    }
    closedir(directory);
    return bytes;
}

static enum status
not_opened(const char *path, struct error *error)
{
    switch (errno) {
    case EXDEV:
    case ELOOP:
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "path \"%.300s\" leads out of the models' root", path);
    case ENOENT:
    case ENOTDIR:
        return error_set(error, STATUS_NOT_FOUND,
                         "path \"%.300s\": there is nothing beneath the models' root", path);
    default: return error_set_errno(error, "path \"%.300s\"", path);
    }
}

static enum status
describe(int fd, const char *path, struct model_place *place, struct error *error)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return error_set_errno(error, "path \"%.300s\"", path);
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "path \"%.300s\" is neither a file nor a directory", path);
    if (!name_of(fd, place->path))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "path \"%.300s\" has a name of more than %d bytes", path,
                         HANDSHAKE_PATH_BYTES - 1);
    place->bytes = S_ISREG(info.st_mode) ? (uint64_t)info.st_size : directory_bytes(fd);
    return STATUS_OK;
}

enum status
model_path_find(const struct model_root *root, const char *path, struct model_place *place,
                struct error *error)
{
    if (path[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "the model's path is empty");
    const char *within = path;
    if (path[0] == '/') {
        within = behind(path, root->configured);
        if (within == NULL)
            within = behind(path, root->path);
        if (within == NULL)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "path \"%.300s\" is not beneath the models' root", path);
        if (within[0] == '\0')
            within = ".";
    }
    int fd = open_beneath(root->fd, within);
    if (fd < 0)
        return not_opened(path, error);
    enum status status = describe(fd, path, place, error);
    close(fd);
    return status;
}

void
model_path_hide(const struct model_root *root, const struct error *error, struct error *fit)
{
    const char *const roots[] = {root->path, root->configured};
    struct error hidden = {.status = error->status};
    hide_paths(error->text, roots, ARRAY_COUNT(roots), hidden.text, sizeof(hidden.text));
    *fit = hidden;
}
