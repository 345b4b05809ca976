/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks a request's tensors against the inputs that a model declares. Used where requests are
 * admitted: by the coordinator for gRPC, by the first stage's workers for local clients. Errors are
 * INVALID_ARGUMENT, naming the tensor and the rule. `model` is the caller's name for it.
 */
#pragma once

#include <shoal/modelet.h>

#include "ipc/handshake.h"

/* Returns NULL if there is no such name. */
const struct handshake_tensor *spec_find(const struct handshake_tensor *specs, uint32_t count,
                                         const char *name);

/* Checks one tensor: the model has it, with this type and shape. */
enum status spec_check_input(const struct shoal_tensor *tensor,
                             const struct handshake_tensor *specs, uint32_t count,
                             const char *model, struct error *error) WARN_UNUSED;

/* Sets the error for a tensor that is missing. */
enum status spec_missing(const struct handshake_tensor *spec, const char *model,
                         struct error *error);

/* Checks all tensors of a request. `count` > 0. */
enum status spec_check(const struct handshake_tensor *specs, uint32_t count,
                       const struct shoal_tensor *tensors, uint32_t tensor_count, const char *model,
                       struct error *error) WARN_UNUSED;

/* Returns a datatype's name; "unknown" for an invalid number, which a worker may have sent. */
const char *datatype_name(uint32_t datatype);
