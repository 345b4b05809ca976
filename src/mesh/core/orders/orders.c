/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/orders/orders.h"
#include "base/check.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/write.h"

#include <stdlib.h>
#include <string.h>

void
orders_fini(struct orders *orders)
{
    for (uint32_t i = 0; i < orders->capacity; i++)
        free(orders->at[i].texts);
    free(orders->at);
    free(orders->under_way);
    free(orders->due);
}

static void
look_later(struct mesh *mesh, uint32_t number)
{
    struct orders *orders = &mesh->orders;
    if (orders->at[number].due)
        return;
    orders->at[number].due = true;
    scratch_grow((void **)&orders->due, &orders->due_capacity, orders->due_count + 1,
                 sizeof(*orders->due));
    orders->due[orders->due_count++] = number;
}

void
orders_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end)
{
    uint32_t number = (uint32_t)txn & (BIDDER_NUMBER_MAX - 1);
    if (number >= mesh->orders.capacity)
        return;
    struct core_order *order = &mesh->orders.at[number];
    if (order->stage == ORDER_FREE || !bid_ended(mesh, &order->bid, txn))
        return;
    order->confirmed = end == MESH_TXN_OK;
    look_later(mesh, number);
}

/* ---- a look ---- */

static bool
model_lost(const struct mesh *mesh, uint32_t model)
{
    return model != NAME_NONE && model_is_lost(&mesh->tables.models[model]);
}

/* W1: a record that the order depends on was lost with all of etcd and will be rewritten. */
static bool
is_lost(const struct mesh *mesh, const struct core_order *order)
{
    const struct vmodel *vmodel =
        order->vmodel == NAME_NONE ? NULL : &mesh->vmodels.at[order->vmodel];
    return model_lost(mesh, order->model) ||
           (vmodel != NULL && (vmodel_is_lost(vmodel) || model_lost(mesh, vmodel->active) ||
                               model_lost(mesh, vmodel->target)));
}

static void
look_at_records(struct mesh *mesh, struct core_order *order)
{
    switch (order->said.kind) {
    case MESH_REGISTER: register_look(mesh, order); break;
    case MESH_UNREGISTER: unregister_look(mesh, order); break;
    case MESH_MODEL_STATUS: model_status_look(mesh, order); break;
    case MESH_ENSURE_LOADED: ensure_loaded_look(mesh, order); break;
    case MESH_SET_VMODEL: set_vmodel_look(mesh, order); break;
    case MESH_DELETE_VMODEL: delete_vmodel_look(mesh, order); break;
    case MESH_VMODEL_STATUS: vmodel_status_look(mesh, order); break;
    }
}

static void
look(struct mesh *mesh, struct core_order *order)
{
    bool reads = order->said.kind == MESH_MODEL_STATUS || order->said.kind == MESH_VMODEL_STATUS;
    bool alone = mesh->mirror.session == 0 && mesh->now_ms - order->began_ms > CLAIM_MS_MAX;
    if (order->said.deadline_ms <= mesh->now_ms)
        order_end(mesh, order, MESH_OUTCOME_DEADLINE);
    else if (alone && order->stage != ORDER_TRANSITION)
        order_end(mesh, order, MESH_OUTCOME_UNAVAILABLE);
    else if (is_lost(mesh, order) && !reads)
        return;
    else if (order->stage == ORDER_RECORDS)
        look_at_records(mesh, order);
    else if (order->stage == ORDER_LOAD)
        load_look(mesh, order);
    else
        transition_look(mesh, order);
}

bool
orders_work_off(struct mesh *mesh)
{
    struct orders *orders = &mesh->orders;
    if (orders->due_count == 0)
        return false;
    struct core_order *order = &orders->at[orders->due[--orders->due_count]];
    order->due = false;
    if (order->stage != ORDER_FREE)
        look(mesh, order);
    return true;
}

void
orders_on_model(struct mesh *mesh, uint32_t model)
{
    struct orders *orders = &mesh->orders;
    for (uint32_t i = 0; i < orders->under_way_count; i++) {
        const struct core_order *order = &orders->at[orders->under_way[i]];
        bool former = order->vmodel != NAME_NONE && order->stage == ORDER_RECORDS;
        if (order->model == model || former) /* may be any of the vmodel's models */
            look_later(mesh, orders->under_way[i]);
    }
}

void
orders_on_vmodel(struct mesh *mesh, uint32_t vmodel)
{
    struct orders *orders = &mesh->orders;
    for (uint32_t i = 0; i < orders->under_way_count; i++)
        if (orders->at[orders->under_way[i]].vmodel == vmodel)
            look_later(mesh, orders->under_way[i]);
}

void
orders_tick(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->orders.under_way_count; i++)
        look_later(mesh, mesh->orders.under_way[i]);
}

/* ---- its beginning ---- */

static bool
names_vmodel(enum mesh_order_kind kind)
{
    return kind >= MESH_SET_VMODEL;
}

static bool
names_model(enum mesh_order_kind kind)
{
    return kind != MESH_DELETE_VMODEL && kind != MESH_VMODEL_STATUS;
}

static bool
is_id(const char *text)
{
    return text != NULL && text[0] != '\0' && strlen(text) <= MESH_ID_BYTES_MAX;
}

static bool
is_valid(const struct mesh_order *said)
{
    bool type = said->kind == MESH_REGISTER || said->type != NULL;
    return (!names_model(said->kind) || is_id(said->model)) && (!type || is_id(said->type)) &&
           (!names_vmodel(said->kind) || is_id(said->vmodel)) &&
           (said->owner == NULL || is_id(said->owner)) &&
           (said->expected == NULL || is_id(said->expected));
}

/* Copies the order's texts; NULL stays NULL. */
static void
keep_texts(struct core_order *order)
{
    const char **texts[] = {&order->said.type, &order->said.path, &order->said.key,
                            &order->said.owner, &order->said.expected};
    size_t size = 1;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        size += *texts[i] != NULL ? strlen(*texts[i]) + 1 : 0;
    char *at = malloc(size);
    CHECK(at != NULL);
    order->texts = at;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (*texts[i] == NULL)
            continue;
        size_t length = strlen(*texts[i]) + 1;
        memcpy(at, *texts[i], length);
        *texts[i] = at;
        at += length;
    }
    order->said.model = NULL; /* those are numbers now */
    order->said.vmodel = NULL;
}

/* Reserves numbers for the ids that it names, all or none. */
static bool
hold_ids(struct mesh *mesh, const struct mesh_order *said, uint32_t *model, uint32_t *vmodel)
{
    bool with_model = names_model(said->kind);
    *model = with_model ? tables_hold_model(&mesh->tables, said->model) : NAME_NONE;
    *vmodel = names_vmodel(said->kind) ? vmodels_hold(&mesh->vmodels, said->vmodel) : NAME_NONE;
    if ((*model != NAME_NONE || !with_model) && (*vmodel != NAME_NONE || !names_vmodel(said->kind)))
        return true;
    if (*model != NAME_NONE)
        names_release(&mesh->tables.model_names, *model);
    if (*vmodel != NAME_NONE)
        names_release(&mesh->vmodels.names, *vmodel);
    return false;
}

void
orders_on_order(struct mesh *mesh, const struct mesh_order *said)
{
    struct orders *orders = &mesh->orders;
    CHECK(said->order < mesh->config.orders_max);
    scratch_grow((void **)&orders->at, &orders->capacity, said->order + 1, sizeof(*orders->at));
    struct core_order *order = &orders->at[said->order];
    CHECK(order->stage == ORDER_FREE);
    uint32_t model, vmodel;
    if (!is_valid(said) || !mesh->mirror.whole) {
        (void)order_reply(mesh, said->order,
                          mesh->mirror.whole ? MESH_OUTCOME_INVALID : MESH_OUTCOME_UNAVAILABLE);
        return;
    }
    if (!hold_ids(mesh, said, &model, &vmodel)) {
        (void)order_reply(mesh, said->order, MESH_OUTCOME_FULL);
        return;
    }
    *order = (struct core_order){.said = *said,
                                 .began_ms = mesh->now_ms,
                                 .model = model,
                                 .vmodel = vmodel,
                                 .at = orders->under_way_count,
                                 .due = order->due};
    order_set(order, ORDER_RECORDS);
    keep_texts(order);
    scratch_grow((void **)&orders->under_way, &orders->under_way_capacity,
                 orders->under_way_count + 1, sizeof(*orders->under_way));
    orders->under_way[orders->under_way_count++] = said->order;
    look_later(mesh, said->order);
}

void
orders_on_cancelled(struct mesh *mesh, uint32_t number)
{
    if (number < mesh->orders.capacity && mesh->orders.at[number].stage != ORDER_FREE)
        order_free(mesh, &mesh->orders.at[number]);
}

static void
check_order(const struct mesh *mesh, uint32_t number)
{
    const struct core_order *order = &mesh->orders.at[number];
    CHECK(!order->due); /* the step has checked it */
    if (order->stage == ORDER_FREE) {
        CHECK(order->texts == NULL);
        return;
    }
    CHECK(order->at < mesh->orders.under_way_count && mesh->orders.under_way[order->at] == number);
    CHECK((order->model != NAME_NONE) == names_model(order->said.kind));
    CHECK((order->vmodel != NAME_NONE) == names_vmodel(order->said.kind));
    CHECK(order->stage != ORDER_LOAD || order->model != NAME_NONE);
    CHECK(order->stage != ORDER_TRANSITION || order->said.kind == MESH_SET_VMODEL);
    CHECK(order->bid.count <= MESH_WRITES_MAX && (order->bid.txn == 0 || order->bid.count > 0));
}

void
orders_check(const struct mesh *mesh)
{
    uint32_t under_way = 0;
    for (uint32_t i = 0; i < mesh->orders.capacity; i++) {
        check_order(mesh, i);
        under_way += mesh->orders.at[i].stage != ORDER_FREE;
    }
    CHECK(under_way == mesh->orders.under_way_count);
}
