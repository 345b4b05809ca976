/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/http_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/tcp_address.h"

enum { BACKLOG = 512 };

enum families { THIS_FAMILY, BOTH_FAMILIES };

/* Every connection inherits TCP_NODELAY: without it the last part of a large answer would wait for
 * the client's acknowledgement of what came before, 40 ms. */
static int
socket_listen(const struct addrinfo *at, enum families families)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int on = 1;
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

/* All interfaces: IPv6 takes IPv4 too; if the kernel has none, IPv4 alone. */
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

enum status
http_socket_open(const char *address, int *fd, struct error *error)
{
    struct tcp_address parsed;
    if (!tcp_address_parse(address, &parsed))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: no address for HTTP; \"port:8008\", \"127.0.0.1:8008\" and "
                         "\"[::1]:8008\" are",
                         address);
    *fd = -1;
    if (parsed.host[0] == '\0') {
        *fd = any_listen(parsed.port);
    } else {
        struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
        struct addrinfo *found;
        int failure = getaddrinfo(parsed.host, parsed.port, &hints, &found);
        if (failure != 0)
            return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s", address,
                             gai_strerror(failure));
        for (const struct addrinfo *at = found; at != NULL && *fd < 0; at = at->ai_next)
            *fd = socket_listen(at, THIS_FAMILY);
        freeaddrinfo(found);
    }
    if (*fd >= 0)
        return STATUS_OK;
    error_set_errno(error, "%s: cannot listen there", address);
    return error->status = STATUS_UNAVAILABLE;
}

unsigned
http_socket_port(int fd)
{
    struct sockaddr_in6 bound = {0}; /* IPv4's has the port at the same place */
    socklen_t bytes = sizeof(bound);
    CHECK(getsockname(fd, (struct sockaddr *)&bound, &bytes) == 0);
    return ntohs(bound.sin6_port);
}
