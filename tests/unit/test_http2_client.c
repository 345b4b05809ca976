/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of HTTP/2 before servers that say frames byte by byte: how calls end, what each end
 * means for repeating one, which calls share a connection, and what the server is told.
 *
 * ctest: timeout=120
 */
#include <event2/event.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "http/http2.h"
#include "http/http2_client.h"
#include "test_http2_frames.h"

#include "../ports.h"

enum { WAIT_S = 60, HEADER_MAX = 1024, WINDOW_BYTES = 256 << 10, LINKS_MAX = 4 };

struct rig {
    struct event_base *base;
    struct event *alarm;
    struct http_client *client;
    struct http_target *target;
    int listener;
    int links[LINKS_MAX];
    struct event *wakes[LINKS_MAX]; /* when a server has input */
    bool has_preface[LINKS_MAX];
    int link_count;
};

struct call_user {
    struct http2_call *call;
    bool pauses;
    size_t left; /* to be sent as the server takes it; then the request is whole */
    int heads, ends;
    size_t bytes;
    int code;
    char status[8]; /* grpc-status, of either block */
    enum http_call_end end;
};

/* ---- the rig ---- */

static void
on_nothing(int fd, short what, void *context)
{
    (void)fd, (void)what, (void)context;
}

static void
on_alarm(int fd, short what, void *context)
{
    (void)fd, (void)what, (void)context;
    fail_msg("nothing happens any more");
}

static int
setup(void **state)
{
    static struct rig rig;
    const struct http_client_options options = {
        .idle_max = 4, .keep_ns = 3600 * NS_PER_S, .header_bytes_max = HEADER_MAX};
    const struct timeval wait = {.tv_sec = WAIT_S};
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                  .sin_port = htons(free_port())};
    char text[32];
    struct error error = ERROR_NONE;
    rig = (struct rig){.base = event_base_new()};
    rig.alarm = event_new(rig.base, -1, 0, on_alarm, NULL);
    CHECK(event_add(rig.alarm, &wait) == 0);
    rig.client = http_client_create(rig.base, &options);
    rig.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CHECK(bind(rig.listener, (struct sockaddr *)&address, sizeof(address)) == 0);
    CHECK(listen(rig.listener, LINKS_MAX) == 0);
    snprintf(text, sizeof(text), "127.0.0.1:%u", ntohs(address.sin_port));
    CHECK(http_target_create(rig.client, text, NULL, &rig.target, &error) == STATUS_OK);
    *state = &rig;
    return 0;
}

static int
teardown(void **state)
{
    struct rig *rig = *state;
    http_target_destroy(rig->target); /* CHECKs that no call is open */
    http_client_destroy(rig->client);
    for (int i = 0; i < rig->link_count; i++) {
        event_free(rig->wakes[i]);
        close(rig->links[i]);
    }
    close(rig->listener);
    event_free(rig->alarm);
    event_base_free(rig->base);
    return 0;
}

static void
turn(struct rig *rig)
{
    assert_true(event_base_loop(rig->base, EVLOOP_ONCE) >= 0);
}

/* ---- users ---- */

static void
on_head(void *context, struct http2_call *call)
{
    struct call_user *user = context;
    user->heads++;
    user->code = http2_call_code(call);
}

static void
on_piece(void *context, struct http2_call *call, const void *data, size_t bytes)
{
    struct call_user *user = context;
    (void)data;
    assert_int_equal(user->heads, 1);
    user->bytes += bytes;
    if (user->pauses)
        http2_call_pause(call);
}

static void
send_left(struct call_user *user)
{
    static const char part[64 << 10];
    enum http_flow flow = HTTP_GO_ON;
    while (flow == HTTP_GO_ON && user->left > 0) {
        size_t bytes = user->left < sizeof(part) ? user->left : sizeof(part);
        user->left -= bytes;
        flow = http2_call_send(user->call, part, bytes);
    }
    if (user->left == 0)
        http2_call_send_end(user->call);
}

static void
on_writable(void *context, struct http2_call *call)
{
    struct call_user *user = context;
    assert_ptr_equal(user->call, call);
    send_left(user);
}

static void
on_end(void *context, struct http2_call *call, enum http_call_end end)
{
    struct call_user *user = context;
    const char *status = http2_call_find(call, HTTP2_TRAILERS, "grpc-status");
    if (status == NULL)
        status = http2_call_find(call, HTTP2_HEAD, "grpc-status");
    snprintf(user->status, sizeof(user->status), "%s", status != NULL ? status : "");
    user->ends++;
    user->end = end;
    user->call = NULL;
}

static void
start(struct rig *rig, struct call_user *user)
{
    static const struct http2_call_handler handler = {on_head, on_piece, on_writable, on_end};
    const struct http2_call_request request = {.path = "/x"};
    user->call = http2_call_start(rig->target, &request, &handler, user);
    (void)http2_call_send(user->call, "a message", 9);
}

static void
wait_end(struct rig *rig, const struct call_user *user, enum http_call_end end)
{
    while (user->ends == 0)
        turn(rig);
    assert_int_equal(user->ends, 1);
    assert_int_equal(user->end, end);
}

/* ---- servers ---- */

/* The client has connected once more; the server's end is links[link_count - 1]. */
static void
take_link(struct rig *rig)
{
    assert_true(rig->link_count < LINKS_MAX);
    struct pollfd look = {.fd = rig->listener, .events = POLLIN};
    assert_int_equal(poll(&look, 1, WAIT_S * 1000), 1);
    int fd = accept(rig->listener, NULL, NULL);
    assert_true(fd >= 0);
    rig->wakes[rig->link_count] = event_new(rig->base, fd, EV_READ, on_nothing, NULL);
    rig->links[rig->link_count++] = fd;
}

static bool
has_more_links(const struct rig *rig)
{
    struct pollfd look = {.fd = rig->listener, .events = POLLIN};
    return poll(&look, 1, 0) > 0;
}

/* Reads so many of the client's bytes while the client runs. False: it has closed. */
static bool
receive(struct rig *rig, int link, void *data, size_t bytes)
{
    for (size_t got = 0; got < bytes;) {
        ssize_t more = recv(rig->links[link], (char *)data + got, bytes - got, MSG_DONTWAIT);
        if (more == 0 || (more < 0 && errno == ECONNRESET))
            return false;
        got += more > 0 ? (size_t)more : 0;
        if (more > 0)
            continue;
        CHECK(event_add(rig->wakes[link], NULL) == 0);
        turn(rig);
    }
    return true;
}

static void
receive_preface(struct rig *rig, int link)
{
    char text[sizeof(HTTP2_PREFACE)] = "";
    if (rig->has_preface[link])
        return;
    rig->has_preface[link] = true;
    assert_true(receive(rig, link, text, sizeof(text) - 1));
    assert_string_equal(text, HTTP2_PREFACE);
}

/* Skips frames until one of that type and stream; returns the size of its payload. */
static size_t
receive_any(struct rig *rig, int link, uint8_t head[FRAME_HEAD_BYTES], uint8_t payload[FRAME_MAX],
            uint8_t type, int32_t id)
{
    size_t bytes;
    int32_t reported;
    receive_preface(rig, link);
    do {
        assert_true(receive(rig, link, head, FRAME_HEAD_BYTES));
        bytes = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
        assert_true(bytes <= FRAME_MAX && receive(rig, link, payload, bytes));
        reported = head[5] << 24 | head[6] << 16 | head[7] << 8 | head[8];
    } while (head[3] != type || reported != id);
    return bytes;
}

/* Likewise; returns the number at `at` in it. */
static uint32_t
receive_frame(struct rig *rig, int link, uint8_t type, int32_t id, size_t at)
{
    uint8_t head[FRAME_HEAD_BYTES];
    uint8_t payload[FRAME_MAX] = {0};
    (void)receive_any(rig, link, head, payload, type, id);
    const uint8_t *number = payload + at;
    return (uint32_t)(number[0] << 24 | number[1] << 16 | number[2] << 8 | number[3]);
}

static uint32_t
receive_reset(struct rig *rig, int link, int32_t id)
{
    return receive_frame(rig, link, NGHTTP2_RST_STREAM, id, 0);
}

/* Sends and empties `out`. */
static void
say(const struct rig *rig, int link, struct bytes *out)
{
    assert_int_equal(send(rig->links[link], out->data, out->used, MSG_NOSIGNAL), out->used);
    bytes_fini(out);
}

static void
put_number(struct bytes *out, uint8_t type, int32_t id, uint32_t first, uint32_t second)
{
    char text[8] = {(char)(first >> 24),  (char)(first >> 16),  (char)(first >> 8),  (char)first,
                    (char)(second >> 24), (char)(second >> 16), (char)(second >> 8), (char)second};
    const struct bytes payload = {.data = text, .used = type == NGHTTP2_GOAWAY ? 8 : 4};
    frame_put(out, type, 0, id, &payload);
}

/* Its own, and that it has read the client's. */
static void
put_settings(struct bytes *out)
{
    frame_put(out, NGHTTP2_SETTINGS, 0, 0, NULL);
    frame_put(out, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, NULL);
}

static void
put_setting(struct bytes *out, uint8_t name, uint32_t value)
{
    char text[6] = {
        0, (char)name, (char)(value >> 24), (char)(value >> 16), (char)(value >> 8), (char)value};
    frame_put(out, NGHTTP2_SETTINGS, 0, 0, &(struct bytes){.data = text, .used = sizeof(text)});
}

static void
put_data(struct bytes *out, uint8_t flags, int32_t id, size_t bytes)
{
    static char zeros[FRAME_MAX];
    frame_put(out, NGHTTP2_DATA, flags, id, &(struct bytes){.data = zeros, .used = bytes});
}

static const char *const ok[] = {":status", "200", NULL};
static const char *const status[] = {"grpc-status", "3", NULL};
static const char *const only[] = {":status", "200", "grpc-status", "4", NULL};

static void
put_answer(struct bytes *out, int32_t id)
{
    head_put(out, 0, id, ok);
    put_data(out, 0, id, 5);
    head_put(out, END_STREAM, id, status);
}

/* Once the request has come. */
static void
answer(struct rig *rig, int link, int32_t id)
{
    struct bytes out = {0};
    (void)receive_frame(rig, link, NGHTTP2_DATA, id, 0);
    put_answer(&out, id);
    say(rig, link, &out);
}

/* A call whose connection has served one before. */
static void
serve_one(struct rig *rig)
{
    struct call_user first = {0};
    struct bytes out = {0};
    start(rig, &first);
    take_link(rig);
    put_settings(&out);
    put_answer(&out, 1);
    say(rig, 0, &out);
    wait_end(rig, &first, HTTP_CALL_DONE);
}

/* ---- what one server says to one call ---- */

static void
put_large(struct bytes *out, uint8_t flags, const char *const *first)
{
    char value[101];
    struct bytes block = {0};
    memset(value, 'v', 100);
    value[100] = '\0';
    fields_put(&block, first);
    for (int i = 0; i < HEADER_MAX / 100; i++)
        field_put(&block, "a", value);
    frame_put(out, NGHTTP2_HEADERS, END_HEADERS | flags, 1, &block);
    bytes_fini(&block);
}

static void
put_trailers_only(struct bytes *out)
{
    head_put(out, END_STREAM, 1, only);
}

static void
put_interim(struct bytes *out)
{
    static const char *const interim[] = {":status", "103", "grpc-status", "9", NULL};
    head_put(out, 0, 1, interim);
    head_put(out, 0, 1, interim);
    put_trailers_only(out);
}

static void
put_end_in_interim(struct bytes *out)
{
    static const char *const interim[] = {":status", "100", NULL};
    head_put(out, END_STREAM, 1, interim);
}

static void
put_first(struct bytes *out)
{
    put_answer(out, 1);
}

static void
put_two_heads(struct bytes *out)
{
    head_put(out, 0, 1, ok);
    put_data(out, 0, 1, 5);
    head_put(out, 0, 1, ok);
}

static void
put_large_head(struct bytes *out)
{
    put_large(out, 0, ok);
}

static void
put_large_trailers(struct bytes *out)
{
    head_put(out, 0, 1, ok);
    put_large(out, END_STREAM, status);
}

static void
put_data_first(struct bytes *out)
{
    put_data(out, 0, 1, 5);
}

static void
put_refusal(struct bytes *out)
{
    put_number(out, NGHTTP2_RST_STREAM, 1, NGHTTP2_REFUSED_STREAM, 0);
}

static void
put_refusal_within(struct bytes *out)
{
    head_put(out, 0, 1, ok);
    put_refusal(out);
}

static void
put_reset_within(struct bytes *out)
{
    head_put(out, 0, 1, ok);
    put_data(out, 0, 1, 5);
    put_number(out, NGHTTP2_RST_STREAM, 1, NGHTTP2_INTERNAL_ERROR, 0);
}

static void
put_calm_reset(struct bytes *out)
{
    head_put(out, 0, 1, ok);
    put_data(out, 0, 1, 5);
    put_number(out, NGHTTP2_RST_STREAM, 1, NGHTTP2_NO_ERROR, 0);
}

static void
put_room_overflow(struct bytes *out)
{
    put_number(out, NGHTTP2_WINDOW_UPDATE, 1, INT32_MAX, 0);
}

static void
put_connection_overflow(struct bytes *out)
{
    put_number(out, NGHTTP2_WINDOW_UPDATE, 0, INT32_MAX, 0);
}

static void
put_long_body(struct bytes *out)
{
    head_put(out, 0, 1, ok);
    put_data(out, 0, 1, FRAME_MAX);
    put_data(out, END_STREAM, 1, 1);
}

static void
put_push(struct bytes *out)
{
    static const char *const pushed[] = {":method", "GET",        ":scheme", "http", ":path",
                                         "/pushed", ":authority", "x",       NULL};
    struct bytes promise = {0};
    bytes_put(&promise, "\0\0\0\2", 4);
    fields_put(&promise, pushed);
    frame_put(out, NGHTTP2_PUSH_PROMISE, END_HEADERS, 1, &promise);
    bytes_fini(&promise);
}

static void
put_unknown_stream(struct bytes *out)
{
    put_data(out, 0, 3, 5);
}

static const struct said {
    const char *what;
    void (*put)(struct bytes *out);
    enum http_call_end end;
    int heads;
    size_t bytes;
    const char *status;
    bool keeps; /* the connection serves the next call, too */
} said[] = {
    {"an answer", put_first, HTTP_CALL_DONE, 1, 5, "3", true},
    {"trailers only", put_trailers_only, HTTP_CALL_DONE, 1, 0, "4", true},
    {"heads before the head", put_interim, HTTP_CALL_DONE, 1, 0, "4", true},
    {"a long body", put_long_body, HTTP_CALL_DONE, 1, FRAME_MAX + 1, "", true},
    {"an end in an interim head", put_end_in_interim, HTTP_CALL_BROKEN, 0, 0, "", true},
    {"two heads", put_two_heads, HTTP_CALL_BROKEN, 1, 5, "", true},
    {"a large head", put_large_head, HTTP_CALL_MALFORMED, 0, 0, "", true},
    {"large trailers", put_large_trailers, HTTP_CALL_MALFORMED, 1, 0, "3", true},
    {"data before a head", put_data_first, HTTP_CALL_BROKEN, 0, 0, "", false},
    {"REFUSED_STREAM", put_refusal, HTTP_CALL_DECLINED, 0, 0, "", true},
    {"REFUSED_STREAM within", put_refusal_within, HTTP_CALL_BROKEN, 1, 0, "", true},
    {"a reset within", put_reset_within, HTTP_CALL_BROKEN, 1, 5, "", true},
    {"a reset without error", put_calm_reset, HTTP_CALL_BROKEN, 1, 5, "", true},
    {"a stream's window overflows", put_room_overflow, HTTP_CALL_BROKEN, 0, 0, "", true},
    {"the connection's does", put_connection_overflow, HTTP_CALL_BROKEN, 0, 0, "", false},
    {"a push", put_push, HTTP_CALL_BROKEN, 0, 0, "", false},
    {"a stream that nobody opened", put_unknown_stream, HTTP_CALL_BROKEN, 0, 0, "", false},
};

TEST_CASE(test_one_call)
{
    for (size_t i = 0; i < ARRAY_COUNT(said); i++) {
        struct rig *rig;
        struct call_user user = {0};
        struct call_user next = {0};
        struct bytes out = {0};
        assert_int_equal(setup((void **)&rig), 0);
        start(rig, &user);
        take_link(rig);
        put_settings(&out);
        said[i].put(&out);
        say(rig, 0, &out);
        while (user.ends == 0)
            turn(rig);
        if (user.end != said[i].end || user.heads != said[i].heads || user.bytes != said[i].bytes ||
            strcmp(user.status, said[i].status) != 0)
            fail_msg("%s: end %d, %d heads, %zu bytes, status %s", said[i].what, user.end,
                     user.heads, user.bytes, user.status);
        start(rig, &next);
        if (has_more_links(rig) == said[i].keeps)
            fail_msg("%s: is the connection kept?", said[i].what);
        if (!said[i].keeps) {
            take_link(rig);
            put_settings(&out);
            say(rig, 1, &out);
        }
        answer(rig, rig->link_count - 1, said[i].keeps ? 3 : 1);
        wait_end(rig, &next, HTTP_CALL_DONE);
        assert_int_equal(user.ends, 1);
        (void)teardown((void **)&rig);
    }
}

/* ---- which calls share a connection ---- */

/* The calls above GOAWAY's number were not looked at; the others end as they would. */
TEST_CASE_WITH(test_goaway, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user users[3] = {{0}};
    struct call_user next = {0};
    struct bytes out = {0};
    for (int i = 0; i < 3; i++)
        start(rig, &users[i]);
    take_link(rig);
    put_settings(&out);
    put_number(&out, NGHTTP2_GOAWAY, 0, 3, NGHTTP2_NO_ERROR);
    say(rig, 0, &out);
    wait_end(rig, &users[2], HTTP_CALL_DECLINED);
    assert_int_equal(users[0].ends + users[1].ends, 0);
    start(rig, &next);
    take_link(rig);
    put_settings(&out);
    say(rig, 1, &out);
    answer(rig, 1, 1);
    wait_end(rig, &next, HTTP_CALL_DONE);
    answer(rig, 0, 1);
    wait_end(rig, &users[0], HTTP_CALL_DONE);
    shutdown(rig->links[0], SHUT_WR);
    wait_end(rig, &users[1], HTTP_CALL_BROKEN);
}

/* Says nothing about the server: the connection was just about to go. */
TEST_CASE_WITH(test_goaway_on_a_kept_connection, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user user = {0};
    struct bytes out = {0};
    serve_one(rig);
    start(rig, &user);
    put_number(&out, NGHTTP2_GOAWAY, 0, 1, NGHTTP2_NO_ERROR);
    say(rig, 0, &out);
    wait_end(rig, &user, HTTP_CALL_STALE);
}

TEST_CASE_WITH(test_kept_connection_that_closes, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user user = {0};
    serve_one(rig);
    start(rig, &user);
    shutdown(rig->links[0], SHUT_WR);
    wait_end(rig, &user, HTTP_CALL_STALE);
}

/* The server has looked at what came, so that neither says that the connection was about to go. */
TEST_CASE(test_resets_on_a_kept_connection)
{
    static const struct {
        uint32_t code;
        enum http_call_end end;
    } resets[] = {{NGHTTP2_REFUSED_STREAM, HTTP_CALL_DECLINED},
                  {NGHTTP2_NO_ERROR, HTTP_CALL_BROKEN},
                  {NGHTTP2_INTERNAL_ERROR, HTTP_CALL_BROKEN}};
    for (size_t i = 0; i < ARRAY_COUNT(resets); i++) {
        struct rig *rig;
        struct call_user user = {0};
        struct bytes out = {0};
        assert_int_equal(setup((void **)&rig), 0);
        serve_one(rig);
        start(rig, &user);
        (void)receive_frame(rig, 0, NGHTTP2_DATA, 3, 0);
        put_number(&out, NGHTTP2_RST_STREAM, 3, resets[i].code, 0);
        say(rig, 0, &out);
        wait_end(rig, &user, resets[i].end);
        (void)teardown((void **)&rig);
    }
}

/* Calls beyond what the server allows get a connection of their own. */
TEST_CASE_WITH(test_server_that_allows_one_stream, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user users[2] = {{0}};
    struct bytes out = {0};
    put_setting(&out, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1);
    put_answer(&out, 1);
    struct call_user first = {0};
    start(rig, &first);
    take_link(rig);
    say(rig, 0, &out);
    wait_end(rig, &first, HTTP_CALL_DONE);
    start(rig, &users[0]);
    assert_false(has_more_links(rig));
    start(rig, &users[1]);
    take_link(rig);
    put_settings(&out);
    say(rig, 1, &out);
    answer(rig, 1, 1);
    wait_end(rig, &users[1], HTTP_CALL_DONE);
    answer(rig, 0, 3);
    wait_end(rig, &users[0], HTTP_CALL_DONE);
}

/* It may allow streams later: the call waits for that on its connection. */
TEST_CASE_WITH(test_server_that_allows_no_stream, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user users[2] = {{0}};
    struct bytes out = {0};
    put_setting(&out, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 0);
    put_answer(&out, 1);
    struct call_user first = {0};
    start(rig, &first);
    take_link(rig);
    say(rig, 0, &out);
    wait_end(rig, &first, HTTP_CALL_DONE);
    start(rig, &users[0]);
    start(rig, &users[1]);
    take_link(rig);
    put_settings(&out);
    say(rig, 1, &out);
    answer(rig, 1, 1);
    wait_end(rig, &users[1], HTTP_CALL_DONE);
    assert_int_equal(users[0].ends, 0);
    put_setting(&out, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, 1);
    say(rig, 0, &out);
    answer(rig, 0, 3);
    wait_end(rig, &users[0], HTTP_CALL_DONE);
}

/* ---- what the server is told, and may not do ---- */

TEST_CASE_WITH(test_cancelled_call, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user user = {0};
    struct bytes out = {0};
    start(rig, &user);
    take_link(rig);
    put_settings(&out);
    say(rig, 0, &out);
    (void)receive_frame(rig, 0, NGHTTP2_DATA, 1, 0);
    http2_call_cancel(user.call);
    assert_int_equal(receive_reset(rig, 0, 1), NGHTTP2_CANCEL);
    assert_int_equal(user.ends, 0);
}

/* An answer that is whole before the request: the server need not read the rest. */
TEST_CASE_WITH(test_early_answer, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user user = {0};
    serve_one(rig);
    assert_int_equal(receive_reset(rig, 0, 1), NGHTTP2_CANCEL);
    start(rig, &user);
    answer(rig, 0, 3);
    wait_end(rig, &user, HTTP_CALL_DONE);
}

/* Neither reaches the call that has ended; the connection does not survive. */
TEST_CASE_WITH(test_data_after_the_end, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user users[2] = {{0}};
    struct bytes out = {0};
    start(rig, &users[0]);
    start(rig, &users[1]);
    take_link(rig);
    put_settings(&out);
    put_answer(&out, 1);
    put_data(&out, 0, 1, 7);
    head_put(&out, END_STREAM, 1, only);
    say(rig, 0, &out);
    wait_end(rig, &users[0], HTTP_CALL_DONE);
    wait_end(rig, &users[1], HTTP_CALL_BROKEN);
    assert_int_equal(users[0].ends, 1);
    assert_int_equal(users[0].bytes, 5);
    assert_string_equal(users[0].status, "3");
    assert_int_equal(receive_frame(rig, 0, NGHTTP2_GOAWAY, 0, 4), NGHTTP2_STREAM_CLOSED);
}

/* A request goes on from on_writable, up to its end. */
TEST_CASE_WITH(test_request_as_the_server_takes_it, setup, teardown)
{
    enum { REQUEST_BYTES = 1 << 20 };
    struct rig *rig = *state;
    struct call_user user = {.left = REQUEST_BYTES};
    struct bytes out = {0};
    uint8_t head[FRAME_HEAD_BYTES];
    uint8_t payload[FRAME_MAX];
    size_t got = 0;
    start(rig, &user);
    send_left(&user);
    assert_int_equal(user.left, REQUEST_BYTES - HTTP_HIGH_WATER_BYTES); /* nine bytes more wait */
    take_link(rig);
    put_setting(&out, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 2 * REQUEST_BYTES);
    put_number(&out, NGHTTP2_WINDOW_UPDATE, 0, 2 * REQUEST_BYTES, 0);
    say(rig, 0, &out);
    do
        got += receive_any(rig, 0, head, payload, NGHTTP2_DATA, 1);
    while ((head[4] & NGHTTP2_FLAG_END_STREAM) == 0);
    assert_int_equal(got, REQUEST_BYTES + 9);
    http2_call_cancel(user.call);
}

/* A paused answer fills its stream's window, and no more; others go on. */
TEST_CASE_WITH(test_paused_answer, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user user = {.pauses = true};
    struct call_user other = {0};
    struct bytes out = {0};
    start(rig, &user);
    start(rig, &other);
    take_link(rig);
    put_settings(&out);
    head_put(&out, 0, 1, ok);
    say(rig, 0, &out);
    for (size_t bytes = 0; bytes < WINDOW_BYTES; bytes += FRAME_MAX) {
        put_data(&out, 0, 1, FRAME_MAX);
        say(rig, 0, &out);
        while (user.bytes < bytes + FRAME_MAX)
            turn(rig);
    }
    answer(rig, 0, 3);
    wait_end(rig, &other, HTTP_CALL_DONE);
    user.pauses = false;
    http2_call_resume(user.call);
    assert_int_equal(receive_frame(rig, 0, NGHTTP2_WINDOW_UPDATE, 1, 0), WINDOW_BYTES);
    put_data(&out, END_STREAM, 1, 1);
    say(rig, 0, &out);
    wait_end(rig, &user, HTTP_CALL_DONE);
    assert_int_equal(user.bytes, WINDOW_BYTES + 1);
}

TEST_CASE_WITH(test_server_that_ignores_a_window, setup, teardown)
{
    struct rig *rig = *state;
    struct call_user user = {.pauses = true};
    struct bytes out = {0};
    start(rig, &user);
    take_link(rig);
    put_settings(&out);
    head_put(&out, 0, 1, ok);
    say(rig, 0, &out);
    for (size_t bytes = 0; bytes <= WINDOW_BYTES; bytes += FRAME_MAX) {
        put_data(&out, 0, 1, FRAME_MAX);
        say(rig, 0, &out);
        while (user.ends == 0 && user.bytes < bytes + FRAME_MAX)
            turn(rig);
    }
    wait_end(rig, &user, HTTP_CALL_BROKEN);
    assert_true(user.bytes <= WINDOW_BYTES + FRAME_MAX);
    assert_int_equal(receive_reset(rig, 0, 1), NGHTTP2_FLOW_CONTROL_ERROR);
}

TEST_MAIN()
