/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

int
process_of(const struct ctl_ask *ask)
{
    struct ucred peer = {0};
    socklen_t bytes = sizeof(peer);
    if (getsockopt(ask->fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 || peer.pid <= 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, peer.pid, 0);
}

bool
process_wait(int process, int64_t deadline_ns)
{
    struct pollfd ends = {.fd = process, .events = POLLIN};
    int64_t left_ms = (deadline_ns - clock_now_ns()) / NS_PER_MS;
    return process < 0 || poll(&ends, 1, left_ms > 0 ? (int)left_ms : 0) == 1;
}
