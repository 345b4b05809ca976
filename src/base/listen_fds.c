/* SPDX-License-Identifier: Apache-2.0 */
#include "base/listen_fds.h"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { FIRST_FD = 3, MANAGERS_MAX = 64 };

/* Passed to this process. */
static struct {
    struct listen_fd fds[LISTEN_FDS_MAX];
    bool is_taken[LISTEN_FDS_MAX];
    unsigned count;
    bool leaves_paths;
    mode_t umask;
} passed;

/* ---- from the service manager ---- */

static bool
add(const struct listen_fd *one)
{
    if (passed.count == LISTEN_FDS_MAX || fcntl(one->fd, F_SETFD, FD_CLOEXEC) != 0)
        return false;
    passed.fds[passed.count++] = *one;
    return true;
}

void
listen_fds_init(void)
{
    const char *pid = getenv("LISTEN_PID");
    const char *given = getenv("LISTEN_FDS");
    unsigned long count = 0;
    if (pid != NULL && given != NULL && strtol(pid, NULL, 10) == getpid())
        count = strtoul(given, NULL, 10);
    for (int i = 0; i < MANAGERS_MAX && (unsigned long)i < count; i++)
        (void)add(&(struct listen_fd){FIRST_FD + i, LISTEN_MANAGERS});
    (void)unsetenv("LISTEN_PID");
    (void)unsetenv("LISTEN_FDS");
    (void)unsetenv("LISTEN_FDNAMES");
    passed.umask = umask(0);
    (void)umask(passed.umask);
}

mode_t
listen_fds_mode(void)
{
    return ACCESSPERMS & ~passed.umask;
}

/* ---- taking ---- */

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
listens(int fd)
{
    int answer = 0;
    socklen_t bytes = sizeof(answer);
    return getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &answer, &bytes) == 0 && answer != 0;
}

static bool
listens_at(int fd, const struct sockaddr *address)
{
    struct sockaddr_storage own = {0};
    socklen_t bytes = sizeof(own);
    return listens(fd) && getsockname(fd, (struct sockaddr *)&own, &bytes) == 0 &&
           is_same(&own, address);
}

int
listen_fds_take(const struct sockaddr *address, enum listen_owner *owner)
{
    for (unsigned i = 0; i < passed.count; i++) {
        int fd = passed.fds[i].fd;
        if (passed.is_taken[i] || !listens_at(fd, address))
            continue;
        int flags = fcntl(fd, F_GETFL);
        if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
            continue;
        passed.is_taken[i] = true;
        *owner = passed.fds[i].owner;
        return fd;
    }
    return -1;
}

bool
listen_fds_are_given(void)
{
    for (unsigned i = 0; i < passed.count; i++)
        if (passed.fds[i].owner == LISTEN_MANAGERS)
            return true;
    return false;
}

unsigned
listen_fds_unused(void)
{
    unsigned unused = 0;
    for (unsigned i = 0; i < passed.count; i++)
        unused += passed.fds[i].owner == LISTEN_MANAGERS && !passed.is_taken[i];
    return unused;
}

void
listen_fds_unlink(const char *path)
{
    if (!passed.leaves_paths)
        (void)unlink(path);
}

/* ---- for a successor ---- */

static enum listen_owner
owner_of(int fd)
{
    for (unsigned i = 0; i < passed.count; i++)
        if (passed.fds[i].fd == fd)
            return passed.fds[i].owner;
    return LISTEN_OURS;
}

bool
listen_fds_find(struct listen_fd fds[LISTEN_FDS_MAX], unsigned *count)
{
    DIR *open_fds = opendir("/proc/self/fd");
    if (open_fds == NULL)
        return false;
    unsigned found = 0;
    const struct dirent *entry;
    while ((entry = readdir(open_fds)) != NULL) {
        int fd = entry->d_name[0] == '.' ? -1 : atoi(entry->d_name);
        if (fd < 0 || !listens(fd))
            continue;
        if (found < LISTEN_FDS_MAX)
            fds[found] = (struct listen_fd){fd, owner_of(fd)};
        found++;
    }
    closedir(open_fds);
    *count = found < LISTEN_FDS_MAX ? found : LISTEN_FDS_MAX;
    return found <= LISTEN_FDS_MAX;
}

void
listen_fds_leave_paths(void)
{
    passed.leaves_paths = true;
}

/* ---- a successor ---- */

bool
listen_fds_inherit(const struct listen_fd *inherited)
{
    passed.leaves_paths = true;
    return add(inherited);
}

void
listen_fds_own_paths(void)
{
    passed.leaves_paths = false;
    for (unsigned i = 0; i < passed.count; i++) {
        if (passed.is_taken[i] || passed.fds[i].owner == LISTEN_MANAGERS)
            continue;
        close(passed.fds[i].fd);
        passed.fds[i] = passed.fds[--passed.count];
        passed.is_taken[i] = passed.is_taken[passed.count];
        i--;
    }
}
