/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

extern char **environ;

/* Descriptors for the child are moved up here first, so that dup2 to 3, 4, 5, 6 overwrites none of
 * them. */
enum { SPAWN_FD_ABOVE = 10 };

/* ---- the reserve ---- */

enum {
    FDS_OF_WORKER = 4,     /* struct spawned */
    RESERVE_OF_START = 11, /* those, five of the child, two of a pair that is being made */
    RESERVE_MAX = 4096
};

/* All of them are /dev/null. */
static int reserve_fds[RESERVE_MAX];
static uint32_t reserve_count;
static uint32_t reserve_wanted;

static void
reserve_fill(void)
{
    int fd = 0;
    while (reserve_count > reserve_wanted)
        close(reserve_fds[--reserve_count]);
    while (fd >= 0 && reserve_count < reserve_wanted) {
        fd = reserve_count > 0 ? fcntl(reserve_fds[0], F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE)
                               : open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (fd >= 0)
            reserve_fds[reserve_count++] = fd;
    }
}

static void
reserve_give_up(void)
{
    while (reserve_count > 0)
        close(reserve_fds[--reserve_count]);
}

/* Replaces the descriptor in one step, so that no other thread can get its number in between. */
static void
reserve_take(int fd)
{
    bool kept = reserve_wanted > 0 && reserve_count > 0 && reserve_count < RESERVE_MAX &&
                dup3(reserve_fds[0], fd, O_CLOEXEC) == fd;
    if (!kept) {
        close(fd);
        return;
    }
    reserve_fds[reserve_count++] = fd;
    if (reserve_wanted < reserve_count)
        reserve_wanted = reserve_count;
}

void
spawn_reserve(void)
{
    reserve_wanted = RESERVE_OF_START;
    reserve_fill();
}

void
spawn_reserve_end(void)
{
    reserve_wanted = 0;
    reserve_give_up();
}

/* ---- orphans ---- */

struct pids {
    pid_t *items;
    size_t count;
    size_t room;
};

static struct pids worker_pids; /* workers that are not reaped */
static struct pids inherited;   /* children from before */
static struct pids doomed;      /* orphans that were killed but not reaped */
static bool adopts;
static uint64_t orphans_killed;

static void
pids_add(struct pids *pids, pid_t pid)
{
    if (pids->count == pids->room) {
        pids->room = 2 * pids->room + 16;
        pids->items = realloc(pids->items, pids->room * sizeof(*pids->items));
        CHECK(pids->items != NULL);
    }
    pids->items[pids->count++] = pid;
}

static bool
pids_have(const struct pids *pids, pid_t pid)
{
    for (size_t i = 0; i < pids->count; i++)
        if (pids->items[i] == pid)
            return true;
    return false;
}

static void
pids_remove(struct pids *pids, pid_t pid)
{
    for (size_t i = 0; i < pids->count; i++)
        if (pids->items[i] == pid)
            pids->items[i--] = pids->items[--pids->count];
}

/* Calls `found` with each of our children. The main thread has started them all, and inherits those
 * whose parents died. */
static void
each_child(void (*found)(pid_t pid))
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    FILE *file = fopen(path, "re");
    int pid;
    while (file != NULL && fscanf(file, "%d", &pid) == 1)
        found((pid_t)pid);
    if (file != NULL)
        fclose(file);
}

static void
take_inherited(pid_t pid)
{
    if (!pids_have(&worker_pids, pid))
        pids_add(&inherited, pid);
}

static void
kill_orphan(pid_t pid)
{
    if (pids_have(&worker_pids, pid) || pids_have(&inherited, pid))
        return;
    if (waitpid(pid, NULL, WNOHANG) != 0) {
        pids_remove(&doomed, pid);
    } else if (!pids_have(&doomed, pid) && kill(pid, SIGKILL) == 0) {
        pids_add(&doomed, pid); /* reaped the next time */
        orphans_killed++;
    }
}

void
spawn_adopt_orphans(void)
{
    if (adopts)
        return;
    each_child(take_inherited);
    adopts = prctl(PR_SET_CHILD_SUBREAPER, 1) == 0;
}

void
spawn_kill_orphans(void)
{
    if (adopts)
        each_child(kill_orphan);
}

void
spawn_end_orphans(void)
{
    spawn_kill_orphans();
    while (doomed.count > 0) { /* their own children then come to us */
        pid_t pid = doomed.items[0];
        (void)waitpid(pid, NULL, 0);
        pids_remove(&doomed, pid);
        spawn_kill_orphans();
    }
}

uint64_t
spawn_orphans_killed(void)
{
    return orphans_killed;
}

/* The CPUs that spawn_keep_cpus saw; empty: workers start where the coordinator is. */
static cpu_set_t kept_cpus;

/* The child's descriptors from HANDSHAKE_FD_REGION on; -1: none. */
enum { CHILD_REGION, CHILD_COUNTERS, CHILD_CONTROL, CHILD_MODELS, CHILD_FDS };

struct child_fds {
    int fds[CHILD_FDS];
    int words; /* its stdout and stderr */
};

_Static_assert(HANDSHAKE_FD_REGION + CHILD_MODELS == HANDSHAKE_FD_MODELS, "numbers without a gap");

static void
close_child_fds(struct child_fds *child)
{
    for (size_t i = 0; i < CHILD_FDS; i++)
        if (child->fds[i] >= 0)
            close(child->fds[i]);
    if (child->words >= 0)
        close(child->words);
}

/* ---- the environment ---- */

bool
spawn_passes_on(const char *variable)
{
    static const char *const names[] = {
        "PATH=", "LANG=", "TZ=", "LD_LIBRARY_PATH=", "SHOAL_ONNXRUNTIME_DIR=", "VIRTUAL_ENV="};
    static const char *const prefixes[] = {"LC_", "OMP_", "OPENBLAS_"};
    static const char sanitizer[] = "SAN_OPTIONS";
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    for (size_t i = 0; i < ARRAY_COUNT(prefixes); i++)
        if (strncmp(variable, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    const char *end = strchr(variable, '=');
    size_t length = end == NULL ? 0 : (size_t)(end - variable);
    return length >= strlen(sanitizer) &&
           strncmp(end - strlen(sanitizer), sanitizer, strlen(sanitizer)) == 0;
}

/* Of two variables of one name the first counts: the C library searches from the front. */
static char **
make_environment(char *const *variables)
{
    static char *const nothing[] = {NULL};
    size_t count = 1;
    if (variables == NULL)
        variables = nothing;
    for (char *const *variable = variables; *variable != NULL; variable++)
        count++;
    for (char **variable = environ; *variable != NULL; variable++)
        count++;
    char **environment = calloc(count, sizeof(*environment));
    CHECK(environment != NULL);
    count = 0;
    for (char *const *variable = variables; *variable != NULL; variable++)
        environment[count++] = *variable;
    for (char **variable = environ; *variable != NULL; variable++)
        if (spawn_passes_on(*variable))
            environment[count++] = *variable;
    return environment;
}

/* ---- the process ---- */

static int
spawn_process(const char *program, const struct child_fds *child, char *const *variables,
              pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawnattr_init(&attributes) == 0);
    for (int i = 0; i < CHILD_FDS; i++)
        if (child->fds[i] >= 0)
            posix_spawn_file_actions_adddup2(&actions, child->fds[i], HANDSHAKE_FD_REGION + i);
    posix_spawn_file_actions_adddup2(&actions, child->words, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, child->words, STDERR_FILENO);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    /* its own process group: the coordinator handles the terminal's interrupts */
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    char name[] = "shoal-worker";
    char *const arguments[] = {name, NULL};
    char **environment = make_environment(variables);
    int code = posix_spawn(pid, program, &actions, &attributes, arguments, environment);
    free(environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

void
spawn_keep_cpus(void)
{
    if (sched_getaffinity(0, sizeof(kept_cpus), &kept_cpus) != 0)
        CPU_ZERO(&kept_cpus);
}

/* A child starts on its parent's CPUs, and posix_spawn has no attribute for others. True: `own`
 * must be restored. */
static bool
use_kept_cpus(cpu_set_t *own)
{
    return CPU_COUNT(&kept_cpus) > 0 && sched_getaffinity(0, sizeof(*own), own) == 0 &&
           sched_setaffinity(0, sizeof(kept_cpus), &kept_cpus) == 0;
}

/* `code`: posix_spawn's. */
static enum status
watch_process(int code, const char *program, struct spawned *spawned, struct error *error)
{
    if (code != 0) {
        errno = code;
        return error_set_errno(error, "starting %s", program);
    }
    spawned->pidfd = (int)syscall(SYS_pidfd_open, spawned->pid, 0);
    if (spawned->pidfd >= 0 && fcntl(spawned->pidfd, F_SETFD, FD_CLOEXEC) == 0) {
        pids_add(&worker_pids, spawned->pid);
        return STATUS_OK;
    }
    int why = errno;
    enum status status = error_set_errno(error, "pidfd_open");
    kill(spawned->pid, SIGKILL);
    waitpid(spawned->pid, NULL, 0);
    if (spawned->pidfd >= 0)
        close(spawned->pidfd);
    spawned->pid = -1;
    spawned->pidfd = -1;
    errno = why;
    return status;
}

static enum status
start_process(const char *program, const struct child_fds *child, char *const *variables,
              struct spawned *spawned, struct error *error)
{
    cpu_set_t own;
    bool moved = use_kept_cpus(&own);
    int code = spawn_process(program, child, variables, &spawned->pid);
    if (moved)
        (void)sched_setaffinity(0, sizeof(own), &own);
    return watch_process(code, program, spawned, error);
}

/* SIGPIPE stays ignored: its stderr may lose its reader before it can ignore the signal itself. */
static int
spawn_other(const struct spawn_program_order *order, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawnattr_init(&attributes) == 0);
    for (unsigned i = 0; i < order->fd_count; i++) /* clears FD_CLOEXEC */
        posix_spawn_file_actions_adddup2(&actions, order->fds[i], order->fds[i]);
    posix_spawn_file_actions_adddup2(&actions, order->words, STDERR_FILENO);
    if (order->words_of_stdout)
        posix_spawn_file_actions_adddup2(&actions, order->words, STDOUT_FILENO);
    sigset_t none;
    sigset_t reset;
    sigemptyset(&none);
    sigfillset(&reset);
    sigdelset(&reset, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &reset);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    int code = posix_spawn(pid, order->program, &actions, &attributes, order->arguments,
                           order->environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return code;
}

enum status
spawn_program(const struct spawn_program_order *order, struct spawned *spawned, struct error *error)
{
    cpu_set_t own;
    bool moved = use_kept_cpus(&own);
    *spawned = SPAWNED_NONE;
    int code = spawn_other(order, &spawned->pid);
    if (moved)
        (void)sched_setaffinity(0, sizeof(own), &own);
    return watch_process(code, order->program, spawned, error);
}

/* Makes a socket pair, of which `*child` is for the child, moved up. */
static enum status
make_socket(int *ours, int *child, struct error *error)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return error_set_errno(error, "a socket for a worker");
    *ours = pair[0];
    *child = fcntl(pair[1], F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE);
    close(pair[1]);
    if (*child < 0)
        return error_set_errno(error, "descriptors for a worker");
    return STATUS_OK;
}

/* From here on we never block: any process that has the other end can keep it open and silent. */
static enum status
never_wait(int fd, struct error *error)
{
    if (fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
        return error_set_errno(error, "a worker's socket");
    return STATUS_OK;
}

static enum status
make_control(const struct handshake_start *start, struct spawned *spawned, struct child_fds *child,
             struct error *error)
{
    enum status status = make_socket(&spawned->control, &child->fds[CHILD_CONTROL], error);
    /* Sent before the child exists: its orders are waiting for it, and no dead child can block us.
     */
    if (status == STATUS_OK)
        status = handshake_send(spawned->control, start, sizeof(*start), error);
    return status == STATUS_OK ? never_wait(spawned->control, error) : status;
}

/* Makes a socket with room for a message under any default of the system. */
static enum status
make_models(struct spawned *spawned, struct child_fds *child, struct error *error)
{
    enum status status = make_socket(&spawned->models, &child->fds[CHILD_MODELS], error);
    if (status != STATUS_OK)
        return status;
    const int room = 4 * (int)sizeof(struct handshake_model_said);
    (void)setsockopt(spawned->models, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    (void)setsockopt(child->fds[CHILD_MODELS], SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    return never_wait(spawned->models, error);
}

/* A pipe of its own, non-blocking at both ends: a worker goes on while shoald is stopped or busy,
 * and its output is lost then. The two ends are two open files, so this flag is shared with no
 * other process. */
static enum status
make_words(struct spawned *spawned, struct child_fds *child, struct error *error)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return error_set_errno(error, "cannot make a pipe for a worker's output");
    spawned->words = ends[0];
    child->words = fcntl(ends[1], F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE);
    close(ends[1]);
    if (child->words < 0)
        return error_set_errno(error, "descriptors for a worker");
    return STATUS_OK;
}

static enum status
try_spawn(const struct spawn_order *order, struct spawned *spawned, struct error *error)
{
    errno = 0;
    *spawned = SPAWNED_NONE;
    struct child_fds child = {
        .fds = {[CHILD_REGION] = fcntl(order->region_fd, F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
                [CHILD_COUNTERS] = fcntl(order->counters_fd, F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
                [CHILD_CONTROL] = -1,
                [CHILD_MODELS] = -1},
        .words = -1,
    };
    enum status status = STATUS_OK;
    if (child.fds[CHILD_REGION] < 0 || child.fds[CHILD_COUNTERS] < 0)
        status = error_set_errno(error, "descriptors for a worker");
    if (status == STATUS_OK)
        status = make_control(order->start, spawned, &child, error);
    if (status == STATUS_OK && order->start->serves_models != 0)
        status = make_models(spawned, &child, error);
    if (status == STATUS_OK)
        status = make_words(spawned, &child, error);
    if (status == STATUS_OK)
        status = start_process(order->program, &child, order->variables, spawned, error);
    int code = errno;
    close_child_fds(&child);
    if (status != STATUS_OK)
        spawned_close(spawned);
    errno = code; /* of the failed call */
    return status;
}

/* Shortages that may pass until the next start: descriptors, processes, memory. */
static bool
is_scarcity(int code)
{
    return code == EMFILE || code == ENFILE || code == EAGAIN || code == ENOMEM || code == ENOBUFS;
}

enum status
spawn_worker(const struct spawn_order *order, struct spawned *spawned, enum spawn_failure *failure,
             struct error *error)
{
    enum status status = try_spawn(order, spawned, error);
    if (status != STATUS_OK && is_scarcity(errno) && reserve_count > 0) {
        reserve_give_up();
        status = try_spawn(order, spawned, error);
    }
    *failure = status != STATUS_OK && is_scarcity(errno) ? SPAWN_SCARCE : SPAWN_WRONG;
    if (status == STATUS_OK && reserve_wanted > RESERVE_OF_START)
        reserve_wanted -= reserve_wanted - RESERVE_OF_START < FDS_OF_WORKER
                              ? reserve_wanted - RESERVE_OF_START
                              : FDS_OF_WORKER;
    reserve_fill();
    return status;
}

void
spawned_close(struct spawned *spawned)
{
    const int fds[] = {spawned->pidfd, spawned->control, spawned->models, spawned->words};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    pids_remove(&worker_pids, spawned->pid);
    *spawned = SPAWNED_NONE;
}

void
spawned_keep(struct spawned *spawned)
{
    const int fds[] = {spawned->pidfd, spawned->control, spawned->models, spawned->words};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            reserve_take(fds[i]);
    pids_remove(&worker_pids, spawned->pid);
    *spawned = SPAWNED_NONE;
}

void
spawned_signal(const struct spawned *spawned, int number)
{
    if (spawned->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, spawned->pidfd, number, NULL, 0);
}
