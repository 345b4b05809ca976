/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resolves the path that a registrar, an operator or a directory gives for a model; no other code
 * does. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "ipc/handshake.h"

struct model_root {
    int fd;     /* -1: not open */
    char *path; /* absolute, without links */
    char *configured;
};

struct model_place {
    char path[HANDSHAKE_PATH_BYTES]; /* absolute, without links */
    uint64_t bytes;                  /* of the file, or of the files directly in the directory */
};

/* FAILED_PRECONDITION: this kernel has no openat2 (before Linux 5.6, or a container's filter). */
enum status model_root_open(struct model_root *root, const char *path,
                            struct error *error) WARN_UNUSED;
void model_root_close(struct model_root *root);

/*
 * Resolves a path beneath the root, relative to it or absolute. Links are followed while they stay
 * beneath it. INVALID_ARGUMENT: empty, too long, or outside; NOT_FOUND; FAILED_PRECONDITION:
 * neither a regular file nor a directory.
 */
enum status model_path_find(const struct model_root *root, const char *path,
                            struct model_place *place, struct error *error) WARN_UNUSED;

/* Makes an error fit for callers: paths beneath the root become relative, other absolute paths keep
 * only their last part. `fit` may be `error`. */
void model_path_hide(const struct model_root *root, const struct error *error, struct error *fit);
