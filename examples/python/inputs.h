/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of one item, or of several whose rows are concatenated, as arrays for `run`. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <shoal/modelet.h>
#include <stdbool.h>

#include "memory.h"
#include "signature.h"

/* Items that are run together. */
struct run_group {
    struct shoal_item **items;
    uint32_t count;
    int64_t *rows; /* of each item; their sum is the first dimension */
    int64_t row_count;
};

/* The arguments of one call; `cached` outlives it. */
struct run_arguments {
    PyObject *objects[1 + SHOAL_TENSORS_MAX]; /* the model, if any, then arrays */
    size_t count;
    struct memory *memory[SHOAL_TENSORS_MAX]; /* of each input; NULL: none is under it */
    struct memory *cached[SHOAL_TENSORS_MAX];
};

/* Finds the inputs of an item and checks them, and with @shoal.batched that all have as many rows,
 * `*rows`. False: the item has failed. */
bool inputs_find(const struct signature *signature, const struct shoal_host *host,
                 struct shoal_item *item, const struct shoal_tensor **found, int64_t *rows);

/* Whether the rows of both can be concatenated: datatypes and other dimensions are the same. */
bool inputs_match(const struct signature *signature, const struct shoal_tensor *const *one,
                  const struct shoal_tensor *const *other);

/* Makes the arrays and puts them behind what `arguments` has. `found` has input_count tensors per
 * item. False: a Python exception is set. */
bool inputs_make(struct run_arguments *arguments, const struct signature *signature,
                 const struct run_group *group, const struct shoal_tensor *const *found);

/* Gives up the arrays, after which what user code has kept of them is its own. */
void inputs_end_run(struct run_arguments *arguments);
