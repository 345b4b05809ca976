/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A value of the configuration that is JSON, or the path of a JSON file that may change while the
 * node runs: rewritten, renamed over, or reached through a link that is redirected, as Kubernetes
 * does with a ConfigMap. A look costs one stat(2). Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "base/error.h"

enum { MESH_FILE_BYTES_MAX = 1 << 20 };

struct mesh_file {
    const char *given; /* the configuration's value; NULL: not given */
    /* The file read last; all zero: there was none. */
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified;
    struct timespec changed;
};

/* `*text`, to be freed, has `*bytes` bytes and a terminator. */
enum status mesh_file_read(struct mesh_file *file, char **text, size_t *bytes,
                           struct error *error) WARN_UNUSED;

/* Prefixes the error with the key of `mesh` and the file, if it is one. Returns the status. */
enum status mesh_file_blame(const struct mesh_file *file, const char *key, struct error *error);

/* Returns whether the file has changed since it was read last, successfully or not. */
bool mesh_file_changed(const struct mesh_file *file);
