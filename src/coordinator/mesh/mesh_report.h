/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports on the mesh, as this node sees it, in JSON (CONTROL_MESH_… of ipc/control.h). Loop
 * thread. Holds the runner's lock for a few hundred names at a time; a list looks at a bounded
 * number of names.
 */
#pragma once

#include "base/bytes.h"
#include "ipc/control.h"
#include "mesh/edge/runner.h"
#include "mesh/edge/peers.h"
#include "mesh/store/store.h"
#include "serving/storage/storage.h"

#define POOL_NONE UINT32_MAX

struct mesh_report_source {
    struct mesh_runner *runner;
    struct store *store;
    struct peers *peers;     /* NULL: there are none */
    int64_t silent_ns;       /* since when the store has not answered; 0: it answers */
    bool is_full;            /* the store refuses writes */
    const char *instance;    /* this node's */
    struct storage *storage; /* NULL: models are not fetched */
    uint32_t external_pool;  /* an external runtime's pool; POOL_NONE: no runtime */
};

/* Writes an object with `rows` and `next`. NOT_FOUND: no such model. */
enum status mesh_report_write(const struct mesh_report_source *source,
                              const struct control_request *request, struct bytes *list,
                              struct error *error) WARN_UNUSED;
