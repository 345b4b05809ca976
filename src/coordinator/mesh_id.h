/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which model or vmodel of a mesh a call's metadata name, by the rules and in the words of KServe
 * ModelMesh. Front threads.
 */
#pragma once

#include "coordinator/target.h"
#include "mesh/edge/driver.h"

/* `id->bytes` 0: the metadata name none. INVALID_ARGUMENT: empty, too long, not UTF-8, both a model
 * and a vmodel, or several. */
enum status mesh_id_of_call(const struct rpc_call *call, struct target_id *id,
                            enum driver_name *name, struct error *error) WARN_UNUSED;
