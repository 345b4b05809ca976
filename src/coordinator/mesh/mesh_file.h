/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A value of the configuration that is JSON itself, or the path of a file with it that may change
 * while the node runs: rewritten, renamed over, or reached through a link that is turned to another
 * directory, as Kubernetes does with a ConfigMap. Looking is one stat(2). Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>

#include "base/error.h"

enum { MESH_FILE_BYTES_MAX = 1 << 20 };

struct mesh_file {
    const char *given; /* the configuration's; NULL: nothing */
    /* The file read last; all zero: none was there. */
    dev_t device;
    ino_t inode;
    off_t bytes;
    struct timespec modified;
    struct timespec changed;
};

/* `*text` is to be freed, `*bytes` its length, a zero byte behind it. */
enum status mesh_file_read(struct mesh_file *file, char **text, size_t *bytes,
                           struct error *error) WARN_UNUSED;

/* Puts in front which key of `mesh` it is, and which file, if it is one. Returns the status. */
enum status mesh_file_blame(const struct mesh_file *file, const char *key, struct error *error);

/* Whether there is another file now than when it was read last, be it in vain. */
bool mesh_file_changed(const struct mesh_file *file);
