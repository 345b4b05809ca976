/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls for unknown ids: rule R13. The id may have been registered at another node just now while
 * this mirror is behind. So etcd is asked, by a transaction that compares the key's absence, before
 * the caller gets "not found". All calls for one id share a question; calls that arrive while it is
 * out are answered by the next one.
 */
#include "mesh/core/calls/unknown.h"
#include "base/check.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/write.h"

enum { TIMES_MAX = 8 }; /* per second and id: repeated calls must not load etcd */

/* ---- the table ---- */

static bool
is_free(const struct core_question *question)
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

/* The question for the call's id. NULL: too many. */
static struct core_question *
question_for(struct mesh *mesh, const struct core_call *call)
{
    struct core_question *found = NULL;
    for (uint32_t i = 0; i < QUESTIONS_MAX; i++) {
        struct core_question *question = &mesh->questions.at[i];
        if (question->model == call->model && question->vmodel == call->vmodel)
            return question;
        if (found == NULL && is_free(question))
            found = question;
    }
    if (found == NULL)
        return NULL;
    *found = (struct core_question){
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
        struct core_question *question = &mesh->questions.at[i];
        question->times = 0;
        if (is_free(question) || question->txn != 0)
            continue;
        release(mesh, question->model, question->vmodel);
        *question = (struct core_question){.model = NAME_NONE, .vmodel = NAME_NONE};
    }
}

/* ---- asking ---- */

/* Asks for all calls so far. False: impossible now. */
static bool
send(struct mesh *mesh, struct core_question *question)
{
    struct write_batch batch = {0};
    struct bid bid = {0};
    if (question->vmodel != NAME_NONE)
        batch_vmodel(mesh, &batch, MESH_VERB_COMPARE, question->vmodel);
    else
        batch_model(mesh, &batch, MESH_VERB_COMPARE, question->model);
    bid_send(mesh, &bid, &batch, BIDDER_CALL, (uint32_t)(question - mesh->questions.at));
    if (bid.txn == 0) /* no session any more, or the record's deletion is out */
        return false;
    CHECK(question->txn == 0 && question->asked == CALL_NONE); /* T2 */
    question->txn = bid.txn;
    question->times++;
    question->asked = question->later;
    question->later = CALL_NONE;
    return true;
}

/* Reserves a number for the call's id. False: no room. */
static bool
hold_named(struct mesh *mesh, const struct mesh_event *event, struct core_call *call)
{
    bool vmodel = event->call.vmodel != NULL;
    call->vmodel = vmodel ? vmodels_hold(&mesh->vmodels, event->call.vmodel) : NAME_NONE;
    call->model = vmodel ? NAME_NONE : tables_hold_model(&mesh->tables, event->call.model);
    return call->vmodel != NAME_NONE || call->model != NAME_NONE;
}

/* ---- answers ---- */

static bool
has_record(const struct mesh *mesh, const struct core_call *call)
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
                "the id is unknown to this node and the registry could not be read: try again");
}

/* Judges by the current records: a missing answer says nothing (T4). */
static void
notify(struct mesh *mesh, uint32_t number, enum mesh_txn_end end)
{
    struct core_call *call = call_at(mesh, number);
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
    call_route_later(mesh, number);
}

static void
notify_all(struct mesh *mesh, uint32_t *list, enum mesh_txn_end end)
{
    uint32_t number = *list;
    *list = CALL_NONE;
    while (number != CALL_NONE) {
        uint32_t next = call_at(mesh, number)->next;
        notify(mesh, number, end);
        number = next;
    }
}

bool
unknown_ask(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = event->call.call;
    struct core_call asks = {.deadline_ms = event->call.deadline_ms,
                             .number = call_at(mesh, number)->number,
                             .balance = (uint8_t)event->call.balance,
                             .non_retryable = event->call.non_retryable};
    if (event->call.hop != MESH_HOP_ENTRY || mesh->mirror.session == 0 ||
        !hold_named(mesh, event, &asks))
        return false;
    *call_at(mesh, number) = asks;
    call_set(mesh, number, CALL_ASKING);
    struct core_question *question = question_for(mesh, &asks);
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
        notify_all(mesh, &question->later, MESH_TXN_UNKNOWN);
    return true;
}

void
unknown_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end)
{
    uint32_t at = (uint32_t)txn & (BIDDER_NUMBER_MAX - 1);
    if (at >= QUESTIONS_MAX || mesh->questions.at[at].txn != txn)
        return;
    struct core_question *question = &mesh->questions.at[at];
    question->txn = 0;
    notify_all(mesh, &question->asked, end);
    bool again = question->later != CALL_NONE && end == MESH_TXN_OK &&
                 !has_record(mesh, call_at(mesh, question->later)) && question->times < TIMES_MAX;
    if (again && send(mesh, question))
        return;
    notify_all(mesh, &question->later, again ? MESH_TXN_UNKNOWN : end);
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
    const struct core_call *call = call_at(mesh, number);
    struct core_question *question = question_for(mesh, call);
    CHECK(question != NULL && (unlink_from(mesh, &question->asked, number) ||
                               unlink_from(mesh, &question->later, number)));
}
