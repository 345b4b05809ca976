/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a session's outputs to items. An item that runs alone lends the memory of its outputs before
 * the run, once the model has been seen to keep to its declared shapes. Otherwise, and for items
 * that run together, outputs are copied. On the thread of `run`.
 */
#pragma once

#include "inputs.h"

/* Makes values over the item's own outputs where their shapes are known; others stay NULL. False:
 * the item has failed. */
bool outputs_lend(const struct engine *engine, const struct onnx_model *model, struct part *part,
                  OrtValue **values);

/* Gives each part its rows of a run's outputs; those that are `lent` are in place already. False,
 * with nothing given: some output's first dimension is not the sum of the inputs'. */
bool outputs_give(const struct engine *engine, struct onnx_model *model, struct part *const *parts,
                  size_t part_count, OrtValue *const *values, const bool *lent);
