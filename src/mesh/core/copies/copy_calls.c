/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at a copy: it serves as many as it has permits (S6), lets some wait, and turns
 * the others away (R11). A call that leaves it is answered or queued for routing.
 */
#include "mesh/core/copies/copy_calls.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/copies.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"

enum { PERMITS_WAITING = 8, WAITING_MIN = 16 };

/* Allowed transitions. */
#define TO(state) (1u << CALL_##state)
static const uint32_t EDGES[] = {
    [CALL_FREE] = TO(ROUTING) | TO(ASKING),
    [CALL_ROUTING] =
        TO(ROUTING) | TO(WAITING) | TO(SERVED) | TO(THERE) | TO(PARKED) | TO(QUEUED) | TO(FREE),
    [CALL_WAITING] = TO(ROUTING) | TO(WAITING) | TO(SERVED) | TO(FREE),
    [CALL_SERVED] = TO(ROUTING) | TO(FREE),
    [CALL_THERE] = TO(ROUTING) | TO(FREE),
    [CALL_PARKED] = TO(ROUTING) | TO(FREE),
    [CALL_QUEUED] = TO(ROUTING) | TO(FREE),
    [CALL_ASKING] = TO(ROUTING) | TO(FREE),
};

void
call_set(struct mesh *mesh, uint32_t number, enum core_call_state state)
{
    struct core_call *call = call_at(mesh, number);
    CHECK(EDGES[call->state] & 1u << state); /* I6: a call that has ended stays ended */
    CHECK(!heap_has(&mesh->calls.deadlines, number));
    mesh->questions.asking += state == CALL_ASKING;
    mesh->questions.asking -= call->state == CALL_ASKING;
    call->state = (uint8_t)state;
}

void
call_route_later(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    call_set(mesh, number, CALL_ROUTING);
    call->next = CALL_NONE;
    if (mesh->calls.routing == CALL_NONE)
        mesh->calls.routing = number;
    else
        call_at(mesh, mesh->calls.routing_last)->next = number;
    mesh->calls.routing_last = number;
}

void
call_finish(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    uint32_t model = call->model;
    for (uint32_t i = 0; i < call->tried_count; i++)
        names_release(&mesh->tables.instance_names, call->tried[i].instance);
    call->tried_count = 0;
    call_set(mesh, number, CALL_FREE);
    if (model != NAME_NONE)
        names_release(&mesh->tables.model_names, model);
    if (call->vmodel != NAME_NONE)
        names_release(&mesh->vmodels.names, call->vmodel);
}

void
call_answer(struct mesh *mesh, uint32_t number, enum mesh_end end, const char *text)
{
    struct mesh_action *action = act(mesh, MESH_DO_ANSWER);
    action->answer.call = number;
    action->answer.end = end;
    action->answer.text = text;
    uint32_t model = call_at(mesh, number)->model;
    action->answer.pool = model == NAME_NONE ? 0 : pool_number(mesh, model_at(mesh, model));
    call_finish(mesh, number);
}

void
call_answer_overloaded(struct mesh *mesh, uint32_t number)
{
    call_answer(mesh, number, MESH_END_OVERLOADED, "every copy of the model has too many calls");
}

void
call_forget_tries(struct mesh *mesh, struct core_call *call)
{
    uint8_t kept = 0;
    for (uint32_t i = 0; i < call->tried_count; i++)
        if (call->tried[i].list == MESH_LIST_FIXED)
            call->tried[kept++] = call->tried[i];
        else
            names_release(&mesh->tables.instance_names, call->tried[i].instance);
    call->tried_count = kept;
    call->tries = 0;
    call->overloads = 0;
    call->gone = false;
    call->refused = false;
}

/* R9. A full list ends the call at its next routing. */
void
call_list(struct mesh *mesh, struct core_call *call, uint32_t instance, enum mesh_list which,
          int64_t since_ms)
{
    if (call->tried_count == MESH_TRIED_MAX) {
        call->tries = MESH_TRIES_MAX;
        return;
    }
    names_keep(&mesh->tables.instance_names, instance);
    call->tried[call->tried_count++] = (struct tried){
        .instance = (uint16_t)instance, .list = (uint8_t)which, .since_ms = since_ms};
}

static bool
has_permit(const struct core_entry *entry)
{
    return entry->concurrency == 0 || entry->in_flight < entry->concurrency;
}

static void
serve(struct mesh *mesh, uint32_t number, struct core_entry *entry)
{
    struct core_call *call = call_at(mesh, number);
    CHECK(entry_serves(entry) && has_permit(entry));
    CHECK(entry->model == call->model); /* I19 */
    call_set(mesh, number, CALL_SERVED);
    call->entry = entry_number(mesh, entry);
    entry->in_flight++;
    copies_use(mesh, entry, 1);
    load_touch(mesh, entry, mesh->wall_ms);
    struct mesh_action *action = act(mesh, MESH_DO_SERVE);
    action->attempt.call = number;
    action->attempt.number = ++call->number;
    action->attempt.model = names_text(&mesh->tables.model_names, call->model);
    action->attempt.create_revision = entry->create_revision;
    action->attempt.deadline_ms = call->deadline_ms;
    action->attempt.pool = entry->pool;
}

void
calls_wait(struct mesh *mesh, uint32_t number, struct core_entry *entry)
{
    struct core_call *call = call_at(mesh, number);
    CHECK(entry->model == call->model);
    call_set(mesh, number, CALL_WAITING);
    call->entry = entry_number(mesh, entry);
    call->next = CALL_NONE;
    call->waits_ms = mesh->now_ms;
    if (entry->first_call == CALL_NONE)
        entry->first_call = number;
    else
        call_at(mesh, entry->last_call)->next = number;
    entry->last_call = number;
    entry->waiting++;
    heap_set(&mesh->calls.deadlines, number, call->deadline_ms);
}

static uint32_t
waiting_max(const struct mesh *mesh, const struct core_entry *entry)
{
    if (mesh->config.waiting_max != 0)
        return mesh->config.waiting_max;
    uint32_t most = PERMITS_WAITING * entry->concurrency;
    return most > WAITING_MIN ? most : WAITING_MIN;
}

/* R11 */
static void
turn_away(struct mesh *mesh, uint32_t number, const struct core_entry *entry)
{
    struct core_call *call = call_at(mesh, number);
    call_list(mesh, call, INSTANCE_SELF, MESH_LIST_HIT, entry->since_ms);
    call->overloads++;
    if (call->overloads >= CALL_OVERLOADS_MAX || call->hop == MESH_HOP_HIT)
        call_answer_overloaded(mesh, number);
    else
        call_route_later(mesh, number);
}

void
calls_serve_or_wait(struct mesh *mesh, uint32_t number, struct core_entry *entry)
{
    if (has_permit(entry)) {
        serve(mesh, number, entry);
        return;
    }
    load_touch(mesh, entry, mesh->wall_ms);
    if (entry->waiting < waiting_max(mesh, entry))
        calls_wait(mesh, number, entry);
    else
        turn_away(mesh, number, entry);
}

void
call_stop_waiting(struct mesh *mesh, uint32_t number)
{
    struct core_entry *entry = &mesh->entries.at[call_at(mesh, number)->entry];
    uint32_t before = CALL_NONE;
    uint32_t *link = &entry->first_call;
    while (*link != number) {
        CHECK(*link != CALL_NONE);
        before = *link;
        link = &call_at(mesh, before)->next;
    }
    *link = call_at(mesh, number)->next;
    if (entry->last_call == number)
        entry->last_call = before;
    CHECK(entry->waiting > 0);
    entry->waiting--;
    heap_remove(&mesh->calls.deadlines, number);
}

/* Serves waiting calls in order while permits are free. */
void
calls_serve_waiting(struct mesh *mesh, struct core_entry *entry)
{
    while (entry->first_call != CALL_NONE && has_permit(entry)) {
        uint32_t number = entry->first_call;
        call_stop_waiting(mesh, number);
        if (call_at(mesh, number)->deadline_ms > mesh->now_ms)
            serve(mesh, number, entry);
        else
            call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    }
}

void
calls_serve(struct mesh *mesh, struct core_entry *entry)
{
    calls_serve_waiting(mesh, entry);
    uint32_t count = entry->waiting;
    uint32_t most = waiting_max(mesh, entry);
    for (uint32_t i = 0; count > most && i < count; i++) { /* R11, S6: more than may wait */
        uint32_t number = entry->first_call;
        call_stop_waiting(mesh, number);
        if (i < most)
            calls_wait(mesh, number, entry);
        else
            turn_away(mesh, number, entry);
    }
}

void
calls_reroute(struct mesh *mesh, struct core_entry *entry, enum mesh_end why)
{
    while (entry->first_call != CALL_NONE) {
        uint32_t number = entry->first_call;
        struct core_call *call = call_at(mesh, number);
        call_stop_waiting(mesh, number);
        if (why != MESH_END_OK && call->hop != MESH_HOP_ENTRY) {
            call_answer(mesh, number, why, NULL);
            continue;
        }
        if (why != MESH_END_OK) {
            call_list(mesh, call, INSTANCE_SELF, MESH_LIST_LOAD, 0);
            call->asked_ms = mesh->now_ms; /* R14: a model that turned out larger makes no more
                                              claims than others */
        }
        call_route_later(mesh, number);
    }
}
