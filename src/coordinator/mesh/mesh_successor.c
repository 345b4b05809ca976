/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_successor.h"

#include <stdio.h>
#include <string.h>

enum { PAGE = 256 };

struct successor_search {
    char end[MESH_SUCCESSOR_END_BYTES];
    enum mesh_successor found;
};

void
mesh_successor_end(pid_t pid, char end[MESH_SUCCESSOR_END_BYTES])
{
    snprintf(end, MESH_SUCCESSOR_END_BYTES, "-%d", (int)pid);
}

/* Under the runner's lock. */
static void
look_at_instance(void *context, const struct mesh_instance *instance)
{
    struct successor_search *search = context;
    size_t bytes = strlen(instance->id);
    size_t end_bytes = strlen(search->end);
    if (bytes > end_bytes && strcmp(instance->id + bytes - end_bytes, search->end) == 0)
        search->found = instance->figures.full ? MESH_SUCCESSOR_FULL : MESH_SUCCESSOR_HAS_ROOM;
}

enum mesh_successor
mesh_successor_look(struct mesh_runner *runner, pid_t pid)
{
    struct successor_search search = {.found = MESH_SUCCESSOR_UNSEEN};
    uint64_t from = 0;
    mesh_successor_end(pid, search.end);
    do {
        from = runner_visit_instances(runner, from, PAGE, look_at_instance, &search);
    } while (from != 0 && search.found == MESH_SUCCESSOR_UNSEEN);
    return search.found;
}
