/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/control.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#define CONTROL_SUFFIX ".control"
#define MANAGE_SUFFIX ".manage"

static enum status
path_beside(const char *counters_path, const char *suffix, const char *what, char *path,
            size_t room, struct error *error)
{
    const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - strlen(suffix) - 1;
    size_t bytes = strlen(counters_path);
    if (bytes > most || bytes + strlen(suffix) + 1 > room)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the counters' path has %zu bytes: the node's %s socket beside it "
                         "allows at most %zu",
                         bytes, what, most);
    snprintf(path, room, "%s%s", counters_path, suffix);
    return STATUS_OK;
}

enum status
control_path(const char *counters_path, char *path, size_t room, struct error *error)
{
    return path_beside(counters_path, CONTROL_SUFFIX, "control", path, room, error);
}

enum status
control_manage_path(const char *counters_path, char *path, size_t room, struct error *error)
{
    return path_beside(counters_path, MANAGE_SUFFIX, "management", path, room, error);
}

const char *
control_verb_name(enum control_verb verb)
{
    static const char *const names[CONTROL_VERBS] = {
        [CONTROL_RELOAD] = "reload",
        [CONTROL_MODEL_LOAD] = "model load",
        [CONTROL_MODEL_UNLOAD] = "model unload",
        [CONTROL_MODEL_ROLLBACK] = "model rollback",
        [CONTROL_MODEL_LIST] = "model list",
        [CONTROL_MESH_NODES] = "mesh nodes",
        [CONTROL_MESH_MODELS] = "mesh models",
        [CONTROL_MESH_COPIES] = "mesh copies",
        [CONTROL_MESH_VMODELS] = "mesh vmodels",
        [CONTROL_MESH_MOVES] = "mesh moves",
        [CONTROL_DRAIN] = "drain",
        [CONTROL_UPGRADE] = "upgrade",
    };
    return names[verb];
}
