/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's tensors against what a model takes, as the modelet declared it: for whoever lets
 * requests in, the coordinator for gRPC and the first stage's workers for local clients. Errors are
 * INVALID_ARGUMENT naming tensor and rule. `model` is what the caller calls it.
 */
#pragma once

#include <shoal/modelet.h>

#include "shm/handshake.h"

/* NULL: no such name. */
const struct handshake_tensor *spec_find(const struct handshake_tensor *specs, uint32_t count,
                                         const char *name);

/* One tensor: it exists, and has a type and shape that the model takes. */
enum status spec_check_input(const struct shoal_tensor *tensor,
                             const struct handshake_tensor *specs, uint32_t count,
                             const char *model, struct error *error) WARN_UNUSED;

/* The error about a tensor that was not given. */
enum status spec_missing(const struct handshake_tensor *spec, const char *model,
                         struct error *error);

/* All of a request. `count` > 0. */
enum status spec_check(const struct handshake_tensor *specs, uint32_t count,
                       const struct shoal_tensor *tensors, uint32_t tensor_count, const char *model,
                       struct error *error) WARN_UNUSED;

/* "FP32"; "unknown" for what is no datatype: the number may be a worker's. */
const char *datatype_name(uint32_t datatype);
