/* SPDX-License-Identifier: Apache-2.0 */
#include "outputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "interpreter.h"

/* One value of the dict. */
struct output {
    struct shoal_tensor
        tensor; /* of all items of the group; `data` is the view's, or NULL: BYTES */
    PyObject *array;
    PyObject *texts; /* of BYTES: a list of bytes and str */
    Py_buffer view;
};

static void
output_fini(struct output *output)
{
    if (output->view.obj != NULL)
        PyBuffer_Release(&output->view);
    Py_CLEAR(output->texts);
    Py_CLEAR(output->array);
}

/* ---- reading an array ---- */

/* By the struct module's letter; NumPy's own order is no prefix. */
static uint32_t
datatype_of(const Py_buffer *view)
{
    static const uint32_t with_sign[] = {
        [1] = SHOAL_INT8, [2] = SHOAL_INT16, [4] = SHOAL_INT32, [8] = SHOAL_INT64};
    static const uint32_t without[] = {
        [1] = SHOAL_UINT8, [2] = SHOAL_UINT16, [4] = SHOAL_UINT32, [8] = SHOAL_UINT64};
    const char *format = view->format != NULL ? view->format : "B";
    format += strchr("<=@", format[0]) != NULL;
    size_t size = (size_t)view->itemsize;
    if (size > 8 || strlen(format) != 1)
        return format[0] != '\0' && strchr("sw", format[strlen(format) - 1]) != NULL
                   ? SHOAL_BYTES
                   : SHOAL_DATATYPE_END;
    if (strchr("bhilq", format[0]) != NULL)
        return with_sign[size];
    if (strchr("BHILQ", format[0]) != NULL)
        return without[size];
    switch (format[0]) {
    case '?': return SHOAL_BOOL;
    case 'e': return SHOAL_FP16;
    case 'f': return SHOAL_FP32;
    case 'd': return SHOAL_FP64;
    case 'O':
    case 's':
    case 'w': return SHOAL_BYTES;
    default: return SHOAL_DATATYPE_END;
    }
}

static bool
texts_read(struct output *output)
{
    PyObject *flat = PyObject_CallMethod(output->array, "ravel", NULL);
    output->texts = flat != NULL ? PyObject_CallMethod(flat, "tolist", NULL) : NULL;
    Py_XDECREF(flat);
    if (output->texts == NULL)
        return false;
    for (Py_ssize_t i = 0; i < PyList_Size(output->texts); i++) {
        PyObject *element = PyList_GetItem(output->texts, i);
        if (PyUnicode_Check(element) ? PyUnicode_AsUTF8(element) == NULL : !PyBytes_Check(element))
            return PyErr_Occurred() == NULL &&
                   PyErr_Format(PyExc_TypeError, "element %zd is %s, neither str nor bytes", i,
                                Py_TYPE(element)->tp_name) != NULL;
    }
    return true;
}

static bool
array_make(struct output *output, PyObject *value, PyObject *dtype)
{
    PyObject *of[] = {value, dtype, PyUnicode_InternFromString("C")};
    output->array = of[2] != NULL ? PyObject_Vectorcall(interpreter.asarray, of, 3, NULL) : NULL;
    Py_XDECREF(of[2]);
    return output->array != NULL &&
           PyObject_GetBuffer(output->array, &output->view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) == 0;
}

/* Anything but an array takes the declared datatype. False: a Python exception is set. */
static bool
array_read(struct output *output, PyObject *value, uint32_t declared)
{
    bool is_array = PyObject_TypeCheck(value, (PyTypeObject *)(void *)interpreter.ndarray);
    bool converts = !is_array && declared != SHOAL_DATATYPE_ANY;
    if (!array_make(output, value, converts ? interpreter.dtypes[declared] : Py_None))
        return false;
    if (!is_array && !converts && datatype_of(&output->view) == SHOAL_BYTES) {
        output_fini(output); /* NumPy's own texts lose NULs at their ends */
        if (!array_make(output, value, interpreter.dtypes[SHOAL_BYTES]))
            return false;
    }
    const Py_buffer *view = &output->view;
    struct shoal_tensor *tensor = &output->tensor;
    tensor->datatype = datatype_of(view);
    if (tensor->datatype == SHOAL_DATATYPE_END)
        return PyErr_Format(PyExc_TypeError, "no datatype is like \"%.20s\"", view->format) != NULL;
    if (view->ndim > SHOAL_RANK_MAX)
        return PyErr_Format(PyExc_TypeError, "%d dimensions; at most %d", view->ndim,
                            SHOAL_RANK_MAX) != NULL;
    tensor->rank = (uint32_t)view->ndim;
    for (uint32_t i = 0; i < tensor->rank; i++)
        tensor->shape[i] = view->shape[i];
    tensor->data = view->buf;
    tensor->bytes = (size_t)view->len;
    return tensor->datatype != SHOAL_BYTES || texts_read(output);
}

/* ---- checking ---- */

static void group_fail(const struct run_group *group, const struct shoal_host *host,
                       const char *format, ...) __attribute__((format(printf, 3, 4)));

static void
group_fail(const struct run_group *group, const struct shoal_host *host, const char *format, ...)
{
    struct shoal_error error;
    va_list args;
    va_start(args, format);
    vsnprintf(error.text, sizeof error.text, format, args);
    va_end(args);
    host->log(SHOAL_LOG_ERROR, "%s", error.text);
    for (uint32_t i = 0; i < group->count; i++)
        host->fail(group->items[i], SHOAL_INTERNAL, "%s", error.text);
}

/* False: the group has failed. */
static bool
output_check(const struct signature *signature, const struct shoal_host *host,
             const struct run_group *group, const struct output *output,
             const struct shoal_tensor_spec *spec)
{
    const struct shoal_tensor *tensor = &output->tensor;
    char has[SHAPE_TEXT_BYTES];
    char wants[SHAPE_TEXT_BYTES];
    signature_print(has, tensor->datatype, tensor->rank, tensor->shape);
    if (!signature_fits(spec, tensor)) {
        signature_print(wants, spec->datatype, spec->rank, spec->shape);
        group_fail(group, host, "output \"%s\" is %s, but %s is declared", spec->name, has, wants);
        return false;
    }
    if (signature->batched && (tensor->rank == 0 || tensor->shape[0] != group->row_count)) {
        group_fail(group, host,
                   "output \"%s\" is %s, but its first dimension must be that of the inputs, "
                   "%" PRId64,
                   spec->name, has, group->row_count);
        return false;
    }
    return true;
}

/* ---- writing ---- */

static bool
texts_write(const struct output *output, const struct shoal_host *host, struct shoal_item *item,
            const struct shoal_tensor *part, size_t first)
{
    size_t count = shoal_tensor_elements(part);
    size_t bytes = 0;
    char *at = NULL;
    for (int writing = 0; writing < 2; writing++) {
        for (size_t i = 0; i < count; i++) {
            PyObject *element = PyList_GetItem(output->texts, (Py_ssize_t)(first + i));
            Py_ssize_t size = PyBytes_Check(element) ? PyBytes_GET_SIZE(element) : 0;
            const char *text = PyBytes_Check(element) ? PyBytes_AS_STRING(element)
                                                      : PyUnicode_AsUTF8AndSize(element, &size);
            uint32_t length = (uint32_t)size;
            if (writing) {
                memcpy(at, &length, sizeof length);
                memcpy(at + sizeof length, text, length);
                at += sizeof length + length;
            } else {
                bytes += sizeof length + (size_t)size; /* host refuses what `length` cannot say */
            }
        }
        if (!writing)
            at = host->output_bytes(item, part->name, SHOAL_BYTES, part->rank, part->shape, bytes);
        if (at == NULL)
            return false;
    }
    return true;
}

/* Gives each item its part. An item that gets none has failed. */
static void
output_write(const struct signature *signature, const struct shoal_host *host,
             const struct run_group *group, const struct output *output)
{
    struct shoal_tensor part = output->tensor;
    size_t first = 0; /* element */
    for (uint32_t i = 0; i < group->count; i++) {
        struct shoal_item *item = group->items[i];
        if (signature->batched)
            part.shape[0] = group->rows[i];
        size_t count = shoal_tensor_elements(&part);
        size_t bytes = count * (size_t)output->view.itemsize;
        if (output->texts != NULL) {
            (void)texts_write(output, host, item, &part, first);
        } else {
            void *data = host->output(item, part.name, part.datatype, part.rank, part.shape);
            if (data != NULL && bytes > 0)
                memcpy(data, (const char *)part.data + first * (size_t)output->view.itemsize,
                       bytes);
        }
        first += count;
    }
}

/* ---- the dict ---- */

static bool
output_put(const struct signature *signature, const struct shoal_host *host,
           const struct run_group *group, const struct shoal_tensor_spec *spec, PyObject *value)
{
    struct output output = {.tensor = {.name = spec->name}};
    bool ok = array_read(&output, value, spec->datatype);
    if (!ok) {
        struct shoal_error error;
        (void)interpreter_error("", &error);
        group_fail(group, host, "output \"%s\": %s", spec->name, error.text);
    } else {
        ok = output_check(signature, host, group, &output, spec);
    }
    if (ok) {
        if (spec->datatype != SHOAL_DATATYPE_ANY)
            output.tensor.datatype = spec->datatype; /* BF16 comes as UINT16 */
        output_write(signature, host, group, &output);
    }
    output_fini(&output);
    return ok;
}

static bool
put_declared(const struct signature *signature, const struct shoal_host *host,
             const struct run_group *group, PyObject *dict)
{
    for (uint32_t i = 0; i < signature->output_count; i++) {
        const struct shoal_tensor_spec *spec = &signature->outputs[i];
        PyObject *value = PyDict_GetItemString(dict, spec->name);
        if (value == NULL) {
            group_fail(group, host, "output \"%s\" is declared, but run did not give it",
                       spec->name);
            return false;
        }
        Py_INCREF(value); /* its conversion may run user code, which may have kept the dict */
        bool ok = output_put(signature, host, group, spec, value);
        Py_DECREF(value);
        if (!ok)
            return false;
    }
    if (PyDict_Size(dict) == (Py_ssize_t)signature->output_count)
        return true;
    group_fail(group, host, "run gave %zd outputs, but %u are declared", PyDict_Size(dict),
               signature->output_count);
    return false;
}

static bool
put_any(const struct signature *signature, const struct shoal_host *host,
        const struct run_group *group, PyObject *dict)
{
    PyObject *items = PyDict_Items(dict); /* not the dict, which user code may change meanwhile */
    bool ok = items != NULL;
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(items); i++) {
        struct shoal_tensor_spec spec = {.rank = SHOAL_RANK_ANY};
        PyObject *item = PyList_GET_ITEM(items, i);
        PyObject *key = PyTuple_GET_ITEM(item, 0);
        spec.name = PyUnicode_Check(key) ? PyUnicode_AsUTF8(key) : NULL;
        PyErr_Clear();
        ok = spec.name != NULL &&
             output_put(signature, host, group, &spec, PyTuple_GET_ITEM(item, 1));
        if (spec.name == NULL)
            group_fail(group, host, "the name of an output is no str");
    }
    Py_XDECREF(items);
    PyErr_Clear();
    return ok;
}

void
outputs_put(const struct signature *signature, const struct shoal_host *host,
            const struct run_group *group, PyObject *returned)
{
    for (uint32_t i = 0; i < group->count; i++)
        group->items[i]->status = SHOAL_OK; /* unless something of the following fails it */
    if (!PyDict_Check(returned))
        group_fail(group, host, "run gave %.100s, but a dict of outputs is expected",
                   Py_TYPE(returned)->tp_name);
    else if (signature->outputs_declared)
        (void)put_declared(signature, host, group, returned);
    else
        (void)put_any(signature, host, group, returned);
}
