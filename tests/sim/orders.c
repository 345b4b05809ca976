/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that register and unregister models, and move vmodels, through any node that they reach.
 */
#include <stdio.h>

#include "base/check.h"
#include "codec.h"
#include "invariants.h"

enum { ORDER_MS = 30000 };

static uint32_t
any(struct world *world, uint32_t below)
{
    return draw(world, STREAM_CHAOS, below);
}

/* Of the model that is there, or a new one; the wrong one, sometimes. */
static const char *
path_of(struct world *world, uint32_t model)
{
    struct mesh_place places[CODEC_PLACES_MAX];
    struct mesh_model record;
    char path[32];
    bool there = record_now(world, model, places, &record);
    bool same = any(world, 8) > 0;
    if (there && same)
        return record.path;
    snprintf(path, sizeof(path), "v%u", ++world->registrations);
    return arena_copy(&world->arena, path, sizeof(path));
}

static struct mesh_order
draw_order(struct world *world)
{
    uint32_t what = any(world, world->options.vmodels > 0 ? 10 : 4);
    bool rarely = any(world, 8) == 0;
    uint32_t model = any(world, world->options.models);
    struct mesh_order said = {.model = world->model_names[model]};
    if (what >= 4)
        said.vmodel = world->vmodel_names[any(world, world->options.vmodels)];
    said.load_now = any(world, 2);
    said.sync = any(world, 2);
    switch (what) {
    case 0:
    case 1:
        said.kind = MESH_REGISTER;
        said.type = runtime_type(world, model);
        said.path = path_of(world, model);
        break;
    case 2: said.kind = MESH_UNREGISTER; break;
    case 3: said.kind = rarely ? MESH_MODEL_STATUS : MESH_ENSURE_LOADED; break;
    case 4: said.kind = rarely ? MESH_DELETE_VMODEL : MESH_VMODEL_STATUS; break;
    default:
        said.kind = MESH_SET_VMODEL;
        if (any(world, 2)) {
            said.type = runtime_type(world, model);
            said.path = path_of(world, model);
        }
        said.auto_delete = any(world, 2);
        said.bounded = world->options.bounds != BOUNDS_NONE;
        if (said.bounded)
            said.bounds = registry_draw_bounds(world, model);
        said.force = world->options.faults.forced && rarely;
        break;
    }
    return said;
}

void
orders_client(struct world *world)
{
    uint32_t number = any(world, world->options.nodes);
    struct node *node = &world->nodes[number];
    if (!node_is_up(world, number))
        return;
    struct mesh_order said = draw_order(world);
    while (said.order < ORDERS_MAX && node->orders[said.order])
        said.order++;
    if (said.order == ORDERS_MAX)
        return; /* it has enough to do */
    node->orders[said.order] = true;
    said.deadline_ms = world->now_ms + ORDER_MS;
    world->ordered++;
    node_step(world, number, (struct mesh_event){.kind = MESH_ORDER, .order = said});
}

void
orders_replied(struct world *world, uint32_t node, const struct mesh_action *action)
{
    bool *given = &world->nodes[node].orders[action->reply.order];
    CHECK(*given); /* each ends once */
    *given = false;
    world->replied++;
    world->outcomes[action->reply.outcome]++;
    trace(world, (uint64_t)action->reply.outcome << 8 | (uint64_t)action->reply.model.state);
}

/* Their clients know: the connection is gone. */
void
orders_die(struct world *world, uint32_t node)
{
    for (uint32_t i = 0; i < ORDERS_MAX; i++) {
        world->ordered -= world->nodes[node].orders[i];
        world->nodes[node].orders[i] = false;
    }
}
