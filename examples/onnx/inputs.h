/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From items to a session's inputs. Each item is checked against the model's declaration. The
 * inputs of items that run together are concatenated along their first dimension; those of an item
 * that runs alone are used in place. On the thread of `run`.
 */
#pragma once

#include "model.h"

/* An item, with its inputs in the model's order. */
struct part {
    struct shoal_item *item;
    const struct shoal_tensor *inputs[SHOAL_TENSORS_MAX];
    int64_t rows; /* first dimension of all inputs; -1: it runs alone */
    bool done;
};

/* Memory for concatenated inputs; grows. */
struct gathered {
    char *bytes;
    size_t size;
};

/* Fills the part, or fails the item and sets `done`. */
void part_init(struct part *part, const struct onnx_model *model, const struct shoal_host *host,
               struct shoal_item *item);
/* True if both have rows and equal other dimensions. */
bool part_fits(const struct part *part, const struct part *other, uint32_t input_count);

/* Makes one value per input of the model. The caller releases those that were made, even after a
 * failure. */
int inputs_make(const struct engine *engine, const struct onnx_model *model,
                struct gathered *gathered, struct part *const *parts, size_t part_count,
                OrtValue **values, struct shoal_error *error);
