/* SPDX-License-Identifier: Apache-2.0 */
#include "signature.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool
spec_read(struct shoal_tensor_spec *spec, PyObject *tensor)
{
    PyObject *shape;
    unsigned datatype;
    if (!PyArg_ParseTuple(tensor, "sIO", &spec->name, &datatype, &shape))
        return false;
    if (strlen(spec->name) > SHOAL_NAME_BYTES_MAX)
        return PyErr_Format(PyExc_TypeError,
                            "the name of tensor \"%.40s...\" has more than %d bytes", spec->name,
                            SHOAL_NAME_BYTES_MAX) != NULL;
    spec->datatype = datatype;
    spec->rank = SHOAL_RANK_ANY;
    if (shape == Py_None)
        return true;
    if (!PyTuple_Check(shape) || PyTuple_GET_SIZE(shape) > SHOAL_RANK_MAX)
        return PyErr_Format(PyExc_TypeError, "the shape of tensor \"%s\" is no tuple of at most %d",
                            spec->name, SHOAL_RANK_MAX) != NULL;
    spec->rank = (uint32_t)PyTuple_GET_SIZE(shape);
    for (uint32_t i = 0; i < spec->rank; i++)
        spec->shape[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(shape, (Py_ssize_t)i));
    return PyErr_Occurred() == NULL;
}

static bool
specs_read(struct shoal_tensor_spec *specs, uint32_t *count, PyObject *tensors)
{
    Py_ssize_t size = PyTuple_Size(tensors);
    if (size > SHOAL_TENSORS_MAX)
        return PyErr_Format(PyExc_TypeError, "%zd tensors; at most %d", size, SHOAL_TENSORS_MAX) !=
               NULL;
    *count = (uint32_t)size;
    for (Py_ssize_t i = 0; i < size; i++)
        if (!spec_read(&specs[i], PyTuple_GET_ITEM(tensors, i)))
            return false;
    return true;
}

bool
signature_read(struct signature *signature, PyObject *said)
{
    PyObject *inputs;
    PyObject *outputs;
    int batched;
    memset(signature, 0, sizeof *signature);
    if (!PyArg_ParseTuple(said, "OOp", &inputs, &outputs, &batched) ||
        !specs_read(signature->inputs, &signature->input_count, inputs))
        return false;
    signature->batched = batched != 0;
    signature->outputs_declared = outputs != Py_None;
    if (signature->outputs_declared &&
        !specs_read(signature->outputs, &signature->output_count, outputs))
        return false;
    Py_INCREF(said);
    signature->names = said;
    return true;
}

void
signature_fini(struct signature *signature)
{
    Py_CLEAR(signature->names);
}

bool
signature_fits(const struct shoal_tensor_spec *spec, const struct shoal_tensor *tensor)
{
    bool same = spec->datatype == tensor->datatype ||
                (spec->datatype == SHOAL_BF16 && tensor->datatype == SHOAL_UINT16);
    if (spec->datatype != SHOAL_DATATYPE_ANY && !same)
        return false;
    if (spec->rank == SHOAL_RANK_ANY)
        return true;
    if (spec->rank != tensor->rank)
        return false;
    for (uint32_t i = 0; i < spec->rank; i++)
        if (spec->shape[i] >= 0 && spec->shape[i] != tensor->shape[i])
            return false;
    return true;
}

void
signature_print(char text[SHAPE_TEXT_BYTES], uint32_t datatype, uint32_t rank, const int64_t *shape)
{
    static const char *const names[SHOAL_DATATYPE_END] = {
        "any datatype", "BOOL",  "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16",
        "INT32",        "INT64", "FP16",  "FP32",   "FP64",   "BYTES",  "BF16"};
    int used = snprintf(text, SHAPE_TEXT_BYTES, "%s",
                        names[datatype < SHOAL_DATATYPE_END ? datatype : SHOAL_DATATYPE_ANY]);
    if (rank > SHOAL_RANK_MAX)
        return;
    for (uint32_t i = 0; i < rank && used < SHAPE_TEXT_BYTES; i++)
        used += snprintf(text + used, (size_t)(SHAPE_TEXT_BYTES - used), "%s%" PRId64,
                         i == 0 ? " [" : ", ", shape[i]);
    if (used < SHAPE_TEXT_BYTES)
        snprintf(text + used, (size_t)(SHAPE_TEXT_BYTES - used), rank == 0 ? " []" : "]");
}

const struct shoal_tensor *
signature_input(const struct signature *signature, uint32_t index, const struct shoal_host *host,
                struct shoal_item *item)
{
    const struct shoal_tensor_spec *spec = &signature->inputs[index];
    const struct shoal_tensor *found = NULL;
    for (uint32_t i = 0; i < item->input_count && found == NULL; i++)
        if (strcmp(item->inputs[i].name, spec->name) == 0)
            found = &item->inputs[i];
    if (found == NULL) {
        host->fail(item, SHOAL_INVALID_ARGUMENT, "there is no input tensor \"%s\"", spec->name);
        return NULL;
    }
    if (signature_fits(spec, found))
        return found;
    char has[SHAPE_TEXT_BYTES];
    char wants[SHAPE_TEXT_BYTES];
    signature_print(has, found->datatype, found->rank, found->shape);
    signature_print(wants, spec->datatype, spec->rank, spec->shape);
    host->fail(item, SHOAL_INVALID_ARGUMENT, "input \"%s\" is %s, expected %s", spec->name, has,
               wants);
    return NULL;
}
