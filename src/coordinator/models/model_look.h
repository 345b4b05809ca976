/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One look at an entry of a directory of models: whether it is a model, the version of its content,
 * its key. Any thread; nothing is kept.
 *
 * A sub-directory is a model of its name. If it has sub-directories whose names are whole numbers,
 * and no file of a known format, these are its *releases*: numbered versions of the model.
 * A file whose content has a known format (model_format.h) is a model of its name without the
 * ending; it has no key.
 *
 * The *version* is a hash of the entries directly in the sub-directory: names, devices, inodes,
 * sizes and times of change of everything whose name does not begin with "."; of deeper files only
 * their directory's time counts, but for those of releases. So a model that is replaced by renaming
 * (of the whole sub-directory, of a file in it, or of a link on the way) has another version, as
 * has one that was overwritten in place. The version of a file is the same hash of the file alone.
 *
 * Links are followed while they stay beneath the root (openat2), the entry's own included.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/clock.h"
#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/models/model_format.h"
#include "coordinator/models/sidecar.h"

enum {
    LOOK_KEY_BYTES_MAX = 4095,
    LOOK_FILES_MAX = 1024,  /* per sub-directory; further files do not count */
    LOOK_RELEASES_MAX = 32, /* the highest ones of a model; lower ones do not count */
    LOOK_RELEASE_BYTES = 19,
};

enum look_kind { LOOK_DIRECTORY, LOOK_FILE };

/* A file that changed less than this ago may be half written. */
#define LOOK_SETTLED_NS NS_PER_S

enum look_result {
    LOOK_MODEL,
    LOOK_NO_MODEL,  /* nothing there */
    LOOK_FOREIGN,   /* no directory, and neither content nor name of a known format */
    LOOK_UNSETTLED, /* written to within LOOK_SETTLED_NS of `now` */
    LOOK_UNFIT,     /* it cannot be a model: the error says why */
    LOOK_UNSURE,    /* it could not be read: the previous state holds */
};

/* A numbered version of a model: the sub-directory of that name. */
struct look_release {
    char number[LOOK_RELEASE_BYTES]; /* decimal, without leading zeros */
    uint64_t version;                /* of its content */
};

struct model_look {
    const char *id; /* given: of the model, if its entry has another name; else NULL */
    enum look_kind kind;
    uint64_t version;
    char type[CONFIG_NAME_BYTES_MAX + 1]; /* the key's model_type.name, of a file its format; "" */
    bool has_sidecar[SIDECAR_KINDS];
    char key[LOOK_KEY_BYTES_MAX + 1]; /* content of key.json; "": there is none */
    uint32_t release_count;           /* 0: the sub-directory or file is the model itself */
    struct look_release releases[LOOK_RELEASES_MAX]; /* the highest first */
    struct sidecar sidecar;
};

/* Orders the numbers of releases: less than 0 if `a` is lower. */
int look_compare_releases(const char *a, const char *b);

/* The file in a model's directory that holds its key. */
#define LOOK_KEY_NAME "key.json"

/* `now_unix_ns` 0: everything counts as written completely. Sets `error` for LOOK_FOREIGN,
 * LOOK_UNFIT and LOOK_UNSURE. Leaves `look->kind` if the entry cannot be opened. */
enum look_result look_at_model(int root_fd, const char *name, int64_t now_unix_ns,
                               struct model_look *look, struct error *error);

/* The format of an open file; NULL: it is no regular file, or of none of the formats. Reads from
 * where the file is. */
const struct model_format *look_at_format(int fd);
/* The format of a sub-directory's model: that of its file named `model` with any ending, else the
 * one that all its recognized files have. NULL: none, or several. */
const struct model_format *look_for_format(int root_fd, const char *name);

/* Like look_for_format(), for a model that has been looked at. If it has releases, this is the
 * format of the highest one that has any. */
const struct model_format *look_for_format_of(int root_fd, const char *name,
                                              const struct model_look *look);

/* The id of the model with this entry: of a file its name without the ending. */
void look_id(const char *name, enum look_kind kind, char id[SHOAL_NAME_BYTES_MAX + 1]);
