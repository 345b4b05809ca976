/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a model lies: the one place that makes a path of what a registrar, a caller of the control
 * socket or a directory says. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "shm/handshake.h"

struct model_root {
    int fd;     /* -1: not open */
    char *path; /* as the kernel names it */
    char *configured;
};

struct model_place {
    char path[HANDSHAKE_PATH_BYTES]; /* absolute, without links */
    uint64_t bytes;                  /* of the file, or of the files right in the directory */
};

/* FAILED_PRECONDITION: this kernel has no openat2 (before Linux 5.6, or a container's filter). */
enum status model_root_open(struct model_root *root, const char *path,
                            struct error *error) WARN_UNUSED;
void model_root_close(struct model_root *root);

/*
 * A path beneath the root: relative to it, or absolute. Links are followed as long as they stay
 * beneath. INVALID_ARGUMENT: empty, too long, or leads out of it; NOT_FOUND; FAILED_PRECONDITION:
 * neither a regular file nor a directory.
 */
enum status model_path_find(const struct model_root *root, const char *path,
                            struct model_place *place, struct error *error) WARN_UNUSED;

/* For callers, from what is logged: paths beneath the root become relative to it, and of other
 * absolute ones only the last part is left. `told` may be `error`. */
void model_path_hide(const struct model_root *root, const struct error *error, struct error *told);
