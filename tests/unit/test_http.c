/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTTP server over real sockets: what a well-behaved client gets (keep-alive, requests sent
 * ahead, chunks, 100-continue, HEAD, HTTP/1.0), what a bad one gets (too large, malformed,
 * ambiguous, slow, gone, too many), and that each request is answered once, each lent piece given
 * back once. Time-outs are short; it waits for acts of the server, never for time.
 *
 * ctest: timeout=120 presets=dev,tsan because its thread meets those that answer
 */
#include <netdb.h>
#include <pthread.h>

#include "../random.h"
#include "test_http_rig.h"

/* ---- good clients ---- */

TEST_CASE(test_keep_alive)
{
    struct rig *rig = *state;
    int fd = client(rig);
    for (int i = 0; i < 100; i++) {
        struct answer answer = ask(fd, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_int_equal(answer.code, 200);
        assert_string_equal(answer.body, "now");
        assert_non_null(strstr(answer.head, "\r\nContent-Length: 3\r\n"));
        assert_non_null(strstr(answer.head, "\r\nDate: "));
        assert_null(strstr(answer.head, "Connection:"));
        answer_free(&answer);
    }
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_REQUESTS), 100);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_CONNECTIONS), 1);
    close(fd);
    wait_connections(rig, 0);
}

TEST_CASE(test_ahead)
{
    struct rig *rig = *state;
    int fd = client(rig);
    /* the second waits for the first, which is answered by another thread */
    say(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n"
            "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
            "GET /now HTTP/1.1\r\nHost: x\r\n\r\nGET /n");
    struct http_request *request = wait_open(rig);
    http_thread_post(rig->http, answer_open, rig);
    (void)request;
    struct answer answers[] = {receive(fd), receive(fd), receive(fd)};
    assert_string_equal(answers[0].body, "later");
    assert_string_equal(answers[1].body, "hello");
    assert_string_equal(answers[2].body, "now");
    say(fd, "ow HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer last = receive(fd);
    assert_string_equal(last.body, "now");
    for (size_t i = 0; i < 3; i++)
        answer_free(&answers[i]);
    answer_free(&last);
    close(fd);
}

TEST_CASE(test_bodies)
{
    struct rig *rig = *state;
    int fd = client(rig);
    struct answer answer =
        ask(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                "4\r\nabcd\r\n3\r\nefg\r\n0\r\n\r\n");
    assert_string_equal(answer.body, "abcdefg");
    answer_free(&answer);
    say(fd, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    answer = receive(fd);
    assert_int_equal(answer.code, 100);
    answer_free(&answer);
    answer = ask(fd, "body");
    assert_string_equal(answer.body, "body");
    answer_free(&answer);
    /* a client that does not wait needs no word */
    answer = ask(fd, "POST /now HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\nExpect: "
                     "100-continue\r\n\r\nbody");
    assert_int_equal(answer.code, 200);
    answer_free(&answer);
    /* the largest there may be, and the answer from memory that is lent */
    char *large = malloc(BODY_MAX);
    memset(large, 'x', BODY_MAX);
    char head[128];
    snprintf(head, sizeof(head), "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
             BODY_MAX);
    say(fd, head);
    say_bytes(fd, large, BODY_MAX);
    answer = receive(fd);
    assert_int_equal(answer.body_bytes, BODY_MAX);
    assert_memory_equal(answer.body, large, BODY_MAX);
    answer_free(&answer);
    free(large);
    wait_released(rig, 3);
    close(fd);
}

TEST_CASE(test_head_and_old)
{
    struct rig *rig = *state;
    int fd = client(rig);
    say(fd, "HEAD /now HTTP/1.1\r\nHost: x\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer head = receive_head(fd);
    assert_non_null(strstr(head.head, "\r\nContent-Length: 3\r\n"));
    struct answer answer = receive(fd);
    assert_string_equal(answer.body, "now"); /* so HEAD had none */
    answer_free(&head);
    answer_free(&answer);
    answer = ask(fd, "GET /now HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_non_null(strstr(answer.head, "Connection: keep-alive"));
    answer_free(&answer);
    answer = ask(fd, "GET /now HTTP/1.0\r\n\r\n");
    assert_string_equal(answer.body, "now");
    answer_free(&answer);
    assert_closed(fd);
    fd = client(rig);
    answer = ask(fd, "GET /now HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert_non_null(strstr(answer.head, "Connection: close"));
    answer_free(&answer);
    assert_closed(fd);
}

TEST_CASE(test_handlers_view)
{
    struct rig *rig = *state;
    int fd = client(rig);
    struct answer answer =
        ask(fd, "PATCH /a%20b/%2e?x=1#y HTTP/1.1\r\nHost: x\r\nX-Name: some\r\n\r\n");
    assert_string_equal(answer.body, "3 /a b/. some 127.0.0.1");
    answer_free(&answer);
    answer = ask(fd, "get http://host HTTP/1.1\r\nHost: x\r\nx-nAME: other\r\n\r\n");
    assert_string_equal(answer.body, "3 / other 127.0.0.1");
    answer_free(&answer);
    close(fd);
}

/* ---- bad ones ---- */

#define POST "POST /echo HTTP/1.1\r\nHost: x\r\n"
#define CHUNKED "Transfer-Encoding: chunked\r\n\r\n"

static void
refused_bytes(struct rig *rig, const char *text, size_t bytes, int code, const char *why)
{
    int fd = client(rig);
    say_bytes(fd, text, bytes);
    struct answer answer = receive(fd);
    if (answer.code != code || strstr(answer.body, why) == NULL)
        fail_msg("%.60s: %d %s", text, answer.code, answer.body);
    assert_non_null(strstr(answer.head, "Connection: close"));
    assert_non_null(strstr(answer.head, "Content-Type: test/error"));
    assert_int_equal(strncmp(answer.body, "error: ", 7), 0);
    answer_free(&answer);
    assert_closed(fd);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_REFUSED), ++rig->refused);
}

static void
refused(struct rig *rig, const char *text, int code, const char *why)
{
    refused_bytes(rig, text, strlen(text), code, why);
}

TEST_CASE(test_refused)
{
    static const struct {
        const char *text;
        int code;
        const char *why;
    } cases[] = {
        {"nonsense\r\n\r\n", 400, "malformed"},
        {"GET /now\r\n\r\n", 400, "malformed"},
        {"GET  /now HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"},
        {"GET /now  HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"},
        {"GET /now HTTP/1.1 \r\nHost: x\r\n\r\n", 400, "request line"},
        {"GET /now http/1.1\r\nHost: x\r\n\r\n", 400, "request line"},
        {"GET\t/now HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"},
        {"GET /n\x01w HTTP/1.1\r\nHost: x\r\n\r\n", 400, "request line"},
        {"GET /now HTTP/1.1\nHost: x\r\n\r\n", 400, "LF without CR"},
        {"GET /now HTTP/1.1\r\nHost: x\n\r\n", 400, "LF without CR"},
        {"GET /now HTTP/1.1\r\nHost: x\r\n\n", 400, "LF without CR"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", 400, "control character"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nX: a\x1f\r\n\r\n", 400, "control character"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nX: a\x7f\r\n\r\n", 400, "control character"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", 400, "folded"},
        {"GET /now HTTP/1.1\r\nHost: x\r\n: a\r\n\r\n", 400, "name is malformed"},
        {"GET /now HTTP/1.1\r\n\r\n", 400, "Host is missing"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n", 400, "duplicate Host"},
        {"GET /now HTTP/1.1\r\nHost: x y\r\n\r\n", 400, "Host is malformed"},
        {"GET /now HTTP/1.1\r\nHost: a@b\r\n\r\n", 400, "Host is malformed"},
        {"GET /now HTTP/2.0\r\nHost: x\r\n\r\n", 505, "1.1 or 1.0"},
        {"GET /now HTTP/0.9\r\n\r\n", 505, "1.1 or 1.0"},
        {"GET now HTTP/1.1\r\nHost: x\r\n\r\n", 400, "path"},
        {"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400, "path"},
        {"GET /a%00b HTTP/1.1\r\nHost: x\r\n\r\n", 400, "path"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n", 400, "malformed"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nName : value\r\n\r\n", 400, "name is malformed"},
        {"GET /now HTTP/1.1\r\nHost: x\r\nExpect: a miracle\r\nContent-Length: 1\r\n\r\n", 417,
         "100-continue"},
        {POST "Content-Length: x\r\n\r\n", 400, "Content-Length is malformed"},
        {POST "Content-Length: +3\r\n\r\nabc", 400, "Content-Length is malformed"},
        {POST "Content-Length: 3, 3\r\n\r\nabc", 400, "Content-Length is malformed"},
        {POST "Content-Length:\r\n\r\n", 400, "Content-Length is malformed"},
        {POST "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", 400, "duplicate Content-Length"},
        {POST "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc", 400, "duplicate Content-Length"},
        {POST "Content-Length: 3\r\n" CHUNKED "3\r\nabc\r\n0\r\n\r\n", 400, "exclude each other"},
        {POST "Transfer-Encoding: gzip, chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 400, "only"},
        {"POST /echo HTTP/1.0\r\n" CHUNKED "0\r\n\r\n", 400, "only"},
        {POST CHUNKED "0x5\r\nhello\r\n0\r\n\r\n", 400, "chunk's size"},
        {POST CHUNKED "+5\r\nhello\r\n0\r\n\r\n", 400, "chunk's size"},
        {POST CHUNKED "-1\r\nhello\r\n0\r\n\r\n", 400, "chunk's size"},
        {POST CHUNKED " 5\r\nhello\r\n0\r\n\r\n", 400, "chunk's size"},
        {POST CHUNKED "5 \r\nhello\r\n0\r\n\r\n", 400, "chunk's size"},
        {POST CHUNKED "\r\n\r\n", 400, "chunk's size"},
        {POST CHUNKED "5\nhello\r\n0\r\n\r\n", 400, "LF without CR"},
        {POST CHUNKED "5;\x01\r\nhello\r\n0\r\n\r\n", 400, "extension"},
        {POST CHUNKED "5\r\nhello!\r\n0\r\n\r\n", 400, "longer than its size"},
        {POST CHUNKED "5\r\nhello\r\n0\r\nX : y\r\n\r\n", 400, "name is malformed"},
        {POST CHUNKED "FFFFFFFFFFFFFFFFF\r\n", 413, "more than"},
        {POST CHUNKED "10000000000000005\r\nhello\r\n0\r\n\r\n", 413, "more than"},
        {POST "Content-Length: 99999999999999999999999\r\n\r\n", 413, "more than"},
        {"TRACE /now HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 400, "with this method"},
        {"HEAD /now HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 400, "with this method"},
    };
    struct rig *rig = *state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        refused(rig, cases[i].text, cases[i].code, cases[i].why);
    static const char nul[] = "GET /now HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n";
    refused_bytes(rig, nul, sizeof(nul) - 1, 400, "control character");
}

TEST_CASE(test_too_large)
{
    struct rig *rig = *state;
    char *text = calloc(1, 2 * HEADER_MAX);
    memcpy(text, "GET /", 5);
    memset(text + 5, 'a', HEADER_MAX + 100);
    refused(rig, text, 414, "more than 4096 bytes");
    snprintf(text, 2 * HEADER_MAX, "GET /now HTTP/1.1\r\nHost: x\r\nX: ");
    memset(text + strlen(text), 'a', HEADER_MAX + 100);
    refused(rig, text, 431, "more than 4096 bytes");
    snprintf(text, 2 * HEADER_MAX, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
             BODY_MAX + 1);
    refused(rig, text, 413, "more than 1048576 bytes");
    snprintf(text, 2 * HEADER_MAX,
             "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n",
             BODY_MAX + 1);
    refused(rig, text, 413, "more than 1048576 bytes");
    snprintf(text, 2 * HEADER_MAX,
             "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n",
             BODY_MAX + 1);
    refused(rig, text, 413, "more than 1048576 bytes");
    free(text);
    /* one that sends on all the same receives it too, and is not reset amid its sending */
    int fd = client(rig);
    char head[128];
    snprintf(head, sizeof(head), "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
             8 * BODY_MAX);
    say(fd, head);
    char *large = calloc(1, BODY_MAX);
    for (int i = 0; i < 8; i++)
        say_bytes(fd, large, BODY_MAX);
    struct answer answer = receive(fd);
    assert_int_equal(answer.code, 413);
    answer_free(&answer);
    free(large);
    close(fd);
}

/* Requests with bytes changed, left out, put in, sent in pieces and broken off: the server goes on
 * after each. */
TEST_CASE(test_noise)
{
    static const char *const good[] = {
        "GET /now HTTP/1.1\r\nHost: x\r\nX-Name: y\r\n\r\nGET /now HTTP/1.0\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 12\r\nExpect: "
        "100-continue\r\n\r\nhello, world",
        "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX: "
        "y\r\n\r\n",
        "GET /until-gone HTTP/1.1\r\nHost: x\r\n\r\nHEAD /%2e?a=b#c HTTP/1.1\r\nHost: "
        "x\r\nConnection: close\r\n\r\n",
    };
    struct rig *rig = *state;
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    for (int round = 0; round < 400; round++) {
        char text[512];
        const char *from = good[random_draw(&seed) % ARRAY_COUNT(good)];
        size_t bytes = strlen(from);
        memcpy(text, from, bytes);
        for (uint64_t changes = random_draw(&seed) % 4; changes > 0; changes--) {
            size_t at = random_draw(&seed) % bytes;
            uint64_t how = random_draw(&seed) % 3;
            if (how == 0) {
                text[at] = (char)random_draw(&seed);
            } else if (how == 1 && bytes > 1) {
                memmove(text + at, text + at + 1, --bytes - at);
            } else {
                memmove(text + at + 1, text + at, bytes++ - at);
                text[at] = "\r\n :/0"[random_draw(&seed) % 6];
            }
        }
        int fd = client(rig);
        size_t cut = random_draw(&seed) % bytes;
        say_bytes(fd, text, cut);
        if (random_draw(&seed) % 2 == 0)
            (void)wait_readable(fd, 1);
        (void)send(fd, text + cut, bytes - cut, MSG_NOSIGNAL);
        if (random_draw(&seed) % 4 == 0)
            shutdown(fd, SHUT_WR);
        if (random_draw(&seed) % 2 == 0)
            (void)wait_readable(fd, 1);
        close(fd);
    }
    assert_works(rig);
    wait_connections(rig, 0);
}

/* ---- time ---- */

TEST_CASE_WITH(test_slow, setup_hasty, teardown)
{
    struct rig *rig = *state;
    int silent = client(rig);
    int dripping = client_saying(rig, "GET /now HTTP/1.1\r\nHost: x\r\nX: ");
    int half =
        client_saying(rig, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
    struct answer answer = {0};
    while (!readable(dripping)) { /* however often it sends a byte */
        wait_moment();
        (void)send(dripping, "a", 1, MSG_NOSIGNAL);
    }
    answer = receive(dripping);
    assert_int_equal(answer.code, 408);
    assert_non_null(strstr(answer.body, "too long to arrive"));
    answer_free(&answer);
    answer = receive(half);
    assert_int_equal(answer.code, 408);
    answer_free(&answer);
    assert_closed(half);
    assert_closed(silent); /* without a word */
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_TIMED_OUT), 2);
    close(dripping);
}

TEST_CASE_WITH(test_client_that_does_not_read, setup_hasty, teardown)
{
    struct rig *rig = *state;
    int fd =
        client_saying(rig, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n"); /* far more than is buffered */
    wait_released(rig, 1); /* the connection has been closed, and what was lent given back */
    close(fd);
    assert_works(rig);
}

/* ---- clients that go ---- */

TEST_CASE(test_gone)
{
    struct rig *rig = *state;
    int fd = client(rig);
    say(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /now HTTP/1.1\r\nHost: x\r\n\r\n"); /* what
                                                                        is ahead does not hide it */
    wait_open(rig);
    close(fd);
    wait_gone(rig, 1);
    http_thread_post(rig->http, answer_open, rig);
    wait_released(rig, 1);
    assert_works(rig);
    /* one that answers when it is notified */
    fd = client(rig);
    say(fd, "GET /until-gone HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_open(rig);
    close(fd);
    wait_gone(rig, 2);
    wait_released(rig, 2);
    assert_works(rig);
}

/* Nearly all bytes sent ahead of an answer stay with the sender. */
TEST_CASE(test_flood_ahead)
{
    enum { FLOOD_BYTES = 128 << 20, PIECE_BYTES = 1 << 16 };
    struct rig *rig = *state;
    int fd = client(rig);
    say(fd, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_open(rig);
    char *piece = calloc(1, PIECE_BYTES);
    size_t taken = 0;
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    while (taken < FLOOD_BYTES && poll(&look, 1, 200) > 0) {
        ssize_t sent = send(fd, piece, PIECE_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
        taken += sent > 0 ? (size_t)sent : 0;
    }
    free(piece);
    assert_in_range(taken, 1, FLOOD_BYTES / 2); /* the kernel's buffers, and 64 KiB */
    http_thread_post(rig->http, answer_open, rig);
    struct answer answer = receive(fd);
    assert_string_equal(answer.body, "later");
    answer_free(&answer);
    close(fd);
}

/* An answer's end must not wait for the acknowledgement of its beginning. */
TEST_CASE(test_no_delay)
{
    struct rig *rig = *state;
    int fd = client(rig);
    struct answer answer = ask(fd, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    answer_free(&answer);
    struct sockaddr_in own;
    socklen_t bytes = sizeof(own);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &bytes), 0);
    int found = 0;
    for (int other = 3; other < 64; other++) { /* the server's end is in this process */
        struct sockaddr_in6 peer;
        bytes = sizeof(peer);
        if (getpeername(other, (struct sockaddr *)&peer, &bytes) != 0 ||
            peer.sin6_port != own.sin_port)
            continue;
        int on = 0;
        bytes = sizeof(on);
        assert_int_equal(getsockopt(other, IPPROTO_TCP, TCP_NODELAY, &on, &bytes), 0);
        assert_int_not_equal(on, 0);
        found++;
    }
    assert_int_equal(found, 1);
    close(fd);
}

TEST_CASE(test_reset_while_sending)
{
    struct rig *rig = *state;
    for (int i = 0; i < 20; i++) {
        int fd = client(rig);
        say(fd, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
        char byte;
        assert_int_equal(recv(fd, &byte, 1, 0), 1);
        struct linger at_once = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
        close(fd);
    }
    wait_released(rig, 20);
    assert_works(rig);
}

TEST_CASE(test_destroy_with_open)
{
    struct rig *rig = *state;
    int waiting = client(rig);
    say(waiting, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_open(rig);
    int gone = client(rig);
    say(gone, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_opened(rig, 2);
    close(gone);
    wait_gone(rig, 1);
    int sending = client(rig);
    say(sending, "GET /huge HTTP/1.1\r\nHost: x\r\n\r\n");
    char byte;
    assert_int_equal(recv(sending, &byte, 1, 0), 1);
    int half = client(rig);
    say(half, "GET /n");
    http_thread_destroy(rig->http);
    rig->http = NULL;
    assert_int_equal(released(rig), 1);
    assert_closed(waiting);
    close(sending);
    close(half);
}

static void *
destroy(void *context)
{
    struct rig *rig = context;
    http_thread_destroy(rig->http);
    return NULL;
}

TEST_CASE(test_destroy_while_sending)
{
    struct rig *rig = *state;
    int fd = client_socket(rig);
    int small = 1 << 16; /* so that the kernel cannot take it all, and the grace time is ample */
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    connect_client(rig, fd);
    say(fd, "GET /large HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer head = receive_head(fd); /* it is on its way */
    answer_free(&head);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, destroy, rig), 0);
    char *body = malloc(LARGE_BYTES);
    size_t got = 0;
    for (ssize_t more = 1; more > 0; got += (size_t)(more > 0 ? more : 0))
        more = recv(fd, body + got, LARGE_BYTES - got, 0);
    free(body);
    assert_int_equal(got, LARGE_BYTES);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rig->http = NULL;
    assert_int_equal(released(rig), 1);
    close(fd);
}

/* ---- many ---- */

TEST_CASE(test_thousand)
{
    struct rig *rig = *state;
    enum { COUNT = 1000 };
    static int fds[COUNT];
    for (int i = 0; i < COUNT; i++)
        fds[i] = client(rig);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < COUNT; i++)
            say(fds[i], "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
        for (int i = 0; i < COUNT; i++) {
            struct answer answer = receive(fds[i]);
            assert_string_equal(answer.body, "now");
            answer_free(&answer);
        }
    }
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_EVICTED), 0);
    /* one more takes the place of the one that has been idle longest */
    assert_works(rig);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_EVICTED), 1);
    assert_closed(fds[0]);
    for (int i = 1; i < COUNT; i++)
        close(fds[i]);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_REFUSED), 0);
}

/* None that has a request is closed for a new one. */
TEST_CASE(test_all_busy)
{
    struct rig *rig = *state;
    static int fds[CONNECTIONS_MAX];
    for (int i = 0; i < CONNECTIONS_MAX; i++) {
        fds[i] = client(rig);
        say(fds[i], "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    wait_opened(rig, CONNECTIONS_MAX);
    int more = client(rig);
    struct answer answer = receive(more);
    assert_int_equal(answer.code, 503);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_REFUSED), 1);
    assert_int_equal(counter_get(rig->counters, NODE_HTTP_EVICTED), 0);
    assert_non_null(strstr(answer.body, "too many connections"));
    answer_free(&answer);
    assert_closed(more);
    close(fds[0]); /* until one goes */
    wait_works(rig);
    for (int i = 1; i < CONNECTIONS_MAX; i++)
        close(fds[i]);
    wait_gone(rig, CONNECTIONS_MAX);
}

TEST_CASE(test_no_descriptor_left)
{
    struct rig *rig = *state;
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int fd = client_socket(rig);
    struct rlimit none = {.rlim_cur = (rlim_t)fd + 1, .rlim_max = before.rlim_max};
    while (fcntl((int)none.rlim_cur, F_GETFD) >= 0)
        none.rlim_cur++;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    connect_client(rig, fd);
    say(fd, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n");
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (counter_get(rig->counters, NODE_HTTP_NOT_ACCEPTING) == 0 && clock_now_ns() < until_ns)
        wait_moment();
    assert_int_not_equal(counter_get(rig->counters, NODE_HTTP_NOT_ACCEPTING), 0);
    assert_false(readable(fd)); /* it waits in the kernel */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    struct answer answer = receive(fd);
    assert_string_equal(answer.body, "now");
    answer_free(&answer);
    close(fd);
}

/* ---- addresses ---- */

TEST_CASE_WITH(test_addresses, NULL, NULL)
{
    static const char *const wrong[] = {"8008",      ":8008",       "port:",   "port:65536",
                                        "port:80x",  "unix:/no/x",  "[::1:80", "port:123456",
                                        "127.0.0.1", "127.0.0.1:-1"};
    struct http_pool_options options = {.name = "test", .connections_max = 1};
    struct http_service service = {.on_request = NULL};
    struct error error = ERROR_NONE;
    struct http_thread *thread;
    assert_int_equal(http_thread_create("test:http", &thread, &error), STATUS_OK);
    struct http_pool *http = http_pool_create(http_thread_server(thread), &options);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        assert_int_not_equal(http_listen(http, wrong[i], &service, NULL, &error), STATUS_OK);
        assert_non_null(strstr(error.text, wrong[i]));
    }
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof(at);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, bytes), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &bytes), 0);
    char address[64];
    snprintf(address, sizeof(address), "port:%u", ntohs(at.sin_port));
    assert_int_equal(http_listen(http, address, &service, NULL, &error), STATUS_UNAVAILABLE);
    assert_non_null(strstr(error.text, "in use"));
    close(fd);
    assert_int_equal(http_listen(http, address, &service, NULL, &error), STATUS_OK);
    assert_int_equal(http_listen(http, "[::1]:0", &service, NULL, &error), STATUS_OK);
    struct addrinfo *found = NULL; /* not every machine knows its own name */
    bool known = getaddrinfo("localhost", "0", NULL, &found) == 0;
    assert_int_equal(http_listen(http, "localhost:0", &service, NULL, &error),
                     known ? STATUS_OK : STATUS_INVALID_ARGUMENT);
    if (known)
        freeaddrinfo(found);
    http_thread_destroy(thread); /* never started */
    http_thread_destroy(NULL);
}

TEST_MAIN(.setup = setup, .teardown = teardown)
