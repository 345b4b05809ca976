/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of models that a node registers when it starts: each sentence of mesh_listed.h, and
 * every kind of mistake with its words.
 */
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "coordinator/mesh/mesh_listed.h"
#include "coordinator/mesh/mesh_request.h"
#include "mesh/core/mesh_core.h"

#define INFO "\"modelInfo\": {\"type\": \"t\"}"
#define ONE "{\"modelId\": \"m\", " INFO "}"

static struct mesh_listed *
good(const char *json)
{
    struct mesh_listed *listed = NULL;
    struct error error = ERROR_NONE;
    if (mesh_listed_read(json, strlen(json), &listed, &error) != STATUS_OK)
        fail_msg("%s: %s", json, error.text);
    return listed;
}

static void
bad(const char *json, const char *text)
{
    struct mesh_listed *listed = NULL;
    struct error error = ERROR_NONE;
    assert_int_equal(mesh_listed_read(json, strlen(json), &listed, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_null(listed);
    if (strstr(error.text, text) == NULL)
        fail_msg("%.200s: \"%s\" is not in \"%s\"", json, text, error.text);
}

TEST_CASE(test_all_members)
{
    struct mesh_listed *listed = good(
        "[{\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"path\": \"p\", \"key\": "
        "\"{\\\"a\\\": 1}\"}, \"vModelId\": \"v\", \"ensureLoaded\": true},"
        " {\"modelId\": \"n\", \"modelInfo\": {\"type\": \"t\", \"path\": \"\", \"key\": null, "
        "\"more\": 1}, \"vModelId\": \"w\", \"retainAfterTransition\": true, \"more\": []},"
        " {\"modelId\": \"o\", " INFO ", \"vModelId\": null, \"ensureLoaded\": false, "
        "\"retainAfterTransition\": false}]");
    assert_int_equal(listed->count, 3);
    const struct mesh_listed_model *model = &listed->models[0];
    assert_string_equal(model->model, "m");
    assert_string_equal(model->type, "t");
    assert_string_equal(model->path, "p");
    assert_string_equal(model->key, "{\"a\": 1}");
    assert_string_equal(model->vmodel, "v");
    assert_true(model->auto_delete);
    assert_true(model->ensure_loaded);
    model = &listed->models[1];
    assert_string_equal(model->model, "n");
    assert_null(model->path);
    assert_null(model->key);
    assert_string_equal(model->vmodel, "w");
    assert_false(model->auto_delete);
    assert_false(model->ensure_loaded);
    model = &listed->models[2];
    assert_null(model->vmodel);
    assert_false(model->auto_delete);
    assert_false(model->ensure_loaded);
    mesh_listed_destroy(listed);
}

TEST_CASE(test_forms)
{
    static const struct {
        const char *json;
        uint32_t count;
    } forms[] = {
        {"[]", 0},
        {ONE, 1},
        {"\n [" ONE "]\n", 1},
        {"[" ONE ", " ONE "]", 2},
        {"[{\"modelId\": \"m\", " INFO ", \"vModelId\": \"v\"}, "
         "{\"modelId\": \"m\", " INFO ", \"vModelId\": \"w\", \"ensureLoaded\": true}, "
         "{\"modelId\": \"m\", " INFO ", \"vModelId\": \"v\"}]",
         3},
        /* one that outlives its vmodel, or has none */
        {"[" ONE ", {\"modelId\": \"m\", " INFO ", \"vModelId\": \"w\", "
         "\"retainAfterTransition\": true}]",
         2},
    };
    for (size_t i = 0; i < ARRAY_COUNT(forms); i++) {
        struct mesh_listed *listed = good(forms[i].json);
        assert_int_equal(listed->count, forms[i].count);
        mesh_listed_destroy(listed);
    }
    mesh_listed_destroy(NULL);
}

TEST_CASE(test_mistakes)
{
    static const struct {
        const char *json, *text;
    } wrong[] = {
        {"", "not JSON: empty"},
        {"[{]", "not JSON: "},
        {"[1", "not JSON: "},
        {"{\"modelId\": \"m\", \"modelId\": \"n\", " INFO "}", "not JSON: duplicate"},
        {"[7]", "entry 1: expected an object"},
        {"[" ONE ", [" ONE "]]", "entry 2: expected an object"},
        {"[" ONE ", {" INFO "}]", "entry 2: modelId: must be given, and not empty"},
        {"{\"modelId\": \"\", " INFO "}", "entry 1: modelId: must be given, and not empty"},
        {"{\"modelId\": 7, " INFO "}", "entry 1: modelId: expected a string, not a number"},
        {"{\"modelId\": \"m\"}", "entry 1: \"m\": modelInfo: must be given, with \"type\""},
        {"{\"modelId\": \"m\", \"modelInfo\": \"t\"}",
         "modelInfo: expected an object, not a string"},
        {"{\"modelId\": \"m\", \"modelInfo\": {}}",
         "entry 1: \"m\": modelInfo: type: must be given, and not empty"},
        {"{\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"path\": 1}}",
         "modelInfo: path: expected a string"},
        {"{\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"key\": {\"a\": 1}}}",
         "modelInfo: key: expected a string, not an object"},
        {"{\"modelId\": \"m\", " INFO ", \"vModelId\": \"\"}",
         "vModelId: must be given, and not empty"},
        {"{\"modelId\": \"m\", " INFO ", \"vModelId\": []}", "vModelId: expected a string"},
        {"{\"modelId\": \"m\", " INFO ", \"retainAfterTransition\": true}",
         "retainAfterTransition: only beside a vModelId"},
        {"{\"modelId\": \"m\", " INFO ", \"retainAfterTransition\": 1}",
         "retainAfterTransition: expected true or false, not a number"},
        {"{\"modelId\": \"m\", " INFO ", \"ensureLoaded\": \"yes\"}",
         "entry 1: \"m\": ensureLoaded: expected true or false, not a string"},
        {"[" ONE ", {\"modelId\": \"a\", " INFO "}, {\"modelId\": \"m\", \"modelInfo\": {\"type\": "
         "\"u\"}}]",
         "\"m\" is in several entries"},
        {"[" ONE ", {\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"path\": \"p\"}}]",
         "\"m\" is in several entries"},
        {"[" ONE ", {\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"key\": \"k\"}}]",
         "\"m\" is in several entries"},
        {"[" ONE ", {\"modelId\": \"m\", " INFO ", \"vModelId\": \"v\"}]",
         "\"m\" is in several entries"},
        {"[{\"modelId\": \"m\", " INFO ", \"vModelId\": \"v\"}, " ONE ", {\"modelId\": \"n\", " INFO
         ", \"vModelId\": \"v\"}]",
         "\"m\" is in several entries"},
        {"[{\"modelId\": \"m\", " INFO ", \"vModelId\": \"v\"}, {\"modelId\": \"n\", " INFO
         ", \"vModelId\": \"v\"}]",
         "the vmodel \"v\" is in several entries, with different models"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++)
        bad(wrong[i].json, wrong[i].text);
}

/* `bytes` of x where the format says. */
static char *
filled(const char *format, size_t bytes)
{
    char *text = malloc(bytes + 1);
    char *json = malloc(bytes + strlen(format));
    assert_non_null(text);
    assert_non_null(json);
    memset(text, 'x', bytes);
    text[bytes] = '\0';
    const char *hole = strchr(format, '%');
    size_t before = (size_t)(hole - format);
    memcpy(json, format, before);
    memcpy(json + before, text, bytes);
    memcpy(json + before + bytes, hole + 1, strlen(hole + 1) + 1);
    free(text);
    return json;
}

TEST_CASE(test_lengths)
{
    static const struct {
        const char *format;
        size_t bytes_max;
    } texts[] = {
        {"{\"modelId\": \"%\", " INFO "}", MESH_ID_BYTES_MAX},
        {"{\"modelId\": \"m\", " INFO ", \"vModelId\": \"%\"}", MESH_ID_BYTES_MAX},
        {"{\"modelId\": \"m\", \"modelInfo\": {\"type\": \"%\"}}", MESH_ID_BYTES_MAX},
        {"{\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"path\": \"%\"}}",
         MESH_REQUEST_PATH_BYTES_MAX},
        {"{\"modelId\": \"m\", \"modelInfo\": {\"type\": \"t\", \"key\": \"%\"}}",
         MESH_REQUEST_KEY_BYTES_MAX},
    };
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        char *json = filled(texts[i].format, texts[i].bytes_max);
        mesh_listed_destroy(good(json));
        free(json);
        json = filled(texts[i].format, texts[i].bytes_max + 1);
        bad(json, "bytes: must be at most");
        free(json);
    }
}

TEST_CASE(test_entries_max)
{
    char *json = malloc((MESH_LISTED_MAX + 1) * sizeof(ONE) + 3);
    assert_non_null(json);
    for (uint32_t count = MESH_LISTED_MAX; count <= MESH_LISTED_MAX + 1; count++) {
        size_t used = 0;
        json[used++] = '[';
        for (uint32_t i = 0; i < count; i++) {
            memcpy(json + used, ONE ",", sizeof(ONE));
            used += sizeof(ONE);
        }
        json[used - 1] = ']';
        json[used] = '\0';
        if (count == MESH_LISTED_MAX)
            mesh_listed_destroy(good(json));
        else
            bad(json, "must be a list of at most 4096 objects, or one object");
    }
    free(json);
}

TEST_MAIN()
