/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registry's other records: keys, vmodels, instances, type constraints, dynamic configuration.
 * As for models: the incumbent's bytes come out as they went in, the core gets what it wants, and
 * what is wrong is refused with a text that says what and where.
 */
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "mesh/record/keys.h"
#include "mesh/record/record.h"

static struct record_source
source_of(const char *value)
{
    return (struct record_source){"x", value, strlen(value), 3, 5};
}

static void
says(const struct error *error, const char *text)
{
    assert_int_equal(error->status, STATUS_INVALID_ARGUMENT);
    if (strstr(error->text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error->text, text);
}

static void
is_text(struct bytes *bytes, const char *expected)
{
    bytes_put_char(bytes, '\0');
    assert_string_equal(bytes->data, expected);
    bytes_fini(bytes);
}

/* ---- keys ---- */

TEST_CASE(keys)
{
    struct bytes prefix = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(record_prefix("/root", "mm", "svc", &prefix, &error), STATUS_OK);
    struct record_span span = {prefix.data, prefix.used};
    static const struct {
        enum record_area area;
        const char *id;
        const char *key;
    } rows[] = {
        {RECORD_MODELS, "m/1", "/root/mm/svc/registry/m/1"},
        {RECORD_VMODELS, "v", "/root/mm/svc/vmodels/v"},
        {RECORD_INSTANCES, "größe %2F", "/root/mm/svc/instances/größe %2F"},
        {RECORD_CONFIG, "disable", "/root/mm/svc/config/disable"},
        {RECORD_MANIFESTS, "Secret/s", "/root/mm/svc/manifests/Secret/s"},
        {RECORD_CANDIDATES, "i", "/root/mm/svc/leaderLatch/_i"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct bytes key = {0};
        enum record_area area;
        struct record_span id;
        record_key_put(&key, span, rows[i].area, record_text(rows[i].id));
        assert_true(record_key_parse(span, (struct record_span){key.data, key.used}, &area, &id));
        assert_int_equal(area, rows[i].area);
        assert_int_equal(id.bytes, strlen(rows[i].id));
        assert_memory_equal(id.data, rows[i].id, id.bytes);
        is_text(&key, rows[i].key);
    }
    bytes_fini(&prefix);
}

TEST_CASE(keys_of_nothing)
{
    static const char *const none[] = {"",
                                       "/mm/svc",
                                       "/mm/svc/",
                                       "/mm/svc/registry",
                                       "/mm/svc/registry/",
                                       "/mm/svc/registrx/a",
                                       "/mm/svd/registry/a",
                                       "/mm/svc/leaderLatch/i",
                                       "/mm/svc/leaderLatch/_"};
    struct bytes prefix = {0};
    struct error error = ERROR_NONE;
    enum record_area area;
    struct record_span id;
    assert_int_equal(record_prefix(NULL, "mm", "svc", &prefix, &error), STATUS_OK);
    for (size_t i = 0; i < ARRAY_COUNT(none); i++)
        assert_false(record_key_parse((struct record_span){prefix.data, prefix.used},
                                      record_text(none[i]), &area, &id));
    is_text(&prefix, "/mm/svc/");
    prefix = (struct bytes){0};
    assert_int_not_equal(record_prefix("", "mm", "", &prefix, &error), STATUS_OK);
    says(&error, "the service's name is empty");
    bytes_fini(&prefix);
}

/* ---- vmodels ---- */

TEST_CASE(vmodels)
{
    static const char *const theirs[] = {
        "{\"o\":\"ksp\",\"amid\":\"m__ksp-0123456789\",\"tmid\":\"m__ksp-abcdef0123\",\"failed\":"
        "true}",
        "{\"amid\":\"a\",\"tmid\":\"a\"}",
        "{\"actionable\":true,\"o\":\"isvc\",\"amid\":\"a\",\"tmid\":\"b\",\"more\":{\"b\":1,\"a\":"
        "2}}",
    };
    struct record_vmodel *record = NULL;
    struct error error = ERROR_NONE;
    for (size_t i = 0; i < ARRAY_COUNT(theirs); i++) {
        struct record_source source = source_of(theirs[i]);
        struct bytes to = {0}, again = {0};
        assert_int_equal(record_vmodel_read(&source, &record, &error), STATUS_OK);
        assert_int_equal(
            record_vmodel_write(&record->vmodel, theirs[i], strlen(theirs[i]), &to, &error),
            STATUS_OK);
        is_text(&to, theirs[i]);
        assert_int_equal(record_vmodel_write(&record->vmodel, record->unknown_fields,
                                             strlen(record->unknown_fields), &again, &error),
                         STATUS_OK);
        is_text(&again, theirs[i]);
        if (i == 0) {
            assert_string_equal(record->vmodel.id, "x");
            assert_string_equal(record->vmodel.owner, "ksp");
            assert_string_equal(record->vmodel.active, "m__ksp-0123456789");
            assert_string_equal(record->vmodel.target, "m__ksp-abcdef0123");
            assert_true(record->vmodel.failed);
            assert_int_equal(record->vmodel.create_revision, 3);
            assert_int_equal(record->vmodel.revision, 5);
        }
        free(record);
    }
    struct record_source source = source_of("{\"amid\":[]}");
    assert_int_not_equal(record_vmodel_read(&source, &record, &error), STATUS_OK);
    says(&error, "vmodel record \"x\": amid: expected a string, not an array");
}

/* ---- instances ---- */

#define TEN "0,0,0,0,0,0,0,0,0,0,"

static const char their_instance[] =
    "{\"startTime\":1700000000000,\"vers\":2024041901,\"loc\":\"10.0.0.7\",\"zone\":\"z1\","
    "\"labels\":[\"mt:onnx\",\"pv:grpc-v2\",\"rt:triton-2.x\"],\"actionable\":true,"
    "\"lruTime\":1700000001000,\"count\":12,\"cap\":121472,\"used\":100000,\"lThreads\":6,"
    "\"lInProg\":2,\"rpm\":340,\"shutdown\":true}";

static struct record_instance *
read_instance(const char *value, uint64_t full_units)
{
    struct record_instance *record = NULL;
    struct error error = ERROR_NONE;
    struct record_source source = source_of(value);
    if (record_instance_read(&source, full_units, &record, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return record;
}

TEST_CASE(instances)
{
    struct record_instance *record = read_instance(their_instance, 21473);
    const struct mesh_instance *instance = &record->instance;
    assert_string_equal(instance->id, "x");
    assert_string_equal(instance->labels, "mt:onnx,pv:grpc-v2,rt:triton-2.x");
    assert_int_equal(instance->session, 3);
    assert_int_equal(instance->revision, 5);
    assert_int_equal(instance->start_ms, 1700000000000);
    assert_int_equal(instance->version, 2024041901);
    assert_true(instance->draining);
    assert_int_equal(instance->figures.capacity_units, 121472);
    assert_int_equal(instance->figures.free_units, 21472);
    assert_int_equal(instance->figures.oldest_ms, 1700000001000);
    assert_int_equal(instance->figures.copies, 12);
    assert_int_equal(instance->figures.loading, 2);
    assert_int_equal(instance->figures.calls_per_minute, 340);
    assert_true(instance->figures.full);
    assert_string_equal(record->location, "10.0.0.7");
    assert_string_equal(record->zone, "z1");
    assert_string_equal(record->address, "");
    assert_int_equal(record->loaders, 6);
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(record_instance_write(record, record->unknown_fields,
                                           strlen(record->unknown_fields), &to, &error),
                     STATUS_OK);
    /* theirs, and ours behind it */
    assert_memory_equal(to.data, their_instance, strlen(their_instance) - 1);
    assert_memory_equal(to.data + strlen(their_instance) - 1, ",\"full\":true}", 13);
    bytes_fini(&to);
    free(record);
    record = read_instance(their_instance, 21472);
    assert_false(record->instance.figures.full);
    free(record);
}

TEST_CASE(instances_of_ours)
{
    struct record_instance ours = {
        .instance = {.id = "x",
                     .labels = "a,b",
                     .start_ms = 7,
                     .figures = {.capacity_units = 10, .free_units = 20, .oldest_ms = INT64_MAX}},
        .location = "host",
        .zone = "",
        .address = "10.0.0.7:8080",
    };
    static const char expected[] = "{\"startTime\":7,\"loc\":\"host\",\"labels\":[\"a\",\"b\"],"
                                   "\"lruTime\":9223372036854775807,"
                                   "\"cap\":10,\"addr\":\"10.0.0.7:8080\",\"full\":false}";
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(record_instance_write(&ours, NULL, 0, &to, &error), STATUS_OK);
    is_text(&to, expected);
    struct record_instance *record = read_instance(expected, 1000);
    assert_string_equal(record->address, "10.0.0.7:8080");
    assert_false(record->instance.figures.full); /* it says so itself */
    assert_int_equal(record->instance.figures.oldest_ms, INT64_MAX);
    assert_int_equal(record->instance.figures.free_units, 10);
    free(record);
    record = read_instance("{\"labels\":[\"z\",\"a\"],\"cap\":1,\"used\":5,\"count\":-1}", 0);
    assert_string_equal(record->instance.labels, "a,z");
    assert_int_equal(record->instance.figures.free_units, 0);
    assert_int_equal(record->instance.figures.copies, 0);
    assert_int_equal(record->instance.figures.oldest_ms, INT64_MAX);
    free(record);
}

TEST_CASE(instances_with_pools)
{
    static const char expected[] =
        "{\"lruTime\":5,\"cap\":30,\"used\":7,\"full\":false,\"pools\":["
        "{\"types\":[\"a\",\"b\"],\"lruTime\":5,\"count\":3,\"cap\":10,\"used\":6,\"lInProg\":1,"
        "\"full\":true},{\"types\":[\"*\"],\"lruTime\":6,\"cap\":20,\"used\":1,\"full\":false},"
        "{\"lruTime\":9223372036854775807,\"full\":true}],\"theirs\":1}";
    struct record_instance *record = read_instance(expected, 1000);
    const struct mesh_instance *instance = &record->instance;
    assert_int_equal(instance->pool_count, 3);
    static const char *const types[] = {"a,b", "*", ""};
    for (int i = 0; i < 3; i++)
        assert_string_equal(instance->pool_types[i], types[i]);
    const struct mesh_figures *first = &instance->pool_figures[0];
    assert_int_equal(first->capacity_units, 10);
    assert_int_equal(first->free_units, 4);
    assert_int_equal(first->oldest_ms, 5);
    assert_int_equal(first->copies, 3);
    assert_int_equal(first->loading, 1);
    assert_true(first->full);
    assert_false(instance->pool_figures[1].full);
    assert_true(instance->pool_figures[2].full);
    struct bytes to = {0};
    struct error error = ERROR_NONE;
    assert_int_equal(record_instance_write(record, record->unknown_fields,
                                           strlen(record->unknown_fields), &to, &error),
                     STATUS_OK);
    is_text(&to, expected);
    free(record);
}

TEST_CASE(instances_refused)
{
    static const struct {
        const char *value;
        const char *text;
    } rows[] = {
        {"{\"labels\":\"a\"}", "labels: expected an array, not a string"},
        {"{\"labels\":[1]}", "labels: expected a list of strings, not a number"},
        {"{\"labels\":[\"a,b\"]}", "labels: \"a,b\" is empty, longer than 255, or has a comma"},
        {"{\"labels\":[\"\"]}", "labels: \"\" is empty"},
        {"{\"count\":4294967296}", "count: 4294967296 is more than 4294967295"},
        {"{\"shutdown\":\"yes\"}", "shutdown: expected true or false, not a string"},
        {"{\"pools\":{}}", "pools: expected an array, not an object"},
        {"{\"pools\":[[]]}", "pools: expected a list of objects, not an array"},
        {"{\"pools\":[{\"types\":[7]}]}", "pools: types: expected a list of strings, not a number"},
        {"{\"pools\":[{},{\"cap\":\"1\"}]}", "pools: cap: "},
        {"{\"pools\":[" TEN TEN TEN TEN TEN TEN "0,0,0,0,0,0]}", "pools: 66 of them; at most 65"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct record_instance *record = NULL;
        struct error error = ERROR_NONE;
        struct record_source source = source_of(rows[i].value);
        assert_int_not_equal(record_instance_read(&source, 0, &record, &error), STATUS_OK);
        says(&error, "instance record \"x\": ");
        says(&error, rows[i].text);
    }
    assert_int_equal(record_units(0), 0);
    assert_int_equal(record_units(1), 1);
    assert_int_equal(record_units(8192), 1);
    assert_int_equal(record_units(8193), 2);
    assert_true(record_units(UINT64_MAX) == UINT64_C(1) << 51);
}

/* ---- type constraints ---- */

static enum status
read_types(const char *value, struct record_types **types, struct error *error)
{
    *types = NULL;
    *error = ERROR_NONE;
    return record_types_read(value, strlen(value), types, error);
}

TEST_CASE(type_constraints)
{
    struct record_types *types;
    struct error error;
    assert_int_equal(
        read_types("{\"mt:onnx|pv:grpc-v2\":{\"required\":[\"pv:grpc-v2\",\"mt:onnx\",\"mt:onnx\"],"
                   "\"preferred\":[\"b\",\"mt:onnx\",\"a\"],\"comment\":1},"
                   "\"_default\":{\"required\":[\"_no_runtime\"]},\"free\":{\"required\":null}}",
                   &types, &error),
        STATUS_OK);
    assert_int_equal(types->rule_count, 3);
    const struct mesh_type_rule *rule = &types->rules[0];
    assert_string_equal(rule->type, "mt:onnx|pv:grpc-v2");
    assert_int_equal(rule->required_count, 2);
    assert_string_equal(rule->required[0], "mt:onnx");
    assert_string_equal(rule->required[1], "pv:grpc-v2");
    assert_int_equal(rule->preferred_count, 2);
    assert_string_equal(rule->preferred[0], "a");
    assert_string_equal(rule->preferred[1], "b");
    assert_string_equal(types->rules[1].type, "_default");
    assert_string_equal(types->rules[1].required[0], "_no_runtime");
    assert_int_equal(types->rules[2].required_count + types->rules[2].preferred_count, 0);
    free(types);
    assert_int_not_equal(read_types("{\"t\":{\"required\":[\"a\",{}]}}", &types, &error),
                         STATUS_OK);
    says(&error, "type constraints: t: required: expected a list of strings, not");
    assert_int_not_equal(read_types("{\"t\":[]}", &types, &error), STATUS_OK);
    says(&error, "type constraints: t: expected an object, not an array");
    assert_int_not_equal(read_types("{\"t\":{\"preferred\":[\"a,b\"]}}", &types, &error),
                         STATUS_OK);
    says(&error, "the label \"a,b\" is empty, longer than 255 bytes, or has a comma");
}

/* ---- dynamic configuration ---- */

TEST_CASE(settings)
{
    struct record_setting setting;
    struct error error = ERROR_NONE;
    assert_int_equal(record_setting_kind("logger_level"), RECORD_LOG_LEVEL);
    assert_int_equal(record_setting_kind("disable"), RECORD_DISABLED);
    assert_int_equal(record_setting_kind("Disable"), RECORD_SETTING_NONE);
    assert_int_equal(record_setting_read(RECORD_LOG_LEVEL, "trace", 5, &setting, &error),
                     STATUS_OK);
    assert_int_equal(setting.log_level, LOG_DEBUG);
    assert_int_equal(record_setting_read(RECORD_LOG_CALLS, "True", 4, &setting, &error), STATUS_OK);
    assert_true(setting.on);
    assert_int_equal(record_setting_read(RECORD_DISABLED, "", 0, &setting, &error), STATUS_OK);
    assert_true(setting.on);
    assert_int_equal(record_setting_read(RECORD_DISABLED, "false", 5, &setting, &error), STATUS_OK);
    assert_false(setting.on);
    assert_int_equal(record_setting_read(RECORD_RATE_FOR_MORE, "10", 2, &setting, &error),
                     STATUS_OK);
    assert_int_equal(setting.number, 10);
    static const char *const rates[] = {"9", "", "-20", " 20", "20x", "99999999999999999999"};
    for (size_t i = 0; i < ARRAY_COUNT(rates); i++) {
        assert_int_not_equal(
            record_setting_read(RECORD_RATE_FOR_MORE, rates[i], strlen(rates[i]), &setting, &error),
            STATUS_OK);
        says(&error, "config/scaleup_rpm_threshold: ");
    }
    assert_int_equal(setting.number, 10); /* stays */
    assert_int_not_equal(record_setting_read(RECORD_LOG_LEVEL, "a\0b", 3, &setting, &error),
                         STATUS_OK);
    says(&error, "config/logger_level: its value is longer than 63 bytes, or not text");
    assert_int_not_equal(record_setting_read(RECORD_TELL_DESTINATION, "1", 1, &setting, &error),
                         STATUS_OK);
    says(&error, "\"1\" is neither true nor false");
}

TEST_MAIN()
