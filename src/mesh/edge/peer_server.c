/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_server.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "mesh/edge/peer_link.h"
#include "mesh/edge/peer_session.h"

enum { ARMED_CALLS = 8, SESSIONS_FIRST = 16 };

struct peer_server {
    struct peer_server_options options;
    char *instance;
    struct rpc_server *rpc;
    struct peer_house house;
    /* Owned by the stepping thread: a call's tag is its session's index + 1; the bits above 32
     * count the uses of that index. */
    struct peer_session **sessions;
    uint32_t *uses;
    uint32_t session_count;
    struct rpc_post broken;
    struct rpc_post stop;
    bool is_stopping; /* the stepping thread's */
};

/* ---- sessions by their tags ---- */

static uint32_t
place_find(struct peer_server *server)
{
    uint32_t place = 0;
    while (place < server->session_count && server->sessions[place] != NULL)
        place++;
    if (place < server->session_count)
        return place;
    uint32_t count = place == 0 ? SESSIONS_FIRST : place * 2;
    server->sessions = realloc(server->sessions, count * sizeof(struct peer_session *));
    server->uses = realloc(server->uses, count * sizeof(*server->uses));
    CHECK(server->sessions != NULL && server->uses != NULL);
    for (uint32_t i = place; i < count; i++) {
        server->sessions[i] = NULL;
        server->uses[i] = 0;
    }
    server->session_count = count;
    return place;
}

/* NULL: it has ended. */
static struct peer_session **
session_of(struct peer_server *server, uint64_t tag)
{
    uint32_t place = (uint32_t)tag - 1;
    if (place >= server->session_count || server->uses[place] != tag >> 32)
        return NULL;
    return server->sessions[place] == NULL ? NULL : &server->sessions[place];
}

static void
end_session(struct peer_session **place, enum status status, const char *text)
{
    struct peer_session *session = *place;
    *place = NULL;
    session_end(session, status, text);
}

/* ---- what comes in: the stepping thread ---- */

static struct peer_session **
session_begin(struct peer_server *server, struct rpc_call *call)
{
    uint32_t place = place_find(server);
    server->sessions[place] = session_create(&server->house, call);
    server->uses[place]++;
    rpc_call_set_tag(call, (uint64_t)server->uses[place] << 32 | (place + 1));
    rpc_call_set_user(call, server->sessions[place]);
    return &server->sessions[place];
}

static struct peer_session **
place_of(struct peer_server *server, const struct rpc_call *call)
{
    const struct peer_session *session = rpc_call_user(call);
    for (uint32_t i = 0; i < server->session_count; i++)
        if (server->sessions[i] == session)
            return &server->sessions[i];
    return NULL;
}

/* The library has checked the certificate's authority; that is not enough if the authority signs
 * for others than nodes. */
static bool
is_node(const struct peer_server *server, const struct rpc_call *call)
{
    const char *name = server->options.tls != NULL ? rpc_tls_peer_name(server->options.tls) : NULL;
    if (name == NULL || rpc_call_caller_is(call, name))
        return true;
    char address[128];
    int bytes = (int)rpc_call_peer(call, address, sizeof(address));
    log_warn_limited(
        "peer_stranger address=\"%.*s\" reason=\"its certificate does not have the name %s\"",
        bytes, address, name);
    return false;
}

static void
on_message(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct peer_server *server = context;
    struct peer_session *session = rpc_call_user(call);
    if (session == NULL && !is_node(server, call)) {
        rpc_call_finish(call, STATUS_PERMISSION_DENIED,
                        "your certificate lacks the name required of nodes of this mesh");
        return;
    }
    if (server->house.runner == NULL || (session == NULL && server->is_stopping)) {
        rpc_call_finish(call, STATUS_UNAVAILABLE,
                        server->is_stopping ? "the node is stopping" : "the node has not started");
        return;
    }
    if (session == NULL && strcmp(rpc_call_method(call), PEER_METHOD) != 0) {
        rpc_call_finish(call, STATUS_UNIMPLEMENTED,
                        "this port is for nodes of the same mesh: " PEER_METHOD);
        return;
    }
    if (session == NULL)
        session = *session_begin(server, call);
    struct error error;
    error_clear(&error);
    enum status status = session_on_message(session, message, &error);
    if (status != STATUS_OK)
        end_session(place_of(server, call), status, error.text);
}

static void
on_half_close(void *context, struct rpc_call *call)
{
    if (rpc_call_user(call) == NULL)
        rpc_call_finish(call, STATUS_INVALID_ARGUMENT, "a stream without a hello");
    else
        end_session(place_of(context, call), STATUS_OK, NULL);
}

static void
on_cancel(void *context, uint64_t tag)
{
    struct peer_session **place = session_of(context, tag);
    if (place != NULL)
        end_session(place, STATUS_CANCELLED, NULL);
}

static void
on_sent(void *context, uint64_t tag, size_t waiting)
{
    (void)waiting;
    struct peer_server *server = context;
    struct peer_session **place = session_of(server, tag);
    if (place == NULL)
        return;
    session_on_sent(*place);
    if (server->is_stopping)
        session_say_bye(*place);
}

static const struct rpc_any handler = {
    .on_message = on_message,
    .on_half_close = on_half_close,
    .on_cancel = on_cancel,
    .on_sent = on_sent,
};

/* Any thread, a session's lock held. */
static void
on_broken(void *context)
{
    struct peer_server *server = context;
    rpc_queue_post(server->options.queue, &server->broken);
}

static void
end_broken(struct rpc_post *post)
{
    struct peer_server *server =
        (struct peer_server *)((char *)post - offsetof(struct peer_server, broken));
    for (uint32_t i = 0; i < server->session_count; i++)
        if (server->sessions[i] != NULL && session_is_broken(server->sessions[i])) {
            log_warn_limited("peer_too_slow instance=\"%s\"", server->sessions[i]->peer);
            end_session(&server->sessions[i], STATUS_RESOURCE_EXHAUSTED,
                        "too many answers are unread");
        }
}

static void
stop_sessions(struct rpc_post *post)
{
    struct peer_server *server =
        (struct peer_server *)((char *)post - offsetof(struct peer_server, stop));
    server->is_stopping = true;
    for (uint32_t i = 0; i < server->session_count; i++)
        if (server->sessions[i] != NULL)
            session_say_bye(server->sessions[i]);
}

/* ---- life ---- */

enum status
peer_server_create(const struct peer_server_options *options, struct peer_server **created,
                   struct error *error)
{
    struct peer_server *server = calloc(1, sizeof(*server));
    CHECK(server != NULL);
    struct rpc_server_options rpc = {
        .name = "peers",
        .listen = options->listen,
        .listen_count = options->listen_count,
        .queue_count = 1,
        .queue = options->queue,
        .sockets = RPC_SOCKETS_PRIVATE, /* every connection means this instance */
        .message_bytes_max = PEER_MESSAGE_BYTES_MAX,
        .armed_calls = ARMED_CALLS, /* for hot methods, of which there are none */
        .armed_calls_other = ARMED_CALLS,
        .keepalive_time_ns = PEERS_PING_NS,
        .keepalive_timeout_ns = PEERS_PING_ANSWER_NS,
        .any = &handler,
        .tls = options->tls,
        .context = server,
    };
    enum status status = rpc_server_create(&rpc, &server->rpc, error);
    if (status != STATUS_OK) {
        free(server);
        return status;
    }
    server->options = *options;
    server->options.instance = server->instance = strdup(options->instance);
    CHECK(server->instance != NULL);
    server->house.options = &server->options;
    server->house.on_broken = on_broken;
    server->house.context = server;
    server->broken.run = end_broken;
    server->stop.run = stop_sessions;
    *created = server;
    return STATUS_OK;
}

int
peer_server_port(const struct peer_server *server, size_t index)
{
    return rpc_server_port(server->rpc, index);
}

void
peer_server_start(struct peer_server *server, struct mesh_runner *runner, uint32_t queue)
{
    server->house.runner = runner;
    server->house.queue = queue;
}

/* The peer ends each stream. If this side did, it would close the connection as soon as the kernel
 * has the last answer; the peer's next window update then gets a reset, which drops what it has yet
 * to read. */
void
peer_server_stop(struct peer_server *server)
{
    rpc_server_stop(server->rpc);
    rpc_queue_post(server->options.queue, &server->stop);
}

bool
peer_server_is_sending(const struct peer_server *server)
{
    return rpc_server_has_calls(server->rpc);
}

void
peer_server_cut(struct peer_server *server)
{
    rpc_server_cancel_all(server->rpc);
}

void
peer_server_destroy(struct peer_server *server)
{
    if (server == NULL)
        return;
    rpc_server_destroy(server->rpc);
    free(server->sessions);
    free(server->uses);
    free(server->instance);
    free(server);
}
