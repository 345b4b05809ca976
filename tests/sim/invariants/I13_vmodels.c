/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I13. A vmodel is not moved to what is loaded on fewer nodes than what it leaves (as far as nodes
 * are there that have not failed to load it); its calls are answered by what is its active model,
 * or was until a while ago; and when nobody orders any more, transitions end.
 */
#include "../invariants.h"

enum { LAG_MS = 25000 }; /* of a mirror, at most */

struct was_active {
    struct was_active *former;
    int64_t from_ms;
    uint32_t model; /* NODE_NONE: none */
};

/* Of each vmodel. */
struct history {
    struct was_active *last;
};

static struct history *
history_of(struct world *world, uint32_t vmodel)
{
    struct history *all = of_model(world, &I13_vmodels, 0);
    return &all[vmodel];
}

static uint32_t
model_named(const char *name)
{
    return name == NULL || name[0] == '\0' ? NODE_NONE : number_of(name);
}

static uint32_t
count_loaded(struct world *world, uint32_t model, uint32_t *never_failed)
{
    struct mesh_place places[64];
    struct mesh_model record = {0};
    (void)record_now(world, model, places, &record);
    uint32_t loaded = 0;
    *never_failed = world->options.nodes;
    for (uint32_t i = 0; i < record.place_count; i++) {
        loaded += places[i].kind == MESH_PLACE_LOADED && place_is_alive(world, &places[i]);
        *never_failed -= places[i].kind == MESH_PLACE_FAILED;
    }
    return loaded;
}

/* Where nobody dies, nothing is forced and no node is new, what was true when it was compared is.
 */
static bool
is_steady(const struct world *world)
{
    const struct faults *faults = &world->options.faults;
    return !faults->forced && !world->options.labelled && world->now_ms > LAG_MS && world->faulty &&
           faults->kills + faults->leases + faults->drains + faults->constraints +
                   faults->emptyings + faults->pauses + faults->crashes + faults->outages +
                   faults->links + faults->partitions + faults->swizzles + faults->elections +
                   faults->lost + faults->slow + faults->forgets + faults->replacements ==
               0;
}

static void
on_vmodel(struct world *world, const struct sight *sight)
{
    uint32_t was = model_named(sight->vmodel_before->active);
    uint32_t is = model_named(sight->vmodel_after->active);
    if (was == is)
        return;
    struct history *history = history_of(world, (uint32_t)sight->number);
    struct was_active *active = arena_take(&world->arena, sizeof(*active));
    *active = (struct was_active){.former = history->last, .from_ms = world->now_ms, .model = is};
    history->last = active;
    if (was == NODE_NONE || is == NODE_NONE)
        return;
    world->switches++;
    if (!is_steady(world))
        return;
    uint32_t could;
    uint32_t has = count_loaded(world, was, &could);
    uint32_t gets = count_loaded(world, is, &could);
    if (gets < has && gets < could)
        broken(world, &I13_vmodels, "v%llu moves from m%u on %u nodes to m%u on %u of %u",
               (unsigned long long)sight->number, was, has, is, gets, could);
}

static void
on_answer(struct world *world, const struct client_call *call)
{
    if (call->vmodel == VMODEL_NONE || call->lost || call->end != MESH_END_OK || world->emptied > 0)
        return;
    const struct was_active *at = history_of(world, call->vmodel)->last;
    int64_t until_ms = INT64_MAX;
    while (at != NULL && until_ms > call->began_ms - LAG_MS) {
        if (at->model == call->model)
            return;
        until_ms = at->from_ms;
        at = at->former;
    }
    broken(world, &I13_vmodels, "a call of v%u is answered by m%u, which was not active",
           call->vmodel, call->model);
}

static void
on_rested(struct world *world)
{
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        if (vmodel_now(world, v, &vmodel) && model_differs(vmodel.active, vmodel.target))
            broken(world, &I13_vmodels, "v%u is still on its way from %s to %s, failed %d", v,
                   vmodel.active, vmodel.target, vmodel.failed);
    }
}

static void
see(struct world *world, const struct sight *sight)
{
    if (sight->kind == SAW_VMODEL)
        on_vmodel(world, sight);
    else if (sight->kind == SAW_ANSWER)
        on_answer(world, &world->calls[sight->client_call]);
    else
        on_rested(world);
}

const struct invariant I13_vmodels = {
    .name = "I13 vmodels",
    .sees = SEES(VMODEL) | SEES(ANSWER) | SEES(RESTED),
    .model_bytes = 16 * sizeof(struct history), /* of the first model: all vmodels' */
    .see = see,
};
