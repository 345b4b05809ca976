/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answers of mmesh.ModelMesh: the mesh's outcome of an order as a message, or as a status and
 * the words that clients of KServe ModelMesh know. Pure.
 */
#pragma once

#include <stddef.h>

#include "base/error.h"
#include "mesh/edge/driver.h"

/* STATUS_OK: `*message`, to be freed, of `*bytes` (there may be none). Else the refusal. */
enum status mesh_answer_order(const struct mesh_order *order, const struct driver_reply *reply,
                              void **message, size_t *bytes, struct error *error) WARN_UNUSED;

/* A call that no runtime has answered. Never STATUS_OK. */
enum status mesh_answer_call(enum driver_name name, const struct driver_answer *answer,
                             struct error *error);
