/* SPDX-License-Identifier: Apache-2.0 */
/* One order: its stage, its transactions, its answer. */
#include <stdlib.h>

#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/orders/orders.h"
#include "mesh/core/orders/status.h"

static uint32_t
number_of(const struct mesh *mesh, const struct core_order *order)
{
    return (uint32_t)(order - mesh->orders.at);
}

/* Allowed transitions. */
static const uint32_t EDGES[] = {
    [ORDER_FREE] = 1u << ORDER_RECORDS,
    [ORDER_RECORDS] = 1u << ORDER_LOAD | 1u << ORDER_TRANSITION | 1u << ORDER_FREE,
    [ORDER_LOAD] = 1u << ORDER_FREE,
    [ORDER_TRANSITION] = 1u << ORDER_FREE,
};

void
order_set(struct core_order *order, enum order_stage stage)
{
    CHECK(EDGES[order->stage] & 1u << stage);
    order->stage = (uint8_t)stage;
}

/* ---- its end ---- */

void
order_free(struct mesh *mesh, struct core_order *order)
{
    struct orders *orders = &mesh->orders;
    CHECK(orders->under_way[order->at] == number_of(mesh, order));
    order_set(order, ORDER_FREE); /* an order is answered once */
    uint32_t last = orders->under_way[--orders->under_way_count];
    orders->under_way[order->at] = last;
    orders->at[last].at = order->at;
    if (order->model != NAME_NONE)
        names_release(&mesh->tables.model_names, order->model);
    if (order->vmodel != NAME_NONE)
        names_release(&mesh->vmodels.names, order->vmodel);
    free(order->texts);
    bool due = order->due; /* stays in the list and finds nothing */
    *order = (struct core_order){.due = due};
}

struct mesh_action *
order_reply(struct mesh *mesh, uint32_t number, enum mesh_outcome outcome)
{
    struct mesh_action *action = act(mesh, MESH_DO_REPLY);
    action->reply.order = number;
    action->reply.outcome = outcome;
    action->reply.vmodel = (struct mesh_vmodel_status){.owner = "", .active = "", .target = ""};
    return action;
}

static struct mesh_action *
end(struct mesh *mesh, struct core_order *order, enum mesh_outcome outcome)
{
    struct mesh_action *action = order_reply(mesh, number_of(mesh, order), outcome);
    if (order->vmodel != NAME_NONE)
        action->reply.vmodel = vmodel_status_of(mesh, order->vmodel);
    else if (order->model != NAME_NONE)
        action->reply.model = status_of(mesh, order->model);
    return action;
}

void
order_end(struct mesh *mesh, struct core_order *order, enum mesh_outcome outcome)
{
    (void)end(mesh, order, outcome);
    order_free(mesh, order);
}

void
order_end_unloaded(struct mesh *mesh, struct core_order *order, const char *error)
{
    struct mesh_action *action = end(mesh, order, MESH_OUTCOME_OK);
    bool vmodel = order->vmodel != NAME_NONE;
    struct mesh_status *status =
        vmodel ? &action->reply.vmodel.active_status : &action->reply.model;
    status->state = MESH_MODEL_FAILED;
    status->error = error;
    order_free(mesh, order);
}

/* ---- its transactions ---- */

void
order_send(struct mesh *mesh, struct core_order *order, const struct write_batch *batch)
{
    order->wrote = true;
    order->confirmed = false;
    bid_send(mesh, &order->bid, batch, BIDDER_ORDER, number_of(mesh, order));
}

bool
order_is_sure(struct mesh *mesh, struct core_order *order)
{
    struct write_batch batch = {0};
    if (order->vmodel != NAME_NONE)
        batch_vmodel(mesh, &batch, MESH_VERB_COMPARE, order->vmodel);
    if (order->model != NAME_NONE)
        batch_model(mesh, &batch, MESH_VERB_COMPARE, order->model);
    if (order->confirmed && bid_is(&order->bid, &batch))
        return true;
    order->confirmed = false;
    bid_send(mesh, &order->bid, &batch, BIDDER_ORDER, number_of(mesh, order));
    return false;
}
