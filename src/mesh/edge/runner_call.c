/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls between their owners and the core. A call's `state` says where it is: with the core
 * (waiting), a runtime, a peer, or left by its caller while a runtime still works on it.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/runner_inside.h"

static struct runner_figures
figures(struct mesh_runner *runner, const char *model)
{
    return (struct runner_figures){.figures = mesh_figures_for(runner->mesh, model),
                                   .start_ms = runner->start_ms};
}

static struct runner_call *
call_at(const struct mesh_runner *runner, uint32_t number)
{
    struct runner_call *call = id_table_at(&runner->calls, number);
    CHECK(call != NULL);
    return call;
}

/* Allowed transitions: the table in DESIGN.md. */
#define TO(state) (1u << CALL_##state)
static const uint32_t EDGES[] = {
    [CALL_OVER] = TO(WAITING),
    [CALL_WAITING] = TO(SERVED) | TO(FORWARDED) | TO(OVER),
    [CALL_SERVED] = TO(WAITING) | TO(LEFT) | TO(OVER),
    [CALL_FORWARDED] = TO(WAITING) | TO(LEFT) | TO(OVER),
    [CALL_LEFT] = TO(LEFT) | TO(OVER),
};

/* The only writer of a call's state, once it has a number. */
static void
call_set(const struct mesh_runner *runner, struct runner_call *call, enum runner_call_state state)
{
    CHECK(call_at(runner, call->number) == call);
    CHECK(EDGES[call->state] & 1u << state);
    call->state = (uint8_t)state;
}

static void
release(struct mesh_runner *runner, struct runner_call *call)
{
    call_set(runner, call, CALL_OVER);
    id_table_remove(&runner->calls, call->number);
}

/* The call is over. */
static void
count(struct mesh_runner *runner, const struct runner_call *call, enum runner_way way)
{
    if (call->hop == MESH_HOP_ENTRY)
        runner->counts.entered[way]++;
    else
        runner->counts.passed[way]++;
}

/* The step decides, or the call waits from now on. Its memory may go in that step, so the time is
 * taken before, although few calls wait: 20 ns of a miss. */
static void
ask(struct mesh_runner *runner, struct runner_call *call)
{
    call->asked = runner->steps + 1;
    call->asked_ns = clock_now_ns();
    call->for_permit = false;
}

static void
answer_of_pool(struct mesh_runner *runner, struct runner_call *call, enum mesh_end end,
               const char *text, uint32_t pool)
{
    count(runner, call, (enum runner_way)(RUNNER_REFUSED + (int)end));
    const struct runner_answer made = {
        .end = end, .text = text, .figures = figures(runner, call->model), .pool = pool};
    call->type->answer(call, &made);
}

static void
answer(struct mesh_runner *runner, struct runner_call *call, enum mesh_end end, const char *text)
{
    answer_of_pool(runner, call, end, text, 0);
}

static void
forget(struct mesh_runner *runner, struct runner_call *call)
{
    runner_step(runner,
                (struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = call->number}});
    release(runner, call);
}

void
runner_call_refuse(struct mesh_runner *runner, struct runner_call *call, struct runner_answer made)
{
    forget(runner, call);
    count(runner, call, (enum runner_way)(RUNNER_REFUSED + (int)made.end));
    made.figures = figures(runner, call->model);
    call->type->answer(call, &made);
}

/* ---- actions of the core ---- */

static struct runner_attempt
attempt_of(const struct runner_call *call, const struct mesh_action *action,
           enum runner_call_state state)
{
    bool endless = call->deadline_ns == TIME_NEVER_NS;
    bool there = state == CALL_FORWARDED;
    return (struct runner_attempt){
        .number = action->attempt.number,
        .model = action->attempt.model,
        .create_revision = action->attempt.create_revision,
        .instance = action->attempt.instance,
        .hop = action->attempt.hop,
        .deadline_ns =
            endless || !there ? call->deadline_ns : action->attempt.deadline_ms * NS_PER_MS,
        .tried = action->attempt.tried,
        .tried_count = action->attempt.tried_count,
        .pool = action->attempt.pool,
    };
}

static void
end_later(struct mesh_runner *runner, const struct runner_call *call, const struct runner_end *end)
{
    CHECK(!runner_end_is_last(end));
    if (runner->ended.count == runner->ended.capacity) {
        runner->ended.capacity = runner->ended.capacity == 0 ? 16 : 2 * runner->ended.capacity;
        runner->ended.items =
            realloc(runner->ended.items, runner->ended.capacity * sizeof(*runner->ended.items));
        CHECK(runner->ended.items != NULL);
    }
    runner->ended.items[runner->ended.count++] =
        (struct ended){.call = call->number, .number = call->attempt, .end = *end};
}

void
runner_call_do_serve(struct mesh_runner *runner, const struct mesh_action *action)
{
    struct runner_call *call = call_at(runner, action->attempt.call);
    const struct runner_attempt attempt = attempt_of(call, action, CALL_SERVED);
    struct runner_end end = {.end = MESH_END_UNREACHABLE};
    call_set(runner, call, CALL_SERVED);
    call->attempt = attempt.number;
    runner->counts.served++;
    bool waited = call->asked != runner->steps;
    call->waited = waited && !call->for_permit;
    if (waited)
        runner_measure(runner, call->for_permit ? RUNNER_PERMIT_NS : RUNNER_WAIT_NS,
                       (uint64_t)(clock_now_ns() - call->asked_ns));
    if (call->type->serve(call, &attempt, &end) == RUNNER_ENDED)
        end_later(runner, call, &end);
}

void
runner_call_do_forward(struct mesh_runner *runner, const struct mesh_action *action)
{
    struct runner_call *call = call_at(runner, action->attempt.call);
    const struct runner_attempt attempt = attempt_of(call, action, CALL_FORWARDED);
    const struct runner_peers *peers = &runner->options.peers;
    struct runner_end end = {.end = MESH_END_UNREACHABLE};
    call_set(runner, call, CALL_FORWARDED);
    call->attempt = attempt.number;
    runner->counts.forwarded++;
    if (peers->forward == NULL ||
        peers->forward(peers->context, call, &attempt, &end) == RUNNER_ENDED)
        end_later(runner, call, &end);
}

void
runner_call_do_answer(struct mesh_runner *runner, const struct mesh_action *action)
{
    struct runner_call *call = call_at(runner, action->answer.call);
    enum store_table table = call->name == RUNNER_NAME_VMODEL ? STORE_VMODELS : STORE_MODELS;
    const char *unreadable =
        action->answer.end == MESH_END_UNAVAILABLE
            ? unknown_fields_find(&runner->records.unreadable, table, call->model)
            : NULL;
    CHECK(call->state == CALL_WAITING);
    release(runner, call);
    if (unreadable != NULL) /* the core had no record to compare in a transaction */
        answer(runner, call, MESH_END_LOAD_FAILED, unreadable);
    else
        answer_of_pool(runner, call, action->answer.end, action->answer.text, action->answer.pool);
}

struct mesh_event
runner_call_end(struct mesh_runner *runner, const struct ended *ended)
{
    struct runner_call *call = call_at(runner, ended->call);
    CHECK(call->attempt == ended->number);
    call_set(runner, call, CALL_WAITING);
    runner->counts.tried[ended->end.end]++;
    if (!runner_end_is_last(&ended->end))
        ask(runner, call);
    return (struct mesh_event){.kind = MESH_TRY_ENDED,
                               .tried = {.call = ended->call,
                                         .number = ended->number,
                                         .end = ended->end.end,
                                         .answered = ended->end.is_answered,
                                         .vanished = ended->end.vanished,
                                         .reported = runner_end_is_reported(&ended->end),
                                         .took_us = ended->end.took_us}};
}

/* ---- reports of the owners ---- */

/* Call after a step: the call's memory may be gone. */
static bool
still_waits(const struct mesh_runner *runner, const struct runner_call *call, uint32_t number)
{
    return id_table_at(&runner->calls, number) == call && call->state == CALL_WAITING;
}

/* Notes whether a waiting call waits for a permit of a copy loaded here. */
static void
look_for_what(struct mesh_runner *runner, struct runner_call *call)
{
    const char *model =
        call->name == RUNNER_NAME_VMODEL ? mesh_resolve(runner->mesh, call->model) : call->model;
    call->for_permit = model != NULL && mesh_state(runner->mesh, model) == MESH_STATE_LOADED;
}

static void
begin(struct mesh_runner *runner, struct runner_call *call)
{
    bool vmodel = call->name == RUNNER_NAME_VMODEL;
    uint32_t number = call->number;
    ask(runner, call);
    runner_step(runner, (struct mesh_event){
                            .kind = MESH_CALL,
                            .call = {.call = call->number,
                                     .model = vmodel ? NULL : call->model,
                                     .vmodel = vmodel ? call->model : NULL,
                                     .hop = call->hop,
                                     .balance = call->balance,
                                     .non_retryable = call->is_non_retryable,
                                     .deadline_ms = runner_deadline_ms(call->deadline_ns),
                                     .create_revision = call->create_revision,
                                     .tried = call->tried,
                                     .tried_count = call->tried_count},
                        });
    if (!still_waits(runner, call, number))
        return;
    look_for_what(runner, call);
    runner_refuse_call(runner, call);
}

/* The registry can neither hold it nor be asked for it. */
static bool
is_too_long(const struct runner_call *call)
{
    return strnlen(call->model, MESH_ID_BYTES_MAX + 1) > MESH_ID_BYTES_MAX;
}

void
runner_call(struct mesh_runner *runner, struct runner_call *call)
{
    runner_lock(runner);
    runner->counts.calls++;
    call->state = CALL_OVER;
    call->attempt = 0;
    call->waited = false;
    bool too_long = is_too_long(call);
    bool ends = runner->closed || runner->refuses;
    call->number = ends || too_long ? ID_NONE : id_table_add(&runner->calls, call);
    if (ends)
        answer(runner, call, MESH_END_UNAVAILABLE, "this node is shutting down");
    else if (too_long)
        answer(runner, call, MESH_END_NOT_FOUND,
               call->name == RUNNER_NAME_VMODEL ? "vmodel not found" : "model not found");
    else if (call->number == ID_NONE) {
        runner->counts.refused++;
        answer(runner, call, MESH_END_OVERLOADED, "this node has too many calls in progress");
    } else {
        call_set(runner, call, CALL_WAITING);
        begin(runner, call);
    }
    runner_unlock(runner);
}

/* The caller is gone, or no further try is allowed. The core forgets the call in every case. */
static void
end_quietly(struct mesh_runner *runner, struct runner_call *call)
{
    runner_step(runner,
                (struct mesh_event){
                    .kind = MESH_TRY_ENDED,
                    .tried = {.call = call->number, .number = call->attempt, .end = MESH_END_OK}});
    release(runner, call);
}

static void
notify_figures(struct mesh_runner *runner, const struct runner_call *call,
               const struct runner_end *end)
{
    const struct runner_figures *said = end->figures;
    const char *model =
        call->name == RUNNER_NAME_VMODEL ? mesh_resolve(runner->mesh, call->model) : call->model;
    runner_step(runner, (struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                            .figures = {.instance = end->instance,
                                                        .model = model,
                                                        .start_ms = said->start_ms,
                                                        .figures = said->figures}});
}

static void
try_ended(struct mesh_runner *runner, struct runner_call *call, const struct runner_end *end)
{
    if (call->state == CALL_LEFT) {
        count(runner, call, RUNNER_CANCELLED);
        end_quietly(runner, call);
        return;
    }
    if (runner->closed && !runner_end_is_last(end)) {
        end_quietly(runner, call);
        answer(runner, call, MESH_END_UNAVAILABLE, "this node is shutting down");
        return;
    }
    const struct ended ended = {.call = call->number, .number = call->attempt, .end = *end};
    enum runner_way way = call->state == CALL_FORWARDED ? RUNNER_ELSEWHERE
                          : call->waited                ? RUNNER_WAITED
                                                        : RUNNER_HERE;
    if (end->said != NULL && end->said_status == STATUS_UNAVAILABLE)
        runner_refuse_from_now(runner, end->said);
    runner_step(runner, runner_call_end(runner, &ended));
    if (runner_end_is_last(end)) {
        count(runner, call, way);
        release(runner, call); /* the core has no action for that */
    } else if (still_waits(runner, call, ended.call)) {
        runner_refuse_call(runner, call);
    }
}

void
runner_try_ended(struct mesh_runner *runner, struct runner_call *call, uint32_t number,
                 const struct runner_end *end)
{
    runner_lock(runner);
    if (end->figures != NULL && !runner->closed)
        notify_figures(runner, call, end);
    bool current = call->attempt == number && call->state >= CALL_SERVED;
    if (current)
        try_ended(runner, call, end);
    runner_unlock(runner);
}

bool
runner_call_cancelled(struct mesh_runner *runner, struct runner_call *call)
{
    const struct runner_peers *peers = &runner->options.peers;
    runner_lock(runner);
    bool stays =
        call->state == CALL_SERVED || call->state == CALL_LEFT ||
        (call->state == CALL_FORWARDED && !peers->abandon(peers->context, call, call->attempt));
    if (stays)
        call_set(runner, call, CALL_LEFT);
    else if (call->state != CALL_OVER) {
        forget(runner, call);
        count(runner, call, RUNNER_CANCELLED);
    }
    runner_unlock(runner);
    return !stays;
}

void
runner_used(struct mesh_runner *runner, const struct mesh_used *used)
{
    runner_lock(runner);
    runner->counts.entered[RUNNER_HERE] += used->count;
    if (!runner->closed)
        runner_step(runner, (struct mesh_event){.kind = MESH_USED, .used = *used});
    runner_unlock(runner);
}

struct runner_figures
runner_figures(struct mesh_runner *runner, const char *model)
{
    runner_lock(runner);
    struct runner_figures made = figures(runner, model);
    runner_unlock(runner);
    return made;
}

void
runner_ensure(struct mesh_runner *runner, const struct mesh_ensure *ensure)
{
    struct mesh_event event = {.kind = MESH_ENSURE, .ensure = *ensure};
    event.ensure.where = MESH_HERE;
    runner_lock(runner);
    if (!runner->closed)
        runner_step(runner, event);
    runner_unlock(runner);
}

/* ---- the end ---- */

void
runner_call_close_all(struct mesh_runner *runner)
{
    for (uint32_t i = 0; i < runner->calls.used; i++) {
        struct runner_call *call = id_table_at(&runner->calls, i);
        if (call == NULL || call->state != CALL_WAITING)
            continue;
        forget(runner, call);
        answer(runner, call, MESH_END_UNAVAILABLE, "this node is shutting down");
    }
}
