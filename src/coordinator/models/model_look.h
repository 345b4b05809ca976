/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at a sub-directory of a directory of models: whether it is a model, the version of its
 * content, its key. Any thread; nothing is kept.
 *
 * The *version* is a hash of the entries directly in the sub-directory: names, devices, inodes,
 * sizes and times of change of everything whose name does not begin with "."; of deeper files only
 * their directory's time counts. So a model that is replaced by renaming (of the whole
 * sub-directory, of a file in it, or of a link on the way) has another version, as has one that was
 * overwritten in place.
 *
 * Links are followed while they stay beneath the root (openat2), the sub-directory's own included.
 */
#pragma once

#include <stdint.h>

#include <shoal/modelet.h>

#include "base/clock.h"
#include "base/error.h"
#include "coordinator/config/config.h"

enum {
    LOOK_KEY_BYTES_MAX = 4095,
    LOOK_FILES_MAX = 1024, /* per sub-directory; further files do not count */
};

/* A file that changed less than this ago may be half written. */
#define LOOK_SETTLED_NS NS_PER_S

enum look_result {
    LOOK_MODEL,
    LOOK_NO_MODEL,  /* nothing there, or no directory */
    LOOK_UNSETTLED, /* written to within LOOK_SETTLED_NS of `now` */
    LOOK_UNFIT,     /* a directory that cannot be a model: the error says why */
    LOOK_UNSURE,    /* it could not be read: the previous state holds */
};

struct model_look {
    uint64_t version;
    char type[CONFIG_NAME_BYTES_MAX + 1]; /* the key's model_type.name; "": it has none */
    char key[LOOK_KEY_BYTES_MAX + 1];     /* content of key.json; "": there is none */
};

/* The file in a model's directory that holds its key. */
#define LOOK_KEY_NAME "key.json"

/* `now_unix_ns` 0: everything counts as settled. Sets `error` for LOOK_UNFIT and LOOK_UNSURE. */
enum look_result look_at_model(int root_fd, const char *name, int64_t now_unix_ns,
                               struct model_look *look, struct error *error);

/* Whether a name can be a model's id; looks at no file. */
enum status look_name_check(const char *name, struct error *error) WARN_UNUSED;
