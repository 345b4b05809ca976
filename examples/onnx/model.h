/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loaded model: a session of ONNX Runtime, the inputs and outputs that the file declares, and the
 * weights that are used where they are mapped. Created and destroyed on any thread; members that
 * `run` writes are read only by `run`.
 */
#pragma once

#include "engine.h"
#include "model_folder.h"

/* Whether outputs have the declared shapes. */
enum shapes_seen {
    SHAPES_UNSEEN,   /* unknown before the first run: outputs are copied */
    SHAPES_AS_SAID,  /* outputs are computed in place */
    SHAPES_DIFFERENT /* the graph contradicts the file: outputs are always copied */
};

struct onnx_model {
    OrtSession *session;
    uint32_t input_count;
    uint32_t output_count;
    struct shoal_tensor_spec *inputs;  /* names are the allocator's, freed with the model */
    struct shoal_tensor_spec *outputs; /* rank 0 becomes SHOAL_RANK_ANY: ONNX does not distinguish
                                        * them */
    struct model_folder folder;
    OrtValue **weights; /* point into mapped files */
    size_t weight_count;
    bool batches; /* items are concatenated along the first dimension */
    enum shapes_seen shapes_seen;
};

/* `host` NULL: the stage's own model, at spec->path. `spec` is not needed afterwards. */
int model_create(const struct engine *engine, const struct shoal_host *host,
                 const struct shoal_model *spec, struct onnx_model **created,
                 struct shoal_error *error);
void model_destroy(const struct engine *engine, struct onnx_model *model);

/* Predicts, from the file alone, the bytes that a worker will map or allocate for it; 0:
 * unreadable. */
uint64_t model_predict(const struct engine *engine, const char *path);

/* Convert element types between ONNX and Shoal; 0: Shoal has no such type. */
uint32_t model_datatype(ONNXTensorElementDataType element);
ONNXTensorElementDataType model_element(uint32_t datatype);
