/* SPDX-License-Identifier: Apache-2.0 */
#include "model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "graph_file.h"

enum {
    REASON_ROOM = 200,
    /* Memory of a session beside its constants, as measured with 1.21, in whole pages. */
    SESSION_BYTES = 400 << 10,
    NODE_BYTES = 4 << 10
};

static const ONNXTensorElementDataType elements[SHOAL_DATATYPE_END] = {
    [SHOAL_BOOL] = ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL,
    [SHOAL_UINT8] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8,
    [SHOAL_UINT16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16,
    [SHOAL_UINT32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32,
    [SHOAL_UINT64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64,
    [SHOAL_INT8] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8,
    [SHOAL_INT16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16,
    [SHOAL_INT32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
    [SHOAL_INT64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64,
    [SHOAL_FP16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
    [SHOAL_FP32] = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT,
    [SHOAL_FP64] = ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE,
    [SHOAL_BYTES] = ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING,
    [SHOAL_BF16] = ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16,
};

ONNXTensorElementDataType
model_element(uint32_t datatype)
{
    return elements[datatype];
}

uint32_t
model_datatype(ONNXTensorElementDataType element)
{
    for (uint32_t i = 1; i < SHOAL_DATATYPE_END; i++)
        if (elements[i] == element)
            return i;
    return 0;
}

/* Reports ONNX Runtime's error, prefixed with the model's name. */
static int
refuse(const struct engine *engine, const struct onnx_model *model, OrtStatus *status,
       struct shoal_error *error)
{
    char reason[REASON_ROOM];
    int number = engine_status(engine, status, error);
    snprintf(reason, sizeof reason, "%.*s", (int)sizeof reason - 1, error->text);
    return model_refuse(error, model->folder.path, number, reason);
}

/* ---- inputs and outputs ---- */

/* The first dimension, while it may be the common one for concatenation. */
struct first {
    bool open;
    char symbol[SHOAL_NAME_BYTES_MAX + 1]; /* its name; "": none known */
};

static bool
same_symbol(struct first *first, const char *symbol)
{
    if (symbol == NULL || symbol[0] == '\0')
        return true;
    if (first->symbol[0] == '\0')
        snprintf(first->symbol, sizeof first->symbol, "%s", symbol);
    return strncmp(first->symbol, symbol, sizeof first->symbol - 1) == 0;
}

static OrtStatus *
shape_read(const struct engine *engine, const OrtTensorTypeAndShapeInfo *info,
           struct shoal_tensor_spec *spec, struct first *first)
{
    const char *symbols[SHOAL_RANK_MAX] = {NULL};
    OrtStatus *status = engine->api->GetDimensions(info, spec->shape, spec->rank);
    if (status == NULL)
        status = engine->api->GetSymbolicDimensions(info, symbols, spec->rank);
    if (status != NULL)
        return status;
    for (uint32_t i = 0; i < spec->rank; i++)
        spec->shape[i] = spec->shape[i] < 0 ? -1 : spec->shape[i];
    first->open =
        first->open && spec->rank > 0 && spec->shape[0] == -1 && same_symbol(first, symbols[0]);
    if (spec->rank == 0)
        spec->rank = SHOAL_RANK_ANY;
    return NULL;
}

static int
tensor_refuse(const struct onnx_model *model, const struct shoal_tensor_spec *spec,
              const char *what, struct shoal_error *error)
{
    char reason[REASON_ROOM];
    snprintf(reason, sizeof reason, "tensor \"%.60s\" %s", spec->name, what);
    return model_refuse(error, model->folder.path, SHOAL_INVALID_ARGUMENT, reason);
}

static int
type_read(const struct engine *engine, const struct onnx_model *model, const OrtTypeInfo *type,
          struct shoal_tensor_spec *spec, struct first *first, struct shoal_error *error)
{
    const OrtTensorTypeAndShapeInfo *info = NULL;
    enum ONNXType kind = ONNX_TYPE_UNKNOWN;
    ONNXTensorElementDataType element = ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED;
    size_t rank = 0;
    OrtStatus *status = engine->api->GetOnnxTypeFromTypeInfo(type, &kind);
    if (status == NULL && kind != ONNX_TYPE_TENSOR)
        return tensor_refuse(model, spec,
                             "is a sequence, a map, sparse or optional: only plain tensors are "
                             "served (scikit-learn: convert with zipmap=False)",
                             error);
    if (status == NULL)
        status = engine->api->CastTypeInfoToTensorInfo(type, &info);
    if (status == NULL)
        status = engine->api->GetTensorElementType(info, &element);
    if (status == NULL)
        status = engine->api->GetDimensionsCount(info, &rank);
    if (status != NULL)
        return refuse(engine, model, status, error);
    spec->datatype = model_datatype(element);
    spec->rank = (uint32_t)rank;
    if (spec->datatype == 0)
        return tensor_refuse(model, spec, "has elements of a type that requests cannot have",
                             error);
    if (rank > SHOAL_RANK_MAX)
        return tensor_refuse(model, spec, "has more than 8 dimensions", error);
    if (strlen(spec->name) > SHOAL_NAME_BYTES_MAX)
        return tensor_refuse(model, spec, "… has a name of more than 127 bytes", error);
    status = shape_read(engine, info, spec, first);
    return status != NULL ? refuse(engine, model, status, error) : SHOAL_OK;
}

/* The functions for inputs and those for outputs have the same types. */
struct asked {
    OrtStatus *(*count)(const OrtSession *, size_t *);
    OrtStatus *(*name)(const OrtSession *, size_t, OrtAllocator *, char **);
    OrtStatus *(*type)(const OrtSession *, size_t, OrtTypeInfo **);
};

static int
specs_read(const struct engine *engine, const struct onnx_model *model, const struct asked *asked,
           struct shoal_tensor_spec **specs, uint32_t *spec_count, struct first *first,
           struct shoal_error *error)
{
    size_t count;
    OrtStatus *status = asked->count(model->session, &count);
    if (status != NULL)
        return refuse(engine, model, status, error);
    if (count > SHOAL_TENSORS_MAX)
        return model_refuse(error, model->folder.path, SHOAL_INVALID_ARGUMENT,
                            "it has more than 64 inputs, or outputs");
    *specs = calloc(count + 1, sizeof **specs);
    if (*specs == NULL)
        return model_refuse(error, model->folder.path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    for (size_t i = 0; i < count; i++) {
        char *name;
        OrtTypeInfo *type;
        status = asked->name(model->session, i, engine->allocator, &name);
        if (status != NULL)
            return refuse(engine, model, status, error);
        (*specs)[i].name = name;
        *spec_count = (uint32_t)i + 1;
        status = asked->type(model->session, i, &type);
        if (status != NULL)
            return refuse(engine, model, status, error);
        int number = type_read(engine, model, type, &(*specs)[i], first, error);
        engine->api->ReleaseTypeInfo(type);
        if (number != SHOAL_OK)
            return number;
    }
    return SHOAL_OK;
}

static int
model_ask(const struct engine *engine, struct onnx_model *model, struct shoal_error *error)
{
    const OrtApi *api = engine->api;
    const struct asked inputs = {api->SessionGetInputCount, api->SessionGetInputName,
                                 api->SessionGetInputTypeInfo};
    const struct asked outputs = {api->SessionGetOutputCount, api->SessionGetOutputName,
                                  api->SessionGetOutputTypeInfo};
    struct first first = {engine->options.batches, ""};
    int status =
        specs_read(engine, model, &inputs, &model->inputs, &model->input_count, &first, error);
    if (status == SHOAL_OK)
        status = specs_read(engine, model, &outputs, &model->outputs, &model->output_count, &first,
                            error);
    model->batches = first.open && model->input_count > 0;
    return status;
}

/* ---- weights in other files ---- */

/* Returns the bytes of its elements; 0 for none, and for impossibly large ones. */
static size_t
constant_bytes(const struct graph_constant *constant)
{
    size_t bytes = shoal_datatype_bytes(model_datatype(constant->element));
    for (uint32_t i = 0; i < constant->rank; i++) {
        if (constant->shape[i] <= 0 ||
            __builtin_mul_overflow(bytes, (size_t)constant->shape[i], &bytes))
            return 0;
    }
    return bytes;
}

static char *
terminated(struct graph_bytes text)
{
    return strndup((const char *)text.bytes, text.size);
}

/* Makes the session use the constant where it is mapped. */
static int
weight_share(const struct engine *engine, struct onnx_model *model, OrtSessionOptions *options,
             const struct graph_constant *constant, const char *name, const void *at, size_t bytes,
             struct shoal_error *error)
{
    OrtValue *value;
    OrtStatus *status = engine->api->CreateTensorWithDataAsOrtValue(
        engine->memory, (void *)(uintptr_t)at, bytes, constant->shape, constant->rank,
        (ONNXTensorElementDataType)constant->element, &value);
    if (status != NULL)
        return refuse(engine, model, status, error);
    model->weights[model->weight_count++] = value;
    status = engine->api->AddInitializer(options, name, value);
    return status != NULL ? refuse(engine, model, status, error) : SHOAL_OK;
}

/* Constants that cannot be used in place, because of their type or alignment, are copied by ONNX
 * Runtime. */
static int
weight_map(const struct engine *engine, struct onnx_model *model, OrtSessionOptions *options,
           const struct graph_constant *constant, struct shoal_error *error)
{
    const struct model_file *file;
    size_t bytes = constant_bytes(constant);
    size_t element_bytes = shoal_datatype_bytes(model_datatype(constant->element));
    char *name = terminated(constant->name);
    char *location = constant->location.bytes != NULL ? terminated(constant->location) : strdup("");
    int status = SHOAL_RESOURCE_EXHAUSTED;
    if (name == NULL || location == NULL) {
        model_refuse(error, model->folder.path, status, "no memory");
        goto out;
    }
    status = model_folder_weights(&model->folder, location, &file, error);
    if (status != SHOAL_OK)
        goto out;
    if (constant->offset > file->size || bytes > file->size - constant->offset ||
        (constant->length != UINT64_MAX && constant->length != bytes && bytes != 0)) {
        const struct shoal_tensor_spec spec = {.name = name};
        status = tensor_refuse(model, &spec, "claims more than its file of weights has", error);
        goto out;
    }
    if (bytes > 0 && constant->offset % element_bytes == 0)
        status = weight_share(engine, model, options, constant, name,
                              (const char *)file->bytes + constant->offset, bytes, error);
out:
    free(name);
    free(location);
    return status;
}

static int
weights_map(const struct engine *engine, struct onnx_model *model, OrtSessionOptions *options,
            const struct graph_file *graph, struct shoal_error *error)
{
    int status = SHOAL_OK;
    if (graph->apart_count == 0)
        return SHOAL_OK;
    model->weights = calloc(graph->apart_count, sizeof(OrtValue *));
    if (model->weights == NULL)
        return model_refuse(error, model->folder.path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    for (size_t i = 0; i < graph->apart_count && status == SHOAL_OK; i++)
        status = weight_map(engine, model, options, &graph->apart[i], error);
    if (status != SHOAL_OK)
        return status;
    /* The folder where ONNX Runtime looks for constants that it transforms before use. */
    OrtStatus *said = engine->api->AddSessionConfigEntry(
        options, "session.model_external_initializers_file_folder_path", model->folder.spec->path);
    return said != NULL ? refuse(engine, model, said, error) : SHOAL_OK;
}

/* ---- its life ---- */

static int
session_create(const struct engine *engine, struct onnx_model *model,
               const struct graph_file *graph, struct shoal_error *error)
{
    const struct model_file *file = &model->folder.model;
    OrtSessionOptions *options = engine_session_options(engine, error);
    if (options == NULL)
        return SHOAL_INTERNAL;
    int status = weights_map(engine, model, options, graph, error);
    if (status == SHOAL_OK) {
        OrtStatus *said = engine->api->CreateSessionFromArray(engine->env, file->bytes, file->size,
                                                              options, &model->session);
        if (said != NULL)
            status = refuse(engine, model, said, error);
    }
    engine->api->ReleaseSessionOptions(options);
    return status;
}

static int
model_load(const struct engine *engine, struct onnx_model *model, struct shoal_error *error)
{
    char reason[REASON_ROOM];
    struct graph_file graph;
    const struct model_file *file = &model->folder.model;
    if (!graph_file_read(file->bytes, file->size, &graph, reason, sizeof reason))
        return model_refuse(error, model->folder.path, SHOAL_INVALID_ARGUMENT, reason);
    int status = session_create(engine, model, &graph, error);
    graph_file_free(&graph);
    /* Releases its pages: it was copied and is not needed any more, though it may stay mapped. */
    madvise((void *)(uintptr_t)file->bytes, file->size, MADV_DONTNEED);
    return status == SHOAL_OK ? model_ask(engine, model, error) : status;
}

int
model_create(const struct engine *engine, const struct shoal_host *host,
             const struct shoal_model *spec, struct onnx_model **created, struct shoal_error *error)
{
    int status = engine_check(engine, error);
    if (status != SHOAL_OK)
        return status;
    struct onnx_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return model_refuse(error, spec->path, SHOAL_RESOURCE_EXHAUSTED, "no memory");
    status = model_folder_open(&model->folder, host, spec, error);
    if (status == SHOAL_OK)
        status = model_load(engine, model, error);
    model->folder.spec = NULL;
    if (status != SHOAL_OK) {
        model_destroy(engine, model);
        return status;
    }
    *created = model;
    return SHOAL_OK;
}

static void
specs_free(const struct engine *engine, struct shoal_tensor_spec *specs, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        engine->allocator->Free(engine->allocator, (void *)(uintptr_t)specs[i].name);
    free(specs);
}

void
model_destroy(const struct engine *engine, struct onnx_model *model)
{
    if (model == NULL)
        return;
    if (model->session != NULL)
        engine->api->ReleaseSession(model->session);
    for (size_t i = 0; i < model->weight_count; i++)
        engine->api->ReleaseValue(model->weights[i]);
    free(model->weights);
    specs_free(engine, model->inputs, model->input_count);
    specs_free(engine, model->outputs, model->output_count);
    model_folder_close(&model->folder);
    free(model);
}

/* Sums what is mapped and what is copied of it. */
uint64_t
model_predict(const struct engine *engine, const char *path)
{
    char reason[REASON_ROOM];
    struct shoal_error error;
    struct model_folder folder;
    struct graph_file graph;
    uint64_t predicted = 0;
    const struct shoal_model spec = {.struct_size = sizeof spec, .path = path};
    if (model_folder_open(&folder, NULL, &spec, &error) == SHOAL_OK &&
        graph_file_read(folder.model.bytes, folder.model.size, &graph, reason, sizeof reason)) {
        predicted =
            folder.model.size + SESSION_BYTES + NODE_BYTES * graph.node_count + graph.inside_bytes;
        for (size_t i = 0; i < graph.apart_count; i++)
            predicted += constant_bytes(&graph.apart[i]) * (engine->options.prepacking ? 2 : 1);
        graph_file_free(&graph);
    }
    model_folder_close(&folder);
    return predicted;
}
