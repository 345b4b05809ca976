/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/spawn.h"

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

/* Descriptors to hand over are moved up here first, so that dup2 to 3, 4, 5 overwrites none of
 * them. */
enum { SPAWN_FD_ABOVE = 10 };

/* What spawn_keep_cpus saw; empty: workers start where the coordinator is. */
static cpu_set_t kept_cpus;

struct child_fds {
    int region;
    int counters;
    int control;
};

static void
close_child_fds(struct child_fds *fds)
{
    int all[] = {fds->region, fds->counters, fds->control};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        if (all[i] >= 0)
            close(all[i]);
}

static int
spawn_process(const char *program, const struct child_fds *fds, pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    CHECK(posix_spawn_file_actions_init(&actions) == 0);
    CHECK(posix_spawnattr_init(&attributes) == 0);
    posix_spawn_file_actions_adddup2(&actions, fds->region, HANDSHAKE_FD_REGION);
    posix_spawn_file_actions_adddup2(&actions, fds->counters, HANDSHAKE_FD_COUNTERS);
    posix_spawn_file_actions_adddup2(&actions, fds->control, HANDSHAKE_FD_CONTROL);
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
spawn_on_kept_cpus(const char *program, const struct child_fds *fds, pid_t *pid)
{
    cpu_set_t own;
    bool moved = CPU_COUNT(&kept_cpus) > 0 && sched_getaffinity(0, sizeof(own), &own) == 0 &&
                 sched_setaffinity(0, sizeof(kept_cpus), &kept_cpus) == 0;
    int code = spawn_process(program, fds, pid);
    if (moved)
        (void)sched_setaffinity(0, sizeof(own), &own);
    return code;
}

static enum status
start_process(const char *program, const struct child_fds *fds, struct spawned *spawned,
              struct error *error)
{
    int code = spawn_on_kept_cpus(program, fds, &spawned->pid);
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

enum status
spawn_worker(const char *program, int region_fd, int counters_fd,
             const struct handshake_start *start, struct spawned *spawned, struct error *error)
{
    *spawned = (struct spawned){.pid = -1, .pidfd = -1, .control = -1};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return error_set_errno(error, "control socket");
    struct child_fds fds = {
        .region = fcntl(region_fd, F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
        .counters = fcntl(counters_fd, F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
        .control = fcntl(pair[1], F_DUPFD_CLOEXEC, SPAWN_FD_ABOVE),
    };
    close(pair[1]);
    spawned->control = pair[0];
    enum status status = STATUS_OK;
    if (fds.region < 0 || fds.counters < 0 || fds.control < 0)
        status = error_set_errno(error, "descriptors for a worker");
    /* Sent before the child exists: it finds its orders waiting, and no dead child can block us. */
    if (status == STATUS_OK)
        status = handshake_send(spawned->control, start, sizeof(*start), error);
    /* From here on we only listen, and never wait: whoever has a copy of the other end can keep it
     * open and silent. */
    if (status == STATUS_OK && fcntl(spawned->control, F_SETFL, O_NONBLOCK) != 0)
        status = error_set_errno(error, "control socket");
    if (status == STATUS_OK)
        status = start_process(program, &fds, spawned, error);
    close_child_fds(&fds);
    if (status != STATUS_OK) {
        close(spawned->control);
        spawned->control = -1;
    }
    return status;
}

void
spawned_signal(const struct spawned *spawned, int number)
{
    if (spawned->pid > 0)
        (void)syscall(SYS_pidfd_send_signal, spawned->pidfd, number, NULL, 0);
}
