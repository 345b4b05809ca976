/* SPDX-License-Identifier: Apache-2.0 */
#include "model_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SHOWN_MAX = 100 };

int
model_refuse(struct shoal_error *error, const char *path, int status, const char *what)
{
    size_t length = strlen(path);
    const char *shown = length > PATH_SHOWN_MAX ? path + length - PATH_SHOWN_MAX : path;
    snprintf(error->text, sizeof error->text, "model %s%s: %s", shown != path ? "…" : "", shown,
             what);
    return status;
}

static int
status_of(int number)
{
    switch (number) {
    case ENOENT:
    case ENOTDIR: return SHOAL_NOT_FOUND;
    case EACCES:
    case EPERM: return SHOAL_PERMISSION_DENIED;
    case ENOMEM:
    case EMFILE: return SHOAL_RESOURCE_EXHAUSTED;
    default: return SHOAL_INVALID_ARGUMENT;
    }
}

static int
refuse_number(struct shoal_error *error, const char *path, int number)
{
    return model_refuse(error, path, status_of(number), strerror(number));
}

static int
map_open(int fd, const char *path, struct model_file *file, struct shoal_error *error)
{
    struct stat stat;
    if (fstat(fd, &stat) != 0)
        return refuse_number(error, path, errno);
    if (S_ISDIR(stat.st_mode))
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, "is a folder, not a file");
    if (!S_ISREG(stat.st_mode))
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, "is not a regular file");
    if (stat.st_size == 0)
        return model_refuse(error, path, SHOAL_INVALID_ARGUMENT, "is empty");
    void *bytes = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return refuse_number(error, path, errno);
    *file = (struct model_file){bytes, (size_t)stat.st_size};
    return SHOAL_OK;
}

int
model_file_map(const char *path, struct model_file *file, struct shoal_error *error)
{
    *file = (struct model_file){NULL, 0};
    /* O_NONBLOCK: a FIFO without a writer would be waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return refuse_number(error, path, errno);
    int status = map_open(fd, path, file, error);
    close(fd);
    return status;
}

void
model_file_unmap(struct model_file *file)
{
    if (file->bytes != NULL)
        munmap(file->bytes, file->size);
    *file = (struct model_file){NULL, 0};
}
