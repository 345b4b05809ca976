/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"

/* Delay of the end of a sleep: the kernel's default of 50 µs is a large part of a batch_wait. */
enum { TIMER_SLACK_NS = 1000 };

/* The score, of 1000; the coordinator's is normally 0. */
enum { OOM_SCORE = 500 };

/* If memory runs out, the worker dies and not the coordinator. Raising the score needs no
 * privilege; without /proc it stays. */
static void
volunteer(void)
{
    int fd = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);
    char text[16] = "";
    if (fd < 0)
        return;
    if (read(fd, text, sizeof(text) - 1) > 0 && strtol(text, NULL, 10) < OOM_SCORE)
        dprintf(fd, "%d", OOM_SCORE);
    close(fd);
}

void
worker_bind_to_parent(void)
{
    CHECK(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
    /* The worker adopts a modelet's orphans; when the worker dies, the coordinator does. */
    CHECK(prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    volunteer();
}

/* ---- signals ---- */

static volatile sig_atomic_t stop_requested;
static struct shm_doorbell *stop_bell;

/*
 * Rings our own bell: if the signal comes between the last look at the flag and the sleep, the
 * sequence has changed and the sleep does not begin.
 */
static void
on_stop(int number)
{
    (void)number;
    int saved = errno;
    stop_requested = 1;
    doorbell_ring(stop_bell);
    errno = saved;
}

static void
set_signal(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    CHECK(sigaction(number, &action, NULL) == 0);
}

/* Replaces inherited handlers. Until we serve, SIGTERM kills the process, which holds nothing
 * yet. */
static void
reset_signals(void)
{
    set_signal(SIGTERM, SIG_DFL);
    set_signal(SIGINT, SIG_IGN); /* a terminal sends it to the whole group; the coordinator handles
                                  * it */
    set_signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    CHECK(sigprocmask(SIG_SETMASK, &none, NULL) == 0);
}

void
worker_catch_stop(const struct worker *worker)
{
    stop_bell = &worker->entry.worker->bell;
    set_signal(SIGTERM, on_stop);
}

bool
worker_stop_requested(void)
{
    return stop_requested != 0;
}

/* ---- what the coordinator sent ---- */

static enum status
string_check(const char *string, size_t room, const char *field, struct error *error)
{
    if (strnlen(string, room) < room)
        return STATUS_OK;
    return error_set(error, STATUS_DATA_LOSS, "handshake_start.%s is not terminated", field);
}

static enum status
strings_check(const struct handshake_start *start, struct error *error)
{
    const struct {
        const char *string;
        size_t room;
        const char *field;
    } strings[] = {
        {start->pipeline, sizeof(start->pipeline), "pipeline"},
        {start->stage, sizeof(start->stage), "stage"},
        {start->modelet_path, sizeof(start->modelet_path), "modelet_path"},
        {start->script, sizeof(start->script), "script"},
        {start->directory, sizeof(start->directory), "directory"},
        {start->models_root, sizeof(start->models_root), "models_root"},
        {start->models_cache, sizeof(start->models_cache), "models_cache"},
        {start->model_id, sizeof(start->model_id), "model_id"},
        {start->model_path, sizeof(start->model_path), "model_path"},
        {start->model_key, sizeof(start->model_key), "model_key"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(strings); i++)
        if (string_check(strings[i].string, strings[i].room, strings[i].field, error) != STATUS_OK)
            return error->status;
    if ((start->sandbox_allow & ~(uint32_t)SANDBOX_ALLOW_EVERY) != 0)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.sandbox_allow is %#x",
                         start->sandbox_allow);
    if (start->param_count > HANDSHAKE_PARAMS_MAX)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.param_count is %u; at most %d",
                         start->param_count, HANDSHAKE_PARAMS_MAX);
    for (uint32_t i = 0; i < start->param_count; i++) {
        const struct handshake_param *param = &start->params[i];
        if (string_check(param->name, sizeof(param->name), "params.name", error) != STATUS_OK ||
            string_check(param->value, sizeof(param->value), "params.value", error) != STATUS_OK)
            return error->status;
    }
    return STATUS_OK;
}

static enum status
receive_start(struct handshake_start *start, struct error *error)
{
    enum status status = handshake_receive(HANDSHAKE_FD_CONTROL, start, sizeof(*start), error);
    if (status != STATUS_OK)
        return status;
    if (start->header.type != HANDSHAKE_START)
        return error_set(error, STATUS_DATA_LOSS, "handshake: message type %u instead of a start",
                         start->header.type);
    status = strings_check(start, error);
    if (status != STATUS_OK)
        return status;
    /* The coordinator may have died before we asked to die with it. */
    if (getppid() != start->coordinator_pid)
        return error_set(error, STATUS_ABORTED, "the coordinator (pid %d) is gone",
                         (int)start->coordinator_pid);
    return STATUS_OK;
}

/* ---- the process ---- */

static void
name_process(const struct handshake_start *start)
{
    static char name[HANDSHAKE_NAME_BYTES + 16]; /* kept by the log */
    snprintf(name, sizeof(name), "shoal:%s.%u", start->stage, start->worker_index);
    log_init(name, start->log_level <= LOG_DEBUG ? (enum log_level)start->log_level : LOG_INFO);
    log_set_format(start->log_format == LOG_FORMAT_JSON ? LOG_FORMAT_JSON : LOG_FORMAT_LOGFMT);
    prctl(PR_SET_NAME, name); /* cut to 15 bytes */
}

static enum status
pin_process(struct worker *worker, struct error *error)
{
    int32_t cpu = worker->start.cpu;
    cpu_set_t cpus;
    CPU_ZERO(&worker->cpus);
    if (cpu == CPU_NONE)
        return STATUS_OK;
    if (sched_getaffinity(0, sizeof(worker->cpus), &worker->cpus) != 0)
        return error_set_errno(error, "reading the CPU affinity");
    CPU_ZERO(&cpus);
    if (cpu >= 0 && cpu < CPU_SETSIZE)
        CPU_SET((size_t)cpu, &cpus);
    if (sched_setaffinity(0, sizeof(cpus), &cpus) != 0)
        return error_set_errno(error, "pinning to CPU %d", (int)cpu);
    return STATUS_OK;
}

/* Leaves only the standard streams and our descriptors open, ours with close-on-exec. A modelet
 * must not read what is typed at the coordinator's terminal. */
static void
close_inherited(void)
{
    close_range(HANDSHAKE_FD_MODELS + 1, ~0u, 0);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nothing >= 0 && nothing != STDIN_FILENO) {
        (void)dup2(nothing, STDIN_FILENO);
        close(nothing);
    }
    for (int fd = HANDSHAKE_FD_REGION; fd <= HANDSHAKE_FD_MODELS; fd++)
        fcntl(fd, F_SETFD, FD_CLOEXEC); /* its first use shows if one is not open */
}

/* ---- region and counters ---- */

static enum status
member_check(const struct worker *worker, struct error *error)
{
    const struct handshake_start *start = &worker->start;
    const struct region_plan *plan = &worker->region.layout.plan;
    if (start->stage_index >= plan->stage_count ||
        start->worker_index >= plan->worker_counts[start->stage_index])
        return error_set(error, STATUS_DATA_LOSS, "handshake_start: no worker %u in stage %u",
                         start->worker_index, start->stage_index);
    if (start->owner <= OWNER_COORDINATOR || start->owner > OWNER_MAX)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.owner is %u", start->owner);
    if (start->batch_size > plan->slot_count)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "batch_size is %u, but at most %u requests (slots) are in flight",
                         start->batch_size, plan->slot_count);
    if (start->batch_wait_ns < 0 || start->spin_limit_ns < 0)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start: a negative time");
    if (start->wait_adaptive > 1)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.wait_adaptive is %u",
                         start->wait_adaptive);
    if (start->serves_models > 1)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.serves_models is %u",
                         start->serves_models);
    if (start->loads_idle > 1)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.loads_idle is %u",
                         start->loads_idle);
    if (start->collect >= COLLECT_END)
        return error_set(error, STATUS_DATA_LOSS, "handshake_start.collect is %u", start->collect);
    if (start->counters_table != counters_table_hash())
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "the coordinator has another table of counters: it and the worker are "
                         "of different builds");
    return STATUS_OK;
}

/* Closes the descriptor, with which a modelet could punch holes into the region; the mapping
 * stays. */
static enum status
region_attach_closed(struct region *region, struct error *error)
{
    enum status status = region_attach(region, HANDSHAKE_FD_REGION, error);
    if (status != STATUS_OK)
        return status;
    close(region->fd);
    region->fd = -1;
    return STATUS_OK;
}

enum status
worker_attach(struct worker *worker, struct error *error)
{
    log_init("shoal-worker", LOG_INFO);
    log_never_wait(); /* stderr is a pipe to the coordinator, which may be stopped */
    reset_signals();
    close_inherited();
    prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
    enum status status = receive_start(&worker->start, error);
    if (status != STATUS_OK)
        return status;
    const struct handshake_start *start = &worker->start;
    if (start->serves_models == 0)
        close(HANDSHAKE_FD_MODELS); /* close descriptors inherited there */
    name_process(start);
    status = pin_process(worker, error);
    if (status != STATUS_OK)
        return status;
    status = region_attach_closed(&worker->region, error);
    if (status == STATUS_OK)
        status = counters_attach(&worker->counters, HANDSHAKE_FD_COUNTERS, start->counters_offset,
                                 error);
    if (status == STATUS_OK)
        status = member_check(worker, error);
    if (status != STATUS_OK)
        return status;
    worker_entry_init(&worker->entry, &worker->region, start->stage_index, start->worker_index,
                      &worker->counters, 0);
    worker->owner = (uint16_t)start->owner;
    worker->place = (uint8_t)start->stage_index;
    sources_init(worker);
    emit_init(worker);
    spin_init(&worker->spin, start->spin_limit_ns);
    worker->pid = getpid();
    worker_entry_gauge(&worker->entry, WORKER_PID, (uint64_t)worker->pid);
    worker_entry_alive(&worker->entry, clock_now_ns());
    return STATUS_OK;
}

static enum status
make_batches(struct worker *worker, struct error *error)
{
    uint32_t size = worker->start.batch_size > 1 ? worker->start.batch_size : 1;
    worker->adaptive =
        worker->start.wait_adaptive != 0 && worker->start.batch_wait_ns > 0 && size > 1;
    bool made = groups_init(&worker->groups, size, worker->start.batch_wait_ns,
                            worker->by_model ? GROUPS_BY_MODEL : GROUPS_ONE);
    if (made && worker->adaptive)
        groups_adapt(&worker->groups);
    worker->items = calloc(worker->groups.capacity, sizeof(worker->items[0]));
    worker->positions = calloc(worker->groups.capacity, sizeof(worker->positions[0]));
    worker->shown = calloc(size, sizeof(struct shoal_item *));
    if (made && worker->items != NULL && worker->positions != NULL && worker->shown != NULL)
        return STATUS_OK;
    return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory for batches of %u items", size);
}

enum status
worker_prepare(struct worker *worker, struct handshake_ready *ready, struct error *error)
{
    const struct handshake_start *start = &worker->start;
    enum status status = modelet_load_file(&worker->modelet, start->modelet_path, error);
    if (status == STATUS_OK)
        status = modelet_suits(&worker->modelet, start, error);
    if (status != STATUS_OK)
        return status;
    worker->by_model = start->serves_models != 0 && start->model_id[0] == '\0' &&
                       worker->modelet.table.load != NULL;
    status = make_batches(worker, error);
    if (status != STATUS_OK)
        return status;
    worker->ready = ready;
    worker->model_id = start->model_id;
    worker->host = host_table(worker->modelet.table.name, start->directory, worker_emit);
    status = modelet_start(&worker->modelet, start, worker->host, ready, error);
    worker->model = worker->modelet.model;
    return status;
}
