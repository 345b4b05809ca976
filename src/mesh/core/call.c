/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call while this node answers it: rules R1 to R12, R14, R15. It is routed, waits here, is served
 * here, or is at another node; whatever comes back from there is an end or puts a name on one of
 * its lists, and it is routed again.
 */
#include "base/check.h"
#include "mesh/core/route.h"
#include "mesh/core/state.h"

enum {
    OVERLOADS_MAX = 2,
    SEATS_WAITING = 8,
    WAITING_MIN = 16,
};

static const char OVERLOADED_TEXT[] = "every copy of the model has too many calls";
static const char COPIES_TRIED_TEXT[] = "Failed to invoke model loaded in >=5 locations";
static const char LEAVING_TEXT[] =
    "Nowhere available to load: the nodes that may load the model drain, or have just gone";
static const char TRIES_TEXT[] = "8 retry iterations exhausted";
_Static_assert(MESH_COPIES_TRIED_MAX == 5 && MESH_TRIES_MAX == 8, "as the texts say");

static struct call *
call_at(struct mesh *mesh, uint32_t number)
{
    return &mesh->calls[number];
}

void
call_route_later(struct mesh *mesh, uint32_t number)
{
    struct call *call = call_at(mesh, number);
    call->state = CALL_ROUTING;
    call->next = CALL_NONE;
    if (mesh->routing == CALL_NONE)
        mesh->routing = number;
    else
        call_at(mesh, mesh->routing_last)->next = number;
    mesh->routing_last = number;
}

static void
finish(struct mesh *mesh, uint32_t number)
{
    struct call *call = call_at(mesh, number);
    uint32_t model = call->model;
    for (uint32_t i = 0; i < call->tried_count; i++)
        names_release(&mesh->tables.instance_names, call->tried[i].instance);
    call->tried_count = 0;
    mesh->asking -= call->state == CALL_ASKING;
    call->state = CALL_FREE;
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
    finish(mesh, number);
}

void
call_forget_tries(struct mesh *mesh, struct call *call)
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
}

/* R9. A list that is full ends the call at its next routing. */
void
call_list(struct mesh *mesh, struct call *call, uint32_t instance, enum mesh_list which,
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

/* There is no record of the model. Who sent the call here has one: it has gone since, if this
 * node's mirror is the later one; else it has not come yet. */
static enum mesh_end
unknown_end(const struct mesh *mesh, enum mesh_hop hop, uint64_t create_revision)
{
    return hop == MESH_HOP_ENTRY || create_revision <= mesh->seen ? MESH_END_NOT_FOUND
                                                                  : MESH_END_NOT_HERE;
}

/* ---- the three things that are done with a call ---- */

static void
serve(struct mesh *mesh, uint32_t number, struct entry *entry)
{
    struct call *call = call_at(mesh, number);
    call->state = CALL_SERVED;
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

static void
wait_in(struct mesh *mesh, uint32_t number, struct entry *entry)
{
    struct call *call = call_at(mesh, number);
    call->state = CALL_WAITING;
    call->entry = entry_number(mesh, entry);
    call->next = CALL_NONE;
    call->waits_ms = mesh->now_ms;
    if (entry->first_call == CALL_NONE)
        entry->first_call = number;
    else
        call_at(mesh, entry->last_call)->next = number;
    entry->last_call = number;
    entry->waiting++;
    heap_set(&mesh->deadlines, number, call->deadline_ms);
}

static void
wait(struct mesh *mesh, uint32_t number, struct entry *entry)
{
    wait_in(mesh, number, entry);
    load_touch(mesh, entry, mesh->wall_ms);
    load_lift(mesh, entry, MESH_CLASS_CALL);
}

static const struct mesh_tried *
tried_texts(struct mesh *mesh, const struct call *call)
{
    struct mesh_tried *tried =
        memory_arena_take(&mesh->arena, (call->tried_count + 1u) * sizeof(*tried));
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
    struct call *call = call_at(mesh, number);
    struct instance *instance = &mesh->tables.instances[there];
    names_keep(&mesh->tables.instance_names, there);
    instance->out++;
    instance->loads_out += hop == MESH_HOP_LOAD;
    instance->sent = ++mesh->sent;
    call->state = CALL_THERE;
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

struct place_wish
call_place_wish(struct mesh *mesh, const struct call *call)
{
    struct place_wish wish = ensure_wish(mesh, call->model);
    wish.tried = call->tried;
    wish.tried_count = call->tried_count;
    wish.again = call->overloads == 0;
    wish.not_self |= !load_may_begin(mesh, call->model); /* it knows better than its figures say */
    wish.churn_ms = 0;
    wish.patient = call->arrival != 0;
    return wish;
}

/* Nobody can do it, unless the call's vmodel has moved on; who has too many calls could, but not
 * now. */
static void
give_up(struct mesh *mesh, uint32_t number, enum mesh_end end, const char *text)
{
    if (once_turn_back(mesh, number) || follow_vmodel(mesh, number))
        return;
    if (call_at(mesh, number)->overloads > 0)
        call_answer(mesh, number, MESH_END_OVERLOADED, OVERLOADED_TEXT);
    else
        call_answer(mesh, number, end, text);
}

/* Why the model failed to load, where it did so last. */
static const char *
failure_text(struct mesh *mesh, const struct model *model)
{
    const struct place *places = model_places(model);
    const struct place *last = NULL;
    for (uint32_t i = 0; i < model->place_count; i++)
        if (places[i].kind == MESH_PLACE_FAILED && places[i].reason != NAME_NONE &&
            (last == NULL || places[i].since_ms > last->since_ms))
            last = &places[i];
    return last == NULL ? "the model failed to load"
                        : names_text(&mesh->tables.reasons, last->reason);
}

/* R5's end: three failures. */
static bool
has_failed(struct mesh *mesh, uint32_t number)
{
    const struct model *model = model_at(mesh, call_at(mesh, number)->model);
    if (model_fresh_failures(mesh, model) < MESH_FAILURES_MAX)
        return false;
    give_up(mesh, number, MESH_END_LOAD_FAILED, failure_text(mesh, model));
    return true;
}

/* Nobody is left who could load it now: the call waits (R14), unless nobody ever could: because it
 * fails to, if it does, whatever else there is. */
static void
give_up_loading(struct mesh *mesh, uint32_t number, const struct place_wish *wish)
{
    const struct model *model = model_at(mesh, call_at(mesh, number)->model);
    const struct entry *entry = entry_of(mesh, model);
    if (crowd_join(mesh, number))
        return;
    enum place_refusal refusal = place_refusal(&mesh->tables, wish);
    bool leaves = mesh->draining || place_is_leaving(&mesh->tables, wish); /* R18 */
    if (entry != NULL && entry->failed && entry->reason != NAME_NONE) {
        give_up(mesh, number, MESH_END_LOAD_FAILED,
                names_text(&mesh->tables.reasons, entry->reason)); /* no record says so yet */
        return;
    }
    if (refusal == PLACE_ALL_TRIED && model_fresh_failures(mesh, model) > 0)
        give_up(mesh, number, leaves ? MESH_END_UNAVAILABLE : MESH_END_LOAD_FAILED,
                failure_text(mesh, model));
    else if (leaves)
        give_up(mesh, number, MESH_END_UNAVAILABLE,
                refusal == PLACE_NO_LABELS ? ensure_refusal_text(mesh, wish, refusal)
                                           : LEAVING_TEXT);
    else
        give_up(mesh, number, MESH_END_FAILED, ensure_refusal_text(mesh, wish, refusal));
}

static uint32_t
copies_tried(const struct call *call)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->tried_count; i++)
        count += call->tried[i].list == MESH_LIST_HIT;
    return count;
}

/* A2: of the copies that the record shows, those that this call has tried in vain. */
static uint32_t
copies_in_vain(const struct mesh *mesh, const struct call *call, const struct model *model)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < call->tried_count; i++) {
        const struct tried *tried = &call->tried[i];
        const struct place *place =
            tried->list == MESH_LIST_HIT ? model_place(model, tried->instance) : NULL;
        count += place != NULL && place->since_ms == tried->since_ms &&
                 place_is_copy(&mesh->tables, place);
    }
    return count;
}

/* Here, for this call. False: it cannot be. */
static bool
load_here(struct mesh *mesh, uint32_t number)
{
    const struct call *call = call_at(mesh, number);
    struct model *model = model_at(mesh, call->model);
    uint32_t target = 1 + copies_in_vain(mesh, call, model);
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

/* R12: nobody else can load it, and what this node has is on its way out: it can, after that. */
static bool
wait_for_end(struct mesh *mesh, uint32_t number)
{
    const struct call *call = call_at(mesh, number);
    struct entry *entry = entry_of(mesh, model_at(mesh, call->model));
    if (entry == NULL || entry->state < MESH_STATE_WITHDRAWING || entry->failed || mesh->draining)
        return false;
    for (uint32_t i = 0; i < call->tried_count; i++)
        if (call->tried[i].instance == INSTANCE_SELF && call->tried[i].list != MESH_LIST_HIT)
            return false;
    wait_in(mesh, number, entry);
    return true;
}

/* R9, R14: it waits if loads were refused, or has found no room before. */
static void
give_up_trying(struct mesh *mesh, uint32_t number, const char *text)
{
    const struct call *call = call_at(mesh, number);
    bool refused = call->arrival != 0;
    for (uint32_t i = 0; i < call->tried_count; i++)
        refused |= call->tried[i].list == MESH_LIST_LOAD;
    if (!refused || !crowd_join(mesh, number))
        give_up(mesh, number, MESH_END_FAILED, text);
}

/* R5. Copies that have gone since were not out of reach: nobody had room for them. */
static void
give_up_copies(struct mesh *mesh, uint32_t number)
{
    const struct call *call = call_at(mesh, number);
    if (copies_in_vain(mesh, call, model_at(mesh, call->model)) < MESH_COPIES_TRIED_MAX)
        give_up_trying(mesh, number, COPIES_TRIED_TEXT);
    else
        give_up(mesh, number, MESH_END_FAILED, COPIES_TRIED_TEXT);
}

/* R5, R6: no copy anywhere that was not tried. */
static void
miss(struct mesh *mesh, uint32_t number)
{
    struct call *call = call_at(mesh, number);
    if (has_failed(mesh, number))
        return;
    if (copies_tried(call) >= MESH_COPIES_TRIED_MAX) {
        give_up_copies(mesh, number);
        return;
    }
    if (call->hop == MESH_HOP_LOAD) {
        bool stuck = pool_is_stuck(mesh, call->model); /* R17 */
        if ((stuck || !load_here(mesh, number)) && !wait_for_end(mesh, number))
            give_up(mesh, number, MESH_END_REFUSED, NULL);
        return;
    }
    bool alone = mesh->session == 0 || mesh->tables.instances[INSTANCE_SELF].session == 0;
    bool behind = mesh->crowd != CALL_NONE && !call->let_go && !alone;
    if (behind && crowd_join(mesh, number)) {
        mesh->crowd_due = true; /* R14: those that came before it go first */
        return;
    }
    struct place_wish wish = call_place_wish(mesh, call);
    uint32_t there = place_choose(&mesh->tables, &wish, &mesh->random);
    if (there == NAME_NONE && once_turn_back(mesh, number))
        return;
    if (there == NAME_NONE && alone) { /* this node's key is not there, or has not been seen yet */
        if (!load_here(mesh, number))  /* the claim waits for it */
            call_answer(mesh, number, MESH_END_UNAVAILABLE, "the registry cannot be written");
    } else if (there == NAME_NONE) {
        if ((pool_is_stuck(mesh, call->model) && load_here(mesh, number)) ||
            wait_for_end(mesh, number))
            return; /* R17: nobody else would load it */
        give_up_loading(mesh, number, &wish);
    } else if (there != INSTANCE_SELF) {
        mesh->tables.instances[there].pending_units += wish.units; /* P5 */
        forward(mesh, number, there, MESH_HOP_LOAD, 0);
    } else {
        CHECK(load_here(mesh, number));
    }
}

/* A copy here counts as tried, unless it was loaded after the call gave up on its load. */
static bool
self_is_listed(const struct call *call, const struct entry *entry)
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

/* The state of the model here, as far as the call may use it; NONE: not at all. */
static enum mesh_state
own_state(const struct call *call, const struct model *model, const struct entry *entry)
{
    if (entry == NULL || (state_loads(entry->state) && entry->doomed) ||
        (entry->state == MESH_STATE_WITHDRAWING && (entry->failed || !entry->resident)) ||
        entry->create_revision != model->create_revision || self_is_listed(call, entry))
        return MESH_STATE_NONE;
    return entry->state;
}

/* ---- S6: a model that takes so many calls at a time ---- */

static bool
has_seat(const struct entry *entry)
{
    return entry->concurrency == 0 || entry->in_flight < entry->concurrency;
}

static uint32_t
waiting_max(const struct mesh *mesh, const struct entry *entry)
{
    if (mesh->config.waiting_max != 0)
        return mesh->config.waiting_max;
    uint32_t most = SEATS_WAITING * entry->concurrency;
    return most > WAITING_MIN ? most : WAITING_MIN;
}

/* R11 */
static void
turn_away(struct mesh *mesh, uint32_t number, const struct entry *entry)
{
    struct call *call = call_at(mesh, number);
    call_list(mesh, call, INSTANCE_SELF, MESH_LIST_HIT, entry->since_ms);
    call->overloads++;
    if (call->overloads >= OVERLOADS_MAX || call->hop == MESH_HOP_HIT)
        call_answer(mesh, number, MESH_END_OVERLOADED, OVERLOADED_TEXT);
    else
        call_route_later(mesh, number);
}

static void
serve_or_wait(struct mesh *mesh, uint32_t number, struct entry *entry)
{
    if (has_seat(entry)) {
        serve(mesh, number, entry);
        return;
    }
    load_touch(mesh, entry, mesh->wall_ms);
    if (entry->waiting < waiting_max(mesh, entry))
        wait_in(mesh, number, entry);
    else
        turn_away(mesh, number, entry);
}

static void
use_own(struct mesh *mesh, uint32_t number, struct entry *entry, enum mesh_state state)
{
    if (state_serves(state))
        serve_or_wait(mesh, number, entry);
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
    struct call *call = call_at(mesh, number);
    struct model *model = model_at(mesh, call->model);
    if (call->once)
        once_pass_over(mesh, call);
    struct entry *entry = entry_of(mesh, model);
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
        use_own(mesh, number, entry, state); /* a copy that no record shows is one, too */
}

void
call_route(struct mesh *mesh, uint32_t number)
{
    struct call *call = call_at(mesh, number);
    const struct model *model = model_at(mesh, call->model);
    if (call->deadline_ms <= mesh->now_ms)
        call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    else if (!model->known)
        give_up(mesh, number, unknown_end(mesh, call->hop, call->create_revision),
                "model not found");
    else if (call->create_revision > model->create_revision && !lost_lately(mesh)) /* R7 */
        call_answer(mesh, number, MESH_END_NOT_HERE, NULL);
    else if (call->tries++ >= MESH_TRIES_MAX)
        give_up_trying(mesh, number, TRIES_TEXT);
    else
        route_known(mesh, number);
}

/* ---- events ---- */

static void
read_tried(struct mesh *mesh, struct call *call, const struct mesh_event *event)
{
    for (uint32_t i = 0; i < event->call.tried_count && i < MESH_TRIED_MAX; i++) {
        const struct mesh_tried *tried = &event->call.tried[i];
        uint32_t instance = tables_instance(&mesh->tables, tried->instance);
        if (instance != NAME_NONE) /* nobody we know: nobody we would try */
            call_list(mesh, call, instance, tried->list, tried->since_ms);
    }
}

/* The call's model, and the vmodel that it has it from (V7). NAME_NONE: nothing is known of it. */
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
    memory_grow((void **)&mesh->calls, &mesh->call_capacity, number + 1, sizeof(*mesh->calls));
    struct call *call = call_at(mesh, number);
    CHECK(call->state == CALL_FREE);
    uint32_t vmodel = NAME_NONE;
    uint32_t model = model_of(mesh, event, &vmodel);
    bool unknown = model == NAME_NONE || (vmodel == NAME_NONE && !model_at(mesh, model)->known);
    if (mesh->whole && unknown && unknown_ask(mesh, event)) {
        if (call->state == CALL_ASKING)
            read_tried(mesh, call, event);
        return;
    }
    if (!mesh->whole || model == NAME_NONE) {
        bool named = event->call.vmodel != NULL;
        struct mesh_action *action = act(mesh, MESH_DO_ANSWER);
        action->answer.call = number;
        action->answer.end = mesh->whole
                                 ? unknown_end(mesh, event->call.hop, event->call.create_revision)
                                 : MESH_END_UNAVAILABLE;
        action->answer.text = !mesh->whole ? "the registry is being read"
                              : named      ? "vmodel not found"
                                           : "model not found";
        return;
    }
    names_keep(&mesh->tables.model_names, model);
    if (vmodel != NAME_NONE)
        names_keep(&mesh->vmodels.names, vmodel);
    *call = (struct call){
        .deadline_ms = event->call.deadline_ms,
        .create_revision = event->call.create_revision,
        .model = model,
        .vmodel = vmodel,
        .number = call->number,
        .hop = (uint8_t)event->call.hop,
        .balance = (uint8_t)event->call.balance,
        .once = event->call.once,
    };
    read_tried(mesh, call, event);
    call_route_later(mesh, number);
}

void
call_stop_waiting(struct mesh *mesh, uint32_t number)
{
    struct entry *entry = &mesh->entries[call_at(mesh, number)->entry];
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
    entry->waiting--;
    heap_remove(&mesh->deadlines, number);
}

/* Serves the calls that have waited longest, as many as there are seats. */
static void
serve_waiting(struct mesh *mesh, struct entry *entry)
{
    while (entry->first_call != CALL_NONE && has_seat(entry)) {
        uint32_t number = entry->first_call;
        call_stop_waiting(mesh, number);
        if (call_at(mesh, number)->deadline_ms > mesh->now_ms)
            serve(mesh, number, entry);
        else
            call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    }
}

static void
return_from(struct mesh *mesh, const struct call *call)
{
    if (call->state == CALL_SERVED) {
        struct entry *entry = &mesh->entries[call->entry];
        CHECK(entry->in_flight > 0);
        entry->in_flight--;
        if (entry->state == MESH_STATE_EMPTYING)
            settle_later(mesh, entry->model);
        if (entry_serves(entry))
            serve_waiting(mesh, entry);
    } else {
        struct instance *there = &mesh->tables.instances[call->there];
        there->out--;
        there->loads_out -= call->there_hop == MESH_HOP_LOAD;
        mesh->crowd_due |= call->there_hop == MESH_HOP_LOAD;
        names_release(&mesh->tables.instance_names, call->there);
    }
}

void
call_on_cancelled(struct mesh *mesh, uint32_t number)
{
    if (number >= mesh->call_capacity || call_at(mesh, number)->state == CALL_FREE)
        return; /* it has just been answered */
    struct call *call = call_at(mesh, number);
    if (call->state == CALL_WAITING)
        call_stop_waiting(mesh, number);
    else if (call->state == CALL_PARKED)
        follow_cancelled(mesh, number);
    else if (call->state == CALL_CROWDED)
        crowd_cancelled(mesh, number);
    else if (call->state == CALL_ASKING)
        unknown_cancelled(mesh, number);
    else
        return_from(mesh, call);
    finish(mesh, number);
}

/* Notes the reason of a try that did not answer the call. */
static void
learn(struct mesh *mesh, struct call *call, const struct mesh_event *event)
{
    bool served = call->state == CALL_SERVED;
    uint32_t instance = served ? INSTANCE_SELF : call->there;
    enum mesh_list which =
        !served && call->there_hop == MESH_HOP_LOAD ? MESH_LIST_LOAD : MESH_LIST_HIT;
    int64_t since_ms = served ? mesh->entries[call->entry].since_ms : call->there_since_ms;
    call_list(mesh, call, instance, which, since_ms);
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
    struct entry *entry = &mesh->entries[call->entry]; /* the runtime has forgotten it */
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
    if (number >= mesh->call_capacity)
        return;
    struct call *call = call_at(mesh, number);
    if ((call->state != CALL_SERVED && call->state != CALL_THERE) ||
        call->number != event->tried.number)
        return; /* I6: it is over, or this was another try */
    if (call->state == CALL_SERVED && event->tried.end == MESH_END_OK && event->tried.took_us > 0)
        copies_time(&mesh->entries[call->entry], 1, event->tried.took_us);
    if (event->tried.end != MESH_END_OK && event->tried.end != MESH_END_DEADLINE)
        learn(mesh, call, event);
    return_from(mesh, call);
    if (event->tried.end == MESH_END_OK || event->tried.answered)
        finish(mesh, number);
    else if (event->tried.end == MESH_END_DEADLINE)
        call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    else if (call->overloads >= OVERLOADS_MAX) /* R11 */
        call_answer(mesh, number, MESH_END_OVERLOADED, OVERLOADED_TEXT);
    else if (call->hop == MESH_HOP_HIT)
        call_answer(mesh, number, event->tried.end, NULL);
    else {
        if (call->gone && call->vmodel != NAME_NONE)
            (void)follow_turn(mesh, call);
        call_route_later(mesh, number);
    }
}

void
calls_serve(struct mesh *mesh, struct entry *entry)
{
    serve_waiting(mesh, entry);
    uint32_t count = entry->waiting;
    uint32_t most = waiting_max(mesh, entry);
    for (uint32_t i = 0; count > most && i < count; i++) { /* more than may wait for a seat */
        uint32_t number = entry->first_call;
        call_stop_waiting(mesh, number);
        if (i < most)
            wait_in(mesh, number, entry);
        else
            turn_away(mesh, number, entry);
    }
}

void
calls_reroute(struct mesh *mesh, struct entry *entry, enum mesh_end why)
{
    while (entry->first_call != CALL_NONE) {
        uint32_t number = entry->first_call;
        struct call *call = call_at(mesh, number);
        call_stop_waiting(mesh, number);
        if (why != MESH_END_OK && call->hop != MESH_HOP_ENTRY) {
            call_answer(mesh, number, why, NULL);
            continue;
        }
        if (why != MESH_END_OK) {
            call_list(mesh, call, INSTANCE_SELF, MESH_LIST_LOAD, 0);
            call->asked_ms = mesh->now_ms; /* R14: what is larger than was thought claims no more
                                              than others do */
        }
        call_route_later(mesh, number);
    }
}

/* R16. Those that wait stand in the order in which they came. */
static void
end_vain_waits(struct mesh *mesh, const struct entry *entry)
{
    while (entry->first_call != CALL_NONE) {
        uint32_t number = entry->first_call;
        if (mesh->now_ms - call_at(mesh, number)->waits_ms <= CLAIM_MS_MAX)
            return;
        call_stop_waiting(mesh, number);
        call_answer(mesh, number, MESH_END_UNAVAILABLE, "the registry cannot be written");
    }
}

void
call_tick(struct mesh *mesh)
{
    while (heap_first_key(&mesh->deadlines) <= mesh->now_ms) {
        uint32_t number = heap_first(&mesh->deadlines);
        call_stop_waiting(mesh, number);
        call_answer(mesh, number, MESH_END_DEADLINE, NULL);
    }
    follow_tick(mesh);
    crowd_tick(mesh);
    for (uint32_t i = 0; mesh->session == 0 && i < mesh->entry_used; i++)
        if (mesh->entries[i].state == MESH_STATE_CLAIMING)
            end_vain_waits(mesh, &mesh->entries[i]);
}
