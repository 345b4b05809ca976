/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker has died: what it held is put right, its requests run again or fail, and it is judged
 * whether the modelet is to blame.
 *
 * The attempts rule. Each request that the dead worker held at its stage is charged with the death,
 * whether it ran or waited in an open batch: which of the two is known from the worker's own words
 * only. Who was charged runs alone from then on, in every stage (slot_run_alone), so a second death
 * charges nobody but the one that was run. The caller of a request that is failed for it is
 * suspected (suspects.h): all that it sends runs alone for a while.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/catalog.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/roster.h"
#include "coordinator/workers/seat.h"
#include "shm/handshake.h"
#include "shm/repair.h"
#include "shm/slot.h"
#include "shm/stamp.h"

/* ---- what becomes of its requests ---- */

/* The stage and modelet come first: a text is cut to what a slot has room for. */
static void
tell_poison(const struct seat *seat, uint32_t deaths, struct error *error)
{
    const struct config_stage *config = stage_config(seat->roster, seat->stage);
    const char *modelet = stage_modelet(seat->roster, seat->stage);
    const char *workers = deaths == 1 ? "worker" : "workers";
    if (seat->killed_for == KILL_RUN_TIMEOUT)
        error_set(error, STATUS_UNAVAILABLE,
                  "stage \"%s\" (modelet %s) did not finish this request within run_timeout_ms "
                  "(%lld); %u %s lost with it",
                  config->name, modelet, (long long)(config->run_timeout_ns / NS_PER_MS), deaths,
                  deaths == 1 ? "worker was" : "workers were");
    else
        error_set(error, STATUS_UNAVAILABLE,
                  "%u %s died while they ran this request, the last in stage \"%s\" (modelet %s)",
                  deaths, workers, config->name, modelet);
}

/* The run that has ended with the worker, for the request's trace. */
static void
keep_lost_run(const struct seat *seat, struct shm_ticket ticket, uint32_t deaths)
{
    const struct region *region = &seat->roster->lane->region;
    struct stamp lost = {.ended_ns = seat->died_ns, .stage = seat->stage, .worker = seat->index};
    if (slot_traced(region_slot(region, ticket.index), ticket.generation))
        stamp_lose(region, ticket, deaths - 1, &lost);
}

static enum repair_verdict
judge_request(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    struct seat *seat = context;
    struct roster *roster = seat->roster;
    struct request *request = lane_request(roster->lane, ticket);
    if (request == NULL || stage != seat->stage)
        return REPAIR_CORRUPT;
    const struct config_stage *config = stage_config(roster, stage);
    bool innocent = seat->died_loading || seat->killed_for == KILL_LOAD_TIMEOUT;
    uint32_t deaths = atomic_load_explicit(&request->deaths, memory_order_relaxed);
    if (!innocent) {
        atomic_store_explicit(&request->deaths, ++deaths, memory_order_relaxed);
        keep_lost_run(seat, ticket, deaths);
    }
    if (seat_staff(seat)->abilities & SHOAL_CHANGES_INPUTS) {
        error_set(error, STATUS_UNAVAILABLE,
                  "a worker %s in stage \"%s\", whose modelet changes its inputs: it can't be run "
                  "again",
                  seat->killed_for == KILL_RUN_TIMEOUT
                      ? "did not finish this request within run_timeout_ms"
                      : "died while it ran this request",
                  config->name);
        return REPAIR_FAIL;
    }
    if (innocent) { /* it died of a model's load: whoever was in its hands has no part in that */
        counter_add_shared(roster->pipeline->counters, PIPELINE_RUN_AGAIN, 1);
        return REPAIR_RUN_AGAIN;
    }
    if (deaths >= config->attempts_max) {
        if (config->attempts_max > 1 || !seat->ended_outside)
            suspects_charge(&roster->lane->suspects, request->caller, seat->died_ns);
        counter_add_shared(roster->pipeline->counters, PIPELINE_POISON, 1);
        tell_poison(seat, deaths, error);
        return REPAIR_FAIL;
    }
    slot_run_alone(&roster->lane->region, ticket);
    counter_add_shared(roster->pipeline->counters, PIPELINE_RUN_AGAIN, 1);
    return REPAIR_RUN_AGAIN;
}

/* Returns how many requests it held. */
static uint32_t
repair(struct seat *seat)
{
    struct lane *lane = seat->roster->lane;
    if (atomic_load(&lane->state) == LANE_CONDEMNED)
        return 0;
    struct repair_judge judge = {judge_request, seat};
    struct repair_report report;
    struct error error = ERROR_NONE;
    if (region_repair(&lane->region, seat->party, PARTY_COORDINATOR, seat->stage, seat->index,
                      &judge, &report, &error) != STATUS_OK) {
        lane_report_corrupt(lane, error.text);
        return 0;
    }
    int64_t took_ns = clock_now_ns() - seat->died_ns;
    histogram_record(seat_staff(seat)->counters, STAGE_RECLAIM, (uint64_t)took_ns);
    log_info("worker_reclaimed pipeline=%s stage=%s worker=%u run_again=%u failed=%u pushed=%u "
             "blocks=%u us=%lld",
             lane->info.name, stage_config(seat->roster, seat->stage)->name, seat->index,
             report.run_again, report.failed, report.pushed, report.blocks_released,
             (long long)(took_ns / NS_PER_US));
    return report.run_again + report.failed;
}

/* ---- who is to blame ---- */

/* Killed from outside, or asked to end; a modelet's own mistakes look different, but for being too
 * large (SIGKILL by the kernel), which happens with requests in hand. */
static bool
ended_from_outside(int wait_status, enum seat_kill killed_for)
{
    if (killed_for == KILL_QUARANTINE)
        return true;
    if (killed_for != KILL_NONE)
        return false;
    if (WIFSIGNALED(wait_status))
        return WTERMSIG(wait_status) == SIGKILL || WTERMSIG(wait_status) == SIGTERM;
    return WEXITSTATUS(wait_status) == 0;
}

/*
 * As far as we have seen it ourselves: an answer has come back since from beyond the stage, or a
 * request that came in since stands beyond it, be it that it has waited for the worker. A modelet
 * that forges the words for that goes on dying without quarantine, with back-off.
 */
bool
seat_was_fruitful(const struct seat *seat)
{
    const struct lane *lane = seat->roster->lane;
    return lane_finished(lane, seat->stage) != seat->finished ||
           lane_has_passed(lane, seat->stage, seat->judged_ns);
}

static enum death_blame
blame_for(const struct seat *seat, int wait_status, bool was_ready, uint32_t held)
{
    if (seat->died_loading || seat->killed_for == KILL_LOAD_TIMEOUT)
        return DEATH_BLAMELESS; /* the model is to blame */
    if (held == 0 && ended_from_outside(wait_status, seat->killed_for))
        return DEATH_BLAMELESS;
    return was_ready && seat_was_fruitful(seat) ? DEATH_FRUITFUL : DEATH_FRUITLESS;
}

/* ---- the death ---- */

enum { CAUSE_BYTES = 160 };

static void
describe_end(const struct seat *seat, int wait_status, char *text, size_t room)
{
    const struct config_stage *config = stage_config(seat->roster, seat->stage);
    if (seat->killed_for == KILL_RUN_TIMEOUT)
        snprintf(text, room, "killed because it did not finish a run within run_timeout_ms (%lld)",
                 (long long)(config->run_timeout_ns / NS_PER_MS));
    else if (seat->killed_for == KILL_START_TIMEOUT)
        snprintf(text, room, "killed because it was not ready within start_timeout_ms (%lld)",
                 (long long)(config->start_timeout_ns / NS_PER_MS));
    else if (seat->killed_for == KILL_LOAD_TIMEOUT)
        snprintf(text, room, "killed because it did not load a model within load_timeout_ms");
    else if (seat->killed_for == KILL_SILENT)
        snprintf(text, room, "killed because it gave no sign of life outside of a run");
    else if (seat->killed_for == KILL_NONSENSE)
        snprintf(text, room, "killed because it said what cannot be");
    else if (WIFSIGNALED(wait_status))
        snprintf(text, room, "killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else if (seat->refused)
        snprintf(text, room, "refused to start: %.120s", seat->refusal.text);
    else
        snprintf(text, room, "ended with exit code %d", WEXITSTATUS(wait_status));
}

static void
forget_process(struct seat *seat)
{
    loop_watch_remove(seat->death_watch);
    loop_watch_remove(seat->control_watch);
    seat->death_watch = NULL;
    seat->control_watch = NULL;
    worker_log_destroy(seat->log);
    seat->log = NULL;
    loop_timer_clear(seat->timer);
    if (seat->roster->stopping)
        spawned_close(&seat->process);
    else
        spawned_keep(&seat->process);
    seat->state = SEAT_EMPTY;
    counter_set(seat->counters, WORKER_PID, 0);
}

/* Before a stage has ever been complete a failure is the operator's to mend: it ends the start. */
static void
on_failed_start(struct seat *seat, const char *why)
{
    const struct config_stage *config = stage_config(seat->roster, seat->stage);
    struct error error = ERROR_NONE;
    if (seat->refused)
        error = seat->refusal;
    else if (seat->killed_for == KILL_START_TIMEOUT)
        error_set(&error, STATUS_DEADLINE_EXCEEDED,
                  "worker was not ready within %lld ms (start_timeout_ms)",
                  (long long)(config->start_timeout_ns / NS_PER_MS));
    else
        error_set(&error, STATUS_UNAVAILABLE, "worker was %s before it was ready", why);
    error_prefix(&error, "stage \"%s\"", config->name);
    log_error("worker_failed pipeline=%s stage=%s worker=%u error=\"%s\"",
              seat->roster->lane->info.name, config->name, seat->index, error.text);
    if (!seat->roster->complete_once)
        pipeline_on_start_failed(seat->roster->pipeline, seat->roster->lane, &error);
}

void
seat_on_spawn_failed(struct seat *seat, const struct error *error)
{
    seat->state = SEAT_EMPTY;
    seat->refused = true;
    seat->refusal = *error;
    seat->quick_deaths++;
    on_failed_start(seat, "not started");
    if (!seat->roster->stopping)
        staff_on_death(seat, DEATH_FRUITLESS, "not started");
}

/* Its successor, if the failed start has not stopped everything. */
static void
replace(struct seat *seat, enum death_blame blame, bool was_ready, uint32_t guests, const char *why)
{
    if (seat->roster->stopping)
        return;
    bool quick = !was_ready || seat->died_ns - seat->ready_ns < QUICK_DEATH_MS * (int64_t)NS_PER_MS;
    quick = quick && guests == 0; /* their users are charged, and are the ones who wait */
    quick = quick && seat->killed_for != KILL_LOAD_TIMEOUT;
    quick = quick && blame != DEATH_FRUITFUL; /* it has done what it is for */
    seat->quick_deaths = quick ? seat->quick_deaths + 1 : 0;
    counter_add(seat_staff(seat)->counters, STAGE_RESTARTS, 1);
    staff_on_death(seat, blame, why);
}

void
seat_on_death(void *context)
{
    struct seat *seat = context;
    struct roster *roster = seat->roster;
    int wait_status = 0;
    if (waitpid(seat->process.pid, &wait_status, WNOHANG) != seat->process.pid)
        return;
    if (seat->control_watch != NULL && seat->state == SEAT_STARTING && !seat->refused)
        seat_on_control(seat);      /* its last words, if the death was seen before them */
    seat->died_ns = clock_now_ns(); /* not before: they may be that it is ready */
    spawn_kill_orphans();
    char why[CAUSE_BYTES];
    describe_end(seat, wait_status, why, sizeof(why));
    bool was_ready = seat->state == SEAT_READY;
    pid_t pid = seat->process.pid;
    struct catalog *catalog = roster->pipeline->catalog;
    seat->ended_outside = ended_from_outside(wait_status, seat->killed_for);
    seat->died_loading = catalog_on_seat_death(catalog, seat, seat->ended_outside);
    forget_process(seat);
    uint32_t held = repair(seat);
    uint32_t guests = seat_leaves_guests(seat);
    if (held != 0)
        guests = 0; /* it may have been a request of the lane */
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == HANDSHAKE_EXIT_CORRUPT)
        lane_report_corrupt(roster->lane, "a worker found it so");
    if (roster->stopping) {
        if (roster_gone(roster))
            pipeline_on_roster_stopped(roster->pipeline, roster->lane);
        return;
    }
    log_warn("worker_died pipeline=%s stage=%s worker=%u pid=%d why=\"%s\" held=%u",
             roster->lane->info.name, stage_config(roster, seat->stage)->name, seat->index,
             (int)pid, why, held);
    if (!was_ready && seat->killed_for != KILL_QUARANTINE)
        on_failed_start(seat, why);
    enum death_blame blame =
        guests != 0 ? DEATH_BLAMELESS : blame_for(seat, wait_status, was_ready, held);
    replace(seat, blame, was_ready, guests, why);
    catalog_on_seat_left(catalog, seat);
}
