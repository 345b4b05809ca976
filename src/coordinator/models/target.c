/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/target.h"

#include <string.h>

#include "coordinator/models/models.h"
#include "wire/field_path.h"

#define METADATA "mm-model-id"

/* ---- ids ---- */

/* `id->text` holds the caller's `bytes` bytes. */
static enum status
check_id(struct target_id *id, const char *where, struct error *error)
{
    if (!wire_text_ok((const unsigned char *)id->text, id->bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: a model's id must be UTF-8 without a zero byte", where);
    id->text[id->bytes] = '\0';
    return STATUS_OK;
}

static enum status
too_long(const char *where, uint64_t bytes, size_t bytes_max, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s: a model's id has at most %zu bytes, not %llu", where, bytes_max,
                     (unsigned long long)bytes);
}

enum status
target_id_set(struct target_id *id, const char *where, const struct wire_span *value,
              size_t bytes_max, struct error *error)
{
    if (value->bytes > bytes_max)
        return too_long(where, value->bytes, bytes_max, error);
    memcpy(id->text, value->data, value->bytes);
    id->bytes = (uint32_t)value->bytes;
    return check_id(id, where, error);
}

enum status
target_id_read(struct target_id *id, struct wire_cursor found, size_t bytes_max,
               struct error *error)
{
    if (found.left > bytes_max)
        return too_long("the request", found.left, bytes_max, error);
    id->bytes = (uint32_t)found.left;
    wire_read(&found, id->text, found.left);
    return check_id(id, "the request", error);
}

void
target_version_read(char version[MODEL_RELEASE_BYTES], struct wire_cursor found)
{
    size_t bytes = found.left < MODEL_RELEASE_BYTES ? found.left : 0;
    wire_read(&found, version, bytes);
    version[bytes] = '\0';
}

enum status
target_id_of_message(const struct wire_message *message, const uint32_t *id_path,
                     uint32_t id_path_count, size_t bytes_max, struct target_id *id,
                     struct error *error)
{
    struct wire_cursor found;
    bool any;
    id->bytes = 0;
    enum status status = field_path_find(message, id_path, id_path_count, &found, &any, error);
    return status == STATUS_OK && any ? target_id_read(id, found, bytes_max, error) : status;
}

static enum status
not_known(const char *name, struct error *error)
{
    return error_set(error, STATUS_NOT_FOUND,
                     "Request for unknown model: \"%.200s\" is not known to this node", name);
}

/* ---- the pipeline that answers ---- */

static enum status
no_id(const struct pipeline *bound, struct error *error)
{
    if (bound == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "no model is named: neither model_name nor metadata " METADATA
                         " is given");
    struct pipeline_method method = pipeline_method(bound);
    char path[FIELD_PATH_TEXT_BYTES];
    field_path_text(method.id_path, method.id_path_count, path);
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "no model is named: %s needs its id in metadata " METADATA "%s%s", method.path,
                     method.id_path_count > 0 ? ", or in the request's field " : "", path);
}

/* Returns whether the id's pipeline may be called in this way. */
static enum status
check_way(const struct pipeline *pipeline, const struct pipeline *bound, const char *id,
          struct error *error)
{
    struct pipeline_method method = pipeline_method(pipeline);
    if (bound != NULL ? pipeline == bound : method.path == NULL)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "model \"%s\" is called by %s, not by %s", id,
                     method.path != NULL ? method.path : "the Open Inference Protocol",
                     bound != NULL ? pipeline_method(bound).path : "the Open Inference Protocol");
}

static enum status
find_by_id(const struct target_scope *scope, const struct target_id *id, const char *version,
           struct target *target, struct error *error)
{
    const struct model_name name = {id->text, id->bytes, version};
    target->pipeline = pipeline_find(scope->pipelines, scope->pipeline_count, id->text, id->bytes);
    if (target->pipeline == NULL) {
        target->held = scope->in_mesh;
        target->model = scope->in_mesh ? registry_enter_loaded(scope->registry, id->text, id->bytes,
                                                               MODEL_COUNTED, &target->pipeline)
                                       : registry_enter(scope->registry, &name, &target->pipeline);
        return target->model != NULL ? STATUS_OK : not_known(id->text, error);
    }
    if (target->pipeline->catalog == NULL)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "pipeline \"%s\" serves models: name one of them", id->text);
}

enum status
target_find(const struct target_scope *scope, struct pipeline *bound, const struct target_id *id,
            const char *version, struct target *target, struct error *error)
{
    *target = (struct target){.pipeline = bound};
    if (id->bytes == 0)
        return bound != NULL && bound->catalog == NULL ? STATUS_OK : no_id(bound, error);
    enum status status = find_by_id(scope, id, version, target, error);
    if (status != STATUS_OK)
        return status;
    status = check_way(target->pipeline, bound, id->text, error);
    if (status != STATUS_OK)
        target_leave(target);
    return status;
}

bool
target_is_model(const struct target_scope *scope, const struct target_id *id)
{
    return pipeline_find(scope->pipelines, scope->pipeline_count, id->text, id->bytes) == NULL;
}

void
target_leave(struct target *target)
{
    if (target->model != NULL && target->held)
        model_leave_loaded(target->model);
    else if (target->model != NULL)
        model_leave(target->model);
    target->model = NULL;
}

/* ---- descriptions of targets ---- */

enum status
target_describe(const struct target_scope *scope, const struct oip_named *named,
                struct oip_model_info *info, bool *ready, struct target_description *reported,
                struct error *error)
{
    const char *id = named->name;
    const struct model_name name = {id, strlen(id), named->version};
    reported->lane = NULL;
    reported->model.model = NULL;
    struct pipeline *pipeline =
        pipeline_find(scope->pipelines, scope->pipeline_count, id, strlen(id));
    if (pipeline != NULL)
        reported->lane = pipeline_describe(pipeline, info, ready);
    else if (!registry_describe(scope->registry, &name, info, &reported->model))
        return not_known(id, error);
    else
        *ready = reported->model.ready;
    return STATUS_OK;
}

void
target_forget(struct target_description *reported)
{
    if (reported->lane != NULL)
        lane_unref(reported->lane);
    if (reported->model.model != NULL)
        model_leave(reported->model.model);
    reported->lane = NULL;
    reported->model.model = NULL;
}
