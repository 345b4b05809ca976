/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which methods callers of a mesh may call, and where in a request the model's id is, as KServe
 * ModelMesh's data-plane configuration says it:
 *
 *     {"rpcConfigs": {"package.Service/Method": {"idExtractionPath": [1], "vModelId": true}},
 *      "allowOtherRpcs": true}
 *
 * An id at the path comes before metadata; where the field is absent or empty, metadata count. A
 * method that is not named has no path; it may be called only if `allowOtherRpcs` is true, which
 * left out it is not. Members that are not these are refused, as there: one that is misspelt would
 * otherwise go unnoticed. Where the id is put for a runtime is the runtime's to say (methodInfos).
 *
 * Threads: dataplane_set on the loop thread, dataplane_find on any.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "mesh/edge/driver.h"
#include "rpc/field_path.h"

enum { DATAPLANE_METHODS_MAX = 256, DATAPLANE_METHOD_BYTES_MAX = 255 };

struct dataplane;

/* Of one method. */
struct dataplane_rule {
    enum driver_name name; /* what the id at the path is of */
    uint32_t depth;        /* 0: there is no path */
    uint32_t numbers[FIELD_PATH_MAX];
};

/* How many methods there are, for the log. */
struct dataplane_size {
    uint32_t methods;
    bool others; /* may be called, too */
};

/* Nothing may be called yet. */
struct dataplane *dataplane_create(void);
/* NULL is left alone. */
void dataplane_destroy(struct dataplane *dataplane);

/* In place of the former. INVALID_ARGUMENT: what is wrong, and where; the former holds. */
enum status dataplane_set(struct dataplane *dataplane, const char *json, size_t bytes,
                          struct dataplane_size *size, struct error *error) WARN_UNUSED;

/* `method` as a call has it, "/package.Service/Method". UNIMPLEMENTED: it may not be called. */
enum status dataplane_find(struct dataplane *dataplane, const char *method,
                           struct dataplane_rule *rule, struct error *error) WARN_UNUSED;
