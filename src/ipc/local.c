/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/local.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"

#define LOCAL_SUFFIX ".local"

enum status
local_path(const char *counters_path, char *path, size_t room, struct error *error)
{
    const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - sizeof(LOCAL_SUFFIX);
    size_t bytes = strlen(counters_path);
    if (bytes > most || bytes + sizeof(LOCAL_SUFFIX) > room)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the counters' path has %zu bytes: the socket for local clients beside it "
                         "allows at most %zu",
                         bytes, most);
    snprintf(path, room, "%s" LOCAL_SUFFIX, counters_path);
    return STATUS_OK;
}

/* A control message with one descriptor. */
union rights {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int))];
};

enum status
local_send(int fd, const void *message, size_t bytes, int descriptor, struct error *error)
{
    struct iovec vector = {(void *)(uintptr_t)message, bytes};
    struct msghdr packet = {.msg_iov = &vector, .msg_iovlen = 1};
    union rights rights = {0};
    if (descriptor >= 0) {
        packet.msg_control = rights.bytes;
        packet.msg_controllen = sizeof(rights.bytes);
        struct cmsghdr *part = CMSG_FIRSTHDR(&packet);
        part->cmsg_level = SOL_SOCKET;
        part->cmsg_type = SCM_RIGHTS;
        part->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(part), &descriptor, sizeof(int));
    }
    ssize_t sent;
    do
        sent = sendmsg(fd, &packet, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return STATUS_OK;
    if (errno == EPIPE || errno == ECONNRESET)
        return error_set(error, STATUS_UNAVAILABLE, "the other side has closed");
    if (errno == EAGAIN)
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "no room for a message");
    return error_set_errno(error, "sending a message");
}

/* Returns the descriptor that came with a message; -1: none, or several, which are closed. The
 * kernel delivers as many as there is room for, and padding makes room for two. */
static int
descriptor_of(struct msghdr *packet)
{
    int fds[sizeof(union rights) / sizeof(int)];
    struct cmsghdr *part = CMSG_FIRSTHDR(packet);
    if (part == NULL || part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
        return -1;
    size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    CHECK(count <= ARRAY_COUNT(fds));
    memcpy(fds, CMSG_DATA(part), count * sizeof(int));
    if (count == 1)
        return fds[0];
    for (size_t i = 0; i < count; i++)
        close(fds[i]);
    return -1;
}

enum status
local_receive(int fd, void *message, size_t bytes, enum local_patience patience, int *descriptor,
              struct error *error)
{
    struct iovec vector = {message, bytes};
    union rights rights;
    struct msghdr packet = {.msg_iov = &vector,
                            .msg_iovlen = 1,
                            .msg_control = rights.bytes,
                            .msg_controllen = sizeof(rights.bytes)};
    ssize_t received;
    do
        received = recvmsg(fd, &packet,
                           MSG_CMSG_CLOEXEC | MSG_TRUNC |
                               (patience == LOCAL_DONT_WAIT ? MSG_DONTWAIT : 0));
    while (received < 0 && errno == EINTR);
    *descriptor = -1;
    if (received == 0 || (received < 0 && errno == ECONNRESET))
        return error_set(error, STATUS_UNAVAILABLE, "the other side has closed");
    if (received < 0 && errno == EAGAIN)
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "no message in time");
    if (received < 0)
        return error_set_errno(error, "receiving a message");
    *descriptor = descriptor_of(&packet);
    if ((size_t)received == bytes)
        return STATUS_OK;
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
    return error_set(error, STATUS_DATA_LOSS, "a message of %zd bytes instead of %zu", received,
                     bytes);
}
