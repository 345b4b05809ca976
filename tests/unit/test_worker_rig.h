/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator by hand, for tests of real worker processes: makes region and counters, spawns
 * shoal-worker with its descriptors, speaks the handshake, pushes requests for the modelet
 * `probe` (tests/modelets/probe.h) into the first stage and takes what comes out at the end. It has
 * no thread and trusts its workers.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../test.h"
#include "base/clock.h"
#include "base/error.h"
#include "ipc/counters.h"
#include "ipc/handshake.h"
#include "ipc/sandbox.h"
#include "shm/arena.h"
#include "shm/doorbell.h"
#include "shm/former.h"
#include "shm/payload.h"
#include "shm/region.h"
#include "shm/slot.h"

#include "../modelets/probe.h"

enum { RIG_STAGES_MAX = 3, RIG_WORKERS_MAX = 3, RIG_SLOTS = 256 };

/* Nothing here takes longer, not even under sanitizers on a busy machine. */
#define RIG_PATIENCE_NS (60 * NS_PER_S)

struct rig_stage {
    const char
        *modelet;     /* "probe" is <build>/tests/modelets/libprobe.so, "x/y.so" <build>/x/y.so */
    uint32_t workers; /* 0: one */
    uint32_t batch_size;
    int64_t batch_wait_ns;
    bool wait_adaptive;
    uint32_t halvings_max;
    int64_t spin_limit_ns;
    const char *model_id;
    const char *models_root; /* models come and go: test_worker_model_rig.h; NULL: they don't */
    bool sandboxed;
    const char *param_name; /* one is enough */
    const char *param_value;
};

struct rig_worker {
    pid_t pid; /* 0: none */
    int control;
    int models; /* 0: none */
    uint32_t scope;
};

struct rig {
    struct region region;
    struct counters counters;
    char directory[64];
    uint32_t stage_count;
    struct rig_stage stages[RIG_STAGES_MAX];
    struct rig_worker workers[RIG_STAGES_MAX][RIG_WORKERS_MAX];
    uint16_t last_owner;
    struct payload_builder builder;
    struct payload_view view;
};

/* A worker's answer to its start. */
union rig_reply {
    struct handshake_header header;
    struct handshake_ready ready;
    struct handshake_failed failed;
};

struct rig_request {
    int64_t command;
    int64_t argument;
    int64_t tag;         /* comes back */
    int64_t deadline_ns; /* 0: none */
    int64_t parameter;   /* 0: none */
    uint64_t model;      /* model_word; 0: none */
    bool cancelled;
};

struct rig_outcome {
    struct shm_ticket ticket;
    enum status status;
    uint32_t failed_place;
    char text[SLOT_TEXT_BYTES];
    uint32_t word_count;
    int64_t words[PROBE_END];
};

static inline const char *
rig_build_file(const char *file)
{
    static char paths[4][512];
    static unsigned next;
    const char *build = getenv("SHOAL_BUILD_DIR");
    assert_non_null(build);
    char *path = paths[next++ % 4];
    snprintf(path, sizeof(paths[0]), "%s/%s", build, file);
    return path;
}

static inline const char *
rig_modelet(const char *name)
{
    char file[128];
    snprintf(file, sizeof(file), "tests/modelets/lib%s.so", name);
    return rig_build_file(strchr(name, '/') != NULL ? name : file);
}

static inline uint32_t
rig_worker_count(const struct rig *rig, uint32_t stage)
{
    return rig->stages[stage].workers == 0 ? 1 : rig->stages[stage].workers;
}

/* ---- making ---- */

static inline void
rig_make_region(struct rig *rig)
{
    struct region_plan plan = {.slot_count = RIG_SLOTS, .stage_count = rig->stage_count};
    for (uint32_t i = 0; i < rig->stage_count; i++)
        plan.worker_counts[i] = rig_worker_count(rig, i);
    struct error error = ERROR_NONE;
    assert_int_equal(plan_arena(&plan, 1 << 16, 8 << 20, &error), STATUS_OK);
    assert_int_equal(region_create(&rig->region, &plan, 1, &error), STATUS_OK);
}

static inline void
rig_make_counters(struct rig *rig)
{
    struct counters_spec specs[2 + RIG_STAGES_MAX * (1 + RIG_WORKERS_MAX)] = {
        {SCOPE_NODE, 0, "node"}, {SCOPE_PIPELINE, 0, "rig"}};
    static const char *const names[] = {"0", "1", "2"};
    uint32_t count = 2;
    for (uint32_t i = 0; i < rig->stage_count; i++) {
        uint32_t stage = count++;
        specs[stage] = (struct counters_spec){SCOPE_STAGE, 1, names[i]};
        for (uint32_t k = 0; k < rig_worker_count(rig, i); k++) {
            rig->workers[i][k].scope = count;
            specs[count++] = (struct counters_spec){SCOPE_WORKER, stage, names[k]};
        }
    }
    char path[128];
    snprintf(path, sizeof(path), "%s/counters", rig->directory);
    struct error error = ERROR_NONE;
    if (counters_create(&rig->counters, path, specs, count, &error) != STATUS_OK)
        fail_msg("counters: %s", error.text);
}

/* Region and counters, and no worker yet. */
static inline struct rig *
rig_open(const struct rig_stage *stages, uint32_t stage_count)
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig->stage_count = stage_count;
    memcpy(rig->stages, stages, stage_count * sizeof(stages[0]));
    rig->last_owner = OWNER_COORDINATOR;
    snprintf(rig->directory, sizeof(rig->directory), "/tmp/shoal-rig-XXXXXX");
    assert_non_null(mkdtemp(rig->directory));
    rig_make_region(rig);
    rig_make_counters(rig);
    return rig;
}

/* ---- workers ---- */

/* A duplicate above the numbers that a worker is given. */
static inline int
rig_fd_above(int fd)
{
    int above = fcntl(fd, F_DUPFD_CLOEXEC, 20);
    assert_true(above >= 20);
    return above;
}

/* Starts shoal-worker with these descriptors at 3, 4, 5, 6; `models` -1: not that one. */
static inline pid_t
rig_spawn_with(int region, int counters, int control, int models)
{
    int count = models >= 0 ? 4 : 3;
    const int fds[] = {rig_fd_above(region), rig_fd_above(counters), rig_fd_above(control),
                       models >= 0 ? rig_fd_above(models) : -1};
    posix_spawn_file_actions_t actions;
    assert_int_equal(posix_spawn_file_actions_init(&actions), 0);
    for (int i = 0; i < count; i++)
        assert_int_equal(
            posix_spawn_file_actions_adddup2(&actions, fds[i], HANDSHAKE_FD_REGION + i), 0);
    char program[512];
    snprintf(program, sizeof(program), "%s", rig_build_file("bin/shoal-worker"));
    char *argv[] = {program, NULL};
    pid_t pid;
    assert_int_equal(posix_spawn(&pid, program, &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    for (int i = 0; i < count; i++)
        close(fds[i]);
    return pid;
}

static inline void
rig_control_pair(int control[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control), 0);
    struct timeval patience = {.tv_sec = RIG_PATIENCE_NS / NS_PER_S};
    assert_int_equal(setsockopt(control[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)),
                     0);
}

static inline void
rig_start_message(struct rig *rig, uint32_t stage, uint32_t index, struct handshake_start *start)
{
    const struct rig_stage *spec = &rig->stages[stage];
    *start = (struct handshake_start){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_START, sizeof(*start), 0},
        .coordinator_pid = getpid(),
        .cpu = CPU_NONE,
        .owner = ++rig->last_owner,
        .stage_index = stage,
        .worker_index = index,
        .worker_count = rig_worker_count(rig, stage),
        .counters_table = counters_table_hash(),
        .counters_offset = rig->counters.scopes[rig->workers[stage][index].scope].values_offset,
        .batch_size = spec->batch_size,
        .batch_wait_ns = spec->batch_wait_ns,
        .wait_adaptive = spec->wait_adaptive,
        .spin_limit_ns = spec->spin_limit_ns,
        .halvings_max = spec->halvings_max,
        .log_level = 2,
        /* the probe leaves notes in files, and leaks are looked for at a worker's end */
        .sandbox_allow = spec->sandboxed ? 0 : SANDBOX_ALLOW_ALL,
    };
    snprintf(start->pipeline, sizeof(start->pipeline), "rig");
    snprintf(start->stage, sizeof(start->stage), "stage%u", stage);
    snprintf(start->modelet_path, sizeof(start->modelet_path), "%s", rig_modelet(spec->modelet));
    snprintf(start->directory, sizeof(start->directory), "%s", rig->directory);
    if (spec->model_id != NULL) {
        snprintf(start->model_id, sizeof(start->model_id), "%s", spec->model_id);
        snprintf(start->model_path, sizeof(start->model_path), "/models/%s", spec->model_id);
        snprintf(start->model_key, sizeof(start->model_key), "key of %s", spec->model_id);
    }
    if (spec->models_root != NULL) {
        start->serves_models = 1;
        /* or the sandbox would let the root be read because it is the configuration's folder */
        snprintf(start->directory, sizeof(start->directory), "/usr/share");
        snprintf(start->models_root, sizeof(start->models_root), "%s", spec->models_root);
    }
    if (spec->param_name != NULL) {
        start->param_count = 1;
        snprintf(start->params[0].name, HANDSHAKE_NAME_BYTES, "%s", spec->param_name);
        snprintf(start->params[0].value, HANDSHAKE_VALUE_BYTES, "%s", spec->param_value);
    }
}

/* Spawns a worker into a place, tells it `start`, and leaves its reply to rig_reply. */
static inline void
rig_spawn_start(struct rig *rig, const struct handshake_start *start)
{
    struct rig_worker *worker = &rig->workers[start->stage_index][start->worker_index];
    struct shm_worker *entry = region_worker(&rig->region, start->stage_index, start->worker_index);
    int control[2];
    int models[2] = {0, -1};
    rig_control_pair(control);
    if (start->serves_models != 0)
        rig_control_pair(models);
    atomic_store(&entry->owner, start->owner);
    worker->pid = rig_spawn_with(rig->region.fd, rig->counters.fd, control[1], models[1]);
    worker->models = models[0];
    if (models[1] >= 0)
        close(models[1]);
    worker->control = control[0];
    close(control[1]);
    struct error error = ERROR_NONE;
    assert_int_equal(handshake_send(control[0], start, sizeof(*start), &error), STATUS_OK);
}

static inline void
rig_receive(const struct rig_worker *worker, union rig_reply *reply)
{
    struct error error = ERROR_NONE;
    if (handshake_receive(worker->control, reply, sizeof(*reply), &error) != STATUS_OK)
        fail_msg("no reply of the worker: %s", error.text);
}

static inline void
rig_spawn(struct rig *rig, uint32_t stage, uint32_t index, union rig_reply *reply)
{
    struct handshake_start start;
    rig_start_message(rig, stage, index, &start);
    rig_spawn_start(rig, &start);
    rig_receive(&rig->workers[stage][index], reply);
}

/* Open, with every worker serving. */
static inline struct rig *
rig_start(const struct rig_stage *stages, uint32_t stage_count)
{
    struct rig *rig = rig_open(stages, stage_count);
    static union rig_reply reply;
    for (uint32_t i = 0; i < stage_count; i++) {
        for (uint32_t k = 0; k < rig_worker_count(rig, i); k++) {
            rig_spawn(rig, i, k, &reply);
            if (reply.header.type != HANDSHAKE_READY)
                fail_msg("worker refused: %s", reply.failed.text);
        }
    }
    return rig;
}

/* Waits for a process's end, and returns its wait status. */
static inline int
rig_wait_end(pid_t pid)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    assert_true(fd >= 0);
    struct pollfd end = {.fd = fd, .events = POLLIN};
    int ended = poll(&end, 1, (int)(RIG_PATIENCE_NS / NS_PER_MS));
    close(fd);
    if (ended != 1) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        fail_msg("process %d does not end", (int)pid);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static inline int
rig_wait_worker(struct rig *rig, uint32_t stage, uint32_t index)
{
    int status = rig_wait_end(rig->workers[stage][index].pid);
    rig->workers[stage][index].pid = 0;
    return status;
}

static inline void
rig_assert_exit(int status, int code)
{
    if (!WIFEXITED(status) || WEXITSTATUS(status) != code)
        fail_msg("wait status %#x instead of exit code %d", (unsigned)status, code);
}

/* Takes everything away; workers that still run are killed. */
static inline void
rig_close(struct rig *rig)
{
    for (uint32_t i = 0; i < RIG_STAGES_MAX; i++) {
        for (uint32_t k = 0; k < RIG_WORKERS_MAX; k++) {
            struct rig_worker *worker = &rig->workers[i][k];
            if (worker->pid != 0) {
                kill(worker->pid, SIGKILL);
                waitpid(worker->pid, NULL, 0);
            }
            if (worker->control != 0)
                close(worker->control);
            if (worker->models != 0)
                close(worker->models);
        }
    }
    region_detach(&rig->region);
    counters_close(&rig->counters);
    rmdir(rig->directory);
    free(rig);
}

/* Stops every worker by SIGTERM, and sees that it ends well and that nothing is left in use. */
static inline void
rig_stop(struct rig *rig)
{
    for (uint32_t i = 0; i < rig->stage_count; i++) {
        for (uint32_t k = 0; k < rig_worker_count(rig, i); k++) {
            if (rig->workers[i][k].pid == 0)
                continue;
            kill(rig->workers[i][k].pid, SIGTERM);
            rig_assert_exit(rig_wait_worker(rig, i, k), 0);
        }
        assert_int_equal(atomic_load(&region_stage(&rig->region, i)->former), 0);
        assert_int_equal(atomic_load(&region_stage(&rig->region, i)->idle), 0);
    }
    assert_int_equal(slots_used(&rig->region), 0);
    assert_int_equal(arena_used(&rig->region, -1), 0);
    rig_close(rig);
}

/* ---- requests ---- */

/* Writes a request into a slot and pushes it to stage 0, without waking anybody. */
static inline struct shm_ticket
rig_push(struct rig *rig, struct rig_request request)
{
    struct error error = ERROR_NONE;
    struct shm_ticket ticket;
    assert_int_equal(slot_acquire(&rig->region, OWNER_COORDINATOR, &ticket), RING_OK);
    struct shm_slot *slot = region_slot(&rig->region, ticket.index);
    atomic_store(&slot->deadline_ns,
                 request.deadline_ns == 0 ? TIME_NEVER_NS : request.deadline_ns);
    atomic_store(&slot->model, request.model);
    builder_init(&rig->builder, &rig->region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    struct shoal_tensor tensor = {.name = "probe",
                                  .datatype = SHOAL_INT64,
                                  .rank = 1,
                                  .shape = {PROBE_WORDS},
                                  .bytes = PROBE_WORDS * sizeof(int64_t)};
    void *data;
    assert_int_equal(builder_add(&rig->builder, &tensor, &data, &error), STATUS_OK);
    memcpy(data, (int64_t[]){request.command, request.argument, request.tag}, tensor.bytes);
    struct shoal_parameter parameter = {.type = SHOAL_PARAMETER_INT64,
                                        .value.int64 = request.parameter};
    if (request.parameter != 0)
        assert_int_equal(builder_parameter(&rig->builder, "probe", &parameter, &error), STATUS_OK);
    assert_int_equal(builder_seal(&rig->builder, &slot->payload[0], &error), STATUS_OK);
    if (request.cancelled)
        slot_cancel(&rig->region, ticket);
    assert_int_equal(
        slot_push(&rig->region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, clock_now_ns()), RING_OK);
    return ticket;
}

static inline struct shm_ticket
rig_submit(struct rig *rig, struct rig_request request)
{
    struct shm_ticket ticket = rig_push(rig, request);
    stage_notify(&rig->region, 0);
    return ticket;
}

static inline void
rig_read_result(struct rig *rig, const struct shm_slot *slot, struct rig_outcome *outcome)
{
    struct error error = ERROR_NONE;
    uint8_t place = region_result_place(&rig->region);
    if (payload_read(&rig->region, &slot->payload[place & 1], &rig->view, &error) != STATUS_OK)
        fail_msg("result: %s", error.text);
    assert_int_equal(rig->view.tensor_count, 1);
    const struct shoal_tensor *tensor = &rig->view.tensors[0];
    assert_string_equal(tensor->name, "probe");
    assert_int_equal(tensor->datatype, SHOAL_INT64);
    assert_true(tensor->bytes <= sizeof(outcome->words));
    outcome->word_count = (uint32_t)(tensor->bytes / sizeof(int64_t));
    memcpy(outcome->words, tensor->data, tensor->bytes);
}

/* Takes a slot that came back, if there is one, and gives it back to the free ones. */
static inline bool
rig_take(struct rig *rig, struct rig_outcome *outcome)
{
    *outcome = (struct rig_outcome){.status = STATUS_OK};
    uint8_t place = region_result_place(&rig->region);
    enum ring_result result = slot_pop(&rig->region, place, OWNER_COORDINATOR, &outcome->ticket);
    if (result == RING_EMPTY) {
        place = PLACE_ERROR;
        result = slot_pop(&rig->region, place, OWNER_COORDINATOR, &outcome->ticket);
    }
    if (result == RING_EMPTY)
        return false;
    assert_int_equal(result, RING_OK);
    struct shm_slot *slot = region_slot(&rig->region, outcome->ticket.index);
    if (place == PLACE_ERROR) {
        outcome->status = (enum status)atomic_load(&slot->status);
        outcome->failed_place = atomic_load(&slot->failed_place);
        memcpy(outcome->text, slot->text, SLOT_TEXT_BYTES);
    } else {
        rig_read_result(rig, slot, outcome);
    }
    assert_int_equal(slot_release(&rig->region, outcome->ticket, place, OWNER_COORDINATOR),
                     STATUS_OK);
    return true;
}

/* Waits for the next slot that comes back. The bell has to ring for it: a worker that forgot would
 * be found out by the time that this takes. */
static inline struct rig_outcome
rig_wait_outcome(struct rig *rig)
{
    struct rig_outcome outcome;
    struct shm_doorbell *bell = &rig->region.header->coordinator_bell;
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (!rig_take(rig, &outcome)) {
        uint32_t prepared = doorbell_prepare(bell);
        if (rig_take(rig, &outcome)) {
            doorbell_cancel(bell);
            break;
        }
        if (!doorbell_sleep(bell, prepared, deadline_ns - clock_now_ns()))
            fail_msg("nothing came back");
    }
    return outcome;
}

static inline struct rig_outcome
rig_call(struct rig *rig, struct rig_request request)
{
    struct shm_ticket ticket = rig_submit(rig, request);
    struct rig_outcome outcome = rig_wait_outcome(rig);
    assert_int_equal(outcome.ticket.index, ticket.index);
    assert_int_equal(outcome.ticket.generation, ticket.generation);
    return outcome;
}

/* ---- counters ---- */

/* Of all workers of a stage. Of a histogram: how many values it holds. */
static inline uint64_t
rig_counter(const struct rig *rig, uint32_t stage, enum counter counter)
{
    uint64_t sum = 0;
    for (uint32_t k = 0; k < rig_worker_count(rig, stage); k++)
        sum += counter_get(counters_values(&rig->counters, rig->workers[stage][k].scope), counter);
    return sum;
}

/* A worker's counters may lag its actions, so a test waits for them. */
static inline void
rig_wait_counter_at_least(const struct rig *rig, uint32_t stage, enum counter counter,
                          uint64_t expected)
{
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (rig_counter(rig, stage, counter) < expected && clock_now_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_true(rig_counter(rig, stage, counter) >= expected);
}

static inline void
rig_wait_counter(const struct rig *rig, uint32_t stage, enum counter counter, uint64_t expected)
{
    rig_wait_counter_at_least(rig, stage, counter, expected);
    assert_int_equal(rig_counter(rig, stage, counter), expected);
}

/* Until the worker sleeps. */
static inline void
rig_wait_asleep(const struct rig *rig, uint32_t stage, uint32_t index)
{
    struct shm_doorbell *bell = &region_worker(&rig->region, stage, index)->bell;
    int64_t deadline_ns = clock_now_ns() + RIG_PATIENCE_NS;
    while (atomic_load(&bell->asleep) == 0 && clock_now_ns() < deadline_ns)
        poll(NULL, 0, 1);
    assert_int_equal(atomic_load(&bell->asleep), 1);
}
