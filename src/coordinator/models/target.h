/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds the pipeline and the model that a call means, over gRPC and HTTP, by the rules of DESIGN.md
 * ("Which model a call means"). The id, in the call's metadata or else in the request, is that of a
 * pipeline without models or of a model. Front threads and the HTTP thread; takes no lock except in
 * registry_enter.
 */
#pragma once

#include "base/error.h"
#include "coordinator/models/models.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/oip.h"
#include "rpc/rpc.h"

/* The limit in a mesh. Ids of models in this node's pipelines have SHOAL_NAME_BYTES_MAX at most. */
enum { TARGET_ID_BYTES_MAX = 1024 };

/* An id as a call gave it: UTF-8 without a zero byte. */
struct target_id {
    uint32_t bytes; /* 0: none was given */
    char text[TARGET_ID_BYTES_MAX + 1];
};

/* Reads one value of metadata, which errors call `where`. INVALID_ARGUMENT: longer than
 * `bytes_max`, which is at most TARGET_ID_BYTES_MAX, or not UTF-8. */
enum status target_id_set(struct target_id *id, const char *where, const struct wire_span *value,
                          size_t bytes_max, struct error *error) WARN_UNUSED;

/* Reads the id that a request has there. INVALID_ARGUMENT: longer than `bytes_max`, not UTF-8. */
enum status target_id_read(struct target_id *id, struct wire_cursor found, size_t bytes_max,
                           struct error *error) WARN_UNUSED;

/* Reads the version that a request has there. One that no release can have is "": it is refused
 * when the request is decoded. */
void target_version_read(char version[MODEL_RELEASE_BYTES], struct wire_cursor found);

/* Reads the string field at `id_path` (wire/field_path.h); none, or an empty one, is no error.
 * INVALID_ARGUMENT: malformed, longer than `bytes_max`, not UTF-8. */
enum status target_id_of_message(const struct wire_message *message, const uint32_t *id_path,
                                 uint32_t id_path_count, size_t bytes_max, struct target_id *id,
                                 struct error *error) WARN_UNUSED;

/* The places in which ids are looked up. */
struct target_scope {
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct model_registry *registry;
    bool in_mesh; /* models that are not loaded here count as not found: the mesh has them */
};

struct target {
    struct pipeline *pipeline;
    struct model *model; /* entered, and to be left; NULL: the pipeline serves no models */
    bool held;           /* it was entered by registry_enter_loaded */
};

/*
 * Finds the pipeline and model that answer. `bound`: the pipeline that the call's method is bound
 * to; NULL: the call uses the Open Inference Protocol. `version` "": any; whether the target has it
 * is found by oip_check_version. NOT_FOUND: no such id. INVALID_ARGUMENT: no
 * id where one is needed, the name of a pipeline that serves models, or an id that must be called
 * in another way. After any other result than STATUS_OK there is nothing to leave.
 */
enum status target_find(const struct target_scope *scope, struct pipeline *bound,
                        const struct target_id *id, const char *version, struct target *target,
                        struct error *error) WARN_UNUSED;

/* Returns whether the id is not the name of a pipeline. */
bool target_is_model(const struct target_scope *scope, const struct target_id *id);

/* Leaves a target that is refused later; a pipeline that took the request leaves the model
 * itself. */
void target_leave(struct target *target);

/* Describes an id for ModelReady and ModelMetadata. NOT_FOUND: no such id; else `info` is valid
 * until target_forget. */
struct target_description {
    struct lane *lane;              /* to be released; NULL: none */
    struct model_description model; /* its model likewise */
};

enum status target_describe(const struct target_scope *scope, const struct oip_named *named,
                            struct oip_model_info *info, bool *ready,
                            struct target_description *reported, struct error *error) WARN_UNUSED;
void target_forget(struct target_description *reported);
