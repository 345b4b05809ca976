/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One seat: a process is started in it, says that it is ready or why not, and after its death
 * (death.c) the next one is started, at once or after a while.
 */
#include "coordinator/workers/seat.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/catalog.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/idle_class.h"
#include "shm/handshake.h"
#include "shm/sandbox.h"

/* ---- starting ---- */

enum { SCARCE_MS = 100 };

static void
copy_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from == NULL ? "" : from);
}

static enum sandbox_need
sandbox_need(const struct config *config)
{
    bool required = config->sandbox != NULL && strcmp(config->sandbox, "required") == 0;
    return required ? SANDBOX_REQUIRED : SANDBOX_BEST_EFFORT;
}

static void
fill_start(const struct seat *seat, struct handshake_start *start)
{
    const struct pipeline_options *options = &seat->roster->pipeline->options;
    const struct generation *generation = seat->roster->lane->generation;
    const struct config_stage *stage = stage_config(seat->roster, seat->stage);
    *start = (struct handshake_start){
        .header = {.version = HANDSHAKE_VERSION, .type = HANDSHAKE_START, .bytes = sizeof(*start)},
        .coordinator_pid = getpid(),
        .cpu = options->pin && stage->cpus != NULL ? stage->cpus[seat->index] : CPU_NONE,
        .party = seat->party,
        .stage_index = seat->stage,
        .worker_index = seat->index,
        .worker_count = stage->worker_count,
        .counters_table = counters_table_hash(),
        .counters_offset =
            options->counters->scopes[generation->worker_scopes[seat->stage][seat->index]]
                .values_offset,
        .batch_size = stage->batch_size,
        .wait_adaptive = stage->batch_wait != NULL && strcmp(stage->batch_wait, "adaptive") == 0,
        .batch_wait_ns = stage->batch_wait_ns,
        .spin_limit_ns = generation->config->spin_ns,
        .halvings_max = stage->halvings_max,
        .log_level = options->log_level,
        .sandbox_allow = stage->sandbox_allow,
        .sandbox_need = sandbox_need(&options->source->config), /* the node's */
        .param_count = stage->param_count,
        .serves_models = seat->roster->pipeline->catalog != NULL,
        .loads_idle = seat->roster->pipeline->catalog != NULL && idle_class_can_be_left(),
    };
    copy_text(start->models_root, sizeof(start->models_root),
              catalog_root(seat->roster->pipeline->catalog));
    copy_text(start->pipeline, sizeof(start->pipeline), generation->config->name);
    copy_text(start->stage, sizeof(start->stage), stage->name);
    copy_text(start->modelet_path, sizeof(start->modelet_path), stage->modelet);
    copy_text(start->directory, sizeof(start->directory), generation->source->config.directory);
    copy_text(start->model_id, sizeof(start->model_id), stage->model_id);
    copy_text(start->model_path, sizeof(start->model_path), stage->model_path);
    copy_text(start->model_key, sizeof(start->model_key), stage->model_key);
    for (uint32_t i = 0; i < stage->param_count && i < HANDSHAKE_PARAMS_MAX; i++) {
        copy_text(start->params[i].name, sizeof(start->params[i].name), stage->params[i].name);
        copy_text(start->params[i].value, sizeof(start->params[i].value), stage->params[i].value);
    }
}

/* Before a generation has served, its start fails of what is scarce, and says so. */
static bool
may_wait(const struct roster *roster)
{
    const struct pipeline *pipeline = roster->pipeline;
    return roster->complete_once || (pipeline->started_once && roster->lane != pipeline->incoming);
}

/* Descriptors, processes or memory are scarce: nobody has died, and nothing is known against the
 * modelet. Tried again until there are enough. */
static void
postpone(struct seat *seat, const struct error *error)
{
    if (!seat->scarce)
        log_warn("worker_start_postponed pipeline=%s stage=%s worker=%u error=\"%s\"",
                 seat->roster->lane->info.name, stage_config(seat->roster, seat->stage)->name,
                 seat->index, error->text);
    seat->scarce = true;
    seat->state = SEAT_BACKOFF;
    counter_add(seat_staff(seat)->counters, STAGE_STARTS_POSTPONED, 1);
    loop_timer_set(seat->timer, SCARCE_MS * (int64_t)NS_PER_MS);
    staff_on_postponed(seat, error);
}

static struct worker_log *
start_log(struct seat *seat)
{
    const struct pipeline_options *options = &seat->roster->pipeline->options;
    struct worker_log_options log = {
        .loop = options->loop,
        .fd = seat->process.words,
        .bytes_per_s = options->source->config.worker_log_bytes_per_s,
        .counters = seat_staff(seat)->counters,
    };
    snprintf(log.prefix, sizeof(log.prefix), "pipeline=%s stage=%s worker=%u pid=%d",
             seat->roster->lane->info.name, stage_config(seat->roster, seat->stage)->name,
             seat->index, (int)seat->process.pid);
    return worker_log_create(&log);
}

void
seat_start(struct seat *seat)
{
    struct roster *roster = seat->roster;
    struct lane *lane = roster->lane;
    if (lane->party_next > PARTY_MAX) { /* parties are never used twice in a region */
        lane_report_corrupt(lane, "all party numbers are used up");
        return;
    }
    struct error error = ERROR_NONE;
    if (region_check_header(&lane->region, &error) != STATUS_OK) {
        lane_report_corrupt(lane, error.text); /* no worker could attach any more */
        return;
    }
    seat->party = (uint16_t)lane->party_next++;
    seat->refused = false;
    seat->killed_for = KILL_NONE;
    seat->died_loading = false;
    seat->run_watch = (struct run_watch){0};
    seat->beat_watch = (struct beat_watch){0};
    struct shm_worker *worker = region_worker(&lane->region, seat->stage, seat->index);
    atomic_store(&worker->run_began_ns, 0);
    atomic_store(&worker->run_guests, 0);
    atomic_store(&worker->party, seat->party);
    catalog_on_seat_start(roster->pipeline->catalog, seat);
    struct handshake_start *start = malloc(sizeof(*start));
    CHECK(start != NULL);
    fill_start(seat, start);
    enum spawn_failure failure;
    enum status status = spawn_worker(roster->pipeline->options.worker_program, lane->region.fd,
                                      roster->pipeline->options.counters->fd, start,
                                      stage_config(roster, seat->stage)->variables, &seat->process,
                                      &failure, &error);
    free(start);
    if (status != STATUS_OK) {
        if (failure == SPAWN_SCARCE && may_wait(roster))
            postpone(seat, &error);
        else
            seat_on_spawn_failed(seat, &error);
        return;
    }
    seat->scarce = false;
    atomic_store(&worker->pid, seat->process.pid);
    counter_set(seat->counters, WORKER_PID, (uint64_t)seat->process.pid);
    seat->state = SEAT_STARTING;
    seat->death_watch =
        loop_watch_add(roster->pipeline->options.loop, seat->process.pidfd, seat_on_death, seat);
    seat->control_watch = loop_watch_add(roster->pipeline->options.loop, seat->process.control,
                                         seat_on_control, seat);
    seat->log = start_log(seat);
    loop_timer_set(seat->timer, stage_config(roster, seat->stage)->start_timeout_ns);
}

void
seat_kill(struct seat *seat, enum seat_kill why)
{
    if (seat->killed_for == KILL_NONE)
        seat->killed_for = why;
    spawned_signal(&seat->process, SIGKILL);
}

/* ---- the next one ---- */

int64_t
seat_wait_ns(const struct seat *seat)
{
    if (seat->quick_deaths <= QUICK_DEATHS_MAX)
        return 0;
    int64_t wait_ms = BACKOFF_FIRST_MS;
    for (uint32_t i = QUICK_DEATHS_MAX + 1; i < seat->quick_deaths && wait_ms < BACKOFF_MAX_MS; i++)
        wait_ms *= 2;
    return (wait_ms < BACKOFF_MAX_MS ? wait_ms : BACKOFF_MAX_MS) * (int64_t)NS_PER_MS;
}

void
seat_back_off(struct seat *seat)
{
    seat->state = SEAT_BACKOFF;
    loop_timer_set(seat->timer, seat_wait_ns(seat));
}

static void
seat_on_timer(void *context)
{
    struct seat *seat = context;
    if (seat->state == SEAT_BACKOFF) {
        seat_start(seat);
    } else if (seat->state == SEAT_STARTING) {
        seat_kill(seat, KILL_START_TIMEOUT);
    }
}

void
seat_init(struct seat *seat, struct roster *roster, uint32_t stage, uint32_t index)
{
    const struct pipeline_options *options = &roster->pipeline->options;
    *seat = (struct seat){.roster = roster, .stage = stage, .index = index};
    seat->process = SPAWNED_NONE;
    seat->timer = loop_timer_create(options->loop, seat_on_timer, seat);
    seat->counters =
        counters_values(options->counters, roster->lane->generation->worker_scopes[stage][index]);
}

/* ---- readiness ---- */

static void
set_specs(struct handshake_tensor *specs, const struct handshake_tensor *tensors, uint32_t count)
{
    memcpy(specs, tensors, count * sizeof(specs[0]));
}

/* The tensors of the pipeline, from the first stage's and the last stage's first worker. Only
 * before the lane serves: front threads read it without a lock. */
static void
learn_model_info(struct seat *seat, const struct handshake_ready *ready)
{
    struct lane *lane = seat->roster->lane;
    if (atomic_load(&lane->state) != LANE_STARTING)
        return;
    if (lane->specs == NULL) {
        lane->specs = calloc(2 * (size_t)SHOAL_TENSORS_MAX, sizeof(*lane->specs));
        CHECK(lane->specs != NULL);
    }
    /* Of a stage that says nothing, what is known stays: a method's pipeline takes messages. */
    if (seat->stage == 0 && ready->input_count > 0) {
        set_specs(lane->specs, ready->inputs, ready->input_count);
        lane->info.inputs = lane->specs;
        lane->info.input_count = ready->input_count;
    }
    if (seat->stage + 1 == lane->region.layout.plan.stage_count && ready->output_count > 0) {
        set_specs(lane->specs + SHOAL_TENSORS_MAX, ready->outputs, ready->output_count);
        lane->info.outputs = lane->specs + SHOAL_TENSORS_MAX;
        lane->info.output_count = ready->output_count;
    }
    if (ready->platform[0] != '\0')
        copy_text(lane->platform, sizeof(lane->platform), ready->platform);
}

void
roster_check_complete(struct roster *roster)
{
    for (uint32_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].state != SEAT_READY)
            return;
    if (roster->complete_once || roster->stopping)
        return;
    struct error error = ERROR_NONE;
    switch (catalog_lane_complete(roster->pipeline->catalog, roster, &error)) {
    case STATUS_OK:
        roster->complete_once = true;
        pipeline_on_lane_ready(roster->pipeline, roster->lane);
        return;
    case STATUS_UNAVAILABLE: return;
    default: pipeline_on_start_failed(roster->pipeline, roster->lane, &error);
    }
}

/* How long the seat had nobody who works; 0: the first one in it. */
static int64_t
note_recovery(struct seat *seat)
{
    if (seat->died_ns == 0)
        return 0;
    int64_t took_ns = seat->ready_ns - seat->died_ns;
    seat->died_ns = 0;
    histogram_record(seat_staff(seat)->counters, STAGE_RECOVERY, (uint64_t)took_ns);
    return took_ns / NS_PER_US;
}

static void
seat_on_ready(struct seat *seat, const struct handshake_ready *ready)
{
    const struct config_stage *config = stage_config(seat->roster, seat->stage);
    struct error error = ERROR_NONE;
    if (handshake_ready_validate(ready, &error) != STATUS_OK) {
        log_error("worker_lied pipeline=%s stage=%s worker=%u pid=%d error=\"%s\"",
                  seat->roster->lane->info.name, config->name, seat->index, (int)seat->process.pid,
                  error.text);
        seat_kill(seat, KILL_NONSENSE);
        return;
    }
    seat->state = SEAT_READY;
    seat->ready_ns = clock_now_ns();
    seat->finished = lane_finished(seat->roster->lane, seat->stage);
    seat->judged_ns = seat->died_ns != 0 ? seat->died_ns : seat->ready_ns;
    int64_t recovery_us = note_recovery(seat);
    loop_timer_clear(seat->timer);
    seat_staff(seat)->abilities = ready->abilities;
    seat_staff(seat)->functions = ready->functions;
    learn_model_info(seat, ready);
    bool pinned = seat->roster->pipeline->options.pin && config->cpus != NULL;
    log_info(
        "worker_ready pipeline=%s stage=%s worker=%u pid=%d modelet=%s cpu=%d recovery_us=%lld",
        seat->roster->lane->info.name, config->name, seat->index, (int)seat->process.pid,
        ready->name, pinned ? config->cpus[seat->index] : CPU_NONE, (long long)recovery_us);
    staff_on_ready(seat);
    catalog_on_seat_ready(seat->roster->pipeline->catalog, seat);
    seat_tell_guests(seat); /* not before: whoever starts would hold up the end of a guest */
    roster_check_complete(seat->roster);
    pipeline_on_stages_changed(seat->roster->pipeline);
}

union handshake_message {
    struct handshake_header header;
    struct handshake_ready ready;
    struct handshake_failed failed;
    struct handshake_guest guest;
};

/* A worker that serves says something of a guest, and it can be. */
static bool
says_of_guest(struct seat *seat, enum status status, union handshake_message *message)
{
    if (status != STATUS_OK || seat->state != SEAT_READY || message->header.type != HANDSHAKE_GUEST)
        return false;
    message->guest.text[sizeof(message->guest.text) - 1] = '\0';
    return seat_hears_of_guest(seat, &message->guest);
}

void
seat_on_control(void *context)
{
    struct seat *seat = context;
    union handshake_message *message = malloc(sizeof(*message));
    CHECK(message != NULL);
    struct error error = ERROR_NONE;
    enum status status =
        handshake_receive(seat->process.control, message, sizeof(*message), &error);
    if (status == STATUS_DEADLINE_EXCEEDED) { /* it has said nothing, and a child of it may yet */
        free(message);
        return;
    }
    bool heard = status == STATUS_OK && seat->state == SEAT_STARTING &&
                 seat->killed_for == KILL_NONE && !seat->roster->stopping;
    if (heard && message->header.type == HANDSHAKE_READY &&
        message->header.bytes == sizeof(message->ready)) {
        seat_on_ready(seat, &message->ready);
    } else if (heard && message->header.type == HANDSHAKE_FAILED &&
               message->header.bytes == sizeof(message->failed)) {
        message->failed.text[sizeof(message->failed.text) - 1] = '\0';
        seat->refused = true;
        error_set(&seat->refusal, STATUS_FAILED_PRECONDITION, "%s", message->failed.text);
    } else if (says_of_guest(seat, status, message)) {
        /* done */
    } else {
        /* closed, or nonsense: its death, which follows or is brought about, says the rest */
        loop_watch_remove(seat->control_watch);
        seat->control_watch = NULL;
        if (status != STATUS_UNAVAILABLE && !seat->roster->stopping)
            seat_kill(seat, KILL_NONSENSE);
    }
    free(message);
}
