/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A directory of models: each sub-directory of the root whose name does not begin with "." is a
 * listed model. Its id is its name, its path too, its key what stands in its `key.json`, if there
 * is one: a JSON object of at most 4,095 bytes.
 *
 * The listed model changes when
 *  1. it is new: it is listed, as soon as nothing in it has changed for a second (at the start: at
 *     once), so that one that is still being copied is not loaded by halves;
 *  2. its content is another (model_look.h says what that means): listed anew with another version,
 *     so that what is loaded of it is replaced, under the same rule;
 *  3. it is gone, or cannot be a model any more: unlisted;
 *  4. the root cannot be read: nothing. Everything stays as it was until it can be read again.
 *
 * Changes in the root are told by inotify, and every DIRECTORY_LOOK_NS all of it is looked at: for
 * what happens inside the sub-directories, and should events be lost. That is done by a thread of
 * its own, of low priority: a file system may take as long as it likes without stopping the loop,
 * which only takes in what has changed, DIRECTORY_CHANGES_MAX at a time.
 *
 * A model that cannot be listed is logged once, and again only with another reason.
 */
#pragma once

#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "coordinator/loop/loop.h"
#include "coordinator/models/models.h"

enum { DIRECTORY_CHANGES_MAX = 64 };

#define DIRECTORY_LOOK_NS (10 * NS_PER_S)

struct model_directory;

enum listing {
    LISTING_DONE,
    LISTING_REFUSED, /* the error says why */
    LISTING_OTHERS,  /* another pipeline's: it is not listed, and nothing is said of it */
    LISTING_LATER,   /* not yet: it is tried again within a second */
};

struct model_directory_options {
    struct loop *loop;
    const char *pipeline; /* for the log; kept */
    const char *root;     /* absolute; kept */
    int64_t look_ns;      /* 0: DIRECTORY_LOOK_NS */

    /* The receivers, on the loop thread. `type` is the key's, "" if it has none. Until a model is
     * LISTING_DONE, each look asks again. */
    enum listing (*list)(void *context, const struct model_spec *spec, const char *type,
                         uint64_t version, struct error *error);
    void (*unlist)(void *context, const char *id);
    void *context;
};

/*
 * Looks at everything before it returns, so that the models are known when the node serves, then
 * starts the thread. UNAVAILABLE: the kernel has no room for one more inotify instance.
 */
enum status model_directory_create(const struct model_directory_options *options,
                                   struct model_directory **directory,
                                   struct error *error) WARN_UNUSED;
/* Nothing is told any more; what is listed stays so. NULL is left alone. */
void model_directory_destroy(struct model_directory *directory);
