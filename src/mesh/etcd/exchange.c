/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/etcd/exchange.h"

#include <curl/curl.h>
#include <event2/event.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/memory.h"
#include "loop/timer.h"

/* A vanished peer is noticed on an idle stream after 10 s + 3 × 5 s. */
enum { KEEPALIVE_IDLE_S = 10, KEEPALIVE_INTERVAL_S = 5, CONNECTIONS_KEPT = 16, URL_MAX = 512 };

enum { CA_CACHE_S = 60 }; /* libcurl's default is a day: new authorities would not be noticed */

enum { LINES_KEPT_BYTES = 256 * 1024 }; /* kept by an idle stream */

TAILQ_HEAD(exchange_list, etcd_exchange);

struct etcd_wire {
    struct event_base *base;
    CURLM *multi;
    struct loop_timer *timer;
    char *ca_file, *cert_file, *key_file;
    char *ca_pem, *cert_pem, *key_pem; /* used where there is no file */
    char *key_password;
    int64_t connect_timeout_ns;
    size_t answer_bytes_max;
    struct exchange_list open;
    struct exchange_list ready; /* of those: with something to report */
    bool notifying;
};

struct etcd_exchange {
    TAILQ_ENTRY(etcd_exchange) open_link;
    TAILQ_ENTRY(etcd_exchange) ready_link;
    struct etcd_wire *wire;
    struct etcd_exchange_request request;
    CURL *easy;
    struct curl_slist *headers;
    size_t given; /* bytes of the body taken by libcurl */
    struct bytes answer;
    size_t reported; /* bytes of the answer reported as lines */
    size_t seen;     /* bytes after that without an end of line */
    bool is_ready, over, too_long;
    CURLcode code;
    char failure[CURL_ERROR_SIZE];
};

/* ---- libcurl's callbacks: they keep what came ---- */

static void
mark_ready(struct etcd_exchange *exchange)
{
    if (exchange->is_ready)
        return;
    exchange->is_ready = true;
    TAILQ_INSERT_TAIL(&exchange->wire->ready, exchange, ready_link);
}

static size_t
give_body(char *to, size_t one, size_t room, void *context)
{
    struct etcd_exchange *exchange = context;
    size_t left = exchange->request.body_bytes - exchange->given;
    size_t count = one * room < left ? one * room : left;
    memcpy(to, exchange->request.body + exchange->given, count);
    exchange->given += count;
    return count;
}

/* libcurl repeats a request by itself if a reused connection ends without an answer, although the
 * first one may have been carried out. Refusing to rewind the body prevents that. */
static int
refuse_rewind(void *context, curl_off_t offset, int origin)
{
    (void)context;
    (void)offset;
    (void)origin;
    return CURL_SEEKFUNC_FAIL;
}

static size_t
take_answer(char *data, size_t one, size_t count, void *context)
{
    struct etcd_exchange *exchange = context;
    size_t bytes = one * count;
    if (exchange->answer.used - exchange->reported + bytes > exchange->wire->answer_bytes_max) {
        exchange->too_long = true;
        return CURL_WRITEFUNC_ERROR;
    }
    bytes_put(&exchange->answer, data, bytes);
    CHECK(!exchange->answer.failed);
    if (exchange->request.form == ETCD_ANSWER_LINES)
        mark_ready(exchange);
    return bytes;
}

/* ---- reports ---- */

static void
exchange_free(struct etcd_exchange *exchange)
{
    struct etcd_wire *wire = exchange->wire;
    TAILQ_REMOVE(&wire->open, exchange, open_link);
    if (exchange->is_ready)
        TAILQ_REMOVE(&wire->ready, exchange, ready_link);
    CHECK(curl_multi_remove_handle(wire->multi, exchange->easy) == CURLM_OK);
    curl_easy_cleanup(exchange->easy);
    curl_slist_free_all(exchange->headers);
    bytes_fini(&exchange->answer);
    free(exchange);
}

static long
http_status(const struct etcd_exchange *exchange)
{
    long status = 0;
    curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
    return status;
}

/* The next complete line, cut out of the data; NULL: none. */
static const char *
next_line(struct etcd_exchange *exchange, size_t *bytes)
{
    struct bytes *answer = &exchange->answer;
    if (exchange->reported > answer->capacity / 2) { /* else each line would move all others */
        memmove(answer->data, answer->data + exchange->reported, answer->used - exchange->reported);
        answer->used -= exchange->reported;
        exchange->reported = 0;
    }
    size_t from = exchange->reported + exchange->seen;
    if (answer->used == from)
        return NULL;
    char *end = memchr(answer->data + from, '\n', answer->used - from);
    if (end == NULL) {
        exchange->seen = answer->used - exchange->reported;
        return NULL;
    }
    char *line = answer->data + exchange->reported;
    *end = '\0';
    *bytes = (size_t)(end - line);
    exchange->reported += *bytes + 1;
    exchange->seen = 0;
    return line;
}

static void
describe_failure(const struct etcd_exchange *exchange, struct error *error)
{
    const char *endpoint = exchange->request.endpoint;
    const char *why =
        exchange->failure[0] != '\0' ? exchange->failure : curl_easy_strerror(exchange->code);
    if (exchange->too_long)
        error_set(error, STATUS_RESOURCE_EXHAUSTED, "%s: the answer is longer than %zu bytes",
                  endpoint, exchange->wire->answer_bytes_max);
    else if (exchange->code == CURLE_OPERATION_TIMEDOUT && exchange->given > 0)
        error_set(error, STATUS_DEADLINE_EXCEEDED, "%s: %s", endpoint, why);
    else
        error_set(error, STATUS_UNAVAILABLE, "%s: %s", endpoint, why);
}

static void
notify_end(struct etcd_exchange *exchange)
{
    struct etcd_exchange_end end = {.body_given = exchange->given > 0, .error = ERROR_NONE};
    bytes_put_char(&exchange->answer, '\0');
    CHECK(!exchange->answer.failed);
    end.answer = exchange->answer.data + exchange->reported;
    end.answer_bytes = exchange->answer.used - exchange->reported - 1;
    if (exchange->code == CURLE_OK)
        end.http_status = http_status(exchange);
    else
        describe_failure(exchange, &end.error);
    struct bytes answer = exchange->answer;
    exchange->answer = (struct bytes){0};
    struct etcd_exchange_request request = exchange->request;
    exchange_free(exchange);
    request.on_end(request.context, &end);
    bytes_fini(&answer);
}

/* Reports one line or the end; afterwards the exchange may be gone. */
static void
notify_next(struct etcd_exchange *exchange)
{
    size_t bytes;
    const char *line = NULL;
    if (exchange->request.form == ETCD_ANSWER_LINES && http_status(exchange) == 200)
        line = next_line(exchange, &bytes);
    if (line != NULL) {
        exchange->request.on_line(exchange->request.context, line, bytes);
        return;
    }
    if (exchange->over) {
        notify_end(exchange);
        return;
    }
    if (exchange->reported == exchange->answer.used &&
        exchange->answer.capacity > LINES_KEPT_BYTES) {
        bytes_fini(&exchange->answer); /* long lines are rare and streams last for months */
        exchange->reported = exchange->seen = 0;
    }
    exchange->is_ready = false;
    TAILQ_REMOVE(&exchange->wire->ready, exchange, ready_link);
}

static void
notify_all(struct etcd_wire *wire)
{
    if (wire->notifying)
        return;
    wire->notifying = true;
    const CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(wire->multi, &left)) != NULL) {
        struct etcd_exchange *exchange;
        CHECK(message->msg == CURLMSG_DONE);
        CHECK(curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange) == CURLE_OK);
        exchange->over = true;
        exchange->code = message->data.result;
        mark_ready(exchange);
    }
    while (!TAILQ_EMPTY(&wire->ready)) /* the end removes it: NOLINTNEXTLINE(*-unix.Malloc) */
        notify_next(TAILQ_FIRST(&wire->ready));
    wire->notifying = false;
}

/* ---- libcurl on the event base ---- */

static void
on_socket(evutil_socket_t fd, short what, void *context)
{
    struct etcd_wire *wire = context;
    int action = (what & EV_READ ? CURL_CSELECT_IN : 0) | (what & EV_WRITE ? CURL_CSELECT_OUT : 0);
    int running;
    CHECK(curl_multi_socket_action(wire->multi, fd, action, &running) == CURLM_OK);
    notify_all(wire);
}

static void
on_time(void *context)
{
    struct etcd_wire *wire = context;
    int running;
    CHECK(curl_multi_socket_action(wire->multi, CURL_SOCKET_TIMEOUT, 0, &running) == CURLM_OK);
    notify_all(wire);
}

static int
watch_socket(CURL *easy, curl_socket_t fd, int what, void *context, void *socket)
{
    (void)easy;
    struct etcd_wire *wire = context;
    struct event *event = socket;
    if (event != NULL)
        event_free(event);
    event = NULL;
    if (what != CURL_POLL_REMOVE) {
        short events = EV_PERSIST;
        events |= what & CURL_POLL_IN ? EV_READ : 0;
        events |= what & CURL_POLL_OUT ? EV_WRITE : 0;
        event = event_new(wire->base, fd, events, on_socket, wire);
        CHECK(event != NULL && event_add(event, NULL) == 0);
    }
    CHECK(curl_multi_assign(wire->multi, fd, event) == CURLM_OK);
    return 0;
}

static int
watch_time(CURLM *multi, long timeout_ms, void *context)
{
    (void)multi;
    struct etcd_wire *wire = context;
    if (timeout_ms < 0)
        loop_timer_clear(wire->timer);
    else
        loop_timer_set(wire->timer, (int64_t)timeout_ms * NS_PER_MS);
    return 0;
}

enum status
etcd_wire_create(struct event_base *base, const struct etcd_options *options,
                 struct etcd_wire **created, struct error *error)
{
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return error_set(error, STATUS_INTERNAL, "libcurl failed to initialize");
    struct etcd_wire *wire = calloc(1, sizeof(*wire));
    CHECK(wire != NULL);
    wire->base = base;
    wire->ca_file = memory_copy_text(options->ca_file);
    wire->cert_file = memory_copy_text(options->cert_file);
    wire->key_file = memory_copy_text(options->key_file);
    wire->ca_pem = memory_copy_text(options->ca_pem);
    wire->cert_pem = memory_copy_text(options->cert_pem);
    wire->key_pem = memory_copy_text(options->key_pem);
    wire->key_password = memory_copy_text(options->key_password);
    wire->connect_timeout_ns = options->connect_timeout_ns;
    wire->answer_bytes_max = options->answer_bytes_max;
    TAILQ_INIT(&wire->open);
    TAILQ_INIT(&wire->ready);
    wire->timer = loop_timer_create(base, on_time, wire);
    CURLM *multi = wire->multi = curl_multi_init();
    CHECK(multi != NULL);
    bool set = curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, watch_socket) == CURLM_OK &&
               curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, wire) == CURLM_OK &&
               curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, watch_time) == CURLM_OK &&
               curl_multi_setopt(multi, CURLMOPT_TIMERDATA, wire) == CURLM_OK &&
               curl_multi_setopt(multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING) == CURLM_OK &&
               curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS_KEPT) == CURLM_OK;
    CHECK(set);
    *created = wire;
    return STATUS_OK;
}

void
etcd_wire_destroy(struct etcd_wire *wire)
{
    CHECK(!wire->notifying);
    while (!TAILQ_EMPTY(&wire->open)) /* which removes it: NOLINTNEXTLINE(*-unix.Malloc) */
        exchange_free(TAILQ_FIRST(&wire->open));
    CHECK(curl_multi_cleanup(wire->multi) == CURLM_OK);
    loop_timer_destroy(wire->timer);
    curl_global_cleanup();
    free(wire->ca_file);
    free(wire->cert_file);
    free(wire->key_file);
    free(wire->ca_pem);
    free(wire->cert_pem);
    free(wire->key_pem);
    memory_free_secret(wire->key_password);
    free(wire);
}

/* ---- one request ---- */

/* libcurl stores an int, 24 days, and truncates or refuses larger values depending on the option.
 */
static long
to_ms(int64_t ns)
{
    int64_t ms = ns / NS_PER_MS + 1;
    return ms < INT_MAX ? (long)ms : INT_MAX;
}

static void
add_header(struct etcd_exchange *exchange, const char *line)
{
    struct curl_slist *longer = curl_slist_append(exchange->headers, line);
    CHECK(longer != NULL);
    exchange->headers = longer;
}

static void
add_headers(struct etcd_exchange *exchange)
{
    add_header(exchange, "Content-Type: application/json");
    add_header(exchange, "Expect:"); /* avoids a round trip before a large body */
    /* Makes etcd refuse at once, and end watches, while there is no leader. Otherwise calls hang
     * for 7 s, and a watch on an isolated member keeps reporting progress. */
    add_header(exchange, "Grpc-Metadata-hasleader: true");
    /* When a Go server begins to answer, it discards the unread rest of the request to reuse the
     * connection. The gateway reads a watch's body range by range and answers the first at once.
     * Asking for the connection to be closed keeps the rest. */
    if (exchange->request.form == ETCD_ANSWER_LINES)
        add_header(exchange, "Connection: close");
    if (exchange->request.timeout_ns > 0) {
        char line[64];
        snprintf(line, sizeof(line), "Grpc-Timeout: %ldm", to_ms(exchange->request.timeout_ns));
        add_header(exchange, line);
    }
    if (exchange->request.token != NULL) {
        char *line;
        CHECK(asprintf(&line, "Authorization: %s", exchange->request.token) > 0);
        add_header(exchange, line);
        free(line);
    }
}

/* Sets a file, otherwise the text; neither: nothing. */
static bool
set_pem(CURL *easy, CURLoption file_option, const char *file, CURLoption text_option, char *text)
{
    if (file != NULL)
        return curl_easy_setopt(easy, file_option, file) == CURLE_OK;
    if (text == NULL)
        return true;
    struct curl_blob blob = {.data = text, .len = strlen(text), .flags = CURL_BLOB_NOCOPY};
    return curl_easy_setopt(easy, text_option, &blob) == CURLE_OK;
}

static bool
set_security(struct etcd_exchange *exchange)
{
    const struct etcd_wire *wire = exchange->wire;
    CURL *easy = exchange->easy;
    bool set =
        curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2) == CURLE_OK &&
        curl_easy_setopt(easy, CURLOPT_CA_CACHE_TIMEOUT, (long)CA_CACHE_S) == CURLE_OK;
    if (wire->ca_file != NULL || wire->ca_pem != NULL)
        set = set && curl_easy_setopt(easy, CURLOPT_CAPATH, NULL) == CURLE_OK;
    /* without a password OpenSSL would ask at the terminal and block */
    const char *password = wire->key_password != NULL ? wire->key_password : "";
    set = set && curl_easy_setopt(easy, CURLOPT_KEYPASSWD, password) == CURLE_OK;
    return set && set_pem(easy, CURLOPT_CAINFO, wire->ca_file, CURLOPT_CAINFO_BLOB, wire->ca_pem) &&
           set_pem(easy, CURLOPT_SSLCERT, wire->cert_file, CURLOPT_SSLCERT_BLOB, wire->cert_pem) &&
           set_pem(easy, CURLOPT_SSLKEY, wire->key_file, CURLOPT_SSLKEY_BLOB, wire->key_pem);
}

static bool
set_transfer(struct etcd_exchange *exchange)
{
    CURL *easy = exchange->easy;
    int64_t timeout_ns = exchange->request.timeout_ns;
    int64_t connect_ns = exchange->wire->connect_timeout_ns;
    char url[URL_MAX];
    snprintf(url, sizeof(url), "%s%s", exchange->request.endpoint, exchange->request.path);
    return curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PROXY, "") == CURLE_OK && /* ignores the environment */
           /* HTTP/2 without TLS reaches etcd's gRPC server, not the gateway */
           curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TCP_KEEPIDLE, (long)KEEPALIVE_IDLE_S) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TCP_KEEPINTVL, (long)KEEPALIVE_INTERVAL_S) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, to_ms(connect_ns)) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, timeout_ns == 0 ? 0L : to_ms(timeout_ns)) ==
               CURLE_OK;
}

static bool
set_data(struct etcd_exchange *exchange)
{
    CURL *easy = exchange->easy;
    return curl_easy_setopt(easy, CURLOPT_POST, 1L) == CURLE_OK &&
           /* with its length: the gateway would wait for the end of an open body */
           curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                            (curl_off_t)exchange->request.body_bytes) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_READFUNCTION, give_body) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_READDATA, exchange) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_SEEKFUNCTION, refuse_rewind) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, take_answer) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->failure) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_HTTPHEADER, exchange->headers) == CURLE_OK &&
           curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange) == CURLE_OK;
}

struct etcd_exchange *
etcd_exchange_start(struct etcd_wire *wire, const struct etcd_exchange_request *request)
{
    struct etcd_exchange *exchange = calloc(1, sizeof(*exchange));
    CHECK(exchange != NULL);
    exchange->wire = wire;
    exchange->request = *request;
    exchange->easy = curl_easy_init();
    CHECK(exchange->easy != NULL);
    add_headers(exchange);
    CHECK(set_transfer(exchange) && set_data(exchange) && set_security(exchange));
    TAILQ_INSERT_TAIL(&wire->open, exchange, open_link);
    CHECK(curl_multi_add_handle(wire->multi, exchange->easy) == CURLM_OK);
    return exchange;
}

void
etcd_exchange_cancel(struct etcd_exchange *exchange)
{
    exchange_free(exchange);
}
