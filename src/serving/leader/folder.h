/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder of manifests, which a thread looks at every second: its files `*.yaml`, `*.yml` and
 * `*.json`, of which links are followed. A file is read when it has not changed for a second, so
 * that one that is being written is not taken for a whole one. A file with a mistake is logged, and
 * what it said before goes on; so does everything while the folder cannot be read.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "loop/loop.h"

struct folder;

enum { FOLDER_FILES_MAX = 4096 };

struct folder_object {
    char *id;         /* "KIND/NAME" */
    char *json;       /* with the annotation of this node */
    const char *file; /* its name; of several with one object, the first in their order */
};

/* The objects of the folder, in the order of ids. */
struct folder_view {
    struct folder_object *objects;
    uint32_t count;
    /* Cleared: a file has a mistake, and what it said before this node began is not known. */
    bool is_whole;
};

/* `on_view` gets each view that differs from the last one, on the loop thread. `path` and `node`,
 * this node's name, are copied. */
struct folder *folder_start(struct loop *loop, const char *path, const char *node,
                            void (*on_view)(void *context, const struct folder_view *view),
                            void *context);
/* `on_view` is not called any more. NULL is ignored, as by the next. */
void folder_stop(struct folder *folder);
/* Call when the loop has stopped. Waits for the thread. */
void folder_destroy(struct folder *folder);
