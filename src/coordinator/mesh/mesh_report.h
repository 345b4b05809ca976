/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reports of the mesh to an operator over the control socket: the verbs CONTROL_MESH_… of
 * shm/control.h, as this node sees it. Loop thread; the driver's lock is held for some hundred
 * names at a time, and an answer looks at no more than some thousand.
 */
#pragma once

#include "coordinator/loop/control.h"
#include "mesh/edge/driver.h"
#include "mesh/edge/peers.h"
#include "mesh/store/store.h"

#define POOL_NONE UINT32_MAX

struct mesh_report_source {
    struct driver *driver;
    struct store *store;
    struct peers *peers;    /* NULL: there are none */
    int64_t silent_ns;      /* since when the store has not answered; 0: it does */
    bool is_full;           /* the store refuses writes */
    const char *instance;   /* this node's */
    uint32_t external_pool; /* of an external runtime; POOL_NONE: it has none */
};

void mesh_report_answer(const struct mesh_report_source *source,
                        const struct control_request *request, struct control_call *call);
