/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors that `run` takes and returns, as its annotations say, and what fits them. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <shoal/modelet.h>
#include <stdbool.h>

enum { SHAPE_TEXT_BYTES = 192 };

struct signature {
    bool batched;
    bool outputs_declared; /* else any dict is taken */
    uint32_t input_count;
    uint32_t output_count;
    struct shoal_tensor_spec inputs[SHOAL_TENSORS_MAX];
    struct shoal_tensor_spec outputs[SHOAL_TENSORS_MAX];
    PyObject *names; /* keeps the names' memory */
};

/* From what `signature` or `describe` of worker.py returned, of which it keeps a reference. False:
 * a Python exception is set. */
bool signature_read(struct signature *signature, PyObject *said);
void signature_fini(struct signature *signature);

/* Whether datatype and shape fit the declaration. */
bool signature_fits(const struct shoal_tensor_spec *spec, const struct shoal_tensor *tensor);

/* "FP32 [3, 4]", cut if it does not fit; rank SHOAL_RANK_ANY: "FP32". */
void signature_print(char text[SHAPE_TEXT_BYTES], uint32_t datatype, uint32_t rank,
                     const int64_t *shape);

/* Finds the item's tensor for input `index`. NULL: there is none that fits, and the item has
 * failed. */
const struct shoal_tensor *signature_input(const struct signature *signature, uint32_t index,
                                           const struct shoal_host *host, struct shoal_item *item);
