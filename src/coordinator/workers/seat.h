/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the files that keep a lane's workers share, and nobody else includes: a seat is
 * the place of one worker, in which one process follows another; a stage's staff is all seats of
 * the stage.
 *
 *     roster.c      the whole: all seats started, stopped, shown
 *     seat.c        one seat: a process is started, says that it is ready, is replaced
 *     death.c       a process has ended: why, what becomes of its requests, who is to blame
 *     staff.c       a stage without anybody: what waits there fails, quarantine and its end
 *     hang.c        runs that take too long
 *     guest.c       regions of local clients, which the workers serve as well
 *
 * All on the loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/loop/loop.h"
#include "coordinator/workers/guest.h"
#include "coordinator/workers/hang.h"
#include "coordinator/workers/quarantine.h"
#include "coordinator/workers/spawn.h"
#include "coordinator/workers/worker_log.h"
#include "shm/counters.h"
#include "shm/layout.h"

struct holder;
struct lane;
struct pipeline;
struct roster;

enum seat_state {
    SEAT_EMPTY,    /* no process, none to come */
    SEAT_BACKOFF,  /* no process; the timer will start one */
    SEAT_STARTING, /* a process that has not said that it is ready */
    SEAT_READY,
};

/* Why we have killed a process ourselves. */
enum seat_kill {
    KILL_NONE,
    KILL_START_TIMEOUT,
    KILL_RUN_TIMEOUT,
    KILL_SILENT,     /* no sign of life, and no run */
    KILL_NONSENSE,   /* it said what cannot be */
    KILL_QUARANTINE, /* it was starting when its stage was quarantined */
    KILL_LOAD_TIMEOUT,
};

struct seat {
    struct roster *roster;
    uint32_t stage;
    uint32_t index;
    enum seat_state state;
    struct spawned process;
    uint16_t party;
    struct loop_watch *death_watch;
    struct loop_watch *control_watch;
    struct worker_log *log;   /* of the process */
    struct loop_timer *timer; /* back-off, or the start time-out */
    enum seat_kill killed_for;
    bool refused; /* it said handshake_failed: `refusal` is its own text */
    struct error refusal;
    int64_t ready_ns;  /* of the process that is or was ready last */
    int64_t judged_ns; /* since when passed requests speak for it: the death before, or ready_ns */
    uint64_t finished; /* lane_finished when it was ready */
    int64_t died_ns;   /* when the one before died; 0: has been replaced, or was the first */
    uint32_t quick_deaths; /* in a row */
    bool scarce;           /* its start waits for descriptors, processes or memory */
    struct run_watch run_watch;
    struct beat_watch beat_watch;
    uint32_t guests_told;  /* bit i: the process knows guest i, and has not said that it left */
    uint32_t guests_lost;  /* bit i: it has said that guest i is corrupt */
    struct holder *holder; /* what it holds of the pipeline's models; NULL: it is told of none */
    bool died_loading;     /* its process: of a model's load */
    bool ended_outside;    /* its process: killed, or asked to end, and not by us */
    _Atomic uint64_t *counters;
};

struct staff {
    struct roster *roster;
    uint32_t stage;
    struct quarantine quarantine;
    struct loop_timer *timer;      /* of the quarantine: its end, or that of a trial */
    struct loop_timer *fail_timer; /* runs while nobody works here: fails what comes */
    uint32_t abilities;            /* as the modelet declared them */
    uint32_t functions;            /* enum handshake_functions: likewise */
    _Atomic uint64_t *counters;
};

struct roster {
    struct pipeline *pipeline;
    struct lane *lane;
    struct seat *seats;
    uint32_t seat_count;
    struct staff *staffs; /* one for each stage */
    uint32_t stage_count;
    bool complete_once; /* every stage had a ready worker */
    bool stopping;
    struct lane_guest guests[GUESTS_MAX];
    uint64_t guest_serials;
    struct loop_timer *kill_timer;
    struct loop_timer *hang_timer; /* NULL: no stage has a limit */
};

const struct config_stage *stage_config(const struct roster *roster, uint32_t stage);
/* The name of the modelet's file. */
const char *stage_modelet(const struct roster *roster, uint32_t stage);
uint32_t stage_seat_count(const struct roster *roster, uint32_t stage);
struct seat *stage_seats(const struct roster *roster, uint32_t stage);

static inline struct staff *
seat_staff(const struct seat *seat)
{
    return &seat->roster->staffs[seat->stage];
}

/* ---- seat.c ---- */

/* Whether the lane can serve now: every seat is ready, and has what it is to have. */
void roster_check_complete(struct roster *roster);

void seat_init(struct seat *seat, struct roster *roster, uint32_t stage, uint32_t index);
void seat_start(struct seat *seat);
/* Starts a process when its back-off is over. */
void seat_back_off(struct seat *seat);
/* How long the next start of this seat is to wait. */
int64_t seat_wait_ns(const struct seat *seat);
/* By its pidfd: never another process. */
void seat_kill(struct seat *seat, enum seat_kill why);
/* The worker has said something, or its end of the socket is closed. */
void seat_on_control(void *seat);

/* ---- death.c ---- */

void seat_on_death(void *seat);
/* There was no process to die. */
void seat_on_spawn_failed(struct seat *seat, const struct error *error);
/* Whether the stage has finished anything since this worker was ready. */
bool seat_was_fruitful(const struct seat *seat);
/* No process is left. */
bool roster_gone(const struct roster *roster);

/* ---- staff.c ---- */

void staff_init(struct staff *staff, struct roster *roster, uint32_t stage);
void staff_fini(struct staff *staff);
void staff_on_ready(struct seat *seat);
/* Its seat is empty; `cause` ends "the last one was …". Decides who comes next, and when. */
void staff_on_death(struct seat *seat, enum death_blame blame, const char *cause);
/* Its next process could not be started for want of something, and will be. */
void staff_on_postponed(struct seat *seat, const struct error *error);
/* Nothing is to happen by itself any more. */
void staff_stop(struct staff *staff);
