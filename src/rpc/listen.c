/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses to listen on. For TCP the library does it all, except to say what went wrong.
 *
 * Unix sockets. The library replaces whatever socket file it finds at its path, that of a living
 * server too, and at its end removes whatever lies at that path, that of a successor too. So it is
 * never told the real path: it binds ".<pid>-<n>" in the same directory, and the socket is then
 * moved to the real name by us. Asking whether the old file is stale, removing it and moving ours
 * into its place happen under a lock of the directory, and so does removing ours at the end: two
 * servers that start or end at the same moment cannot take each other's socket.
 */
#include <errno.h>
#include <fcntl.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/check.h"
#include "base/tcp_address.h"
#include "rpc/internal.h"

/* "/.4194304-99999" is the longest temporary name, and the final NUL counts in a socket address. */
enum {
    UNIX_PATH_BYTES_MAX = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1,
    UNIX_TEMPORARY_BYTES_MAX = 15,
    UNIX_TEMPORARY_COUNT = 100000,
};

_Static_assert(sizeof(((struct rpc_listener *)NULL)->path) == UNIX_PATH_BYTES_MAX + 1, "path");

/* What the library refuses and the system does not. */
#define CANNOT_LISTEN "%s: cannot listen there, and the system does not say why"

static int
core_listen(struct rpc_listener *listener, const struct rpc_binding *binding, const char *address)
{
    listener->tls.tls = binding->tls;
    grpc_server_credentials *credentials = rpc_tls_server(&listener->tls);
    rpc_library_log_quiet = true;
    int port = grpc_server_add_http2_port(binding->server, address, credentials);
    rpc_library_log_quiet = false;
    grpc_server_credentials_release(credentials);
    return port;
}

/* ---- TCP ---- */

static int
tcp_try(const struct addrinfo *at)
{
    int fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    int on = 1;
    int result = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (result == 0)
        result = bind(fd, at->ai_addr, at->ai_addrlen);
    if (result == 0)
        result = listen(fd, 1);
    int code = errno;
    close(fd);
    errno = code;
    return result;
}

/* The library says only that it failed; to know why, the same is done once more. */
static enum status
tcp_explain(const char *address, const struct tcp_address *parsed, struct error *error)
{
    struct addrinfo hints = {.ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    const char *host = parsed->host[0] != '\0' ? parsed->host : NULL;
    int failure = getaddrinfo(host, parsed->port, &hints, &found);
    if (failure != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s: %s", address, gai_strerror(failure));
    enum status status = STATUS_OK;
    for (struct addrinfo *at = found; at != NULL && status == STATUS_OK; at = at->ai_next)
        if (tcp_try(at) < 0)
            status = error_set_errno(error, "%s", address);
    freeaddrinfo(found);
    if (status == STATUS_OK)
        status = error_set(error, STATUS_UNAVAILABLE, CANNOT_LISTEN, address);
    return status;
}

static enum status
tcp_open(struct rpc_listener *listener, const struct rpc_binding *binding, const char *address,
         struct error *error)
{
    struct tcp_address parsed;
    if (!tcp_address_parse(address, &parsed))
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "%s: no address; \"port:8033\", \"127.0.0.1:8033\", \"[::1]:8033\" and "
                         "\"unix:/path\" are",
                         address);
    if (parsed.host[0] != '\0') {
        listener->port = core_listen(listener, binding, address);
    } else {
        /* The first takes IPv4 too; the second is for a kernel without IPv6. */
        char any[32];
        snprintf(any, sizeof(any), "[::]:%s", parsed.port);
        listener->port = core_listen(listener, binding, any);
        if (listener->port == 0) {
            snprintf(any, sizeof(any), "0.0.0.0:%s", parsed.port);
            listener->port = core_listen(listener, binding, any);
        }
    }
    return listener->port != 0 ? STATUS_OK : tcp_explain(address, &parsed, error);
}

/* ---- unix sockets ---- */

static size_t
directory_length(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? (size_t)(slash - path) + 1 : 0;
}

/* Opens the path's directory and locks it, against others that run this code. */
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

/* Removes a socket file that nobody listens on; whatever else is there is an error. */
static enum status
stale_remove(const char *path, struct error *error)
{
    struct stat file;
    if (lstat(path, &file) < 0)
        return errno == ENOENT ? STATUS_OK : error_set_errno(error, "unix:%s", path);
    if (!S_ISSOCK(file.st_mode))
        return error_set(error, STATUS_ALREADY_EXISTS,
                         "unix:%s: a file that is no socket is in the way", path);
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
        return error_set_errno(error, "unix:%s: the socket that is there", path);
    return STATUS_OK;
}

/* The library says only that it failed; to know why, the same is done once more. */
static enum status
unix_explain(const char *path, const char *temporary, struct error *error)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set_errno(error, "unix:%s: socket", path);
    struct sockaddr_un address = unix_address(temporary);
    enum status status;
    if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
        status = error_set_errno(error, "unix:%s", path);
    } else {
        unlink(temporary);
        status = error_set(error, STATUS_UNAVAILABLE, "unix:" CANNOT_LISTEN, path);
    }
    close(fd);
    return status;
}

/* Binds under the temporary name, then gives the socket its real one. */
static enum status
unix_bind(struct rpc_listener *listener, const struct rpc_binding *binding, const char *path,
          struct error *error)
{
    static atomic_uint counter;
    unsigned number = atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
    char address[sizeof("unix:") + UNIX_PATH_BYTES_MAX];
    snprintf(address, sizeof(address), "unix:%.*s.%d-%u", (int)directory_length(path), path,
             (int)getpid(), number % UNIX_TEMPORARY_COUNT);
    const char *temporary = address + strlen("unix:");
    if (core_listen(listener, binding, address) == 0)
        return unix_explain(path, temporary, error);
    struct stat file;
    enum status status = STATUS_OK;
    if (lstat(temporary, &file) < 0 || link(temporary, path) < 0) {
        status = error_set_errno(error, "unix:%s", path);
    } else {
        listener->device = file.st_dev;
        listener->inode = file.st_ino;
        memcpy(listener->path, path, strlen(path) + 1);
    }
    unlink(temporary);
    return status;
}

static enum status
unix_open(struct rpc_listener *listener, const struct rpc_binding *binding, const char *path,
          struct error *error)
{
    if (strlen(path) > UNIX_PATH_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "unix:%s: the path has %zu bytes, a unix socket's has %d at most", path,
                         strlen(path), UNIX_PATH_BYTES_MAX);
    if (directory_length(path) + UNIX_TEMPORARY_BYTES_MAX > UNIX_PATH_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "unix:%s: the directory has %zu bytes, a unix socket's has %d at most",
                         path, directory_length(path),
                         UNIX_PATH_BYTES_MAX - UNIX_TEMPORARY_BYTES_MAX);
    if (path[directory_length(path)] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "unix:%s: no file name", path);
    int directory;
    enum status status = directory_lock(path, &directory, error);
    if (status != STATUS_OK)
        return status;
    status = stale_remove(path, error);
    if (status == STATUS_OK)
        status = unix_bind(listener, binding, path, error);
    close(directory);
    return status;
}

/* ---- both ---- */

enum status
rpc_listener_open(struct rpc_listener *listener, const struct rpc_binding *binding,
                  const char *address, struct error *error)
{
    if (strncmp(address, "unix:", strlen("unix:")) == 0)
        return unix_open(listener, binding, address + strlen("unix:"), error);
    return tcp_open(listener, binding, address, error);
}

void
rpc_listener_close(struct rpc_listener *listener)
{
    if (listener->path[0] == '\0')
        return;
    struct error ignored;
    int directory;
    if (directory_lock(listener->path, &directory, &ignored) != STATUS_OK)
        return;
    struct stat file;
    if (lstat(listener->path, &file) == 0 && file.st_dev == listener->device &&
        file.st_ino == listener->inode)
        unlink(listener->path);
    close(directory);
}
