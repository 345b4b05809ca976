/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/roster.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/seat.h"
#include "shm/sandbox.h"

/* ---- stages and seats ---- */

const struct config_stage *
stage_config(const struct roster *roster, uint32_t stage)
{
    return &roster->lane->generation->config->stages[stage];
}

const char *
stage_modelet(const struct roster *roster, uint32_t stage)
{
    const char *path = stage_config(roster, stage)->modelet;
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

uint32_t
stage_seat_count(const struct roster *roster, uint32_t stage)
{
    return roster->lane->region.layout.plan.worker_counts[stage];
}

struct seat *
stage_seats(const struct roster *roster, uint32_t stage)
{
    return &roster->seats[roster->lane->region.layout.first_worker[stage]];
}

uint32_t
roster_live(const struct roster *roster, uint32_t stage)
{
    uint32_t live = 0;
    const struct seat *seats = stage_seats(roster, stage);
    for (uint32_t i = 0; i < stage_seat_count(roster, stage); i++)
        live += seats[i].state == SEAT_READY;
    return live;
}

bool
roster_gone(const struct roster *roster)
{
    for (uint32_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].process.pid > 0)
            return false;
    return true;
}

/* ---- the whole ---- */

static void
roster_on_kill_timer(void *context)
{
    struct roster *roster = context;
    for (uint32_t i = 0; i < roster->seat_count; i++)
        spawned_signal(&roster->seats[i].process, SIGKILL);
}

/* Seldom: then all that is left anywhere below us comes to us, which an init would have got. */
static bool
may_start_processes(const struct roster *roster)
{
    bool may = false;
    for (uint32_t stage = 0; stage < roster->stage_count; stage++)
        may = may || (stage_config(roster, stage)->sandbox_allow &
                      (SANDBOX_ALLOW_PROCESSES | SANDBOX_ALLOW_ALL)) != 0;
    return may;
}

void
roster_create(struct pipeline *pipeline, struct lane *lane, struct roster **created)
{
    const struct region_layout *layout = &lane->region.layout;
    struct roster *roster = calloc(1, sizeof(*roster));
    CHECK(roster != NULL);
    roster->pipeline = pipeline;
    roster->lane = lane;
    roster->seat_count = layout->worker_total;
    roster->stage_count = layout->plan.stage_count;
    roster->seats = calloc(roster->seat_count, sizeof(*roster->seats));
    roster->staffs = calloc(roster->stage_count, sizeof(*roster->staffs));
    CHECK(roster->seats != NULL && roster->staffs != NULL);
    for (uint32_t i = 0; i < GUESTS_MAX; i++)
        roster->guests[i].fd = -1;
    roster->kill_timer = loop_timer_create(pipeline->options.loop, roster_on_kill_timer, roster);
    *created = roster;
    for (uint32_t stage = 0; stage < roster->stage_count; stage++) {
        staff_init(&roster->staffs[stage], roster, stage);
        for (uint32_t i = 0; i < stage_seat_count(roster, stage); i++)
            seat_init(&stage_seats(roster, stage)[i], roster, stage, i);
    }
    if (may_start_processes(roster))
        spawn_adopt_orphans();
    hang_start(roster);
    for (uint32_t i = 0; i < roster->seat_count && !roster->stopping; i++)
        seat_start(&roster->seats[i]);
}

void
roster_destroy(struct roster *roster)
{
    CHECK(roster_gone(roster));
    hang_stop(roster);
    roster_guests_fini(roster);
    for (uint32_t i = 0; i < roster->seat_count; i++)
        loop_timer_destroy(roster->seats[i].timer);
    for (uint32_t stage = 0; stage < roster->stage_count; stage++)
        staff_fini(&roster->staffs[stage]);
    loop_timer_destroy(roster->kill_timer);
    free(roster->staffs);
    free(roster->seats);
    free(roster);
}

static void
on_gone_at_once(void *context)
{
    struct roster *roster = context;
    pipeline_on_roster_stopped(roster->pipeline, roster->lane);
}

/* No successors from now on; `signal_number` to everybody who is there. */
static void
roster_end(struct roster *roster, int signal_number)
{
    bool was_stopping = roster->stopping;
    roster->stopping = true;
    roster_guests_end(roster);
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        struct seat *seat = &roster->seats[i];
        if (seat->process.pid > 0) {
            spawned_signal(&seat->process, signal_number);
        } else {
            seat->state = SEAT_EMPTY;
            loop_timer_clear(seat->timer);
        }
    }
    for (uint32_t stage = 0; stage < roster->stage_count; stage++)
        staff_stop(&roster->staffs[stage]);
    if (!was_stopping && roster_gone(roster))
        loop_post(roster->pipeline->options.loop, on_gone_at_once, roster);
}

void
roster_stop(struct roster *roster, int64_t grace_ns)
{
    roster_end(roster, SIGTERM);
    loop_timer_set(roster->kill_timer, grace_ns);
}

void
roster_kill(struct roster *roster)
{
    roster_end(roster, SIGKILL);
}

bool
roster_quarantined(const struct roster *roster)
{
    for (uint32_t i = 0; i < roster->stage_count; i++)
        if (roster->staffs[i].quarantine.state == QUARANTINE_ON)
            return true;
    return false;
}

struct shm_worker *
roster_seat(const struct roster *roster, uint32_t stage, uint32_t index, uint16_t *party)
{
    const struct seat *seat = &stage_seats(roster, stage)[index];
    *party = seat->party;
    return seat->process.pid > 0 ? region_worker(&roster->lane->region, stage, index) : NULL;
}

int32_t
roster_pid(const struct roster *roster, uint32_t stage, uint32_t index)
{
    pid_t pid = stage_seats(roster, stage)[index].process.pid;
    return pid > 0 ? (int32_t)pid : 0;
}

/*
 * Words that are ours to write, as they should be: a modelet that has overwritten them once would
 * otherwise keep its stage from being woken, or from gathering batches, until its workers die.
 */
static void
restate(struct roster *roster)
{
    const struct lane *lane = roster->lane;
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        const struct seat *seat = &roster->seats[i];
        struct shm_worker *worker = region_worker(&lane->region, seat->stage, seat->index);
        if (seat->process.pid > 0 &&
            atomic_load_explicit(&worker->party, memory_order_relaxed) != seat->party)
            atomic_store(&worker->party, seat->party);
    }
    uint32_t draining =
        atomic_load(&lane->state) == LANE_DRAINING || atomic_load(&roster->pipeline->draining);
    for (uint32_t stage = 0; stage < roster->stage_count; stage++)
        if (atomic_load(&region_stage(&lane->region, stage)->draining) != draining)
            atomic_store(&region_stage(&lane->region, stage)->draining, draining);
}

void
roster_publish(struct roster *roster, bool serving)
{
    restate(roster);
    struct lane *lane = roster->lane;
    for (uint32_t stage = 0; serving && stage < roster->stage_count; stage++) {
        const struct staff *staff = &roster->staffs[stage];
        struct shm_ring ring = region_slot_ring(&lane->region, (uint8_t)stage);
        counter_set(staff->counters, STAGE_DEPTH, ring_depth(&ring));
        counter_set(staff->counters, STAGE_WORKERS_LIVE, roster_live(roster, stage));
        counter_set(staff->counters, STAGE_WORKERS_WANTED, stage_seat_count(roster, stage));
        counter_set(staff->counters, STAGE_QUARANTINED,
                    staff->quarantine.state != QUARANTINE_NONE &&
                        (atomic_load(&lane->dead_stages) & UINT64_C(1) << stage) != 0);
    }
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        const struct seat *seat = &roster->seats[i];
        struct shm_worker *worker = region_worker(&lane->region, seat->stage, seat->index);
        counter_set(seat->counters, WORKER_HEARTBEAT,
                    (uint64_t)atomic_load_explicit(&worker->heartbeat_ns, memory_order_relaxed));
    }
}
