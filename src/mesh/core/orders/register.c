/* SPDX-License-Identifier: Apache-2.0 */
/* Orders that name a model: rules O1 to O3, O5. */
#include <string.h>

#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/calls/room_queue.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/copies/write.h"
#include "mesh/core/orders/orders.h"
#include "mesh/core/orders/status.h"

enum {
    TICK_MS = 1000,
    ENDLESS_MS = 60000, /* R14, for orders */
    DAY_MS = 86400000,
    HOUR_MS = 3600000,
    ASK_AGAIN_MS = 5000, /* an asked node may stay silent for this long */
    ASKS_MAX = 3,
};

static const char *
text_of(const char *text)
{
    return text == NULL ? "" : text;
}

bool
order_describes(struct mesh *mesh, const struct core_order *order)
{
    const struct core_model *model = model_at(mesh, order->model);
    return strcmp(names_text(&mesh->tables.type_names, model->type), text_of(order->said.type)) ==
               0 &&
           strcmp(model->path, text_of(order->said.path)) == 0 &&
           strcmp(model->path + strlen(model->path) + 1, text_of(order->said.key)) == 0;
}

int64_t
order_used_ms(const struct mesh *mesh, const struct core_order *order)
{
    if (order->said.used_ms > 0)
        return order->said.used_ms < mesh->wall_ms ? order->said.used_ms : mesh->wall_ms;
    int64_t used_ms = mesh->wall_ms - (order->said.load_now ? 1 : 6) * (int64_t)HOUR_MS;
    return used_ms > 1 ? used_ms : 1;
}

/* O2: the registration implies a later last use than the record's. */
static bool
is_used_later(const struct mesh *mesh, const struct core_order *order,
              const struct core_model *model)
{
    int64_t used_ms = order_used_ms(mesh, order);
    int64_t spared_ms = order->said.used_ms > 0 ? 0 : HOUR_MS;
    return !order->said.load_now && used_ms > model->used_ms + spared_ms;
}

void
register_look(struct mesh *mesh, struct core_order *order)
{
    const struct core_model *model = model_at(mesh, order->model);
    struct write_batch batch = {0};
    if (!model->known) {
        const struct new_model made = {.type = order->said.type,
                                       .path = text_of(order->said.path),
                                       .key = text_of(order->said.key),
                                       .used_ms = order_used_ms(mesh, order)};
        batch_create(mesh, &batch, order->model, &made);
        order_send(mesh, order, &batch);
    } else if (!order_describes(mesh, order)) {
        if (order_is_sure(mesh, order))
            order_end(mesh, order, MESH_OUTCOME_DIFFERS);
    } else if (is_used_later(mesh, order, model)) {
        batch_used(mesh, &batch, order->model, order_used_ms(mesh, order));
        order_send(mesh, order, &batch);
    } else if (order->wrote || order_is_sure(mesh, order)) {
        order_set(order, ORDER_LOAD);
        if (order->said.load_now)
            load_look(mesh, order);
        else
            order_end(mesh, order, MESH_OUTCOME_OK);
    }
}

void
unregister_look(struct mesh *mesh, struct core_order *order)
{
    const struct core_model *model = model_at(mesh, order->model);
    bool gone = !model->known || (order->was != 0 && order->was != model->create_revision);
    if (gone) {
        if (order->was != 0 || order_is_sure(mesh, order))
            order_end(mesh, order, MESH_OUTCOME_OK);
        return;
    }
    if (model->references > 0) {
        if (order_is_sure(mesh, order))
            order_end(mesh, order, MESH_OUTCOME_REFERENCED);
        return;
    }
    order->was = model->create_revision;
    struct write_batch batch = {0};
    batch_model(mesh, &batch, MESH_VERB_DELETE, order->model);
    order_send(mesh, order, &batch);
}

void
model_status_look(struct mesh *mesh, struct core_order *order)
{
    if (model_at(mesh, order->model)->known || mesh->mirror.session == 0 ||
        order_is_sure(mesh, order))
        order_end(mesh, order, MESH_OUTCOME_OK);
}

/* ---- a copy ---- */

/* O5: marks an existing copy as used, here or at its node. */
static void
touch(struct mesh *mesh, const struct core_order *order)
{
    struct core_model *model = model_at(mesh, order->model);
    int64_t used_ms = order->said.used_ms > 0 ? order->said.used_ms : mesh->wall_ms;
    struct core_entry *entry = entry_of(mesh, model);
    if (entry != NULL) {
        load_touch(mesh, entry, used_ms);
        return;
    }
    const struct core_place *places = model_places(model);
    for (uint32_t i = 0; i < model->place_count; i++) {
        if (places[i].instance == INSTANCE_SELF || !place_is_copy(&mesh->tables, &places[i]))
            continue;
        struct mesh_action *action = act(mesh, MESH_DO_ENSURE);
        action->ensure.instance = names_text(&mesh->tables.instance_names, places[i].instance);
        action->ensure.model = names_text(&mesh->tables.model_names, order->model);
        action->ensure.used_ms = used_ms;
        action->ensure.class = MESH_CLASS_COPY;
        action->ensure.target = 1;
        return;
    }
}

void
ensure_loaded_look(struct mesh *mesh, struct core_order *order)
{
    if (!model_at(mesh, order->model)->known) {
        if (order_is_sure(mesh, order))
            order_end(mesh, order, MESH_OUTCOME_NO_MODEL);
        return;
    }
    touch(mesh, order);
    order_set(order, ORDER_LOAD);
    load_look(mesh, order);
}

/* R14: the caller waits and only room is missing. */
static bool
waits_for_room(struct mesh *mesh, const struct core_order *order)
{
    int64_t until_ms = order->said.deadline_ms - mesh->now_ms > DAY_MS
                           ? order->began_ms + ENDLESS_MS
                           : order->said.deadline_ms;
    return order->said.sync && until_ms - mesh->now_ms > TICK_MS &&
           room_queue_may_help(mesh, order->model, NULL);
}

static void
ask(struct mesh *mesh, struct core_order *order)
{
    const struct core_model *model = model_at(mesh, order->model);
    bool just_asked = order->asks > 0 && order->asked_revision == model->revision &&
                      mesh->now_ms - order->asked_ms < ASK_AGAIN_MS;
    if (just_asked)
        return;
    if (order->asks == ASKS_MAX) {
        order_end_unloaded(mesh, order,
                           "no instance that was asked to load the model has loaded it");
        return;
    }
    order->asks++;
    order->asked_ms = mesh->now_ms;
    order->asked_revision = model->revision;
    bool now = order->said.kind == MESH_ENSURE_LOADED && order->said.used_ms == 0;
    const struct load_wish wish = {
        .model = order->model,
        .used_ms = now ? mesh->wall_ms : order_used_ms(mesh, order),
        .class = order->said.sync ? MESH_CLASS_CALL : MESH_CLASS_COPY,
        .target = 1,
    };
    const char *refusal =
        ensure_anywhere(mesh, &wish, order->said.sync ? mesh->wall_ms : wish.used_ms);
    if (refusal != NULL && waits_for_room(mesh, order))
        order->asks--; /* no node was asked; again at the next tick */
    else if (refusal != NULL)
        order_end_unloaded(mesh, order, refusal);
}

void
load_look(struct mesh *mesh, struct core_order *order)
{
    const struct core_model *model = model_at(mesh, order->model);
    enum mesh_model_state state = status_of(mesh, order->model).state;
    if (state == MESH_MODEL_NOT_FOUND) { /* unregistered meanwhile */
        bool ensures = order->said.kind == MESH_ENSURE_LOADED;
        if (order_is_sure(mesh, order))
            order_end(mesh, order, ensures ? MESH_OUTCOME_NO_MODEL : MESH_OUTCOME_OK);
    } else if (state == MESH_MODEL_LOADING) {
        if (!order->said.sync)
            order_end(mesh, order, MESH_OUTCOME_OK);
    } else if (state == MESH_MODEL_LOADED ||
               model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX) {
        order_end(mesh, order, MESH_OUTCOME_OK);
    } else if (mesh->mirror.session != 0 && model->entry == ENTRY_NONE) {
        ask(mesh, order); /* an entry's place may not be in the record yet, or no longer */
    }
}
