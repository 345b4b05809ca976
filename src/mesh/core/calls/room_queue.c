/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls at their entry that find no room anywhere (R14). They are kept in order of first arrival
 * and released one by one, each routed before the next is considered, so a released call sees what
 * earlier ones have taken, and one free place goes to one call. Waiting calls have nothing out,
 * neither in etcd nor at another node.
 */
#include "mesh/core/calls/room_queue.h"
#include "base/check.h"
#include "mesh/core/models.h"
#include "mesh/core/calls/call.h"
#include "mesh/core/calls/refusal.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"

enum {
    TICK_MS = 1000,
    AGAIN_MS = 500,     /* a node that refused the call is not asked again before */
    ENDLESS_MS = 60000, /* maximum wait of a call without a deadline */
    DAY_MS = 86400000,  /* a deadline further away counts as none */
    LOOKS_MAX = 64,     /* failed placements per pass, except at ticks */
    TYPES_MAX = 8,
};

/* ---- the list ---- */

static uint32_t
next_of(struct mesh *mesh, uint32_t before)
{
    return before == CALL_NONE ? mesh->room_queue.first : call_at(mesh, before)->next;
}

/* Removes the element after `before`, which is CALL_NONE for the first. */
static void
take(struct mesh *mesh, uint32_t before)
{
    uint32_t number = next_of(mesh, before);
    CHECK(call_at(mesh, number)->state == CALL_QUEUED);
    uint32_t next = call_at(mesh, number)->next;
    if (before == CALL_NONE)
        mesh->room_queue.first = next;
    else
        call_at(mesh, before)->next = next;
    if (mesh->room_queue.last == number)
        mesh->room_queue.last = before;
}

/* A returning call gets its old place, which is near the front. */
static void
insert(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    uint32_t before = mesh->room_queue.last;
    if (before != CALL_NONE && call_at(mesh, before)->arrival > call->arrival) {
        before = CALL_NONE;
        while (call_at(mesh, next_of(mesh, before))->arrival < call->arrival)
            before = next_of(mesh, before);
    }
    call->next = next_of(mesh, before);
    if (before == CALL_NONE)
        mesh->room_queue.first = number;
    else
        call_at(mesh, before)->next = number;
    if (call->next == CALL_NONE)
        mesh->room_queue.last = number;
}

/* ---- the waiting calls ---- */

/* This node may serve the call later: it may load the model, now or when its runtime has come. A
 * copy whose runtime refused the call once counts, since the runtime may be ending (R12). */
static bool
may_serve_here(struct mesh *mesh, uint32_t model, const struct core_call *call)
{
    const struct core_entry *entry = entry_of(mesh, model_at(mesh, model));
    const struct pool *pool = pool_for(mesh, model_at(mesh, model));
    if (mesh->drain.active || !(pool->runtime || pool->rests || pool->return_ms > mesh->now_ms))
        return false;
    if (entry != NULL && entry->state == MESH_STATE_LOADED)
        return call != NULL && tried_is_refusal(call->tried, call->tried_count, INSTANCE_SELF);
    return entry == NULL || !entry->failed;
}

bool
room_queue_may_help(struct mesh *mesh, uint32_t model, const struct core_call *call)
{
    struct place_wish wish = ensure_wish(mesh, model);
    wish.not_self = !may_serve_here(mesh, model, call);
    if (call != NULL) {
        wish.tried = call->tried;
        wish.tried_count = call->tried_count;
        /* R12: once more, unless a deadline would come first */
        wish.refused = call->refused || call->deadline_ms - mesh->now_ms <= 3 * (int64_t)TICK_MS;
    }
    return place_may_have_room(&mesh->tables, &wish);
}

bool
room_queue_join(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    if (call->hop != MESH_HOP_ENTRY || call->overloads > 0 || call->gone ||
        !room_queue_may_help(mesh, call->model, call))
        return false;
    if (call->arrival == 0) {
        call->arrival = ++mesh->room_queue.arrivals;
        call->queued_ms = mesh->now_ms;
    }
    call_set(mesh, number, CALL_QUEUED);
    call->let_go = false;
    insert(mesh, number);
    return true;
}

void
room_queue_cancelled(struct mesh *mesh, uint32_t number)
{
    uint32_t before = CALL_NONE;
    while (next_of(mesh, before) != number) {
        CHECK(next_of(mesh, before) != CALL_NONE);
        before = next_of(mesh, before);
    }
    take(mesh, before);
}

void
room_queue_on_model(struct mesh *mesh, uint32_t model)
{
    uint32_t before = CALL_NONE;
    while (next_of(mesh, before) != CALL_NONE) {
        uint32_t number = next_of(mesh, before);
        struct core_call *call = call_at(mesh, number);
        if (call->model != model || call->tries >= MESH_TRIES_MAX) {
            before = number;
            continue;
        }
        take(mesh, before);
        call_route_later(mesh, number);
    }
}

/* ---- a look ---- */

struct room_queue_look {
    bool tick;
    uint32_t vain;
    uint32_t types[TYPES_MAX]; /* types for which the first call found no room */
    uint32_t type_count;
};

static bool
is_known_full(const struct room_queue_look *look, uint32_t type)
{
    for (uint32_t i = 0; i < look->type_count; i++)
        if (look->types[i] == type)
            return true;
    return false;
}

static bool
is_loading_here(struct mesh *mesh, const struct core_model *model)
{
    const struct core_entry *entry = entry_of(mesh, model);
    return entry != NULL && state_loads((enum mesh_state)entry->state) && !entry->doomed;
}

static bool
is_refused(const struct core_call *call)
{
    bool is_refused = false;
    for (uint32_t i = 0; i < call->tried_count; i++)
        is_refused |= tried_is_refusal(call->tried, call->tried_count, call->tried[i].instance);
    return is_refused;
}

static bool
may_go(struct mesh *mesh, struct room_queue_look *look, struct core_call *call)
{
    const struct core_model *model = model_at(mesh, call->model);
    if (!model->known)
        return true;
    if (mesh->mirror.session == 0 || mesh->tables.instances[INSTANCE_SELF].session == 0)
        return false; /* no claim is possible, which may pass */
    bool tried = call->tried_count > 0 || call->tries > 0;
    if (look->tick && tried && mesh->now_ms - call->asked_ms >= AGAIN_MS) {
        bool refused = is_refused(call);
        call_forget_tries(mesh, call);
        call->refused = refused; /* R12 */
        if (model_copies(&mesh->tables, model) > 0)
            return true;
    }
    if (call->tries >= MESH_TRIES_MAX)
        return false;
    if (is_loading_here(mesh, model))
        return true;
    if (is_known_full(look, model->type))
        return false;
    struct place_wish wish = call_place_wish(mesh, call);
    if (place_choose(&mesh->tables, &wish, &mesh->random) != NAME_NONE)
        return true;
    if (look->tick && !room_queue_may_help(mesh, call->model, call))
        return true; /* and gets the reason */
    look->vain++;
    if (call->tried_count == 0 && model->place_count == 0 && look->type_count < TYPES_MAX)
        look->types[look->type_count++] = model->type; /* later calls may not do more */
    return false;
}

static void
look_at_all(struct mesh *mesh, struct room_queue_look *look)
{
    uint64_t done = 0;
    uint32_t before = CALL_NONE;
    while (next_of(mesh, before) != CALL_NONE && (look->tick || look->vain < LOOKS_MAX)) {
        uint32_t number = next_of(mesh, before);
        struct core_call *call = call_at(mesh, number);
        if (call->arrival <= done || !may_go(mesh, look, call)) {
            before = number;
            continue;
        }
        done = call->arrival; /* it may come back at once */
        take(mesh, before);
        call_set(mesh, number, CALL_ROUTING);
        call->let_go = true;
        call_route(mesh, number);
    }
}

void
room_queue_look(struct mesh *mesh)
{
    if (mesh->room_queue.first == CALL_NONE)
        return;
    load_grow_up(mesh);
    if (!mesh->room_queue.due)
        return;
    mesh->room_queue.due = false;
    struct room_queue_look look = {0};
    look_at_all(mesh, &look);
}

/* Its deadline comes before the next tick. */
static bool
is_over(const struct mesh *mesh, const struct core_call *call)
{
    int64_t until_ms = call->deadline_ms - mesh->now_ms > DAY_MS ? call->queued_ms + ENDLESS_MS
                                                                 : call->deadline_ms;
    return until_ms - mesh->now_ms <= TICK_MS;
}

static void
end_waiting(struct mesh *mesh, uint32_t number)
{
    struct refusal refusal = refusal_after_waiting(mesh, call_at(mesh, number)->model);
    call_answer(mesh, number, refusal.end, refusal.text);
}

void
room_queue_tick(struct mesh *mesh)
{
    uint32_t before = CALL_NONE;
    while (next_of(mesh, before) != CALL_NONE) {
        uint32_t number = next_of(mesh, before);
        if (!is_over(mesh, call_at(mesh, number))) {
            before = number;
            continue;
        }
        take(mesh, before);
        end_waiting(mesh, number);
    }
    if (mesh->room_queue.first == CALL_NONE)
        return;
    load_grow_up(mesh);
    mesh->room_queue.due = false;
    struct room_queue_look look = {.tick = true};
    look_at_all(mesh, &look);
}
