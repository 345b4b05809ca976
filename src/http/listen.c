/* SPDX-License-Identifier: Apache-2.0 */
/* Accepting, and the limits on connections. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "http/internal.h"

enum { ACCEPTED_PER_TURN = 16, LOOKS_MAX = 16, PAUSE_MS = 100, COMPLAINT_S = 10 };

/* ---- room ---- */

/* Unread bytes of a request have arrived: many connections may be accepted before any is read. */
static bool
has_news(const struct http_connection *connection)
{
    int bytes = 0;
    return ioctl(connection->channel.fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

/* The connection of a peer, or of the pool (NULL), that has been idle longest; NULL: none. Those
 * with news are moved behind the others. */
static struct http_connection *
longest_idle(struct http_pool *pool, struct http_peer *peer)
{
    for (int looks = 0; looks < LOOKS_MAX; looks++) {
        struct http_connection *first =
            peer != NULL ? TAILQ_FIRST(&peer->idle) : TAILQ_FIRST(&pool->idle);
        if (first == NULL || !has_news(first))
            return first;
        http_idle_remove(first);
        http_idle_add(first);
    }
    return NULL;
}

static void
evict(struct http_connection *connection)
{
    http_count(connection->listener->pool, HTTP_EVICTED, 1);
    http_connection_close(connection);
}

/* Makes room for one more connection if possible. */
static bool
has_room(struct http_pool *pool, struct http_peer *peer)
{
    const struct http_pool_options *options = &pool->options;
    struct http_connection *idle;
    if (peer != NULL && options->peer_connections_max > 0 &&
        peer->connection_count >= options->peer_connections_max) {
        idle = longest_idle(pool, peer);
        if (idle == NULL)
            return false;
        peer->connection_count++; /* keep it beyond its last connection */
        evict(idle);
        peer->connection_count--;
    }
    if (pool->connection_count < options->connections_max)
        return true;
    idle = longest_idle(pool, NULL);
    if (idle == NULL)
        return false;
    if (peer != NULL)
        peer->connection_count++;
    evict(idle);
    if (peer != NULL)
        peer->connection_count--;
    return true;
}

static void
admit(struct http_listener *listener, int fd, const struct sockaddr *from, struct http_peer *peer)
{
    struct http_pool *pool = listener->pool;
    struct http_connection *connection =
        http_connection_open(listener, fd, from, HTTP_ADMITTED, peer);
    if (connection == NULL)
        return;
    const struct http_pool_options *options = &pool->options;
    CHECK(pool->connection_count < options->connections_max);
    CHECK(peer == NULL || options->peer_connections_max == 0 ||
          peer->connection_count < options->peer_connections_max);
    connection->is_counted = true;
    pool->connection_count++;
    if (peer != NULL)
        peer->connection_count++;
    http_count(pool, HTTP_CONNECTIONS, 1);
}

/* Refuses a connection without waiting for its TLS handshake. */
static void
turn_away(struct http_listener *listener, int fd, const struct sockaddr *from)
{
    struct http_connection *connection = NULL;
    if (listener->tls == NULL && listener->pool->lingerer_count < HTTP_LINGERERS_MAX)
        connection = http_connection_open(listener, fd, from, HTTP_OVER_LIMIT, NULL);
    else
        evutil_closesocket(fd);
    if (connection != NULL)
        http_refuse(connection, 503, "too many connections are open");
    else
        http_count(listener->pool, HTTP_REFUSED, 1);
}

static void
on_accepted(struct http_listener *listener, int fd, const struct sockaddr *from)
{
    struct http_peer *peer = http_peer_of(listener->pool, from);
    if (has_room(listener->pool, peer))
        admit(listener, fd, from, peer);
    else
        turn_away(listener, fd, from);
    http_peer_look(listener->pool, peer);
}

/* ---- pauses ---- */

static void
listeners_switch(struct http_server *server, bool listens)
{
    struct http_pool *pool;
    struct http_listener *listener;
    LIST_FOREACH (pool, &server->pools, link)
        LIST_FOREACH (listener, &pool->listeners, link)
            CHECK((listens ? event_add(listener->readable, NULL) : event_del(listener->readable)) ==
                  0);
}

void
http_listeners_pause(struct http_server *server)
{
    listeners_switch(server, false);
}

void
http_listeners_resume(struct http_server *server)
{
    listeners_switch(server, true);
}

/* No descriptor or memory is left: retrying at once would only burn CPU. */
static void
on_lack(struct http_pool *pool, int code)
{
    int64_t now_ns = clock_now_ns();
    http_count(pool, HTTP_NOT_ACCEPTING, 1);
    if (pool->complained_ns == 0 || now_ns - pool->complained_ns >= COMPLAINT_S * NS_PER_S) {
        log_warn("http_not_accepting errno=%d why=\"%s\" service=%s connections=%u", code,
                 strerror(code), pool->options.name, pool->connection_count);
        pool->complained_ns = now_ns;
    }
    http_listeners_pause(pool->server);
    loop_timer_set(pool->server->pause, PAUSE_MS * (int64_t)NS_PER_MS);
}

/* epoll reports the rest again; existing connections have a turn first. */
static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct http_listener *listener = context;
    for (int i = 0; i < ACCEPTED_PER_TURN; i++) {
        struct sockaddr_storage from = {.ss_family = AF_UNIX};
        socklen_t bytes = sizeof(from);
        int accepted = accept4(fd, (struct sockaddr *)&from, &bytes, SOCK_NONBLOCK | SOCK_CLOEXEC);
        int code = errno;
        if (accepted >= 0) {
            on_accepted(listener, accepted, (const struct sockaddr *)&from);
            continue;
        }
        if (code != EAGAIN && code != EINTR && code != ECONNABORTED)
            on_lack(listener->pool, code);
        return;
    }
}

/* ---- listeners ---- */

enum status
http_listen(struct http_pool *pool, const char *address, const struct http_service *service,
            struct http_tls *tls, struct error *error)
{
    int fd;
    char *unix_path;
    enum status status = http_socket_open(address, &fd, &unix_path, error);
    if (status != STATUS_OK)
        return status;
    struct http_listener *listener = calloc(1, sizeof(*listener));
    CHECK(listener != NULL);
    listener->pool = pool;
    listener->service = *service;
    listener->tls = tls;
    listener->unix_path = unix_path;
    listener->fd = fd;
    listener->place = tls != NULL               ? HTTP_AT_TLS
                      : http_socket_is_unix(fd) ? HTTP_AT_UNIX
                      : http_socket_loops(fd)   ? HTTP_AT_LOOPBACK
                                                : HTTP_AT_NETWORK;
    listener->readable =
        event_new(pool->server->base, fd, EV_READ | EV_PERSIST, on_readable, listener);
    CHECK(listener->readable != NULL && event_add(listener->readable, NULL) == 0);
    LIST_INSERT_HEAD(&pool->listeners, listener, link);
    log_info("http_listening address=%s port=%u service=%s tls=%s", address, http_socket_port(fd),
             pool->options.name, tls != NULL ? "yes" : "no");
    return STATUS_OK;
}

void
http_listener_destroy(struct http_listener *listener)
{
    LIST_REMOVE(listener, link);
    event_free(listener->readable);
    /* Unlink before closing: while it listens, no other server takes the file for abandoned and
     * replaces it. */
    if (listener->unix_path != NULL)
        listen_fds_unlink(listener->unix_path);
    free(listener->unix_path);
    close(listener->fd);
    free(listener);
}
