/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/storage/cache_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DESCRIPTORS = 16, FOLDER_MODE = 0750, FILE_MODE = 0640 };

static int
remove_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)info, (void)where;
    (void)(type == FTW_DP ? rmdir(path) : unlink(path));
    return 0;
}

void
tree_remove(const char *path)
{
    (void)nftw(path, remove_one, DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}

static _Thread_local uint64_t counted_bytes;

static int
count_one(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)path, (void)where;
    if (type == FTW_F)
        counted_bytes += (uint64_t)info->st_size;
    return 0;
}

uint64_t
tree_bytes(const char *path)
{
    counted_bytes = 0;
    (void)nftw(path, count_one, DESCRIPTORS, FTW_PHYS);
    return counted_bytes;
}

enum status
tree_make(const char *path, struct error *error)
{
    char made[PATH_MAX];
    int bytes = snprintf(made, sizeof(made), "%s", path);
    if (bytes <= 0 || (size_t)bytes >= sizeof(made))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%.100s…: the path is too long", path);
    for (char *slash = strchr(made + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash != NULL)
            *slash = '\0';
        if (mkdir(made, FOLDER_MODE) != 0 && errno != EEXIST)
            return error_set_errno(error, "making %.300s", made);
        if (slash == NULL)
            return STATUS_OK;
        *slash = '/';
    }
}

enum status
tree_write(const char *path, const char *text, struct error *error)
{
    char fresh[PATH_MAX];
    size_t bytes = strlen(text);
    snprintf(fresh, sizeof(fresh), "%.4000s.%d.%lx", path, (int)getpid(),
             (unsigned long)(uintptr_t)&bytes);
    int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return error_set_errno(error, "writing %.300s", path);
    enum status status = STATUS_OK;
    if (write(fd, text, bytes) != (ssize_t)bytes || fdatasync(fd) != 0)
        status = error_set_errno(error, "writing %.300s", path);
    close(fd);
    if (status == STATUS_OK && rename(fresh, path) != 0)
        status = error_set_errno(error, "writing %.300s", path);
    if (status != STATUS_OK)
        (void)unlink(fresh);
    return status;
}
