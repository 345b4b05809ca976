/* SPDX-License-Identifier: Apache-2.0 */
#include "http/server.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/http2.h"
#include "http/internal.h"

/* ---- draining ---- */

/* A client has not read its answer within the grace time. */
static void
on_grace_over(void *context)
{
    http_drained(context);
}

/* Clients of HTTP/2 are asked to connect elsewhere. */
static void
notify_streams(struct http_server *server)
{
    struct http_pool *pool;
    struct http_connection *connection;
    LIST_FOREACH (pool, &server->pools, link)
        LIST_FOREACH (connection, &pool->connections, link)
            if (connection->http2 != NULL)
                http2_part(connection->http2);
}

void
http_server_part(struct http_server *server)
{
    server->is_parting = true;
    notify_streams(server);
    http_listeners_pause(server);
    loop_timer_clear(server->pause);
}

void
http_server_drain(struct http_server *server, int64_t grace_ns, void (*on_done)(void *context),
                  void *context)
{
    server->is_draining = true;
    notify_streams(server);
    server->on_drained = on_done;
    server->drained_context = context;
    http_listeners_pause(server);
    loop_timer_clear(server->pause);
    loop_timer_set(server->grace, grace_ns);
    http_drain_look(server);
}

/* ---- life ---- */

static void
on_pause_over(void *context)
{
    http_listeners_resume(context);
}

struct http_server *
http_server_create(struct event_base *base)
{
    struct http_server *server = calloc(1, sizeof(*server));
    CHECK(server != NULL);
    server->base = base;
    server->pause = loop_timer_create(base, on_pause_over, server);
    server->grace = loop_timer_create(base, on_grace_over, server);
    return server;
}

struct http_pool *
http_pool_create(struct http_server *server, const struct http_pool_options *options)
{
    struct http_pool *pool = calloc(1, sizeof(*pool));
    CHECK(pool != NULL && options->connections_max > 0);
    pool->server = server;
    pool->options = *options;
    TAILQ_INIT(&pool->idle);
    LIST_INSERT_HEAD(&server->pools, pool, link);
    return pool;
}

/* Counts suspects and their machines; `of_unix` are those of unix sockets. */
static void
count_suspects(struct http_pool *pool, int64_t now_ns, struct http_peer *of_unix,
               uint64_t *machines, uint64_t *suspects)
{
    struct http_connection *connection;
    LIST_FOREACH (connection, &pool->connections, link)
        if (connection->peer != NULL)
            connection->peer->suspect_count = 0;
    *machines = *suspects = 0;
    LIST_FOREACH (connection, &pool->connections, link) {
        if (http_connection_over_ns(connection, now_ns) < 0)
            continue;
        struct http_peer *peer = connection->peer != NULL ? connection->peer : of_unix;
        *machines += peer->suspect_count++ == 0;
        (*suspects)++;
    }
}

void
http_pool_relieve(struct http_pool *pool)
{
    int64_t now_ns = clock_now_ns();
    struct http_peer of_unix = {0};
    uint64_t machines;
    uint64_t suspects;
    count_suspects(pool, now_ns, &of_unix, &machines, &suspects);
    struct http_connection *next;
    for (struct http_connection *at = LIST_FIRST(&pool->connections); at != NULL; at = next) {
        next = LIST_NEXT(at, link);
        uint64_t count = at->peer != NULL ? at->peer->suspect_count : of_unix.suspect_count;
        if (count >= 2 && count * machines >= suspects && http_connection_over_ns(at, now_ns) >= 0)
            http_connection_cut(at);
    }
}

static void
pool_destroy(struct http_pool *pool)
{
    while (!LIST_EMPTY(&pool->connections))
        http_connection_close(LIST_FIRST(&pool->connections));
    while (!LIST_EMPTY(&pool->listeners))
        http_listener_destroy(LIST_FIRST(&pool->listeners));
    CHECK(pool->peers.count == 0 && pool->connection_count == 0 && pool->lingerer_count == 0);
    hash_table_fini(&pool->peers);
    free(pool);
}

void
http_server_destroy(struct http_server *server)
{
    if (server == NULL)
        return;
    server->is_ending = true;
    for (struct http_pool *pool = LIST_FIRST(&server->pools), *next; pool != NULL; pool = next) {
        next = LIST_NEXT(pool, link);
        pool_destroy(pool);
    }
    while (!LIST_EMPTY(&server->orphans)) { /* they will not be answered any more */
        struct http_connection *orphan = LIST_FIRST(&server->orphans);
        http_connection_hold(orphan);
        orphan->request.is_open = false;
        if (orphan->http2 != NULL)
            http2_forget_streams(orphan->http2);
        http_connection_release(orphan);
    }
    loop_timer_destroy(server->pause);
    loop_timer_destroy(server->grace);
    free(server);
}
