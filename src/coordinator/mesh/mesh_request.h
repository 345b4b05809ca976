/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests of mmesh.ModelMesh, copied and judged, as orders for the mesh. Pure.
 */
#pragma once

#include "base/error.h"
#include "mesh/core/mesh_core.h"
#include "rpc/rpc.h"

enum {
    MESH_REQUEST_BYTES_MAX = 256 * 1024,
    MESH_REQUEST_PATH_BYTES_MAX = 4096,
    MESH_REQUEST_KEY_BYTES_MAX = 64 * 1024,
};

struct mesh_request {
    struct mesh_order order; /* its texts are in `texts`, or NULL: not given, or empty */
    char *texts;             /* NULL: nothing to be freed */
};

/* INVALID_ARGUMENT: no such message, no UTF-8, too long, or what `kind` needs is missing. `owner`
 * is whose a vmodel is if the caller does not say; NULL: nobody's. It must stay as long as the
 * request. Whatever comes of it, mesh_request_fini. */
enum status mesh_request_read(enum mesh_order_kind kind, const struct rpc_message *message,
                              const char *owner, struct mesh_request *request,
                              struct error *error) WARN_UNUSED;
void mesh_request_fini(struct mesh_request *request);
