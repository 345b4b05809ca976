/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a batch through a session. If all inputs and outputs of the model begin with the same open
 * dimension, items with equal other dimensions are concatenated along it; other items run one by
 * one. If items that ran together fail, each is run again alone, so that only the culprit fails. On
 * the thread of `run`.
 */
#pragma once

#include "inputs.h"

struct runner {
    const struct engine *engine;
    struct part *parts;  /* one per item of a batch */
    struct part **group; /* those that run together */
    struct gathered gathered;
};

/* `runner` must be all zero; close it even after a failure. */
int runner_open(struct runner *runner, const struct engine *engine, uint32_t batch_size,
                struct shoal_error *error);
void runner_close(struct runner *runner);

/* Every item has a status afterwards. */
void runner_run(struct runner *runner, struct onnx_model *model, const struct shoal_batch *batch);
