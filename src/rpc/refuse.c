/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a server whose users have finished their work while callers go on calling.
 *
 * The library's shutdown ends some calls with CANCELLED: those that it has accepted and not handed
 * over, because no armed call was left, because their message is not whole, or because they arrive
 * at this very moment. A client takes CANCELLED for its own doing and does not try elsewhere. So
 * the server ends in three steps:
 *
 *   1. rpc_server_refuse closes the listeners. A call that arrives from then on is answered
 * UNAVAILABLE for any method, without waiting for its message.
 *   2. rpc_server_is_quiet reports when callers have stopped calling, or have had their time.
 *   3. rpc_server_end waits for the replies that are under way, and shuts the connections down
 *      before it shuts the library down: no CANCELLED can be written any more. A caller whose call
 *      was not read yet loses its connection, which each client reports as UNAVAILABLE.
 */
#include <grpc/byte_buffer.h>
#include <time.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "rpc/internal.h"

enum {
    /* A caller that was refused and goes on calls again within a round trip; this is a long one. */
    QUIET_MS = 100,
    /* Some callers never stop. They get their answer, but cannot hold up the end. */
    REFUSING_MS_MAX = 400,
    LOOK_MS = 1,
};

void
rpc_server_refuse(struct rpc_server *server, const char *text)
{
    int64_t never_ns = 0;
    int64_t now_ns = clock_now_ns();
    if (!atomic_compare_exchange_strong_explicit(&server->refusing_since_ns, &never_ns, now_ns,
                                                 memory_order_relaxed, memory_order_relaxed))
        return;
    atomic_store_explicit(&server->refused_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&server->refusal, text, memory_order_release);
    if (server->acceptor != NULL)
        rpc_acceptor_close(server->acceptor);
}

bool
rpc_call_refuse_late(struct rpc_call *call)
{
    struct rpc_server *server = call->arm->server;
    const char *text = atomic_load_explicit(&server->refusal, memory_order_acquire);
    if (text == NULL)
        return false;
    atomic_fetch_add_explicit(&server->refused, 1, memory_order_relaxed);
    atomic_store_explicit(&server->refused_ns, clock_now_ns(), memory_order_relaxed);
    grpc_byte_buffer_destroy(call->received);
    call->received = NULL;
    call->method = NULL; /* a stream, too, is answered with a status alone */
    rpc_call_fail(call, STATUS_UNAVAILABLE, text);
    return true;
}

bool
rpc_server_is_quiet(const struct rpc_server *server)
{
    int64_t now_ns = clock_now_ns();
    int64_t since_ns = atomic_load_explicit(&server->refusing_since_ns, memory_order_relaxed);
    int64_t last_ns = atomic_load_explicit(&server->refused_ns, memory_order_relaxed);
    CHECK(since_ns != 0);
    return rpc_server_figures(server).connections == 0 ||
           now_ns - last_ns >= QUIET_MS * (int64_t)NS_PER_MS ||
           now_ns - since_ns >= REFUSING_MS_MAX * (int64_t)NS_PER_MS;
}

bool
rpc_server_has_calls(const struct rpc_server *server)
{
    /* Read first, so that a call that ends meanwhile counts as under way. */
    uint64_t released = atomic_load_explicit(&server->released, memory_order_acquire);
    return atomic_load_explicit(&server->arrived, memory_order_relaxed) > released;
}

void
rpc_server_end(struct rpc_server *server, int64_t timeout_ns)
{
    const struct timespec look = {.tv_nsec = LOOK_MS * (long)NS_PER_MS};
    int64_t deadline_ns = clock_now_ns() + timeout_ns;
    CHECK(atomic_load_explicit(&server->refusing_since_ns, memory_order_relaxed) != 0);
    while (rpc_server_has_calls(server) && clock_now_ns() < deadline_ns)
        nanosleep(&look, NULL);
    uint64_t refused = atomic_load_explicit(&server->refused, memory_order_relaxed);
    if (refused > 0)
        log_info("late_calls_refused count=%llu", (unsigned long long)refused);
    if (server->acceptor != NULL)
        rpc_acceptor_shut(server->acceptor);
    rpc_server_stop(server);
    rpc_server_cancel_all(server);
}
