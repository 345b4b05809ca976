/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the results of `run` and copies them once into the outputs of its items. */
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "inputs.h"
#include "signature.h"

/* Sets the items' statuses: SHOAL_OK, or INTERNAL with what is wrong with the answer. */
void outputs_put(const struct signature *signature, const struct shoal_host *host,
                 const struct run_group *group, PyObject *returned);
