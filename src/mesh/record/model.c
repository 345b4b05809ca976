/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's record:
 *
 *   type, encKey, mPath, autoDel, instanceIds {instance: since}, actionable, failedIn {instance:
 *   when}, fails {instance: {"msg": text}}, refs, lu, lul, then everything else by name, among it
 *   `loaded` {instance: since}, `minCopies`, `maxCopies`, `sizeUnits`.
 *
 * `instanceIds` lists loading and loaded copies alike. `loaded` is ours and repeats the stamps of
 * loaded ones. ModelMesh keeps it without understanding it, so when it removes an instance or adds
 * it again, the stamps differ and that part of `loaded` is void.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/record/json.h"
#include "mesh/record/record.h"

/* The type of records without one, from ModelMesh's earliest days. */
#define TYPE_DEFAULT "NLCLASSIFIER"

static const char *const names[] = {
    "type", "encKey", "mPath", "autoDel", "instanceIds", "actionable", "failedIn", "fails",
    "refs", "lu",     "lul",   "loaded",  "minCopies",   "maxCopies",  "sizeUnits"};
static const struct record_fields fields = {names, ARRAY_COUNT(names)};

static const char *const failure_names[] = {"msg"};
static const struct record_fields failure_fields = {failure_names, ARRAY_COUNT(failure_names)};

/* ---- reading ---- */

/* The maps of a record; NULL: absent. */
struct maps {
    json_t *instances;
    json_t *loaded;
    json_t *failed;
    json_t *failures;
};

static enum status
read_maps(json_t *root, struct maps *maps, struct error *error)
{
    if (record_json_object(root, "instanceIds", &maps->instances, error) != STATUS_OK ||
        record_json_object(root, "loaded", &maps->loaded, error) != STATUS_OK ||
        record_json_object(root, "failedIn", &maps->failed, error) != STATUS_OK ||
        record_json_object(root, "fails", &maps->failures, error) != STATUS_OK)
        return error->status;
    size_t places = json_object_size(maps->instances) + json_object_size(maps->failed);
    if (places > MESH_PLACES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "instanceIds and failedIn: %zu instances; at most %d are taken", places,
                         MESH_PLACES_MAX);
    return STATUS_OK;
}

static enum status
read_stamp(const char *map, void *at, int64_t *stamp_ms, struct error *error)
{
    const char *instance = json_object_iter_key(at);
    json_t *value = json_object_iter_value(at);
    if (instance[0] == '\0' || strlen(instance) > MESH_ID_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: an instance's id has %zu bytes, not 1 to %d", map, strlen(instance),
                         MESH_ID_BYTES_MAX);
    if (json_is_integer(value)) {
        *stamp_ms = json_integer_value(value);
        return STATUS_OK;
    }
    record_json_wrong(error, instance, "a whole number", value);
    return error_prefix(error, "%s", map);
}

static enum mesh_place_kind
kind_of(const struct maps *maps, const char *instance, int64_t since_ms)
{
    json_t *loaded = json_object_get(maps->loaded, instance);
    bool same = json_is_integer(loaded) && json_integer_value(loaded) == since_ms;
    return same ? MESH_PLACE_LOADED : MESH_PLACE_LOADING;
}

static const char *
reason_of(const struct maps *maps, const char *instance)
{
    json_t *failure = json_object_get(maps->failures, instance);
    const char *text = json_string_value(json_object_get(failure, "msg"));
    return text == NULL ? "" : text;
}

/* Texts still belong to the JSON. */
static enum status
read_places(const struct maps *maps, struct mesh_place *places, struct error *error)
{
    json_t *instances = maps->instances;
    json_t *failed = maps->failed;
    for (void *at = json_object_iter(instances); at; at = json_object_iter_next(instances, at)) {
        places->instance = json_object_iter_key(at);
        places->reason = "";
        if (read_stamp("instanceIds", at, &places->since_ms, error) != STATUS_OK)
            return error->status;
        places->kind = kind_of(maps, places->instance, places->since_ms);
        places++;
    }
    for (void *at = json_object_iter(failed); at; at = json_object_iter_next(failed, at)) {
        places->instance = json_object_iter_key(at);
        places->kind = MESH_PLACE_FAILED;
        places->reason = reason_of(maps, places->instance);
        if (read_stamp("failedIn", at, &places->since_ms, error) != STATUS_OK)
            return error->status;
        places++;
    }
    return STATUS_OK;
}

static enum status
read_scalars(json_t *root, struct mesh_model *model, struct error *error)
{
    uint64_t references = 0;
    model->type = TYPE_DEFAULT;
    model->key = "";
    model->path = "";
    if (record_json_text(root, "type", &model->type, error) != STATUS_OK ||
        record_json_text(root, "encKey", &model->key, error) != STATUS_OK ||
        record_json_text(root, "mPath", &model->path, error) != STATUS_OK ||
        record_json_bool(root, "autoDel", &model->auto_delete, error) != STATUS_OK ||
        record_json_count(root, "refs", INT32_MAX, &references, error) != STATUS_OK ||
        record_json_int(root, "lu", &model->used_ms, error) != STATUS_OK ||
        record_json_int(root, "lul", &model->unloaded_ms, error) != STATUS_OK)
        return error->status;
    if (model->type[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "type: is empty");
    model->references = (uint32_t)references;
    return STATUS_OK;
}

/* More nodes than can be counted are as many as can. */
static uint32_t
at_most_int32(uint64_t number)
{
    return (uint32_t)(number < INT32_MAX ? number : INT32_MAX);
}

static enum status
read_bounds(json_t *root, struct mesh_bounds *bounds, struct error *error)
{
    uint64_t least = 0;
    uint64_t most = 0;
    uint64_t size = 0;
    if (record_json_count(root, "minCopies", INT64_MAX, &least, error) != STATUS_OK ||
        record_json_count(root, "maxCopies", INT64_MAX, &most, error) != STATUS_OK ||
        record_json_count(root, "sizeUnits", UINT32_MAX, &size, error) != STATUS_OK)
        return error->status;
    *bounds = (struct mesh_bounds){at_most_int32(least), at_most_int32(most), (uint32_t)size};
    return STATUS_OK;
}

static bool
says_more(json_t *failure)
{
    return json_object_size(failure) > (json_object_get(failure, "msg") != NULL);
}

/* Keeps the fields of failures beside their text, for failures that are places. */
static enum status
put_failure_members(struct json *to, const struct maps *maps, struct error *error)
{
    json_t *failures = maps->failures;
    const size_t start = to->out->used;
    for (void *at = json_object_iter(failures); at; at = json_object_iter_next(failures, at)) {
        const char *instance = json_object_iter_key(at);
        json_t *failure = json_object_iter_value(at);
        if (json_object_get(maps->failed, instance) == NULL || !says_more(failure))
            continue;
        if (to->out->used == start) {
            json_field_open(to, "fails", '{');
        }
        json_field_open(to, instance, '{');
        if (record_json_rest(to, failure, &failure_fields, NULL, 0, error) != STATUS_OK)
            return error_prefix(error, "fails: %s", instance);
        json_close(to, '}');
    }
    if (to->out->used > start)
        json_close(to, '}');
    return STATUS_OK;
}

static enum status
put_unknown_fields(struct bytes *out, json_t *root, const struct maps *maps, struct error *error)
{
    struct json json = json_begin(out, JSON_STYLE_UPPER);
    json_open(&json, '{');
    if (record_json_field_kept(&json, "actionable", root, error) != STATUS_OK ||
        put_failure_members(&json, maps, error) != STATUS_OK ||
        record_json_rest(&json, root, &fields, NULL, 0, error) != STATUS_OK)
        return error->status;
    json_close(&json, '}');
    return STATUS_OK;
}

static size_t
text_bytes(const struct mesh_model *model)
{
    size_t bytes = strlen(model->type) + strlen(model->path) + strlen(model->key) + 3;
    for (uint32_t i = 0; i < model->place_count; i++)
        // NOLINTNEXTLINE(clang-analyzer-core.NonNullParamChecker): read_places has set all
        bytes += strlen(model->places[i].instance) + strlen(model->places[i].reason) + 2;
    return bytes;
}

/* Copies everything into one block. */
static struct record_model *
pack(const struct mesh_model *from, const struct mesh_place *places,
     const struct record_source *source, const char *unknown_fields)
{
    struct record_block block;
    size_t array_bytes = from->place_count * sizeof(*places);
    struct record_model *record =
        record_block_create(&block, sizeof(*record) + array_bytes,
                            text_bytes(from) + strlen(source->id) + 1 + strlen(unknown_fields) + 1);
    struct mesh_place *to = (struct mesh_place *)(record + 1);
    for (uint32_t i = 0; i < from->place_count; i++) {
        to[i] = places[i];
        to[i].instance = record_block_text(&block, places[i].instance);
        to[i].reason = record_block_text(&block, places[i].reason);
    }
    record->model = *from;
    record->model.id = record_block_text(&block, source->id);
    record->model.type = record_block_text(&block, from->type);
    record->model.path = record_block_text(&block, from->path);
    record->model.key = record_block_text(&block, from->key);
    record->model.create_revision = source->create_revision;
    record->model.revision = source->revision;
    record->model.places = to;
    record->unknown_fields = record_block_text(&block, unknown_fields);
    CHECK(block.left == 0);
    return record;
}

static enum status
read_root(json_t *root, const struct record_source *source, struct record_model **record,
          struct error *error)
{
    struct maps maps;
    struct mesh_model model = {0};
    struct bytes unknown_fields = {0};
    if (read_scalars(root, &model, error) != STATUS_OK ||
        read_bounds(root, &model.bounds, error) != STATUS_OK ||
        read_maps(root, &maps, error) != STATUS_OK)
        return error->status;
    model.place_count =
        (uint32_t)(json_object_size(maps.instances) + json_object_size(maps.failed));
    struct mesh_place *places = calloc(model.place_count + 1, sizeof(*places));
    CHECK(places != NULL);
    model.places = places;
    if (read_places(&maps, places, error) != STATUS_OK ||
        put_unknown_fields(&unknown_fields, root, &maps, error) != STATUS_OK)
        goto out;
    bytes_put_char(&unknown_fields, '\0');
    CHECK(!unknown_fields.failed);
    *record = pack(&model, places, source,
                   strcmp(unknown_fields.data, "{}") == 0 ? "" : unknown_fields.data);
out:
    bytes_fini(&unknown_fields);
    free(places);
    return error->status;
}

enum status
record_model_read(const struct record_source *source, struct record_model **record,
                  struct error *error)
{
    json_t *root = NULL;
    error_clear(error);
    if (record_json_parse(source->value, source->bytes, &root, error) == STATUS_OK)
        read_root(root, source, record, error);
    json_decref(root);
    if (error->status != STATUS_OK)
        error_prefix(error, "model record \"%s\"", source->id);
    return error->status;
}

/* ---- writing ---- */

static int
compare_places(const void *a, const void *b)
{
    const struct mesh_place *one = a;
    const struct mesh_place *other = b;
    return strcmp(one->instance, other->instance);
}

/* Kinds of places in each map. */
enum {
    IN_INSTANCES = 1 << MESH_PLACE_LOADING | 1 << MESH_PLACE_LOADED,
    IN_LOADED = 1 << MESH_PLACE_LOADED,
    IN_FAILED = 1 << MESH_PLACE_FAILED,
};

/* Appends nothing for an empty map; `out` is empty. Nobody reads a map with a name twice. */
static void
put_map(struct bytes *out, unsigned kinds, const struct mesh_place *places, uint32_t count)
{
    struct json json = json_begin(out, JSON_STYLE_UPPER);
    const char *former = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if ((kinds & 1u << places[i].kind) == 0)
            continue;
        CHECK(former == NULL || strcmp(former, places[i].instance) < 0);
        former = places[i].instance;
        if (out->used == 0)
            json_open(&json, '{');
        json_field_int(&json, places[i].instance, places[i].since_ms);
    }
    if (out->used > 0)
        json_close(&json, '}');
}

static void
field_map(struct json *to, const char *name, unsigned kinds, const struct mesh_place *places,
          uint32_t count)
{
    struct bytes map = {0};
    put_map(&map, kinds, places, count);
    if (map.used > 0) {
        json_name(to, name);
        json_put_raw(to, map.data, map.used);
    }
    bytes_fini(&map);
}

/* A failure with a text, or with other fields to keep. */
static enum status
field_failures(struct json *to, json_t *former, const struct mesh_place *places, uint32_t count,
               struct error *error)
{
    json_t *failures = json_object_get(former, "fails");
    bool any = false;
    for (uint32_t i = 0; i < count; i++) {
        const struct mesh_place *place = &places[i];
        json_t *failure = json_object_get(failures, place->instance);
        bool text = place->reason != NULL && place->reason[0] != '\0';
        if (place->kind != MESH_PLACE_FAILED || (!text && !says_more(failure)))
            continue;
        if (!any) {
            json_field_open(to, "fails", '{');
        }
        any = true;
        json_field_open(to, place->instance, '{');
        if (text) {
            json_name(to, "msg");
            record_json_put_any_text(to, place->reason, RECORD_REASON_BYTES_MAX);
        }
        if (record_json_rest(to, failure, &failure_fields, NULL, 0, error) != STATUS_OK)
            return error_prefix(error, "fails: %s", place->instance);
        json_close(to, '}');
    }
    if (any)
        json_close(to, '}');
    return STATUS_OK;
}

/* NULL: it has its default. */
static const char *
number_text(uint32_t number, char room[16])
{
    snprintf(room, 16, "%" PRIu32, number);
    return number == 0 ? NULL : room;
}

/* Our own fields, among the unknown ones. */
static enum status
put_own(struct json *to, const struct mesh_model *model, const struct mesh_place *places,
        json_t *former, struct error *error)
{
    struct bytes loaded = {0};
    char room[3][16];
    put_map(&loaded, IN_LOADED, places, model->place_count);
    bytes_put_char(&loaded, '\0');
    const struct record_own own[] = {
        {"loaded", loaded.used > 1 ? loaded.data : NULL},
        {"maxCopies", number_text(model->bounds.copies_max, room[0])},
        {"minCopies", number_text(model->bounds.copies_min, room[1])},
        {"sizeUnits", number_text(model->bounds.size_units, room[2])},
    };
    enum status status = record_json_rest(to, former, &fields, own, ARRAY_COUNT(own), error);
    bytes_fini(&loaded);
    return status;
}

static enum status
put_model(struct json *to, const struct mesh_model *model, const struct mesh_place *places,
          json_t *former, struct error *error)
{
    uint32_t count = model->place_count;
    json_open(to, '{');
    record_json_field_text(to, "type", model->type);
    record_json_field_text(to, "encKey", model->key);
    record_json_field_text(to, "mPath", model->path);
    record_json_field_bool(to, "autoDel", model->auto_delete);
    field_map(to, "instanceIds", IN_INSTANCES, places, count);
    if (record_json_field_kept(to, "actionable", former, error) != STATUS_OK)
        return error->status;
    field_map(to, "failedIn", IN_FAILED, places, count);
    if (field_failures(to, former, places, count, error) != STATUS_OK)
        return error->status;
    record_json_field_int(to, "refs", model->references);
    record_json_field_int(to, "lu", model->used_ms);
    record_json_field_int(to, "lul", model->unloaded_ms);
    enum status status = put_own(to, model, places, former, error);
    json_close(to, '}');
    return status;
}

enum status
record_model_write(const struct mesh_model *model, const void *former, size_t former_bytes,
                   struct bytes *to, struct error *error)
{
    json_t *root = NULL;
    struct json json = json_begin(to, JSON_STYLE_UPPER);
    error_clear(error);
    struct mesh_place *places = calloc(model->place_count + 1, sizeof(*places));
    CHECK(places != NULL);
    if (model->place_count > 0)
        memcpy(places, model->places, model->place_count * sizeof(*places));
    qsort(places, model->place_count, sizeof(*places), compare_places);
    if (former_bytes == 0 || record_json_parse(former, former_bytes, &root, error) == STATUS_OK) {
        if (put_model(&json, model, places, root, error) == STATUS_OK)
            record_json_end(&json, error);
    }
    json_decref(root);
    free(places);
    if (error->status != STATUS_OK)
        error_prefix(error, "model record \"%s\"", model->id);
    return error->status;
}
