/* SPDX-License-Identifier: Apache-2.0 */
/* The limits of streams on memory and time. */
#include "base/check.h"
#include "base/clock.h"
#include "gateway/extproc/grpc_internal.h"

bool
grpc_hold(struct grpc_server *server, size_t bytes)
{
    uint64_t max = server->options.held_bytes_max;
    if (server->figures.held_bytes > max || bytes > max - server->figures.held_bytes) {
        server->figures.overflows++;
        return false;
    }
    server->figures.held_bytes += bytes;
    return true;
}

void
grpc_hold_end(struct grpc_server *server, size_t bytes)
{
    CHECK(server->figures.held_bytes >= bytes);
    server->figures.held_bytes -= bytes;
}

void
grpc_idle_arm(struct grpc_server *server, int64_t now_ns)
{
    const struct grpc_stream *first = TAILQ_FIRST(&server->streams);
    if (first == NULL)
        loop_timer_clear(server->idle);
    else
        loop_timer_set(server->idle, first->since_ns + server->options.idle_timeout_ns - now_ns);
}

/* The timer is set for the first that was seen: it looks again when it fires. */
void
grpc_stream_touch(struct grpc_stream *stream)
{
    struct grpc_server *server = stream->connection->server;
    bool is_new = stream->since_ns == 0;
    bool was_empty = TAILQ_EMPTY(&server->streams);
    stream->since_ns = clock_now_ns();
    if (!is_new)
        TAILQ_REMOVE(&server->streams, stream, by_time);
    TAILQ_INSERT_TAIL(&server->streams, stream, by_time);
    if (was_empty)
        grpc_idle_arm(server, stream->since_ns);
}
