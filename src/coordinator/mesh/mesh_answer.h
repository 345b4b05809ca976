/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of mmesh.ModelMesh: turns the outcome of an order into a message, or into the status
 * and text that clients of KServe ModelMesh know. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "mesh/edge/runner.h"

/* STATUS_OK: `*message` of `*bytes` bytes, to be freed; may be empty. Else the refusal. */
enum status mesh_answer_order(const struct mesh_order *order, const struct runner_reply *reply,
                              void **message, size_t *bytes, struct error *error) WARN_UNUSED;

/* The answer to a call that no runtime has answered. Never STATUS_OK. */
enum status mesh_answer_call(enum runner_name name, const struct runner_answer *answer,
                             struct error *error);
