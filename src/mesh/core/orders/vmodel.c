/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that name a vmodel: rules V1, V2, and O1, O3. */
#include <string.h>

#include "mesh/core/models.h"
#include "mesh/core/copies/write.h"
#include "mesh/core/orders/orders.h"
#include "mesh/core/upkeep/promote.h"

static struct vmodel *
vmodel_of(struct mesh *mesh, const struct core_order *order)
{
    return &mesh->vmodels.at[order->vmodel];
}

static bool
is_anothers(const struct core_order *order, const struct vmodel *vmodel)
{
    return vmodel->known && order->said.owner != NULL &&
           (vmodel->owner == NULL || strcmp(vmodel->owner, order->said.owner) != 0);
}

static const struct core_model *
record_of(struct mesh *mesh, uint32_t model)
{
    return model != NAME_NONE && model_at(mesh, model)->known ? model_at(mesh, model) : NULL;
}

/* ---- may it be set? ---- */

/* The target is neither the expected one nor already the new one. */
static bool
is_unexpected(struct mesh *mesh, const struct core_order *order, const struct vmodel *vmodel)
{
    const char *expected = order->said.expected;
    if (expected == NULL || vmodel->target == order->model)
        return false;
    return vmodel->target == NAME_NONE ||
           strcmp(names_text(&mesh->tables.model_names, vmodel->target), expected) != 0;
}

/* A target is expected where the vmodel is absent. */
static bool
expects_some(struct mesh *mesh, const struct core_order *order)
{
    const char *model = names_text(&mesh->tables.model_names, order->model);
    return order->said.expected != NULL && strcmp(order->said.expected, model) != 0;
}

static enum mesh_outcome
judge(struct mesh *mesh, const struct core_order *order, const struct vmodel *vmodel)
{
    bool described = order->said.type != NULL;
    bool known = model_at(mesh, order->model)->known;
    if (!vmodel->known && (expects_some(mesh, order) || order->said.update_only))
        return MESH_OUTCOME_NO_VMODEL;
    if (is_anothers(order, vmodel))
        return MESH_OUTCOME_OTHER_OWNER;
    if (vmodel->known && is_unexpected(mesh, order, vmodel))
        return MESH_OUTCOME_UNEXPECTED;
    if (!known && !described)
        return MESH_OUTCOME_NO_MODEL;
    return known && described && !order_describes(mesh, order) ? MESH_OUTCOME_DIFFERS
                                                               : MESH_OUTCOME_OK;
}

/* ---- setting it ---- */

/* V2: the target serves no worse than the active model does now, by the bounds that it gets. */
static bool
switches_now(struct mesh *mesh, const struct core_order *order, const struct vmodel *vmodel)
{
    struct core_model *target = model_at(mesh, order->model);
    const struct mesh_bounds bounds = target->bounds;
    if (order->said.force || !vmodel->known || vmodel->active == order->model)
        return true;
    if (order->said.bounded)
        target->bounds = order->said.bounds;
    bool ready = target_is_ready(mesh, vmodel->active, order->model);
    target->bounds = bounds;
    return ready;
}

/* Adds a reference to the target, registers it if necessary, or compares it if it is referred to
 * already. */
static void
batch_target(struct mesh *mesh, struct write_batch *batch, const struct core_order *order,
             const struct vmodel *vmodel)
{
    const struct core_model *active = record_of(mesh, vmodel->active);
    int64_t used_ms =
        active != NULL && active->used_ms > 0 ? active->used_ms : order_used_ms(mesh, order);
    const struct new_model made = {.type = order->said.type,
                                   .path = order->said.path == NULL ? "" : order->said.path,
                                   .key = order->said.key == NULL ? "" : order->said.key,
                                   .used_ms = used_ms,
                                   .references = 1,
                                   .auto_delete = order->said.auto_delete,
                                   .bounds = order->said.bounds};
    bool referred = order->model == vmodel->active || order->model == vmodel->target;
    if (!model_at(mesh, order->model)->known)
        batch_create(mesh, batch, order->model, &made);
    else if (referred)
        batch_model(mesh, batch, MESH_VERB_COMPARE, order->model);
    else {
        batch_hold(mesh, batch, order->model, used_ms);
        if (order->said.bounded)
            batch->writes[batch->count - 1].model.bounds = order->said.bounds;
    }
}

/* V1 */
static void
set(struct mesh *mesh, struct core_order *order, const struct vmodel *vmodel)
{
    struct write_batch batch = {0};
    bool now = switches_now(mesh, order, vmodel);
    const struct moved_vmodel moved = {.active = now ? order->model : vmodel->active,
                                       .target = order->model,
                                       .owner = order->said.owner};
    const struct core_model *former = record_of(mesh, vmodel->active);
    order->loads =
        order->said.load_now || (now && former != NULL && model_copies(&mesh->tables, former) > 0);
    batch_move(mesh, &batch, order->vmodel, &moved);
    batch_target(mesh, &batch, order, vmodel);
    if (vmodel->target != NAME_NONE && vmodel->target != vmodel->active &&
        vmodel->target != order->model)
        batch_release(mesh, &batch, vmodel->target);
    if (vmodel->active != NAME_NONE && vmodel->active != order->model) {
        if (now)
            batch_release(mesh, &batch, vmodel->active);
        else
            batch_model(mesh, &batch, MESH_VERB_COMPARE, vmodel->active);
    }
    order_send(mesh, order, &batch);
}

static bool
bounds_differ(struct mesh *mesh, const struct core_order *order)
{
    const struct core_model *target = record_of(mesh, order->model);
    const struct mesh_bounds *wanted = &order->said.bounds;
    return order->said.bounded && target != NULL &&
           (target->bounds.copies_min != wanted->copies_min ||
            target->bounds.copies_max != wanted->copies_max ||
            target->bounds.size_units != wanted->size_units);
}

/* B1: nothing is loaded for it. */
static void
set_bounds(struct mesh *mesh, struct core_order *order)
{
    struct write_batch batch = {0};
    batch_vmodel(mesh, &batch, MESH_VERB_COMPARE, order->vmodel);
    batch_model(mesh, &batch, MESH_VERB_PUT, order->model)->model.bounds = order->said.bounds;
    order_send(mesh, order, &batch);
}

/* The records have the wanted content. */
static void
is_set(struct mesh *mesh, struct core_order *order, const struct vmodel *vmodel)
{
    if (!order->wrote)
        order->loads = order->said.load_now;
    if (vmodel_is_moving(vmodel)) {
        order_set(order, ORDER_TRANSITION);
        if (!order->said.sync)
            order_end(mesh, order, MESH_OUTCOME_OK);
        else
            transition_look(mesh, order);
    } else if (order->loads) {
        order_set(order, ORDER_LOAD);
        load_look(mesh, order);
    } else
        order_end(mesh, order, MESH_OUTCOME_OK);
}

void
set_vmodel_look(struct mesh *mesh, struct core_order *order)
{
    const struct vmodel *vmodel = vmodel_of(mesh, order);
    bool as_wanted = vmodel->known && vmodel->target == order->model &&
                     (vmodel->active == order->model || !order->said.force) &&
                     !is_anothers(order, vmodel);
    enum mesh_outcome outcome = judge(mesh, order, vmodel);
    if (outcome != MESH_OUTCOME_OK && !(as_wanted && order->wrote)) {
        if (order_is_sure(mesh, order))
            order_end(mesh, order, outcome);
    } else if (!as_wanted) {
        set(mesh, order, vmodel);
    } else if (bounds_differ(mesh, order)) {
        set_bounds(mesh, order);
    } else if ((order->wrote && model_at(mesh, order->model)->known) ||
               order_is_sure(mesh, order)) { /* the model's record may arrive after the vmodel's */
        is_set(mesh, order, vmodel);
    }
}

void
transition_look(struct mesh *mesh, struct core_order *order)
{
    const struct vmodel *vmodel = vmodel_of(mesh, order);
    if (!vmodel_is_moving(vmodel) || vmodel->target != order->model || vmodel->failed)
        order_end(mesh, order, MESH_OUTCOME_OK);
}

/* ---- the others ---- */

void
delete_vmodel_look(struct mesh *mesh, struct core_order *order)
{
    const struct vmodel *vmodel = vmodel_of(mesh, order);
    if (!vmodel->known || (order->was != 0 && order->was != vmodel->create_revision)) {
        if (order->was != 0 || order_is_sure(mesh, order))
            order_end(mesh, order, MESH_OUTCOME_OK);
        return;
    }
    if (is_anothers(order, vmodel)) {
        if (order_is_sure(mesh, order))
            order_end(mesh, order, MESH_OUTCOME_OK);
        return;
    }
    order->was = vmodel->create_revision;
    struct write_batch batch = {0};
    batch_vmodel(mesh, &batch, MESH_VERB_DELETE, order->vmodel);
    if (vmodel->active != NAME_NONE)
        batch_release(mesh, &batch, vmodel->active);
    if (vmodel->target != NAME_NONE && vmodel->target != vmodel->active)
        batch_release(mesh, &batch, vmodel->target);
    order_send(mesh, order, &batch);
}

void
vmodel_status_look(struct mesh *mesh, struct core_order *order)
{
    const struct vmodel *vmodel = vmodel_of(mesh, order);
    bool seen = vmodel->known && !is_anothers(order, vmodel);
    if (seen || mesh->mirror.session == 0 || order_is_sure(mesh, order))
        order_end(mesh, order, MESH_OUTCOME_OK);
}
