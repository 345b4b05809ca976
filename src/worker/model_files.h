/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a model, for the host function `map_file`: mapped read-only and shared, so that all
 * workers that map a file share its pages, and compared with the digests in the model's key.
 *
 * A file's location is judged when the file is open, by the kernel's name for it (/proc/self/fd):
 * it must lie beneath the root of all models or, in a pipeline with one configured model, beneath
 * the model's own folder. So no link can be changed in between. openat2 could check that, but the
 * sandbox hides it because filters cannot see its arguments.
 *
 * A file that is truncated while it is mapped ends the worker that touches it, by SIGBUS.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <shoal/modelet.h>

#include "base/error.h"

enum { MODEL_FILES_MAX = 64 };

struct worker_model_file {
    void *data;
    size_t bytes;
};

/* The files of one model. All zero: none. */
struct model_files {
    const struct shoal_model *spec; /* during its load */
    const char *root;               /* during its load: the root, links resolved; NULL: no models
                                     * come and go */
    uint32_t count;
    uint64_t bytes; /* in whole pages */
    struct worker_model_file files[MODEL_FILES_MAX];
};

/* Makes OpenSSL's permanent allocations, which would look like a leak in the first model's
 * arena. */
void model_files_prepare(void);

/* Between model_files_begin and model_files_end, `map_file` on this thread maps for this model. */
void model_files_begin(struct model_files *files, const struct shoal_model *spec, const char *root);
void model_files_end(struct model_files *files);

/* The host function. */
int32_t host_map_file(const struct shoal_model *spec, const char *name, const void **data,
                      size_t *bytes, struct shoal_error *error);

void model_files_unmap(struct model_files *files);

/* ---- model_key.c ---- */

/* Finds the digest for a file in a model's key, as 64 lower-case hexadecimal digits; "": none.
 * The key may be any text; only a JSON object has digests. INVALID_ARGUMENT: the value is not a
 * digest. */
enum status model_key_digest(const char *key, const char *file, char digest[65],
                             struct error *error) WARN_UNUSED;
