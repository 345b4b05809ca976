/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The methods that callers of a mesh may call, and the place of the model's id in their requests,
 * as in KServe ModelMesh's data-plane configuration:
 *
 *     {"rpcConfigs": {"package.Service/Method": {"idExtractionPath": [1], "vModelId": true}},
 *      "allowOtherRpcs": true}
 *
 * An id at the path beats metadata; if the field is absent or empty, metadata count. A method that
 * is not named has no path and may be called only if `allowOtherRpcs` is true (default: false).
 * Other members are refused, as there, so that no misspelling goes unnoticed. A runtime's
 * methodInfos decide where the id is put for that runtime.
 *
 * Threads: dataplane_set on the loop thread, dataplane_find on any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "mesh/edge/runner.h"
#include "wire/field_path.h"

enum { DATAPLANE_METHODS_MAX = 256, DATAPLANE_METHOD_BYTES_MAX = 255 };

struct dataplane;

/* The rule of one method. */
struct dataplane_rule {
    enum runner_name name; /* whether the id at the path is a model's or a vmodel's */
    uint32_t depth;        /* 0: no path */
    uint32_t numbers[FIELD_PATH_MAX];
};

/* Sizes for the log. */
struct dataplane_size {
    uint32_t methods; /* that are named */
    bool others;      /* others may be called, too */
};

/* No method may be called yet. */
struct dataplane *dataplane_create(void);
/* NULL is ignored. */
void dataplane_destroy(struct dataplane *dataplane);

/* Replaces the configuration. INVALID_ARGUMENT says what is wrong and where; the previous one
 * holds.
 */
enum status dataplane_set(struct dataplane *dataplane, const char *json, size_t bytes,
                          struct dataplane_size *size, struct error *error) WARN_UNUSED;

/* `method` is "/package.Service/Method". UNIMPLEMENTED: it may not be called. `dataplane` NULL:
 * each may, without a path. */
enum status dataplane_find(struct dataplane *dataplane, const char *method,
                           struct dataplane_rule *rule, struct error *error) WARN_UNUSED;
