/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/http.h"

#include <errno.h>
#include <event2/buffer.h>
#include <event2/http.h>
/* after what it needs */
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/front/http_connection.h"
#include "coordinator/front/http_socket.h"
#include "coordinator/loop/loop.h"

enum { PAUSE_MS = 100, GRACE_MS = 1000, COMPLAINT_S = 10, ANY_METHOD = 0xffff };

/* ---- requests ---- */

enum http_method
http_request_method(const struct http_request *request)
{
    switch (request->evhttp->type) {
    case EVHTTP_REQ_GET: return HTTP_GET;
    case EVHTTP_REQ_POST: return HTTP_POST;
    case EVHTTP_REQ_HEAD: return HTTP_HEAD;
    default: return HTTP_OTHER;
    }
}

const char *
http_request_path_encoded(const struct http_request *request)
{
    const char *path = evhttp_uri_get_path(request->evhttp->uri_elems);
    return path[0] != '\0' ? path : "/";
}

const char *
http_request_path(const struct http_request *request)
{
    return request->path;
}

const char *
http_request_header(const struct http_request *request, const char *name)
{
    return evhttp_find_header(request->evhttp->input_headers, name);
}

const void *
http_request_body(struct http_request *request, size_t *bytes)
{
    *bytes = evbuffer_get_length(request->evhttp->input_buffer);
    return evbuffer_pullup(request->evhttp->input_buffer, -1);
}

const char *
http_request_peer(const struct http_request *request)
{
    /* a socket for both families sees IPv4 as a part of IPv6 */
    static const char mapped[] = "::ffff:";
    const char *host = request->evhttp->remote_host;
    bool four = strncmp(host, mapped, sizeof(mapped) - 1) == 0 && strchr(host, '.') != NULL;
    return four ? host + sizeof(mapped) - 1 : host;
}

void
http_request_set_user(struct http_request *request, void *user)
{
    request->user = user;
}

void *
http_request_user(const struct http_request *request)
{
    return request->user;
}

/* ---- answers ---- */

static void
piece_free(const void *data, size_t bytes, void *context)
{
    (void)data;
    (void)bytes;
    struct http_piece *piece = context;
    piece->release(piece->release_context);
    free(piece);
}

/* Lent bytes are sent from where they are: evhttp keeps a reference until they are written. */
static void
piece_add(struct evbuffer *buffer, const struct http_piece *piece)
{
    if (piece->release == NULL) {
        CHECK(evbuffer_add(buffer, piece->data, piece->bytes) == 0);
        return;
    }
    struct http_piece *kept = malloc(sizeof(*kept));
    CHECK(kept != NULL);
    *kept = *piece;
    CHECK(evbuffer_add_reference(buffer, piece->data, piece->bytes, piece_free, kept) == 0);
}

static void
pieces_release(const struct http_piece *pieces, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].release_context);
}

static bool
has_body(int code)
{
    return code >= 200 && code != 204 && code != 304;
}

static void
body_add(struct http_request *request, int code, const struct http_piece *pieces, size_t count)
{
    struct evbuffer *output = request->evhttp->output_buffer;
    bool sent = has_body(code) && request->evhttp->type != EVHTTP_REQ_HEAD;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += pieces[i].bytes;
        if (sent && pieces[i].bytes > 0)
            piece_add(output, &pieces[i]);
        else
            pieces_release(&pieces[i], 1);
    }
    char text[24];
    snprintf(text, sizeof(text), "%zu", bytes);
    if (has_body(code)) /* not to HEAD by itself */
        evhttp_add_header(request->evhttp->output_headers, "Content-Length", text);
}

/* The request is evhttp's again, and ends with the answer, or with the connection. */
static void
on_answer_sent(struct evhttp_request *evhttp, void *context)
{
    (void)evhttp;
    connection_next(context);
}

/* Nobody is there to be answered. */
static void
answer_drop(struct connection *connection)
{
    evhttp_request_free(connection->request.evhttp);
    connection_free(connection);
}

void
http_answer(struct http_request *request, int code, const struct http_header *headers,
            size_t header_count, const struct http_piece *pieces, size_t piece_count)
{
    struct connection *connection = request->connection;
    struct evhttp_request *evhttp = request->evhttp;
    CHECK(connection->state == CONNECTION_OPEN && code >= 200 && code <= 599);
    if (connection->closed) {
        pieces_release(pieces, piece_count);
        answer_drop(connection);
        return;
    }
    for (size_t i = 0; i < header_count; i++)
        evhttp_add_header(evhttp->output_headers, headers[i].name, headers[i].value);
    body_add(request, code, pieces, piece_count);
    free(request->path);
    *request = (struct http_request){.connection = connection};
    connection->writes_ours = true;
    connection_enter(connection, CONNECTION_ANSWERED);
    evhttp_request_set_on_complete_cb(evhttp, on_answer_sent, connection);
    evhttp_send_reply(evhttp, code, http_phrase(code), NULL);
}

/* The server's own refusal of a request that evhttp took. */
static void
refuse(struct http_request *request, int code, const char *text)
{
    const struct http_service *service = &request->connection->address->service;
    char body[HTTP_OWN_BODY_BYTES];
    http_own_body(service, text, body);
    struct http_header headers[] = {{"Content-Type", http_own_type(service)},
                                    {"Connection", "close"}};
    struct http_piece piece = {.data = body, .bytes = strlen(body)};
    request->connection->refused = true;
    http_count(request->connection->address->http, NODE_HTTP_REFUSED);
    http_answer(request, code, headers, ARRAY_COUNT(headers), &piece, 1);
}

/* ---- what evhttp takes and should not ---- */

static bool
is_token(const char *name)
{
    return name[0] != '\0' &&
           name[strspn(name, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '\0';
}

/*
 * Where a request ends must be beyond doubt: else what we take for the next one is, to a proxy
 * before us, a part of this. NULL: it is.
 */
static const char *
framing_mistake(const struct evhttp_request *evhttp)
{
    const char *length = NULL;
    const char *encoding = NULL;
    const struct evkeyval *header;
    TAILQ_FOREACH (header, evhttp->input_headers, next) {
        if (!is_token(header->key))
            return "a header's name is malformed";
        if (evutil_ascii_strcasecmp(header->key, "Content-Length") == 0) {
            if (length != NULL)
                return "Content-Length is there twice";
            length = header->value;
        } else if (evutil_ascii_strcasecmp(header->key, "Transfer-Encoding") == 0) {
            if (encoding != NULL)
                return "Transfer-Encoding is there twice";
            encoding = header->value;
        }
    }
    if (length != NULL && encoding != NULL)
        return "Content-Length and Transfer-Encoding exclude each other";
    if (length != NULL && (length[0] == '\0' || length[strspn(length, "0123456789")] != '\0'))
        return "Content-Length is no number";
    if (encoding != NULL &&
        (evhttp->minor == 0 || evutil_ascii_strcasecmp(encoding, "chunked") != 0))
        return "the only Transfer-Encoding known is chunked, of HTTP/1.1";
    bool body = encoding != NULL || (length != NULL && strspn(length, "0") != strlen(length));
    if (body && evhttp->body_size == 0 && evbuffer_get_length(evhttp->input_buffer) == 0 &&
        encoding == NULL)
        return "a body cannot come with this method";
    return NULL;
}

/* Of the URI, decoded; NULL: there is none that can be. */
static char *
path_decode(const struct evhttp_request *evhttp)
{
    const char *path = evhttp_uri_get_path(evhttp->uri_elems);
    if (path[0] != '/' && path[0] != '\0')
        return NULL;
    size_t length;
    char *decoded = evhttp_uridecode(path[0] != '\0' ? path : "/", 0, &length);
    CHECK(decoded != NULL);
    if (strlen(decoded) == length)
        return decoded;
    free(decoded);
    return NULL;
}

static void
on_request(struct evhttp_request *evhttp, void *context)
{
    struct http_address *address = context;
    struct connection *connection = connection_of(address->http, evhttp);
    CHECK(connection != NULL && connection->state < CONNECTION_OPEN);
    struct http_request *request = &connection->request;
    *request = (struct http_request){.connection = connection, .evhttp = evhttp};
    connection_enter(connection, CONNECTION_OPEN);
    const char *mistake = framing_mistake(evhttp);
    if (evhttp->major != 1) {
        evhttp->major = 1; /* what it is answered in */
        evhttp->minor = 1;
        refuse(request, 505, "the version of HTTP must be 1.1 or 1.0");
    } else if (mistake != NULL) {
        refuse(request, 400, mistake);
    } else if ((request->path = path_decode(evhttp)) == NULL) {
        refuse(request, 400, "the path is malformed");
    } else {
        http_count(address->http, NODE_HTTP_REQUESTS);
        address->service.on_request(address->service.context, request);
        /* Answered at once, it is not to be watched. What the handler has let go of has no address:
         * the connection is there, since evhttp closes none while its callback runs. */
        if (connection->state == CONNECTION_OPEN)
            connection_watch(connection);
    }
}

/* ---- accepting ---- */

static void
listeners_switch(struct http *http, int (*how)(struct evconnlistener *listener))
{
    struct http_address *address;
    LIST_FOREACH (address, &http->addresses, link)
        how(address->listener);
}

static void
on_pause_over(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    listeners_switch(context, evconnlistener_enable);
}

/* evhttp has put its own context in the place of ours. */
static _Thread_local struct http *served;

/* No descriptor or memory is left: to try again at once would burn the CPU and not help. */
static void
on_accept_error(struct evconnlistener *listener, void *context)
{
    (void)listener;
    (void)context;
    int code = errno;
    struct http *http = served;
    int64_t now_ns = clock_now_ns();
    if (http->complained_ns == 0 || now_ns - http->complained_ns >= COMPLAINT_S * NS_PER_S) {
        log_warn("http_not_accepting errno=%d why=\"%s\" connections=%u", code, strerror(code),
                 http->connection_count);
        http->complained_ns = now_ns;
    }
    listeners_switch(http, evconnlistener_disable);
    struct timeval pause = {.tv_usec = PAUSE_MS * (suseconds_t)NS_PER_US};
    evtimer_add(http->pause, &pause);
}

enum status
http_listen(struct http *http, const char *name, const struct http_service *service,
            struct error *error)
{
    int fd;
    enum status status = http_socket_open(name, &fd, error);
    if (status != STATUS_OK)
        return status;
    struct http_address *address = calloc(1, sizeof(*address));
    CHECK(address != NULL);
    address->http = http;
    address->service = *service;
    address->evhttp = evhttp_new(http->base);
    CHECK(address->evhttp != NULL);
    evhttp_set_max_headers_size(address->evhttp, (ev_ssize_t)service->header_bytes_max);
    evhttp_set_max_body_size(address->evhttp, (ev_ssize_t)service->body_bytes_max);
    evhttp_set_allowed_methods(address->evhttp, ANY_METHOD);
    evhttp_set_default_content_type(address->evhttp, NULL);
    evhttp_set_bevcb(address->evhttp, connection_create, address);
    evhttp_set_gencb(address->evhttp, on_request, address);
    struct evhttp_bound_socket *bound = evhttp_accept_socket_with_handle(address->evhttp, fd);
    CHECK(bound != NULL);
    address->listener = evhttp_bound_socket_get_listener(bound);
    evconnlistener_set_error_cb(address->listener, on_accept_error);
    LIST_INSERT_HEAD(&http->addresses, address, link);
    log_info("http_listening address=%s port=%u", name, http_socket_port(fd));
    return STATUS_OK;
}

/* ---- the server ---- */

/* Somebody does not take his answer. */
static void
on_grace_over(void *context)
{
    loop_stop(context);
}

enum status
http_create(const struct http_options *options, struct http **created, struct error *error)
{
    struct http *http = calloc(1, sizeof(*http));
    CHECK(http != NULL);
    http->options = *options;
    enum status status = loop_create(&http->loop, error);
    if (status != STATUS_OK) {
        free(http);
        return error_prefix(error, "HTTP");
    }
    http->base = loop_base(http->loop);
    http->pause = evtimer_new(http->base, on_pause_over, http);
    CHECK(http->pause != NULL);
    http->grace = loop_timer_create(http->loop, on_grace_over, http->loop);
    *created = http;
    return STATUS_OK;
}

static void *
run(void *context)
{
    struct http *http = context;
    prctl(PR_SET_NAME, "shoald:http");
    served = http;
    loop_run(http->loop);
    return NULL;
}

/* No signal is for this thread, SIGPIPE of a client that has gone neither. */
void
http_start(struct http *http)
{
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    CHECK(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    CHECK(pthread_create(&http->thread, NULL, run, http) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    http->started = true;
}

/* What was answered and posted before has been handed to evhttp by now. */
static void
wind_down(void *context)
{
    struct http *http = context;
    http->closing = true;
    listeners_switch(http, evconnlistener_disable);
    loop_timer_set(http->grace, GRACE_MS * (int64_t)NS_PER_MS);
    http_closing_look(http);
}

void
http_destroy(struct http *http)
{
    if (http == NULL)
        return;
    if (http->started) {
        loop_post(http->loop, wind_down, http);
        CHECK(pthread_join(http->thread, NULL) == 0);
    }
    http->ending = true;
    while (!LIST_EMPTY(&http->addresses)) {
        struct http_address *address = LIST_FIRST(&http->addresses);
        LIST_REMOVE(address, link);
        evhttp_free(address->evhttp);
        free(address);
    }
    while (!LIST_EMPTY(&http->connections)) { /* gone before, or not even adopted */
        struct connection *connection = LIST_FIRST(&http->connections);
        if (connection->closed)
            answer_drop(connection);
        else
            connection_free(connection);
    }
    while (!LIST_EMPTY(&http->lingerers))
        lingerer_free(LIST_FIRST(&http->lingerers));
    event_free(http->pause);
    loop_timer_destroy(http->grace);
    loop_destroy(http->loop);
    free(http);
}

void
http_post(struct http *http, void (*work)(void *context), void *context)
{
    loop_post(http->loop, work, context);
}

struct loop *
http_loop(struct http *http)
{
    return http->loop;
}
