/* SPDX-License-Identifier: Apache-2.0 */
/*
 * InferenceObjective documents, as the Gateway API Inference Extension has them:
 *
 *     kind: InferenceObjective
 *     metadata: { name: batch }
 *     spec: { priority: -1 }
 *
 * Without a priority it is 0. `apiVersion` and `poolRef` are accepted and not used.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"

enum { OBJECTIVES_MAX = 1024 };

struct gateway_objective {
    uint64_t name; /* gateway_name_hash */
    int32_t priority;
};

/* INVALID_ARGUMENT with path, line and mistake; other kinds, more than OBJECTIVES_MAX and a name
 * that comes twice are mistakes. */
enum status objective_file_read(const char *path,
                                struct gateway_objective objectives[OBJECTIVES_MAX],
                                uint32_t *count, struct error *error) WARN_UNUSED;
