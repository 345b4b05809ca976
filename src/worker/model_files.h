/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model, for the host function `map_file`: mapped read-only and shared, so that all
 * workers that map one share its pages, and compared with the digests that the model's key states.
 *
 * Where links lead is judged when the file is open, by the name that the kernel has for it then: it
 * must lie beneath the root of all models, or, in a pipeline whose one model is configured, beneath
 * the model's own folder. So nobody can change a link in between; and openat2, which could be told
 * the same before, is hidden by the sandbox, which can't see into its arguments.
 *
 * A file that is cut short while it is mapped ends the worker that touches it, by SIGBUS.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"

enum { MODEL_FILES_MAX = 64 };

struct model_file {
    void *data;
    size_t bytes;
};

/* Of one model. All zero: none. */
struct model_files {
    const struct shoal_model *spec; /* during its load */
    const char *root;               /* likewise, without links; NULL: no models come and go */
    uint32_t count;
    uint64_t bytes; /* in whole pages */
    struct model_file files[MODEL_FILES_MAX];
};

/* What OpenSSL sets up for good; in the first model's arena it would pass for a leak. */
void model_files_prepare(void);

/* Between the two, `map_file` on this thread maps for this model. */
void model_files_begin(struct model_files *files, const struct shoal_model *spec, const char *root);
void model_files_end(struct model_files *files);

/* The host function. */
int32_t host_map_file(const struct shoal_model *spec, const char *name, const void **data,
                      size_t *bytes, struct shoal_error *error);

void model_files_unmap(struct model_files *files);

/* ---- model_key.c ---- */

/* The digest that a model's key states for the file of this name, as 64 digits in lower case; "":
 * none. The key may be any text; only what is a JSON object has digests. INVALID_ARGUMENT: what it
 * states is no digest. */
enum status model_key_digest(const char *key, const char *file, char digest[65],
                             struct error *error) WARN_UNUSED;
