/* SPDX-License-Identifier: Apache-2.0 */
/* A vmodel's record: actionable, o (owner), amid, tmid, failed, then everything else by name. */
#include <string.h>

#include "base/check.h"
#include "mesh/record/json.h"
#include "mesh/record/record.h"

static const char *const names[] = {"actionable", "o", "amid", "tmid", "failed"};
static const struct record_fields fields = {names, ARRAY_COUNT(names)};

static enum status
read_fields(json_t *root, struct mesh_vmodel *vmodel, struct error *error)
{
    vmodel->owner = "";
    vmodel->active = "";
    vmodel->target = "";
    if (record_json_text(root, "o", &vmodel->owner, error) != STATUS_OK ||
        record_json_text(root, "amid", &vmodel->active, error) != STATUS_OK ||
        record_json_text(root, "tmid", &vmodel->target, error) != STATUS_OK)
        return error->status;
    return record_json_bool(root, "failed", &vmodel->failed, error);
}

static struct record_vmodel *
pack(const struct mesh_vmodel *from, const struct record_source *source, const char *unknown_fields)
{
    struct record_block block;
    size_t bytes = strlen(source->id) + strlen(from->owner) + strlen(from->active) +
                   strlen(from->target) + strlen(unknown_fields) + 5;
    struct record_vmodel *record = record_block_create(&block, sizeof(*record), bytes);
    record->vmodel = (struct mesh_vmodel){
        .id = record_block_text(&block, source->id),
        .owner = record_block_text(&block, from->owner),
        .active = record_block_text(&block, from->active),
        .target = record_block_text(&block, from->target),
        .create_revision = source->create_revision,
        .revision = source->revision,
        .failed = from->failed,
    };
    record->unknown_fields = record_block_text(&block, unknown_fields);
    return record;
}

static void
read_root(json_t *root, const struct record_source *source, struct record_vmodel **record,
          struct error *error)
{
    struct mesh_vmodel vmodel = {0};
    struct bytes unknown_fields = {0};
    struct json json = json_begin(&unknown_fields, JSON_STYLE_UPPER);
    json_open(&json, '{');
    if (read_fields(root, &vmodel, error) == STATUS_OK &&
        record_json_field_kept(&json, "actionable", root, error) == STATUS_OK &&
        record_json_rest(&json, root, &fields, NULL, 0, error) == STATUS_OK) {
        bytes_put(&unknown_fields, "}", 2);
        CHECK(!unknown_fields.failed);
        *record = pack(&vmodel, source,
                       strcmp(unknown_fields.data, "{}") == 0 ? "" : unknown_fields.data);
    }
    bytes_fini(&unknown_fields);
}

enum status
record_vmodel_read(const struct record_source *source, struct record_vmodel **record,
                   struct error *error)
{
    json_t *root = NULL;
    error_clear(error);
    if (record_json_parse(source->value, source->bytes, &root, error) == STATUS_OK)
        read_root(root, source, record, error);
    json_decref(root);
    if (error->status != STATUS_OK)
        error_prefix(error, "vmodel record \"%s\"", source->id);
    return error->status;
}

enum status
record_vmodel_write(const struct mesh_vmodel *vmodel, const void *former, size_t former_bytes,
                    struct bytes *to, struct error *error)
{
    json_t *root = NULL;
    struct json json = json_begin(to, JSON_STYLE_UPPER);
    error_clear(error);
    if (former_bytes == 0 || record_json_parse(former, former_bytes, &root, error) == STATUS_OK) {
        json_open(&json, '{');
        if (record_json_field_kept(&json, "actionable", root, error) == STATUS_OK) {
            record_json_field_text(&json, "o", vmodel->owner);
            record_json_field_text(&json, "amid", vmodel->active);
            record_json_field_text(&json, "tmid", vmodel->target);
            record_json_field_bool(&json, "failed", vmodel->failed);
            record_json_rest(&json, root, &fields, NULL, 0, error);
        }
        json_close(&json, '}');
        if (error->status == STATUS_OK)
            record_json_end(&json, error);
    }
    json_decref(root);
    if (error->status != STATUS_OK)
        error_prefix(error, "vmodel record \"%s\"", vmodel->id);
    return error->status;
}
