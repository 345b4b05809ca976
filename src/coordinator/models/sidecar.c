/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/sidecar.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/models/pbtxt.h"
#include "ipc/spec.h"

/* Other servers' names for a format. */
static const struct {
    const char *name, *format;
} names[] = {
    {"onnxruntime_onnx", "onnx"},
    {"onnxruntime", "onnx"},
    {"onnx", "onnx"},
    {"fil", "xgboost"},
    {"xgboost", "xgboost"},
    {"mlserver_xgboost.XGBoostModel", "xgboost"},
    {"mlp", "mlp"},
};

enum { ROWS_DIGITS_MAX = 9 };

const char *const sidecar_files[SIDECAR_KINDS] = {"config.pbtxt", "model-settings.json"};

struct sidecar_asked {
    struct sidecar *sidecar;
    const char *id;
};

/* NULL: no format has that name. */
static const struct model_format *
format_named(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        for (size_t k = 0; k < FORMAT_COUNT; k++)
            if (strcmp(names[i].name, name) == 0 &&
                strcmp(model_formats[k].name, names[i].format) == 0)
                return &model_formats[k];
    return NULL;
}

static enum status
take_format(struct sidecar *sidecar, const char *member, const char *name, struct error *error)
{
    const struct model_format *format = format_named(name);
    if (format != NULL) {
        sidecar->format = format;
        sidecar->format_member = member;
        return STATUS_OK;
    }
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "%s: \"%.60s\" is not served here: xgboost, onnx and mlp are", member, name);
}

static enum status
check_id(const char *id, const char *name, struct error *error)
{
    if (strcmp(id, name) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "name: \"%.127s\" is not the name of the model's folder", name);
}

/* Names each member once, one without a name as ""; what finds no room is cut off. */
static void
ignore(char list[SIDECAR_IGNORED_BYTES], const char *member, size_t bytes)
{
    char name[64];
    size_t used = strlen(list);
    const char *found = list;
    if (bytes == 0) { /* it would be found everywhere, forever */
        member = "\"\"";
        bytes = strlen(member);
    }
    bytes = (size_t)snprintf(name, sizeof(name), "%.*s", bytes < 60 ? (int)bytes : 60, member);
    while ((found = strstr(found, name)) != NULL) {
        if (found[bytes] == ',' || found[bytes] == '\0')
            return;
        found += bytes;
    }
    snprintf(list + used, SIDECAR_IGNORED_BYTES - used, "%s%s", used > 0 ? ", " : "", name);
}

enum status
sidecar_check_format(const struct sidecar *sidecar, const struct model_format *format,
                     struct error *error)
{
    if (sidecar->format == NULL || format == NULL || sidecar->format == format)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s says %s, but the file is of format %s",
                     sidecar->format_member, sidecar->format->name, format->name);
}

enum status
sidecar_check_loaded(const struct sidecar *sidecar, const struct oip_model_info *model,
                     struct error *error)
{
    enum status status = sidecar_check_format(sidecar, format_named(model->platform), error);
    return status == STATUS_OK ? sidecar_check_tensors(&sidecar->tensors, model, error) : status;
}

/* ---- tensors ---- */

/* Begins one at each message `input` or `output`. Too many are not compared. */
static void
take_tensor(struct sidecar_tensors *tensors, const struct pbtxt_item *item)
{
    struct sidecar_tensor *last = &tensors->at[tensors->count - (tensors->count > 0)];
    const char *member = strchr(item->path, '.');
    if (member == NULL && item->kind == PBTXT_MESSAGE && tensors->count == SIDECAR_TENSORS_MAX)
        tensors->has_more = true;
    if (tensors->has_more)
        return;
    if (member == NULL && item->kind == PBTXT_MESSAGE) {
        last = &tensors->at[tensors->count++];
        *last = (struct sidecar_tensor){.rank = 0};
        snprintf(last->member, sizeof(last->member), "%s", item->path);
    } else if (member == NULL || item->kind != PBTXT_VALUE || tensors->count == 0) {
        return;
    } else if (strcmp(member, ".name") == 0) {
        snprintf(last->name, sizeof(last->name), "%.63s", item->text);
    } else if (strcmp(member, ".data_type") == 0) {
        snprintf(last->datatype, sizeof(last->datatype), "%.15s", item->text);
    } else if (strcmp(member, ".dims") == 0 && last->rank < SHOAL_RANK_MAX) {
        last->shape[last->rank++] = strtoll(item->text, NULL, 10);
    }
}

static bool
is_type(const char *name, uint32_t datatype)
{
    const char *wanted = strcmp(name, "TYPE_STRING") == 0 ? "TYPE_BYTES" : name;
    if (name[0] == '\0' || datatype == SHOAL_DATATYPE_ANY)
        return true;
    return strncmp(wanted, "TYPE_", strlen("TYPE_")) == 0 &&
           strcmp(wanted + strlen("TYPE_"), datatype_name(datatype)) == 0;
}

/* -1 on either side fits everything. */
static bool
is_shape(const struct sidecar_tensor *tensor, uint32_t batch, const struct handshake_tensor *spec)
{
    if (spec->rank == SHOAL_RANK_ANY)
        return true;
    if (tensor->rank + batch != spec->rank)
        return false;
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (tensor->shape[i] != spec->shape[i + batch] && tensor->shape[i] >= 0 &&
            spec->shape[i + batch] >= 0)
            return false;
    return true;
}

enum status
sidecar_check_tensors(const struct sidecar_tensors *tensors, const struct oip_model_info *model,
                      struct error *error)
{
    for (uint32_t i = 0; i < tensors->count; i++) {
        const struct sidecar_tensor *tensor = &tensors->at[i];
        bool is_input = strcmp(tensor->member, "input") == 0;
        const struct handshake_tensor *spec =
            spec_find(is_input ? model->inputs : model->outputs,
                      is_input ? model->input_count : model->output_count, tensor->name);
        if (spec == NULL)
            continue;
        bool fits = is_type(tensor->datatype, spec->datatype);
        if (fits && is_shape(tensor, tensors->rows_max > 0, spec))
            continue;
        return error_set(error, STATUS_FAILED_PRECONDITION, "%s \"%s\": the model has other %s",
                         tensor->member, tensor->name, fits ? "dims" : "data_type");
    }
    return STATUS_OK;
}

/* ---- Triton ---- */

static enum status
take_number(struct release_policy *policy, const char *number, struct error *error)
{
    size_t bytes = strlen(number);
    if (bytes == 0 || bytes >= RELEASE_POLICY_NUMBER_BYTES || number[0] == '0' ||
        strspn(number, "0123456789") != bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "version_policy: \"%.40s\" is not a whole number of 1 to 18 digits",
                         number);
    if (policy->kind == RELEASES_LATEST) {
        unsigned long count = strtoul(number, NULL, 10);
        policy->count = count < RELEASE_POLICY_MAX ? (uint32_t)count : RELEASE_POLICY_MAX;
        return STATUS_OK;
    }
    if (policy->count == RELEASE_POLICY_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "version_policy: more than %d versions are not served at once",
                         RELEASE_POLICY_MAX);
    memcpy(policy->numbers[policy->count++], number, bytes + 1);
    return STATUS_OK;
}

static enum status
take_policy(struct release_policy *policy, const struct pbtxt_item *item, struct error *error)
{
    const char *path = item->path + strlen("version_policy");
    if (path[0] == '\0' && item->kind == PBTXT_MESSAGE)
        return STATUS_OK;
    for (int kind = RELEASES_LATEST; kind <= RELEASES_SPECIFIC; kind++) {
        static const char *const kinds[] = {".latest", ".all", ".specific"};
        if (strcmp(path, kinds[kind]) == 0 && item->kind == PBTXT_MESSAGE) {
            *policy = (struct release_policy){.kind = kind};
            return STATUS_OK;
        }
    }
    if (item->kind == PBTXT_VALUE &&
        (strcmp(path, ".latest.num_versions") == 0 || strcmp(path, ".specific.versions") == 0))
        return take_number(policy, item->text, error);
    return error_set(error, STATUS_INVALID_ARGUMENT, "version_policy: %.80s is not known",
                     path + 1);
}

static enum status
take_rows(struct sidecar_tensors *tensors, const char *number, struct error *error)
{
    size_t bytes = strlen(number);
    if (bytes == 0 || bytes > ROWS_DIGITS_MAX || strspn(number, "0123456789") != bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "max_batch_size: \"%.40s\" is not a whole number of at most %d digits",
                         number, ROWS_DIGITS_MAX);
    tensors->rows_max = (uint32_t)strtoul(number, NULL, 10);
    return STATUS_OK;
}

static enum status
visit_triton(void *context, const struct pbtxt_item *item, struct error *error)
{
    const struct sidecar_asked *asked = context;
    struct sidecar *sidecar = asked->sidecar;
    const char *path = item->path;
    size_t first = strcspn(path, ".");
    bool is_value = item->kind == PBTXT_VALUE && path[first] == '\0';
    if (is_value && strcmp(path, "name") == 0)
        return check_id(asked->id, item->text, error);
    if (is_value && (strcmp(path, "platform") == 0 || strcmp(path, "backend") == 0))
        return item->text[0] == '\0' ? STATUS_OK
                                     : take_format(sidecar, path[0] == 'p' ? "platform" : "backend",
                                                   item->text, error);
    if (strncmp(path, "version_policy", first) == 0 && first == strlen("version_policy"))
        return take_policy(&sidecar->policy, item, error);
    if (is_value && strcmp(path, "max_batch_size") == 0)
        return take_rows(&sidecar->tensors, item->text, error);
    bool is_tensor = strncmp(path, "input", first) == 0 || strncmp(path, "output", first) == 0;
    if (is_tensor && first >= strlen("input"))
        take_tensor(&sidecar->tensors, item);
    else
        ignore(sidecar->ignored[SIDECAR_TRITON], path, first);
    return STATUS_OK;
}

enum status
sidecar_read_triton(struct sidecar *sidecar, const char *id, const char *text, size_t bytes,
                    struct error *error)
{
    struct sidecar_asked asked = {sidecar, id};
    enum status status = pbtxt_read(text, bytes, visit_triton, &asked, error);
    return status == STATUS_OK ? status : error_prefix(error, "%s", sidecar_files[SIDECAR_TRITON]);
}

/* ---- Triton, as JSON ---- */

enum { ORDER_PATH_BYTES = 128 };

static enum status visit_members(const struct sidecar_asked *asked, const char *path,
                                 json_t *object, uint32_t depth, struct error *error);

/* The text of a number, a truth value or a string, which is cut. */
static void
scalar_text(const json_t *value, char text[PBTXT_TEXT_BYTES])
{
    if (json_is_string(value))
        snprintf(text, PBTXT_TEXT_BYTES, "%s", json_string_value(value));
    else if (json_is_integer(value))
        snprintf(text, PBTXT_TEXT_BYTES, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, PBTXT_TEXT_BYTES, "%.17g", json_real_value(value));
    else
        snprintf(text, PBTXT_TEXT_BYTES, "%s", json_is_true(value) ? "true" : "false");
}

static enum status
visit_value(const struct sidecar_asked *asked, const char *path, json_t *value, uint32_t depth,
            struct error *error)
{
    char text[PBTXT_TEXT_BYTES] = "";
    struct pbtxt_item item = {.kind = PBTXT_MESSAGE, .path = path, .text = text};
    enum status status = STATUS_OK;
    if (depth == PBTXT_DEPTH_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "nested too deeply");
    if (json_is_null(value))
        return STATUS_OK;
    if (json_is_array(value)) {
        for (size_t i = 0; i < json_array_size(value) && status == STATUS_OK; i++)
            status = visit_value(asked, path, json_array_get(value, i), depth + 1, error);
        return status;
    }
    if (!json_is_object(value)) {
        item.kind = PBTXT_VALUE;
        scalar_text(value, text);
    }
    status = visit_triton((void *)(uintptr_t)asked, &item, error);
    return status == STATUS_OK && json_is_object(value)
               ? visit_members(asked, path, value, depth + 1, error)
               : status;
}

/* Appends a member's name, or its form in JSON ("maxBatchSize"), as protobuf has it. False: the
 * path is too long. */
static bool
extend_path(char path[ORDER_PATH_BYTES], const char *member)
{
    size_t used = strlen(path);
    if (used > 0)
        path[used++] = '.';
    for (; *member != '\0' && used + 2 < ORDER_PATH_BYTES; member++) {
        bool is_upper = *member >= 'A' && *member <= 'Z';
        if (is_upper)
            path[used++] = '_';
        path[used++] = is_upper ? (char)(*member - 'A' + 'a') : *member;
    }
    path[used] = '\0';
    return *member == '\0';
}

static enum status
visit_members(const struct sidecar_asked *asked, const char *path, json_t *object, uint32_t depth,
              struct error *error)
{
    for (void *at = json_object_iter(object); at != NULL; at = json_object_iter_next(object, at)) {
        char longer[ORDER_PATH_BYTES];
        snprintf(longer, sizeof(longer), "%s", path);
        if (!extend_path(longer, json_object_iter_key(at)))
            return error_set(error, STATUS_INVALID_ARGUMENT, "names are too long");
        if (visit_value(asked, longer, json_object_iter_value(at), depth, error) != STATUS_OK)
            return error->status;
    }
    return STATUS_OK;
}

/* The caller of an order does not see the log. */
static enum status
refuse_ignored(const char *ignored, struct error *error)
{
    static const char harmless[] = "dynamic_batching";
    if (ignored[0] == '\0' || strcmp(ignored, harmless) == 0)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "not supported: leave out %s", ignored);
}

enum status
sidecar_read_order(struct sidecar *sidecar, const char *id, const char *text, size_t bytes,
                   struct error *error)
{
    const struct sidecar_asked asked = {sidecar, id};
    json_error_t mistake;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &mistake);
    enum status status = json_is_object(root)
                             ? visit_members(&asked, "", root, 0, error)
                             : error_set(error, STATUS_INVALID_ARGUMENT, "%s",
                                         root == NULL ? mistake.text : "it is not a JSON object");
    json_decref(root);
    if (status == STATUS_OK)
        status = refuse_ignored(sidecar->ignored[SIDECAR_TRITON], error);
    return status == STATUS_OK ? status : error_prefix(error, "config");
}

/* ---- MLServer ---- */

static enum status
take_text(char *room, size_t room_bytes, const char *member, const char *text, struct error *error)
{
    if (strlen(text) >= room_bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: has %zu bytes: at most %zu", member,
                         strlen(text), room_bytes - 1);
    memcpy(room, text, strlen(text) + 1);
    return STATUS_OK;
}

/* A path relative to the folder; where it leads is judged when it is opened. */
static enum status
take_uri(struct sidecar *sidecar, const char *uri, struct error *error)
{
    while (strncmp(uri, "./", 2) == 0)
        uri += 2;
    if (uri[0] == '/' || strstr(uri, "://") != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "parameters.uri: must be relative to the model's folder");
    return strcmp(uri, ".") == 0
               ? STATUS_OK
               : take_text(sidecar->file, sizeof(sidecar->file), "parameters.uri", uri, error);
}

static enum status
take_parameter(struct sidecar *sidecar, const char *member, const json_t *value,
               struct error *error)
{
    char path[64];
    const char *text = json_string_value(value);
    if (text != NULL && strcmp(member, "uri") == 0)
        return take_uri(sidecar, text, error);
    if (text != NULL && strcmp(member, "version") == 0)
        return take_text(sidecar->version, sizeof(sidecar->version), "parameters.version", text,
                         error);
    int bytes = snprintf(path, sizeof(path), "parameters.%.40s", member);
    ignore(sidecar->ignored[SIDECAR_MLSERVER], path, (size_t)bytes);
    return STATUS_OK;
}

static enum status
take_setting(struct sidecar_asked *asked, const char *member, json_t *value, struct error *error)
{
    const char *text = json_string_value(value);
    if (text != NULL && strcmp(member, "name") == 0)
        return check_id(asked->id, text, error);
    if (text != NULL && strcmp(member, "implementation") == 0)
        return take_format(asked->sidecar, "implementation", text, error);
    if (json_is_object(value) && strcmp(member, "parameters") == 0) {
        const char *name;
        json_t *parameter;
        json_object_foreach(value, name,
                            parameter) if (take_parameter(asked->sidecar, name, parameter, error) !=
                                           STATUS_OK) return error->status;
        return STATUS_OK;
    }
    ignore(asked->sidecar->ignored[SIDECAR_MLSERVER], member, strlen(member));
    return STATUS_OK;
}

enum status
sidecar_read_mlserver(struct sidecar *sidecar, const char *id, const char *text, size_t bytes,
                      struct error *error)
{
    struct sidecar_asked asked = {sidecar, id};
    json_error_t mistake;
    const char *member;
    json_t *value;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &mistake);
    if (!json_is_object(root)) {
        error_set(error, STATUS_INVALID_ARGUMENT, "%s: line %d: %s",
                  sidecar_files[SIDECAR_MLSERVER], root == NULL ? mistake.line : 1,
                  root == NULL ? mistake.text : "not an object");
        json_decref(root);
        return error->status;
    }
    enum status status = STATUS_OK;
    json_object_foreach(root, member, value) if (status == STATUS_OK) status =
        take_setting(&asked, member, value, error);
    json_decref(root);
    return status == STATUS_OK ? status
                               : error_prefix(error, "%s", sidecar_files[SIDECAR_MLSERVER]);
}
