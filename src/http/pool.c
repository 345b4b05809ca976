/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The connections of a pool: their number, their peers, the idle ones. A connection counts in its
 * pool and for its peer until it is closed. Idle ones are in two queues, longest idle first, so
 * that room is found without a search.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"
#include "http/http2.h"
#include "http/internal.h"

void
http_count(const struct http_pool *pool, enum http_figure figure, int64_t by)
{
    if (pool->options.count != NULL)
        pool->options.count(pool->options.context, figure, by);
}

/* ---- peers ---- */

static bool
peer_address(const struct sockaddr *from, struct in6_addr *address)
{
    static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
    if (from->sa_family == AF_INET6) {
        *address = ((const struct sockaddr_in6 *)(const void *)from)->sin6_addr;
        return true;
    }
    if (from->sa_family != AF_INET)
        return false;
    memcpy(address->s6_addr, mapped, sizeof(mapped));
    memcpy(address->s6_addr + 12, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
    return true;
}

struct http_peer *
http_peer_of(struct http_pool *pool, const struct sockaddr *from)
{
    struct in6_addr address;
    if (!peer_address(from, &address))
        return NULL;
    /* Unseeded: addresses that collide cost time alone, and connections_max bounds it. */
    uint64_t hash = hash_fnv1a(HASH_FNV1A_SEED, &address, sizeof(address));
    struct hash_entry *at = hash_table_first(&pool->peers, hash);
    while (at != NULL && memcmp(&((struct http_peer *)at)->address, &address, sizeof(address)) != 0)
        at = hash_table_next(at);
    if (at != NULL)
        return (struct http_peer *)at;
    struct http_peer *peer = calloc(1, sizeof(*peer));
    CHECK(peer != NULL);
    peer->address = address;
    TAILQ_INIT(&peer->idle);
    hash_table_add(&pool->peers, &peer->entry, hash);
    return peer;
}

void
http_peer_look(struct http_pool *pool, struct http_peer *peer)
{
    if (peer == NULL || peer->connection_count > 0)
        return;
    CHECK(TAILQ_EMPTY(&peer->idle));
    hash_table_remove(&pool->peers, &peer->entry);
    free(peer);
}

/* ---- connections ---- */

void
http_idle_remove(struct http_connection *connection)
{
    TAILQ_REMOVE(&connection->listener->pool->idle, connection, idle_link);
    if (connection->peer != NULL)
        TAILQ_REMOVE(&connection->peer->idle, connection, peer_idle_link);
}

void
http_idle_add(struct http_connection *connection)
{
    TAILQ_INSERT_TAIL(&connection->listener->pool->idle, connection, idle_link);
    if (connection->peer != NULL)
        TAILQ_INSERT_TAIL(&connection->peer->idle, connection, peer_idle_link);
}

void
http_connection_leave(struct http_connection *connection)
{
    struct http_pool *pool = connection->listener->pool;
    if (!connection->is_counted)
        return;
    CHECK(pool->connection_count > 0);
    connection->is_counted = false;
    pool->connection_count--;
    http_count(pool, HTTP_CONNECTIONS, -1);
    if (connection->peer != NULL)
        connection->peer->connection_count--;
    http_peer_look(pool, connection->peer);
    connection->peer = NULL;
}

/* ---- draining ---- */

void
http_drained(struct http_server *server)
{
    void (*on_drained)(void *context) = server->on_drained;
    server->on_drained = NULL;
    loop_timer_clear(server->grace);
    if (on_drained != NULL)
        on_drained(server->drained_context);
}

void
http_drain_look(struct http_server *server)
{
    const struct http_pool *pool;
    const struct http_connection *connection;
    LIST_FOREACH (pool, &server->pools, link)
        LIST_FOREACH (connection, &pool->connections, link)
            if (connection->state == HTTP_ANSWERED ||
                (connection->http2 != NULL && http2_is_answering(connection->http2)))
                return;
    http_drained(server);
}
