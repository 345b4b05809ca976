/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory of models, or of one model (`id`). Each sub-directory of the root, and each file of a
 * known format in it (model_format.h), is a listed model, unless its name begins with ".". The id
 * of a sub-directory's model is its name; of a file's, its name without the ending. The key is the
 * content of a sub-directory's `key.json`, if there is one: a JSON object of at most 4,095 bytes.
 * Of entries with the same id the first by name is listed; the others are logged.
 *
 *  1. A new entry is listed once nothing in it has changed for a second (at the start: at
 *     once), so that a model that is still being copied is not loaded.
 *  2. A model whose content changes (model_look.h) is listed again with another version by the same
 *     rule, so that the loaded one is replaced.
 *  3. A model that is gone is unlisted. One that has changed into what cannot be a model is kept:
 *     it stays listed as it was.
 *  4. While the root cannot be read, nothing changes.
 *
 * inotify reports changes in the root; every DIRECTORY_LOOK_NS all of it is looked at, because of
 * changes inside the sub-directories and lost events. A thread of its own, of low priority, does
 * that, so a slow file system does not stop the loop, which only takes in the changes,
 * DIRECTORY_CHANGES_MAX at a time.
 *
 * A model that cannot be listed is logged once, and again only for another reason.
 */
#pragma once

#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "coordinator/models/model_look.h"
#include "coordinator/models/models.h"
#include "loop/loop.h"

enum { DIRECTORY_CHANGES_MAX = 64 };

#define DIRECTORY_LOOK_NS (10 * NS_PER_S)

struct model_directory;

enum directory_listing {
    LISTING_DONE,
    LISTING_REFUSED, /* the error says why */
    LISTING_OTHERS,  /* another pipeline's: not listed, not logged */
    LISTING_LATER,   /* not yet: tried again within a second */
};

/* A model in the directory; valid during the call. */
struct directory_model {
    struct model_spec spec;
    const char *type; /* the key's, else the format's name, else "" */
    uint64_t version;
    const struct look_release *releases; /* the highest first */
    uint32_t release_count;              /* 0: `spec` is the model itself */
    const struct release_policy *policy;
};

struct model_directory_options {
    struct loop *loop;
    const char *pipeline; /* for the log; kept */
    const char *root;     /* absolute; kept */
    const char *id;       /* NULL: entries are models; else the root is this one; kept */
    int64_t look_ns;      /* 0: DIRECTORY_LOOK_NS */

    /* Called on the loop thread. Each look calls `list` again until a model is LISTING_DONE. */
    enum directory_listing (*list)(void *context, const struct directory_model *model,
                                   struct error *error);
    void (*unlist)(void *context, const char *id);
    /* The entry cannot be a model; one that is listed is kept: LISTING_DONE. */
    enum directory_listing (*refuse)(void *context, const char *id, const struct error *why);
    void *context;
};

/*
 * Looks at everything before it returns, so that the models are known when the node serves, then
 * starts the thread. UNAVAILABLE: the kernel permits no further inotify instance.
 */
enum status model_directory_create(const struct model_directory_options *options,
                                   struct model_directory **directory,
                                   struct error *error) WARN_UNUSED;
/* The entries that model_directory_create could not list and logged. */
uint32_t model_directory_refused(const struct model_directory *directory);
/* Stops listing and unlisting; listed models stay so. NULL is ignored. */
void model_directory_destroy(struct model_directory *directory);
