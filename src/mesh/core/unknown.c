/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for what this node has not heard of: rule R13. It may have been registered at another node
 * just now, and the mirror be behind: before the caller is told that there is none, etcd is asked,
 * by a transaction that compares just that.
 */
#include "mesh/core/state.h"

enum { ASKING_MAX = 64 }; /* whoever makes up names does not keep etcd busy */

/* A number for what the call names, with a reference. False: no room. */
static bool
hold_named(struct mesh *mesh, const struct mesh_event *event, struct call *call)
{
    bool vmodel = event->call.vmodel != NULL;
    call->vmodel = vmodel ? vmodels_hold(&mesh->vmodels, event->call.vmodel) : NAME_NONE;
    call->model = vmodel ? NAME_NONE : tables_hold_model(&mesh->tables, event->call.model);
    return call->vmodel != NAME_NONE || call->model != NAME_NONE;
}

bool
unknown_ask(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = event->call.call;
    struct call asks = {.deadline_ms = event->call.deadline_ms,
                        .number = mesh->calls[number].number,
                        .balance = (uint8_t)event->call.balance,
                        .state = CALL_ASKING};
    if (event->call.hop != MESH_HOP_ENTRY || mesh->session == 0 || mesh->asking == ASKING_MAX ||
        !hold_named(mesh, event, &asks))
        return false;
    struct batch batch = {0};
    struct bid bid = {0};
    if (asks.model != NAME_NONE)
        batch_compare_model(mesh, &batch, asks.model);
    else
        batch_compare_vmodel(mesh, &batch, asks.vmodel);
    bid_send(mesh, &bid, &batch, BIDDER_CALL, number);
    asks.txn = bid.txn;
    if (bid.txn == 0) { /* its deletion is still out */
        names_release(&mesh->tables.model_names, asks.model);
        return false;
    }
    mesh->calls[number] = asks;
    mesh->asking++;
    return true;
}

void
unknown_on_txn(struct mesh *mesh, uint64_t txn)
{
    uint32_t number = (uint32_t)txn & (BIDDER_NUMBER_MAX - 1);
    if (number >= mesh->call_capacity)
        return;
    struct call *call = &mesh->calls[number];
    if (call->state != CALL_ASKING || call->txn != txn)
        return; /* it was cancelled */
    if (call->vmodel != NAME_NONE) {
        call->model = vmodel_model(&mesh->vmodels.at[call->vmodel]);
        if (call->model == NAME_NONE) {
            call_answer(mesh, number, MESH_END_NOT_FOUND, "vmodel not found");
            return;
        }
        names_keep(&mesh->tables.model_names, call->model);
    }
    mesh->asking--;
    call_route_later(mesh, number);
}
