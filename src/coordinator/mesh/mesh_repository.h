/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder in which this node lays out models for a server with a built-in adapter that it runs:
 * `runtimes/INSTANCE` in the folder of `models_cache`, locked, since its user deletes what others
 * laid out there.
 *
 * Loop thread.
 */
#pragma once

#include <limits.h>

#include "base/error.h"
#include "coordinator/config/config.h"

struct mesh_repository {
    char path[PATH_MAX]; /* "": the configuration names no place, and there is no home */
    int fd;              /* has the lock; -1: not open */
};

/* Touches nothing of the disk. */
void mesh_repository_init(struct mesh_repository *repository, const struct config *config);
/* Makes and locks the folder, unless that was done. */
enum status mesh_repository_open(struct mesh_repository *repository,
                                 struct error *error) WARN_UNUSED;
void mesh_repository_fini(struct mesh_repository *repository);
