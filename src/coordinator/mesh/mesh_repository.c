/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_repository.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "serving/storage/cache_tree.h"

void
mesh_repository_init(struct mesh_repository *repository, const struct config *config)
{
    char cache[PATH_MAX];
    *repository = (struct mesh_repository){.fd = -1};
    if (!config_cache_folder(&config->storage, cache))
        return;
    int bytes = snprintf(repository->path, sizeof(repository->path), "%s/runtimes/%s", cache,
                         config->mesh.instance);
    if (bytes >= (int)sizeof(repository->path))
        repository->path[0] = '\0';
}

enum status
mesh_repository_open(struct mesh_repository *repository, struct error *error)
{
    const char *path = repository->path;
    if (repository->fd >= 0)
        return STATUS_OK;
    if (path[0] == '\0')
        return error_set(error, STATUS_FAILED_PRECONDITION, "set `models_cache`");
    if (tree_make(path, error) != STATUS_OK)
        return error->status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set_errno(error, "%.300s", path);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        repository->fd = fd;
        return STATUS_OK;
    }
    int code = errno;
    close(fd);
    if (code == EWOULDBLOCK)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "%.300s is another process's: set `models_cache`, or another `instance`",
                         path);
    errno = code;
    return error_set_errno(error, "locking %.300s", path);
}

void
mesh_repository_fini(struct mesh_repository *repository)
{
    if (repository->fd >= 0)
        close(repository->fd);
    repository->fd = -1;
}
