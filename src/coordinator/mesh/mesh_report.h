/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports on the mesh, as this node sees it, to an operator over the control socket (CONTROL_MESH_…
 * of ipc/control.h). Loop thread. Holds the runner's lock for a few hundred names at a time; an
 * answer looks at a bounded number of names.
 */
#pragma once

#include "coordinator/loop/control.h"
#include "mesh/edge/runner.h"
#include "mesh/edge/peers.h"
#include "mesh/store/store.h"

#define POOL_NONE UINT32_MAX

struct mesh_report_source {
    struct mesh_runner *runner;
    struct store *store;
    struct peers *peers;    /* NULL: there are none */
    int64_t silent_ns;      /* since when the store has not answered; 0: it answers */
    bool is_full;           /* the store refuses writes */
    const char *instance;   /* this node's */
    uint32_t external_pool; /* an external runtime's pool; POOL_NONE: no runtime */
};

void mesh_report_answer(const struct mesh_report_source *source,
                        const struct control_request *request, struct control_call *call);
