/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/roster.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline.h"
#include "coordinator/spawn.h"
#include "shm/former.h"
#include "shm/repair.h"

enum seat_state {
    SEAT_EMPTY,    /* no process, none to come */
    SEAT_BACKOFF,  /* no process; the timer will start one */
    SEAT_STARTING, /* a process that has not said that it is ready */
    SEAT_READY,
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
    struct loop_timer *timer; /* back-off, or the start time-out */
    bool start_timed_out;
    bool refused; /* it said handshake_failed: `refusal` is its own text */
    struct error refusal;
    int64_t ready_ns;
    uint32_t quick_deaths; /* in a row */
    _Atomic uint64_t *counters;
};

struct roster {
    struct pipeline *pipeline;
    struct lane *lane;
    struct seat *seats;
    uint32_t seat_count;
    bool complete_once; /* every stage had a ready worker */
    bool stopping;
    struct loop_timer *kill_timer;
    uint32_t abilities[STAGES_MAX]; /* as the stage's modelet declared them */
};

static void seat_start(struct seat *seat);

static const struct config_stage *
seat_config(const struct seat *seat)
{
    return &seat->roster->pipeline->options.pipeline->stages[seat->stage];
}

static struct seat *
first_seat(const struct roster *roster, uint32_t stage)
{
    return &roster->seats[roster->lane->region.layout.first_worker[stage]];
}

uint32_t
roster_live(const struct roster *roster, uint32_t stage)
{
    uint32_t live = 0;
    struct seat *seats = first_seat(roster, stage);
    for (uint32_t i = 0; i < roster->lane->region.layout.plan.worker_counts[stage]; i++)
        live += seats[i].state == SEAT_READY;
    return live;
}

/* ---- starting ---- */

static void
copy_text(char *to, size_t room, const char *from)
{
    snprintf(to, room, "%s", from == NULL ? "" : from);
}

static void
fill_start(const struct seat *seat, struct handshake_start *start)
{
    const struct pipeline_options *options = &seat->roster->pipeline->options;
    const struct config_stage *stage = seat_config(seat);
    *start = (struct handshake_start){
        .header = {.version = HANDSHAKE_VERSION, .type = HANDSHAKE_START, .bytes = sizeof(*start)},
        .coordinator_pid = getpid(),
        .cpu = options->pin && stage->cpus != NULL ? stage->cpus[seat->index] : CPU_NONE,
        .party = seat->party,
        .stage_index = seat->stage,
        .worker_index = seat->index,
        .worker_count = stage->worker_count,
        .counters_scope = options->worker_scopes[seat->stage][seat->index],
        .batch_size = stage->batch_size,
        .batch_wait_ns = stage->batch_wait_ns,
        .spin_limit_ns = options->pipeline->spin_ns,
        .halvings_max = stage->halvings_max,
        .log_level = options->log_level,
        .param_count = stage->param_count,
    };
    copy_text(start->pipeline, sizeof(start->pipeline), options->pipeline->name);
    copy_text(start->stage, sizeof(start->stage), stage->name);
    copy_text(start->modelet_path, sizeof(start->modelet_path), stage->modelet);
    copy_text(start->directory, sizeof(start->directory), options->config->directory);
    copy_text(start->model_id, sizeof(start->model_id), stage->model_id);
    copy_text(start->model_path, sizeof(start->model_path), stage->model_path);
    copy_text(start->model_key, sizeof(start->model_key), stage->model_key);
    for (uint32_t i = 0; i < stage->param_count && i < HANDSHAKE_PARAMS_MAX; i++) {
        copy_text(start->params[i].name, sizeof(start->params[i].name), stage->params[i].name);
        copy_text(start->params[i].value, sizeof(start->params[i].value), stage->params[i].value);
    }
}

/* How long the next start of this seat is to wait. */
static int64_t
seat_wait_ns(const struct seat *seat)
{
    if (seat->quick_deaths <= QUICK_DEATHS_MAX)
        return 0;
    int64_t wait_ms = BACKOFF_FIRST_MS;
    for (uint32_t i = QUICK_DEATHS_MAX + 1; i < seat->quick_deaths && wait_ms < BACKOFF_MAX_MS; i++)
        wait_ms *= 2;
    return (wait_ms < BACKOFF_MAX_MS ? wait_ms : BACKOFF_MAX_MS) * (int64_t)NS_PER_MS;
}

static void
seat_back_off(struct seat *seat)
{
    seat->state = SEAT_BACKOFF;
    loop_timer_set(seat->timer, seat_wait_ns(seat));
}

/* ---- readiness ---- */

static void
set_specs(struct oip_spec *specs, const struct handshake_tensor *tensors, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        memcpy(specs[i].name, tensors[i].name, sizeof(specs[i].name));
        specs[i].datatype = tensors[i].datatype;
        specs[i].rank = tensors[i].rank;
        memcpy(specs[i].shape, tensors[i].shape, sizeof(specs[i].shape));
    }
}

/* What the pipeline takes and gives, from the first stage's and the last stage's first worker. Only
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
    if (seat->stage == 0) {
        set_specs(lane->specs, ready->inputs, ready->input_count);
        lane->info.inputs = lane->specs;
        lane->info.input_count = ready->input_count;
    }
    if (seat->stage + 1 == lane->region.layout.plan.stage_count) {
        set_specs(lane->specs + SHOAL_TENSORS_MAX, ready->outputs, ready->output_count);
        lane->info.outputs = lane->specs + SHOAL_TENSORS_MAX;
        lane->info.output_count = ready->output_count;
    }
    if (ready->platform[0] != '\0')
        copy_text(lane->platform, sizeof(lane->platform), ready->platform);
}

static void
roster_check_complete(struct roster *roster)
{
    for (uint32_t stage = 0; stage < roster->lane->region.layout.plan.stage_count; stage++) {
        struct seat *seats = first_seat(roster, stage);
        for (uint32_t i = 0; i < roster->lane->region.layout.plan.worker_counts[stage]; i++)
            if (seats[i].state != SEAT_READY)
                return;
    }
    if (!roster->complete_once) {
        roster->complete_once = true;
        pipeline_on_lane_ready(roster->pipeline, roster->lane);
    }
}

static void
seat_on_ready(struct seat *seat, const struct handshake_ready *ready)
{
    struct error error = ERROR_NONE;
    if (handshake_ready_validate(ready, &error) != STATUS_OK) {
        log_error("worker_lied pipeline=%s stage=%s worker=%u pid=%d error=\"%s\"",
                  seat->roster->lane->info.name, seat_config(seat)->name, seat->index,
                  (int)seat->process.pid, error.text);
        kill(seat->process.pid, SIGKILL);
        return;
    }
    seat->state = SEAT_READY;
    seat->ready_ns = clock_now_ns();
    loop_timer_clear(seat->timer);
    seat->roster->abilities[seat->stage] = ready->abilities;
    learn_model_info(seat, ready);
    log_info("worker_ready pipeline=%s stage=%s worker=%u pid=%d modelet=%s cpu=%d",
             seat->roster->lane->info.name, seat_config(seat)->name, seat->index,
             (int)seat->process.pid, ready->name,
             seat->roster->pipeline->options.pin && seat_config(seat)->cpus != NULL
                 ? seat_config(seat)->cpus[seat->index]
                 : CPU_NONE);
    atomic_fetch_and(&seat->roster->lane->dead_stages, ~(UINT64_C(1) << seat->stage));
    stage_notify(&seat->roster->lane->region, seat->stage);
    roster_check_complete(seat->roster);
    pipeline_on_stages_changed(seat->roster->pipeline);
}

union handshake_message {
    struct handshake_header header;
    struct handshake_ready ready;
    struct handshake_failed failed;
};

/* The worker has said something, or its end of the socket is closed. */
static void
seat_on_control(void *context)
{
    struct seat *seat = context;
    union handshake_message *message = malloc(sizeof(*message));
    CHECK(message != NULL);
    struct error error = ERROR_NONE;
    enum status status =
        handshake_receive(seat->process.control, message, sizeof(*message), &error);
    if (status == STATUS_OK && seat->state == SEAT_STARTING &&
        message->header.type == HANDSHAKE_READY &&
        message->header.bytes == sizeof(message->ready)) {
        seat_on_ready(seat, &message->ready);
    } else if (status == STATUS_OK && seat->state == SEAT_STARTING &&
               message->header.type == HANDSHAKE_FAILED &&
               message->header.bytes == sizeof(message->failed)) {
        message->failed.text[sizeof(message->failed.text) - 1] = '\0';
        seat->refused = true;
        error_set(&seat->refusal, STATUS_FAILED_PRECONDITION, "%s", message->failed.text);
    } else {
        /* closed, or nonsense: its death, which follows or is brought about, says the rest */
        loop_watch_remove(seat->control_watch);
        seat->control_watch = NULL;
        if (status != STATUS_UNAVAILABLE)
            kill(seat->process.pid, SIGKILL);
    }
    free(message);
}

/* ---- death ---- */

static enum repair_verdict
judge_request(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    struct seat *seat = context;
    struct roster *roster = seat->roster;
    struct request *request = lane_request(roster->lane, ticket);
    if (request == NULL)
        return REPAIR_CORRUPT;
    const struct config_stage *config = &roster->pipeline->options.pipeline->stages[stage];
    request->deaths++;
    if (roster->abilities[stage] & SHOAL_CHANGES_INPUTS) {
        error_set(
            error, STATUS_UNAVAILABLE,
            "a worker died while it ran this request in stage \"%s\", whose modelet changes its "
            "inputs: it can't be run again",
            config->name);
        return REPAIR_FAIL;
    }
    if (request->deaths >= config->attempts_max) {
        counter_add_shared(roster->pipeline->counters, PIPELINE_POISON, 1);
        error_set(
            error, STATUS_UNAVAILABLE,
            "%u workers died while they ran this request, the last in stage \"%s\" (modelet %s)",
            request->deaths, config->name, strrchr(config->modelet, '/') + 1);
        return REPAIR_FAIL;
    }
    counter_add_shared(roster->pipeline->counters, PIPELINE_RUN_AGAIN, 1);
    return REPAIR_RUN_AGAIN;
}

static void
seat_repair(struct seat *seat)
{
    struct lane *lane = seat->roster->lane;
    if (atomic_load(&lane->state) == LANE_CONDEMNED)
        return;
    struct repair_judge judge = {judge_request, seat};
    struct repair_report report;
    struct error error = ERROR_NONE;
    int64_t began_ns = clock_now_ns();
    if (region_repair(&lane->region, seat->party, PARTY_COORDINATOR, seat->stage, seat->index,
                      &judge, &report, &error) != STATUS_OK) {
        lane_report_corrupt(lane, error.text);
        return;
    }
    log_info("worker_reclaimed pipeline=%s stage=%s worker=%u run_again=%u failed=%u pushed=%u "
             "blocks=%u us=%lld",
             lane->info.name, seat_config(seat)->name, seat->index, report.run_again, report.failed,
             report.pushed, report.blocks_released,
             (long long)((clock_now_ns() - began_ns) / NS_PER_US));
}

static void
describe_end(int wait_status, char *text, size_t room)
{
    if (WIFSIGNALED(wait_status))
        snprintf(text, room, "killed by signal %d (%s)", WTERMSIG(wait_status),
                 strsignal(WTERMSIG(wait_status)));
    else
        snprintf(text, room, "ended with exit code %d", WEXITSTATUS(wait_status));
}

static bool
roster_gone(const struct roster *roster)
{
    for (uint32_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].process.pid > 0)
            return false;
    return true;
}

/* Whether a stage is left without anybody, and nobody is about to be ready. */
static void
stage_check_dead(struct seat *seat, const char *why)
{
    struct roster *roster = seat->roster;
    struct lane *lane = roster->lane;
    struct seat *seats = first_seat(roster, seat->stage);
    for (uint32_t i = 0; i < lane->region.layout.plan.worker_counts[seat->stage]; i++)
        if (seats[i].state == SEAT_READY || seats[i].state == SEAT_STARTING ||
            (seats[i].state == SEAT_BACKOFF && seat_wait_ns(&seats[i]) == 0))
            return;
    atomic_fetch_or(&lane->dead_stages, UINT64_C(1) << seat->stage);
    char text[SLOT_TEXT_BYTES];
    snprintf(text, sizeof(text), "stage \"%s\" has no worker: the last one was %s",
             seat_config(seat)->name, why);
    lane_fail_stage(lane, seat->stage, text);
    pipeline_on_stages_changed(roster->pipeline);
}

static void
seat_forget_process(struct seat *seat)
{
    loop_watch_remove(seat->death_watch);
    loop_watch_remove(seat->control_watch);
    seat->death_watch = NULL;
    seat->control_watch = NULL;
    loop_timer_clear(seat->timer);
    close(seat->process.pidfd);
    close(seat->process.control);
    seat->process = (struct spawned){.pid = -1, .pidfd = -1, .control = -1};
    counter_set(seat->counters, WORKER_PID, 0);
}

/* Before a stage has ever been complete a failure is the operator's to mend: it ends the start. */
static void
seat_on_failed_start(struct seat *seat, const char *why)
{
    struct error error = ERROR_NONE;
    if (seat->refused)
        error = seat->refusal;
    else if (seat->start_timed_out)
        error_set(&error, STATUS_DEADLINE_EXCEEDED,
                  "worker was not ready within %lld ms (start_timeout_ms)",
                  (long long)(seat_config(seat)->start_timeout_ns / NS_PER_MS));
    else
        error_set(&error, STATUS_UNAVAILABLE, "worker was %s before it was ready", why);
    error_prefix(&error, "stage \"%s\"", seat_config(seat)->name);
    log_error("worker_failed pipeline=%s stage=%s worker=%u error=\"%s\"",
              seat->roster->lane->info.name, seat_config(seat)->name, seat->index, error.text);
    if (!seat->roster->complete_once)
        pipeline_on_start_failed(seat->roster->pipeline, seat->roster->lane, &error);
}

static void
seat_on_death(void *context)
{
    struct seat *seat = context;
    struct roster *roster = seat->roster;
    int wait_status = 0;
    if (waitpid(seat->process.pid, &wait_status, WNOHANG) != seat->process.pid)
        return;
    char why[96];
    describe_end(wait_status, why, sizeof(why));
    if (seat->control_watch != NULL && seat->state == SEAT_STARTING && !seat->refused)
        seat_on_control(seat); /* its last words, if the death was seen before them */
    bool was_starting = seat->state == SEAT_STARTING;
    pid_t pid = seat->process.pid;
    seat_forget_process(seat);
    seat->state = SEAT_EMPTY;
    seat_repair(seat);
    if (WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == HANDSHAKE_EXIT_CORRUPT)
        lane_report_corrupt(roster->lane, "a worker found it so");
    if (roster->stopping) {
        if (roster_gone(roster))
            pipeline_on_roster_stopped(roster->pipeline, roster->lane);
        return;
    }
    log_warn("worker_died pipeline=%s stage=%s worker=%u pid=%d why=\"%s\"",
             roster->lane->info.name, seat_config(seat)->name, seat->index, (int)pid, why);
    if (was_starting)
        seat_on_failed_start(seat, why);
    if (roster->stopping) /* the failed start has stopped us */
        return;
    bool quick =
        was_starting || clock_now_ns() - seat->ready_ns < QUICK_DEATH_MS * (int64_t)NS_PER_MS;
    seat->quick_deaths = quick ? seat->quick_deaths + 1 : 0;
    counter_add_shared(counters_values(roster->pipeline->options.counters,
                                       roster->pipeline->options.stage_scopes[seat->stage]),
                       STAGE_RESTARTS, 1);
    seat_back_off(seat);
    stage_check_dead(seat, why);
}

static void
seat_on_timer(void *context)
{
    struct seat *seat = context;
    if (seat->state == SEAT_BACKOFF) {
        seat_start(seat);
    } else if (seat->state == SEAT_STARTING) {
        seat->start_timed_out = true;
        kill(seat->process.pid, SIGKILL);
    }
}

static void
seat_start(struct seat *seat)
{
    struct roster *roster = seat->roster;
    struct lane *lane = roster->lane;
    if (lane->party_next > PARTY_MAX) { /* parties are never used twice in a region */
        lane_report_corrupt(lane, "all party numbers are used up");
        return;
    }
    seat->party = (uint16_t)lane->party_next++;
    seat->refused = false;
    seat->start_timed_out = false;
    struct shm_worker *worker = region_worker(&lane->region, seat->stage, seat->index);
    atomic_store(&worker->run_began_ns, 0);
    atomic_store(&worker->party, seat->party);
    struct handshake_start *start = malloc(sizeof(*start));
    CHECK(start != NULL);
    fill_start(seat, start);
    struct error error = ERROR_NONE;
    enum status status =
        spawn_worker(roster->pipeline->options.worker_program, lane->region.fd,
                     roster->pipeline->options.counters->fd, start, &seat->process, &error);
    free(start);
    if (status != STATUS_OK) {
        seat->refused = true;
        seat->refusal = error;
        seat->quick_deaths++;
        seat_on_failed_start(seat, "not started");
        if (!roster->stopping)
            seat_back_off(seat);
        return;
    }
    atomic_store(&worker->pid, seat->process.pid);
    counter_set(seat->counters, WORKER_PID, (uint64_t)seat->process.pid);
    seat->state = SEAT_STARTING;
    seat->death_watch =
        loop_watch_add(roster->pipeline->options.loop, seat->process.pidfd, seat_on_death, seat);
    seat->control_watch = loop_watch_add(roster->pipeline->options.loop, seat->process.control,
                                         seat_on_control, seat);
    loop_timer_set(seat->timer, seat_config(seat)->start_timeout_ns);
}

/* ---- the whole ---- */

static void
roster_on_kill_timer(void *context)
{
    struct roster *roster = context;
    for (uint32_t i = 0; i < roster->seat_count; i++)
        if (roster->seats[i].process.pid > 0)
            kill(roster->seats[i].process.pid, SIGKILL);
}

enum status
roster_create(struct pipeline *pipeline, struct lane *lane, struct roster **created,
              struct error *error)
{
    (void)error;
    const struct region_layout *layout = &lane->region.layout;
    struct roster *roster = calloc(1, sizeof(*roster));
    CHECK(roster != NULL);
    roster->pipeline = pipeline;
    roster->lane = lane;
    roster->seat_count = layout->worker_total;
    roster->seats = calloc(roster->seat_count, sizeof(*roster->seats));
    CHECK(roster->seats != NULL);
    roster->kill_timer = loop_timer_create(pipeline->options.loop, roster_on_kill_timer, roster);
    *created = roster;
    for (uint32_t stage = 0; stage < layout->plan.stage_count; stage++) {
        for (uint32_t i = 0; i < layout->plan.worker_counts[stage]; i++) {
            struct seat *seat = first_seat(roster, stage) + i;
            *seat = (struct seat){.roster = roster, .stage = stage, .index = i};
            seat->process = (struct spawned){.pid = -1, .pidfd = -1, .control = -1};
            seat->timer = loop_timer_create(pipeline->options.loop, seat_on_timer, seat);
            seat->counters = counters_values(pipeline->options.counters,
                                             pipeline->options.worker_scopes[stage][i]);
        }
    }
    for (uint32_t i = 0; i < roster->seat_count && !roster->stopping; i++)
        seat_start(&roster->seats[i]);
    return STATUS_OK;
}

void
roster_destroy(struct roster *roster)
{
    CHECK(roster_gone(roster));
    for (uint32_t i = 0; i < roster->seat_count; i++)
        loop_timer_destroy(roster->seats[i].timer);
    loop_timer_destroy(roster->kill_timer);
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
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        struct seat *seat = &roster->seats[i];
        if (seat->process.pid > 0)
            kill(seat->process.pid, signal_number);
        else
            seat->state = SEAT_EMPTY;
        if (seat->process.pid <= 0)
            loop_timer_clear(seat->timer);
    }
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

struct shm_worker *
roster_find(const struct roster *roster, uint16_t party, uint32_t *stage)
{
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        const struct seat *seat = &roster->seats[i];
        if (seat->process.pid <= 0 || seat->party != party)
            continue;
        *stage = seat->stage;
        return region_worker(&roster->lane->region, seat->stage, seat->index);
    }
    return NULL;
}

bool
roster_all(const struct roster *roster, uint32_t stage,
           bool (*is)(const struct shm_worker *worker, int64_t since_ns), int64_t since_ns)
{
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        const struct seat *seat = &roster->seats[i];
        if (seat->stage == stage && seat->process.pid > 0 &&
            !is(region_worker(&roster->lane->region, stage, seat->index), since_ns))
            return false;
    }
    return true;
}

void
roster_publish(struct roster *roster)
{
    struct lane *lane = roster->lane;
    const struct pipeline_options *options = &roster->pipeline->options;
    for (uint32_t stage = 0; stage < lane->region.layout.plan.stage_count; stage++) {
        struct shm_ring ring = region_slot_ring(&lane->region, (uint8_t)stage);
        _Atomic uint64_t *values = counters_values(options->counters, options->stage_scopes[stage]);
        counter_set(values, STAGE_DEPTH, ring_depth(&ring));
        counter_set(values, STAGE_WORKERS_LIVE, roster_live(roster, stage));
        counter_set(values, STAGE_WORKERS_WANTED, lane->region.layout.plan.worker_counts[stage]);
    }
    for (uint32_t i = 0; i < roster->seat_count; i++) {
        const struct seat *seat = &roster->seats[i];
        struct shm_worker *worker = region_worker(&lane->region, seat->stage, seat->index);
        counter_set(seat->counters, WORKER_HEARTBEAT,
                    (uint64_t)atomic_load_explicit(&worker->heartbeat_ns, memory_order_relaxed));
    }
}
