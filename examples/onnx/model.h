/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loaded model: a session of ONNX Runtime, what it takes and gives as the file says, and the
 * weights that it uses where they are mapped. Made and destroyed on any thread; what `run` writes
 * into it is only read by `run`.
 */
#pragma once

#include "engine.h"
#include "model_folder.h"

/* What the shapes of outputs turned out to be. */
enum shapes_seen {
    SHAPES_UNSEEN,   /* until a run has shown it, outputs are copied */
    SHAPES_AS_SAID,  /* outputs are computed where they are to be */
    SHAPES_DIFFERENT /* the file says something else than its graph does: copied for ever */
};

struct model {
    OrtSession *session;
    uint32_t input_count;
    uint32_t output_count;
    struct shoal_tensor_spec *inputs;  /* names are the allocator's, and freed with the model */
    struct shoal_tensor_spec *outputs; /* rank 0 is SHOAL_RANK_ANY: ONNX does not tell them apart */
    struct model_folder folder;
    OrtValue **weights; /* over what is mapped */
    size_t weight_count;
    bool batches; /* items are put side by side along the first dimension */
    enum shapes_seen shapes_seen;
};

/* `host` NULL: the stage's own model, at spec->path. `spec` is not needed afterwards. */
int model_create(const struct engine *engine, const struct shoal_host *host,
                 const struct shoal_model *spec, struct model **created, struct shoal_error *error);
void model_destroy(const struct engine *engine, struct model *model);

/* Bytes that will be mapped or held by a worker for it, by the file alone; 0: it can't be read. */
uint64_t model_predict(const struct engine *engine, const char *path);

/* SHOAL's number of an element type; 0 for those that have none. And ONNX's of ours. */
uint32_t model_datatype(ONNXTensorElementDataType element);
ONNXTensorElementDataType model_element(uint32_t datatype);
