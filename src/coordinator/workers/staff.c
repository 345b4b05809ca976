/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers of one stage as a whole: whether anybody works there, and what becomes of requests
 * when nobody does.
 *
 * A stage without anybody, and with nobody about to be ready, is dead: what waits there fails, and
 * what still comes from the stages before, and new requests are refused, all with the reason. So is
 * a stage in quarantine (quarantine.h), whether somebody is left there or not: who is left finishes
 * what he has.
 */
#include "coordinator/workers/seat.h"

#include <stdio.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/roster.h"
#include "shm/former.h"

/* How long what comes to a dead stage may wait there for its refusal. */
enum { FAIL_LOOK_MS = 20, TRY_AGAIN_MS = 50 };

static struct seat *
seats_of(const struct staff *staff)
{
    return stage_seats(staff->roster, staff->stage);
}

static uint32_t
seat_count_of(const struct staff *staff)
{
    return stage_seat_count(staff->roster, staff->stage);
}

static const char *
name_of(const struct staff *staff)
{
    return stage_config(staff->roster, staff->stage)->name;
}

/* ---- nobody there ---- */

static void
fail_what_waits(void *context)
{
    struct staff *staff = context;
    struct lane *lane = staff->roster->lane;
    if (atomic_load(&lane->state) == LANE_CONDEMNED ||
        !(atomic_load(&lane->dead_stages) & UINT64_C(1) << staff->stage))
        return;
    char text[OUTAGE_TEXT_BYTES];
    outage_tell(&lane->outage, staff->stage, clock_now_ns(), text);
    lane_fail_stage(lane, staff->stage, text);
    loop_timer_set(staff->fail_timer, FAIL_LOOK_MS * (int64_t)NS_PER_MS);
}

/* `why` has been put into the lane's outage before. */
static void
close_stage(struct staff *staff)
{
    struct roster *roster = staff->roster;
    atomic_fetch_or(&roster->lane->dead_stages, UINT64_C(1) << staff->stage);
    fail_what_waits(staff);
    pipeline_on_stages_changed(roster->pipeline);
}

static void
open_stage(struct staff *staff)
{
    atomic_fetch_and(&staff->roster->lane->dead_stages, ~(UINT64_C(1) << staff->stage));
    loop_timer_clear(staff->fail_timer);
    stage_notify(&staff->roster->lane->region, staff->stage);
}

/* Whether the stage is left without anybody, and nobody is about to be ready. */
static bool
nobody_works(const struct staff *staff)
{
    const struct seat *seats = seats_of(staff);
    for (uint32_t i = 0; i < seat_count_of(staff); i++)
        if (seats[i].state == SEAT_READY || seats[i].state == SEAT_STARTING ||
            (seats[i].state == SEAT_BACKOFF && !seats[i].scarce && seat_wait_ns(&seats[i]) == 0))
            return false;
    return true;
}

static void
close_if_dead(struct staff *staff, const char *cause)
{
    if (!nobody_works(staff))
        return;
    char why[OUTAGE_TEXT_BYTES];
    snprintf(why, sizeof(why), "stage \"%s\" has no worker: the last one was %s", name_of(staff),
             cause);
    outage_set(&staff->roster->lane->outage, staff->stage, 0, "; it will be started again", why);
    close_stage(staff);
}

/* ---- quarantine ---- */

static void
begin_quarantine(struct staff *staff, const char *cause)
{
    struct seat *seats = seats_of(staff);
    for (uint32_t i = 0; i < seat_count_of(staff); i++) {
        if (seats[i].state == SEAT_BACKOFF) {
            loop_timer_clear(seats[i].timer);
            seats[i].state = SEAT_EMPTY;
        } else if (seats[i].state == SEAT_STARTING) {
            seat_kill(&seats[i], KILL_QUARANTINE);
        }
    }
    struct roster *roster = staff->roster;
    const char *pipeline = roster->lane->info.name;
    const char *modelet = stage_modelet(roster, staff->stage);
    log_error(
        "stage_quarantined pipeline=%s stage=%s modelet=%s deaths=%u cause=\"%s\" for_ms=%lld",
        pipeline, name_of(staff), modelet, staff->quarantine.deaths, cause,
        (long long)(staff->quarantine.length_ns / NS_PER_MS));
    counter_add(staff->counters, STAGE_QUARANTINES, 1);
    char advice[128];
    char why[OUTAGE_TEXT_BYTES];
    snprintf(advice, sizeof(advice), ", or `shoalctl reload %s`", pipeline);
    snprintf(why, sizeof(why),
             "stage \"%s\" is quarantined: modelet %s died %u times in a row, last: %s",
             name_of(staff), modelet, staff->quarantine.deaths, cause);
    outage_set(&roster->lane->outage, staff->stage, staff->quarantine.until_ns, advice, why);
    loop_timer_set(staff->timer, staff->quarantine.length_ns);
    close_stage(staff);
}

/* False: those that were killed when it began are not dead yet. */
static bool
somebody_to_try(const struct staff *staff)
{
    const struct seat *seats = seats_of(staff);
    for (uint32_t i = 0; i < seat_count_of(staff); i++)
        if (seats[i].state == SEAT_READY || seats[i].state == SEAT_EMPTY)
            return true;
    return false;
}

static void
begin_trial(struct staff *staff)
{
    struct seat *seats = seats_of(staff);
    log_warn("stage_tried pipeline=%s stage=%s", staff->roster->lane->info.name, name_of(staff));
    for (uint32_t i = 0; i < seat_count_of(staff); i++)
        if (seats[i].state == SEAT_READY) { /* he has outlived the quarantine: he is the trial */
            staff_on_ready(&seats[i]);
            pipeline_on_stages_changed(staff->roster->pipeline);
            return;
        }
    for (uint32_t i = 0; i < seat_count_of(staff); i++)
        if (seats[i].state == SEAT_EMPTY) {
            seat_start(&seats[i]);
            return;
        }
    UNREACHABLE();
}

static void
restore(struct staff *staff)
{
    struct seat *seats = seats_of(staff);
    loop_timer_clear(staff->timer);
    log_info("stage_restored pipeline=%s stage=%s", staff->roster->lane->info.name, name_of(staff));
    for (uint32_t i = 0; i < seat_count_of(staff); i++)
        if (seats[i].state == SEAT_EMPTY)
            seat_back_off(&seats[i]);
}

static bool
any_fruitful(const struct staff *staff)
{
    const struct seat *seats = seats_of(staff);
    for (uint32_t i = 0; i < seat_count_of(staff); i++)
        if (seats[i].state == SEAT_READY && seat_was_fruitful(&seats[i]))
            return true;
    return false;
}

static void
on_timer(void *context)
{
    struct staff *staff = context;
    switch (staff->quarantine.state) {
    case QUARANTINE_NONE: return;
    case QUARANTINE_ON:
        if (somebody_to_try(staff) && quarantine_try(&staff->quarantine, clock_now_ns()))
            begin_trial(staff);
        else
            loop_timer_set(staff->timer, TRY_AGAIN_MS * (int64_t)NS_PER_MS);
        return;
    case QUARANTINE_TRIAL:
        if (roster_live(staff->roster, staff->stage) == 0)
            return; /* the one that was tried was killed from outside: the next one is coming */
        quarantine_lift(&staff->quarantine, any_fruitful(staff));
        restore(staff);
        return;
    }
}

/* ---- what happens to it ---- */

void
staff_init(struct staff *staff, struct roster *roster, uint32_t stage)
{
    const struct config_stage *config = stage_config(roster, stage);
    struct loop *loop = roster->pipeline->options.loop;
    *staff = (struct staff){.roster = roster, .stage = stage};
    quarantine_init(&staff->quarantine, config->quarantine_deaths, config->quarantine_ns);
    staff->timer = loop_timer_create(loop, on_timer, staff);
    staff->fail_timer = loop_timer_create(loop, fail_what_waits, staff);
    staff->counters = counters_values(roster->pipeline->options.counters,
                                      roster->lane->generation->stage_scopes[stage]);
}

void
staff_fini(struct staff *staff)
{
    loop_timer_destroy(staff->timer);
    loop_timer_destroy(staff->fail_timer);
}

void
staff_stop(struct staff *staff)
{
    loop_timer_clear(staff->timer);
    loop_timer_clear(staff->fail_timer);
}

void
staff_on_ready(struct seat *seat)
{
    struct staff *staff = seat_staff(seat);
    if (staff->quarantine.state == QUARANTINE_ON)
        return;
    if (staff->quarantine.state == QUARANTINE_TRIAL)
        loop_timer_set(staff->timer, TRIAL_MS * (int64_t)NS_PER_MS);
    open_stage(staff);
}

void
staff_on_death(struct seat *seat, enum death_blame blame, const char *cause)
{
    struct staff *staff = seat_staff(seat);
    enum quarantine_state before = staff->quarantine.state;
    if (quarantine_on_death(&staff->quarantine, blame, clock_now_ns())) {
        begin_quarantine(staff, cause);
        return;
    }
    if (staff->quarantine.state == QUARANTINE_ON)
        return; /* nobody follows */
    seat_back_off(seat);
    if (before == QUARANTINE_TRIAL && staff->quarantine.state == QUARANTINE_NONE)
        restore(staff);
    close_if_dead(staff, cause);
}

void
staff_on_postponed(struct seat *seat, const struct error *error)
{
    char cause[OUTAGE_TEXT_BYTES];
    snprintf(cause, sizeof(cause), "not started, because shoald could not: %.160s", error->text);
    close_if_dead(seat_staff(seat), cause);
}
