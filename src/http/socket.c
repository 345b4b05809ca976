/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets for HTTP: one interface, or all, IPv6 and IPv4 together; or a unix socket.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/listen_fds.h"
#include "base/tcp_address.h"
#include "http/internal.h"

enum { BACKLOG = 512 };

enum families { THIS_FAMILY, BOTH_FAMILIES };

/* Connections inherit TCP_NODELAY: without it the last part of a large answer would wait 40 ms for
 * the client's acknowledgement of the part before. */
static int
socket_listen(const struct addrinfo *at, enum families families)
{
    enum listen_owner owner;
    int fd = listen_fds_take(at->ai_addr, &owner);
    int on = 1;
    if (fd >= 0) {
        (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        return fd;
    }
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int off = 0;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0 &&
        (families == THIS_FAMILY ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
        bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

/* All interfaces: IPv6 takes IPv4 too; without IPv6 in the kernel, IPv4 alone. */
static int
any_listen(const char *port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port))};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    struct addrinfo at = {
        .ai_family = AF_INET6, .ai_addr = (struct sockaddr *)&six, .ai_addrlen = sizeof(six)};
    int fd = socket_listen(&at, BOTH_FAMILIES);
    if (fd >= 0 || errno == EADDRINUSE || errno == EACCES)
        return fd;
    at = (struct addrinfo){
        .ai_family = AF_INET, .ai_addr = (struct sockaddr *)&four, .ai_addrlen = sizeof(four)};
    return socket_listen(&at, THIS_FAMILY);
}

/* A socket file without a listener is left from an earlier run. */
static bool
is_abandoned(const struct sockaddr_un *at)
{
    struct stat file;
    if (stat(at->sun_path, &file) != 0 || !S_ISSOCK(file.st_mode))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool refused = fd >= 0 && connect(fd, (const struct sockaddr *)at, sizeof(*at)) != 0 &&
                   errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    return refused;
}

static int
unix_listen(const char *path, bool *is_ours)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(at.sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(at.sun_path, path, strlen(path) + 1);
    enum listen_owner owner = LISTEN_OURS;
    int fd = listen_fds_take((const struct sockaddr *)&at, &owner);
    *is_ours = owner == LISTEN_OURS;
    if (fd >= 0)
        return fd;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (is_abandoned(&at))
        unlink(path);
    if (bind(fd, (struct sockaddr *)&at, sizeof(at)) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

static enum status
tcp_open(const char *address, int *fd, struct error *error)
{
    struct tcp_address parsed;
    if (!tcp_address_parse(address, &parsed))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: not an address such as \"port:8008\", \"127.0.0.1:8008\", "
                         "\"[::1]:8008\" or \"unix:/path\"",
                         address);
    if (parsed.host[0] == '\0') {
        *fd = any_listen(parsed.port);
        return STATUS_OK;
    }
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int failure = getaddrinfo(parsed.host, parsed.port, &hints, &found);
    if (failure != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s", address, gai_strerror(failure));
    for (const struct addrinfo *at = found; at != NULL && *fd < 0; at = at->ai_next)
        *fd = socket_listen(at, THIS_FAMILY);
    freeaddrinfo(found);
    return STATUS_OK;
}

enum status
http_socket_open(const char *address, int *fd, char **unix_path, struct error *error)
{
    static const char prefix[] = "unix:";
    enum status status = STATUS_OK;
    *fd = -1;
    *unix_path = NULL;
    bool is_ours = true;
    bool is_unix = strncmp(address, prefix, sizeof(prefix) - 1) == 0;
    if (is_unix)
        *fd = unix_listen(address + sizeof(prefix) - 1, &is_ours);
    else
        status = tcp_open(address, fd, error);
    if (status != STATUS_OK)
        return status;
    if (*fd < 0) {
        error_set_errno(error, "%s: cannot listen there", address);
        return error->status = STATUS_UNAVAILABLE;
    }
    if (is_unix && is_ours) {
        *unix_path = strdup(address + sizeof(prefix) - 1);
        CHECK(*unix_path != NULL);
    }
    return STATUS_OK;
}

unsigned
http_socket_port(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof(bound);
    CHECK(getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0);
    /* IPv4 has the port at the same offset */
    bool is_inet = bound.ss_family == AF_INET || bound.ss_family == AF_INET6;
    return is_inet ? ntohs(((struct sockaddr_in6 *)&bound)->sin6_port) : 0;
}

bool
http_socket_is_unix(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof(bound);
    CHECK(getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0);
    return bound.ss_family == AF_UNIX;
}

bool
http_socket_loops(int fd)
{
    struct sockaddr_storage bound = {0};
    socklen_t bytes = sizeof(bound);
    CHECK(getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0);
    const struct sockaddr_in *in = (const struct sockaddr_in *)&bound;
    const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&bound;
    if (bound.ss_family == AF_INET)
        return ntohl(in->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    return bound.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr);
}
