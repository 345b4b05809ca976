/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that a node registers when it starts, as KServe ModelMesh's MM_AUTO_REGISTER_MODELS
 * lists them:
 *
 *     [{"modelId": "m", "modelInfo": {"type": "t", "path": "p", "key": "k"}, "vModelId": "v",
 *       "retainAfterTransition": false, "ensureLoaded": true}, …]
 *
 * or one such object alone. `modelId` and `type` are required. Other members are ignored, as there.
 * The order of the list has no meaning, so entries that disagree on a model, or on a vmodel's
 * model, are refused. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { MESH_LISTED_MAX = 4096 };

/* Texts that are left out or empty are NULL. */
struct mesh_listed_model {
    const char *model;
    const char *type;
    const char *path;
    const char *key;
    const char *vmodel;
    bool auto_delete; /* with the last vmodel that has it */
    bool ensure_loaded;
};

struct mesh_listed {
    uint32_t count;
    struct json_t *root; /* owns the texts */
    struct mesh_listed_model models[];
};

/* INVALID_ARGUMENT names the entry, the member and the mistake. */
enum status mesh_listed_read(const char *json, size_t bytes, struct mesh_listed **listed,
                             struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void mesh_listed_destroy(struct mesh_listed *listed);
