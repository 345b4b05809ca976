/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call while this node answers it: rules R1 to R12, R14, R15. It is routed and then waits here,
 * is served here, or is at another node. The result is the end of the call, or puts an instance on
 * one of its lists and the call is routed again.
 */
#include "mesh/core/calls/call.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/calls/refusal.h"
#include "mesh/core/calls/room_queue.h"
#include "mesh/core/calls/elsewhere.h"
#include "mesh/core/calls/vmodel_route.h"
#include "mesh/core/calls/non_retryable.h"
#include "mesh/core/calls/route.h"
#include "mesh/core/calls/unknown.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/copies.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/load_times.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"

static const char COPIES_TRIED_TEXT[] = "Failed to invoke model loaded in >=5 locations";
static const char TRIES_TEXT[] = "8 retry iterations exhausted";
_Static_assert(MESH_COPIES_TRIED_MAX == 5 && MESH_TRIES_MAX == 8, "as the texts say");

/* The model has no record here. The sender of a hop has one: it has been deleted since if this
 * node's mirror is newer; otherwise it has not arrived yet. */
static enum mesh_end
unknown_end(const struct mesh *mesh, enum mesh_hop hop, uint64_t create_revision)
{
    return hop == MESH_HOP_ENTRY || create_revision <= mesh->mirror.seen ? MESH_END_NOT_FOUND
                                                                         : MESH_END_NOT_HERE;
}

/* ---- the three things that are done with a call ---- */

static void
wait(struct mesh *mesh, uint32_t number, struct core_entry *entry)
{
    calls_wait(mesh, number, entry);
    load_touch(mesh, entry, mesh->wall_ms);
    load_lift(mesh, entry, MESH_CLASS_CALL);
}

static const struct mesh_tried *
tried_texts(struct mesh *mesh, const struct core_call *call)
{
    struct mesh_tried *tried =
        bump_take(&mesh->actions.arena, (call->tried_count + 1u) * sizeof(*tried));
    for (uint32_t i = 0; i < call->tried_count; i++)
        tried[i] = (struct mesh_tried){
            .instance = names_text(&mesh->tables.instance_names, call->tried[i].instance),
            .since_ms = call->tried[i].since_ms,
            .list = (enum mesh_list)call->tried[i].list,
        };
    return tried;
}

static void
forward(struct mesh *mesh, uint32_t number, uint32_t there, enum mesh_hop hop, int64_t since_ms)
{
    struct core_call *call = call_at(mesh, number);
    struct instance *instance = &mesh->tables.instances[there];
    CHECK(there != INSTANCE_SELF);
    CHECK(call->hop == MESH_HOP_ENTRY || (call->hop == MESH_HOP_LOAD && hop == MESH_HOP_HIT));
    names_keep(&mesh->tables.instance_names, there);
    instance->out++;
    instance->loads_out += hop == MESH_HOP_LOAD;
    instance->sent = ++mesh->calls.sent;
    call_set(mesh, number, CALL_THERE);
    call->there = (uint16_t)there;
    call->there_hop = (uint8_t)hop;
    call->there_since_ms = since_ms;
    if (hop == MESH_HOP_LOAD)
        call->asked_ms = mesh->now_ms;
    struct mesh_action *action = act(mesh, MESH_DO_FORWARD);
    action->attempt.call = number;
    action->attempt.number = ++call->number;
    action->attempt.model = names_text(&mesh->tables.model_names, call->model);
    action->attempt.create_revision = model_at(mesh, call->model)->create_revision;
    action->attempt.instance = names_text(&mesh->tables.instance_names, there);
    action->attempt.hop = hop;
    action->attempt.deadline_ms = call->deadline_ms - HOP_MS; /* R10 */
    action->attempt.tried = tried_texts(mesh, call);
    action->attempt.tried_count = call->tried_count;
}

/* ---- routing ---- */

/* No node can serve or load, unless the call's vmodel has moved on. Overloaded copies could, but
 * not now. */
static void
give_up(struct mesh *mesh, uint32_t number, enum mesh_end end, const char *text)
{
    if (non_retryable_turn_back(mesh, number) || vmodel_route_call(mesh, number))
        return;
    if (call_at(mesh, number)->overloads > 0)
        call_answer_overloaded(mesh, number);
    else
        call_answer(mesh, number, end, text);
}

/* R5: three failures. */
static bool
has_failed(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, call_at(mesh, number)->model);
    if (model_fresh_failures(mesh, model) < MESH_FAILURES_MAX)
        return false;
    give_up(mesh, number, MESH_END_LOAD_FAILED, refusal_failure_text(mesh, model));
    return true;
}

/* No node is left that could load it now: the call waits for room (R14) unless that cannot help; a
 * failed load is then the reason given. */
static void
give_up_loading(struct mesh *mesh, uint32_t number, const struct place_wish *wish)
{
    if (room_queue_join(mesh, number))
        return;
    struct refusal refusal = refusal_at_once(mesh, wish);
    give_up(mesh, number, refusal.end, refusal.text);
}

static uint32_t
copies_tried(const struct core_call *call)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->tried_count; i++)
        count += call->tried[i].list == MESH_LIST_HIT;
    return count;
}

/* A2: copies in the record that this call has tried without success. */
static uint32_t
copies_failed(const struct mesh *mesh, const struct core_call *call, const struct core_model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->tried_count; i++) {
        const struct tried *tried = &call->tried[i];
        const struct core_place *place =
            tried->list == MESH_LIST_HIT ? model_place(model, tried->instance) : NULL;
        count += place != NULL && place->since_ms == tried->since_ms &&
                 place_is_copy(&mesh->tables, place);
    }
    return count;
}

/* Loads the model here for this call. False: impossible. */
static bool
load_here(struct mesh *mesh, uint32_t number)
{
    const struct core_call *call = call_at(mesh, number);
    struct core_model *model = model_at(mesh, call->model);
    uint32_t target = 1 + copies_failed(mesh, call, model);
    const struct load_wish wish = {
        .model = call->model,
        .used_ms = mesh->wall_ms,
        .class = MESH_CLASS_CALL,
        .target = target < MESH_COPIES_TRIED_MAX ? target : MESH_COPIES_TRIED_MAX,
    };
    if (load_begin(mesh, &wish) != LOAD_BEGUN)
        return false;
    wait(mesh, number, entry_of(mesh, model));
    return true;
}

/* R12: no other node can load it and this node's entry is on its way out: wait for its end. */
static bool
wait_for_end(struct mesh *mesh, uint32_t number)
{
    const struct core_call *call = call_at(mesh, number);
    struct core_entry *entry = entry_of(mesh, model_at(mesh, call->model));
    if (entry == NULL || entry->state < MESH_STATE_WITHDRAWING || entry->failed ||
        mesh->drain.active)
        return false;
    for (uint32_t i = 0; i < call->tried_count; i++)
        if (call->tried[i].instance == INSTANCE_SELF && call->tried[i].list != MESH_LIST_HIT)
            return false;
    calls_wait(mesh, number, entry);
    return true;
}

/* R9, R14: waits for room if a load was refused or the call has waited before. */
static void
give_up_trying(struct mesh *mesh, uint32_t number, const char *text)
{
    const struct core_call *call = call_at(mesh, number);
    bool refused = call->arrival != 0;
    for (uint32_t i = 0; i < call->tried_count; i++)
        refused |= call->tried[i].list == MESH_LIST_LOAD;
    if (!refused || !room_queue_join(mesh, number))
        give_up(mesh, number, MESH_END_FAILED, text);
}

/* R5. Copies that have gone since were not unreachable: their nodes had no room. */
static void
give_up_copies(struct mesh *mesh, uint32_t number)
{
    const struct core_call *call = call_at(mesh, number);
    if (copies_failed(mesh, call, model_at(mesh, call->model)) < MESH_COPIES_TRIED_MAX)
        give_up_trying(mesh, number, COPIES_TRIED_TEXT);
    else
        give_up(mesh, number, MESH_END_FAILED, COPIES_TRIED_TEXT);
}

/* This node's copy counts as tried unless it was loaded after the call gave up on its load. */
static bool
self_is_listed(const struct core_call *call, const struct core_entry *entry)
{
    for (uint32_t i = 0; i < call->tried_count; i++) {
        const struct tried *tried = &call->tried[i];
        if (tried->instance == INSTANCE_SELF &&
            (tried->list == MESH_LIST_FIXED ||
             (tried->list == MESH_LIST_HIT && tried->since_ms == entry->since_ms &&
              !(tried->left && entry_serves(entry)))))
            return true;
    }
    return false;
}

/* R12: the copy that this call has tried is here to stay. */
static bool
keeps_tried_copy(struct mesh *mesh, const struct core_call *call)
{
    const struct core_entry *entry = entry_of(mesh, model_at(mesh, call->model));
    return entry != NULL && entry->state == MESH_STATE_LOADED && self_is_listed(call, entry);
}

/* R5, R6: no copy is left to try. */
static void
miss(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    if (has_failed(mesh, number))
        return;
    if (copies_tried(call) >= MESH_COPIES_TRIED_MAX) {
        give_up_copies(mesh, number);
        return;
    }
    if (call->hop == MESH_HOP_LOAD) {
        bool stuck = pool_is_stuck(mesh, call->model); /* R17 */
        if ((stuck || !load_here(mesh, number)) && !wait_for_end(mesh, number))
            give_up(mesh, number, keeps_tried_copy(mesh, call) ? MESH_END_FAILED : MESH_END_REFUSED,
                    NULL);
        return;
    }
    bool alone = mesh->mirror.session == 0 || mesh->tables.instances[INSTANCE_SELF].session == 0;
    bool behind = mesh->room_queue.first != CALL_NONE && !call->let_go && !alone;
    if (behind && room_queue_join(mesh, number)) {
        mesh->room_queue.due = true; /* R14: earlier calls go first */
        return;
    }
    struct place_wish wish = call_place_wish(mesh, call);
    uint32_t there = place_choose(&mesh->tables, &wish, &mesh->random);
    if (there == NAME_NONE && non_retryable_turn_back(mesh, number))
        return;
    if (there == NAME_NONE && alone) { /* this node's key is absent or not seen yet */
        if (!load_here(mesh, number))  /* the claim waits for it */
            call_answer(mesh, number, MESH_END_UNAVAILABLE, REGISTRY_AWAY_TEXT);
    } else if (there == NAME_NONE) {
        if ((pool_is_stuck(mesh, call->model) && load_here(mesh, number)) ||
            wait_for_end(mesh, number))
            return; /* R17: no other node would load it */
        give_up_loading(mesh, number, &wish);
    } else if (there != INSTANCE_SELF) {
        mesh->tables.instances[there].pending_units += wish.units; /* P5 */
        forward(mesh, number, there, MESH_HOP_LOAD, 0);
    } else {
        CHECK(load_here(mesh, number));
    }
}

/* The state of this node's entry as far as the call may use it; NONE: not at all. */
static enum mesh_state
own_state(const struct core_call *call, const struct core_model *model,
          const struct core_entry *entry)
{
    if (entry == NULL || (state_loads(entry->state) && entry->doomed) ||
        (entry->state == MESH_STATE_WITHDRAWING && (entry->failed || !entry->resident)) ||
        entry->create_revision != model->create_revision || self_is_listed(call, entry))
        return MESH_STATE_NONE;
    return entry->state;
}

static void
use_own(struct mesh *mesh, uint32_t number, struct core_entry *entry, enum mesh_state state)
{
    if (state_serves(state))
        calls_serve_or_wait(mesh, number, entry);
    else if (state_loads(state))
        wait(mesh, number, entry);
    else if (call_at(mesh, number)->hop == MESH_HOP_HIT)
        call_answer(mesh, number, MESH_END_NOT_HERE, NULL); /* R8 */
    else
        miss(mesh, number);
}

static void
route_known(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    struct core_model *model = model_at(mesh, call->model);
    if (call->non_retryable)
        non_retryable_pass_over(mesh, call);
    struct core_entry *entry = entry_of(mesh, model);
    enum mesh_state state = own_state(call, model, entry);
    if (call->hop == MESH_HOP_HIT) {
        use_own(mesh, number, entry, state);
        return;
    }
    const struct route_wish wish = {
        .model = model,
        .tried = call->tried,
        .tried_count = call->tried_count,
        .now_ms = mesh->now_ms,
        .wall_ms = mesh->wall_ms,
        .assumed_ms = load_assumed_ms(mesh),
        .state = state,
        .in_flight = entry != NULL ? entry->in_flight + entry->waiting : 0,
        .prefer_self = (call->balance == MESH_BALANCE_CALLER || call->hop != MESH_HOP_ENTRY) &&
                       (entry == NULL || entry->concurrency == 0),
    };
    struct route route = route_choose(&mesh->tables, &wish);
    if (route.kind == ROUTE_THERE)
        forward(mesh, number, route.instance, MESH_HOP_HIT, route.since_ms);
    else
        use_own(mesh, number, entry, state); /* may be a copy that no record shows */
}

void
call_route(struct mesh *mesh, uint32_t number)
{
    struct core_call *call = call_at(mesh, number);
    CHECK(call->state == CALL_ROUTING);
    const struct core_model *model = model_at(mesh, call->model);
    if (call->deadline_ms <= mesh->now_ms)
        call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    else if (!model->known)
        give_up(mesh, number, unknown_end(mesh, call->hop, call->create_revision),
                "model not found");
    else if (call->create_revision > model->create_revision && !rebuild_lately(mesh)) /* R7 */
        call_answer(mesh, number, MESH_END_NOT_HERE, NULL);
    else if (call->tries >= MESH_TRIES_MAX)
        give_up_trying(mesh, number, TRIES_TEXT);
    else {
        call->tries++;
        route_known(mesh, number);
    }
}

/* ---- events ---- */

static void
read_tried(struct mesh *mesh, struct core_call *call, const struct mesh_event *event)
{
    for (uint32_t i = 0; i < event->call.tried_count && i < MESH_TRIED_MAX; i++) {
        const struct mesh_tried *tried = &event->call.tried[i];
        uint32_t instance = tables_instance(&mesh->tables, tried->instance);
        if (instance != NAME_NONE) /* unknown instances would not be tried */
            call_list(mesh, call, instance, tried->list, tried->since_ms);
    }
}

/* The call's model, and the vmodel that named it (V7). NAME_NONE: unknown. */
static uint32_t
model_of(const struct mesh *mesh, const struct mesh_event *event, uint32_t *vmodel)
{
    if (event->call.vmodel == NULL)
        return tables_model(&mesh->tables, event->call.model);
    *vmodel = names_find(&mesh->vmodels.names, event->call.vmodel);
    return *vmodel == NAME_NONE ? NAME_NONE : vmodel_model(&mesh->vmodels.at[*vmodel]);
}

void
call_on_call(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = event->call.call;
    CHECK(number < mesh->config.calls_max);
    scratch_grow((void **)&mesh->calls.at, &mesh->calls.capacity, number + 1,
                 sizeof(*mesh->calls.at));
    struct core_call *call = call_at(mesh, number);
    CHECK(call->state == CALL_FREE);
    uint32_t vmodel = NAME_NONE;
    uint32_t model = model_of(mesh, event, &vmodel);
    bool unknown = model == NAME_NONE || (vmodel == NAME_NONE && !model_at(mesh, model)->known);
    if (mesh->mirror.whole && unknown && unknown_ask(mesh, event)) {
        if (call->state == CALL_ASKING)
            read_tried(mesh, call, event);
        return;
    }
    if (!mesh->mirror.whole || model == NAME_NONE) {
        bool named = event->call.vmodel != NULL;
        struct mesh_action *action = act(mesh, MESH_DO_ANSWER);
        action->answer.call = number;
        action->answer.end = mesh->mirror.whole
                                 ? unknown_end(mesh, event->call.hop, event->call.create_revision)
                                 : MESH_END_UNAVAILABLE;
        action->answer.text = !mesh->mirror.whole ? "the registry has not been read yet"
                              : named             ? "vmodel not found"
                                                  : "model not found";
        return;
    }
    names_keep(&mesh->tables.model_names, model);
    if (vmodel != NAME_NONE)
        names_keep(&mesh->vmodels.names, vmodel);
    *call = (struct core_call){
        .deadline_ms = event->call.deadline_ms,
        .create_revision = event->call.create_revision,
        .model = model,
        .vmodel = vmodel,
        .number = call->number,
        .hop = (uint8_t)event->call.hop,
        .balance = (uint8_t)event->call.balance,
        .non_retryable = event->call.non_retryable,
    };
    read_tried(mesh, call, event);
    call_route_later(mesh, number);
}

static void
return_from(struct mesh *mesh, const struct core_call *call)
{
    if (call->state == CALL_SERVED) {
        struct core_entry *entry = &mesh->entries.at[call->entry];
        CHECK(entry->in_flight > 0);
        entry->in_flight--;
        if (entry->state == MESH_STATE_EMPTYING)
            reconcile_later(mesh, entry->model);
        if (entry_serves(entry))
            calls_serve_waiting(mesh, entry);
    } else {
        CHECK(call->state == CALL_THERE);
        struct instance *there = &mesh->tables.instances[call->there];
        CHECK(there->out > 0 && (call->there_hop != MESH_HOP_LOAD || there->loads_out > 0));
        there->out--;
        there->loads_out -= call->there_hop == MESH_HOP_LOAD;
        mesh->room_queue.due |= call->there_hop == MESH_HOP_LOAD;
        names_release(&mesh->tables.instance_names, call->there);
    }
}

void
call_on_cancelled(struct mesh *mesh, uint32_t number)
{
    if (number >= mesh->calls.capacity || call_at(mesh, number)->state == CALL_FREE)
        return; /* it has just been answered */
    struct core_call *call = call_at(mesh, number);
    if (call->state == CALL_WAITING)
        call_stop_waiting(mesh, number);
    else if (call->state == CALL_PARKED)
        vmodel_route_cancelled(mesh, number);
    else if (call->state == CALL_QUEUED)
        room_queue_cancelled(mesh, number);
    else if (call->state == CALL_ASKING)
        unknown_cancelled(mesh, number);
    else
        return_from(mesh, call);
    call_finish(mesh, number);
}

/* R12: as in `struct tried`. */
static bool
is_reported(bool served, enum mesh_list which, const struct mesh_event *event)
{
    if (served)
        return event->tried.end == MESH_END_UNREACHABLE;
    return which == MESH_LIST_HIT ? event->tried.reported : event->tried.end == MESH_END_FAILED;
}

/* Notes the result of a try that did not answer the call. */
static void
learn(struct mesh *mesh, struct core_call *call, const struct mesh_event *event)
{
    bool served = call->state == CALL_SERVED;
    uint32_t instance = served ? INSTANCE_SELF : call->there;
    enum mesh_list which =
        !served && call->there_hop == MESH_HOP_LOAD ? MESH_LIST_LOAD : MESH_LIST_HIT;
    int64_t since_ms = served ? mesh->entries.at[call->entry].since_ms : call->there_since_ms;
    uint8_t count = call->tried_count;
    call_list(mesh, call, instance, which, since_ms);
    if (call->tried_count > count) /* R12 */
        call->tried[count].reported = is_reported(served, which, event);
    if (served)
        call->asked_ms = mesh->now_ms; /* R12: when it is tried again, this node knows more */
    if (event->tried.end == MESH_END_NOT_HERE && which == MESH_LIST_LOAD)
        elsewhere_learn(mesh, call, instance);
    if (event->tried.end == MESH_END_UNREACHABLE && !served) {
        mesh->tables.instances[instance].unreachable_until_ms = mesh->now_ms + UNREACHABLE_MS;
        if (which == MESH_LIST_HIT)
            call_list(mesh, call, instance, MESH_LIST_LOAD, 0);
    }
    if (event->tried.end == MESH_END_REFUSED && !served)
        mesh->tables.instances[instance].refused_until_ms = mesh->now_ms + REFUSED_MS;
    call->overloads += event->tried.end == MESH_END_OVERLOADED;
    call->gone |= event->tried.end == MESH_END_NOT_FOUND;
    if (!served || !event->tried.vanished)
        return;
    struct core_entry *entry =
        &mesh->entries.at[call->entry]; /* the runtime has forgotten the model */
    if (!entry_serves(entry))
        return;
    pool_of(mesh, entry)->ledger.resident -= entry->units;
    entry->resident = false;
    if (entry->state == MESH_STATE_LOADED)
        entry_leave(mesh, entry);
    else
        calls_reroute(mesh, entry, MESH_END_OK);
}

void
call_on_try(struct mesh *mesh, const struct mesh_event *event)
{
    uint32_t number = event->tried.call;
    if (number >= mesh->calls.capacity)
        return;
    struct core_call *call = call_at(mesh, number);
    if ((call->state != CALL_SERVED && call->state != CALL_THERE) ||
        call->number != event->tried.number)
        return; /* I6: the call is over, or this was another try */
    if (call->state == CALL_SERVED && event->tried.end == MESH_END_OK && event->tried.took_us > 0)
        copies_time(&mesh->entries.at[call->entry], 1, event->tried.took_us);
    if (event->tried.end != MESH_END_OK && event->tried.end != MESH_END_DEADLINE)
        learn(mesh, call, event);
    return_from(mesh, call);
    if (event->tried.end == MESH_END_OK || event->tried.answered)
        call_finish(mesh, number);
    else if (event->tried.end == MESH_END_DEADLINE)
        call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    else if (call->overloads >= CALL_OVERLOADS_MAX) /* R11 */
        call_answer_overloaded(mesh, number);
    else if (call->hop == MESH_HOP_HIT)
        call_answer(mesh, number, event->tried.end, NULL);
    else {
        if (call->gone && call->vmodel != NAME_NONE)
            (void)vmodel_route_turn(mesh, call);
        call_route_later(mesh, number);
    }
}

/* R16. Waiting calls are in order of arrival. */
static void
end_futile_waits(struct mesh *mesh, const struct core_entry *entry)
{
    while (entry->first_call != CALL_NONE) {
        uint32_t number = entry->first_call;
        if (mesh->now_ms - call_at(mesh, number)->waits_ms <= CLAIM_MS_MAX)
            return;
        call_stop_waiting(mesh, number);
        call_answer(mesh, number, MESH_END_UNAVAILABLE, REGISTRY_AWAY_TEXT);
    }
}

void
call_tick(struct mesh *mesh)
{
    while (heap_first_key(&mesh->calls.deadlines) <= mesh->now_ms) {
        uint32_t number = heap_first(&mesh->calls.deadlines);
        call_stop_waiting(mesh, number);
        call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    }
    vmodel_route_tick(mesh);
    room_queue_tick(mesh);
    for (uint32_t i = 0; mesh->mirror.session == 0 && i < mesh->entries.used; i++)
        if (mesh->entries.at[i].state == MESH_STATE_CLAIMING)
            end_futile_waits(mesh, &mesh->entries.at[i]);
}
