/* SPDX-License-Identifier: Apache-2.0 */
/* The instance of a process that takes this node's place (DESIGN-upgrade.md). Any thread. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "mesh/edge/runner.h"

enum { MESH_SUCCESSOR_END_BYTES = 16 };

/* The end of the instance's id. */
void mesh_successor_end(pid_t pid, char end[MESH_SUCCESSOR_END_BYTES]);

enum mesh_successor {
    MESH_SUCCESSOR_UNSEEN, /* the registry does not have it */
    MESH_SUCCESSOR_HAS_ROOM,
    MESH_SUCCESSOR_FULL, /* rule P3 */
};

enum mesh_successor mesh_successor_look(struct mesh_runner *runner, pid_t pid);
