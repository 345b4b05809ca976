/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/workers/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/check.h"

extern char **environ;

/* Descriptors to hand over are moved up here first, so that dup2 to 3, 4, 5, 6 overwrites none of
 * them. */
enum { SPAWN_FD_ABOVE = 10 };

/* What spawn_keep_cpus saw; empty: workers start where the coordinator is. */
static cpu_set_t kept_cpus;

/* The child's, in the order of their numbers from HANDSHAKE_FD_REGION on; -1: it has none. */
enum { CHILD_REGION, CHILD_COUNTERS, CHILD_CONTROL, CHILD_MODELS, CHILD_FDS };

struct child_fds {
    int fds[CHILD_FDS];
};

_Static_assert(HANDSHAKE_FD_REGION + CHILD_MODELS == HANDSHAKE_FD_MODELS, "numbers without a gap");

static void
close_child_fds(struct child_fds *child)
{
    for (size_t i = 0; i < CHILD_FDS; i++)
        if (child->fds[i] >= 0)
            close(child->fds[i]);
}

static int
spawn_process(const char *program, const struct child_fds *child, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawnattr_init(&attributes) == 0);
    for (int i = 0; i < CHILD_FDS; i++)
        if (child->fds[i] >= 0)
            posix_spawn_file_actions_adddup2(&actions, child->fds[i], HANDSHAKE_FD_REGION + i);
    sigset_t none;
    sigset_t all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    /* its own process group: an interrupt from the terminal is for the coordinator to handle */
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                              POSIX_SPAWN_SETPGROUP);
    char name[] = "shoal-worker";
    char *const arguments[] = {name, NULL};
    int code = posix_spawn(pid, program, &actions, &attributes, arguments, environ);
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

/* A child starts on its parent's CPUs, and posix_spawn has no attribute for others. */
static int
spawn_on_kept_cpus(const char *program, const struct child_fds *child, pid_t *pid)
{
    cpu_set_t own;
    bool moved = CPU_COUNT(&kept_cpus) > 0 && sched_getaffinity(0, sizeof(own), &own) == 0 &&
                 sched_setaffinity(0, sizeof(kept_cpus), &kept_cpus) == 0;
    int code = spawn_process(program, child, pid);
    if (moved)
        (void)sched_setaffinity(0, sizeof(own), &own);
    return code;
}

static enum status
start_process(const char *program, const struct child_fds *child, struct spawned *spawned,
              struct error *error)
{
    int code = spawn_on_kept_cpus(program, child, &spawned->pid);
    if (code != 0) {
        errno = code;
        return error_set_errno(error, "starting %s", program);
    }
    spawned->pidfd = (int)syscall(SYS_pidfd_open, spawned->pid, 0);
    if (spawned->pidfd >= 0 && fcntl(spawned->pidfd, F_SETFD, FD_CLOEXEC) == 0)
        return STATUS_OK;
    enum status status = error_set_errno(error, "pidfd_open");
    kill(spawned->pid, SIGKILL);
    waitpid(spawned->pid, NULL, 0);
    if (spawned->pidfd >= 0)
        close(spawned->pidfd);
    spawned->pid = -1;
    spawned->pidfd = -1;
    return status;
}

/* A socket of which `*child` is to be handed over, moved up. */
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

/* From here on we never wait: whoever has a copy of the other end can keep it open and silent. */
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
    /* Sent before the child exists: it finds its orders waiting, and no dead child can block us. */
    if (status == STATUS_OK)
        status = handshake_send(spawned->control, start, sizeof(*start), error);
    return status == STATUS_OK ? never_wait(spawned->control, error) : status;
}

/* With room for a message, whatever the system's default is. */
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

enum status
spawn_worker(const char *program, int region_fd, int counters_fd,
             const struct handshake_start *start, struct spawned *spawned, struct error *error)
{
    *spawned = SPAWNED_NONE;
    struct child_fds child = {{
        [CHILD_REGION] = fcntl(region_fd, F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
        [CHILD_COUNTERS] = fcntl(counters_fd, F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
        [CHILD_CONTROL] = -1,
        [CHILD_MODELS] = -1,
    }};
    enum status status = STATUS_OK;
    if (child.fds[CHILD_REGION] < 0 || child.fds[CHILD_COUNTERS] < 0)
        status = error_set_errno(error, "descriptors for a worker");
    if (status == STATUS_OK)
        status = make_control(start, spawned, &child, error);
    if (status == STATUS_OK && start->serves_models != 0)
        status = make_models(spawned, &child, error);
    if (status == STATUS_OK)
        status = start_process(program, &child, spawned, error);
    close_child_fds(&child);
    if (status != STATUS_OK)
        spawned_close(spawned);
    return status;
}

void
spawned_close(struct spawned *spawned)
{
    const int fds[] = {spawned->pidfd, spawned->control, spawned->models};
    for (size_t i = 0; i < ARRAY_COUNT(fds); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    *spawned = SPAWNED_NONE;
}

void
spawned_signal(const struct spawned *spawned, int number)
{
    if (spawned->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, spawned->pidfd, number, NULL, 0);
}
