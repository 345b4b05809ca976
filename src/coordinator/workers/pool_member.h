/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the files that supervise a lane's workers; only they and models/ include it. A
 * place is the place of one worker, in which one process follows another; a stage's worker pool is
 * all places of the stage.
 *
 *     worker_pools.c      all places of a lane: started, stopped, shown
 *     pool_member.c        one place: its process starts, becomes ready, is replaced
 *     death.c       a process has ended: cause, its requests, blame
 *     worker_pool.c       a stage without workers: its requests fail; quarantine and its end
 *     hang.c        runs that take too long
 *     client_region.c       regions of local clients, which the workers serve as well
 *
 * Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/workers/client_region.h"
#include "coordinator/workers/hang.h"
#include "coordinator/workers/quarantine.h"
#include "coordinator/workers/worker_pools.h"
#include "coordinator/workers/spawn.h"
#include "coordinator/workers/worker_log.h"
#include "ipc/counters.h"
#include "loop/loop.h"
#include "shm/layout.h"

struct worker_models;
struct lane;
struct pipeline;

enum pool_member_state {
    MEMBER_EMPTY,    /* no process, and none will be started */
    MEMBER_BACKOFF,  /* no process; the timer will start one */
    MEMBER_STARTING, /* its process is not ready yet */
    MEMBER_READY,
};

/* Reasons for which the coordinator kills a process itself. */
enum pool_member_kill {
    KILL_NONE,
    KILL_START_TIMEOUT,
    KILL_RUN_TIMEOUT,
    KILL_SILENT,     /* no sign of life outside of a run */
    KILL_NONSENSE,   /* it sent an impossible message */
    KILL_QUARANTINE, /* it was starting when its stage was quarantined */
    KILL_LOAD_TIMEOUT,
    KILL_NAMED, /* it was started to name refused calls, and is ready */
};

struct pool_member {
    struct worker_pools *pools;
    uint32_t stage;
    uint32_t index;
    enum pool_member_state state;
    struct spawned process;
    uint16_t owner;
    struct loop_watch *death_watch;
    struct loop_watch *control_watch;
    struct worker_log *log;   /* of the process */
    struct loop_timer *timer; /* back-off, or the start time-out */
    enum pool_member_kill killed_for;
    bool refused; /* it sent handshake_failed; `refusal` is its own text */
    struct error refusal;
    bool refused_calls;    /* the sandbox is the reason, as far as it knows */
    bool names;            /* it is started once more, to name the calls that the sandbox refuses */
    int64_t ready_ns;      /* of the process that is or was ready last */
    int64_t judged_ns;     /* requests count in its favour from here: the last death, or ready_ns */
    uint64_t finished;     /* lane_finished when it became ready */
    int64_t died_ns;       /* when its predecessor died; 0: already replaced, or none */
    uint32_t quick_deaths; /* in a row */
    bool scarce;           /* its start waits for descriptors, processes or memory */
    struct run_watch run_watch;
    struct beat_watch beat_watch;
    uint32_t client_regions_reported; /* bit i: the process has received client region i and has not
                                     left it */
    uint32_t client_regions_lost;     /* bit i: the process reported client region i as corrupt */
    struct worker_models *worker_models; /* the models that it holds; NULL: it loads none */
    bool died_loading;                   /* its process died of a model's load */
    bool ended_outside; /* its process was killed, or asked to end, but not by us */
    _Atomic uint64_t *counters;
};

struct worker_pool {
    struct worker_pools *pools;
    uint32_t stage;
    struct quarantine quarantine;
    struct loop_timer *timer;      /* the end of the quarantine or of a trial */
    struct loop_timer *fail_timer; /* runs while the stage has no worker; fails its requests */
    uint32_t abilities;            /* declared by the modelet */
    uint32_t functions;            /* enum handshake_functions; likewise */
    uint32_t workers_max;          /* likewise; 0: any number */
    _Atomic uint64_t *counters;
};

struct worker_pools {
    const struct member_models *models;
    struct pipeline *pipeline;
    struct lane *lane;
    struct pool_member *members;
    uint32_t pool_member_count;
    struct worker_pool *pools; /* one for each stage */
    uint32_t stage_count;
    bool complete_once; /* every stage has had a ready worker */
    bool stopping;
    struct lane_client_region client_regions[CLIENT_REGIONS_MAX];
    uint64_t client_region_serials;
    struct loop_timer *kill_timer;
    struct loop_timer *hang_timer; /* NULL: no stage has a limit */
};

const struct config_stage *stage_config(const struct worker_pools *pools, uint32_t stage);
/* The name of the modelet's file. */
const char *stage_modelet(const struct worker_pools *pools, uint32_t stage);
uint32_t stage_member_count(const struct worker_pools *pools, uint32_t stage);
struct pool_member *stage_members(const struct worker_pools *pools, uint32_t stage);

static inline struct worker_pool *
member_pool(const struct pool_member *member)
{
    return &member->pools->pools[member->stage];
}

/* ---- pool_member.c ---- */

/* Checks whether the lane can serve now: every place is ready and has the models that it must. */
void worker_pools_check_complete(struct worker_pools *pools);

void pool_member_init(struct pool_member *member, struct worker_pools *pools, uint32_t stage,
                      uint32_t index);
/* The only writer of its state. */
void pool_member_enter(struct pool_member *member, enum pool_member_state state);
void pool_member_start(struct pool_member *member);
/* Starts a process when its back-off is over. */
void pool_member_back_off(struct pool_member *member);
/* The back-off before the next start of this place. */
int64_t restart_wait_ns(const struct pool_member *member);
/* Kills its process by pidfd, so never another one. */
void pool_member_kill(struct pool_member *member, enum pool_member_kill why);
/* The worker has sent something, or has closed its end of the socket. */
void pool_member_on_control(void *member);

/* ---- death.c ---- */

void pool_member_on_death(void *member);
/* The process could not be started. */
void pool_member_on_spawn_failed(struct pool_member *member, const struct error *error);
/* Returns whether the stage has finished anything since this worker was ready. */
bool pool_member_was_fruitful(const struct pool_member *member);
/* Returns whether no process is left. */
bool worker_pools_gone(const struct worker_pools *pools);

/* ---- worker_pool.c ---- */

void worker_pool_init(struct worker_pool *pool, struct worker_pools *pools, uint32_t stage);
void worker_pool_fini(struct worker_pool *pool);
void worker_pool_on_ready(struct pool_member *member);
/* The place is empty; `cause` completes "the last one was …". Decides on the next start. */
void worker_pool_on_death(struct pool_member *member, enum death_blame blame, const char *cause);
/* The place's next start failed for a shortage and will be retried. */
void worker_pool_on_postponed(struct pool_member *member, const struct error *error);
/* Stops its timers: nothing starts by itself any more. */
void worker_pool_stop(struct worker_pool *pool);
