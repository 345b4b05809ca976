/* SPDX-License-Identifier: Apache-2.0 */
#include "interpreter.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inputs.h"
#include "memory.h"
#include "python_files.h"

struct interpreter interpreter;

void
interpreter_enter(void)
{
    PyEval_RestoreThread(interpreter.thread);
}

/* In a child of os.fork, for which a stage needs `sandbox_allow: [processes]`. */
static bool forked;

static void
note_fork(void)
{
    forked = true;
}

void
interpreter_end_child(void)
{
    if (!forked)
        return;
    interpreter.host->log(SHOAL_LOG_ERROR, "a child of os.fork left its function, and ends");
    _exit(EXIT_FAILURE);
}

void
interpreter_leave(void)
{
    interpreter_end_child();
    interpreter.thread = PyEval_SaveThread();
}

/* ---- errors ---- */

PyObject *
interpreter_call(const char *function, const char *format, ...)
{
    PyObject *callable = PyDict_GetItemString(interpreter.functions, function); /* borrowed */
    va_list args;
    va_start(args, format);
    PyObject *arguments = Py_VaBuildValue(format, args);
    va_end(args);
    PyObject *result =
        arguments != NULL && callable != NULL ? PyObject_Call(callable, arguments, NULL) : NULL;
    Py_XDECREF(arguments);
    return result;
}

/* Takes the exception that is set, with its traceback. */
static PyObject *
exception_take(void)
{
#if PY_VERSION_HEX >= 0x030c0000 /* which deprecates the other way */
    return PyErr_GetRaisedException();
#else
    PyObject *type;
    PyObject *value;
    PyObject *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    if (value != NULL && trace != NULL)
        (void)PyException_SetTraceback(value, trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    return value;
#endif
}

int
interpreter_error(const char *where, struct shoal_error *error)
{
    int status = SHOAL_UNKNOWN;
    const char *text = NULL;
    PyObject *value = exception_take();
    PyObject *said = NULL;
    if (value != NULL && interpreter.functions != NULL)
        said = interpreter_call("report", "(yO)", where, value);
    if (said == NULL || !PyArg_ParseTuple(said, "is", &status, &text)) {
        text = "an exception that cannot be printed";
        PyErr_WriteUnraisable(NULL);
    }
    snprintf(error->text, sizeof error->text, "%s", text);
    Py_XDECREF(said);
    Py_XDECREF(value);
    return status;
}

int
interpreter_run_error(struct shoal_error *error)
{
    bool ends = PyErr_ExceptionMatches(PyExc_SystemExit);
    int status = interpreter_error("", error);
    if (!ends)
        return status;
    interpreter.host->log(SHOAL_LOG_ERROR, "%s: the worker ends", error->text);
    _exit(EXIT_FAILURE); /* others, up to 3, mean something to the coordinator */
}

/* ---- starting ---- */

/* Extension modules find the interpreter's symbols among the global ones, and a plug-in's libraries
 * are not. */
static int
symbols_publish(struct shoal_error *error)
{
    Dl_info info;
    if (dladdr((const void *)&_Py_NoneStruct, &info) != 0 && info.dli_fname != NULL &&
        dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) != NULL)
        return SHOAL_OK;
    snprintf(error->text, sizeof error->text, "libpython: %s", dlerror());
    return SHOAL_FAILED_PRECONDITION;
}

/* Like `python3 -B` without site: worker.py adds the packages. Of the environment, PYTHON* count,
 * which only the stage's `env` can have set. The standard library is found from the program's path,
 * and must not be that of another Python, which happens to be first in PATH. */
static int
python_start(struct shoal_error *error)
{
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    config.install_signal_handlers = 0;
    config.parse_argv = 0;
    config.site_import = 0;
    config.user_site_directory = 0;
    config.write_bytecode = 0;
    PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, SHOAL_PYTHON);
    if (!PyStatus_Exception(status))
        status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (!PyStatus_Exception(status))
        return SHOAL_OK;
    snprintf(error->text, sizeof error->text, "starting Python: %s",
             status.err_msg != NULL ? status.err_msg : "it gave no reason");
    return SHOAL_FAILED_PRECONDITION;
}

/* Runs an embedded file in `globals`. Python 3.13 looks for its builtins there. */
static bool
file_run(const unsigned char *bytes, size_t size, const char *name, PyObject *globals)
{
    char *text = malloc(size + 1);
    if (text == NULL)
        return PyErr_NoMemory() != NULL;
    memcpy(text, bytes, size);
    text[size] = '\0';
    PyObject *code = Py_CompileString(text, name, Py_file_input);
    free(text);
    bool ok =
        code != NULL && PyDict_SetItemString(globals, "__builtins__", PyEval_GetBuiltins()) == 0;
    PyObject *result = ok ? PyEval_EvalCode(code, globals, globals) : NULL;
    Py_XDECREF(code);
    Py_XDECREF(result);
    return result != NULL;
}

/* shoal.cancelled: on any thread of user code, which has the interpreter's lock, as `running` is
 * only changed with it. */
static PyObject *
cancelled(PyObject *self, PyObject *arguments)
{
    const struct run_group *group = interpreter.running;
    bool all = group != NULL;
    (void)self;
    (void)arguments;
    for (uint32_t i = 0; all && i < group->count; i++)
        all = interpreter.host->cancelled(group->items[i]) != 0;
    return PyBool_FromLong(all);
}

static PyMethodDef cancelled_method = {"cancelled", cancelled, METH_NOARGS, NULL};

/* Instead of the one in _modelet.py. */
static bool
cancelled_publish(PyObject *names)
{
    PyObject *function = PyCFunction_New(&cancelled_method, NULL);
    bool ok = function != NULL && PyDict_SetItemString(names, "cancelled", function) == 0;
    Py_XDECREF(function);
    return ok;
}

/* The module `shoal`, which is what user code imports, and worker.py. */
static bool
modules_run(void)
{
    PyObject *shoal = PyImport_AddModule("shoal"); /* both borrowed */
    PyObject *worker = PyImport_AddModule("_shoal_worker");
    if (shoal == NULL || worker == NULL)
        return false;
    PyObject *names = PyModule_GetDict(shoal);
    interpreter.functions = PyModule_GetDict(worker);
    return file_run(python_errors, python_errors_size, "shoal/_errors.py", names) &&
           file_run(python_modelet, python_modelet_size, "shoal/_modelet.py", names) &&
           cancelled_publish(names) &&
           file_run(python_worker, python_worker_size, "worker.py", interpreter.functions);
}

static PyObject *
log_write(PyObject *self, PyObject *args)
{
    (void)self;
    int level;
    const char *text;
    if (!PyArg_ParseTuple(args, "is", &level, &text))
        return NULL;
    interpreter.host->log((enum shoal_log_level)level, "%s", text);
    Py_RETURN_NONE;
}

static PyMethodDef log_method = {"log", log_write, METH_VARARGS, NULL};

static bool
numpy_start(const char *environment)
{
    PyObject *log = PyCFunction_New(&log_method, NULL);
    PyObject *made = log != NULL ? interpreter_call("start", "(Oz)", log, environment) : NULL;
    Py_XDECREF(log);
    PyObject *dtypes;
    if (made == NULL || !PyArg_ParseTuple(made, "OOO!", &interpreter.ndarray, &interpreter.asarray,
                                          &PyTuple_Type, &dtypes))
        return false;
    for (Py_ssize_t i = 0; i < SHOAL_DATATYPE_END && i < PyTuple_GET_SIZE(dtypes); i++)
        interpreter.dtypes[i] = PyTuple_GET_ITEM(dtypes, i);
    return true; /* `made` keeps all of them, for good */
}

int
interpreter_start(const struct shoal_host *host, struct shoal_error *error)
{
    enum { PATH_ROOM = 4096 };
    char environment[PATH_ROOM];
    const char *named = getenv("VIRTUAL_ENV");
    interpreter.host = host;
    (void)setenv("OMP_NUM_THREADS", "1", 0);
    (void)setenv("OPENBLAS_NUM_THREADS", "1", 0);
    (void)setenv("JOBLIB_MULTIPROCESSING", "0", 0); /* it warns where it may not start processes */
    int status = symbols_publish(error);
    (void)pthread_atfork(NULL, NULL, note_fork);
    if (status == SHOAL_OK)
        status = python_start(error);
    if (status != SHOAL_OK)
        return status;
    if (named != NULL && named[0] == '\0')
        named = NULL;
    if (named != NULL && host->resolve_path(named, environment, sizeof environment) != SHOAL_OK) {
        snprintf(error->text, sizeof error->text, "VIRTUAL_ENV is too long a path");
        status = SHOAL_INVALID_ARGUMENT;
    } else if (!memory_prepare() || !modules_run() ||
               !numpy_start(named != NULL ? environment : NULL)) {
        status = interpreter_error("", error);
    }
    if (status != SHOAL_OK)
        interpreter_leave();
    return status;
}
