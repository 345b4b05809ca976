/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Triton's folder of a model: a version's folder with files of fixed names, and config.pbtxt. A
 * model that has a config.pbtxt keeps its layout, and its name is taken out, because it must be the
 * folder's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/check.h"
#include "serving/adapter/inside.h"
#include "serving/storage/cache_tree.h"

#define CONFIG "config.pbtxt"

enum { CONFIG_BYTES_MAX = 1 << 20 };

struct format {
    const char *name;
    const char *backend;
    const char *file;   /* name of a model that is a file; NULL: its own */
    const char *folder; /* of one that is a folder; NULL: it is the version's folder */
};

static const struct format FORMATS[] = {
    {"tensorflow", "tensorflow", "model.graphdef", "model.savedmodel"},
    {"keras", "tensorflow", NULL, "model.savedmodel"},
    {"onnx", "onnxruntime", "model.onnx", "model.onnx"},
    {"pytorch", "pytorch", "model.pt", NULL},
    {"tensorrt", "tensorrt", "model.plan", NULL},
    {"python", "python", "model.py", NULL},
};

static const struct format *
format_of(const struct layout *layout)
{
    for (size_t i = 0; i < ARRAY_COUNT(FORMATS); i++)
        if (strcmp(FORMATS[i].name, layout->format) == 0)
            return &FORMATS[i];
    return NULL;
}

/* ---- with a config.pbtxt ---- */

/* NULL: it cannot be read, or is too large. */
static char *
read_whole(const char *path)
{
    FILE *file = fopen(path, "re");
    char *text = file != NULL ? malloc(CONFIG_BYTES_MAX) : NULL;
    if (text != NULL) {
        size_t bytes = fread(text, 1, CONFIG_BYTES_MAX, file);
        bool is_whole =
            bytes < CONFIG_BYTES_MAX && ferror(file) == 0 && memchr(text, '\0', bytes) == NULL;
        text[is_whole ? bytes : 0] = '\0';
        if (!is_whole) {
            free(text);
            text = NULL;
        }
    }
    if (file != NULL)
        (void)fclose(file);
    return text;
}

static enum status
write_in(const struct layout *layout, const char *name, const char *text, struct error *error)
{
    char path[PATH_MAX];
    enum status status = layout_join(path, layout->folder, name, error);
    return status == STATUS_OK ? tree_write(path, text, error) : status;
}

static enum status
lay_native(const struct layout *layout, struct error *error)
{
    char path[PATH_MAX];
    if (layout->schema[0] != '\0')
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the model has a " CONFIG " and a schema: write its tensors into " CONFIG);
    if (layout_join(path, layout->source, CONFIG, error) != STATUS_OK)
        return error->status;
    char *text = read_whole(path);
    char *config = text != NULL ? pbtxt_without_name(text) : NULL;
    enum status status = config != NULL ? write_in(layout, CONFIG, config, error)
                                        : error_set(error, STATUS_FAILED_PRECONDITION,
                                                    CONFIG " is not in protobuf's text format");
    free(text);
    free(config);
    return status == STATUS_OK ? layout_link_all(layout, CONFIG, error) : status;
}

/* ---- without ---- */

static enum status
link_model(const struct layout *layout, const char *source, const char *version,
           struct error *error)
{
    char name[2 * NAME_MAX + 2];
    const struct format *format = format_of(layout);
    const char *slash = strrchr(source, '/');
    const char *file = slash + 1;
    if (layout_is_folder(source))
        file = format != NULL ? format->folder : NULL;
    else if (format != NULL && format->file != NULL)
        file = format->file;
    snprintf(name, sizeof(name), "%s%s%s", version, file != NULL ? "/" : "",
             file != NULL ? file : "");
    return layout_link(layout, source, name, error);
}

/* The largest version, else the folder itself; a single entry of it is the model if the format
 * gives it a name. */
static enum status
link_folder(const struct layout *layout, struct error *error)
{
    struct model_names names = {.count = 0};
    char version[NAME_MAX + 1] = "";
    char source[PATH_MAX];
    snprintf(source, sizeof(source), "%s", layout->source);
    enum status status = layout_list(source, &names, error);
    if (status == STATUS_OK)
        status = layout_version(source, &names, version, error);
    if (status == STATUS_OK && version[0] != '\0') {
        model_names_fini(&names);
        status = layout_join(source, layout->source, version, error);
        if (status == STATUS_OK)
            status = layout_list(source, &names, error);
    }
    if (status == STATUS_OK && names.count == 1 && format_of(layout) != NULL) {
        char folder[PATH_MAX];
        memcpy(folder, source, sizeof(folder));
        status = layout_join(source, folder, names.at[0], error);
    }
    model_names_fini(&names);
    if (status != STATUS_OK)
        return status;
    return link_model(layout, source, version[0] != '\0' ? version : "1", error);
}

/* ---- a schema ---- */

static enum status
schema_is_bad(struct error *error)
{
    return error_set(error, STATUS_FAILED_PRECONDITION,
                     "the schema must be {\"inputs\": [{\"name\", \"datatype\", \"shape\"}], "
                     "\"outputs\": …}");
}

/* A text that needs no quoting. */
static bool
is_plain(const char *text)
{
    return text != NULL && text[0] != '\0' && strpbrk(text, "\"\\\n\r") == NULL;
}

static enum status
put_tensors(struct bytes *out, const char *kind, const json_t *tensors, struct error *error)
{
    size_t index;
    const json_t *tensor;
    if (tensors != NULL && !json_is_array(tensors))
        return schema_is_bad(error);
    json_array_foreach(tensors, index, tensor)
    {
        const char *name = json_string_value(json_object_get(tensor, "name"));
        const char *type = json_string_value(json_object_get(tensor, "datatype"));
        const json_t *shape = json_object_get(tensor, "shape");
        char text[768];
        if (!is_plain(name) || !is_plain(type) || !json_is_array(shape))
            return schema_is_bad(error);
        if (strcmp(type, "BYTES") == 0)
            type = "STRING";
        snprintf(text, sizeof(text), "%s { name: \"%.500s\" data_type: TYPE_%.20s dims: [", kind,
                 name, type);
        bytes_put_text(out, text);
        for (size_t i = 0; i < json_array_size(shape); i++) {
            snprintf(text, sizeof(text), "%s%lld", i > 0 ? ", " : " ",
                     (long long)json_integer_value(json_array_get(shape, i)));
            bytes_put_text(out, text);
        }
        bytes_put_text(out, " ] }\n");
    }
    return STATUS_OK;
}

static enum status
write_schema(const struct layout *layout, struct error *error)
{
    const struct format *format = format_of(layout);
    json_t *schema = json_load_file(layout->schema, 0, NULL);
    struct bytes config = {.data = NULL};
    if (format != NULL) {
        bytes_put_text(&config, "backend: \"");
        bytes_put_text(&config, format->backend);
        bytes_put_text(&config, "\"\n");
    }
    enum status status = json_is_object(schema) ? STATUS_OK : schema_is_bad(error);
    if (status == STATUS_OK)
        status = put_tensors(&config, "input", json_object_get(schema, "inputs"), error);
    if (status == STATUS_OK)
        status = put_tensors(&config, "output", json_object_get(schema, "outputs"), error);
    bytes_put_char(&config, '\0');
    CHECK(!config.failed);
    if (status == STATUS_OK)
        status = write_in(layout, CONFIG, config.data, error);
    bytes_fini(&config);
    json_decref(schema);
    return status;
}

enum status
layout_triton(const struct layout *layout, struct error *error)
{
    if (layout->is_folder && layout_exists(layout->source, CONFIG))
        return lay_native(layout, error);
    enum status status = layout->is_folder ? link_folder(layout, error)
                                           : link_model(layout, layout->source, "1", error);
    if (status == STATUS_OK && layout->schema[0] != '\0')
        status = write_schema(layout, error);
    return status;
}
