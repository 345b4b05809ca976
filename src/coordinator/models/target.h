/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pipeline, and which of its models, a call means: for every way in, by the rules of
 * DESIGN.md ("Which model a call means"). A call gives an id, in its metadata or else in the
 * request; the id is that of a pipeline without models, or of a model. Front threads and the HTTP
 * thread; locks nothing but what registry_enter does.
 */
#pragma once

#include "base/error.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/oip.h"
#include "rpc/rpc.h"

struct registry;

/* Of a mesh. What this node's pipelines load has SHOAL_NAME_BYTES_MAX, others need not. */
enum { TARGET_ID_BYTES_MAX = 1024 };

/* An id as a call gave it: UTF-8 without a zero byte. */
struct target_id {
    uint32_t bytes; /* 0: none was given */
    char text[TARGET_ID_BYTES_MAX + 1];
};

/* What `mm-model-id` and `mm-model-id-bin` of the call say; none is fine. INVALID_ARGUMENT: empty,
 * too long, not UTF-8, or not all the same. */
enum status target_id_of_call(const struct rpc_call *call, struct target_id *id,
                              struct error *error) WARN_UNUSED;

/* One value under the key `where`, of a mesh. INVALID_ARGUMENT: too long, not UTF-8. */
enum status target_id_set(struct target_id *id, const char *where, const struct rpc_span *value,
                          struct error *error) WARN_UNUSED;

/* Reads the string field at the end of `id_path`, as rpc/field_path.h finds it; none, or an
 * empty one, is fine. INVALID_ARGUMENT: malformed, of more than `bytes_max`, not UTF-8. */
enum status target_id_of_message(const struct rpc_message *message, const uint32_t *id_path,
                                 uint32_t id_path_count, size_t bytes_max, struct target_id *id,
                                 struct error *error) WARN_UNUSED;

/* A name as it stands in a path of HTTP. NOT_FOUND: nothing can have it, so long is it. */
enum status target_id_of_name(const char *name, struct target_id *id,
                              struct error *error) WARN_UNUSED;

/* Where ids are looked for. */
struct target_scope {
    struct pipeline *const *pipelines;
    uint32_t pipeline_count;
    struct registry *registry;
    bool in_mesh; /* models that are not loaded here are the mesh's business: not found */
};

struct target {
    struct pipeline *pipeline;
    struct model *model; /* NULL: the pipeline serves none. Else entered, and to be left */
    bool held;           /* it was entered as one that is loaded (models.h) */
};

/*
 * Finds the pipeline and model to answer. `bound`: the pipeline that the call's method is bound to;
 * NULL: the call came by the Open Inference Protocol. NOT_FOUND: no such id. INVALID_ARGUMENT: no
 * id where one is needed, the name of a pipeline that serves models, or an id that is called in
 * another way. Only of STATUS_OK there is something to leave.
 */
enum status target_find(const struct target_scope *scope, struct pipeline *bound,
                        const struct target_id *id, struct target *target,
                        struct error *error) WARN_UNUSED;

/* Whether the id is not the name of a pipeline. */
bool target_is_model(const struct target_scope *scope, const struct target_id *id);

/* Of a target that was refused later: what a pipeline has taken it leaves itself. */
void target_leave(struct target *target);

/* Describes an id, for readiness and metadata. NOT_FOUND; or `info`, which is valid until
 * target_forget. */
struct target_told {
    struct lane *lane;   /* NULL: none to give back */
    struct model *model; /* likewise */
};

enum status target_tell(const struct target_scope *scope, const char *id,
                        struct oip_model_info *info, bool *ready, struct target_told *told,
                        struct error *error) WARN_UNUSED;
void target_forget(struct target_told *told);
