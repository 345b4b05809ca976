/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for what this node has not heard of: rule R13. It may have been registered at another node
 * just now, and the mirror be behind: before the caller is told that there is none, etcd is asked,
 * by a transaction that compares just that. A question is what all calls for one id ask together;
 * those that come while it is out are not answered by it, but by the next.
 */
#include "base/check.h"
#include "mesh/core/state.h"

enum { TIMES_MAX = 8 }; /* a second, for one id: whoever calls it again and again keeps etcd idle */

static struct call *
call_at(struct mesh *mesh, uint32_t number)
{
    return &mesh->calls[number];
}

/* ---- the table ---- */

static bool
is_free(const struct question *question)
{
    return question->model == NAME_NONE && question->vmodel == NAME_NONE;
}

static void
release(struct mesh *mesh, uint32_t model, uint32_t vmodel)
{
    if (model != NAME_NONE)
        names_release(&mesh->tables.model_names, model);
    if (vmodel != NAME_NONE)
        names_release(&mesh->vmodels.names, vmodel);
}

/* The question for what the call names. NULL: there are too many. */
static struct question *
question_for(struct mesh *mesh, const struct call *call)
{
    struct question *found = NULL;
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++) {
        struct question *question = &mesh->questions[i];
        if (question->model == call->model && question->vmodel == call->vmodel)
            return question;
        if (found == NULL && is_free(question))
            found = question;
    }
    if (found == NULL)
        return NULL;
    *found = (struct question){
        .model = call->model, .vmodel = call->vmodel, .asked = CALL_NONE, .later = CALL_NONE};
    if (call->model != NAME_NONE)
        names_keep(&mesh->tables.model_names, call->model);
    if (call->vmodel != NAME_NONE)
        names_keep(&mesh->vmodels.names, call->vmodel);
    return found;
}

void
unknown_tick(struct mesh *mesh)
{
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++) {
        struct question *question = &mesh->questions[i];
        question->times = 0;
        if (is_free(question) || question->txn != 0)
            continue;
        release(mesh, question->model, question->vmodel);
        *question = (struct question){.model = NAME_NONE, .vmodel = NAME_NONE};
    }
}

/* ---- asking ---- */

/* For all that have come by now. False: it cannot be asked now. */
static bool
send(struct mesh *mesh, struct question *question)
{
    struct batch batch = {0};
    struct bid bid = {0};
    if (question->vmodel != NAME_NONE)
        batch_compare_vmodel(mesh, &batch, question->vmodel);
    else
        batch_compare_model(mesh, &batch, question->model);
    bid_send(mesh, &bid, &batch, BIDDER_CALL, (uint32_t)(question - mesh->questions));
    if (bid.txn == 0) /* there is no session any more; or the record's deletion is out */
        return false;
    question->txn = bid.txn;
    question->times++;
    question->asked = question->later;
    question->later = CALL_NONE;
    return true;
}

/* A number for what the call names, with a reference. False: no room. */
static bool
hold_named(struct mesh *mesh, const struct mesh_event *event, struct call *call)
{
    bool vmodel = event->call.vmodel != NULL;
    call->vmodel = vmodel ? vmodels_hold(&mesh->vmodels, event->call.vmodel) : NAME_NONE;
    call->model = vmodel ? NAME_NONE : tables_hold_model(&mesh->tables, event->call.model);
    return call->vmodel != NAME_NONE || call->model != NAME_NONE;
}

/* ---- answers ---- */

static bool
has_record(const struct mesh *mesh, const struct call *call)
{
    return call->vmodel != NAME_NONE ? mesh->vmodels.at[call->vmodel].known
                                     : mesh->tables.models[call->model].known;
}

static void
say_none(struct mesh *mesh, uint32_t number)
{
    bool vmodel = call_at(mesh, number)->vmodel != NAME_NONE;
    call_answer(mesh, number, MESH_END_NOT_FOUND, vmodel ? "vmodel not found" : "model not found");
}

static void
say_busy(struct mesh *mesh, uint32_t number)
{
    call_answer(mesh, number, MESH_END_UNAVAILABLE,
                "it is not known here, and could not be read from the registry: try again");
}

/* Judges by the records as they are now: an answer that does not come says nothing (T4). */
static void
tell(struct mesh *mesh, uint32_t number, enum mesh_txn_end end)
{
    struct call *call = call_at(mesh, number);
    if (!has_record(mesh, call)) {
        if (end == MESH_TXN_OK)
            say_none(mesh, number);
        else
            say_busy(mesh, number);
        return;
    }
    if (call->vmodel != NAME_NONE) {
        call->model = vmodel_model(&mesh->vmodels.at[call->vmodel]);
        if (call->model == NAME_NONE) {
            say_none(mesh, number);
            return;
        }
        names_keep(&mesh->tables.model_names, call->model);
    }
    mesh->asking--;
    call_route_later(mesh, number);
}

static void
tell_all(struct mesh *mesh, uint32_t *list, enum mesh_txn_end end)
{
    uint32_t number = *list;
    *list = CALL_NONE;
    while (number != CALL_NONE) {
        uint32_t next = call_at(mesh, number)->next;
        tell(mesh, number, end);
        number = next;
    }
}

bool
unknown_ask(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = event->call.call;
    struct call asks = {.deadline_ms = event->call.deadline_ms,
                        .number = call_at(mesh, number)->number,
                        .balance = (uint8_t)event->call.balance,
                        .once = event->call.once,
                        .state = CALL_ASKING};
    if (event->call.hop != MESH_HOP_ENTRY || mesh->session == 0 || !hold_named(mesh, event, &asks))
        return false;
    *call_at(mesh, number) = asks;
    mesh->asking++;
    struct question *question = question_for(mesh, &asks);
    if (question == NULL) {
        say_busy(mesh, number);
        return true;
    }
    bool out = question->txn != 0;
    if (!out && question->times == TIMES_MAX) {
        say_none(mesh, number);
        return true;
    }
    call_at(mesh, number)->next = question->later;
    question->later = number;
    if (!out && !send(mesh, question))
        tell_all(mesh, &question->later, MESH_TXN_UNKNOWN);
    return true;
}

void
unknown_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end)
{
    uint32_t at = (uint32_t)txn & (BIDDER_NUMBER_MAX - 1);
    if (at >= QUESTIONS_MAX || mesh->questions[at].txn != txn)
        return;
    struct question *question = &mesh->questions[at];
    question->txn = 0;
    tell_all(mesh, &question->asked, end);
    bool again = question->later != CALL_NONE && end == MESH_TXN_OK &&
                 !has_record(mesh, call_at(mesh, question->later)) && question->times < TIMES_MAX;
    if (again && send(mesh, question))
        return;
    tell_all(mesh, &question->later, again ? MESH_TXN_UNKNOWN : end);
}

/* ---- cancelled ---- */

static bool
unlink_from(struct mesh *mesh, uint32_t *link, uint32_t number)
{
    while (*link != CALL_NONE && *link != number)
        link = &call_at(mesh, *link)->next;
    if (*link == CALL_NONE)
        return false;
    *link = call_at(mesh, number)->next;
    return true;
}

void
unknown_cancelled(struct mesh *mesh, uint32_t number)
{
    const struct call *call = call_at(mesh, number);
    struct question *question = question_for(mesh, call);
    CHECK(question != NULL && (unlink_from(mesh, &question->asked, number) ||
                               unlink_from(mesh, &question->later, number)));
}
