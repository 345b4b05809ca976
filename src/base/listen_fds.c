/* SPDX-License-Identifier: Apache-2.0 */
#include "base/listen_fds.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3, FDS_MAX = 64 };

static struct {
    unsigned count;
    bool is_taken[FDS_MAX];
} passed;

void
listen_fds_init(void)
{
    const char *pid = getenv("LISTEN_PID");
    const char *count = getenv("LISTEN_FDS");
    if (pid != NULL && count != NULL && strtol(pid, NULL, 10) == getpid()) {
        unsigned long number = strtoul(count, NULL, 10);
        passed.count = number < FDS_MAX ? (unsigned)number : FDS_MAX;
    }
    for (unsigned i = 0; i < passed.count; i++)
        if (fcntl(FIRST_FD + (int)i, F_SETFD, FD_CLOEXEC) != 0)
            passed.is_taken[i] = true; /* it is not open */
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
}

static bool
is_same(const struct sockaddr_storage *one, const struct sockaddr *other)
{
    const struct sockaddr_in *in = (const void *)one;
    const struct sockaddr_in *in_other = (const void *)other;
    const struct sockaddr_in6 *in6 = (const void *)one;
    const struct sockaddr_in6 *in6_other = (const void *)other;
    const struct sockaddr_un *un = (const void *)one;
    const struct sockaddr_un *un_other = (const void *)other;
    if (one->ss_family != other->sa_family)
        return false;
    switch (one->ss_family) {
    case AF_INET:
        return in->sin_port == in_other->sin_port &&
               in->sin_addr.s_addr == in_other->sin_addr.s_addr;
    case AF_INET6:
        return in6->sin6_port == in6_other->sin6_port &&
               memcmp(&in6->sin6_addr, &in6_other->sin6_addr, sizeof(in6->sin6_addr)) == 0;
    case AF_UNIX: return strncmp(un->sun_path, un_other->sun_path, sizeof(un->sun_path)) == 0;
    default: return false;
    }
}

static bool
listens_at(int fd, const struct sockaddr *address)
{
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    int listens = 0;
    socklen_t listens_bytes = sizeof(listens);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &listens_bytes) == 0 &&
           listens != 0 && getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
           is_same(&own, address);
}

int
listen_fds_take(const struct sockaddr *address)
{
    for (unsigned i = 0; i < passed.count; i++) {
        int fd = FIRST_FD + (int)i;
        if (passed.is_taken[i] || !listens_at(fd, address))
            continue;
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
            continue;
        passed.is_taken[i] = true;
        return fd;
    }
    return -1;
}

bool
listen_fds_are_given(void)
{
    return passed.count > 0;
}

unsigned
listen_fds_unused(void)
{
    unsigned unused = 0;
    for (unsigned i = 0; i < passed.count; i++)
        unused += !passed.is_taken[i];
    return unused;
}
