/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPython in this process: started once, never finalized. Its lock is held between
 * interpreter_enter and interpreter_leave only, so that threads of user code run while the worker
 * waits. Every other function of this folder needs it.
 */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <shoal/modelet.h>

struct run_group; /* inputs.h */

struct interpreter {
    const struct shoal_host *host;
    const struct run_group *running; /* NULL: `run` is not called now */
    PyThreadState *thread;           /* of the only thread that calls us */
    PyObject *functions;             /* the globals of worker.py */
    PyObject *ndarray;               /* numpy's */
    PyObject *asarray;
    PyObject *dtypes[SHOAL_DATATYPE_END];
};

extern struct interpreter interpreter;

/* Starts it. It is entered afterwards if that succeeded. */
int interpreter_start(const struct shoal_host *host, struct shoal_error *error);

void interpreter_enter(void);
void interpreter_leave(void);

/* Ends the process if it is a child of os.fork that came back from user code: it would answer a
 * second time. */
void interpreter_end_child(void);

/* Calls a function of worker.py; `format` is that of Py_BuildValue and makes a tuple. NULL: a
 * Python exception is set. */
PyObject *interpreter_call(const char *function, const char *format, ...);

/* Logs the exception that is set, clears it, and returns its status; its text in `error`, behind
 * `where`. */
int interpreter_error(const char *where, struct shoal_error *error);

/* As that, but a SystemExit ends the process. */
int interpreter_run_error(struct shoal_error *error);
