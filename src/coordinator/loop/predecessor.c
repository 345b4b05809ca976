/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/loop/predecessor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/listen_fds.h"

enum { NUMBER_MAX = 1 << 30 };

static struct {
    pid_t pid;
    int pidfd;      /* its own of itself; -1: no longer needed, or there was none */
    int link;       /* -1: it has ended, or there was none */
    int stderr_fd;  /* the log's from its end on */
    bool has_ended; /* it has yielded, or died before */
    bool is_reported;
    struct predecessor_handler handler;
    struct loop_watch *watch, *exits;
    struct loop *loop;
} predecessor = {.link = -1, .pidfd = -1, .stderr_fd = -1, .has_ended = true};

/* ---- the variable ---- */

/* The next number, 0 or more; -1: there is none. */
static int
take_number(const char **at)
{
    char *end;
    if (**at < '0' || **at > '9')
        return -1;
    unsigned long number = strtoul(*at, &end, 10);
    if (number > NUMBER_MAX || (*end != ' ' && *end != '\0'))
        return -1;
    *at = end + (*end == ' ');
    return (int)number;
}

/* An open descriptor that no child is to have. */
static int
take_fd(const char **at)
{
    int fd = take_number(at);
    return fd > STDERR_FILENO && fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 ? fd : -1;
}

/* Another descriptor could not be watched. */
static bool
is_link(int fd)
{
    int type = 0;
    socklen_t bytes = sizeof(type);
    return fd >= 0 && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &bytes) == 0 &&
           type == SOCK_SEQPACKET;
}

static bool
is_pidfd(int fd)
{
    return fd >= 0 && (syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0) == 0 || errno == ESRCH);
}

static bool
take_all(const char *at)
{
    predecessor.pid = (pid_t)take_number(&at);
    predecessor.pidfd = take_fd(&at);
    predecessor.link = take_fd(&at);
    predecessor.stderr_fd = take_fd(&at);
    if (predecessor.pid <= 0 || !is_pidfd(predecessor.pidfd) || !is_link(predecessor.link) ||
        predecessor.stderr_fd < 0)
        return false;
    while (*at != '\0') {
        struct listen_fd one = {.owner = *at == 'm' ? LISTEN_MANAGERS : LISTEN_OURS};
        at += *at == 'm';
        one.fd = take_number(&at);
        if (one.fd < 0 || !listen_fds_inherit(&one))
            return false;
    }
    return true;
}

enum status
predecessor_read(struct error *error)
{
    const char *text = getenv(PREDECESSOR_VARIABLE);
    if (text == NULL)
        return STATUS_OK;
    if (!take_all(text))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         PREDECESSOR_VARIABLE "=%.64s is for a process that `shoalctl upgrade` "
                                              "starts: unset it",
                         text);
    predecessor.has_ended = false;
    (void)unsetenv(PREDECESSOR_VARIABLE);
    return STATUS_OK;
}

pid_t
predecessor_pid(void)
{
    return predecessor.pid;
}

bool
predecessor_owns(void)
{
    return !predecessor.has_ended;
}

bool
predecessor_is_alive(void)
{
    return predecessor.link >= 0;
}

/* ---- the link ---- */

/* Lines in the pipe are still logged by the predecessor, if it lives. */
static void
end(enum predecessor_end how)
{
    if (predecessor.has_ended)
        return;
    predecessor.has_ended = true;
    (void)dup2(predecessor.stderr_fd, STDERR_FILENO);
    close(predecessor.stderr_fd);
    predecessor.handler.on_end(predecessor.handler.context, how);
}

static void
forget_exit(void)
{
    loop_watch_remove(predecessor.exits);
    predecessor.exits = NULL;
    if (predecessor.pidfd >= 0)
        close(predecessor.pidfd);
    predecessor.pidfd = -1;
}

static void
on_exit_seen(void *context)
{
    (void)context;
    forget_exit();
    end(PREDECESSOR_DIED);
}

static void
hang_up(void)
{
    if (predecessor.link < 0)
        return;
    loop_watch_remove(predecessor.watch);
    predecessor.watch = NULL;
    close(predecessor.link);
    predecessor.link = -1;
}

/* The kernel closes the link of a killed process before it unlocks the counters. */
static void
on_hung_up(void)
{
    hang_up();
    if (predecessor.has_ended)
        on_exit_seen(NULL);
    else
        predecessor.exits = loop_watch_add(predecessor.loop, predecessor.pidfd, on_exit_seen, NULL);
}

static void
on_link(void *context)
{
    char said;
    (void)context;
    ssize_t bytes = recv(predecessor.link, &said, sizeof(said), MSG_DONTWAIT);
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (bytes > 0) {
        if (said == PREDECESSOR_YIELD)
            end(PREDECESSOR_YIELDS);
        return;
    }
    on_hung_up();
}

void
predecessor_watch(struct loop *loop, const struct predecessor_handler *handler)
{
    predecessor.handler = *handler;
    predecessor.loop = loop;
    if (predecessor.link >= 0)
        predecessor.watch = loop_watch_add(loop, predecessor.link, on_link, NULL);
}

void
predecessor_notify_ready(void)
{
    static const char ready = PREDECESSOR_READY;
    if (predecessor.is_reported || predecessor.has_ended)
        return;
    predecessor.is_reported = true;
    /* the first message fits; if the predecessor has gone, the watch says so */
    (void)!send(predecessor.link, &ready, sizeof(ready), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void
predecessor_close(void)
{
    hang_up();
    forget_exit();
}
