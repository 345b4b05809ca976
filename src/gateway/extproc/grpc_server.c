/* SPDX-License-Identifier: Apache-2.0 */
/* Accepting; limits; streams that are idle. */
#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/listen_fds.h"
#include "base/log.h"
#include "gateway/extproc/grpc_internal.h"
#include "http/socket.h"

enum { ACCEPTED_PER_TURN = 16, PAUSE_MS = 100 };

/* ---- idle streams ---- */

static void
on_idle(void *context)
{
    struct grpc_server *server = context;
    struct grpc_stream *stream;
    int64_t now_ns = clock_now_ns();
    while ((stream = TAILQ_FIRST(&server->streams)) != NULL &&
           now_ns - stream->since_ns >= server->options.idle_timeout_ns) {
        server->figures.idle++;
        stream->since_ns = now_ns; /* its end may take as long again */
        TAILQ_REMOVE(&server->streams, stream, by_time);
        TAILQ_INSERT_TAIL(&server->streams, stream, by_time);
        grpc_stream_expire(stream);
    }
    grpc_idle_arm(server, now_ns);
}

/* ---- accepting ---- */

/* Makes room by closing the connection without streams that was used least recently. */
static bool
has_room(struct grpc_server *server)
{
    struct grpc_connection *connection;
    if (server->figures.connections < server->options.connections_max)
        return true;
    TAILQ_FOREACH (connection, &server->connections, link)
        if (connection->stream_count == 0) {
            server->figures.connections_evicted++;
            grpc_connection_close(connection);
            return true;
        }
    return false;
}

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)what;
    struct grpc_server *server = context;
    for (int i = 0; i < ACCEPTED_PER_TURN; i++) {
        int accepted = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted >= 0 && has_room(server)) {
            server->figures.connections_total++;
            grpc_connection_open(server, accepted);
        } else if (accepted >= 0) {
            server->figures.connections_refused++;
            close(accepted);
        } else if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) {
            return;
        } else { /* retrying at once would only burn CPU */
            server->figures.not_accepting++;
            log_warn_limited("grpc_not_accepting service=%s why=\"%s\"", server->options.name,
                             strerror(errno));
            CHECK(event_del(server->readable) == 0);
            loop_timer_set(server->pause, PAUSE_MS * (int64_t)NS_PER_MS);
            return;
        }
    }
}

static void
on_pause_over(void *context)
{
    struct grpc_server *server = context;
    if (server->readable != NULL)
        CHECK(event_add(server->readable, NULL) == 0);
}

/* ---- life ---- */

static void
listener_close(struct grpc_server *server)
{
    if (server->fd < 0)
        return;
    event_free(server->readable);
    server->readable = NULL;
    if (server->unix_path != NULL)
        listen_fds_unlink(server->unix_path);
    free(server->unix_path);
    close(server->fd);
    server->fd = -1;
}

enum status
grpc_front_create(struct event_base *base, const struct grpc_options *options,
                  struct grpc_server **created, struct error *error)
{
    int fd;
    char *unix_path;
    enum status status = http_socket_open(options->listen, &fd, &unix_path, error);
    if (status != STATUS_OK)
        return status;
    struct grpc_server *server = calloc(1, sizeof(*server));
    CHECK(server != NULL);
    server->base = base;
    server->options = *options;
    server->fd = fd;
    server->unix_path = unix_path;
    server->input = malloc(GRPC_INPUT_BYTES);
    CHECK(server->input != NULL);
    TAILQ_INIT(&server->connections);
    TAILQ_INIT(&server->streams);
    server->idle = loop_timer_create(base, on_idle, server);
    server->pause = loop_timer_create(base, on_pause_over, server);
    server->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, server);
    CHECK(server->readable != NULL && event_add(server->readable, NULL) == 0);
    grpc_frames_init(server);
    log_info("grpc_listening address=%s port=%u service=%s", options->listen, http_socket_port(fd),
             options->name);
    *created = server;
    return STATUS_OK;
}

void
grpc_front_part(struct grpc_server *server)
{
    struct grpc_connection *connection;
    listener_close(server);
    TAILQ_FOREACH (connection, &server->connections, link)
        grpc_connection_part(connection);
}

void
grpc_front_destroy(struct grpc_server *server)
{
    if (server == NULL)
        return;
    listener_close(server);
    while (!TAILQ_EMPTY(&server->connections))
        grpc_connection_close(TAILQ_FIRST(&server->connections));
    loop_timer_destroy(server->idle);
    loop_timer_destroy(server->pause);
    grpc_frames_fini(server);
    free(server->input);
    free(server);
}

const struct grpc_figures *
grpc_front_figures(const struct grpc_server *server)
{
    return &server->figures;
}
