/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection is a state machine that http_connection_run drives over the received bytes:
 *
 *     IDLE -> HEAD_IN -> BODY_IN -> OPEN -> ANSWERED -> IDLE, or LINGERS, or CLOSED
 *
 * Of HTTP/2 it is IDLE, or in STREAMS: http2.c reads the bytes, and each stream has such states.
 *
 * A handler may answer while run is on the stack, and the answer may be sent at once: the state is
 * then IDLE again when the handler returns, and run continues with the next request instead of
 * recursing. A caller that uses a connection after a call that may close it holds it meanwhile.
 *
 * Time. Each state has a limit (http_connection_arm). The timer is not moved when a state is left,
 * only when it must fire earlier: most requests never touch it. Of pipelined requests one is served
 * per turn of the loop; the timer then starts the next turn.
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/check.h"
#include "base/clock.h"
#include "http/http2.h"
#include "http/internal.h"

enum { STEPS_PER_TURN = 3 };

static const char late_text[] = "the request took too long to arrive";

/* ---- states and time ---- */

static struct http_pool *
pool_of(const struct http_connection *connection)
{
    return connection->listener->pool;
}

static size_t
output_bytes(const struct http_connection *connection)
{
    return http_channel_output_bytes(&connection->channel);
}

static bool
has_requests(const struct http_connection *connection)
{
    return connection->request.is_open ||
           (connection->http2 != NULL && connection->http2->stream_count > 0);
}

/* Allowed transitions; http_connection_close alone closes. */
static const uint32_t EDGES[] = {
    [HTTP_IDLE] = 1u << HTTP_IDLE | 1u << HTTP_HEAD_IN | /* the first: the handshake is over */
                  1u << HTTP_STREAMS | 1u << HTTP_LINGERS,
    [HTTP_HEAD_IN] =
        1u << HTTP_BODY_IN | 1u << HTTP_OPEN | 1u << HTTP_ANSWERED | 1u << HTTP_STREAMS,
    [HTTP_BODY_IN] = 1u << HTTP_OPEN | 1u << HTTP_ANSWERED,
    [HTTP_OPEN] = 1u << HTTP_ANSWERED,
    [HTTP_ANSWERED] = 1u << HTTP_IDLE | 1u << HTTP_LINGERS,
    [HTTP_STREAMS] = 1u << HTTP_IDLE | 1u << HTTP_LINGERS,
    [HTTP_LINGERS] = 0,
    [HTTP_CLOSED] = 1u << HTTP_IDLE | 1u << HTTP_HEAD_IN, /* at the beginning */
};

void
http_connection_enter(struct http_connection *connection, enum http_state state)
{
    CHECK((EDGES[connection->state] & 1u << state) && connection->has_channel);
    CHECK(state != HTTP_IDLE || !has_requests(connection));
    if (connection->state == HTTP_IDLE)
        http_idle_remove(connection);
    connection->state = state;
    connection->since_ns = connection->progress_ns = clock_now_ns();
    connection->moved_in = 0;
    connection->moved_before = 0;
    connection->queued = output_bytes(connection);
    if (state == HTTP_IDLE) {
        connection->is_scarce = false;
        http_idle_add(connection);
    }
}

static int64_t
answer_timeout(const struct http_connection *connection)
{
    const struct http_pool_options *options = &pool_of(connection)->options;
    bool is_sooner = connection->is_scarce && options->scarce_timeout_ns > 0 &&
                     options->scarce_timeout_ns < options->write_timeout_ns;
    return is_sooner ? options->scarce_timeout_ns : options->write_timeout_ns;
}

/* 0: the state has no limit. */
static int64_t
timeout_of(const struct http_connection *connection)
{
    const struct http_pool_options *options = &pool_of(connection)->options;
    switch (connection->state) {
    case HTTP_IDLE:
        return connection->is_handshaking ? options->header_timeout_ns : options->idle_timeout_ns;
    case HTTP_HEAD_IN: return options->header_timeout_ns;
    case HTTP_BODY_IN:
        if (!connection->request.is_paused)
            return options->body_timeout_ns;
        return connection->request.waits ? options->write_timeout_ns : 0;
    case HTTP_OPEN: return connection->request.waits ? options->write_timeout_ns : 0;
    case HTTP_ANSWERED: return answer_timeout(connection);
    case HTTP_LINGERS: return HTTP_LINGER_NS;
    case HTTP_STREAMS: /* http2_on_time */
    case HTTP_CLOSED: break;
    }
    return 0;
}

/* The time belongs to the handler, except while its client has output to read. */
static bool
is_handlers(const struct http_connection *connection)
{
    return connection->state == HTTP_OPEN ||
           (connection->state == HTTP_BODY_IN && connection->request.is_paused);
}

static uint64_t
moved(const struct http_connection *connection)
{
    if (connection->state != HTTP_ANSWERED && !is_handlers(connection))
        return connection->moved_in;
    size_t waiting = output_bytes(connection);
    CHECK(waiting <= connection->queued);
    return connection->queued - waiting;
}

/* Returns when the time limit expires if nothing moves until then. A streamed answer may last as
 * long as the handler likes: only its client must not stall. */
static int64_t
deadline(struct http_connection *connection, int64_t timeout_ns)
{
    int64_t silence_ns = connection->progress_ns + timeout_ns;
    int64_t pace_ns = (int64_t)(moved(connection) / HTTP_PACE_BYTES) * NS_PER_S;
    int64_t whole_ns = connection->since_ns + timeout_ns + pace_ns;
    if (is_handlers(connection))
        return silence_ns;
    return connection->state == HTTP_BODY_IN || connection->state == HTTP_ANSWERED
               ? (silence_ns < whole_ns ? silence_ns : whole_ns)
               : connection->since_ns + timeout_ns;
}

void
http_connection_arm_at(struct http_connection *connection, int64_t at_ns)
{
    if (at_ns == INT64_MAX || (connection->armed_ns != 0 && connection->armed_ns <= at_ns))
        return;
    int64_t now_ns = clock_now_ns();
    connection->armed_ns = at_ns;
    /* A timer rounds down to microseconds: it must not fire before its time. */
    loop_timer_set(connection->timer, at_ns > now_ns ? at_ns - now_ns + NS_PER_US : 0);
}

void
http_connection_arm(struct http_connection *connection)
{
    int64_t timeout_ns = timeout_of(connection);
    if (connection->wants_turn)
        http_connection_arm_at(connection, clock_now_ns());
    else if (connection->state == HTTP_STREAMS)
        http_connection_arm_at(connection, connection->http2->due_ns);
    else if (timeout_ns != 0)
        http_connection_arm_at(connection, deadline(connection, timeout_ns));
}

void
http_connection_run_later(struct http_connection *connection)
{
    connection->wants_turn = true;
    http_connection_arm(connection);
}

void
http_connection_restart_time(struct http_connection *connection)
{
    if (connection->state == HTTP_CLOSED)
        return;
    connection->since_ns = connection->progress_ns = clock_now_ns();
    connection->moved_in = 0;
    connection->queued = output_bytes(connection);
    connection->moved_before = 0;
}

static void
expire(struct http_connection *connection)
{
    enum http_state state = connection->state;
    if (state == HTTP_ANSWERED && connection->is_scarce) {
        http_connection_cut(connection);
        return;
    }
    if (state != HTTP_IDLE && state != HTTP_LINGERS)
        http_count(pool_of(connection), HTTP_TIMED_OUT, 1);
    if ((state == HTTP_HEAD_IN || state == HTTP_BODY_IN) &&
        connection->request.answering == HTTP_ANSWER_NONE)
        http_refuse(connection, 408, late_text);
    else
        http_connection_close(connection);
}

int64_t
http_connection_over_ns(const struct http_connection *connection, int64_t now_ns)
{
    if (connection->state != HTTP_ANSWERED || !connection->is_scarce ||
        pool_of(connection)->options.scarce_timeout_ns == 0)
        return -1;
    return now_ns - connection->since_ns - HTTP_RELIEF_NS -
           (int64_t)(connection->queued / HTTP_RELIEF_BYTES) * NS_PER_S;
}

void
http_connection_cut(struct http_connection *connection)
{
    http_count(pool_of(connection), HTTP_CUT, 1);
    http_connection_close(connection);
}

static void
on_timer(void *context)
{
    struct http_connection *connection = context;
    int64_t timeout_ns = timeout_of(connection);
    int64_t now_ns = clock_now_ns();
    bool wanted_turn = connection->wants_turn;
    connection->armed_ns = 0;
    connection->wants_turn = false;
    if (connection->state == HTTP_STREAMS) { /* a client that is busy must not stop the time */
        http2_on_time(connection->http2, now_ns);
        return;
    }
    if (wanted_turn) {
        http_connection_run(connection);
        return;
    }
    if (timeout_ns == 0)
        return;
    if (moved(connection) != connection->moved_before) {
        connection->moved_before = moved(connection);
        connection->progress_ns = now_ns;
    }
    http_connection_hold(connection);
    if (deadline(connection, timeout_ns) <= now_ns)
        expire(connection);
    else
        http_connection_arm(connection);
    http_connection_release(connection);
}

/* ---- requests ---- */

static void
request_clear(struct http_connection *connection)
{
    http_request_clear(&connection->request,
                       connection->state == HTTP_CLOSED ? HTTP_FREE_ROOM : HTTP_KEEP_ROOM);
    http_body_fini(&connection->body);
    http_parser_reset(&connection->parser);
}

static void
serve(struct http_connection *connection)
{
    connection->ahead_bytes = HTTP_AHEAD_BYTES;
    http_connection_enter(connection, HTTP_OPEN);
    http_request_on_end(&connection->request);
}

/* The client waits for this before it sends the body. */
static void
say_continue(struct http_connection *connection)
{
    static const char text[] = "HTTP/1.1 100 Continue\r\n\r\n";
    CHECK(evbuffer_add(connection->channel.output, text, sizeof(text) - 1) == 0);
    http_channel_flush(&connection->channel);
    connection->queued += sizeof(text) - 1;
}

static void
body_begin(struct http_connection *connection)
{
    if (connection->parser.is_chunked || connection->parser.length > HTTP_AHEAD_BYTES)
        connection->ahead_bytes = HTTP_READ_BYTES;
    http_connection_enter(connection, HTTP_BODY_IN);
    if (connection->parser.expects_continue && http_channel_input_bytes(&connection->channel) == 0)
        say_continue(connection);
}

/* False: the head was refused. */
static bool
head_accept(struct http_connection *connection, enum http_verdict body)
{
    char text[96];
    if (!http_request_find_path(&connection->request)) {
        http_refuse(connection, 400, "the path is malformed");
        return false;
    }
    if (body == HTTP_BAD) {
        snprintf(text, sizeof(text), "the body has more than %llu bytes",
                 (unsigned long long)connection->body.bytes_max);
        http_refuse(connection, connection->body.code, text);
        return false;
    }
    return true;
}

static void
head_done(struct http_connection *connection)
{
    const struct http_service *service = &connection->listener->service;
    enum http_verdict body =
        http_body_init(&connection->body, &connection->parser, service->body_bytes_max);
    if (!head_accept(connection, body))
        return;
    const struct http_server *server = pool_of(connection)->server;
    connection->closes =
        !connection->parser.keep_alive || server->is_draining || server->is_parting;
    http_request_on_head(&connection->request);
    if (connection->state != HTTP_HEAD_IN)
        return;
    if (body == HTTP_DONE)
        serve(connection);
    else
        body_begin(connection);
}

/* ---- reading ---- */

static void
refuse_malformed(struct http_connection *connection, int code, const char *mistake)
{
    const struct http_service *service = &connection->listener->service;
    char text[HTTP_OWN_BODY_BYTES / 2];
    if (code == 413)
        snprintf(text, sizeof(text), "the body has more than %llu bytes",
                 (unsigned long long)service->body_bytes_max);
    else if (code == 414 || code == 431)
        snprintf(text, sizeof(text), "%s: more than %zu bytes with the request line, or %d headers",
                 mistake, service->header_bytes_max, HTTP_FIELDS_MAX);
    else
        snprintf(text, sizeof(text), "%s", mistake);
    http_refuse(connection, code, text);
}

/* False: too few bytes have come to tell. */
static bool
version_look(struct http_connection *connection, struct evbuffer *input)
{
    char start[sizeof(HTTP2_PREFACE)];
    size_t bytes = (size_t)evbuffer_copyout(input, start, sizeof(HTTP2_PREFACE) - 1);
    bool differs = memcmp(start, HTTP2_PREFACE, bytes) != 0;
    connection->knows_version = differs || bytes == sizeof(HTTP2_PREFACE) - 1;
    if (!connection->knows_version)
        return false;
    if (!differs)
        http2_begin(connection);
    return true;
}

static void
head_read(struct http_connection *connection, struct evbuffer *input)
{
    struct evbuffer_iovec piece;
    if (!connection->knows_version &&
        (!version_look(connection, input) || connection->http2 != NULL))
        return;
    enum http_verdict verdict = HTTP_MORE;
    while (verdict == HTTP_MORE && evbuffer_peek(input, -1, NULL, &piece, 1) > 0 &&
           piece.iov_len > 0) {
        size_t used;
        verdict = http_parser_feed(&connection->parser, piece.iov_base, piece.iov_len, &used);
        evbuffer_drain(input, used);
        connection->moved_in += used;
    }
    if (verdict == HTTP_DONE)
        head_done(connection);
    else if (verdict == HTTP_BAD)
        refuse_malformed(connection, connection->parser.code, connection->parser.mistake);
}

static void
body_read(struct http_connection *connection, struct evbuffer *input)
{
    struct evbuffer_iovec piece;
    while (connection->state == HTTP_BODY_IN && !connection->request.is_paused &&
           evbuffer_peek(input, -1, NULL, &piece, 1) > 0 && piece.iov_len > 0) {
        size_t used;
        size_t bytes;
        enum http_verdict verdict =
            http_body_feed(&connection->body, piece.iov_base, piece.iov_len, &used, &bytes);
        http_request_on_body(&connection->request, (const char *)piece.iov_base + used - bytes,
                             bytes);
        if (connection->state == HTTP_CLOSED)
            return;
        evbuffer_drain(input, used);
        connection->moved_in += used;
        if (connection->state != HTTP_BODY_IN)
            return;
        if (verdict == HTTP_DONE)
            serve(connection);
        else if (verdict == HTTP_BAD)
            refuse_malformed(connection, connection->body.code, connection->body.mistake);
    }
}

/* One step; false: nothing more can be done with the input. */
static bool
step(struct http_connection *connection)
{
    struct evbuffer *input = connection->channel.input;
    enum http_state state = connection->state;
    if (connection->http2 != NULL && state != HTTP_LINGERS) {
        http2_run(connection);
        return connection->state == HTTP_LINGERS;
    }
    if (evbuffer_get_length(input) == 0)
        return false;
    switch (state) {
    case HTTP_IDLE: http_connection_enter(connection, HTTP_HEAD_IN); return true;
    case HTTP_HEAD_IN: head_read(connection, input); break;
    case HTTP_BODY_IN: body_read(connection, input); break;
    case HTTP_LINGERS: evbuffer_drain(input, evbuffer_get_length(input)); break;
    case HTTP_OPEN:
    case HTTP_ANSWERED:
    case HTTP_STREAMS:
    case HTTP_CLOSED: break;
    }
    return connection->state != state;
}

void
http_connection_run(struct http_connection *connection)
{
    if (connection->is_running || connection->state == HTTP_CLOSED)
        return;
    http_connection_hold(connection);
    connection->is_running = true;
    for (int left = STEPS_PER_TURN; connection->state != HTTP_CLOSED && step(connection);)
        if (--left == 0) { /* let other connections have their turn */
            connection->wants_turn = true;
            break;
        }
    connection->is_running = false;
    if (connection->state != HTTP_CLOSED) {
        http_channel_read(&connection->channel, connection->ahead_bytes);
        http_connection_arm(connection);
    }
    http_connection_release(connection);
}

/* ---- sending ---- */

void
http_connection_linger(struct http_connection *connection)
{
    struct http_pool *pool = pool_of(connection);
    if (pool->lingerer_count >= HTTP_LINGERERS_MAX || connection->peer_ended) {
        http_connection_close(connection);
        return;
    }
    pool->lingerer_count++;
    if (connection->listener->tls != NULL)
        http_tls_shutdown(connection->channel.ssl);
    (void)shutdown(connection->channel.fd, SHUT_WR);
    http_connection_enter(connection, HTTP_LINGERS);
    connection->ahead_bytes = HTTP_AHEAD_BYTES;
    http_connection_run(connection);
}

static void
sent(struct http_connection *connection)
{
    struct http_server *server = pool_of(connection)->server;
    if (connection->lingers)
        http_connection_linger(connection);
    else if (connection->closes || connection->peer_ended)
        http_connection_close(connection);
    else
        http_connection_enter(connection, HTTP_IDLE);
    if (server->is_draining)
        http_drain_look(server);
}

/* The whole answer is in the output, or sent. */
static void
finish(struct http_connection *connection)
{
    http_connection_enter(connection, HTTP_ANSWERED);
    connection->channel.low_bytes = 0;
    if (output_bytes(connection) == 0)
        sent(connection);
    else
        http_connection_arm(connection);
}

void
http_connection_answered(struct http_connection *connection)
{
    struct http_request *request = &connection->request;
    bool is_dropped = request->is_gone;
    http_connection_hold(connection);
    request->is_open = false;
    if (!is_dropped && !request->body_ended) { /* the rest of the body is not read */
        connection->closes = true;
        connection->lingers = true;
    }
    if (!is_dropped) {
        request_clear(connection);
        finish(connection);
        http_connection_run(connection);
    }
    http_connection_release(connection);
}

/* The server itself answered: closes and lingers once that is sent. */
static void
refused(struct http_connection *connection)
{
    struct http_request *request = &connection->request;
    http_connection_hold(connection);
    connection->closes = true;
    connection->lingers = true;
    if (!request->is_open)
        request_clear(connection);
    finish(connection);
    http_request_lose(request);
    http_connection_run(connection);
    http_connection_release(connection);
}

void
http_refuse(struct http_connection *connection, int code, const char *text)
{
    const struct http_service *service = &connection->listener->service;
    char body[HTTP_OWN_BODY_BYTES];
    const struct http_header header = {"Content-Type", http_own_body(service, text, body)};
    const struct http_piece piece = {.data = body, .bytes = strlen(body)};
    const struct http_message message = {.code = code,
                                         .headers = &header,
                                         .header_count = 1,
                                         .body_bytes = piece.bytes,
                                         .pieces = &piece,
                                         .piece_count = 1};
    connection->closes = true;
    http_count(connection->listener->pool, HTTP_REFUSED, 1);
    http_output_message(connection, &message);
    refused(connection);
}

/* ---- the channel's callbacks ---- */

static void
on_input(void *context)
{
    http_connection_run(context);
}

static void
on_drained(void *context)
{
    struct http_connection *connection = context;
    struct http_request *request = &connection->request;
    http_connection_hold(connection);
    if (connection->http2 != NULL) {
        http_connection_run(connection);
    } else if (connection->state == HTTP_ANSWERED && output_bytes(connection) == 0) {
        sent(connection);
        http_connection_run(connection);
    } else if (connection->state != HTTP_ANSWERED && request->waits) {
        request->waits = false;
        if (request->on_writable != NULL)
            request->on_writable(request);
    }
    http_connection_release(connection);
}

static void
on_event(void *context, enum http_channel_event event)
{
    struct http_connection *connection = context;
    if (event == HTTP_CHANNEL_READY) {
        connection->is_handshaking = false;
        connection->names = http_tls_names(connection->channel.ssl);
        connection->knows_version = true;
        http_connection_enter(connection, HTTP_IDLE);
        if (http_tls_is_http2(connection->channel.ssl))
            http2_begin(connection);
        http_connection_run(connection);
        return;
    }
    connection->peer_ended = true;
    /* during an answer the client may still read */
    if (event != HTTP_CHANNEL_ENDED || connection->state != HTTP_ANSWERED)
        http_connection_close(connection);
}

/* ---- from accept to close ---- */

void
http_connection_hold(struct http_connection *connection)
{
    connection->holds++;
}

void
http_connection_release(struct http_connection *connection)
{
    CHECK(connection->holds > 0);
    if (--connection->holds > 0 || connection->state != HTTP_CLOSED || has_requests(connection))
        return;
    if (connection->is_orphan)
        LIST_REMOVE(connection, link);
    CHECK(!connection->is_counted && !connection->has_channel);
    request_clear(connection);
    http_parser_fini(&connection->parser);
    http2_free(connection->http2);
    free(connection->names);
    free(connection);
}

void
http_connection_close(struct http_connection *connection)
{
    struct http_pool *pool = pool_of(connection);
    struct http_server *server = pool->server;
    CHECK(connection->state != HTTP_CLOSED);
    http_connection_hold(connection);
    if (connection->state == HTTP_IDLE)
        http_idle_remove(connection);
    if (connection->state == HTTP_LINGERS) {
        CHECK(pool->lingerer_count > 0);
        pool->lingerer_count--;
    }
    if (connection->http2 != NULL)
        http2_say_end(connection->http2);
    connection->state = HTTP_CLOSED;
    loop_timer_destroy(connection->timer);
    if (connection->listener->tls != NULL)
        http_tls_shutdown(connection->channel.ssl);
    http_channel_fini(&connection->channel);
    connection->has_channel = false;
    http_connection_leave(connection);
    LIST_REMOVE(connection, link);
    http_request_lose(&connection->request);
    if (connection->http2 != NULL)
        http2_lose_streams(connection->http2);
    connection->is_orphan = has_requests(connection);
    if (connection->is_orphan)
        LIST_INSERT_HEAD(&server->orphans, connection, link);
    http_connection_release(connection);
    if (server->is_draining && !server->is_ending)
        http_drain_look(server);
}

static void
peer_name(struct http_connection *connection, const struct sockaddr *from)
{
    char *text = connection->peer_text;
    const struct sockaddr_in *four = (const void *)from;
    const struct sockaddr_in6 *six = (const void *)from;
    memcpy(text, "unix", sizeof("unix"));
    if (from->sa_family == AF_INET)
        inet_ntop(AF_INET, &four->sin_addr, text, sizeof(connection->peer_text));
    else if (from->sa_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        inet_ntop(AF_INET, six->sin6_addr.s6_addr + 12, text, sizeof(connection->peer_text));
    else if (from->sa_family == AF_INET6)
        inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof(connection->peer_text));
}

struct http_connection *
http_connection_open(struct http_listener *listener, int fd, const struct sockaddr *from,
                     enum http_admission admission, struct http_peer *peer)
{
    static const struct http_channel_handler handler = {on_input, on_drained, on_event};
    struct event_base *base = listener->pool->server->base;
    bool may_be_2 = listener->service.streams_max > 0 && admission == HTTP_ADMITTED;
    struct ssl_st *ssl = listener->tls != NULL
                             ? http_tls_accept(listener->tls, may_be_2 ? HTTP_1_OR_2 : HTTP_1_ALONE)
                             : NULL;
    if (listener->tls != NULL && ssl == NULL) {
        evutil_closesocket(fd);
        return NULL;
    }
    struct http_connection *connection = calloc(1, sizeof(*connection));
    CHECK(connection != NULL);
    connection->listener = listener;
    http_channel_init(&connection->channel, base, fd, ssl,
                      ssl != NULL ? HTTP_CHANNEL_SHAKES_HANDS : HTTP_CHANNEL_OPEN);
    http_channel_handle(&connection->channel, &handler, connection);
    connection->has_channel = true;
    connection->peer = peer;
    connection->is_handshaking = listener->tls != NULL;
    connection->request.connection = connection;
    connection->knows_version = !may_be_2;
    connection->request.wire = &http1_wire;
    connection->request.head = &connection->parser;
    connection->state = HTTP_CLOSED;
    peer_name(connection, from);
    http_parser_init(&connection->parser, HTTP_PARSE_REQUEST, listener->service.header_bytes_max);
    connection->timer = loop_timer_create(base, on_timer, connection);
    LIST_INSERT_HEAD(&listener->pool->connections, connection, link);
    connection->ahead_bytes = HTTP_AHEAD_BYTES;
    http_channel_read(&connection->channel, connection->ahead_bytes);
    http_connection_enter(connection, admission == HTTP_ADMITTED ? HTTP_IDLE : HTTP_HEAD_IN);
    if (admission == HTTP_ADMITTED)
        http_connection_arm(connection);
    return connection;
}
