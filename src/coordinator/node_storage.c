/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/node_storage.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

enum status
node_storage_open(const struct config_storage *config, struct loop *loop, struct storage **storage,
                  struct error *error)
{
    char path[PATH_MAX];
    *storage = NULL;
    if (config->cache_bytes == 0)
        return STATUS_OK;
    if (!config_cache_folder(config, path))
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "`models_cache` is not given, and there is no home: name a folder");
    const struct storage_options options = {
        .loop = loop,
        .cache = path,
        .cache_bytes_max = config->cache_bytes,
        .entries = config->entries,
        .pvc_mounts = config->pvc_mounts != NULL ? config->pvc_mounts : "/pvc_mounts",
        .files = config->files,
        .metadata = config->metadata,
        .fetches_max = config->fetches_max,
        .bytes_per_s = config->bytes_per_s,
    };
    return storage_create(&options, storage, error);
}

/* ---- one fetch before the node ---- */

struct early_fetch {
    struct loop *loop;
    struct storage_model model;
    struct error error;
};

/* The storage's own lease ends with it; a lock of this process does not (cache.h). */
static enum status
keep(const struct storage_model *model, struct error *error)
{
    char folder[PATH_MAX];
    struct stat info;
    snprintf(folder, sizeof(folder), "%s", model->path);
    if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
        *strrchr(folder, '/') = '\0';
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_SH) != 0)
        return error_set_errno(error, "keeping %.300s", folder);
    return STATUS_OK; /* the descriptor stays open */
}

static void
on_fetched(void *context, const struct error *error, const struct storage_model *model)
{
    struct early_fetch *fetch = context;
    if (error != NULL)
        fetch->error = *error;
    else
        fetch->model = *model;
    loop_stop(fetch->loop);
}

enum status
node_storage_fetch(const struct config_storage *config, const char *uri, char path[PATH_MAX],
                   struct error *error)
{
    struct early_fetch fetch = {.error = ERROR_NONE};
    struct storage *storage = NULL;
    enum status status = loop_create(&fetch.loop, error);
    if (status != STATUS_OK)
        return status;
    status = node_storage_open(config, fetch.loop, &storage, error);
    if (status == STATUS_OK && storage == NULL)
        status = error_set(error, STATUS_FAILED_PRECONDITION, "%s: give it disk space, --cache-gib",
                           uri);
    if (status == STATUS_OK) {
        (void)storage_fetch(storage, &(struct storage_request){.source = {uri, ""},
                                                               .deadline_ns = TIME_NEVER_NS,
                                                               .done = on_fetched,
                                                               .context = &fetch});
        loop_run(fetch.loop);
        status = fetch.error.status;
        *error = fetch.error;
    }
    if (status == STATUS_OK) {
        status = keep(&fetch.model, error);
        snprintf(path, PATH_MAX, "%s", fetch.model.path);
        storage_release(storage, fetch.model.lease);
    }
    storage_destroy(storage);
    loop_destroy(fetch.loop);
    return status;
}
