/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One place: a process is started in it and becomes ready or says why not; after its death
 * (death.c) the next one is started, at once or after a back-off.
 */
#include "coordinator/workers/pool_member.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/idle_class.h"
#include "ipc/handshake.h"
#include "ipc/sandbox.h"

enum { SCARCE_MS = 100 };

/* ---- its state ---- */

void
pool_member_enter(struct pool_member *member, enum pool_member_state state)
{
    static const uint32_t from[] = {
        [MEMBER_EMPTY] =
            1u << MEMBER_EMPTY | 1u << MEMBER_BACKOFF | 1u << MEMBER_STARTING | 1u << MEMBER_READY,
        [MEMBER_BACKOFF] = 1u << MEMBER_EMPTY | 1u << MEMBER_BACKOFF,
        [MEMBER_STARTING] = 1u << MEMBER_EMPTY | 1u << MEMBER_BACKOFF,
        [MEMBER_READY] = 1u << MEMBER_STARTING,
    };
    bool has_process = state == MEMBER_STARTING || state == MEMBER_READY;
    CHECK((from[state] & 1u << member->state) != 0 && has_process == (member->process.pid > 0));
    member->state = state;
}

/* ---- starting ---- */

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

static enum handshake_collect
collect_of(const struct config_stage *stage)
{
    if (stage->collect == NULL || strcmp(stage->collect, "refuse") == 0)
        return COLLECT_REFUSE;
    return strcmp(stage->collect, "last") == 0 ? COLLECT_LAST : COLLECT_CONCAT;
}

static void
fill_start(const struct pool_member *member, struct handshake_start *start)
{
    const struct pipeline_options *options = &member->pools->pipeline->options;
    const struct generation *generation = member->pools->lane->generation;
    const struct config_stage *stage = stage_config(member->pools, member->stage);
    *start = (struct handshake_start){
        .header = {.version = HANDSHAKE_VERSION, .type = HANDSHAKE_START, .bytes = sizeof(*start)},
        .coordinator_pid = getpid(),
        .cpu = options->pin && stage->cpus != NULL ? stage->cpus[member->index] : CPU_NONE,
        .owner = member->owner,
        .stage_index = member->stage,
        .worker_index = member->index,
        .worker_count = stage->worker_count,
        .counters_table = counters_table_hash(),
        .counters_offset =
            options->counters->scopes[generation->worker_scopes[member->stage][member->index]]
                .values_offset,
        .batch_size = stage->batch_size,
        .wait_adaptive = stage->batch_wait != NULL && strcmp(stage->batch_wait, "adaptive") == 0,
        .batch_wait_ns = stage->batch_wait_ns,
        .spin_limit_ns = generation->config->spin_ns,
        .halvings_max = stage->halvings_max,
        .log_level = options->log_level,
        .log_format = log_format(),
        .sandbox_allow = stage->sandbox_allow,
        .sandbox_need = sandbox_need(&options->source->config), /* the node's */
        .sandbox_names = member->names,
        .param_count = stage->param_count,
        .collect = collect_of(stage),
        .serves_models = member->pools->pipeline->catalog != NULL,
        .loads_idle = member->pools->pipeline->catalog != NULL && idle_class_can_be_left(),
    };
    copy_text(start->models_root, sizeof(start->models_root),
              member->pools->models->root(member->pools->pipeline->catalog));
    copy_text(start->models_cache, sizeof(start->models_cache),
              member->pools->models->cache(member->pools->pipeline->catalog));
    copy_text(start->pipeline, sizeof(start->pipeline), generation->config->name);
    copy_text(start->stage, sizeof(start->stage), stage->name);
    bool is_script = stage->interpreter != NULL;
    copy_text(start->modelet_path, sizeof(start->modelet_path),
              is_script ? stage->interpreter : stage->modelet);
    copy_text(start->script, sizeof(start->script), is_script ? stage->modelet : NULL);
    copy_text(start->directory, sizeof(start->directory), generation->source->config.directory);
    copy_text(start->model_id, sizeof(start->model_id), stage->model_id);
    copy_text(start->model_path, sizeof(start->model_path), stage->model_path);
    copy_text(start->model_key, sizeof(start->model_key), stage->model_key);
    for (uint32_t i = 0; i < stage->param_count && i < HANDSHAKE_PARAMS_MAX; i++) {
        copy_text(start->params[i].name, sizeof(start->params[i].name), stage->params[i].name);
        copy_text(start->params[i].value, sizeof(start->params[i].value), stage->params[i].value);
    }
}

/* Before a generation has served, a shortage fails its start, with the reason. */
static bool
may_wait(const struct worker_pools *pools)
{
    const struct pipeline *pipeline = pools->pipeline;
    return pools->complete_once || (pipeline->started_once && pools->lane != pipeline->incoming);
}

/* Descriptors, processes or memory are scarce: no worker has died, and the modelet is not to blame.
 * The start is retried until it succeeds. */
static void
postpone(struct pool_member *member, const struct error *error)
{
    if (!member->scarce)
        log_warn("worker_start_postponed pipeline=%s stage=%s worker=%u error=\"%s\"",
                 member->pools->lane->info.name, stage_config(member->pools, member->stage)->name,
                 member->index, error->text);
    member->scarce = true;
    pool_member_enter(member, MEMBER_BACKOFF);
    counter_add(member_pool(member)->counters, STAGE_STARTS_POSTPONED, 1);
    loop_timer_set(member->timer, SCARCE_MS * (int64_t)NS_PER_MS);
    worker_pool_on_postponed(member, error);
}

static struct worker_log *
start_log(struct pool_member *member)
{
    const struct pipeline_options *options = &member->pools->pipeline->options;
    struct worker_log_options log = {
        .loop = options->loop,
        .fd = member->process.words,
        .bytes_per_s = options->source->config.worker_log_bytes_per_s,
        .counters = member_pool(member)->counters,
        .dropped = STAGE_LINES_DROPPED,
        .pipeline = member->pools->lane->info.name,
        .stage = stage_config(member->pools, member->stage)->name,
        .worker = member->index,
        .pid = member->process.pid,
    };
    return worker_log_create(&log);
}

void
pool_member_start(struct pool_member *member)
{
    struct worker_pools *pools = member->pools;
    struct lane *lane = pools->lane;
    loop_check_thread(pools->pipeline->options.loop);
    CHECK(member->state == MEMBER_EMPTY || member->state == MEMBER_BACKOFF);
    CHECK(member->process.pid <= 0 && !pools->stopping);
    CHECK(member_pool(member)->quarantine.state != QUARANTINE_ON);
    if (lane->owner_next > OWNER_MAX) { /* a region never reuses owner numbers */
        lane_report_corrupt(lane, "all owner numbers are used up");
        return;
    }
    struct error error = ERROR_NONE;
    if (region_check_header(&lane->region, &error) != STATUS_OK) {
        lane_report_corrupt(lane, error.text); /* no worker could attach any more */
        return;
    }
    member->owner = (uint16_t)lane->owner_next++;
    member->refused = false;
    member->killed_for = KILL_NONE;
    member->died_loading = false;
    member->run_watch = (struct run_watch){0};
    member->beat_watch = (struct beat_watch){0};
    struct shm_worker *worker = region_worker(&lane->region, member->stage, member->index);
    atomic_store(&worker->run_began_ns, 0);
    atomic_store(&worker->run_client_regions, 0);
    atomic_store(&worker->owner, member->owner);
    pools->models->on_start(pools->pipeline->catalog, member);
    struct handshake_start *start = malloc(sizeof(*start));
    CHECK(start != NULL);
    fill_start(member, start);
    enum spawn_failure failure;
    struct spawn_order order = {
        .program = pools->pipeline->options.worker_program,
        .region_fd = lane->region.fd,
        .counters_fd = pools->pipeline->options.counters->fd,
        .start = start,
        .variables = stage_config(pools, member->stage)->variables,
    };
    enum status status = spawn_worker(&order, &member->process, &failure, &error);
    free(start);
    if (status != STATUS_OK) {
        if (failure == SPAWN_SCARCE && may_wait(pools))
            postpone(member, &error);
        else
            pool_member_on_spawn_failed(member, &error);
        return;
    }
    member->scarce = false;
    atomic_store(&worker->pid, member->process.pid);
    counter_set(member->counters, WORKER_PID, (uint64_t)member->process.pid);
    pool_member_enter(member, MEMBER_STARTING);
    member->death_watch = loop_watch_add(pools->pipeline->options.loop, member->process.pidfd,
                                         pool_member_on_death, member);
    member->control_watch = loop_watch_add(pools->pipeline->options.loop, member->process.control,
                                           pool_member_on_control, member);
    member->log = start_log(member);
    loop_timer_set(member->timer, stage_config(pools, member->stage)->start_timeout_ns);
}

void
pool_member_kill(struct pool_member *member, enum pool_member_kill why)
{
    if (member->killed_for == KILL_NONE)
        member->killed_for = why;
    spawned_signal(&member->process, SIGKILL);
}

/* ---- the next one ---- */

int64_t
restart_wait_ns(const struct pool_member *member)
{
    if (member->quick_deaths <= QUICK_DEATHS_MAX)
        return 0;
    int64_t wait_ms = BACKOFF_FIRST_MS;
    for (uint32_t i = QUICK_DEATHS_MAX + 1; i < member->quick_deaths && wait_ms < BACKOFF_MAX_MS;
         i++)
        wait_ms *= 2;
    return (wait_ms < BACKOFF_MAX_MS ? wait_ms : BACKOFF_MAX_MS) * (int64_t)NS_PER_MS;
}

void
pool_member_back_off(struct pool_member *member)
{
    pool_member_enter(member, MEMBER_BACKOFF);
    loop_timer_set(member->timer, restart_wait_ns(member));
}

static void
pool_member_on_timer(void *context)
{
    struct pool_member *member = context;
    if (member->state == MEMBER_BACKOFF) {
        pool_member_start(member);
    } else if (member->state == MEMBER_STARTING) {
        pool_member_kill(member, KILL_START_TIMEOUT);
    }
}

void
pool_member_init(struct pool_member *member, struct worker_pools *pools, uint32_t stage,
                 uint32_t index)
{
    const struct pipeline_options *options = &pools->pipeline->options;
    *member = (struct pool_member){.pools = pools, .stage = stage, .index = index};
    member->process = SPAWNED_NONE;
    member->timer = loop_timer_create(loop_base(options->loop), pool_member_on_timer, member);
    member->counters =
        counters_values(options->counters, pools->lane->generation->worker_scopes[stage][index]);
}

/* ---- readiness ---- */

static void
set_specs(struct handshake_tensor *specs, const struct handshake_tensor *tensors, uint32_t count)
{
    memcpy(specs, tensors, count * sizeof(specs[0]));
}

/* Sets the pipeline's tensors, from the first worker of the first and of the last stage. Only
 * before the lane serves: front threads read them without a lock. */
static void
learn_model_info(struct pool_member *member, const struct handshake_ready *ready)
{
    struct lane *lane = member->pools->lane;
    if (atomic_load(&lane->state) != LANE_STARTING)
        return;
    if (lane->specs == NULL) {
        lane->specs = calloc(2 * (size_t)SHOAL_TENSORS_MAX, sizeof(*lane->specs));
        CHECK(lane->specs != NULL);
    }
    /* A stage that declares nothing changes nothing: a method's pipeline takes messages. */
    if (member->stage == 0 && ready->input_count > 0) {
        set_specs(lane->specs, ready->inputs, ready->input_count);
        lane->info.inputs = lane->specs;
        lane->info.input_count = ready->input_count;
    }
    if (member->stage + 1 == lane->region.layout.plan.stage_count && ready->output_count > 0) {
        set_specs(lane->specs + SHOAL_TENSORS_MAX, ready->outputs, ready->output_count);
        lane->info.outputs = lane->specs + SHOAL_TENSORS_MAX;
        lane->info.output_count = ready->output_count;
    }
    if (ready->platform[0] != '\0')
        copy_text(lane->platform, sizeof(lane->platform), ready->platform);
}

/* Before the lane serves, too. A modelet that emits counts as long as the node runs: an older lane
 * may still have its calls. */
static void
learn_streams(const struct pool_member *member, const struct handshake_ready *ready)
{
    struct pipeline *pipeline = member->pools->pipeline;
    if (member->stage + 1 != member->pools->lane->region.layout.plan.stage_count)
        return;
    pipeline->has_emitter = pipeline->has_emitter || (ready->functions & HANDSHAKE_STREAMS) != 0;
    atomic_store(&pipeline->never_emits, !pipeline->has_emitter);
}

void
worker_pools_check_complete(struct worker_pools *pools)
{
    for (uint32_t i = 0; i < pools->pool_member_count; i++)
        if (pools->members[i].state != MEMBER_READY)
            return;
    if (pools->complete_once || pools->stopping)
        return;
    struct error error = ERROR_NONE;
    switch (pools->models->complete(pools->pipeline->catalog, pools, &error)) {
    case STATUS_OK:
        pools->complete_once = true;
        pipeline_on_lane_ready(pools->pipeline, pools->lane);
        return;
    case STATUS_UNAVAILABLE: return;
    default: pipeline_on_start_failed(pools->pipeline, pools->lane, &error);
    }
}

/* Returns how long the place had no ready worker; 0: this is the first. */
static int64_t
note_recovery(struct pool_member *member)
{
    if (member->died_ns == 0)
        return 0;
    int64_t took_ns = member->ready_ns - member->died_ns;
    member->died_ns = 0;
    histogram_record(member_pool(member)->counters, STAGE_RECOVERY, (uint64_t)took_ns);
    return took_ns / NS_PER_US;
}

static void
pool_member_on_ready(struct pool_member *member, const struct handshake_ready *ready)
{
    const struct config_stage *config = stage_config(member->pools, member->stage);
    struct error error = ERROR_NONE;
    if (handshake_ready_validate(ready, &error) != STATUS_OK) {
        log_error("worker_lied pipeline=%s stage=%s worker=%u pid=%d error=\"%s\"",
                  member->pools->lane->info.name, config->name, member->index,
                  (int)member->process.pid, error.text);
        pool_member_kill(member, KILL_NONSENSE);
        return;
    }
    CHECK(!member->pools->stopping);
    if (member->names) { /* the failure was of the moment; this sandbox is not one to serve in */
        pool_member_kill(member, KILL_NAMED);
        return;
    }
    pool_member_enter(member, MEMBER_READY);
    member->ready_ns = clock_now_ns();
    member->finished = lane_finished(member->pools->lane, member->stage);
    member->judged_ns = member->died_ns != 0 ? member->died_ns : member->ready_ns;
    int64_t recovery_us = note_recovery(member);
    loop_timer_clear(member->timer);
    member_pool(member)->abilities = ready->abilities;
    member_pool(member)->functions = ready->functions;
    member_pool(member)->workers_max = ready->workers_max;
    learn_model_info(member, ready);
    learn_streams(member, ready);
    bool pinned = member->pools->pipeline->options.pin && config->cpus != NULL;
    log_info(
        "worker_ready pipeline=%s stage=%s worker=%u pid=%d modelet=%s cpu=%d recovery_us=%lld",
        member->pools->lane->info.name, config->name, member->index, (int)member->process.pid,
        ready->name, pinned ? config->cpus[member->index] : CPU_NONE, (long long)recovery_us);
    worker_pool_on_ready(member);
    member->pools->models->on_ready(member->pools->pipeline->catalog, member);
    pool_member_announce_regions(
        member); /* not before: a starting worker would delay the end of a client region */
    worker_pools_check_complete(member->pools);
    pipeline_on_stages_changed(member->pools->pipeline);
}

union handshake_message {
    struct handshake_header header;
    struct handshake_ready ready;
    struct handshake_failed failed;
    struct handshake_client_region client_region;
};

/* A ready worker sends a message about a client region, and a possible one. */
static bool
says_of_client_region(struct pool_member *member, enum status status,
                      union handshake_message *message)
{
    if (status != STATUS_OK || member->state != MEMBER_READY ||
        message->header.type != HANDSHAKE_CLIENT_REGION)
        return false;
    message->client_region.text[sizeof(message->client_region.text) - 1] = '\0';
    return member_is_reported_of_region(member, &message->client_region);
}

void
pool_member_on_control(void *context)
{
    struct pool_member *member = context;
    union handshake_message *message = malloc(sizeof(*message));
    CHECK(message != NULL);
    struct error error = ERROR_NONE;
    enum status status =
        handshake_receive(member->process.control, message, sizeof(*message), &error);
    if (status == STATUS_DEADLINE_EXCEEDED) { /* it has sent nothing, but a child of it may */
        free(message);
        return;
    }
    bool received = status == STATUS_OK && member->state == MEMBER_STARTING &&
                    member->killed_for == KILL_NONE && !member->pools->stopping;
    if (received && message->header.type == HANDSHAKE_READY &&
        message->header.bytes == sizeof(message->ready)) {
        pool_member_on_ready(member, &message->ready);
    } else if (received && message->header.type == HANDSHAKE_FAILED &&
               message->header.bytes == sizeof(message->failed)) {
        message->failed.text[sizeof(message->failed.text) - 1] = '\0';
        member->refused = true;
        member->refused_calls = message->failed.refused_calls != 0;
        error_set(&member->refusal, STATUS_FAILED_PRECONDITION, "%s", message->failed.text);
    } else if (says_of_client_region(member, status, message)) {
        /* done */
    } else {
        /* closed, or nonsense: its death, which follows or is caused here, says the rest */
        loop_watch_remove(member->control_watch);
        member->control_watch = NULL;
        if (status != STATUS_UNAVAILABLE && !member->pools->stopping)
            pool_member_kill(member, KILL_NONSENSE);
    }
    free(message);
}
