/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/http_connection.h"

#include <event2/buffer.h>
#include <event2/http_struct.h>
#include <event2/util.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"

enum {
    PACE_BYTES = 64 << 10,  /* a second more for each so many bytes */
    AHEAD_BYTES = 64 << 10, /* read of what a client sends before it has its answer */
    READ_BYTES = 64 << 10,  /* at once: evhttp looks for a line's end from the start each time */
    LINGER_NS = 2 * 1000 * 1000 * 1000,
    LINGERERS_MAX = 64,
    US_PER_S = 1000 * 1000,
};

/* ---- counting ---- */

void
http_count(struct http *http, enum counter counter)
{
    if (http->options.counters != NULL)
        counter_add(http->options.counters, counter, 1);
}

void
http_count_connections(struct http *http)
{
    if (http->options.counters != NULL)
        counter_set(http->options.counters, NODE_HTTP_CONNECTIONS, http->connection_count);
}

/* ---- words of the server's own ---- */

const char *
http_phrase(int code)
{
    static const struct {
        int code;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(phrases); i++)
        if (phrases[i].code == code)
            return phrases[i].phrase;
    return code < 300   ? "OK"
           : code < 400 ? "Redirection"
           : code < 500 ? "Client Error"
                        : "Server Error";
}

const char *
http_own_type(const struct http_service *service)
{
    return service->error_type != NULL ? service->error_type : "text/plain; charset=utf-8";
}

void
http_own_body(const struct http_service *service, const char *text, char body[HTTP_OWN_BODY_BYTES])
{
    if (service->error_body != NULL)
        service->error_body(text, body, HTTP_OWN_BODY_BYTES);
    else
        snprintf(body, HTTP_OWN_BODY_BYTES, "%s\n", text);
}

enum { OWN_ANSWER_BYTES = HTTP_OWN_BODY_BYTES + 512 };

static size_t
own_answer(const struct connection *connection, int code, const char *text,
           char answer[OWN_ANSWER_BYTES])
{
    const struct http_service *service = &connection->address->service;
    char body[HTTP_OWN_BODY_BYTES];
    char date[64];
    http_own_body(service, text, body);
    evutil_date_rfc1123(date, sizeof(date), NULL);
    int length =
        snprintf(answer, OWN_ANSWER_BYTES,
                 "HTTP/1.1 %d %s\r\nDate: %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                 "Connection: close\r\n\r\n%s",
                 code, http_phrase(code), date, http_own_type(service), strlen(body), body);
    CHECK(length > 0 && length < OWN_ANSWER_BYTES);
    return (size_t)length;
}

/* A last word to a client that is not writing to us in order: its socket is empty, so it fits. */
static void
end_with(struct connection *connection, int code, const char *text)
{
    char answer[OWN_ANSWER_BYTES];
    size_t length = own_answer(connection, code, text, answer);
    http_count(connection->address->http, NODE_HTTP_REFUSED);
    (void)send(bufferevent_getfd(connection->buffers), answer, length, MSG_DONTWAIT | MSG_NOSIGNAL);
    connection->refused = true;
    evhttp_connection_free(connection->evhttp);
}

/* ---- evhttp's own pages ---- */

/* The status of the answer that begins at `at` of what is to be sent; 0: none does. */
static int
status_at(struct evbuffer *output, size_t at)
{
    char line[16] = "";
    struct evbuffer_ptr place;
    if (evbuffer_ptr_set(output, &place, at, EVBUFFER_PTR_SET) != 0 ||
        evbuffer_copyout_from(output, &place, line, sizeof("HTTP/1.1 400") - 1) < 12)
        return 0;
    return strncmp(line, "HTTP/1.", 7) == 0 && line[8] == ' ' ? atoi(line + 9) : 0;
}

static void
own_text(const struct http_service *service, int code, char *text, size_t room)
{
    switch (code) {
    case 400:
        snprintf(text, room,
                 "the request is malformed, or its line and headers have more than %zu bytes",
                 service->header_bytes_max);
        break;
    case 413:
        snprintf(text, room, "the body has more than %zu bytes, or its chunks are malformed",
                 service->body_bytes_max);
        break;
    case 417: snprintf(text, room, "only 100-continue can be expected"); break;
    default: snprintf(text, room, "the request cannot be read"); break;
    }
}

/* evhttp answers what it cannot read by itself, in HTML; nothing of that has been sent yet. It has
 * also been told to close the connection then. */
static void
page_replace(struct connection *connection)
{
    struct evbuffer *output = bufferevent_get_output(connection->buffers);
    int code = status_at(output, 0);
    if (code == 100)
        code = status_at(output, sizeof("HTTP/1.1 100 Continue\r\n\r\n") - 1);
    if (code < 400)
        return;
    char text[HTTP_OWN_BODY_BYTES / 2];
    char answer[OWN_ANSWER_BYTES];
    own_text(&connection->address->service, code, text, sizeof(text));
    size_t length = own_answer(connection, code, text, answer);
    evbuffer_unfreeze(output, 1); /* bufferevents guard it against all but their own writing */
    evbuffer_drain(output, evbuffer_get_length(output));
    evbuffer_freeze(output, 1);
    connection->writes_ours = true;
    evbuffer_add(output, answer, length);
    connection->refused = true;
    http_count(connection->address->http, NODE_HTTP_REFUSED);
    connection_enter(connection, CONNECTION_ANSWERED);
}

/* ---- refused clients ---- */

void
lingerer_free(struct lingerer *lingerer)
{
    lingerer->http->lingerer_count--;
    LIST_REMOVE(lingerer, link);
    event_free(lingerer->event);
    close(lingerer->fd);
    free(lingerer);
}

static void
on_lingerer(evutil_socket_t fd, short what, void *context)
{
    struct lingerer *lingerer = context;
    static char thrown_away[READ_BYTES];
    ssize_t got = 1;
    if ((what & EV_READ) != 0)
        got = recv(fd, thrown_away, sizeof(thrown_away), MSG_DONTWAIT);
    if (got <= 0 || clock_now_ns() >= lingerer->until_ns || (what & EV_TIMEOUT) != 0)
        lingerer_free(lingerer);
}

/* Closing a socket with unread bytes in it resets the connection, and a client that is still
 * sending may then never see our answer. evhttp closes its descriptor in a moment: we keep one. */
static void
linger(struct connection *connection)
{
    struct http *http = connection->address->http;
    if (http->ending || http->lingerer_count >= LINGERERS_MAX)
        return;
    int fd = fcntl(bufferevent_getfd(connection->buffers), F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return;
    struct lingerer *lingerer = calloc(1, sizeof(*lingerer));
    CHECK(lingerer != NULL);
    *lingerer = (struct lingerer){.http = http, .fd = fd, .until_ns = clock_now_ns() + LINGER_NS};
    lingerer->event = event_new(http->base, fd, EV_READ | EV_PERSIST, on_lingerer, lingerer);
    struct timeval timeout = {.tv_sec = LINGER_NS / NS_PER_S};
    CHECK(lingerer->event != NULL && event_add(lingerer->event, &timeout) == 0);
    LIST_INSERT_HEAD(&http->lingerers, lingerer, link);
    http->lingerer_count++;
}

/* ---- time ---- */

static void
timer_set(struct connection *connection, int64_t timeout_ns)
{
    int64_t timeout_us = timeout_ns / NS_PER_US + 1;
    struct timeval timeout = {.tv_sec = timeout_us / US_PER_S, .tv_usec = timeout_us % US_PER_S};
    CHECK(evtimer_add(connection->timer, &timeout) == 0);
}

void
connection_enter(struct connection *connection, enum connection_state state)
{
    connection->state = state;
    connection->since_ns = clock_now_ns();
    connection->moved = 0;
    connection->moved_before = 0;
    if (state != CONNECTION_OPEN) {
        timer_set(connection, connection->address->http->options.idle_timeout_ns);
        return;
    }
    evtimer_del(connection->timer); /* as long as the handler takes */
    bufferevent_setwatermark(connection->buffers, EV_READ, 0, AHEAD_BYTES);
}

static void
on_timer(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct connection *connection = context;
    int64_t idle_ns = connection->address->http->options.idle_timeout_ns;
    int64_t pace_ns = (int64_t)(connection->moved / PACE_BYTES) * NS_PER_S;
    int64_t left_ns = connection->since_ns + idle_ns + pace_ns - clock_now_ns();
    bool silent = connection->moved == connection->moved_before;
    connection->moved_before = connection->moved;
    if (left_ns > 0 && !silent)
        timer_set(connection, left_ns < idle_ns ? left_ns : idle_ns);
    else if (connection->state == CONNECTION_ARRIVES)
        end_with(connection, 408, "the request took too long to arrive");
    else
        evhttp_connection_free(connection->evhttp);
}

static void
on_input(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *context)
{
    (void)buffer;
    struct connection *connection = context;
    connection->address->http->current = connection;
    if (info->n_added > 0 && connection->state == CONNECTION_WAITS)
        connection_enter(connection, CONNECTION_ARRIVES);
    if (connection->state == CONNECTION_ARRIVES)
        connection->moved += info->n_added;
}

static void
on_output(struct evbuffer *buffer, const struct evbuffer_cb_info *info, void *context)
{
    (void)buffer;
    struct connection *connection = context;
    if (connection->state == CONNECTION_ANSWERED)
        connection->moved += info->n_deleted;
    if (info->n_added > 0 && !connection->writes_ours)
        event_active(connection->turn, EV_WRITE, 0);
}

/* ---- requests ---- */

void
connection_watch(struct connection *connection)
{
    /* evhttp reads no more now, and so sees no end. Reading goes on, but not through its callback,
     * which must not be called amid a request. evhttp sets both anew when it is answered. */
    bufferevent_data_cb on_write;
    bufferevent_event_cb on_event;
    void *context;
    bufferevent_getcb(connection->buffers, NULL, &on_write, &on_event, &context);
    bufferevent_setcb(connection->buffers, NULL, on_write, on_event, context);
    bufferevent_enable(connection->buffers, EV_READ);
}

void
http_closing_look(struct http *http)
{
    const struct connection *connection;
    LIST_FOREACH (connection, &http->connections, link)
        if (connection->state == CONNECTION_ANSWERED && !connection->closed)
            return;
    loop_stop(http->loop);
}

void
connection_next(struct connection *connection)
{
    struct http *http = connection->address->http;
    const struct http_service *service = &connection->address->service;
    bool ahead = evbuffer_get_length(bufferevent_get_input(connection->buffers)) > 0;
    connection->writes_ours = false;
    connection_enter(connection, ahead ? CONNECTION_ARRIVES : CONNECTION_WAITS);
    /* evhttp limits lines and bodies, but not the line before a chunk */
    bufferevent_setwatermark(connection->buffers, EV_READ, 0,
                             service->header_bytes_max + service->body_bytes_max + AHEAD_BYTES);
    if (http->closing)
        http_closing_look(http);
}

/* ---- from accept to close ---- */

void
connection_free(struct connection *connection)
{
    event_free(connection->timer);
    event_free(connection->turn);
    free(connection->request.path);
    LIST_REMOVE(connection, link);
    free(connection);
}

static void
on_close(struct evhttp_connection *evhttp, void *context)
{
    (void)evhttp;
    struct connection *connection = context;
    struct http_request *request = &connection->request;
    struct http *http = connection->address->http;
    const struct http_service *service = &connection->address->service;
    connection->closed = true;
    connection->evhttp = NULL; /* its address may be another's before our request is answered */
    http->connection_count--;
    http_count_connections(http);
    if (http->current == connection)
        http->current = NULL;
    evbuffer_remove_cb_entry(bufferevent_get_input(connection->buffers), connection->on_input);
    evbuffer_remove_cb_entry(bufferevent_get_output(connection->buffers), connection->on_output);
    if (connection->refused)
        linger(connection);
    evtimer_del(connection->timer);
    event_del(connection->turn);
    if (connection->state != CONNECTION_OPEN) {
        connection_free(connection);
        if (http->closing && !http->ending)
            http_closing_look(http);
    } else if (evhttp_request_get_connection(request->evhttp) != NULL) {
        connection_free(connection); /* evhttp frees the request too: all is being closed */
    } else if (service->on_gone != NULL) {
        service->on_gone(service->context, request); /* may answer: touched no more */
    }
}

/* evhttp has made its connection around our buffers and gives it to nobody, but to them. */
static void
adopt(struct connection *connection)
{
    struct http *http = connection->address->http;
    void *evhttp = NULL;
    bufferevent_getcb(connection->buffers, NULL, NULL, NULL, &evhttp);
    CHECK(evhttp != NULL);
    connection->evhttp = evhttp;
    evhttp_connection_set_closecb(evhttp, on_close, connection);
    connection_next(connection);
    if (http->connection_count > http->options.connections_max)
        end_with(connection, 503, "too many connections are open");
}

static void
on_turn(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    struct connection *connection = context;
    if ((what & EV_READ) != 0)
        adopt(connection);
    else if ((what & EV_WRITE) != 0)
        page_replace(connection);
}

struct bufferevent *
connection_create(struct event_base *base, void *context)
{
    struct http_address *address = context;
    struct connection *connection = calloc(1, sizeof(*connection));
    CHECK(connection != NULL);
    connection->address = address;
    connection->request.connection = connection;
    struct bufferevent *buffers = bufferevent_socket_new(base, -1, 0);
    connection->timer = evtimer_new(base, on_timer, connection);
    connection->turn = evtimer_new(base, on_turn, connection);
    CHECK(buffers != NULL && connection->timer != NULL && connection->turn != NULL);
    connection->buffers = buffers;
    struct evbuffer *input = bufferevent_get_input(buffers);
    struct evbuffer *output = bufferevent_get_output(buffers);
    connection->on_input = evbuffer_add_cb(input, on_input, connection);
    connection->on_output = evbuffer_add_cb(output, on_output, connection);
    CHECK(connection->on_input != NULL && connection->on_output != NULL);
    bufferevent_set_max_single_read(buffers, READ_BYTES);
    LIST_INSERT_HEAD(&address->http->connections, connection, link);
    address->http->connection_count++;
    http_count_connections(address->http);
    event_active(connection->turn, EV_READ, 0); /* before anything can be read */
    return buffers;
}

struct connection *
connection_of(const struct http *http, struct evhttp_request *request)
{
    struct evhttp_connection *evhttp = evhttp_request_get_connection(request);
    struct connection *connection = http->current;
    if (connection != NULL && connection->evhttp == evhttp)
        return connection;
    LIST_FOREACH (connection, &http->connections, link)
        if (connection->evhttp == evhttp)
            break;
    return connection;
}
