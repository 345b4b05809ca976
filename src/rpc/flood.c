/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that flood the server with streams. The library enforces the limit of concurrent
 * streams only after the other side has acknowledged it, makes a call of 13 KB for each stream
 * before any of its message has arrived, and does not limit resets. We see none of that: a call is
 * handed over when its message is complete. So we use channelz, the library's own counts for the
 * server and each connection: streams begun, ended well, ended badly.
 *
 * The accepting thread checks them, often under traffic and rarely otherwise. One check reads the
 * server's counts; each connection's are read when unusually many calls were begun but not handed
 * over, or are live. For a connection
 *
 *   1. no more streams may be open than the limit, acknowledged or not;
 *   2. resets fill a bucket that leaks RESETS_PER_S and holds twice the streams that may be open;
 *   3. when all together have more than NODE_CONNECTIONS times the limit, the one with most is
 *      closed.
 *
 * Then new connections from its address wait (penalty.c). Memory of dropped calls is returned to
 * the system a moment later.
 */
#include <grpc/grpc.h>
#include <grpc/support/alloc.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "rpc/internal.h"

enum {
    UNSEEN_MAX = 256, /* calls begun and not handed over, beyond those found harmless */
    RESETS_PER_S = 1000,
    NODE_CONNECTIONS = 64,
    HELD_MAX = 1024, /* calls handed over, of all connections; fewer are not examined */
    SOCKETS_PER_PAGE = 100,
    STREAMS_DEFAULT = 4096, /* if the server has no limit */
    NEW_MS = 5,
    BUSY_MS = 10,
    IDLE_MS = 50,
    NEW_FOR_MS = 1000, /* floods begin soon: a closed attacker reconnects */
    BUSY_CALLS = 16,   /* between two checks: fewer are no traffic */
    TRIM_MS = 1000,
};

struct rpc_flood {
    long server; /* its number in channelz */
    uint64_t streams_max;
    uint64_t begun;    /* at the last check */
    uint64_t harmless; /* calls not handed over when all connections were last examined */
    uint64_t handed;   /* connections, likewise */
    int64_t new_ns;    /* when the last new connection came */
    int64_t next_ns;
    int64_t trim_ns; /* 0: no memory to return */
};

/* Servers are numbered in order of creation: the one created under the lock is the last. */
static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;

/* The number after a key in the library's JSON; 0: absent. */
static uint64_t
number_of(const char *json, const char *key)
{
    const char *at = json == NULL ? NULL : strstr(json, key);
    return at == NULL ? 0 : strtoull(at + strlen(key), NULL, 10);
}

static long
newest_server(void)
{
    static const char key[] = "\"serverId\":\"";
    long newest = 0;
    for (bool end = false; !end;) {
        char *json = grpc_channelz_get_servers(newest + 1);
        CHECK(json != NULL);
        for (const char *at = strstr(json, key); at != NULL; at = strstr(at + 1, key))
            newest = strtol(at + strlen(key), NULL, 10);
        end = strstr(json, "\"end\":true") != NULL;
        gpr_free(json);
    }
    return newest;
}

grpc_server *
rpc_flood_server_create(const grpc_channel_args *args, size_t streams_max, struct rpc_flood **flood)
{
    pthread_mutex_lock(&making);
    grpc_server *server = grpc_server_create(args, NULL);
    CHECK(server != NULL);
    *flood = rpc_allocate(1, sizeof(**flood));
    (*flood)->server = newest_server();
    (*flood)->streams_max = streams_max > 0 ? streams_max : STREAMS_DEFAULT;
    pthread_mutex_unlock(&making);
    return server;
}

void
rpc_flood_destroy(struct rpc_flood *flood)
{
    free(flood);
}

/* ---- one connection ---- */

struct flood_search {
    struct rpc_flood *flood;
    struct rpc_acceptor *acceptor;
    int64_t now_ns;
    uint64_t streams;             /* of all connections */
    uint64_t most;                /* of the largest connection */
    char peer[RPC_PEER_TEXT_MAX]; /* that connection's peer */
    long socket;                  /* its number in channelz */
};

static void
cut(struct flood_search *search, const char *peer, long socket)
{
    if (rpc_acceptor_cut_flood(search->acceptor, peer, socket, search->now_ns))
        search->flood->trim_ns = search->now_ns + TRIM_MS * (int64_t)NS_PER_MS;
}

static void
look_at_connection(struct flood_search *search, const char *peer, long socket)
{
    char *json = grpc_channelz_get_socket(socket);
    uint64_t begun = number_of(json, "\"streamsStarted\":\"");
    uint64_t good = number_of(json, "\"streamsSucceeded\":\"");
    uint64_t bad = number_of(json, "\"streamsFailed\":\"");
    gpr_free(json);
    uint64_t open = begun > good + bad ? begun - good - bad : 0;
    struct rpc_socket_figures figures = {.peer = peer, .number = socket, .resets = bad};
    uint64_t resets = rpc_acceptor_fill(search->acceptor, &figures, RESETS_PER_S, search->now_ns);
    search->streams += open;
    if (open > search->flood->streams_max || resets > 2 * search->flood->streams_max) {
        search->streams -= open;
        cut(search, peer, socket);
    } else if (open > search->most) {
        search->most = open;
        search->socket = socket;
        memcpy(search->peer, peer, strlen(peer) + 1);
    }
}

/* "name":"chttp2 PEER","socketId":"7" */
static const char *
next_connection(const char *at, char peer[RPC_PEER_TEXT_MAX], long *socket)
{
    static const char name[] = "\"name\":\"chttp2 ";
    static const char number[] = "\"socketId\":\"";
    at = strstr(at, name);
    const char *from = at == NULL ? NULL : at + strlen(name);
    const char *to = from == NULL ? NULL : strchr(from, '"');
    const char *id = to == NULL ? NULL : strstr(to, number);
    if (id == NULL)
        return NULL;
    size_t bytes = (size_t)(to - from) < RPC_PEER_TEXT_MAX ? (size_t)(to - from) : 0;
    memcpy(peer, from, bytes);
    peer[bytes] = '\0';
    *socket = strtol(id + strlen(number), NULL, 10);
    return id;
}

static void
look_at_connections(struct flood_search *search)
{
    long socket = 0;
    for (bool end = false; !end;) {
        char *json =
            grpc_channelz_get_server_sockets(search->flood->server, socket + 1, SOCKETS_PER_PAGE);
        char peer[RPC_PEER_TEXT_MAX];
        end = json == NULL || strstr(json, "\"end\":true") != NULL;
        const char *at = json;
        bool any = false;
        while (at != NULL && (at = next_connection(at, peer, &socket)) != NULL) {
            any = true;
            look_at_connection(search, peer, socket);
        }
        gpr_free(json);
        end = end || !any;
    }
    if (search->streams > NODE_CONNECTIONS * search->flood->streams_max)
        cut(search, search->peer, search->socket);
}

/* ---- all of them ---- */

/* Time until the next check. */
static int64_t
pause_ns(const struct rpc_flood *flood, int64_t now_ns, bool is_busy)
{
    if (now_ns - flood->new_ns < NEW_FOR_MS * (int64_t)NS_PER_MS)
        return NEW_MS * (int64_t)NS_PER_MS;
    return (is_busy ? BUSY_MS : IDLE_MS) * (int64_t)NS_PER_MS;
}

static uint64_t
held_max(const struct rpc_flood *flood)
{
    return flood->streams_max < HELD_MAX ? HELD_MAX : flood->streams_max;
}

int64_t
rpc_flood_look(struct rpc_flood *flood, struct rpc_acceptor *acceptor,
               const struct rpc_call_counts *counts)
{
    struct flood_search search = {.flood = flood, .acceptor = acceptor, .now_ns = clock_now_ns()};
    if (flood->trim_ns != 0 && search.now_ns >= flood->trim_ns) {
        memory_give_back();
        flood->trim_ns = 0;
    }
    if (counts->connections == 0)
        return flood->trim_ns != 0 ? flood->trim_ns : TIME_NEVER_NS;
    if (counts->handed != flood->handed) {
        flood->new_ns = search.now_ns;
        int64_t soon_ns = search.now_ns + NEW_MS * (int64_t)NS_PER_MS;
        flood->next_ns = flood->next_ns < soon_ns ? flood->next_ns : soon_ns;
    }
    flood->handed = counts->handed;
    if (search.now_ns < flood->next_ns)
        return flood->next_ns;
    char *json = grpc_channelz_get_server(flood->server);
    uint64_t begun = number_of(json, "\"callsStarted\":\"");
    gpr_free(json);
    uint64_t unseen = begun > counts->arrived ? begun - counts->arrived : 0;
    bool is_busy = begun - flood->begun > BUSY_CALLS;
    flood->begun = begun;
    if (unseen < flood->harmless) /* calls of a closed connection are handed over in the end */
        flood->harmless = unseen;
    if (unseen > flood->harmless + UNSEEN_MAX ||
        counts->arrived - counts->released > held_max(flood)) {
        look_at_connections(&search);
        flood->harmless = unseen;
    }
    int64_t took_ns = clock_now_ns() - search.now_ns;
    int64_t wait_ns = pause_ns(flood, search.now_ns, is_busy);
    flood->next_ns = search.now_ns + (wait_ns > 4 * took_ns ? wait_ns : 4 * took_ns);
    return flood->next_ns;
}
