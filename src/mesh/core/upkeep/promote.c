/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/upkeep/promote.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/copies/write.h"

/* Asks at most this often while the target is new, so a node that has not claimed it by the next
 * tick is passed over. */
enum { ASK_SOON_MS = 250, ASKS_SOON = 30, ASK_AGAIN_MS = 10000, ANEW_PER_TICK = 128 };

/* Loaded and alive. */
static uint32_t
loaded_copies(const struct mesh *mesh, const struct core_model *model)
{
    const struct core_place *places = model_places(model);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->place_count; i++)
        count += places[i].kind == MESH_PLACE_LOADED && place_alive(&mesh->tables, &places[i]);
    return count;
}

static bool
has_failed_at(const struct mesh *mesh, const struct core_model *model, uint32_t instance)
{
    const struct core_place *place = model_place(model, (uint16_t)instance);
    return place != NULL && place->kind == MESH_PLACE_FAILED &&
           failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
}

/* Counts instances that may hold the model; `within_reach`: and can be asked. */
static uint32_t
suitable(const struct mesh *mesh, const struct core_model *model, bool within_reach)
{
    const struct tables *tables = &mesh->tables;
    const struct type_rule *rule =
        types_rule(&tables->types, names_text(&tables->type_names, model->type));
    uint32_t count = 0;
    for (uint32_t i = 0; i < tables->instance_names.used; i++) {
        const struct instance *instance = &tables->instances[i];
        bool reached = !within_reach || instance->unreachable_until_ms <= mesh->now_ms;
        count += instance->session != 0 && !instance->draining && reached &&
                 types_allow(rule, instance->labels) && !has_failed_at(mesh, model, i);
    }
    return count;
}

/* V3: copies of the target wanted, at least one. */
static uint32_t
wanted_copies(struct mesh *mesh, const struct core_model *active, const struct core_model *target)
{
    uint32_t wanted = loaded_copies(mesh, active);
    if (target->bounds.copies_max != 0 && wanted > target->bounds.copies_max)
        wanted = target->bounds.copies_max; /* B3 */
    if (wanted <= 1)
        return 1;
    uint32_t most = suitable(mesh, target, true);
    if (most == 0)
        return 1;
    return wanted < most ? wanted : most;
}

static const struct core_model *
record_of(struct mesh *mesh, uint32_t model)
{
    return model != NAME_NONE && model_at(mesh, model)->known ? model_at(mesh, model) : NULL;
}

bool
target_is_ready(struct mesh *mesh, uint32_t active_number, uint32_t target_number)
{
    const struct core_model *active = record_of(mesh, active_number);
    const struct core_model *target = record_of(mesh, target_number);
    if (active == NULL || model_copies(&mesh->tables, active) == 0)
        return true;
    if (target == NULL)
        return false;
    uint32_t loaded = loaded_copies(mesh, target);
    return loaded >= 1 &&
           (loaded >= loaded_copies(mesh, active) || loaded >= wanted_copies(mesh, active, target));
}

/* V6: no node holds it and none is left to try. */
static bool
target_fails(struct mesh *mesh, const struct core_model *target)
{
    if (model_copies(&mesh->tables, target) > 0)
        return false;
    uint32_t failures = model_fresh_failures(mesh, target);
    return failures >= MESH_FAILURES_MAX || (failures > 0 && suitable(mesh, target, false) == 0);
}

/* V4, V5: sets active to target if `promoted`. */
static void
write(struct mesh *mesh, uint32_t number, bool promoted, bool failed)
{
    struct vmodel *vmodel = &mesh->vmodels.at[number];
    const struct moved_vmodel moved = {.active = promoted ? vmodel->target : vmodel->active,
                                       .target = vmodel->target,
                                       .failed = failed};
    struct write_batch batch = {0};
    batch_move(mesh, &batch, number, &moved);
    batch_model(mesh, &batch, MESH_VERB_COMPARE, vmodel->target);
    if (promoted && vmodel->active != NAME_NONE)
        batch_release(mesh, &batch, vmodel->active);
    bid_send(mesh, &vmodel->bid, &batch, BIDDER_VMODEL, number);
}

/* V3. Somebody waits for the switch, so the target counts as used now; with the active model's last
 * use all other models might be newer and keep it out forever (E4). */
static void
ask(struct mesh *mesh, struct vmodel *vmodel)
{
    int64_t again_ms = vmodel->asks < ASKS_SOON ? ASK_SOON_MS : ASK_AGAIN_MS;
    if (vmodel->asked_ms != 0 && mesh->now_ms - vmodel->asked_ms < again_ms)
        return;
    vmodel->asked_ms = mesh->now_ms;
    vmodel->asks += vmodel->asks < UINT8_MAX;
    const struct core_model *active = record_of(mesh, vmodel->active);
    const struct core_model *target = record_of(mesh, vmodel->target);
    const struct load_wish wish = {
        .model = vmodel->target,
        .used_ms = mesh->wall_ms,
        .class = MESH_CLASS_MIGRATION,
        .target = wanted_copies(mesh, active, target),
    };
    ensure_in_turn(mesh, &wish, &vmodel->asked);
}

static void
look(struct mesh *mesh, uint32_t number)
{
    struct vmodel *vmodel = &mesh->vmodels.at[number];
    if (!mesh->leader || !mesh->mirror.whole || mesh->mirror.session == 0 ||
        !vmodel_is_moving(vmodel))
        return;
    const struct core_model *active = record_of(mesh, vmodel->active);
    const struct core_model *target = record_of(mesh, vmodel->target);
    if (target == NULL || vmodel_is_lost(vmodel) || model_is_lost(target) ||
        (active != NULL && model_is_lost(active)))
        return; /* not deleted by any node of ours, or lost and rewritten first */
    if (target_is_ready(mesh, vmodel->active, vmodel->target)) {
        write(mesh, number, true, false);
        return;
    }
    bool fails = target_fails(mesh, target);
    if (fails != vmodel->failed)
        write(mesh, number, false, fails);
    else if (!fails)
        ask(mesh, vmodel);
}

static void
look_at_all(struct mesh *mesh)
{
    const struct heap *moving = &mesh->vmodels.moving;
    for (uint32_t i = 0; mesh->leader && i < moving->count; i++)
        look(mesh, moving->cells[i].item);
}

void
promote_on_vmodel(struct mesh *mesh, uint32_t vmodel)
{
    look(mesh, vmodel);
}

void
promote_on_model(struct mesh *mesh, uint32_t model)
{
    const struct heap *moving = &mesh->vmodels.moving;
    for (uint32_t i = 0; mesh->leader && i < moving->count; i++) {
        uint32_t number = moving->cells[i].item;
        const struct vmodel *vmodel = &mesh->vmodels.at[number];
        if (vmodel->active == model || vmodel->target == model)
            look(mesh, number);
    }
}

void
promote_on_txn(struct mesh *mesh, uint64_t txn)
{
    uint32_t number = (uint32_t)txn & (BIDDER_NUMBER_MAX - 1);
    if (number < mesh->vmodels.names.used && bid_ended(mesh, &mesh->vmodels.at[number].bid, txn))
        look(mesh, number);
}

/* W1. Starts at a random vmodel: when all nodes write the records that the leader has not written,
 * each takes others.
 */
static void
write_anew(struct mesh *mesh)
{
    struct vmodels *vmodels = &mesh->vmodels;
    uint32_t used = vmodels->names.used;
    uint64_t first = random_next(&mesh->random);
    uint32_t writes = 0;
    for (uint32_t i = 0; i < used && writes < ANEW_PER_TICK; i++) {
        uint32_t number = (uint32_t)((first + i) % used);
        struct vmodel *vmodel = &vmodels->at[number];
        if (!vmodel_is_lost(vmodel))
            continue;
        struct write_batch batch = {0};
        const struct moved_vmodel same = {
            .active = vmodel->active, .target = vmodel->target, .failed = vmodel->failed};
        batch_move(mesh, &batch, number, &same);
        bid_send(mesh, &vmodel->bid, &batch, BIDDER_VMODEL, number);
        writes++;
    }
    vmodels->lost = writes > 0;
}

void
promote_tick(struct mesh *mesh)
{
    if (mesh->vmodels.lost && mesh->mirror.session != 0 && registry_rebuild_is_mine(mesh))
        write_anew(mesh);
    look_at_all(mesh);
}

void
promote_on_unreachable(struct mesh *mesh)
{
    look_at_all(mesh);
}
