/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs a modelet that is written in Python: a stage's `modelet: NAME.py`. DESIGN.md says how C's
 * functions map to Python's. The stage's parameters belong to the Python code; its environment may
 * name a virtual environment: VIRTUAL_ENV, relative to the configuration.
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "inputs.h"
#include "interpreter.h"
#include "outputs.h"
#include "signature.h"

enum { NAME_ROOM = 64 }; /* of a file, in an error */

struct python {
    const struct shoal_host *host;
    PyObject *target; /* with `run`, and `load` and `describe` if it has them */
    PyObject *run;
    bool loads;
    struct signature signature;
    struct run_arguments arguments;
    /* Of one batch: */
    const struct shoal_tensor **found; /* the inputs of each item */
    const struct shoal_tensor **taken; /* of the group */
    struct shoal_item **items;         /* of the group */
    struct shoal_item **waiting;       /* not run yet */
    int64_t *rows;                     /* of each item */
    int64_t *taken_rows;
};

struct python_model {
    PyObject *object;
    bool described;
    struct signature signature; /* if it was */
};

static const struct signature *
signature_of(const struct python *self, const struct python_model *model)
{
    return model != NULL && model->described ? &model->signature : &self->signature;
}

/* ---- opening ---- */

static bool
batch_prepare(struct python *self, uint32_t batch_size)
{
    size_t count = batch_size > 1 ? batch_size : 1;
    size_t tensors = count * (self->signature.input_count > 0 ? self->signature.input_count : 1);
    self->found = calloc(tensors, sizeof(*self->found));
    self->taken = calloc(tensors, sizeof(*self->taken));
    self->items = calloc(count, sizeof(struct shoal_item *));
    self->waiting = calloc(count, sizeof(struct shoal_item *));
    self->rows = calloc(count, sizeof *self->rows);
    self->taken_rows = calloc(count, sizeof *self->taken_rows);
    if (self->found != NULL && self->taken != NULL && self->items != NULL &&
        self->waiting != NULL && self->rows != NULL && self->taken_rows != NULL)
        return true;
    return PyErr_NoMemory() != NULL;
}

static PyObject *
params_make(const struct shoal_open *open)
{
    PyObject *params = PyList_New(0);
    for (uint32_t i = 0; params != NULL && i < open->param_count; i++) {
        PyObject *pair = Py_BuildValue("(ss)", open->params[i].name, open->params[i].value);
        if (pair == NULL || PyList_Append(params, pair) != 0)
            Py_CLEAR(params);
        Py_XDECREF(pair);
    }
    return params;
}

static bool
script_open(struct python *self, const struct shoal_open *open)
{
    PyObject *params = params_make(open);
    if (params == NULL)
        return false;
    self->target = interpreter_call("execute", "(sO)", open->script, params);
    Py_DECREF(params);
    if (self->target == NULL)
        return false;
    PyObject *said = interpreter_call("signature", "(O)", self->target);
    bool ok = said != NULL && signature_read(&self->signature, said);
    Py_XDECREF(said);
    self->run = ok ? PyObject_GetAttrString(self->target, "run") : NULL;
    if (self->run == NULL)
        return false;
    self->loads = PyObject_HasAttrString(self->target, "load") != 0;
    if (open->batch_size > 1 && !self->signature.batched)
        return PyErr_Format(
                   PyExc_TypeError,
                   "batch_size is %u, but run takes single items: it is not @shoal.batched",
                   open->batch_size) != NULL;
    return batch_prepare(self, open->batch_size);
}

/* The interpreter stays. */
static void
python_close(void *instance)
{
    struct python *self = instance;
    interpreter_enter();
    Py_CLEAR(self->run);
    Py_CLEAR(self->target);
    signature_fini(&self->signature);
    for (uint32_t i = 0; i < SHOAL_TENSORS_MAX; i++)
        Py_CLEAR(self->arguments.cached[i]);
    interpreter_leave();
    free(self->found);
    free(self->taken);
    free(self->items);
    free(self->waiting);
    free(self->rows);
    free(self->taken_rows);
    free(self);
}

/* The reason why a script or a model did not load, behind the file's name. */
static int
file_error(const char *path, struct shoal_error *error)
{
    char where[NAME_ROOM];
    const char *slash = strrchr(path, '/');
    snprintf(where, sizeof where, "%.60s: ", slash != NULL ? slash + 1 : path);
    int status = interpreter_error(where, error);
    return status == SHOAL_UNKNOWN ? SHOAL_FAILED_PRECONDITION : status;
}

static int
python_open(const struct shoal_open *open, void **instance, struct shoal_error *error)
{
    bool has_script = open->struct_size >= offsetof(struct shoal_open, script) + sizeof(char *) &&
                      open->script != NULL;
    if (!has_script) {
        snprintf(error->text, sizeof error->text,
                 "the stage's `modelet` must be a file NAME.py, which this plug-in then runs");
        return SHOAL_INVALID_ARGUMENT;
    }
    int status = interpreter_start(open->host, error);
    if (status != SHOAL_OK)
        return status;
    struct python *self = calloc(1, sizeof *self);
    if (self == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    self->host = open->host;
    if (!script_open(self, open))
        status = file_error(open->script, error);
    interpreter_leave();
    if (status == SHOAL_OK)
        *instance = self;
    else
        python_close(self);
    return status;
}

static void
io_fill(const struct signature *signature, struct shoal_io *io)
{
    io->platform = "python";
    io->inputs = signature->inputs;
    io->outputs = signature->outputs;
    io->input_count = signature->input_count;
    io->output_count = signature->output_count;
}

static int
python_describe(void *instance, struct shoal_io *io, struct shoal_error *error)
{
    (void)error;
    const struct python *self = instance;
    io_fill(&self->signature, io);
    return SHOAL_OK;
}

/* ---- models ---- */

/* The result of the Python code's `describe` for a model, if there is such a method. */
static bool
model_describe(const struct python *self, struct python_model *model)
{
    PyObject *names = PyList_New(0);
    for (uint32_t i = 0; names != NULL && i < self->signature.input_count; i++) {
        PyObject *name = PyUnicode_FromString(self->signature.inputs[i].name);
        if (name == NULL || PyList_Append(names, name) != 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    PyObject *said =
        names == NULL ? NULL
                      : interpreter_call("describe", "(OOO)", self->target, model->object, names);
    Py_XDECREF(names);
    bool ok = said != NULL && (said == Py_None || signature_read(&model->signature, said));
    model->described = ok && said != Py_None;
    Py_XDECREF(said);
    return ok;
}

static void
model_destroy(struct python_model *model)
{
    Py_CLEAR(model->object);
    if (model->described)
        signature_fini(&model->signature);
    free(model);
}

static int
python_load(void *instance, const struct shoal_model *spec, void **loaded,
            struct shoal_error *error)
{
    const struct python *self = instance;
    if (!self->loads) {
        snprintf(error->text, sizeof error->text, "the Python code has no `load(id, path)`");
        return SHOAL_UNIMPLEMENTED;
    }
    struct python_model *model = calloc(1, sizeof *model);
    if (model == NULL)
        return SHOAL_RESOURCE_EXHAUSTED;
    int status = SHOAL_OK;
    interpreter_enter();
    model->object = PyObject_CallMethod(self->target, "load", "ss", spec->id, spec->path);
    if (model->object == NULL || !model_describe(self, model))
        status = file_error(spec->path, error);
    if (status != SHOAL_OK)
        model_destroy(model);
    interpreter_leave();
    if (status == SHOAL_OK)
        *loaded = model;
    return status;
}

static void
python_unload(void *instance, void *loaded)
{
    (void)instance;
    interpreter_enter();
    model_destroy(loaded);
    interpreter_leave();
}

static int
python_describe_model(void *instance, void *loaded, struct shoal_io *io, struct shoal_error *error)
{
    (void)error;
    io_fill(signature_of(instance, loaded), io);
    return SHOAL_OK;
}

/* ---- running ---- */

/* Ends a generator whose answer nobody takes any more. */
static void
generator_close(PyObject *generator)
{
    struct shoal_error error;
    PyObject *closed = PyObject_CallMethod(generator, "close", NULL);
    interpreter_end_child();
    if (closed == NULL)
        (void)interpreter_run_error(&error); /* logged; the item has failed already */
    Py_XDECREF(closed);
}

/* Sends what a generator has yielded. Other threads of the code run meanwhile. */
static void
piece_send(const struct python *self, const struct signature *signature,
           const struct run_group *group, PyObject *yielded)
{
    struct shoal_item *item = group->items[0];
    outputs_put(signature, self->host, group, yielded);
    if (item->status != SHOAL_OK)
        return;
    interpreter_leave();
    item->status = self->host->emit(item);
    interpreter_enter();
}

/* Runs a generator: the dicts that it yields are pieces of the item's answer, the one that it
 * returns, if any, is the last. Returns as group_run. */
static int
generator_run(const struct python *self, const struct signature *signature,
              const struct run_group *group, PyObject *generator, struct shoal_error *error)
{
    struct shoal_item *item = group->items[0];
    PyObject *said;
    PySendResult result;
    while ((result = PyIter_Send(generator, Py_None, &said)) == PYGEN_NEXT) {
        interpreter_end_child();
        piece_send(self, signature, group, said);
        Py_DECREF(said);
        if (item->status != SHOAL_OK) {
            generator_close(generator);
            return SHOAL_OK;
        }
    }
    interpreter_end_child();
    if (result == PYGEN_ERROR)
        return interpreter_run_error(error);
    item->status = SHOAL_OK;
    if (said != Py_None)
        outputs_put(signature, self->host, group, said);
    else if (self->host->cancelled(item))
        item->status = SHOAL_CANCELLED; /* an answer that it gave up must not seem whole */
    Py_DECREF(said);
    return SHOAL_OK;
}

/* Runs a group. Returns SHOAL_OK if its items have statuses, else the status of the exception,
 * which is logged. */
static int
group_run(struct python *self, const struct python_model *model, const struct run_group *group,
          const struct shoal_tensor *const *found, struct shoal_error *error)
{
    struct run_arguments *arguments = &self->arguments;
    const struct signature *signature = signature_of(self, model);
    PyObject *returned = NULL;
    int status = SHOAL_OK;
    interpreter.running = group;
    if (model != NULL)
        arguments->objects[arguments->count++] = Py_NewRef(model->object);
    if (inputs_make(arguments, signature, group, found))
        returned = PyObject_Vectorcall(self->run, arguments->objects, arguments->count, NULL);
    interpreter_end_child();
    if (returned == NULL)
        status = interpreter_run_error(error);
    else if (PyGen_Check(returned) && !self->signature.batched)
        status = generator_run(self, signature, group, returned, error);
    else
        outputs_put(signature, self->host, group, returned);
    Py_XDECREF(returned);
    interpreter.running = NULL;
    inputs_end_run(arguments);
    return status;
}

static void
run_each(struct python *self, const struct python_model *model, struct shoal_batch *batch)
{
    const struct signature *signature = signature_of(self, model);
    for (uint32_t i = 0; i < batch->count; i++) {
        struct shoal_item *item = batch->items[i];
        struct shoal_error error;
        struct run_group group = {&item, 1, self->rows, 1};
        if (!inputs_find(signature, self->host, item, self->found, self->rows))
            continue;
        int status = group_run(self, model, &group, self->found, &error);
        if (status != SHOAL_OK)
            self->host->fail(item, status, "%s", error.text);
    }
}

/* Takes the first of the waiting items and those that can be concatenated with it; the others move
 * to the front. Returns how many wait on. */
static uint32_t
group_take(struct python *self, const struct signature *signature, struct shoal_item **waiting,
           uint32_t count, struct run_group *group)
{
    uint32_t inputs = signature->input_count;
    uint32_t left = 0;
    *group = (struct run_group){self->items, 0, self->taken_rows, 0};
    for (uint32_t i = 0; i < count; i++) {
        const struct shoal_tensor **found = self->found + (size_t)i * inputs;
        int64_t rows;
        bool joins = !__builtin_add_overflow(group->row_count, self->rows[i], &rows) &&
                     (group->count == 0 || inputs_match(signature, self->taken, found));
        const struct shoal_tensor **to = joins ? self->taken + (size_t)group->count * inputs
                                               : self->found + (size_t)left * inputs;
        memmove(to, found, inputs * sizeof(*found));
        if (joins) {
            self->items[group->count] = waiting[i];
            self->taken_rows[group->count++] = self->rows[i];
            group->row_count = rows;
        } else {
            self->rows[left] = self->rows[i];
            waiting[left++] = waiting[i];
        }
    }
    return left;
}

static int
run_batched(struct python *self, const struct python_model *model, struct shoal_batch *batch)
{
    const struct signature *signature = signature_of(self, model);
    struct shoal_item **waiting = self->waiting;
    uint32_t count = 0;
    int status = SHOAL_OK;
    for (uint32_t i = 0; i < batch->count; i++) {
        waiting[count] = batch->items[i];
        count +=
            inputs_find(signature, self->host, batch->items[i],
                        self->found + (size_t)count * signature->input_count, &self->rows[count]);
    }
    while (count > 0 && status == SHOAL_OK) {
        struct run_group group;
        count = group_take(self, signature, waiting, count, &group);
        status = group_run(self, model, &group, self->taken, batch->error);
        if (status == SHOAL_OK || group.count > 1)
            continue; /* a failed batch is run again in halves */
        self->host->fail(group.items[0], status, "%s", batch->error->text);
        status = SHOAL_OK;
    }
    return status;
}

static int
python_run(void *instance, void *loaded, struct shoal_batch *batch)
{
    struct python *self = instance;
    int status = SHOAL_OK;
    if (self->loads && loaded == NULL) {
        snprintf(batch->error->text, sizeof batch->error->text,
                 "there is no model: give the stage a `model`, or the pipeline `models`");
        return SHOAL_FAILED_PRECONDITION;
    }
    interpreter_enter();
    if (self->signature.batched)
        status = run_batched(self, loaded, batch);
    else
        run_each(self, loaded, batch);
    interpreter_leave();
    return status;
}

static const void *
python_extension(const char *name)
{
    static const struct shoal_stream stream = {.struct_size = sizeof stream};
    return strcmp(name, "stream") == 0 ? &stream : NULL;
}

const struct shoal_modelet shoal_modelet = {
    SHOAL_MODELET_HEADER,
    .abilities = SHOAL_RUNS_BATCHES,
    .name = "python",
    .version = "1",
    .open = python_open,
    .describe = python_describe,
    .load = python_load,
    .unload = python_unload,
    .run = python_run,
    .close = python_close,
    .describe_model = python_describe_model,
    .extension = python_extension,
};
