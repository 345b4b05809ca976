/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients that say frames byte by byte, as no library would: malformed heads, which must never
 * reach a handler, and floods of what costs the server more than the client. The server resets a
 * stream or closes the connection, counts it, and serves others.
 *
 * ctest: timeout=120 presets=dev,tsan because its thread meets those that answer
 */
#include "http/http2.h"
#include "test_http2_frames.h"
#include "test_http2_rig.h"

#define GET ":method", "GET", ":scheme", "http", ":path", "/now"

static struct bytes
begin(void)
{
    struct bytes out = {0};
    bytes_put_text(&out, HTTP2_PREFACE);
    frame_put(&out, NGHTTP2_SETTINGS, 0, 0, NULL);
    return out;
}

/* Sends as much as the server takes and ignores its answers; false: it has closed the connection.
 */
static bool
say_all(int fd, struct bytes *out)
{
    size_t said = 0;
    while (said < out->used) {
        char obtained[4096];
        struct pollfd look = {.fd = fd, .events = POLLIN | POLLOUT};
        if (poll(&look, 1, WAIT_S * 1000) <= 0)
            fail_msg("the server neither takes nor says anything");
        if ((look.revents & POLLIN) != 0 && recv(fd, obtained, sizeof(obtained), MSG_DONTWAIT) == 0)
            break;
        ssize_t sent = send(fd, out->data + said, out->used - said, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            break;
        said += sent > 0 ? (size_t)sent : 0;
    }
    bool is_said = said == out->used;
    out->used = 0;
    return is_said;
}

/* The next frame; false: the connection has ended. */
static bool
frame_receive(int fd, uint8_t head[FRAME_HEAD_BYTES], uint8_t payload[FRAME_MAX])
{
    ssize_t got = recv(fd, head, FRAME_HEAD_BYTES, MSG_WAITALL);
    if (got < 0 && errno != ECONNRESET)
        fail_msg("the server says no more");
    if (got != FRAME_HEAD_BYTES)
        return false;
    size_t bytes = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    assert_true(bytes <= FRAME_MAX);
    return bytes == 0 || recv(fd, payload, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

enum fate { ANSWERED, RESET, GONE };

/* The outcome of a stream: its status, which our server writes as an indexed field or a literal of
 * three digits; or its error, or that of the connection. */
static enum fate
fate_of(int fd, int32_t id, uint32_t *code)
{
    uint8_t head[FRAME_HEAD_BYTES];
    uint8_t payload[FRAME_MAX] = {0};
    *code = 0;
    while (frame_receive(fd, head, payload)) {
        int32_t reported = head[5] << 24 | head[6] << 16 | head[7] << 8 | head[8];
        const uint8_t *error = head[3] == NGHTTP2_GOAWAY ? payload + 4 : payload;
        if (head[3] == NGHTTP2_GOAWAY || (head[3] == NGHTTP2_RST_STREAM && reported == id))
            *code = (uint32_t)(error[0] << 24 | error[1] << 16 | error[2] << 8 | error[3]);
        if (head[3] == NGHTTP2_GOAWAY && *code != NGHTTP2_NO_ERROR)
            return GONE;
        if (reported != id)
            continue;
        if (head[3] == NGHTTP2_RST_STREAM)
            return RESET;
        if (head[3] == NGHTTP2_HEADERS) {
            *code = payload[0];
            return ANSWERED;
        }
    }
    return GONE;
}

/* ---- heads ---- */

enum { STATUS_200 = 0x88, STATUS_400 = 0x8c };

static const struct hostile_head {
    const char *what;
    const char *fields[16];
    enum fate fate;
    uint32_t code;
} heads[] = {
    {"as it should be", {GET, ":authority", "x"}, ANSWERED, STATUS_200},
    {"the same host twice", {GET, ":authority", "x", "host", "X"}, ANSWERED, STATUS_200},
    {"cookies", {GET, ":authority", "x", "cookie", "a=b", "cookie", "c=d"}, ANSWERED, STATUS_200},
    {"no host", {GET}, RESET, NGHTTP2_PROTOCOL_ERROR},
    {"two hosts", {GET, ":authority", "x", "host", "y"}, ANSWERED, STATUS_400},
    {"two hosts of HTTP/1", {GET, "host", "x", "host", "x"}, RESET, NGHTTP2_PROTOCOL_ERROR},
    {"chunks", {GET, ":authority", "x", "transfer-encoding", "chunked"}, RESET, 1},
    {"Connection", {GET, ":authority", "x", "connection", "close"}, RESET, 1},
    {"Upgrade", {GET, ":authority", "x", "upgrade", "h2c"}, RESET, 1},
    {"TE", {GET, ":authority", "x", "te", "chunked"}, RESET, 1},
    {"capitals", {GET, ":authority", "x", "X-Name", "v"}, RESET, 1},
    {"no name", {GET, ":authority", "x", "", "v"}, RESET, 1},
    {"a colon in a name", {GET, ":authority", "x", "a:b", "v"}, RESET, 1},
    {"a second line", {GET, ":authority", "x", "a", "v\r\nx-name: w"}, RESET, 1},
    {"a NL", {GET, ":authority", "x", "a", "v\nw"}, RESET, 1},
    {"two paths", {GET, ":path", "/", ":authority", "x"}, RESET, 1},
    {"no path", {":method", "GET", ":scheme", "http", ":authority", "x"}, RESET, 1},
    {"CONNECT", {":method", "CONNECT", ":authority", "x"}, ANSWERED, STATUS_400},
    {"a late pseudo-field", {GET, "a", "b", ":authority", "x"}, RESET, 1},
    {"an unknown one", {GET, ":authority", "x", ":a", "b"}, RESET, 1},
    {"a status", {GET, ":authority", "x", ":status", "200"}, RESET, 1},
    {"a body that does not come", {GET, ":authority", "x", "content-length", "3"}, RESET, 1},
    {"two lengths",
     {GET, ":authority", "x", "content-length", "0", "content-length", "0"},
     RESET,
     1},
    {"no number", {GET, ":authority", "x", "content-length", "+0"}, RESET, 1},
    {"a host with a space", {GET, ":authority", "x y"}, RESET, 1},
};

TEST_CASE(test_heads)
{
    struct rig *rig = *state;
    for (size_t i = 0; i < ARRAY_COUNT(heads); i++) {
        struct bytes out = begin();
        uint32_t code;
        head_put(&out, END_STREAM, 1, heads[i].fields);
        int fd = client(rig);
        assert_true(say_all(fd, &out));
        enum fate fate = fate_of(fd, 1, &code);
        if (fate != heads[i].fate || code != heads[i].code)
            fail_msg("%s: fate %d, code %u", heads[i].what, fate, code);
        close(fd);
        bytes_fini(&out);
    }
    assert_works(rig);
}

/* A method, a path or a body that HTTP/1 would read as something else. */
TEST_CASE(test_requests)
{
    static const char *const requests[][2] = {
        {"GET /x", "/"}, {"GET", "/ HTTP/1.1"}, {"GET", "/\r\nx: y"},
        {"GET", "x"},    {"GET", "/%00"},       {"", "/"},
        {"G\tT", "/"},   {"GET", "http://x/"},  {"OPTIONS", "*"},
    };
    for (size_t i = 0; i < ARRAY_COUNT(requests); i++) {
        const char *fields[] = {":method",      requests[i][0], ":scheme", "http", ":path",
                                requests[i][1], ":authority",   "x",       NULL};
        struct bytes out = begin();
        uint32_t code;
        head_put(&out, END_STREAM, 1, fields);
        int fd = client(*state);
        assert_true(say_all(fd, &out));
        enum fate fate = fate_of(fd, 1, &code);
        if (!(fate == RESET && code == NGHTTP2_PROTOCOL_ERROR) &&
            !(fate == ANSWERED && code == STATUS_400))
            fail_msg("%s %s: fate %d, code %u", requests[i][0], requests[i][1], fate, code);
        close(fd);
        bytes_fini(&out);
    }
}

/* More and fewer bytes than the length says. */
TEST_CASE(test_bodies)
{
    const char *fields[] = {":method",    "POST", ":scheme",        "http", ":path", "/echo",
                            ":authority", "x",    "content-length", "3",    NULL};
    for (size_t bytes = 2; bytes <= 4; bytes++) {
        struct bytes out = begin();
        uint32_t code;
        char text[] = "abcd";
        struct bytes body = {.data = text, .used = bytes};
        head_put(&out, 0, 1, fields);
        frame_put(&out, NGHTTP2_DATA, END_STREAM, 1, &body);
        int fd = client(*state);
        assert_true(say_all(fd, &out));
        enum fate fate = fate_of(fd, 1, &code);
        assert_int_equal(fate, bytes == 3 ? ANSWERED : RESET);
        assert_int_equal(code, bytes == 3 ? STATUS_200 : NGHTTP2_PROTOCOL_ERROR);
        close(fd);
        bytes_fini(&out);
    }
}

/* ---- gRPC ---- */

/* The field of the answer's head. */
static void
receive_field(int fd, int32_t id, const char *wanted, char found[64])
{
    uint8_t head[FRAME_HEAD_BYTES];
    uint8_t payload[FRAME_MAX];
    nghttp2_hd_inflater *inflater;
    nghttp2_nv field;
    int flags = 0;
    CHECK(nghttp2_hd_inflate_new(&inflater) == 0);
    do
        assert_true(frame_receive(fd, head, payload));
    while (head[3] != NGHTTP2_HEADERS || head[8] != id);
    assert_int_not_equal(head[4] & END_STREAM, 0);
    size_t left = (size_t)head[1] << 8 | head[2];
    const uint8_t *at = payload;
    while ((flags & NGHTTP2_HD_INFLATE_FINAL) == 0) {
        ssize_t used = nghttp2_hd_inflate_hd2(inflater, &field, &flags, at, left, 1);
        assert_true(used >= 0);
        at += used;
        left -= (size_t)used;
        if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0 && strcmp((char *)field.name, wanted) == 0)
            snprintf(found, 64, "%s", (char *)field.value);
    }
    nghttp2_hd_inflate_del(inflater);
}

#define CALL ":method", "POST", ":scheme", "http", ":path", "/echo", ":authority", "x"
#define GRPC "content-type", "application/grpc+proto"

static const struct {
    const char *what;
    const char *fields[18];
    int long_fields;
    const char *status;
} calls[] = {
    {"two hosts", {CALL, GRPC, "host", "y"}, 0, "3"},
    {"a large head before the type", {CALL}, HEADER_MAX / 100, "8"},
    {"a large body", {CALL, GRPC, "content-length", "1000000000"}, 0, "8"},
    {"another type", {CALL, "content-type", "application/grpcx", "host", "y"}, 0, NULL},
};

/* A refused call gets a status where its client looks for it. */
TEST_CASE(test_refused_calls_of_grpc)
{
    char value[101];
    memset(value, 'v', 100);
    value[100] = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++) {
        struct bytes out = begin();
        struct bytes block = {0};
        char found[64] = "";
        uint32_t code;
        fields_put(&block, calls[i].fields);
        for (int k = 0; k < calls[i].long_fields; k++)
            field_put(&block, "a", value);
        if (calls[i].long_fields > 0)
            field_put(&block, "content-type", "application/grpc");
        frame_put(&out, NGHTTP2_HEADERS, END_HEADERS, 1, &block);
        int fd = client(*state);
        assert_true(say_all(fd, &out));
        if (calls[i].status == NULL) {
            assert_int_equal(fate_of(fd, 1, &code), ANSWERED);
            assert_int_not_equal(code, STATUS_200);
        } else {
            receive_field(fd, 1, "grpc-status", found);
            if (strcmp(found, calls[i].status) != 0)
                fail_msg("%s: status %s", calls[i].what, found);
        }
        close(fd);
        bytes_fini(&block);
        bytes_fini(&out);
    }
}

/* ---- limits ---- */

/* The last field of a head that is too long, or one of too many; and one that HPACK inflates. */
TEST_CASE(test_large_heads)
{
    static const char *const fields[] = {GET, ":authority", "x", NULL};
    char value[101];
    memset(value, 'v', 100);
    value[100] = '\0';
    for (int way = 0; way < 3; way++) {
        struct bytes out = begin();
        struct bytes block = {0};
        uint32_t code;
        fields_put(&block, fields);
        if (way == 2) { /* into the table, and then by one byte each */
            bytes_put(&block,
                      "\x40\x01"
                      "a\x64",
                      4);
            bytes_put_text(&block, value);
        }
        for (int i = 0; i < (way == 0 ? 2 + HTTP_FIELDS_MAX : HEADER_MAX / 100); i++)
            if (way == 2)
                bytes_put_char(&block, (char)0xbe);
            else
                field_put(&block, "a", way == 0 ? "v" : value);
        frame_put(&out, NGHTTP2_HEADERS, END_HEADERS | END_STREAM, 1, &block);
        int fd = client(*state);
        assert_true(say_all(fd, &out));
        enum fate fate = fate_of(fd, 1, &code);
        if (fate != ANSWERED || code == STATUS_200)
            fail_msg("way %d: fate %d, code %u", way, fate, code);
        close(fd);
        bytes_fini(&block);
        bytes_fini(&out);
    }
}

TEST_CASE(test_more_streams_than_allowed)
{
    struct rig *rig = *state;
    const char *fields[] = {":method",     "GET",        ":scheme", "http", ":path",
                            "/until-gone", ":authority", "x",       NULL};
    struct bytes out = begin();
    uint32_t code;
    for (int i = 0; i <= STREAMS_MAX; i++)
        head_put(&out, END_STREAM, 1 + 2 * i, fields);
    int fd = client(rig);
    assert_true(say_all(fd, &out));
    assert_int_equal(fate_of(fd, 1 + 2 * STREAMS_MAX, &code), RESET);
    assert_int_equal(code, NGHTTP2_REFUSED_STREAM);
    wait_opened(rig, STREAMS_MAX);
    close(fd);
    wait_gone(rig, STREAMS_MAX);
    bytes_fini(&out);
}

/* ---- floods ---- */

static void
put_ping(struct bytes *out, int i)
{
    char text[] = "12345678";
    struct bytes eight = {.data = text, .used = 8};
    (void)i;
    frame_put(out, NGHTTP2_PING, 0, 0, &eight);
}

static void
put_settings(struct bytes *out, int i)
{
    (void)i;
    frame_put(out, NGHTTP2_SETTINGS, 0, 0, NULL);
}

static void
put_reset(struct bytes *out, int i)
{
    static const char *const fields[] = {GET, ":authority", "x", NULL};
    char code[] = {0, 0, 0, NGHTTP2_CANCEL};
    struct bytes cancel = {.data = code, .used = sizeof(code)};
    head_put(out, 0, 1 + 2 * i, fields);
    frame_put(out, NGHTTP2_RST_STREAM, 0, 1 + 2 * i, &cancel);
}

/* Each costs a stream by the client's fault. */
static void
put_fault(struct bytes *out, int i)
{
    static const char *const fields[] = {GET, ":authority", "x", "connection", "close", NULL};
    head_put(out, END_STREAM, 1 + 2 * i, fields);
}

static void
put_continuation(struct bytes *out, int i)
{
    static const char *const fields[] = {GET, ":authority", "x", NULL};
    struct bytes block = {0};
    if (i == 0)
        fields_put(&block, fields);
    else
        field_put(&block, "a", "v");
    frame_put(out, i == 0 ? NGHTTP2_HEADERS : NGHTTP2_CONTINUATION, 0, 1, &block);
    bytes_fini(&block);
}

static const struct flood {
    const char *what;
    void (*put)(struct bytes *out, int i);
    bool is_read; /* the server's frames, by the client */
    uint64_t refused;
} floods[] = {
    {"pings that are not read", put_ping, false, 1},
    {"settings that are not read", put_settings, false, 1},
    {"resets", put_reset, true, 1},
    {"faults", put_fault, true, 101}, /* and the connection's end */
    {"continuations", put_continuation, true, 1},
};

static uint64_t
refused(struct rig *rig)
{
    return counter_get(rig->counters, NODE_HTTP_REFUSED);
}

/* Like say_all, from a client that does not read; false: the server takes no more. */
static bool
say_deaf(int fd, struct bytes *out)
{
    size_t said = 0;
    while (said < out->used) {
        struct pollfd look = {.fd = fd, .events = POLLOUT};
        if (poll(&look, 1, 500) == 0 || (look.revents & (POLLERR | POLLHUP)) != 0)
            return false;
        ssize_t sent = send(fd, out->data + said, out->used - said, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN)
            return false;
        said += sent > 0 ? (size_t)sent : 0;
    }
    out->used = 0;
    return true;
}

TEST_CASE(test_floods)
{
    enum { ROUNDS = 400, FRAMES = 1000 };
    struct rig *rig = *state;
    for (size_t i = 0; i < ARRAY_COUNT(floods); i++) {
        struct bytes out = begin();
        bool goes_on = true;
        int round = 0;
        uint64_t wanted = refused(rig) + floods[i].refused;
        int fd = client_socket(rig);
        int small = 4096;
        CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)) == 0 &&
              setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
        connect_client(rig, fd);
        for (; round < ROUNDS && goes_on && (floods[i].is_read || refused(rig) < wanted); round++) {
            for (int j = 0; j < FRAMES; j++)
                floods[i].put(&out, round * FRAMES + j);
            goes_on = floods[i].is_read ? say_all(fd, &out) : say_deaf(fd, &out);
        }
        bool is_reported = refused(rig) >= wanted;
        if (floods[i].is_read ? goes_on || !is_reported : goes_on && !is_reported)
            fail_msg("%s: %d frames were taken", floods[i].what, round * FRAMES);
        close(fd);
        bytes_fini(&out);
        wait_connections(rig, 0);
        assert_works(rig);
    }
}

/* Bytes beyond the stream's window, to a handler that has paused its body. */
TEST_CASE(test_body_beyond_its_window)
{
    const char *fields[] = {":method", "POST",       ":scheme", "http", ":path",
                            "/pause",  ":authority", "x",       NULL};
    struct bytes out = begin();
    struct bytes piece = {.data = calloc(1, FRAME_MAX), .used = FRAME_MAX};
    uint32_t code;
    head_put(&out, 0, 1, fields);
    for (int i = 0; i < 64; i++)
        frame_put(&out, NGHTTP2_DATA, 0, 1, &piece);
    int fd = client(*state);
    (void)say_all(fd, &out);
    (void)fate_of(fd, 1, &code);
    assert_int_equal(code, NGHTTP2_FLOW_CONTROL_ERROR);
    close(fd);
    wait_gone(*state, 1);
    bytes_fini(&out);
    free(piece.data);
}

/* Input that begins like HTTP/2 and is not. */
TEST_CASE(test_prefaces)
{
    struct rig *rig = *state;
    int fd = client(rig);
    say(fd, "P");
    say(fd, "RI * HTTP/2.0\r\n\r\nxx");
    struct answer answer = receive(fd);
    assert_int_equal(answer.code, 505);
    answer_free(&answer);
    close(fd);
    fd = client(rig);
    say(fd, "P");
    answer = ask(fd, "UT /now HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(answer.code, 200);
    answer_free(&answer);
    close(fd);
    fd = client(rig);
    struct bytes out = begin();
    out.used = strlen(HTTP2_PREFACE);
    bytes_put_text(&out, "GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    (void)say_all(fd, &out);
    uint32_t code;
    assert_int_equal(fate_of(fd, 1, &code), GONE);
    close(fd);
    bytes_fini(&out);
    wait_connections(rig, 0);
    assert_works(rig);
}

static void
part(void *context)
{
    http_server_part(context);
}

/* A client that goes on although it was asked to connect elsewhere: served until the next request
 * ends, but what it asks after that is not. */
TEST_CASE(test_client_that_does_not_part)
{
    struct rig *rig = *state;
    const char *later[] = {":method", "GET",        ":scheme", "http", ":path",
                           "/later",  ":authority", "x",       NULL};
    static const char *const now[] = {GET, ":authority", "x", NULL};
    uint8_t head[FRAME_HEAD_BYTES] = {0};
    uint8_t payload[FRAME_MAX];
    uint32_t code;
    struct bytes out = begin();
    int fd = client(rig);
    head_put(&out, END_STREAM, 1, later);
    assert_true(say_all(fd, &out));
    wait_opened(rig, 1);
    http_thread_post(rig->http, part, http_thread_server(rig->http));
    while (head[3] != NGHTTP2_GOAWAY)
        assert_true(frame_receive(fd, head, payload));
    head_put(&out, END_STREAM, 3, now);
    assert_true(say_all(fd, &out));
    assert_int_equal(fate_of(fd, 3, &code), ANSWERED);
    head_put(&out, END_STREAM, 5, now);
    assert_true(say_all(fd, &out));
    http_thread_post(rig->http, answer_open, rig);
    assert_int_equal(fate_of(fd, 5, &code), GONE);
    close(fd);
    bytes_fini(&out);
    wait_connections(rig, 0);
}

TEST_CASE_WITH(test_late_heads, setup2_hasty, teardown)
{
    struct rig *rig = *state;
    static const char *const fields[] = {GET, ":authority", "x", NULL};
    struct bytes out = begin();
    struct bytes block = {0};
    uint32_t code;
    fields_put(&block, fields);
    frame_put(&out, NGHTTP2_HEADERS, END_STREAM, 1, &block);
    int fd = client(rig);
    assert_true(say_all(fd, &out));
    assert_int_equal(fate_of(fd, 1, &code), GONE);
    close(fd);
    bytes_fini(&block);
    bytes_fini(&out);
    wait_connections(rig, 0);
}

TEST_MAIN(.setup = setup2, .teardown = teardown)
