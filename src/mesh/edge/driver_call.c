/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: from their owners to the core and back. A call's `state` says who has it: the core (it
 * waits), a runtime, a peer; or nobody any more, and only a runtime is still at it (it was left).
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/edge/driver_inside.h"

static struct driver_figures
figures(struct driver *driver)
{
    return (struct driver_figures){.figures = mesh_figures(driver->mesh),
                                   .start_ms = driver->start_ms};
}

static struct driver_call *
call_at(const struct driver *driver, uint32_t number)
{
    CHECK(number < driver->calls.used && driver->calls.held[number] != NULL);
    return driver->calls.held[number];
}

static void
release(struct driver *driver, struct driver_call *call)
{
    seats_give(&driver->calls, call->number);
    call->state = CALL_OVER;
}

/* A call is over. */
static void
count(struct driver *driver, const struct driver_call *call, enum driver_way way)
{
    if (call->hop == MESH_HOP_ENTRY)
        driver->counts.entered[way]++;
    else
        driver->counts.passed[way]++;
}

/* The next step says what becomes of it, or it waits from now on. Its memory may go in that step,
 * so the time is taken before, though few wait: 20 ns of a miss. */
static void
ask(struct driver *driver, struct driver_call *call)
{
    call->asked = driver->steps + 1;
    call->asked_ns = clock_now_ns();
    call->for_seat = false;
}

static void
answer_of_pool(struct driver *driver, struct driver_call *call, enum mesh_end end, const char *text,
               uint32_t pool)
{
    count(driver, call, (enum driver_way)(DRIVER_REFUSED + (int)end));
    const struct driver_answer made = {
        .end = end, .text = text, .figures = figures(driver), .pool = pool};
    call->type->answer(call, &made);
}

static void
answer(struct driver *driver, struct driver_call *call, enum mesh_end end, const char *text)
{
    answer_of_pool(driver, call, end, text, 0);
}

static void
forget(struct driver *driver, struct driver_call *call)
{
    driver_step(driver,
                (struct mesh_event){.kind = MESH_CALL_CANCELLED, .call = {.call = call->number}});
    release(driver, call);
}

void
driver_call_refuse(struct driver *driver, struct driver_call *call, struct driver_answer made)
{
    forget(driver, call);
    count(driver, call, (enum driver_way)(DRIVER_REFUSED + (int)made.end));
    made.figures = figures(driver);
    call->type->answer(call, &made);
}

/* ---- what the core says ---- */

static struct driver_attempt
attempt_of(const struct driver_call *call, const struct mesh_action *action, enum call_state state)
{
    bool endless = call->deadline_ns == TIME_NEVER_NS;
    bool there = state == CALL_FORWARDED;
    return (struct driver_attempt){
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
end_later(struct driver *driver, const struct driver_call *call, const struct driver_end *end)
{
    CHECK(!driver_end_is_last(end));
    if (driver->ended_count == driver->ended_capacity) {
        driver->ended_capacity = driver->ended_capacity == 0 ? 16 : 2 * driver->ended_capacity;
        driver->ended = realloc(driver->ended, driver->ended_capacity * sizeof(*driver->ended));
        CHECK(driver->ended != NULL);
    }
    driver->ended[driver->ended_count++] =
        (struct ended){.call = call->number, .number = call->attempt, .end = *end};
}

void
driver_call_do_serve(struct driver *driver, const struct mesh_action *action)
{
    struct driver_call *call = call_at(driver, action->attempt.call);
    const struct driver_attempt attempt = attempt_of(call, action, CALL_SERVED);
    struct driver_end end = {.end = MESH_END_UNREACHABLE};
    call->state = CALL_SERVED;
    call->attempt = attempt.number;
    driver->counts.served++;
    bool waited = call->asked != driver->steps;
    call->waited = waited && !call->for_seat;
    if (waited)
        driver_measure(driver, call->for_seat ? DRIVER_SEAT_NS : DRIVER_WAIT_NS,
                       (uint64_t)(clock_now_ns() - call->asked_ns));
    if (call->type->serve(call, &attempt, &end) == DRIVER_ENDED)
        end_later(driver, call, &end);
}

void
driver_call_do_forward(struct driver *driver, const struct mesh_action *action)
{
    struct driver_call *call = call_at(driver, action->attempt.call);
    const struct driver_attempt attempt = attempt_of(call, action, CALL_FORWARDED);
    const struct driver_peers *peers = &driver->options.peers;
    struct driver_end end = {.end = MESH_END_UNREACHABLE};
    call->state = CALL_FORWARDED;
    call->attempt = attempt.number;
    driver->counts.forwarded++;
    if (peers->forward == NULL ||
        peers->forward(peers->context, call, &attempt, &end) == DRIVER_ENDED)
        end_later(driver, call, &end);
}

void
driver_call_do_answer(struct driver *driver, const struct mesh_action *action)
{
    struct driver_call *call = call_at(driver, action->answer.call);
    enum store_table table = call->name == DRIVER_NAME_VMODEL ? STORE_VMODELS : STORE_MODELS;
    const char *unreadable = action->answer.end == MESH_END_UNAVAILABLE
                                 ? extras_find(&driver->unreadable, table, call->model)
                                 : NULL;
    release(driver, call);
    if (unreadable != NULL) /* the core knows no record, and could not compare with none */
        answer(driver, call, MESH_END_LOAD_FAILED, unreadable);
    else
        answer_of_pool(driver, call, action->answer.end, action->answer.text, action->answer.pool);
}

struct mesh_event
driver_call_end(struct driver *driver, const struct ended *ended)
{
    struct driver_call *call = call_at(driver, ended->call);
    call->state = CALL_WAITING;
    driver->counts.tried[ended->end.end]++;
    if (!driver_end_is_last(&ended->end))
        ask(driver, call);
    return (struct mesh_event){.kind = MESH_TRY_ENDED,
                               .tried = {.call = ended->call,
                                         .number = ended->number,
                                         .end = ended->end.end,
                                         .answered = ended->end.is_answered,
                                         .vanished = ended->end.vanished,
                                         .took_us = ended->end.took_us}};
}

/* ---- what the owners say ---- */

/* After a step: its memory may have gone. */
static bool
still_waits(const struct driver *driver, const struct driver_call *call, uint32_t number)
{
    return driver->calls.held[number] == call && call->state == CALL_WAITING;
}

/* Whether the call, if it waits, does so though the model is loaded here. */
static void
look_for_what(struct driver *driver, struct driver_call *call)
{
    const char *model =
        call->name == DRIVER_NAME_VMODEL ? mesh_resolve(driver->mesh, call->model) : call->model;
    call->for_seat = model != NULL && mesh_state(driver->mesh, model) == MESH_STATE_LOADED;
}

static void
begin(struct driver *driver, struct driver_call *call)
{
    bool vmodel = call->name == DRIVER_NAME_VMODEL;
    uint32_t number = call->number;
    ask(driver, call);
    driver_step(driver, (struct mesh_event){
                            .kind = MESH_CALL,
                            .call = {.call = call->number,
                                     .model = vmodel ? NULL : call->model,
                                     .vmodel = vmodel ? call->model : NULL,
                                     .hop = call->hop,
                                     .balance = call->balance,
                                     .once = call->is_once,
                                     .deadline_ms = driver_deadline_ms(call->deadline_ns),
                                     .create_revision = call->create_revision,
                                     .tried = call->tried,
                                     .tried_count = call->tried_count},
                        });
    if (!still_waits(driver, call, number))
        return;
    look_for_what(driver, call);
    driver_refuse_call(driver, call);
}

/* The registry could not hold it, nor be asked for it. */
static bool
is_too_long(const struct driver_call *call)
{
    return strnlen(call->model, MESH_ID_BYTES_MAX + 1) > MESH_ID_BYTES_MAX;
}

void
driver_call(struct driver *driver, struct driver_call *call)
{
    driver_lock(driver);
    driver->counts.calls++;
    call->state = CALL_OVER;
    call->attempt = 0;
    call->waited = false;
    bool too_long = is_too_long(call);
    bool ends = driver->closed || driver->refuses;
    call->number = ends || too_long ? SEAT_NONE : seats_take(&driver->calls, call);
    if (ends)
        answer(driver, call, MESH_END_UNAVAILABLE, "this node is about to end");
    else if (too_long)
        answer(driver, call, MESH_END_NOT_FOUND,
               call->name == DRIVER_NAME_VMODEL ? "vmodel not found" : "model not found");
    else if (call->number == SEAT_NONE) {
        driver->counts.refused++;
        answer(driver, call, MESH_END_OVERLOADED, "this node has too many calls under way");
    } else {
        call->state = CALL_WAITING;
        begin(driver, call);
    }
    driver_unlock(driver);
}

/* Nobody waits for it, or nobody may try further. The core lets go of it, whatever the end was. */
static void
end_quietly(struct driver *driver, struct driver_call *call)
{
    driver_step(driver,
                (struct mesh_event){
                    .kind = MESH_TRY_ENDED,
                    .tried = {.call = call->number, .number = call->attempt, .end = MESH_END_OK}});
    release(driver, call);
}

static void
tell_figures(struct driver *driver, const char *instance, const struct driver_figures *said)
{
    driver_step(driver, (struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                            .figures = {.instance = instance,
                                                        .start_ms = said->start_ms,
                                                        .figures = said->figures}});
}

static void
try_ended(struct driver *driver, struct driver_call *call, const struct driver_end *end)
{
    if (call->state == CALL_LEFT) {
        count(driver, call, DRIVER_CANCELLED);
        end_quietly(driver, call);
        return;
    }
    if (driver->closed && !driver_end_is_last(end)) {
        end_quietly(driver, call);
        answer(driver, call, MESH_END_UNAVAILABLE, "this node is about to end");
        return;
    }
    const struct ended ended = {.call = call->number, .number = call->attempt, .end = *end};
    enum driver_way way = call->state == CALL_FORWARDED ? DRIVER_ELSEWHERE
                          : call->waited                ? DRIVER_WAITED
                                                        : DRIVER_HERE;
    if (end->said != NULL && end->said_status == STATUS_UNAVAILABLE)
        driver_refuse_from_now(driver, end->said);
    driver_step(driver, driver_call_end(driver, &ended));
    if (driver_end_is_last(end)) {
        count(driver, call, way);
        release(driver, call); /* the core has no action for that */
    } else if (still_waits(driver, call, ended.call)) {
        driver_refuse_call(driver, call);
    }
}

void
driver_try_ended(struct driver *driver, struct driver_call *call, uint32_t number,
                 const struct driver_end *end)
{
    driver_lock(driver);
    if (end->figures != NULL && !driver->closed)
        tell_figures(driver, end->instance, end->figures);
    bool current = call->attempt == number && call->state >= CALL_SERVED;
    if (current)
        try_ended(driver, call, end);
    driver_unlock(driver);
}

bool
driver_call_cancelled(struct driver *driver, struct driver_call *call)
{
    const struct driver_peers *peers = &driver->options.peers;
    driver_lock(driver);
    bool stays =
        call->state == CALL_SERVED || call->state == CALL_LEFT ||
        (call->state == CALL_FORWARDED && !peers->abandon(peers->context, call, call->attempt));
    if (stays)
        call->state = CALL_LEFT;
    else if (call->state != CALL_OVER) {
        forget(driver, call);
        count(driver, call, DRIVER_CANCELLED);
    }
    driver_unlock(driver);
    return !stays;
}

void
driver_used(struct driver *driver, const struct driver_use *use)
{
    driver_lock(driver);
    driver->counts.entered[DRIVER_HERE] += use->count;
    if (!driver->closed)
        driver_step(driver, (struct mesh_event){.kind = MESH_USED,
                                                .used = {.model = use->model,
                                                         .count = use->count,
                                                         .used_ms = use->used_ms,
                                                         .took_us = use->took_us}});
    driver_unlock(driver);
}

struct driver_figures
driver_figures(struct driver *driver)
{
    driver_lock(driver);
    struct driver_figures made = figures(driver);
    driver_unlock(driver);
    return made;
}

void
driver_ensure(struct driver *driver, const struct driver_ensure *ensure)
{
    driver_lock(driver);
    if (!driver->closed)
        driver_step(driver, (struct mesh_event){.kind = MESH_ENSURE,
                                                .ensure = {.model = ensure->model,
                                                           .used_ms = ensure->used_ms,
                                                           .class = ensure->class,
                                                           .where = MESH_HERE,
                                                           .target = ensure->target,
                                                           .size_bytes = ensure->size_bytes}});
    driver_unlock(driver);
}

/* ---- the end ---- */

void
driver_call_close_all(struct driver *driver)
{
    for (uint32_t i = 0; i < driver->calls.used; i++) {
        struct driver_call *call = driver->calls.held[i];
        if (call == NULL || call->state != CALL_WAITING)
            continue;
        forget(driver, call);
        answer(driver, call, MESH_END_UNAVAILABLE, "this node is about to end");
    }
}
