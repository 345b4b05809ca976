/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_listed.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/mesh/mesh_request.h"
#include "mesh/core/mesh_core.h"
#include "mesh/record/json.h"

#define MODEL "modelId"
#define INFO "modelInfo"
#define VMODEL "vModelId"
#define RETAIN "retainAfterTransition"
#define LOADED "ensureLoaded"

/* ---- an entry ---- */

enum need { MAY_BE_EMPTY, NOT_EMPTY };

static enum status
read_text(json_t *object, const char *field, enum need need, size_t bytes_max, const char **text,
          struct error *error)
{
    const char *found = NULL;
    if (record_json_text(object, field, &found, error) != STATUS_OK)
        return error->status;
    if (need == NOT_EMPTY && (found == NULL || found[0] == '\0'))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: must be given, and not empty", field);
    if (found != NULL && strlen(found) > bytes_max)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: has %zu bytes: must be at most %zu",
                         field, strlen(found), bytes_max);
    *text = found == NULL || found[0] == '\0' ? NULL : found;
    return STATUS_OK;
}

static enum status
read_info(json_t *entry, struct mesh_listed_model *model, struct error *error)
{
    json_t *info;
    if (record_json_object(entry, INFO, &info, error) != STATUS_OK)
        return error->status;
    if (info == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, INFO ": must be given, with \"type\"");
    if (read_text(info, "type", NOT_EMPTY, MESH_ID_BYTES_MAX, &model->type, error) != STATUS_OK ||
        read_text(info, "path", MAY_BE_EMPTY, MESH_REQUEST_PATH_BYTES_MAX, &model->path, error) !=
            STATUS_OK ||
        read_text(info, "key", MAY_BE_EMPTY, MESH_REQUEST_KEY_BYTES_MAX, &model->key, error) !=
            STATUS_OK)
        return error_prefix(error, INFO);
    return STATUS_OK;
}

static enum status
read_vmodel(json_t *entry, struct mesh_listed_model *model, struct error *error)
{
    bool retain = false;
    json_t *given = json_object_get(entry, VMODEL);
    bool none = given == NULL || json_is_null(given);
    if (record_json_bool(entry, RETAIN, &retain, error) != STATUS_OK)
        return error->status;
    if (none && retain)
        return error_set(error, STATUS_INVALID_ARGUMENT, RETAIN ": only beside a " VMODEL);
    model->auto_delete = !none && !retain;
    return none ? STATUS_OK
                : read_text(entry, VMODEL, NOT_EMPTY, MESH_ID_BYTES_MAX, &model->vmodel, error);
}

static enum status
read_entry(json_t *entry, struct mesh_listed_model *model, struct error *error)
{
    if (!json_is_object(entry))
        return error_set(error, STATUS_INVALID_ARGUMENT, "expected an object");
    if (read_text(entry, MODEL, NOT_EMPTY, MESH_ID_BYTES_MAX, &model->model, error) != STATUS_OK)
        return error->status;
    if (read_info(entry, model, error) != STATUS_OK ||
        read_vmodel(entry, model, error) != STATUS_OK ||
        record_json_bool(entry, LOADED, &model->ensure_loaded, error) != STATUS_OK)
        return error_prefix(error, "\"%.100s\"", model->model);
    return STATUS_OK;
}

/* ---- entries beside each other ---- */

static int
compare(const char *a, const char *b)
{
    return strcmp(a == NULL ? "" : a, b == NULL ? "" : b);
}

static int
by_model(const void *a, const void *b)
{
    const struct mesh_listed_model *const *one = a, *const *other = b;
    return compare((*one)->model, (*other)->model);
}

static int
by_vmodel(const void *a, const void *b)
{
    const struct mesh_listed_model *const *one = a, *const *other = b;
    return compare((*one)->vmodel, (*other)->vmodel);
}

static bool
is_other_model(const struct mesh_listed_model *one, const struct mesh_listed_model *other)
{
    return compare(one->model, other->model) == 0 &&
           (compare(one->type, other->type) != 0 || compare(one->path, other->path) != 0 ||
            compare(one->key, other->key) != 0 || one->auto_delete != other->auto_delete);
}

static bool
is_other_target(const struct mesh_listed_model *one, const struct mesh_listed_model *other)
{
    return one->vmodel != NULL && compare(one->vmodel, other->vmodel) == 0 &&
           compare(one->model, other->model) != 0;
}

static enum status
check_together(const struct mesh_listed *listed, struct error *error)
{
    const struct mesh_listed_model **sorted =
        calloc(listed->count + 1, sizeof(struct mesh_listed_model *));
    CHECK(sorted != NULL);
    for (uint32_t i = 0; i < listed->count; i++)
        sorted[i] = &listed->models[i];
    enum status status = STATUS_OK;
    qsort(sorted, listed->count, sizeof(struct mesh_listed_model *), by_model);
    for (uint32_t i = 1; i < listed->count && status == STATUS_OK; i++)
        if (is_other_model(sorted[i - 1], sorted[i]))
            status = error_set(error, STATUS_INVALID_ARGUMENT,
                               "\"%.100s\" is in several entries, which must have the same " INFO
                               ", and all or none a " VMODEL " without " RETAIN,
                               sorted[i]->model);
    qsort(sorted, listed->count, sizeof(struct mesh_listed_model *), by_vmodel);
    for (uint32_t i = 1; i < listed->count && status == STATUS_OK; i++)
        if (is_other_target(sorted[i - 1], sorted[i]))
            status =
                error_set(error, STATUS_INVALID_ARGUMENT,
                          "the vmodel \"%.100s\" is in several entries, with different models: "
                          "it has one",
                          sorted[i]->vmodel);
    free(sorted);
    return status;
}

/* ---- the list ---- */

static json_t *
entry_at(json_t *root, size_t index)
{
    return json_is_array(root) ? json_array_get(root, index) : root;
}

static enum status
read_entries(struct mesh_listed *listed, size_t count, struct error *error)
{
    for (size_t i = 0; i < count; i++)
        if (read_entry(entry_at(listed->root, i), &listed->models[listed->count++], error) !=
            STATUS_OK)
            return error_prefix(error, "entry %zu", i + 1);
    return check_together(listed, error);
}

enum status
mesh_listed_read(const char *json, size_t bytes, struct mesh_listed **made, struct error *error)
{
    json_t *root = NULL;
    if (record_json_load(json, bytes, &root, error) != STATUS_OK)
        return error->status;
    size_t count = json_is_array(root) ? json_array_size(root) : 1;
    if ((!json_is_array(root) && !json_is_object(root)) || count > MESH_LISTED_MAX) {
        json_decref(root);
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "must be a list of at most %d objects, or one object", MESH_LISTED_MAX);
    }
    struct mesh_listed *listed = calloc(1, sizeof(*listed) + count * sizeof(listed->models[0]));
    CHECK(listed != NULL);
    listed->root = root;
    if (read_entries(listed, count, error) == STATUS_OK) {
        *made = listed;
        return STATUS_OK;
    }
    mesh_listed_destroy(listed);
    return error->status;
}

void
mesh_listed_destroy(struct mesh_listed *listed)
{
    if (listed == NULL)
        return;
    json_decref(listed->root);
    free(listed);
}
