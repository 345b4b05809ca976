/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker has died: repairs what it held, runs its requests again or fails them, and judges
 * whether the modelet is to blame.
 *
 * The attempts rule. Each request that the dead worker held at its stage is charged with the death,
 * whether it ran or waited in an open batch, as only the worker's own words say which. A charged
 * request runs alone from then on, in every stage (slot_run_alone), so a second death charges only
 * the request that was run. The caller of a request that fails for this is suspected (suspects.h):
 * its requests run alone for a while.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/pool_member.h"
#include "ipc/handshake.h"
#include "shm/piece.h"
#include "shm/repair.h"
#include "shm/slot.h"
#include "shm/stamp.h"

/* ---- what becomes of its requests ---- */

/* Stage and modelet come first: the text is cut to the room in a slot. */
static void
describe_poison(const struct pool_member *member, uint32_t deaths, struct error *error)
{
    const struct config_stage *config = stage_config(member->pools, member->stage);
    const char *modelet = stage_modelet(member->pools, member->stage);
    const char *workers = deaths == 1 ? "worker" : "workers";
    if (member->killed_for == KILL_RUN_TIMEOUT)
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

/* Adds the run that ended with the worker to the request's trace. */
static void
keep_lost_run(const struct pool_member *member, struct shm_ticket ticket, uint32_t deaths)
{
    const struct region *region = &member->pools->lane->region;
    struct stamp lost = {
        .ended_ns = member->died_ns, .stage = member->stage, .worker = member->index};
    if (slot_traced(region_slot(region, ticket.index), ticket.generation))
        stamp_lose(region, ticket, deaths - 1, &lost);
}

enum { NAMED_MAX = 8, NAMED_BYTES = NAMED_MAX * (REQUEST_ID_BYTES + 8) };

/* The requests that a dead worker held, as the log names them: "SLOT:ID SLOT:ID". */
struct held_requests {
    struct pool_member *member;
    uint32_t count;
    size_t used;
    char named[NAMED_BYTES];
};

static void
name_held(struct held_requests *held, const struct request *request, uint32_t slot)
{
    char id[REQUEST_ID_BYTES + 1];
    if (held->count++ >= NAMED_MAX)
        return;
    request_id_read(&request->id, id);
    held->used += (size_t)snprintf(held->named + held->used, sizeof(held->named) - held->used,
                                   "%s%u:%s", held->used > 0 ? " " : "", slot, id);
}

/* Returns whether a part of the answer may have left, which must not be sent again. */
static bool
has_begun_to_answer(const struct lane *lane, const struct request *request,
                    struct shm_ticket ticket)
{
    const struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    return request->streams &&
           (slot_emitted(slot, ticket.generation) > 0 ||
            atomic_load_explicit(&request->delivered, memory_order_relaxed) > 0);
}

static enum repair_verdict
judge_request(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    struct held_requests *held = context;
    struct pool_member *member = held->member;
    struct worker_pools *pools = member->pools;
    struct request *request = lane_request(pools->lane, ticket);
    if (request == NULL || stage != member->stage)
        return REPAIR_CORRUPT;
    name_held(held, request, ticket.index);
    const struct config_stage *config = stage_config(pools, stage);
    bool innocent = member->died_loading || member->killed_for == KILL_LOAD_TIMEOUT;
    uint32_t deaths = atomic_load_explicit(&request->deaths, memory_order_relaxed);
    if (!innocent) {
        atomic_store_explicit(&request->deaths, ++deaths, memory_order_relaxed);
        keep_lost_run(member, ticket, deaths);
    }
    if (member_pool(member)->abilities & SHOAL_CHANGES_INPUTS) {
        error_set(error, STATUS_UNAVAILABLE,
                  "a worker %s in stage \"%s\", whose modelet changes its inputs: it can't be run "
                  "again",
                  member->killed_for == KILL_RUN_TIMEOUT
                      ? "did not finish this request within run_timeout_ms"
                      : "died while it ran this request",
                  config->name);
        return REPAIR_FAIL;
    }
    if (has_begun_to_answer(pools->lane, request, ticket)) {
        counter_add_shared(pools->pipeline->counters, PIPELINE_STREAMS_BROKEN, 1);
        error_set(error, STATUS_UNAVAILABLE,
                  "a worker %s in stage \"%s\" after it had begun to answer this request",
                  member->killed_for == KILL_RUN_TIMEOUT ? "was killed by run_timeout_ms" : "died",
                  config->name);
        return REPAIR_FAIL;
    }
    if (innocent) { /* it died of a model's load, in which its requests have no part */
        counter_add_shared(pools->pipeline->counters, PIPELINE_RUN_AGAIN, 1);
        return REPAIR_RUN_AGAIN;
    }
    if (deaths >= config->attempts_max) {
        if (config->attempts_max > 1 || !member->ended_outside)
            suspects_charge(&pools->lane->suspects, request->caller, member->died_ns);
        counter_add_shared(pools->pipeline->counters, PIPELINE_POISON, 1);
        describe_poison(member, deaths, error);
        return REPAIR_FAIL;
    }
    slot_run_alone(&pools->lane->region, ticket);
    counter_add_shared(pools->pipeline->counters, PIPELINE_RUN_AGAIN, 1);
    return REPAIR_RUN_AGAIN;
}

/* Returns the number of requests that it held. */
static uint32_t
repair(struct pool_member *member, struct held_requests *held)
{
    struct lane *lane = member->pools->lane;
    if (atomic_load(&lane->state) == LANE_CONDEMNED)
        return 0;
    struct repair_judge judge = {judge_request, held};
    struct repair_report report;
    struct error error = ERROR_NONE;
    const struct repair_dead dead = {member->owner, member->stage, member->index};
    if (region_repair(&lane->region, &dead, OWNER_COORDINATOR, &judge, &report, &error) !=
        STATUS_OK) {
        lane_report_corrupt(lane, error.text);
        return 0;
    }
    int64_t took_ns = clock_now_ns() - member->died_ns;
    histogram_record(member_pool(member)->counters, STAGE_RECLAIM, (uint64_t)took_ns);
    log_info("worker_reclaimed pipeline=%s stage=%s worker=%u run_again=%u failed=%u pushed=%u "
             "blocks=%u us=%lld",
             lane->info.name, stage_config(member->pools, member->stage)->name, member->index,
             report.run_again, report.failed, report.pushed, report.blocks_released,
             (long long)(took_ns / NS_PER_US));
    return report.run_again + report.failed;
}

/* ---- blame ---- */

/* Returns whether it was killed, or asked to end, from outside. A modelet's own mistakes look
 * different, except memory use (SIGKILL by the kernel), which happens while it holds requests. */
static bool
ended_from_outside(int wait_status, enum pool_member_kill killed_for)
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
 * Judged by what the coordinator has seen itself: since then an answer came back from beyond the
 * stage, or a request that came in since is beyond it, even if it waited for the worker. A modelet
 * that forges those words keeps dying without quarantine, but with back-off.
 */
bool
pool_member_was_fruitful(const struct pool_member *member)
{
    const struct lane *lane = member->pools->lane;
    return lane_finished(lane, member->stage) != member->finished ||
           lane_has_passed(lane, member->stage, member->judged_ns);
}

static enum death_blame
blame_for(const struct pool_member *member, int wait_status, bool was_ready, uint32_t held)
{
    if (member->died_loading || member->killed_for == KILL_LOAD_TIMEOUT)
        return DEATH_BLAMELESS; /* the model is to blame */
    if (held == 0 && ended_from_outside(wait_status, member->killed_for))
        return DEATH_BLAMELESS;
    return was_ready && pool_member_was_fruitful(member) ? DEATH_FRUITFUL : DEATH_FRUITLESS;
}

/* ---- the death ---- */

enum { CAUSE_BYTES = 160 };

static void
describe_end(const struct pool_member *member, int wait_status, char *text, size_t room)
{
    const struct config_stage *config = stage_config(member->pools, member->stage);
    if (member->killed_for == KILL_RUN_TIMEOUT)
        snprintf(text, room, "killed because it did not finish a run within run_timeout_ms (%lld)",
                 (long long)(config->run_timeout_ns / NS_PER_MS));
    else if (member->killed_for == KILL_START_TIMEOUT)
        snprintf(text, room, "killed because it was not ready within start_timeout_ms (%lld)",
                 (long long)(config->start_timeout_ns / NS_PER_MS));
    else if (member->killed_for == KILL_LOAD_TIMEOUT)
        snprintf(text, room, "killed because it did not load a model within load_timeout_ms");
    else if (member->killed_for == KILL_SILENT)
        snprintf(text, room, "killed because it gave no sign of life outside of a run");
    else if (member->killed_for == KILL_NONSENSE)
        snprintf(text, room, "killed because it sent an impossible message");
    else if (WIFSIGNALED(wait_status))
        snprintf(text, room, "killed by signal %d (%s)%s", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)), WCOREDUMP(wait_status) ? ", core dumped" : "");
    else if (member->refused)
        snprintf(text, room, "refused to start: %.120s", member->refusal.text);
    else
        snprintf(text, room, "ended with exit code %d", WEXITSTATUS(wait_status));
}

static void
forget_process(struct pool_member *member)
{
    loop_watch_remove(member->death_watch);
    loop_watch_remove(member->control_watch);
    member->death_watch = NULL;
    member->control_watch = NULL;
    worker_log_destroy(member->log);
    member->log = NULL;
    loop_timer_clear(member->timer);
    if (member->pools->stopping)
        spawned_close(&member->process);
    else
        spawned_keep(&member->process);
    pool_member_enter(member, MEMBER_EMPTY);
    counter_set(member->counters, WORKER_PID, 0);
}

/* Until a stage has been complete once, only the operator can mend a failure, so it ends the
 * start. */
static void
on_failed_start(struct pool_member *member, const char *why)
{
    const struct config_stage *config = stage_config(member->pools, member->stage);
    struct error error = ERROR_NONE;
    if (member->refused || member->names)
        error = member->refusal;
    else if (member->killed_for == KILL_START_TIMEOUT)
        error_set(&error, STATUS_DEADLINE_EXCEEDED,
                  "worker was not ready within %lld ms (start_timeout_ms)",
                  (long long)(config->start_timeout_ns / NS_PER_MS));
    else
        error_set(&error, STATUS_UNAVAILABLE, "worker was %s before it was ready", why);
    error_prefix(&error, "stage \"%s\"", config->name);
    log_error("worker_failed pipeline=%s stage=%s worker=%u error=\"%s\"",
              member->pools->lane->info.name, config->name, member->index, error.text);
    if (!member->pools->complete_once)
        pipeline_on_start_failed(member->pools->pipeline, member->pools->lane, &error);
}

void
pool_member_on_spawn_failed(struct pool_member *member, const struct error *error)
{
    pool_member_enter(member, MEMBER_EMPTY);
    member->refused = true;
    member->refusal = *error;
    member->quick_deaths++;
    on_failed_start(member, "not started");
    if (!member->pools->stopping)
        worker_pool_on_death(member, DEATH_FRUITLESS, "not started");
}

/* Starts its successor, unless the failed start has stopped everything. */
static void
replace(struct pool_member *member, enum death_blame blame, bool was_ready, uint32_t client_regions,
        const char *why)
{
    if (member->pools->stopping)
        return;
    bool quick =
        !was_ready || member->died_ns - member->ready_ns < QUICK_DEATH_MS * (int64_t)NS_PER_MS;
    quick = quick && client_regions == 0; /* their users are charged, and wait themselves */
    quick = quick && member->killed_for != KILL_LOAD_TIMEOUT;
    quick = quick && blame != DEATH_FRUITFUL; /* it has served its purpose */
    member->quick_deaths = quick ? member->quick_deaths + 1 : 0;
    counter_add(member_pool(member)->counters, STAGE_RESTARTS, 1);
    worker_pool_on_death(member, blame, why);
}

/* Returns whether the start that ends all is to be made once more, only to name the calls that the
 * sandbox refused. */
static bool
is_to_name(struct pool_member *member)
{
    if (!member->refused || !member->refused_calls || member->names || member->pools->complete_once)
        return false;
    member->names = true;
    return true;
}

void
pool_member_on_death(void *context)
{
    struct pool_member *member = context;
    struct worker_pools *pools = member->pools;
    int wait_status = 0;
    if (waitpid(member->process.pid, &wait_status, WNOHANG) != member->process.pid)
        return;
    if (member->control_watch != NULL && member->state == MEMBER_STARTING && !member->refused)
        pool_member_on_control(member); /* its last messages, if the death was seen before them */
    member->died_ns = clock_now_ns();   /* not before: they may say that it is ready */
    spawn_kill_orphans();
    char why[CAUSE_BYTES];
    describe_end(member, wait_status, why, sizeof(why));
    bool was_ready = member->state == MEMBER_READY;
    pid_t pid = member->process.pid;
    struct catalog *catalog = pools->pipeline->catalog;
    member->ended_outside = ended_from_outside(wait_status, member->killed_for);
    member->died_loading = pools->models->on_death(catalog, member);
    forget_process(member);
    struct held_requests requests = {.member = member};
    uint32_t held = repair(member, &requests);
    uint32_t client_regions = pool_member_left_regions(member);
    if (held != 0)
        client_regions = 0; /* a request of the lane may have caused it */
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == HANDSHAKE_EXIT_CORRUPT)
        lane_report_corrupt(pools->lane, "a worker found it so");
    if (pools->stopping) {
        if (worker_pools_gone(pools))
            pipeline_on_workers_stopped(pools->pipeline, pools->lane);
        return;
    }
    log_warn("worker_died pipeline=%s stage=%s worker=%u pid=%d why=\"%s\" held=%u "
             "requests=\"%s\"",
             pools->lane->info.name, stage_config(pools, member->stage)->name, member->index,
             (int)pid, why, held, requests.named);
    if (!was_ready && is_to_name(member)) {
        pool_member_start(member);
        pools->models->on_left(catalog, member);
        return;
    }
    if (!was_ready && member->killed_for != KILL_QUARANTINE)
        on_failed_start(member, why);
    member->names = false;
    enum death_blame blame =
        client_regions != 0 ? DEATH_BLAMELESS : blame_for(member, wait_status, was_ready, held);
    replace(member, blame, was_ready, client_regions, why);
    pools->models->on_left(catalog, member);
}
