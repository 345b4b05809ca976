/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP client against servers that follow a script, over real sockets: connections are reused
 * only when nothing of one answer can reach the next call, answers are refused as malformed,
 * broken or late, and a call ends once, or never after it was cancelled, from every callback.
 *
 * A server is a thread with blocking sockets: it fails the test after 20 seconds.
 */
#include <event2/event.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "http/client.h"

#include "../ports.h"

enum { WAIT_S = 60, LARGE_BYTES = 8 << 20, HEADER_MAX = 4096 };

/* ---- a server ---- */

struct server {
    int fd;
    void (*script)(struct server *server);
    const char *text; /* for the script */
    atomic_int accepted;
    atomic_int step; /* how far the script has come */
    pthread_t thread;
    char target[32];
};

static int
accept_one(struct server *server)
{
    int fd = accept(server->fd, NULL, NULL);
    CHECK(fd >= 0);
    struct timeval wait = {.tv_sec = WAIT_S};
    int on = 1;
    CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)) == 0);
    CHECK(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof(wait)) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    atomic_fetch_add(&server->accepted, 1);
    return fd;
}

/* Reads a request's head, and a body of as many bytes. */
static void
take_request(int fd, size_t body_bytes)
{
    char text[HEADER_MAX + 1] = "";
    size_t used = 0;
    char *end = NULL;
    while (end == NULL && used < HEADER_MAX) {
        CHECK(recv(fd, text + used, 1, 0) == 1);
        used++;
        end = strstr(text, "\r\n\r\n");
    }
    CHECK(end != NULL);
    for (char byte; body_bytes > 0; body_bytes--)
        CHECK(recv(fd, &byte, 1, 0) == 1);
}

static void
say(int fd, const char *text)
{
    size_t bytes = strlen(text);
    CHECK(send(fd, text, bytes, MSG_NOSIGNAL) == (ssize_t)bytes);
}

static void
wait_closed(int fd)
{
    char bytes[4096];
    while (recv(fd, bytes, sizeof(bytes), 0) > 0)
        continue;
    close(fd);
}

static void
reset(int fd)
{
    struct linger linger = {.l_onoff = 1};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)) == 0);
    close(fd);
}

static void *
serve(void *context)
{
    struct server *server = context;
    server->script(server);
    atomic_fetch_add(&server->step, 1000);
    return NULL;
}

static void
server_start(struct server *server, void (*script)(struct server *server), const char *text)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(free_port())};
    *server = (struct server){.script = script, .text = text};
    server->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(server->fd, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(server->fd, script == NULL ? 0 : 16) == 0);
    snprintf(server->target, sizeof(server->target), "127.0.0.1:%u", ntohs(address.sin_port));
    if (script != NULL)
        CHECK(pthread_create(&server->thread, NULL, serve, server) == 0);
}

static void
server_stop(struct server *server)
{
    if (server->script != NULL)
        CHECK(pthread_join(server->thread, NULL) == 0);
    close(server->fd);
}

/* ---- a client ---- */

enum upset { UPSET_NONE, CANCEL_AT_HEAD, CANCEL_AT_PIECE, CANCEL_AT_END, PAUSE_AT_PIECE };

struct outcome {
    enum upset upset;
    struct http_call *call;
    int heads;
    int pieces;
    int ends;
    int code;
    int64_t length;
    enum http_call_end end;
    char mistake[128];
    char body[256]; /* its beginning */
    size_t bytes;
};

struct rig {
    struct event_base *base;
    struct http_client *client;
    struct http_target *target;
    struct server server;
};

static void
on_head(void *context, struct http_call *call)
{
    struct outcome *outcome = context;
    outcome->heads++;
    outcome->code = http_call_code(call);
    outcome->length = http_call_length(call);
    if (outcome->upset == CANCEL_AT_HEAD)
        http_call_cancel(call);
}

static void
on_piece(void *context, struct http_call *call, const void *data, size_t bytes)
{
    struct outcome *outcome = context;
    size_t room = sizeof(outcome->body) - 1;
    outcome->pieces++;
    if (outcome->bytes < room) {
        size_t kept = bytes < room - outcome->bytes ? bytes : room - outcome->bytes;
        memcpy(outcome->body + outcome->bytes, data, kept);
    }
    outcome->bytes += bytes;
    if (outcome->upset == CANCEL_AT_PIECE)
        http_call_cancel(call);
    if (outcome->upset == PAUSE_AT_PIECE)
        http_call_pause(call);
}

static void
on_end(void *context, struct http_call *call, enum http_call_end end)
{
    struct outcome *outcome = context;
    outcome->ends++;
    outcome->end = end;
    if (end == HTTP_CALL_MALFORMED)
        snprintf(outcome->mistake, sizeof(outcome->mistake), "%s", http_call_mistake(call));
    if (outcome->upset == CANCEL_AT_END)
        http_call_cancel(call);
}

static const struct http_call_handler handler = {on_head, on_piece, on_end};

static void
on_too_late(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    (void)context;
    fail_msg("nothing happened for %d seconds", WAIT_S);
}

/* Runs the loop until the number is reached. */
static void
run_until(struct rig *rig, const atomic_int *step, const int *count, int wanted)
{
    struct timeval wait = {.tv_sec = WAIT_S};
    struct timeval look = {.tv_usec = 1000};
    struct event *late = evtimer_new(rig->base, on_too_late, NULL);
    evtimer_add(late, &wait);
    while ((step != NULL ? atomic_load(step) : *count) < wanted) {
        if (step != NULL)
            event_base_loopexit(rig->base, &look); /* another thread changes it */
        event_base_loop(rig->base, step != NULL ? 0 : EVLOOP_ONCE);
    }
    event_free(late);
}

static struct http_call *
start(struct rig *rig, struct outcome *outcome, const struct http_call_request *request)
{
    struct http_call_request sent = *request;
    sent.method = sent.method == NULL ? "GET" : sent.method;
    sent.path = "/x?y=z";
    outcome->call = http_call_start(rig->target, &sent, &handler, outcome);
    assert_int_equal(outcome->ends, 0);
    return outcome->call;
}

static struct outcome
call(struct rig *rig, const struct http_call_request *request)
{
    struct outcome outcome = {0};
    start(rig, &outcome, request);
    run_until(rig, NULL, &outcome.ends, 1);
    return outcome;
}

static const struct http_call_request plain = {0};

static struct rig *
rig_create(void (*script)(struct server *server), const char *text,
           const struct http_client_options *options)
{
    struct error error = ERROR_NONE;
    struct rig *rig = calloc(1, sizeof(*rig));
    server_start(&rig->server, script, text);
    rig->base = event_base_new();
    rig->client = http_client_create(rig->base, options);
    assert_int_equal(
        http_target_create(rig->client, rig->server.target, NULL, &rig->target, &error), STATUS_OK);
    return rig;
}

static const struct http_client_options defaults = {
    .idle_max = 4, .keep_ns = 60 * NS_PER_S, .header_bytes_max = HEADER_MAX};

static void
rig_destroy(struct rig *rig)
{
    http_target_destroy(rig->target);
    http_client_destroy(rig->client);
    event_base_loop(rig->base, EVLOOP_NONBLOCK); /* libevent closes sockets here */
    event_base_free(rig->base);
    server_stop(&rig->server);
    free(rig);
}

static void
assert_done(const struct outcome *outcome, int code, const char *body)
{
    assert_int_equal(outcome->end, HTTP_CALL_DONE);
    assert_int_equal(outcome->heads, 1);
    assert_int_equal(outcome->code, code);
    assert_string_equal(outcome->body, body);
}

/* ---- reuse ---- */

#define OK_HEAD "HTTP/1.1 200 OK\r\n"

static void
serve_kept(struct server *server)
{
    static const char *const answers[] = {
        OK_HEAD "Content-Length: 5\r\n\r\nfirst",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nsec\r\n3\r\nond\r\n0\r\nT: t\r\n\r\n",
        "HTTP/1.1 204 No Content\r\n\r\n",
        "HTTP/1.1 304\r\nContent-Length: 7\r\n\r\n",
        OK_HEAD "Content-Length: 9\r\n\r\n", /* to HEAD */
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nA: b\r\n\r\n" OK_HEAD
        "Content-Length: 4\r\n\r\nlast",
    };
    int fd = accept_one(server);
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        take_request(fd, i == 0 ? 4 : 0);
        say(fd, answers[i]);
    }
    wait_closed(fd);
}

TEST_CASE(test_kept)
{
    const struct http_header header = {"X-Name", "value"};
    struct rig *rig = rig_create(serve_kept, NULL, &defaults);
    struct outcome first = call(rig, &(struct http_call_request){.method = "POST",
                                                                 .headers = &header,
                                                                 .header_count = 1,
                                                                 .body = "body",
                                                                 .body_bytes = 4});
    assert_done(&first, 200, "first");
    assert_int_equal(first.length, 5);
    struct outcome second = call(rig, &plain);
    assert_done(&second, 200, "second");
    assert_int_equal(second.length, -1);
    struct outcome third = call(rig, &plain);
    assert_done(&third, 204, "");
    struct outcome fourth = call(rig, &plain);
    assert_done(&fourth, 304, "");
    struct outcome fifth = call(rig, &(struct http_call_request){.method = "HEAD"});
    assert_done(&fifth, 200, "");
    struct outcome last = call(rig, &plain);
    assert_done(&last, 200, "last");
    assert_int_equal(atomic_load(&rig->server.accepted), 1);
    rig_destroy(rig);
}

/* Each answer ends the use of its connection. */
static void
serve_once_each(struct server *server)
{
    static const char *const answers[] = {
        OK_HEAD "Content-Length: 1\r\nConnection: close\r\n\r\n0",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n1",
        OK_HEAD "Content-Length: 1\r\n\r\n2HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nX",
        OK_HEAD "Content-Length: 1\r\n\r\n3",
    };
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        int fd = accept_one(server);
        take_request(fd, 0);
        say(fd, answers[i]);
        wait_closed(fd);
    }
}

TEST_CASE(test_not_kept)
{
    struct rig *rig = rig_create(serve_once_each, NULL, &defaults);
    for (int i = 0; i < 4; i++) {
        char body[] = {(char)('0' + i), '\0'};
        struct outcome outcome = call(rig, &plain);
        assert_done(&outcome, 200, body);
    }
    assert_int_equal(atomic_load(&rig->server.accepted), 4);
    rig_destroy(rig);
}

static void
serve_then_close(struct server *server)
{
    for (int i = 0; i < 2; i++) { /* the second after one answer; then without any */
        int fd = accept_one(server);
        take_request(fd, 0);
        if (i == 0) {
            say(fd, OK_HEAD "Content-Length: 1\r\n\r\n1");
            take_request(fd, 0);
        }
        close(fd);
    }
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, OK_HEAD "Content-Length: 1\r\n\r\n1");
    close(fd);
    atomic_store(&server->step, 1);
    fd = accept_one(server);
    take_request(fd, 0);
    say(fd, OK_HEAD "Content-Length: 1\r\n\r\n2");
    wait_closed(fd);
}

TEST_CASE(test_stale)
{
    struct rig *rig = rig_create(serve_then_close, NULL, &defaults);
    struct outcome outcome = call(rig, &plain);
    assert_done(&outcome, 200, "1");
    outcome = call(rig, &plain);
    assert_int_equal(outcome.end, HTTP_CALL_STALE);
    outcome = call(rig, &plain);
    assert_int_equal(outcome.end, HTTP_CALL_BROKEN);
    outcome = call(rig, &plain);
    assert_done(&outcome, 200, "1");
    run_until(rig, &rig->server.step, NULL, 1);
    event_base_loop(rig->base, EVLOOP_ONCE | EVLOOP_NONBLOCK); /* sees the idle one close */
    outcome = call(rig, &plain);
    assert_done(&outcome, 200, "2");
    rig_destroy(rig);
}

static void
serve_silence(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, server->text);
    wait_closed(fd);
}

TEST_CASE(test_keep_time)
{
    struct http_client_options options = defaults;
    options.keep_ns = NS_PER_MS;
    struct rig *rig = rig_create(serve_silence, OK_HEAD "Content-Length: 1\r\n\r\n1", &options);
    struct outcome outcome = call(rig, &plain);
    assert_done(&outcome, 200, "1");
    run_until(rig, &rig->server.step, NULL, 1000); /* the server sees the end */
    rig_destroy(rig);
}

static void
serve_both(struct server *server)
{
    int fds[] = {accept_one(server), accept_one(server)};
    for (int i = 0; i < 2; i++) {
        take_request(fds[i], 0);
        say(fds[i], OK_HEAD "Content-Length: 1\r\n\r\n1");
    }
    char byte;
    CHECK(recv(fds[0], &byte, 1, 0) == 0); /* it gave way to the other */
    atomic_store(&server->step, 1);
    wait_closed(fds[1]);
    close(fds[0]);
}

TEST_CASE(test_idle_max)
{
    struct http_client_options options = defaults;
    options.idle_max = 1;
    struct rig *rig = rig_create(serve_both, NULL, &options);
    struct outcome outcomes[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++)
        start(rig, &outcomes[i], &plain);
    for (int i = 0; i < 2; i++)
        run_until(rig, NULL, &outcomes[i].ends, 1);
    run_until(rig, &rig->server.step, NULL, 1);
    rig_destroy(rig);
}

/* ---- answers ---- */

static void
serve_by_bytes(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    for (const char *at = server->text; *at != '\0'; at++)
        CHECK(send(fd, at, 1, MSG_NOSIGNAL) == 1);
    close(fd);
}

TEST_CASE(test_cut_anywhere)
{
    static const char *const answers[] = {
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n",
        OK_HEAD "Content-Length: 5\r\n\r\nwhole",
        OK_HEAD "Content-Type: text/plain\r\n\r\nwhole", /* until it closes */
    };
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        struct rig *rig = rig_create(serve_by_bytes, answers[i], &defaults);
        struct outcome outcome = call(rig, &plain);
        assert_done(&outcome, 200, "whole");
        rig_destroy(rig);
    }
}

static void
serve_text(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, server->text);
    if (shutdown(fd, SHUT_WR) == 0)
        wait_closed(fd);
}

TEST_CASE(test_malformed)
{
#define INTERIM "HTTP/1.1 103 Early\r\n\r\n"
    static const char *const answers[] = {
        "\r\n" OK_HEAD "\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 600 OK\r\n\r\n",
        "HTTP/1.1 200 a\x01\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        OK_HEAD "Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        OK_HEAD "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK_HEAD "Content-Length: +1\r\n\r\nx",
        OK_HEAD "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\nx\r\n",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1\r\nxy\r\n",
        OK_HEAD "A: b\r\n folded\r\n\r\n",
        OK_HEAD "A : b\r\n\r\n",
        OK_HEAD "A: b\n\r\n",
        "HTTP/1.1 101 Switching\r\n\r\n",
        INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM INTERIM,
    };
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        struct rig *rig = rig_create(serve_text, answers[i], &defaults);
        struct outcome outcome = call(rig, &plain);
        if (outcome.end != HTTP_CALL_MALFORMED || outcome.mistake[0] == '\0')
            fail_msg("%s: ended with %d", answers[i], (int)outcome.end);
        rig_destroy(rig);
    }
}

TEST_CASE(test_broken)
{
    static const char *const answers[] = {
        "",
        "HTTP/1.1 2",
        OK_HEAD,
        OK_HEAD "Content-Length: 2\r\n\r\nx",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
        OK_HEAD "Transfer-Encoding: chunked\r\n\r\n0\r\n",
    };
    for (size_t i = 0; i < ARRAY_COUNT(answers); i++) {
        struct rig *rig = rig_create(serve_text, answers[i], &defaults);
        struct outcome outcome = call(rig, &plain);
        assert_int_equal(outcome.end, HTTP_CALL_BROKEN);
        rig_destroy(rig);
    }
}

static void
serve_reset(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, OK_HEAD "\r\nuntil it closes");
    while (atomic_load(&server->step) == 0)
        sched_yield();
    reset(fd);
}

/* Nothing shows that the answer is whole. */
TEST_CASE(test_reset)
{
    struct rig *rig = rig_create(serve_reset, NULL, &defaults);
    struct outcome outcome = {0};
    start(rig, &outcome, &plain);
    run_until(rig, NULL, &outcome.pieces, 1);
    atomic_store(&rig->server.step, 1);
    run_until(rig, NULL, &outcome.ends, 1);
    assert_int_equal(outcome.end, HTTP_CALL_BROKEN);
    rig_destroy(rig);
}

static void
serve_early(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
    reset(fd);
    atomic_store(&server->step, 1);
    fd = accept_one(server);
    take_request(fd, 0);
    say(fd, OK_HEAD "Content-Length: 1\r\n\r\n1");
    wait_closed(fd);
}

/* The answer comes before the request was sent whole; sending fails before the answer is read. */
TEST_CASE(test_early_answer)
{
    struct rig *rig = rig_create(serve_early, NULL, &defaults);
    struct outcome outcome = {0};
    char *body = calloc(1, LARGE_BYTES);
    start(rig, &outcome,
          &(struct http_call_request){.method = "POST", .body = body, .body_bytes = LARGE_BYTES});
    http_call_pause(outcome.call);
    run_until(rig, &rig->server.step, NULL, 1);
    event_base_loop(rig->base, EVLOOP_NONBLOCK);
    assert_int_equal(outcome.ends, 0);
    http_call_resume(outcome.call);
    run_until(rig, NULL, &outcome.ends, 1);
    free(body);
    assert_done(&outcome, 413, "no");
    outcome = call(rig, &plain);
    assert_done(&outcome, 200, "1");
    rig_destroy(rig);
}

/* ---- time ---- */

static void
serve_trickle(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, OK_HEAD "\r\n");
    while (send(fd, "x", 1, MSG_NOSIGNAL) == 1)
        continue;
    close(fd);
}

TEST_CASE(test_late)
{
    static const struct {
        void (*script)(struct server *server);
        const char *text;
        struct http_call_timeouts timeouts;
    } rows[] = {
        {serve_silence, "", {.first_byte_ns = 20 * NS_PER_MS}},
        {serve_silence, "", {.total_ns = 20 * NS_PER_MS}},
        {serve_silence, OK_HEAD, {.idle_ns = 20 * NS_PER_MS}},
        {serve_silence, OK_HEAD "Content-Length: 2\r\n\r\nx", {.idle_ns = 20 * NS_PER_MS}},
        {serve_trickle, NULL, {.idle_ns = 10 * NS_PER_S, .total_ns = 20 * NS_PER_MS}},
    };
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        struct rig *rig = rig_create(rows[i].script, rows[i].text, &defaults);
        struct outcome outcome =
            call(rig, &(struct http_call_request){.timeouts = rows[i].timeouts});
        assert_int_equal(outcome.end, HTTP_CALL_LATE);
        rig_destroy(rig);
    }
}

/* The queue of a server that does not accept is full: its kernel ignores more. */
TEST_CASE(test_no_connection)
{
    struct rig *rig = rig_create(NULL, NULL, &defaults);
    struct outcome full = {0};
    struct outcome waits = {0};
    start(rig, &full, &plain);
    start(rig, &waits, &plain);
    struct outcome outcome =
        call(rig, &(struct http_call_request){.timeouts = {.connect_ns = 50 * NS_PER_MS}});
    assert_int_equal(outcome.end, HTTP_CALL_REFUSED);
    http_call_cancel(full.call);
    http_call_cancel(waits.call);
    assert_int_equal(full.ends + waits.ends, 0);
    close(rig->server.fd); /* nothing listens any more */
    outcome = call(rig, &plain);
    assert_int_equal(outcome.end, HTTP_CALL_REFUSED);
    rig->server.fd = -1;
    rig_destroy(rig);
}

TEST_CASE(test_bad_addresses)
{
    static const char *const addresses[] = {
        "", "localhost:80", "127.0.0.1", "127.0.0.1:0", "port:80", "[::1]", "127.0.0.1:80:80"};
    struct event_base *base = event_base_new();
    struct http_client *client = http_client_create(base, &defaults);
    for (size_t i = 0; i < ARRAY_COUNT(addresses); i++) {
        struct error error = ERROR_NONE;
        struct http_target *target;
        if (http_target_create(client, addresses[i], NULL, &target, &error) !=
            STATUS_INVALID_ARGUMENT)
            fail_msg("%s is taken", addresses[i]);
        assert_non_null(strstr(error.text, addresses[i]));
    }
    http_client_destroy(client);
    event_base_free(base);
}

/* ---- cancelling and pausing ---- */

static void
serve_long(struct server *server)
{
    char *bytes = calloc(1, LARGE_BYTES);
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, OK_HEAD "Content-Length: 8388608\r\n\r\n");
    for (size_t sent = 0; sent < LARGE_BYTES;) {
        ssize_t taken = send(fd, bytes + sent, LARGE_BYTES - sent, MSG_NOSIGNAL);
        if (taken <= 0)
            break;
        sent += (size_t)taken;
    }
    atomic_store(&server->step, 1);
    wait_closed(fd);
    free(bytes);
}

TEST_CASE(test_cancelled)
{
    for (enum upset upset = CANCEL_AT_HEAD; upset <= CANCEL_AT_END; upset++) {
        struct rig *rig = rig_create(serve_long, NULL, &defaults);
        struct outcome outcome = {.upset = upset};
        start(rig, &outcome, &plain);
        run_until(rig, NULL,
                  upset == CANCEL_AT_HEAD    ? &outcome.heads
                  : upset == CANCEL_AT_PIECE ? &outcome.pieces
                                             : &outcome.ends,
                  1);
        assert_int_equal(outcome.ends, upset == CANCEL_AT_END);
        if (upset != CANCEL_AT_END) /* the server sees it */
            run_until(rig, &rig->server.step, NULL, 1001);
        assert_int_equal(outcome.heads, 1);
        assert_true(upset == CANCEL_AT_END || outcome.pieces <= 1);
        rig_destroy(rig);
    }
}

TEST_CASE(test_paused)
{
    struct rig *rig = rig_create(serve_long, NULL, &defaults);
    struct outcome outcome = {.upset = PAUSE_AT_PIECE};
    start(rig, &outcome, &(struct http_call_request){.timeouts = {.idle_ns = NS_PER_S}});
    int pieces = 0;
    while (outcome.bytes < LARGE_BYTES / 64) {
        run_until(rig, NULL, &outcome.pieces, ++pieces);
        for (int i = 0; i < 3; i++)
            event_base_loop(rig->base, EVLOOP_NONBLOCK);
        assert_int_equal(outcome.pieces, pieces); /* none comes */
        http_call_resume(outcome.call);
    }
    outcome.upset = UPSET_NONE;
    run_until(rig, NULL, &outcome.ends, 1);
    assert_int_equal(outcome.end, HTTP_CALL_DONE);
    assert_int_equal(outcome.bytes, LARGE_BYTES);
    rig_destroy(rig);
}

/* Bytes that were read already come without more from the server. */
TEST_CASE(test_resumed)
{
    struct rig *rig = rig_create(
        serve_silence, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
        &defaults);
    struct outcome outcome = {.upset = PAUSE_AT_PIECE};
    start(rig, &outcome, &plain);
    for (int pieces = 1; pieces <= 2; pieces++) {
        run_until(rig, NULL, &outcome.pieces, pieces);
        http_call_resume(outcome.call);
    }
    run_until(rig, NULL, &outcome.ends, 1);
    assert_done(&outcome, 200, "ab");
    rig_destroy(rig);
}

static void
serve_and_close(struct server *server)
{
    int fd = accept_one(server);
    take_request(fd, 0);
    say(fd, server->text);
    close(fd);
}

/* Bytes read before a pause are not lost when the server has closed meanwhile. */
TEST_CASE(test_resumed_after_the_end)
{
    struct rig *rig = rig_create(
        serve_and_close, OK_HEAD "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
        &defaults);
    struct outcome outcome = {.upset = PAUSE_AT_PIECE};
    start(rig, &outcome, &plain);
    run_until(rig, NULL, &outcome.pieces, 1);
    run_until(rig, &rig->server.step, NULL, 1000); /* the socket is closed */
    http_call_resume(outcome.call);
    run_until(rig, NULL, &outcome.pieces, 2);
    http_call_resume(outcome.call);
    run_until(rig, NULL, &outcome.ends, 1);
    assert_done(&outcome, 200, "ab");
    rig_destroy(rig);
}

TEST_MAIN()
