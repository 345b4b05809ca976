/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ask.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl/ctl.h"
#include "ctl/json.h"

static enum status
connect_to(struct ctl_ask *ask, struct error *error)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, ask->path, sizeof(address.sun_path));
    ask->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (ask->fd < 0)
        return error_set_errno(error, "socket");
    if (connect(ask->fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return STATUS_OK;
    if (errno == EACCES || errno == EPERM)
        return error_set(error, STATUS_PERMISSION_DENIED,
                         "%s: permission denied: only root and the node's user may connect",
                         ask->path);
    return error_set(error, STATUS_UNAVAILABLE,
                     "no node listens at %s (%s): is it running, and is this its --counters?",
                     ask->path, strerror(errno));
}

static enum status
hung_up(const struct ctl_ask *ask, struct error *error)
{
    return error_set(error, STATUS_UNAVAILABLE,
                     "%s: the node closed without an answer: it died, or is another build",
                     ask->path);
}

enum status
ask_send(struct ctl_ask *ask, const char *counters_path, const struct control_request *request,
         struct error *error)
{
    *ask = (struct ctl_ask){.fd = -1};
    enum status status = control_path(counters_path, ask->path, sizeof(ask->path), error);
    if (status == STATUS_OK)
        status = connect_to(ask, error);
    if (status == STATUS_OK &&
        send(ask->fd, request, sizeof(*request), MSG_NOSIGNAL) != sizeof(*request))
        status = hung_up(ask, error);
    if (status != STATUS_OK)
        ask_close(ask);
    return status;
}

void
ask_close(struct ctl_ask *ask)
{
    if (ask->fd >= 0)
        close(ask->fd);
    ask->fd = -1;
}

/* True: data is there, or the other side has closed. */
static bool
wait_readable(int fd, int64_t timeout_ns)
{
    int64_t deadline_ns = clock_now_ns() + timeout_ns;
    for (;;) {
        int64_t left_ns = deadline_ns - clock_now_ns();
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        int ready = poll(&poll_fd, 1, left_ns <= 0 ? 0 : (int)(left_ns / NS_PER_MS) + 1);
        if (ready > 0)
            return true;
        if (left_ns <= 0)
            return false;
    }
}

/* The descriptor in the message; -1: none. */
static int
descriptor_of(struct msghdr *message)
{
    int fd = -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (header != NULL && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(fd)))
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

enum status
ask_receive(struct ctl_ask *ask, int64_t timeout_ns, struct control_answer *answer, int *list_fd,
            struct error *error)
{
    union {
        char room[CMSG_SPACE(sizeof(int))];
        struct cmsghdr aligned;
    } control;
    struct iovec part = {.iov_base = answer, .iov_len = sizeof(*answer)};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof(control.room)};
    if (!wait_readable(ask->fd, timeout_ns))
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "no answer yet");
    ssize_t bytes = recvmsg(ask->fd, &message, MSG_CMSG_CLOEXEC);
    int fd = bytes > 0 ? descriptor_of(&message) : -1;
    if (list_fd != NULL)
        *list_fd = fd;
    else if (fd >= 0)
        close(fd);
    /* A refusal is readable in every version; anything else is of another protocol. */
    if (bytes != sizeof(*answer) ||
        (answer->version != CONTROL_VERSION && answer->status == STATUS_OK))
        return hung_up(ask, error);
    answer->text[sizeof(answer->text) - 1] = '\0';
    return STATUS_OK;
}

int
ask_failed(bool json, const struct error *error)
{
    return ctl_fail(error->status == STATUS_DEADLINE_EXCEEDED ? CTL_LATE : CTL_UNREACHABLE, json,
                    error);
}

int
ask_notify(bool json, const struct control_answer *answer)
{
    if (answer->status != STATUS_OK) {
        struct error error = ERROR_NONE;
        error_set(&error, status_from_number(answer->status), "%s", answer->text);
        return ctl_fail(CTL_NEGATIVE, json, &error);
    }
    if (!json) {
        puts(answer->text);
        return CTL_OK;
    }
    struct json writer;
    json_init(&writer, stdout);
    json_object_begin(&writer);
    json_field_string(&writer, "status", status_name(STATUS_OK));
    json_field_string(&writer, "text", answer->text);
    json_object_end(&writer);
    putchar('\n');
    return CTL_OK;
}
