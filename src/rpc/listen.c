/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets. They are ours, not the library's: it would stop accepting for good when
 * descriptors first run out, does not limit connections, and unlinks any file at the path of a unix
 * socket. accept.c takes the connections.
 *
 * Unix sockets. Checking whether an old file is stale, removing it and binding ours happen under a
 * lock of the directory, and so does removing ours at the end: two servers that start or end at the
 * same moment cannot take each other's socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/listen_fds.h"
#include "base/tcp_address.h"
#include "rpc/internal.h"

enum {
    UNIX_PATH_BYTES_MAX = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1,
    BACKLOG = SOMAXCONN,
    UNANSWERED_MS_MAX = 20000, /* for sent data; then the peer is given up */
};

_Static_assert(sizeof(((struct rpc_listener *)NULL)->path) == UNIX_PATH_BYTES_MAX + 1, "path");

static void
listener_add(struct rpc_listener *listener, int fd)
{
    CHECK(listener->fd_count < RPC_LISTENER_FDS_MAX);
    listener->fds[listener->fd_count++] = fd;
}

/* -1: none was passed to this process. */
static int
take_passed(const struct rpc_listener *listener, const struct sockaddr *address,
            enum listen_owner *owner)
{
    return listener->sockets == RPC_SOCKETS_PRIVATE ? -1 : listen_fds_take(address, owner);
}

/* ---- TCP ---- */

/* Accepted sockets inherit the options set here. */
static int
tcp_prepare(int fd, int family)
{
    static const int on = 1;
    static const int off = 0;
    static const unsigned unanswered_ms = UNANSWERED_MS_MAX;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unanswered_ms, sizeof(unanswered_ms));
    return family != AF_INET6 ? 0 : setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
}

static void
port_set(struct sockaddr *address, int port)
{
    uint16_t number = htons((uint16_t)port);
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = number;
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = number;
}

static int
port_of(int fd)
{
    struct sockaddr_in6 address = {0}; /* both families have the port at the same offset */
    socklen_t bytes = sizeof(address);
    CHECK(getsockname(fd, (struct sockaddr *)&address, &bytes) == 0);
    return ntohs(address.sin6_port);
}

/* A listening socket for one address; -1 with errno. */
static int
tcp_bind(const struct rpc_listener *listener, const struct addrinfo *at)
{
    enum listen_owner owner;
    int fd = take_passed(listener, at->ai_addr, &owner);
    if (fd >= 0) {
        (void)tcp_prepare(fd, AF_INET); /* the family's options are for sockets without a name */
        return fd;
    }
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (tcp_prepare(fd, at->ai_family) == 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

/* Binds all addresses of a name, at one port: that of the first, if any will do. Fails if none can
 * be bound. */
static enum status
tcp_bind_all(struct rpc_listener *listener, const char *address, const char *host, const char *port,
             struct error *error)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    int failure = getaddrinfo(host, port, &hints, &found);
    if (failure != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s", address, gai_strerror(failure));
    enum status status = STATUS_OK;
    for (struct addrinfo *at = found; at != NULL; at = at->ai_next) {
        if (listener->fd_count == RPC_LISTENER_FDS_MAX)
            break;
        if (listener->port != 0)
            port_set(at->ai_addr, listener->port);
        int fd = tcp_bind(listener, at);
        if (fd < 0) {
            status = error_set_errno(error, "%s", address);
            continue;
        }
        listener_add(listener, fd);
        listener->port = port_of(fd);
    }
    freeaddrinfo(found);
    return listener->fd_count > 0 ? STATUS_OK : status;
}

static enum status
tcp_open(struct rpc_listener *listener, const char *address, struct error *error)
{
    struct tcp_address parsed;
    if (!tcp_address_parse(address, &parsed))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: not an address such as \"port:8033\", \"127.0.0.1:8033\", "
                         "\"[::1]:8033\" or \"unix:/path\"",
                         address);
    /* All interfaces: the first takes IPv4 too; the second is for kernels without IPv6. Both names
     * mean all. */
    bool any = parsed.host[0] == '\0' || strcmp(parsed.host, "::") == 0 ||
               strcmp(parsed.host, "0.0.0.0") == 0;
    if (!any)
        return tcp_bind_all(listener, address, parsed.host, parsed.port, error);
    enum status status = tcp_bind_all(listener, address, "::", parsed.port, error);
    if (status == STATUS_OK || status == STATUS_FAILED_PRECONDITION)
        return status;
    return tcp_bind_all(listener, address, "0.0.0.0", parsed.port, error);
}

/* ---- unix sockets ---- */

static size_t
directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* Opens and locks the path's directory, against others that run this code. */
static enum status
directory_lock(const char *path, int *fd, struct error *error)
{
    char name[UNIX_PATH_BYTES_MAX + 3];
    int length = (int)directory_length(path);
    snprintf(name, sizeof(name), "%.*s.", length, path);
    *fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*fd < 0)
        return error_set_errno(error, "unix:%s: directory %.*s", path, length, path);
    if (flock(*fd, LOCK_EX) == 0)
        return STATUS_OK;
    enum status status =
        error_set_errno(error, "unix:%s: lock of directory %.*s", path, length, path);
    close(*fd);
    *fd = -1;
    return status;
}

static struct sockaddr_un
unix_address(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    return address;
}

/* Removes a socket file without a listener; any other file is an error. */
static enum status
stale_remove(const char *path, struct error *error)
{
    struct stat file;
    if (lstat(path, &file) < 0)
        return errno == ENOENT ? STATUS_OK : error_set_errno(error, "unix:%s", path);
    if (!S_ISSOCK(file.st_mode))
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "unix:%s: the path exists and is not a socket", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(error, "unix:%s: socket", path);
    struct sockaddr_un address = unix_address(path);
    int result = connect(fd, (struct sockaddr *)&address, sizeof(address));
    int code = result < 0 ? errno : 0;
    close(fd);
    if (code == 0 || code == EAGAIN)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "unix:%s: in use, another process listens there", path);
    errno = code;
    if (code != ECONNREFUSED || unlink(path) < 0)
        return error_set_errno(error, "unix:%s: the existing socket", path);
    return STATUS_OK;
}

/* Notes the file, which is to be removed with the listener. */
static bool
path_is_ours(struct rpc_listener *listener, const char *path)
{
    struct stat file;
    if (lstat(path, &file) < 0)
        return false;
    listener->device = file.st_dev;
    listener->inode = file.st_ino;
    return true;
}

/* The directory is locked, and there is no file at the path. The file is created with the socket's
 * mode less the umask: no client that `mode` excludes can connect before chmod completes it. */
static enum status
unix_bind(struct rpc_listener *listener, const char *path, const uint32_t *mode,
          struct error *error)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set_errno(error, "unix:%s: socket", path);
    struct sockaddr_un address = unix_address(path);
    if ((mode != NULL && fchmod(fd, *mode) < 0) ||
        bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        enum status status = error_set_errno(error, "unix:%s", path);
        close(fd);
        return status;
    }
    if ((mode != NULL && chmod(path, *mode) < 0) || listen(fd, BACKLOG) < 0 ||
        !path_is_ours(listener, path)) {
        enum status status = error_set_errno(error, "unix:%s", path);
        unlink(path);
        close(fd);
        return status;
    }
    memcpy(listener->path, path, strlen(path) + 1);
    listener_add(listener, fd);
    return STATUS_OK;
}

static enum status
unix_open(struct rpc_listener *listener, const char *path, const uint32_t *mode,
          struct error *error)
{
    if (strlen(path) > UNIX_PATH_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "unix:%s: the path has %zu bytes, a unix socket's has %d at most", path,
                         strlen(path), UNIX_PATH_BYTES_MAX);
    if (path[directory_length(path)] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "unix:%s: no file name", path);
    struct sockaddr_un address = unix_address(path);
    enum listen_owner owner;
    int fd = take_passed(listener, (const struct sockaddr *)&address, &owner);
    if (fd >= 0) {
        listener_add(listener, fd);
        listener->is_inherited = owner == LISTEN_OURS && path_is_ours(listener, path);
        listener->mode = mode != NULL ? *mode : listen_fds_mode();
        if (listener->is_inherited)
            memcpy(listener->path, path, strlen(path) + 1);
        return STATUS_OK;
    }
    int directory;
    enum status status = directory_lock(path, &directory, error);
    if (status != STATUS_OK)
        return status;
    status = stale_remove(path, error);
    if (status == STATUS_OK)
        status = unix_bind(listener, path, mode, error);
    close(directory);
    return status;
}

/* ---- both ---- */

enum status
rpc_listener_open(struct rpc_listener *listener, const char *address, const uint32_t *socket_mode,
                  struct error *error)
{
    if (strncmp(address, "unix:", strlen("unix:")) == 0)
        return unix_open(listener, address + strlen("unix:"), socket_mode, error);
    return tcp_open(listener, address, error);
}

/* Not earlier: until then the socket is a predecessor's, which may go on. If this fails, the path
 * is gone or another's, and nobody connects by it. */
void
rpc_listener_permit(const struct rpc_listener *listener)
{
    struct stat file;
    if (listener->is_inherited && lstat(listener->path, &file) == 0 &&
        file.st_dev == listener->device && file.st_ino == listener->inode)
        (void)!chmod(listener->path, listener->mode);
}

void
rpc_listener_shut(struct rpc_listener *listener)
{
    while (listener->fd_count > 0)
        close(listener->fds[--listener->fd_count]);
}

void
rpc_listener_close(struct rpc_listener *listener)
{
    rpc_listener_shut(listener);
    if (listener->path[0] == '\0')
        return;
    struct error ignored;
    int directory;
    if (directory_lock(listener->path, &directory, &ignored) != STATUS_OK)
        return;
    struct stat file;
    if (lstat(listener->path, &file) == 0 && file.st_dev == listener->device &&
        file.st_ino == listener->inode)
        listen_fds_unlink(listener->path);
    close(directory);
}
