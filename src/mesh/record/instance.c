/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An instance's record:
 *
 *   startTime, vers, loc, zone, labels [sorted], actionable, lruTime, count, cap, used, lThreads,
 *   lInProg, rpm, shutdown, then everything else by name, ours among it: `addr` (the address for
 *   peers), `full` (P3, which other nodes can only guess without this node's default size) and
 *   `pools` (K6): for each [types] and lruTime, count, cap, used, lInProg, full.
 *
 * cap and used are in units and exclude the reserve. lruTime is LONG_MAX, or missing, without
 * models.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/record/json.h"
#include "mesh/record/record.h"

static const char *const names[] = {
    "startTime", "vers",     "loc",     "zone", "labels",   "actionable", "lruTime", "count", "cap",
    "used",      "lThreads", "lInProg", "rpm",  "shutdown", "addr",       "full",    "pools"};
static const struct record_fields fields = {names, ARRAY_COUNT(names)};

/* ---- reading ---- */

/* A record as read; its texts belong to the JSON. */
struct instance_reading {
    struct record_instance record;
    const char *labels[RECORD_LABELS_MAX];
    size_t label_count;
    struct mesh_figures pools[MESH_POOLS_MAX];
    struct bytes pool_types; /* a text for each */
};

static int
compare_labels(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum status
read_label(const char *field, json_t *value, const char **label, struct error *error)
{
    if (!json_is_string(value))
        return record_json_wrong(error, field, "a list of strings", value);
    *label = json_string_value(value);
    if (*label[0] == '\0' || strlen(*label) > RECORD_LABEL_BYTES_MAX || strchr(*label, ','))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: \"%.40s\" is empty, longer than %d, or has a comma", field, *label,
                         RECORD_LABEL_BYTES_MAX);
    return STATUS_OK;
}

static enum status
too_many(const char *field, size_t count, int most, struct error *error)
{
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %zu of them; at most %d are taken", field,
                     count, most);
}

static enum status
read_labels(json_t *root, const char *field, const char *labels[RECORD_LABELS_MAX], size_t *count,
            struct error *error)
{
    json_t *list;
    if (record_json_array(root, field, &list, error) != STATUS_OK)
        return error->status;
    *count = json_array_size(list);
    if (*count > RECORD_LABELS_MAX)
        return too_many(field, *count, RECORD_LABELS_MAX, error);
    for (size_t i = 0; i < *count; i++)
        if (read_label(field, json_array_get(list, i), &labels[i], error) != STATUS_OK)
            return error->status;
    qsort(labels, *count, sizeof(labels[0]), compare_labels);
    return STATUS_OK;
}

static enum status
read_figures(json_t *root, uint64_t full_units, struct mesh_figures *figures, struct error *error)
{
    uint64_t used = 0, copies = 0, loading = 0, rate = 0;
    int64_t oldest_ms = 0;
    if (record_json_int(root, "lruTime", &oldest_ms, error) != STATUS_OK ||
        record_json_count(root, "count", UINT32_MAX, &copies, error) != STATUS_OK ||
        record_json_count(root, "cap", INT64_MAX, &figures->capacity_units, error) != STATUS_OK ||
        record_json_count(root, "used", INT64_MAX, &used, error) != STATUS_OK ||
        record_json_count(root, "lInProg", UINT32_MAX, &loading, error) != STATUS_OK ||
        record_json_count(root, "rpm", UINT32_MAX, &rate, error) != STATUS_OK)
        return error->status;
    uint64_t capacity = figures->capacity_units;
    figures->free_units = used < capacity ? capacity - used : 0;
    figures->oldest_ms = oldest_ms == 0 ? INT64_MAX : oldest_ms;
    figures->copies = (uint32_t)copies;
    figures->loading = (uint32_t)loading;
    figures->calls_per_minute = (uint32_t)rate;
    figures->full = figures->free_units < full_units;
    return record_json_bool(root, "full", &figures->full, error);
}

static enum status
read_pool(json_t *pool, uint64_t full_units, struct mesh_figures *figures, struct bytes *types,
          struct error *error)
{
    const char *listed[RECORD_LABELS_MAX];
    size_t count;
    if (!json_is_object(pool))
        return record_json_wrong(error, "pools", "a list of objects", pool);
    if (read_figures(pool, full_units, figures, error) != STATUS_OK ||
        read_labels(pool, "types", listed, &count, error) != STATUS_OK)
        return error_prefix(error, "pools");
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            bytes_put_char(types, ',');
        bytes_put_text(types, listed[i]);
    }
    bytes_put_char(types, '\0');
    return STATUS_OK;
}

static enum status
read_pools(json_t *root, uint64_t full_units, struct instance_reading *reading, struct error *error)
{
    json_t *pools;
    if (record_json_array(root, "pools", &pools, error) != STATUS_OK)
        return error->status;
    size_t count = json_array_size(pools);
    if (count > MESH_POOLS_MAX)
        return too_many("pools", count, MESH_POOLS_MAX, error);
    for (size_t i = 0; i < count; i++)
        if (read_pool(json_array_get(pools, i), full_units, &reading->pools[i],
                      &reading->pool_types, error) != STATUS_OK)
            return error->status;
    reading->record.instance.pool_count = (uint32_t)count;
    return STATUS_OK;
}

static enum status
read_fields(json_t *root, uint64_t full_units, struct instance_reading *reading,
            struct error *error)
{
    struct record_instance *record = &reading->record;
    struct mesh_instance *instance = &record->instance;
    uint64_t loaders = 0;
    record->location = "";
    record->zone = "";
    record->address = "";
    if (record_json_int(root, "startTime", &instance->start_ms, error) != STATUS_OK ||
        record_json_int(root, "vers", &instance->version, error) != STATUS_OK ||
        record_json_text(root, "loc", &record->location, error) != STATUS_OK ||
        record_json_text(root, "zone", &record->zone, error) != STATUS_OK ||
        record_json_text(root, "addr", &record->address, error) != STATUS_OK ||
        record_json_count(root, "lThreads", UINT32_MAX, &loaders, error) != STATUS_OK ||
        record_json_bool(root, "shutdown", &instance->draining, error) != STATUS_OK ||
        read_figures(root, full_units, &instance->figures, error) != STATUS_OK ||
        read_pools(root, full_units, reading, error) != STATUS_OK)
        return error->status;
    record->loaders = (uint32_t)loaders;
    return read_labels(root, "labels", reading->labels, &reading->label_count, error);
}

static const char *
join(struct record_block *block, const char *const *labels, size_t count)
{
    char *start = block->at;
    for (size_t i = 0; i < count; i++) {
        record_block_text(block, labels[i]);
        block->at[-1] = ',';
    }
    if (count == 0)
        return record_block_text(block, "");
    block->at[-1] = '\0';
    return start;
}

/* Packs the pools into the memory after the record. */
static void
pack_pools(const struct instance_reading *from, struct record_block *block,
           struct record_instance *record)
{
    uint32_t count = from->record.instance.pool_count;
    struct mesh_figures *figures = (struct mesh_figures *)(record + 1);
    const char **types = (const char **)(figures + count);
    const char *text = from->pool_types.data;
    for (uint32_t i = 0; i < count; i++) {
        figures[i] = from->pools[i];
        types[i] = record_block_text(block, text);
        text += strlen(text) + 1;
    }
    record->instance.pool_figures = figures;
    record->instance.pool_types = types;
}

static struct record_instance *
pack(const struct instance_reading *from, const struct record_source *source,
     const char *unknown_fields)
{
    struct record_block block;
    const struct record_instance *read = &from->record;
    size_t bytes = strlen(source->id) + strlen(read->location) + strlen(read->zone) +
                   strlen(read->address) + strlen(unknown_fields) + 6 + from->pool_types.used;
    size_t head = sizeof(struct record_instance) +
                  read->instance.pool_count * (sizeof(struct mesh_figures) + sizeof(char *));
    for (size_t i = 0; i < from->label_count; i++)
        bytes += strlen(from->labels[i]) + 1;
    struct record_instance *record = record_block_create(&block, head, bytes);
    *record = *read;
    pack_pools(from, &block, record);
    record->instance.id = record_block_text(&block, source->id);
    record->instance.labels = join(&block, from->labels, from->label_count);
    record->instance.session = source->create_revision;
    record->instance.revision = source->revision;
    record->location = record_block_text(&block, read->location);
    record->zone = record_block_text(&block, read->zone);
    record->address = record_block_text(&block, read->address);
    record->unknown_fields = record_block_text(&block, unknown_fields);
    return record;
}

static void
read_root(json_t *root, uint64_t full_units, const struct record_source *source,
          struct record_instance **record, struct error *error)
{
    struct instance_reading reading = {0};
    struct bytes unknown_fields = {0};
    struct json json = json_begin(&unknown_fields, JSON_STYLE_UPPER);
    json_open(&json, '{');
    if (read_fields(root, full_units, &reading, error) == STATUS_OK &&
        record_json_field_kept(&json, "actionable", root, error) == STATUS_OK &&
        record_json_rest(&json, root, &fields, NULL, 0, error) == STATUS_OK) {
        bytes_put(&unknown_fields, "}", 2);
        CHECK(!unknown_fields.failed && !reading.pool_types.failed);
        *record = pack(&reading, source,
                       strcmp(unknown_fields.data, "{}") == 0 ? "" : unknown_fields.data);
    }
    bytes_fini(&unknown_fields);
    bytes_fini(&reading.pool_types);
}

enum status
record_instance_read(const struct record_source *source, uint64_t full_units,
                     struct record_instance **record, struct error *error)
{
    json_t *root = NULL;
    error_clear(error);
    if (record_json_parse(source->value, source->bytes, &root, error) == STATUS_OK)
        read_root(root, full_units, source, record, error);
    json_decref(root);
    if (error->status != STATUS_OK)
        error_prefix(error, "instance record \"%s\"", source->id);
    return error->status;
}

/* ---- writing ---- */

static void
field_labels(struct json *to, const char *field, const char *labels)
{
    if (labels[0] == '\0')
        return;
    json_field_open(to, field, '[');
    while (*labels != '\0') {
        size_t bytes = strcspn(labels, ",");
        json_put_text(to, labels, bytes);
        labels += bytes + (labels[bytes] == ',');
    }
    json_close(to, ']');
}

static int64_t
as_signed(uint64_t number)
{
    return number > INT64_MAX ? INT64_MAX : (int64_t)number;
}

static void
field_figures(struct json *to, const struct mesh_figures *figures)
{
    uint64_t free_units = figures->free_units < figures->capacity_units ? figures->free_units
                                                                        : figures->capacity_units;
    record_json_field_int(to, "lruTime", figures->oldest_ms);
    record_json_field_int(to, "count", figures->copies);
    record_json_field_int(to, "cap", as_signed(figures->capacity_units));
    record_json_field_int(to, "used", as_signed(figures->capacity_units - free_units));
}

static const char *
truth(bool is)
{
    return is ? "true" : "false";
}

/* Ends with a zero byte. */
static void
put_pools(struct bytes *out, const struct mesh_instance *instance)
{
    struct json json = json_begin(out, JSON_STYLE_UPPER);
    json_open(&json, '[');
    for (uint32_t i = 0; i < instance->pool_count; i++) {
        const struct mesh_figures *figures = &instance->pool_figures[i];
        json_open(&json, '{');
        field_labels(&json, "types", instance->pool_types[i]);
        field_figures(&json, figures);
        record_json_field_int(&json, "lInProg", figures->loading);
        json_field_bool(&json, "full", figures->full);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    bytes_put_char(out, '\0');
}

static enum status
put_instance(struct json *to, const struct record_instance *record, json_t *former,
             struct error *error)
{
    const struct mesh_instance *instance = &record->instance;
    const struct mesh_figures *figures = &instance->figures;
    json_open(to, '{');
    record_json_field_int(to, "startTime", instance->start_ms);
    record_json_field_int(to, "vers", instance->version);
    record_json_field_text(to, "loc", record->location);
    record_json_field_text(to, "zone", record->zone);
    field_labels(to, "labels", instance->labels);
    if (record_json_field_kept(to, "actionable", former, error) != STATUS_OK)
        return error->status;
    field_figures(to, figures);
    record_json_field_int(to, "lThreads", record->loaders);
    record_json_field_int(to, "lInProg", figures->loading);
    record_json_field_int(to, "rpm", figures->calls_per_minute);
    record_json_field_bool(to, "shutdown", instance->draining);
    struct bytes address = {0};
    struct bytes pools = {0};
    json_quote(&address, record->address, strlen(record->address), JSON_STYLE_UPPER);
    bytes_put_char(&address, '\0');
    put_pools(&pools, instance);
    const struct record_own own[] = {
        {"addr", record->address[0] == '\0' ? NULL : address.data},
        {"full", truth(figures->full)},
        {"pools", instance->pool_count == 0 ? NULL : pools.data},
    };
    record_json_rest(to, former, &fields, own, ARRAY_COUNT(own), error);
    bytes_fini(&address);
    bytes_fini(&pools);
    json_close(to, '}');
    return error->status;
}

enum status
record_instance_write(const struct record_instance *instance, const void *former,
                      size_t former_bytes, struct bytes *to, struct error *error)
{
    json_t *root = NULL;
    struct json json = json_begin(to, JSON_STYLE_UPPER);
    error_clear(error);
    if (former_bytes == 0 || record_json_parse(former, former_bytes, &root, error) == STATUS_OK) {
        if (put_instance(&json, instance, root, error) == STATUS_OK)
            record_json_end(&json, error);
    }
    json_decref(root);
    if (error->status != STATUS_OK)
        error_prefix(error, "instance record \"%s\"", instance->instance.id);
    return error->status;
}
