/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From items to what a session takes: each item is held against what the model says it takes, and
 * the inputs of items that run together are put side by side along their first dimension. Those of
 * an item that runs alone are used where they lie. On the thread of `run`.
 */
#pragma once

#include "model.h"

/* An item, its inputs in the model's order. */
struct part {
    struct shoal_item *item;
    const struct shoal_tensor *inputs[SHOAL_TENSORS_MAX];
    int64_t rows; /* first dimension of all inputs; -1: it runs alone */
    bool done;
};

/* Memory that inputs are put together in; grows. */
struct gathered {
    char *bytes;
    size_t size;
};

/* Fails the item and is done with it, or fills the part. */
void part_init(struct part *part, const struct model *model, const struct shoal_host *host,
               struct shoal_item *item);
/* Both have rows, and the other dimensions are the same. */
bool part_fits(const struct part *part, const struct part *other, uint32_t input_count);

/* One value per input of the model; those made are the caller's to release, after a failure too. */
int inputs_make(const struct engine *engine, const struct model *model, struct gathered *gathered,
                struct part *const *parts, size_t part_count, OrtValue **values,
                struct shoal_error *error);
