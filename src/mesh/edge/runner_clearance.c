/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides whether this node's first loads show that it may replace another one. An orchestrator
 * that replaces nodes one by one waits until the new node is ready. A node that cannot load what
 * the old ones have, because of its runtime or files, must stop the replacement while they exist.
 *
 *   C1. A load counts that fails here, within `clearance_ns` of the start, while another node has
 *       the model loaded. A load that ends with its runtime does not count: a lost runtime is not
 *       ready anyway.
 *   C2. After three such loads the node is not ready until it is restarted. It serves on: callers
 *       that are already here find no better node by being turned away.
 *
 * ModelMesh also counts failures of models that no node has, if more than half of over twenty loads
 * fail. Those may be the models' own fault or that of the shared store; a mesh that starts while
 * that is down would have no ready node any more.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/runner_inside.h"

enum { FAILURES_MAX = 3 };

struct clearance_look {
    const char *self;
    bool loading;
    bool others;
};

static void
see(void *context, const struct mesh_sight *sight)
{
    struct clearance_look *look = context;
    look->loading = sight->here == MESH_STATE_LOADING;
    for (uint32_t i = 0; i < sight->status.place_count; i++)
        look->others = look->others || (sight->status.places[i].kind == MESH_PLACE_LOADED &&
                                        strcmp(sight->status.places[i].instance, look->self) != 0);
}

void
runner_clearance_failed(struct mesh_runner *runner, const char *model, const char *reason)
{
    struct clearance_look look = {.self = runner->options.core.instance};
    if (!runner_is_clear(runner) || clock_now_ns() >= runner->clearance.end_ns ||
        !mesh_see_model(runner->mesh, model, see, &look) || !look.loading || !look.others)
        return;
    runner->clearance.failures++;
    log_warn("mesh_clearance model=\"%s\" failures=%u of=%d error=\"%s\"", model,
             runner->clearance.failures, FAILURES_MAX, reason);
    if (!runner_is_clear(runner))
        log_error(
            "mesh_not_clear failures=%u within_ms=%" PRId64
            " error=\"this node cannot load models that others have: it is not ready until it is "
            "restarted\"",
            runner->clearance.failures, runner->options.clearance_ns / NS_PER_MS);
}

bool
runner_is_clear(const struct mesh_runner *runner)
{
    return runner->clearance.failures < FAILURES_MAX;
}
