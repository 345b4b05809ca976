/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MLServer's folder of a model: model-settings.json, and the model beside it. Settings that a model
 * has are kept but for the name, which the server knows it by.
 */
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/check.h"
#include "serving/adapter/inside.h"
#include "serving/storage/cache_tree.h"

#define SETTINGS "model-settings.json"

static const struct {
    const char *format, *implementation;
} IMPLEMENTATIONS[] = {
    {"sklearn", "mlserver_sklearn.SKLearnModel"},
    {"xgboost", "mlserver_xgboost.XGBoostModel"},
    {"lightgbm", "mlserver_lightgbm.LightGBMModel"},
    {"mllib", "mlserver_mllib.MLlibModel"},
    {"mlflow", "mlserver_mlflow.MLflowRuntime"},
    {"catboost", "mlserver_catboost.CatboostModel"},
};

static enum status
set_implementation(const struct layout *layout, json_t *settings, struct error *error)
{
    if (json_object_get(settings, "implementation") != NULL)
        return STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(IMPLEMENTATIONS); i++) {
        if (strcmp(IMPLEMENTATIONS[i].format, layout->format) != 0)
            continue;
        (void)json_object_set_new(settings, "implementation",
                                  json_string(IMPLEMENTATIONS[i].implementation));
        return STATUS_OK;
    }
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "no implementation is known for the type \"%s\": put a " SETTINGS
                     " with `implementation` into the model's folder",
                     layout->format);
}

/* Tensors of the schema replace those of the settings. */
static enum status
set_schema(const struct layout *layout, json_t *settings, struct error *error)
{
    if (layout->schema[0] == '\0')
        return STATUS_OK;
    json_t *schema = json_load_file(layout->schema, 0, NULL);
    bool is_good = json_is_object(schema);
    static const char *const names[] = {"inputs", "outputs"};
    for (size_t i = 0; i < ARRAY_COUNT(names) && is_good; i++) {
        json_t *tensors = json_object_get(schema, names[i]);
        is_good = tensors == NULL || json_is_array(tensors);
        if (tensors != NULL)
            (void)json_object_set(settings, names[i], tensors);
    }
    json_decref(schema);
    if (is_good)
        return STATUS_OK;
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "the schema must be {\"inputs\": […], \"outputs\": […]}");
}

/* A model in a folder of its own, which has no other file, is that file. */
static enum status
find_file(const struct layout *layout, char source[PATH_MAX], struct error *error)
{
    struct model_names names = {.count = 0};
    char path[PATH_MAX];
    memcpy(source, layout->source, PATH_MAX);
    if (!layout->is_folder)
        return STATUS_OK;
    enum status status = layout_list(source, &names, error);
    if (status == STATUS_OK && names.count == 1) {
        status = layout_join(path, source, names.at[0], error);
        if (status == STATUS_OK && !layout_is_folder(path))
            memcpy(source, path, PATH_MAX);
    }
    model_names_fini(&names);
    return status;
}

static enum status
make_settings(const struct layout *layout, json_t *settings, struct error *error)
{
    char source[PATH_MAX];
    if (find_file(layout, source, error) != STATUS_OK)
        return error->status;
    const char *name = strrchr(source, '/') + 1;
    json_t *parameters = json_object();
    (void)json_object_set_new(parameters, "uri", json_sprintf("./%s", name));
    (void)json_object_set_new(settings, "parameters", parameters);
    return layout_link(layout, source, name, error);
}

static enum status
take_settings(const struct layout *layout, json_t *settings, struct error *error)
{
    char path[PATH_MAX];
    if (layout_join(path, layout->source, SETTINGS, error) != STATUS_OK)
        return error->status;
    json_t *given = json_load_file(path, 0, NULL);
    bool is_good = json_is_object(given);
    if (is_good)
        (void)json_object_update(settings, given);
    json_decref(given);
    if (!is_good)
        return error_set(error, STATUS_FAILED_PRECONDITION, SETTINGS " is not a JSON object");
    return layout_link_all(layout, SETTINGS, error);
}

static enum status
write_settings(const struct layout *layout, json_t *settings, struct error *error)
{
    char path[PATH_MAX];
    (void)json_object_set_new(settings, "name", json_string(layout->model->name));
    if (layout_join(path, layout->folder, SETTINGS, error) != STATUS_OK)
        return error->status;
    char *text = json_dumps(settings, JSON_INDENT(2) | JSON_SORT_KEYS);
    CHECK(text != NULL);
    enum status status = tree_write(path, text, error);
    free(text);
    return status;
}

enum status
layout_mlserver(const struct layout *layout, struct error *error)
{
    json_t *settings = json_object();
    bool has_settings = layout->is_folder && layout_exists(layout->source, SETTINGS);
    enum status status = has_settings ? take_settings(layout, settings, error)
                                      : make_settings(layout, settings, error);
    if (status == STATUS_OK)
        status = set_implementation(layout, settings, error);
    if (status == STATUS_OK)
        status = set_schema(layout, settings, error);
    if (status == STATUS_OK)
        status = write_settings(layout, settings, error);
    json_decref(settings);
    return status;
}
