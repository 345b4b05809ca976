/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a value of the registry. The first byte chooses the kind. A refusal has a text; an
 * accepted record is written, and then reads and writes the same, be it over the former value or
 * over the unknown fields.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/record/keys.h"
#include "mesh/record/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MODEL, VMODEL, INSTANCE, TYPES, SETTING, KEY, KINDS };

/* A record of any kind that was read. */
struct read {
    int kind;
    void *record;
    const char *unknown_fields;
};

static bool
read_value(int kind, const void *value, size_t bytes, struct read *read)
{
    struct record_source source = {"id", value, bytes, 1, 2};
    struct error error = ERROR_NONE;
    enum status status = STATUS_OK;
    struct record_model *model = NULL;
    struct record_vmodel *vmodel = NULL;
    struct record_instance *instance = NULL;
    *read = (struct read){.kind = kind};
    if (kind == MODEL && (status = record_model_read(&source, &model, &error)) == STATUS_OK)
        *read = (struct read){kind, model, model->unknown_fields};
    if (kind == VMODEL && (status = record_vmodel_read(&source, &vmodel, &error)) == STATUS_OK)
        *read = (struct read){kind, vmodel, vmodel->unknown_fields};
    if (kind == INSTANCE &&
        (status = record_instance_read(&source, 9, &instance, &error)) == STATUS_OK)
        *read = (struct read){kind, instance, instance->unknown_fields};
    if (status != STATUS_OK)
        CHECK(status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0' && read->record == NULL);
    return status == STATUS_OK;
}

static struct bytes
write_value(const struct read *read, const void *former, size_t bytes)
{
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    enum status status = STATUS_OK;
    if (read->kind == MODEL)
        status = record_model_write(&((struct record_model *)read->record)->model, former, bytes,
                                    &to, &error);
    if (read->kind == VMODEL)
        status = record_vmodel_write(&((struct record_vmodel *)read->record)->vmodel, former, bytes,
                                     &to, &error);
    if (read->kind == INSTANCE)
        status = record_instance_write(read->record, former, bytes, &to, &error);
    CHECK(status == STATUS_OK);
    return to;
}

static void
same(const struct bytes *a, const struct bytes *b)
{
    CHECK(a->used == b->used && memcmp(a->data, b->data, a->used) == 0);
}

static void
check_record(int kind, const void *value, size_t bytes)
{
    struct read first, second;
    if (!read_value(kind, value, bytes, &first))
        return;
    struct bytes over_former = write_value(&first, value, bytes);
    struct bytes over_unknown_fields =
        write_value(&first, first.unknown_fields, strlen(first.unknown_fields));
    same(&over_former, &over_unknown_fields);
    if (over_former.used <= RECORD_BYTES_MAX) {
        CHECK(read_value(kind, over_former.data, over_former.used, &second));
        struct bytes again = write_value(&second, over_former.data, over_former.used);
        same(&over_former, &again);
        bytes_fini(&again);
        free(second.record);
    }
    bytes_fini(&over_former);
    bytes_fini(&over_unknown_fields);
    free(first.record);
}

static void
check_types(const void *value, size_t bytes)
{
    struct record_types *types = NULL;
    struct error error = ERROR_NONE;
    size_t total = 0;
    if (record_types_read(value, bytes, &types, &error) != STATUS_OK)
        CHECK(types == NULL && error.text[0] != '\0');
    for (uint32_t i = 0; types != NULL && i < types->rule_count; i++) {
        const struct mesh_type_rule *rule = &types->rules[i];
        total += strlen(rule->type);
        for (uint32_t k = 0; k < rule->required_count; k++)
            total += strlen(rule->required[k]);
        for (uint32_t k = 0; k < rule->preferred_count; k++)
            total += strlen(rule->preferred[k]);
    }
    CHECK(total <= bytes);
    free(types);
}

static void
check_setting(const uint8_t *data, size_t size)
{
    struct record_setting setting = {.kind = RECORD_SETTING_NONE};
    struct error error = ERROR_NONE;
    if (size == 0)
        return;
    enum record_setting_kind kind = data[0] % RECORD_SETTING_NONE;
    if (record_setting_read(kind, data + 1, size - 1, &setting, &error) == STATUS_OK)
        CHECK(setting.kind == kind);
    else
        CHECK(setting.kind == RECORD_SETTING_NONE && error.text[0] != '\0');
}

static void
check_key(const uint8_t *data, size_t size)
{
    struct record_span prefix = record_text("/mm/s/");
    struct record_span key = {(const char *)data, size};
    enum record_area area;
    struct record_span id;
    struct bytes made = {0};
    if (!record_key_parse(prefix, key, &area, &id))
        return;
    record_key_put(&made, prefix, area, id);
    CHECK(made.used == size && memcmp(made.data, data, size) == 0);
    bytes_fini(&made);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int kind = data[0] % KINDS;
    switch (kind) {
    case TYPES: check_types(data + 1, size - 1); break;
    case SETTING: check_setting(data + 1, size - 1); break;
    case KEY: check_key(data + 1, size - 1); break;
    default: check_record(kind, data + 1, size - 1); break;
    }
    return 0;
}
