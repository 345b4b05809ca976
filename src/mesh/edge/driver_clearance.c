/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this node may take another's place, as its first loads say. An orchestrator that replaces
 * nodes one by one waits until the new one is ready: one that cannot load what the old ones have,
 * as its runtime or its files are wrong, is to stop that while the old ones are still there.
 *
 * C1. A load counts that fails here, within `clearance_ns` of the start, while another node has
 *     the model loaded. Not one that ends with its runtime: what is lost is not ready anyway.
 * C2. Of three such loads on, the node is not ready until it is started anew. It serves on: callers
 *     who are here find no better node by being turned away.
 *
 * The incumbent also counts failures of models that nobody has, if more than half of over twenty
 * loads fail. But those may be the models' own fault, or that of the store that all nodes read; a
 * mesh that starts while that is away would have no ready node any more.
 */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/driver_inside.h"

enum { FAILURES_MAX = 3 };

struct look {
    const char *self;
    bool loading;
    bool others;
};

static void
see(void *context, const struct mesh_sight *sight)
{
    struct look *look = context;
    look->loading = sight->here == MESH_STATE_LOADING;
    for (uint32_t i = 0; i < sight->status.place_count; i++)
        look->others = look->others || (sight->status.places[i].kind == MESH_PLACE_LOADED &&
                                        strcmp(sight->status.places[i].instance, look->self) != 0);
}

void
driver_clearance_failed(struct driver *driver, const char *model, const char *reason)
{
    struct look look = {.self = driver->options.instance};
    if (!driver_is_clear(driver) || clock_now_ns() >= driver->clearance_end_ns ||
        !mesh_see_model(driver->mesh, model, see, &look) || !look.loading || !look.others)
        return;
    driver->clearance_failures++;
    log_warn("mesh_clearance model=\"%s\" failures=%u of=%d error=\"%s\"", model,
             driver->clearance_failures, FAILURES_MAX, reason);
    if (!driver_is_clear(driver))
        log_error("mesh_not_clear failures=%u within_ms=%" PRId64
                  " error=\"this node cannot load what others have: it is not ready until it is "
                  "started anew\"",
                  driver->clearance_failures, driver->options.clearance_ns / NS_PER_MS);
}

bool
driver_is_clear(const struct driver *driver)
{
    return driver->clearance_failures < FAILURES_MAX;
}
