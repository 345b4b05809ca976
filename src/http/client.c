/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection carries one call, or is idle. It is reused only after a whole answer that keeps it
 * open, if the request was sent whole and no byte followed the answer: otherwise the next call
 * could read the answer to another.
 *
 * A call may end while its connection's callback is on the stack, by its handler or by itself. Its
 * memory then stays until the last hold is released. Nothing touches a connection after its call
 * has ended.
 *
 * Each connection has one timer. It is not moved when a limit moves later, only when it must fire
 * earlier: most calls set it once.
 */
#include "http/client.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/event.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/tcp_address.h"
#include "http/body.h"
#include "http/client_internal.h"
#include "http/parse.h"
#include "loop/timer.h"

enum { READ_BYTES = 256 << 10, INTERIM_MAX = 8 };

struct client_connection {
    struct http_target *target;
    struct http_call *call; /* NULL: idle */
    struct http_channel channel;
    bool has_channel; /* false: it could not be opened */
    struct loop_timer *timer;
    int64_t armed_ns; /* when the timer fires; 0: not set */
    int64_t idle_ns;  /* since when it is idle */
    bool is_connected;
    bool is_kept;                        /* has served a call before */
    bool cannot_send;                    /* the server takes no more of the request */
    TAILQ_ENTRY(client_connection) link; /* in the target, if idle */
};

struct http_call {
    struct client_connection *connection; /* NULL: over */
    const struct http_call_handler *handler;
    void *context;
    struct http_call_timeouts timeouts;
    int64_t started_ns;
    int64_t progress_ns; /* when a byte last arrived, or reading was resumed */
    uint32_t holds;
    uint32_t interim_count;
    bool has_byte;
    bool has_head;
    bool is_paused;
    bool has_more;
    const char *mistake;
    struct http_parser parser;
    struct http_body body;
};

/* ---- clients and targets ---- */

struct http_client *
http_client_create(struct event_base *base, const struct http_client_options *options)
{
    struct http_client *client = calloc(1, sizeof(*client));
    CHECK(client != NULL);
    client->base = base;
    client->options = *options;
    return client;
}

void
http_client_destroy(struct http_client *client)
{
    CHECK(client == NULL || client->target_count == 0);
    free(client);
}

enum status
http_target_create(struct http_client *client, const char *address, const char *tls_name,
                   struct http_target **target, struct error *error)
{
    struct tcp_address parsed;
    const struct addrinfo hints = {.ai_family = AF_UNSPEC,
                                   .ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found;
    if (!tcp_address_parse(address, &parsed) || parsed.host[0] == '\0' ||
        strcmp(parsed.port, "0") == 0 || getaddrinfo(parsed.host, parsed.port, &hints, &found) != 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.200s\" is not the numeric address of a server: use IP:PORT or "
                         "[IPv6]:PORT",
                         address);
    struct http_target *created = calloc(1, sizeof(*created));
    CHECK(created != NULL && found->ai_addrlen <= sizeof(created->address));
    memcpy(&created->address, found->ai_addr, found->ai_addrlen);
    created->address_bytes = found->ai_addrlen;
    freeaddrinfo(found);
    created->client = client;
    created->text = strdup(address);
    created->tls_name = tls_name != NULL ? strdup(tls_name) : NULL;
    CHECK(created->text != NULL &&
          (tls_name == NULL || (created->tls_name && client->options.tls)));
    TAILQ_INIT(&created->idle);
    TAILQ_INIT(&created->links);
    client->target_count++;
    *target = created;
    return STATUS_OK;
}

/* ---- connections ---- */

/* Its call has been taken off, and it is not in the idle list. */
static void
connection_free(struct client_connection *connection)
{
    CHECK(connection->call == NULL);
    loop_timer_destroy(connection->timer);
    if (connection->has_channel)
        http_channel_fini(&connection->channel);
    free(connection);
}

static void
idle_remove(struct client_connection *connection)
{
    CHECK(connection->call == NULL && connection->target->idle_count > 0);
    TAILQ_REMOVE(&connection->target->idle, connection, link);
    connection->target->idle_count--;
}

void
http_target_destroy(struct http_target *target)
{
    struct client_connection *connection;
    struct client_connection *next;
    if (target == NULL)
        return;
    CHECK(target->call_count == 0);
    for (connection = TAILQ_FIRST(&target->idle); connection != NULL; connection = next) {
        next = TAILQ_NEXT(connection, link);
        connection_free(connection);
    }
    http2_links_close(target);
    target->client->target_count--;
    free(target->text);
    free(target->tls_name);
    free(target);
}

/* Sets the timer, unless it fires early enough. */
static void
arm(struct client_connection *connection, int64_t at_ns)
{
    if (at_ns == TIME_NEVER_NS || (connection->armed_ns != 0 && connection->armed_ns <= at_ns))
        return;
    connection->armed_ns = at_ns;
    /* A timer rounds down to microseconds: it must not fire before its time. */
    loop_timer_set(connection->timer, at_ns - clock_now_ns() + NS_PER_US);
}

/* Keeps the connection for the next call. */
static void
idle_add(struct client_connection *connection)
{
    struct http_target *target = connection->target;
    const struct http_client_options *options = &target->client->options;
    if (options->idle_max == 0) {
        connection_free(connection);
        return;
    }
    if (target->idle_count == options->idle_max) {
        struct client_connection *oldest = TAILQ_FIRST(&target->idle);
        idle_remove(oldest);
        connection_free(oldest);
    }
    /* nothing of the call is left that another could take for its own */
    CHECK(http_channel_input_bytes(&connection->channel) == 0 &&
          http_channel_output_bytes(&connection->channel) == 0);
    connection->is_kept = true;
    http_channel_read(&connection->channel, READ_BYTES);
    connection->idle_ns = clock_now_ns();
    TAILQ_INSERT_TAIL(&target->idle, connection, link);
    target->idle_count++;
    CHECK(target->idle_count <= options->idle_max);
    arm(connection, connection->idle_ns + options->keep_ns);
}

/* ---- the end of a call ---- */

static void
hold(struct http_call *call)
{
    call->holds++;
}

static void
release(struct http_call *call)
{
    CHECK(call->holds > 0);
    if (--call->holds > 0 || call->connection != NULL)
        return;
    http_body_fini(&call->body);
    http_parser_fini(&call->parser);
    free(call);
}

static bool
is_over(const struct http_call *call)
{
    return call->connection == NULL;
}

enum next_use { CONNECTION_CLOSED, CONNECTION_KEPT };

/* Separates the call from its connection. */
static void
leave(struct http_call *call, enum next_use use)
{
    struct client_connection *connection = call->connection;
    CHECK(connection->call == call && connection->target->call_count > 0);
    connection->target->call_count--;
    connection->call = NULL;
    call->connection = NULL;
    if (use == CONNECTION_KEPT)
        idle_add(connection);
    else
        connection_free(connection);
}

static bool
is_reusable(const struct client_connection *connection)
{
    return connection->call->parser.keep_alive && !connection->cannot_send &&
           http_channel_input_bytes(&connection->channel) == 0 &&
           http_channel_output_bytes(&connection->channel) == 0;
}

static void
finish(struct http_call *call, enum http_call_end end)
{
    bool is_kept = end == HTTP_CALL_DONE && is_reusable(call->connection);
    hold(call);
    leave(call, is_kept ? CONNECTION_KEPT : CONNECTION_CLOSED);
    call->handler->on_end(call->context, call, end);
    release(call);
}

void
http_call_cancel(struct http_call *call)
{
    if (is_over(call)) /* within on_end */
        return;
    hold(call);
    leave(call, CONNECTION_CLOSED);
    release(call);
}

static void
finish_malformed(struct http_call *call, const char *mistake)
{
    call->mistake = mistake;
    finish(call, HTTP_CALL_MALFORMED);
}

/* ---- time ---- */

static void
sooner(int64_t *at_ns, int64_t since_ns, int64_t timeout_ns)
{
    if (timeout_ns > 0 && since_ns + timeout_ns < *at_ns)
        *at_ns = since_ns + timeout_ns;
}

int64_t
http_call_deadline(const struct http_call_timeouts *timeouts,
                   const struct http_call_progress *progress)
{
    int64_t at_ns = TIME_NEVER_NS;
    sooner(&at_ns, progress->started_ns, timeouts->total_ns);
    if (!progress->is_connected)
        sooner(&at_ns, progress->started_ns, timeouts->connect_ns);
    if (!progress->has_byte)
        sooner(&at_ns, progress->started_ns, timeouts->first_byte_ns);
    else if (!progress->is_paused)
        sooner(&at_ns, progress->moved_ns, timeouts->idle_ns);
    return at_ns;
}

static int64_t
deadline(const struct http_call *call)
{
    return http_call_deadline(&call->timeouts, &(struct http_call_progress){
                                                   .started_ns = call->started_ns,
                                                   .moved_ns = call->progress_ns,
                                                   .is_connected = call->connection->is_connected,
                                                   .has_byte = call->has_byte,
                                                   .is_paused = call->is_paused});
}

static void
idle_look(struct client_connection *connection, int64_t now_ns)
{
    int64_t until_ns = connection->idle_ns + connection->target->client->options.keep_ns;
    if (until_ns > now_ns) {
        arm(connection, until_ns);
        return;
    }
    idle_remove(connection);
    connection_free(connection);
}

static void
on_timer(void *context)
{
    struct client_connection *connection = context;
    struct http_call *call = connection->call;
    int64_t now_ns = clock_now_ns();
    connection->armed_ns = 0;
    if (call == NULL)
        idle_look(connection, now_ns);
    else if (!connection->has_channel)
        finish(call, HTTP_CALL_REFUSED);
    else if (deadline(call) <= now_ns)
        finish(call, connection->is_connected ? HTTP_CALL_LATE : HTTP_CALL_REFUSED);
    else
        arm(connection, deadline(call));
}

/* ---- reading ---- */

static bool
has_input(const struct http_call *call)
{
    return !is_over(call) && !call->is_paused &&
           http_channel_input_bytes(&call->connection->channel) > 0;
}

static void
head_done(struct http_call *call)
{
    struct http_parser *parser = &call->parser;
    if (parser->status < 200) {
        if (parser->status == 101 || ++call->interim_count > INTERIM_MAX)
            finish_malformed(call, "an interim answer was not expected");
        else
            http_parser_reset(parser);
        return;
    }
    call->has_head = true;
    enum http_verdict verdict =
        parser->until_close ? HTTP_MORE : http_body_init(&call->body, parser, UINT64_MAX);
    call->handler->on_head(call->context, call);
    if (!is_over(call) && verdict == HTTP_DONE)
        finish(call, HTTP_CALL_DONE);
}

static void
head_read(struct http_call *call, struct evbuffer *input, const struct evbuffer_iovec *piece)
{
    size_t used;
    enum http_verdict verdict =
        http_parser_feed(&call->parser, piece->iov_base, piece->iov_len, &used);
    evbuffer_drain(input, used);
    if (verdict == HTTP_DONE)
        head_done(call);
    else if (verdict == HTTP_BAD)
        finish_malformed(call, call->parser.mistake);
}

static void
body_read(struct http_call *call, struct evbuffer *input, const struct evbuffer_iovec *piece)
{
    size_t used = piece->iov_len;
    size_t bytes = used;
    enum http_verdict verdict = HTTP_MORE;
    if (!call->parser.until_close)
        verdict = http_body_feed(&call->body, piece->iov_base, piece->iov_len, &used, &bytes);
    enum { CHUNK_END_BYTES = 2 };
    call->has_more = evbuffer_get_length(input) > used + CHUNK_END_BYTES;
    if (bytes > 0)
        call->handler->on_piece(call->context, call, (const char *)piece->iov_base + used - bytes,
                                bytes);
    if (is_over(call)) /* and its buffers are gone */
        return;
    evbuffer_drain(input, used);
    if (verdict == HTTP_DONE)
        finish(call, HTTP_CALL_DONE);
    else if (verdict == HTTP_BAD)
        finish_malformed(call, call->body.mistake);
}

/* Processes the input. The call may be over afterwards. */
static void
run(struct http_call *call)
{
    struct evbuffer_iovec piece;
    if (!has_input(call))
        return;
    call->has_byte = true;
    call->progress_ns = clock_now_ns();
    while (has_input(call)) { /* it is held: NOLINT(clang-analyzer-unix.Malloc) */
        struct evbuffer *input = call->connection->channel.input;
        CHECK(evbuffer_peek(input, -1, NULL, &piece, 1) > 0);
        (call->has_head ? body_read : head_read)(call, input, &piece);
    }
    if (is_over(call))
        return;
    arm(call->connection, deadline(call));
    http_channel_read(&call->connection->channel, call->is_paused ? 0 : READ_BYTES);
}

/* ---- the channel's callbacks ---- */

static void
on_input(void *context)
{
    struct client_connection *connection = context;
    struct http_call *call = connection->call;
    if (call == NULL) { /* bytes behind an answer */
        idle_remove(connection);
        connection_free(connection);
        return;
    }
    hold(call);
    run(call);
    release(call);
}

/* No more can be read. */
static void
ended(struct http_call *call, enum http_call_end otherwise)
{
    if (!call->has_byte)
        finish(call, call->connection->is_kept ? HTTP_CALL_STALE : HTTP_CALL_BROKEN);
    else
        finish(call, call->has_head && call->parser.until_close ? otherwise : HTTP_CALL_BROKEN);
}

static void
on_event(void *context, enum http_channel_event event)
{
    struct client_connection *connection = context;
    struct http_call *call = connection->call;
    if (event == HTTP_CHANNEL_READY) {
        connection->is_connected = true;
    } else if (call == NULL) {
        idle_remove(connection);
        connection_free(connection);
    } else if (!connection->is_connected) {
        if (connection->channel.ssl != NULL)
            call->mistake = http_tls_mistake(connection->channel.ssl);
        finish(call, HTTP_CALL_REFUSED);
    } else if (event == HTTP_CHANNEL_WRITE_FAILED) {
        connection->cannot_send = true; /* an answer may have come before */
    } else {
        ended(call, event == HTTP_CHANNEL_ENDED ? HTTP_CALL_DONE : HTTP_CALL_BROKEN);
    }
}

/* ---- the start of a call ---- */

/* -1: no connection can be made. */
static int
socket_connect(const struct http_target *target)
{
    int on = 1;
    int fd = socket(target->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (connect(fd, (const struct sockaddr *)&target->address, target->address_bytes) == 0 ||
        errno == EINPROGRESS)
        return fd;
    close(fd);
    return -1;
}

bool
http_target_connect(const struct http_target *target, enum http_versions versions,
                    struct http_channel *channel)
{
    struct ssl_st *ssl = NULL;
    int fd = socket_connect(target);
    if (fd >= 0 && target->tls_name != NULL)
        ssl = http_tls_connect(target->client->options.tls, target->tls_name, versions);
    if (fd >= 0 && target->tls_name != NULL && ssl == NULL) {
        close(fd);
        fd = -1;
    }
    if (fd >= 0)
        http_channel_init(channel, target->client->base, fd, ssl, HTTP_CHANNEL_CONNECTS);
    return fd >= 0;
}

static struct client_connection *
connection_open(struct http_target *target)
{
    static const struct http_channel_handler handler = {on_input, NULL, on_event};
    struct event_base *base = target->client->base;
    struct client_connection *connection = calloc(1, sizeof(*connection));
    CHECK(connection != NULL);
    connection->target = target;
    connection->timer = loop_timer_create(base, on_timer, connection);
    if (!http_target_connect(target, HTTP_1_ALONE, &connection->channel))
        return connection;
    http_channel_handle(&connection->channel, &handler, connection);
    http_channel_read(&connection->channel, READ_BYTES);
    connection->has_channel = true;
    return connection;
}

static struct client_connection *
connection_take(struct http_target *target)
{
    struct client_connection *connection = TAILQ_LAST(&target->idle, idle_list);
    if (connection == NULL)
        return connection_open(target);
    idle_remove(connection);
    return connection;
}

static void
put(struct evbuffer *output, const char *text)
{
    CHECK(strpbrk(text, "\r\n") == NULL); /* the caller's */
    CHECK(evbuffer_add(output, text, strlen(text)) == 0);
}

static void
send_request(struct client_connection *connection, const struct http_call_request *request)
{
    struct evbuffer *output = connection->channel.output;
    put(output, request->method);
    put(output, " ");
    put(output, request->path);
    CHECK(evbuffer_add_printf(output, " HTTP/1.1\r\nHost: %s\r\n", connection->target->text) > 0);
    for (size_t i = 0; i < request->header_count; i++) {
        put(output, request->headers[i].name);
        put(output, ": ");
        put(output, request->headers[i].value);
        CHECK(evbuffer_add(output, "\r\n", 2) == 0);
    }
    if (request->body != NULL)
        CHECK(evbuffer_add_printf(output, "Content-Length: %zu\r\n", request->body_bytes) > 0);
    CHECK(evbuffer_add(output, "\r\n", 2) == 0);
    if (request->body_bytes > 0)
        CHECK(evbuffer_add_reference(output, request->body, request->body_bytes, NULL, NULL) == 0);
    http_channel_flush(&connection->channel);
}

struct http_call *
http_call_start(struct http_target *target, const struct http_call_request *request,
                const struct http_call_handler *handler, void *context)
{
    struct http_call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL);
    call->connection = connection_take(target);
    call->connection->call = call;
    target->call_count++;
    call->handler = handler;
    call->context = context;
    call->timeouts = request->timeouts;
    call->started_ns = clock_now_ns();
    http_parser_init(&call->parser,
                     strcmp(request->method, "HEAD") == 0 ? HTTP_PARSE_ANSWER_TO_HEAD
                                                          : HTTP_PARSE_ANSWER,
                     target->client->options.header_bytes_max);
    if (!call->connection->has_channel) {
        arm(call->connection, call->started_ns);
        return call;
    }
    send_request(call->connection, request);
    arm(call->connection, deadline(call));
    return call;
}

/* ---- flow ---- */

void
http_call_pause(struct http_call *call)
{
    if (is_over(call) || call->is_paused || !call->connection->has_channel)
        return;
    call->is_paused = true;
    http_channel_read(&call->connection->channel, 0);
}

void
http_call_resume(struct http_call *call)
{
    if (is_over(call) || !call->is_paused)
        return;
    struct http_channel *channel = &call->connection->channel;
    call->is_paused = false;
    call->progress_ns = clock_now_ns();
    arm(call->connection, deadline(call));
    if (http_channel_input_bytes(channel) == 0)
        http_channel_read(channel, READ_BYTES);
    else if (call->holds == 0) /* first what has come: behind it may be the end */
        http_channel_wake(channel);
}

/* ---- the answer ---- */

int
http_call_code(const struct http_call *call)
{
    return call->parser.status;
}

const char *
http_call_header(const struct http_call *call, const char *name)
{
    return http_parser_find(&call->parser, name);
}

bool
http_call_header_walk(const struct http_call *call, size_t *position, const char **name,
                      const char **value)
{
    const struct http_parser *parser = &call->parser;
    if (*position >= parser->field_count)
        return false;
    const struct http_field *field = &parser->fields[(*position)++];
    *name = parser->text + field->name;
    *value = parser->text + field->value;
    return true;
}

bool
http_call_has_more(const struct http_call *call)
{
    return call->has_more;
}

bool
http_call_has_sent(const struct http_call *call)
{
    return !is_over(call) && !call->connection->cannot_send &&
           http_channel_output_bytes(&call->connection->channel) == 0;
}

int64_t
http_call_length(const struct http_call *call)
{
    const struct http_parser *parser = &call->parser;
    if (parser->is_chunked || parser->until_close)
        return -1;
    return parser->length < INT64_MAX ? (int64_t)parser->length : INT64_MAX;
}

const char *
http_call_mistake(const struct http_call *call)
{
    return call->mistake;
}
