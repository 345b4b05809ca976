/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds ONNX Runtime's library and loads it into this process, where it stays. It is not linked, so
 * that one plug-in serves with Debian's package, with the library in an installed Python wheel, and
 * without either as long as no model is loaded.
 */
#pragma once

#include <shoal/modelet.h>

#include "ort_api.h"

/* `where`: the library, or a folder with it, with a `capi` that has it, or with an
 * `onnxruntime/capi`, as pip makes; the highest version of several is taken. "": where the system
 * keeps libraries. NOT_FOUND: there is none; FAILED_PRECONDITION: it is not ONNX Runtime, does not
 * load, or is too old. */
int library_load(const char *where, const OrtApi **api, struct shoal_error *error);
