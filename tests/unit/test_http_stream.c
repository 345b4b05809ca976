/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and answers in pieces, over real sockets: what a handler gets of a body as it comes,
 * that a paused body stays with its sender, answers of unknown length, that a client that does not
 * read stops the writer and not the server, and what comes of each when the other side goes or
 * errs.
 *
 *   /collect   the number of pieces' bytes, at the end      /pause   pauses once
 *   /mirror    each piece as it comes                       /early   answered before its body
 *   /flood     pieces until FLOOD_BYTES, as fast as they are taken
 *   /cut       one piece, and then broken off
 *
 * ctest: timeout=120 presets=dev,tsan because its thread meets those that answer
 */
#include "test_http_rig.h"

enum { FLOOD_BYTES = 16 << 20, PIECE_BYTES = 64 << 10, SENT_MAX = 32 << 20 };
enum { LATE_BYTES = 2 << 20, MORE_THAN_LINGER = 66 };

#define PAUSE_NS (3 * NS_PER_S)

/* The handler's view of the open request. */
struct talk {
    struct rig rig; /* first: clients take it */
    struct http_pool *pool;
    _Atomic(struct http_request *) request;
    atomic_size_t got;
    atomic_size_t written;
    atomic_int waits;
    atomic_int ends;
    atomic_int gone;
    atomic_int paused;
};

static struct talk *talk; /* requests' sinks have no context but the request's */

static void
finish_with(struct http_request *request, const char *text)
{
    struct http_piece piece = {.data = text, .bytes = strlen(text)};
    http_answer(request, 200, NULL, 0, &piece, 1);
}

static bool
is_at(struct http_request *request, const char *path)
{
    return strcmp(http_request_path(request), path) == 0;
}

static void
on_piece(struct http_request *request, const void *data, size_t bytes)
{
    atomic_fetch_add(&talk->got, bytes);
    if (is_at(request, "/mirror")) {
        struct http_piece piece = {.data = data, .bytes = bytes};
        (void)http_answer_write(request, &piece);
    } else if (is_at(request, "/pause") && atomic_load(&talk->paused) == 0) {
        http_request_pause(request);
        atomic_fetch_add(&talk->paused, 1);
    }
}

static void
on_end(struct http_request *request)
{
    atomic_fetch_add(&talk->ends, 1);
    if (is_at(request, "/mirror")) {
        http_answer_end(request);
        return;
    }
    char text[32];
    snprintf(text, sizeof(text), "%zu", atomic_load(&talk->got));
    finish_with(request, is_at(request, "/now") ? "now" : text);
}

static const struct http_body_sink sink = {on_piece, on_end};

static void
flood(struct http_request *request)
{
    struct http_piece piece = {.data = talk->rig.huge, .bytes = PIECE_BYTES};
    while (atomic_load(&talk->written) < FLOOD_BYTES) {
        atomic_fetch_add(&talk->written, PIECE_BYTES);
        if (http_answer_write(request, &piece) == HTTP_WAIT) {
            atomic_fetch_add(&talk->waits, 1);
            return;
        }
    }
    http_answer_end(request);
}

static void
on_talk_head(void *context, struct http_request *request)
{
    (void)context;
    struct http_header header = {"Content-Type", "text/plain"};
    if (is_at(request, "/early")) {
        finish_with(request, "early");
        return;
    }
    http_request_stream(request, &sink);
    atomic_store(&talk->request, request);
    if (is_at(request, "/mirror"))
        http_answer_begin(request, 200, &header, 1, NULL);
}

static void
on_talk_request(void *context, struct http_request *request)
{
    (void)context;
    (void)request;
    UNREACHABLE(); /* all of them are streamed */
}

static void
on_talk_end(struct http_request *request)
{
    struct http_header header = {"Content-Type", "text/plain"};
    if (is_at(request, "/flood")) {
        http_answer_begin(request, 200, &header, 1, flood);
        flood(request);
    } else if (is_at(request, "/appended")) { /* and left open */
        http_answer_begin(request, 200, &header, 1, NULL);
        (void)http_answer_append(request, &(struct http_piece){.data = "one", .bytes = 3});
        (void)http_answer_append(request, &(struct http_piece){.data = "four", .bytes = 4});
    } else if (is_at(request, "/cut")) {
        struct http_piece piece = {.data = "cut", .bytes = 3};
        http_answer_begin(request, 200, &header, 1, NULL);
        (void)http_answer_write(request, &piece);
        http_answer_abort(request);
    } else {
        on_end(request);
    }
}

static const struct http_body_sink end_sink = {on_piece, on_talk_end};

static void
on_any_head(void *context, struct http_request *request)
{
    if (http_request_method(request) == HTTP_GET || http_request_method(request) == HTTP_HEAD)
        http_request_stream(request, &end_sink);
    else
        on_talk_head(context, request);
}

static void
on_talk_gone(void *context, struct http_request *request)
{
    (void)context;
    if (is_at(request, "/flood") || is_at(request, "/mirror") || is_at(request, "/appended"))
        http_answer_abort(request);
    else
        finish_with(request, "nobody hears this");
    atomic_fetch_add(&talk->gone, 1);
}

static int
setup_talk_with(void **state, int64_t header_ns, int64_t body_ns)
{
    talk = calloc(1, sizeof(*talk));
    talk->rig.huge = calloc(1, HUGE_BYTES);
    sem_init(&talk->rig.looks_away, 0, 0);
    sem_init(&talk->rig.said, 0, 0);
    struct error error = ERROR_NONE;
    CHECK(http_thread_create("test:http", &talk->rig.http, &error) == STATUS_OK);
    struct http_pool_options options = pool_options(&talk->rig, 60 * NS_PER_S);
    options.header_timeout_ns = header_ns;
    options.body_timeout_ns = body_ns;
    struct http_service service = {.on_request = on_talk_request,
                                   .on_head = on_any_head,
                                   .on_gone = on_talk_gone,
                                   .context = talk,
                                   .body_bytes_max = SENT_MAX,
                                   .header_bytes_max = HEADER_MAX};
    talk->rig.port = rig_listen(&talk->rig, &options, &service);
    http_thread_start(talk->rig.http);
    *state = talk;
    return 0;
}

static int
setup_talk(void **state)
{
    return setup_talk_with(state, 60 * NS_PER_S, 60 * NS_PER_S);
}

static int
setup_talk_hasty(void **state)
{
    return setup_talk_with(state, NS_PER_S, PAUSE_NS);
}

static int
teardown_talk(void **state)
{
    (void)state;
    void *rig = &talk->rig;
    http_thread_destroy(talk->rig.http);
    talk->rig.http = NULL;
    free(talk->rig.huge);
    sem_destroy(&talk->rig.looks_away);
    sem_destroy(&talk->rig.said);
    (void)rig;
    free(talk);
    return 0;
}

/* ---- clients ---- */

static void
receive_bytes(int fd, char *to, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t more = recv(fd, to + got, bytes - got, 0);
        if (more <= 0)
            fail_msg("%zu bytes of an answer instead of %zu", got, bytes);
        got += (size_t)more;
    }
}

/* The body of a chunked answer; the connection's next answer stays in the socket. */
static size_t
receive_chunks(int fd, char *body, size_t room)
{
    size_t total = 0;
    for (;;) {
        char line[32] = "";
        for (size_t i = 0; i + 1 < sizeof(line) && (i < 2 || line[i - 1] != '\n'); i++)
            assert_int_equal(recv(fd, line + i, 1, 0), 1);
        size_t bytes = strtoul(line, NULL, 16);
        CHECK(bytes <= room - total);
        char end[2];
        receive_bytes(fd, body + total, bytes);
        receive_bytes(fd, end, sizeof(end));
        assert_memory_equal(end, "\r\n", 2);
        total += bytes;
        if (bytes == 0)
            return total;
    }
}

static void
wait_moved(atomic_size_t *count, size_t wanted)
{
    int64_t until_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (atomic_load(count) < wanted && clock_now_ns() < until_ns)
        wait_moment();
    assert_true(atomic_load(count) >= wanted);
}

/* ---- bodies ---- */

TEST_CASE(test_pieces)
{
    int fd = client(&talk->rig);
    say(fd, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
    wait_moved(&talk->got, 3); /* before the rest is sent */
    struct answer answer = ask(fd, "def");
    assert_string_equal(answer.body, "6");
    answer_free(&answer);
    answer = ask(fd, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                     "2\r\nab\r\n0\r\n\r\n");
    assert_string_equal(answer.body, "8");
    answer_free(&answer);
    assert_int_equal(atomic_load(&talk->ends), 2);
    close(fd);
}

static void
resume(void *context)
{
    (void)context;
    http_request_resume(atomic_load(&talk->request));
}

TEST_CASE(test_pause)
{
    int fd = client(&talk->rig);
    char head[128];
    snprintf(head, sizeof(head), "POST /pause HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
             SENT_MAX);
    say(fd, head);
    char *piece = calloc(1, PIECE_BYTES);
    say_bytes(fd, piece, PIECE_BYTES);
    wait_count(&talk->paused, 1, "pauses");
    size_t sent = PIECE_BYTES;
    struct pollfd look = {.fd = fd, .events = POLLOUT};
    while (sent < SENT_MAX && poll(&look, 1, 200) > 0) {
        ssize_t more = send(fd, piece, PIECE_BYTES, MSG_NOSIGNAL | MSG_DONTWAIT);
        sent += more > 0 ? (size_t)more : 0;
    }
    assert_in_range(sent, 1, SENT_MAX / 2); /* the kernel's buffers, and ours */
    size_t before = atomic_load(&talk->got);
    assert_true(before <= HTTP_HIGH_WATER_BYTES);
    assert_int_equal(atomic_load(&talk->paused), 1);
    assert_int_equal(atomic_load(&talk->ends), 0);
    http_thread_post(talk->rig.http, resume, NULL);
    for (; sent < SENT_MAX; sent += PIECE_BYTES < SENT_MAX - sent ? PIECE_BYTES : SENT_MAX - sent)
        say_bytes(fd, piece, PIECE_BYTES < SENT_MAX - sent ? PIECE_BYTES : SENT_MAX - sent);
    struct answer answer = receive(fd);
    assert_int_equal(strtoul(answer.body, NULL, 10), SENT_MAX);
    answer_free(&answer);
    free(piece);
    close(fd);
}

/* The time of a pause is the handler's: other clients' run out meanwhile. */
TEST_CASE(test_pause_is_no_silence)
{
    int fd = client(&talk->rig);
    say(fd, "POST /pause HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
    wait_count(&talk->paused, 1, "pauses");
    int64_t until_ns = clock_now_ns() + PAUSE_NS;
    while (clock_now_ns() < until_ns) {
        int late = client(&talk->rig);
        struct answer answer = ask(late, "GET");
        assert_int_equal(answer.code, 408);
        answer_free(&answer);
        close(late);
    }
    http_thread_post(talk->rig.http, resume, NULL);
    assert_false(wait_readable(fd, 20)); /* longer than a tick of the loop's clock */
    struct answer answer = ask(fd, "def");
    assert_int_equal(answer.code, 200);
    assert_string_equal(answer.body, "6");
    answer_free(&answer);
    close(fd);
}

TEST_CASE(test_early_answer)
{
    int fd = client(&talk->rig);
    struct answer answer =
        ask(fd, "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
    assert_string_equal(answer.body, "early");
    assert_non_null(strstr(answer.head, "Connection: close"));
    answer_free(&answer);
    say(fd, "def"); /* it lingers */
    assert_closed(fd);
    char head[128];
    static const char rest[LATE_BYTES];
    snprintf(head, sizeof(head), "POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n",
             LATE_BYTES);
    for (int i = 0; i < MORE_THAN_LINGER; i++) { /* each gets its answers in order */
        fd = client(&talk->rig);
        say(fd, head);
        say_bytes(fd, rest, sizeof(rest));
        answer = receive(fd);
        assert_string_equal(answer.body, "early");
        answer_free(&answer);
        assert_closed(fd);
        wait_connections(&talk->rig, 0);
    }
}

TEST_CASE(test_bad_body)
{
    int fd = client(&talk->rig);
    struct answer answer =
        ask(fd, "POST /collect HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                "2\r\nab\r\nzz\r\n");
    assert_int_equal(answer.code, 400);
    answer_free(&answer);
    wait_count(&talk->gone, 1, "requests that nobody waits for");
    assert_closed(fd);
    fd = client(&talk->rig);
    say(fd, "POST /collect HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
    wait_moved(&talk->got, 5);
    close(fd);
    wait_count(&talk->gone, 2, "requests that nobody waits for");
    assert_int_equal(atomic_load(&talk->ends), 0);
}

/* ---- answers ---- */

TEST_CASE(test_mirror)
{
    int fd = client(&talk->rig);
    char body[16];
    for (int round = 0; round < 2; round++) {
        say(fd, "POST /mirror HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\nabc");
        struct answer answer = receive_head(fd); /* before the body is whole */
        assert_non_null(strstr(answer.head, "Transfer-Encoding: chunked"));
        assert_null(strstr(answer.head, "Content-Length"));
        answer_free(&answer);
        say(fd, "def");
        assert_int_equal(receive_chunks(fd, body, sizeof(body)), 6);
        assert_memory_equal(body, "abcdef", 6);
    }
    say(fd, "POST /mirror HTTP/1.0\r\nConnection: keep-alive\r\nContent-Length: 3\r\n\r\nabc");
    struct answer answer = receive_head(fd);
    assert_null(strstr(answer.head, "chunked"));
    assert_non_null(strstr(answer.head, "Connection: close"));
    answer_free(&answer);
    assert_int_equal(recv(fd, body, sizeof(body), MSG_WAITALL), 3);
    assert_memory_equal(body, "abc", 3);
    assert_closed(fd);
}

TEST_CASE(test_flood)
{
    int fd = client_socket(&talk->rig);
    int small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
    connect_client(&talk->rig, fd);
    say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer answer = receive_head(fd);
    answer_free(&answer);
    wait_count(&talk->waits, 1, "pauses of the writer");
    assert_true(atomic_load(&talk->written) < FLOOD_BYTES);
    assert_works(&talk->rig);
    char *body = malloc(FLOOD_BYTES);
    assert_int_equal(receive_chunks(fd, body, FLOOD_BYTES), FLOOD_BYTES);
    free(body);
    answer = ask(fd, "GET /now HTTP/1.1\r\nHost: x\r\n\r\n"); /* the connection is whole */
    assert_int_equal(answer.code, 200);
    answer_free(&answer);
    close(fd);
}

TEST_CASE(test_flood_gone)
{
    int fd = client(&talk->rig);
    say(fd, "GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
    wait_count(&talk->waits, 1, "pauses of the writer");
    close(fd);
    wait_connections(&talk->rig, 0);
    fd = client(&talk->rig);
    say(fd, "HEAD /flood HTTP/1.1\r\nHost: x\r\n\r\nGET /cut HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer answer = receive_head(fd);
    answer_free(&answer);
    answer = receive_head(fd);
    assert_non_null(strstr(answer.head, "chunked"));
    answer_free(&answer);
    char rest[64];
    ssize_t got = recv(fd, rest, sizeof(rest), 0);
    assert_true(got < 0 || memmem(rest, (size_t)got, "0\r\n\r\n", 5) == NULL);
    close(fd);
}

static void
test_appended_pieces_leave_together(void **state)
{
    static const char expected[] = "3\r\none\r\n4\r\nfour\r\n";
    char got[64];
    (void)state;
    int fd = client(&talk->rig);
    say(fd, "GET /appended HTTP/1.1\r\nHost: x\r\n\r\n");
    struct answer answer = receive_head(fd);
    answer_free(&answer);
    assert_int_equal(recv(fd, got, sizeof(got), 0), sizeof(expected) - 1);
    assert_memory_equal(got, expected, sizeof(expected) - 1);
    close(fd);
    wait_connections(&talk->rig, 0);
}

int
main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pieces, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_pause, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_pause_is_no_silence, setup_talk_hasty, teardown_talk),
        cmocka_unit_test_setup_teardown(test_early_answer, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_bad_body, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_mirror, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_flood, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_flood_gone, setup_talk, teardown_talk),
        cmocka_unit_test_setup_teardown(test_appended_pieces_leave_together, setup_talk,
                                        teardown_talk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
