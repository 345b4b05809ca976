/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads and judges requests of mmesh.ModelMesh and makes orders of them. Pure.
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
    struct mesh_order order; /* its texts are in `texts`, or NULL if not given or empty */
    char *texts;             /* NULL: nothing to free */
};

/* INVALID_ARGUMENT: malformed, not UTF-8, too long, or without a field that `kind` needs. `owner`
 * is a vmodel's owner if the request names none; NULL: none. It must outlive the request.
 * mesh_request_fini is due after any result. */
enum status mesh_request_read(enum mesh_order_kind kind, const struct wire_message *message,
                              const char *owner, struct mesh_request *request,
                              struct error *error) WARN_UNUSED;
void mesh_request_fini(struct mesh_request *request);
