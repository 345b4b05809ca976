/* SPDX-License-Identifier: Apache-2.0 */
#include "inputs.h"

#include <string.h>

#include "interpreter.h"

/* ---- checking ---- */

bool
inputs_find(const struct signature *signature, const struct shoal_host *host,
            struct shoal_item *item, const struct shoal_tensor **found, int64_t *rows)
{
    for (uint32_t i = 0; i < signature->input_count; i++) {
        found[i] = signature_input(signature, i, host, item);
        if (found[i] == NULL)
            return false;
        if (!signature->batched)
            continue;
        if (found[i]->rank == 0 || found[i]->shape[0] != found[0]->shape[0]) {
            host->fail(item, SHOAL_INVALID_ARGUMENT,
                       "input \"%s\" must have as many rows (its first dimension) as \"%s\"",
                       found[i]->name, found[0]->name);
            return false;
        }
    }
    *rows = signature->batched ? found[0]->shape[0] : 1;
    return true;
}

bool
inputs_match(const struct signature *signature, const struct shoal_tensor *const *one,
             const struct shoal_tensor *const *other)
{
    for (uint32_t i = 0; i < signature->input_count; i++) {
        const struct shoal_tensor *a = one[i];
        const struct shoal_tensor *b = other[i];
        if (a->datatype != b->datatype || a->rank != b->rank ||
            memcmp(a->shape + 1, b->shape + 1, (a->rank - 1) * sizeof a->shape[0]) != 0)
            return false;
    }
    return true;
}

/* ---- texts ---- */

/* A local client may change the data at any time: each length is read once. */
static bool
texts_append(PyObject *list, const struct shoal_tensor *tensor)
{
    const char *at = tensor->data;
    const char *end = at + tensor->bytes;
    size_t count = shoal_tensor_elements(tensor);
    for (size_t i = 0; i < count; i++) {
        uint32_t bytes = 0;
        if ((size_t)(end - at) >= sizeof bytes) {
            memcpy(&bytes, at, sizeof bytes);
            at += sizeof bytes;
        }
        if ((size_t)(end - at) < bytes) /* changed by its sender: what it gets is its own affair */
            bytes = (uint32_t)(end - at);
        PyObject *element = PyBytes_FromStringAndSize(at, bytes);
        if (element == NULL || PyList_Append(list, element) != 0) {
            Py_XDECREF(element);
            return false;
        }
        Py_DECREF(element);
        at += bytes;
    }
    return true;
}

/* ---- arrays ---- */

static PyObject *
shape_make(const struct shoal_tensor *tensor, const struct signature *signature, int64_t row_count)
{
    PyObject *shape = PyTuple_New((Py_ssize_t)tensor->rank);
    for (uint32_t i = 0; shape != NULL && i < tensor->rank; i++) {
        int64_t length = i == 0 && signature->batched ? row_count : tensor->shape[i];
        PyObject *number = PyLong_FromLongLong(length);
        if (number == NULL)
            Py_CLEAR(shape);
        else
            PyTuple_SET_ITEM(shape, (Py_ssize_t)i, number);
    }
    return shape;
}

static PyObject *
texts_make(const struct signature *signature, const struct run_group *group,
           const struct shoal_tensor *const *found, PyObject *shape)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < group->count; i++)
        if (!texts_append(list, found[i * signature->input_count]))
            Py_CLEAR(list);
    PyObject *array = list != NULL ? interpreter_call("texts", "(OO)", list, shape) : NULL;
    Py_XDECREF(list);
    return array;
}

/* The memory under an array: a view of the only tensor, or a copy of all rows. */
static struct memory *
memory_fill(struct memory **cached, const struct signature *signature,
            const struct run_group *group, const struct shoal_tensor *const *found)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < group->count; i++)
        bytes += found[i * signature->input_count]->bytes;
    struct memory *memory = group->count == 1 ? memory_view(found[0]->data, bytes) : NULL;
    if (memory != NULL)
        return memory;
    void *data;
    memory = memory_own(cached, bytes, &data);
    if (memory == NULL)
        return NULL;
    char *end = data;
    for (uint32_t i = 0; i < group->count; i++) {
        const struct shoal_tensor *tensor = found[i * signature->input_count];
        if (tensor->bytes > 0)
            memcpy(end, tensor->data, tensor->bytes);
        end += tensor->bytes;
    }
    return memory;
}

static PyObject *
array_make(struct run_arguments *arguments, const struct signature *signature,
           const struct run_group *group, const struct shoal_tensor *const *found, uint32_t index)
{
    const struct shoal_tensor *tensor = found[index];
    PyObject *shape = shape_make(tensor, signature, group->row_count);
    PyObject *array = NULL;
    if (shape != NULL && tensor->datatype == SHOAL_BYTES) {
        array = texts_make(signature, group, found + index, shape);
    } else if (shape != NULL) {
        struct memory *memory =
            memory_fill(&arguments->cached[index], signature, group, found + index);
        arguments->memory[index] = memory;
        PyObject *of[] = {shape, interpreter.dtypes[tensor->datatype], (PyObject *)(void *)memory};
        if (memory != NULL)
            array = PyObject_Vectorcall(interpreter.ndarray, of, 3, NULL);
    }
    Py_XDECREF(shape);
    return array;
}

bool
inputs_make(struct run_arguments *arguments, const struct signature *signature,
            const struct run_group *group, const struct shoal_tensor *const *found)
{
    memset(arguments->memory, 0, sizeof arguments->memory);
    for (uint32_t i = 0; i < signature->input_count; i++) {
        PyObject *array = array_make(arguments, signature, group, found, i);
        if (array == NULL)
            return false;
        arguments->objects[arguments->count++] = array;
    }
    return true;
}

void
inputs_end_run(struct run_arguments *arguments)
{
    while (arguments->count > 0) {

        arguments->count--;
        Py_DECREF(arguments->objects[arguments->count]);
    }
    for (uint32_t i = 0; i < SHOAL_TENSORS_MAX; i++) {
        memory_end_run(arguments->memory[i]);
        arguments->memory[i] = NULL;
    }
}
