/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of HTTP/2: one that nghttp2 speaks for, and one that says frames byte by byte. The
 * handler is that of test_http_rig.h, and
 *
 *   /events     EVENTS pieces, each in its own turn of the loop     /mirror   its body's pieces
 *   /flood      pieces until FLOOD_BYTES, as fast as they are taken
 *   /pause      pauses its body until it is resumed, then tells its length
 *   /hold       the same, of which there may be several: resume_held, answer_held
 *   /early      answered before its body     /heads      answered with a long head
 *   /cut        one piece, and then broken off
 */
#pragma once

#include <nghttp2/nghttp2.h>

#include "base/bytes.h"
#include "loop/loop.h"
#include "loop/timer.h"
#include "test_http_rig.h"

enum { STREAMS_MAX = 100, EVENTS = 5, FLOOD_BYTES = 4 << 20, PIECE_BYTES = 64 << 10 };

static atomic_int flood_waits;
static atomic_int paused;
static _Atomic(struct http_request *) paused_request;

enum { HELD_MAX = 4 };
static atomic_int held_count;
static struct http_request *held[HELD_MAX]; /* of the server's thread */

/* ---- the handler ---- */

static inline bool
is_at(struct http_request *request, const char *path)
{
    return strcmp(http_request_path(request), path) == 0;
}

/* The unsent rest of a streamed answer. */
struct saying {
    struct http_request *request;
    struct loop_timer *timer; /* NULL: a flood */
    size_t left;
};

static inline void
say_more(struct saying *saying)
{
    static const char zeros[PIECE_BYTES];
    enum http_flow flow = HTTP_GO_ON;
    while (saying->left > 0 && flow == HTTP_GO_ON) {
        struct http_piece piece = {.data = zeros, .bytes = PIECE_BYTES};
        saying->left -= PIECE_BYTES;
        flow = http_answer_write(saying->request, &piece);
    }
    if (flow == HTTP_WAIT && saying->left > 0) {
        atomic_fetch_add(&flood_waits, 1);
        return;
    }
    struct http_request *request = saying->request;
    free(saying);
    http_request_set_user(request, NULL);
    http_answer_end(request);
}

static inline void
on_flood_writable(struct http_request *request)
{
    say_more(http_request_user(request));
}

static inline void
on_event_time(void *context)
{
    static const char event[] = "data: x\n\n";
    struct saying *saying = context;
    struct http_piece piece = {.data = event, .bytes = sizeof(event) - 1};
    if (saying->left-- > 0) {
        (void)(saying->left % 2 == 0 ? http_answer_write : http_answer_append)(saying->request,
                                                                               &piece);
        loop_timer_set(saying->timer, 0);
        return;
    }
    struct http_request *request = saying->request;
    loop_timer_destroy(saying->timer);
    free(saying);
    http_request_set_user(request, NULL);
    http_answer_end(request);
}

static inline void
begin_saying(struct http_request *request, struct event_base *base)
{
    static const struct http_header header = {"Content-Type", "text/event-stream"};
    struct saying *saying = calloc(1, sizeof(*saying));
    CHECK(saying != NULL);
    saying->request = request;
    saying->left = base != NULL ? EVENTS : FLOOD_BYTES;
    http_request_set_user(request, saying);
    http_answer_begin(request, 200, &header, 1, base != NULL ? NULL : on_flood_writable);
    if (base == NULL) {
        say_more(saying);
        return;
    }
    saying->timer = loop_timer_create(base, on_event_time, saying);
    loop_timer_set(saying->timer, 0);
}

static inline void
on_sink_piece(struct http_request *request, const void *data, size_t bytes)
{
    struct http_piece piece = {.data = data, .bytes = bytes};
    if (is_at(request, "/mirror")) {
        (void)http_answer_write(request, &piece);
        return;
    }
    size_t *got = http_request_user(request);
    *got += bytes;
    if (is_at(request, "/hold")) {
        if (*got == bytes) {
            http_request_pause(request);
            held[atomic_load(&held_count)] = request;
            atomic_fetch_add(&held_count, 1);
        }
        return;
    }
    if (atomic_fetch_add(&paused, 1) == 0) {
        http_request_pause(request);
        atomic_store(&paused_request, request);
    }
}

static inline void
on_sink_end(struct http_request *request)
{
    char text[32];
    if (is_at(request, "/mirror")) {
        http_answer_end(request);
        return;
    }
    size_t *got = http_request_user(request);
    snprintf(text, sizeof(text), "%zu", *got);
    free(got);
    http_request_set_user(request, NULL);
    answer_text(request, text);
}

static inline void
resume_paused(void *context)
{
    (void)context;
    http_request_resume(atomic_load(&paused_request));
}

static inline void
resume_held(void *context)
{
    (void)context;
    for (int i = 0; i < HELD_MAX; i++)
        http_request_resume(held[i]);
}

static inline void
answer_held(void *context)
{
    (void)context;
    for (int i = 0; i < HELD_MAX; i++) {
        free(http_request_user(held[i]));
        http_request_set_user(held[i], NULL);
        answer_text(held[i], "held");
    }
}

/* More than nghttp2 sends unless told: 64 KiB. */
static inline void
answer_heads(struct http_request *request)
{
    enum { HEADS = 10, HEAD_BYTES = 8 << 10 };
    static char value[HEAD_BYTES];
    struct http_header headers[HEADS];
    memset(value, 'v', sizeof(value) - 1);
    for (int i = 0; i < HEADS; i++)
        headers[i] = (struct http_header){"x-long", value};
    http_answer(request, 200, headers, HEADS, NULL, 0);
}

static inline void
on_stream_head(void *context, struct http_request *request)
{
    static const struct http_body_sink sink = {on_sink_piece, on_sink_end};
    (void)context;
    if (is_at(request, "/early")) {
        answer_text(request, "early");
    } else if (is_at(request, "/heads")) {
        answer_heads(request);
    } else if (is_at(request, "/cut")) {
        struct http_piece piece = {.data = "half", .bytes = 4};
        http_answer_begin(request, 200, NULL, 0, NULL);
        (void)http_answer_write(request, &piece);
        http_answer_abort(request);
    } else if (is_at(request, "/mirror")) {
        http_request_stream(request, &sink);
        http_answer_begin(request, 200, NULL, 0, NULL);
    } else if (is_at(request, "/pause") || is_at(request, "/hold")) {
        http_request_set_user(request, calloc(1, sizeof(size_t)));
        http_request_stream(request, &sink);
    }
}

static inline void
on_stream_request(void *context, struct http_request *request)
{
    struct rig *rig = context;
    if (is_at(request, "/events"))
        begin_saying(request, loop_base(http_thread_loop(rig->http)));
    else if (is_at(request, "/flood"))
        begin_saying(request, NULL);
    else
        on_request(context, request);
}

static inline void
on_stream_gone(void *context, struct http_request *request)
{
    struct rig *rig = context;
    if (is_at(request, "/flood") || is_at(request, "/events")) {
        struct saying *saying = http_request_user(request);
        loop_timer_destroy(saying->timer);
        free(saying);
        http_answer_abort(request);
        atomic_fetch_add(&rig->gone, 1);
    } else if (is_at(request, "/pause") || is_at(request, "/hold")) {
        free(http_request_user(request));
        answer_text(request, "dropped");
        atomic_fetch_add(&rig->gone, 1);
    } else if (is_at(request, "/mirror")) {
        http_answer_abort(request);
        atomic_fetch_add(&rig->gone, 1);
    } else if (http_request_user(request) == NULL) { /* its body was still to come */
        answer_text(request, "dropped");
        atomic_fetch_add(&rig->gone, 1);
    } else {
        on_gone(context, request);
    }
}

static inline int
setup2_with(void **state, int64_t timeout_ns, uint64_t paused_bytes_max)
{
    struct rig *rig = rig_create();
    struct http_pool_options options = pool_options(rig, timeout_ns);
    options.paused_bytes_max = paused_bytes_max;
    struct http_service service = service_of(rig);
    service.on_head = on_stream_head;
    service.on_request = on_stream_request;
    service.on_gone = on_stream_gone;
    service.streams_max = STREAMS_MAX;
    atomic_store(&flood_waits, 0);
    atomic_store(&paused, 0);
    atomic_store(&held_count, 0);
    rig->port = rig_listen(rig, &options, &service);
    http_thread_start(rig->http);
    *state = rig;
    return 0;
}

static inline int
setup2(void **state)
{
    return setup2_with(state, 60 * NS_PER_S, 0);
}

/* Room for the windows of HELD_MAX paused bodies. */
static inline int
setup2_roomy(void **state)
{
    return setup2_with(state, 60 * NS_PER_S, HELD_MAX * (256 << 10));
}

static inline int
setup2_hasty(void **state)
{
    return setup2_with(state, 2 * (int64_t)NS_PER_S, 0);
}

/* ---- a client ---- */

struct obtained {
    int32_t id;
    int code;
    struct bytes body;
    const char *said;  /* the request's body */
    size_t said_bytes; /* SIZE_MAX: it never comes */
    bool is_over;
    bool keeps_window; /* grants the server nothing */
    uint32_t error;
};

struct client2 {
    int fd;
    nghttp2_session *session;
    struct obtained obtained[STREAMS_MAX + 1];
    size_t count;
    bool was_reported_to_go;
    int pongs;
};

static inline struct obtained *
received_of(struct client2 *client, int32_t id)
{
    for (size_t i = 0; i < client->count; i++)
        if (client->obtained[i].id == id)
            return &client->obtained[i];
    fail_msg("stream %d was not asked for", id);
    return NULL;
}

static inline ssize_t
on_client_send(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags,
               void *context)
{
    (void)session, (void)flags;
    struct client2 *client = context;
    say_bytes(client->fd, (const char *)data, bytes);
    return (ssize_t)bytes;
}

static inline int
on_client_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                 size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags,
                 void *context)
{
    (void)session, (void)name_bytes, (void)value_bytes, (void)flags;
    if (strcmp((const char *)name, ":status") == 0)
        received_of(context, frame->hd.stream_id)->code = atoi((const char *)value);
    return 0;
}

static inline int
on_client_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
               size_t bytes, void *context)
{
    (void)flags;
    struct obtained *obtained = received_of(context, id);
    bytes_put(&obtained->body, data, bytes);
    CHECK(nghttp2_session_consume_connection(session, bytes) == 0);
    if (!obtained->keeps_window)
        CHECK(nghttp2_session_consume_stream(session, id, bytes) == 0);
    return 0;
}

static inline int
on_client_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    (void)session;
    struct obtained *obtained = received_of(context, id);
    obtained->is_over = true;
    obtained->error = code;
    return 0;
}

static inline int
on_client_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    (void)session;
    struct client2 *client = context;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        client->was_reported_to_go = true;
    client->pongs += frame->hd.type == NGHTTP2_PING;
    return 0;
}

static inline ssize_t
on_client_body(nghttp2_session *session, int32_t id, uint8_t *to, size_t room, uint32_t *flags,
               nghttp2_data_source *source, void *context)
{
    (void)session, (void)id, (void)context;
    struct obtained *obtained = source->ptr;
    if (obtained->said_bytes == SIZE_MAX)
        return NGHTTP2_ERR_DEFERRED;
    size_t bytes = obtained->said_bytes < room ? obtained->said_bytes : room;
    memcpy(to, obtained->said, bytes);
    obtained->said += bytes;
    obtained->said_bytes -= bytes;
    if (obtained->said_bytes == 0)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)bytes;
}

static inline struct client2 *
client2_open(struct rig *rig)
{
    struct client2 *client2 = calloc(1, sizeof(*client2));
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option;
    CHECK(client2 != NULL);
    client2->fd = client(rig);
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0 && nghttp2_option_new(&option) == 0);
    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_session_callbacks_set_send_callback(callbacks, on_client_send);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_client_header);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_client_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_client_close);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_client_frame);
    CHECK(nghttp2_session_client_new2(&client2->session, callbacks, client2, option) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    CHECK(nghttp2_submit_settings(client2->session, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
    return client2;
}

static inline void
client2_close(struct client2 *client)
{
    nghttp2_session_del(client->session);
    for (size_t i = 0; i < client->count; i++)
        bytes_fini(&client->obtained[i].body);
    close(client->fd);
    free(client);
}

static inline nghttp2_nv
field2(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/* Begins a request. `body` NULL: none. */
static inline struct obtained *
ask2(struct client2 *client, const char *method, const char *path, const char *body, size_t bytes)
{
    struct obtained *obtained = &client->obtained[client->count++];
    CHECK(client->count <= ARRAY_COUNT(client->obtained));
    const nghttp2_nv fields[] = {field2(":method", method), field2(":scheme", "http"),
                                 field2(":path", path), field2(":authority", "x"),
                                 field2("x-name", "named")};
    const nghttp2_data_provider provider = {.source = {.ptr = obtained},
                                            .read_callback = on_client_body};
    obtained->said = body;
    obtained->said_bytes = bytes;
    obtained->id = nghttp2_submit_request(client->session, NULL, fields, ARRAY_COUNT(fields),
                                          body != NULL ? &provider : NULL, NULL);
    CHECK(obtained->id > 0);
    CHECK(nghttp2_session_send(client->session) == 0);
    return obtained;
}

/* Reads once; false: the server has closed the connection. */
static inline bool
pump(struct client2 *client)
{
    uint8_t input[16 << 10];
    CHECK(nghttp2_session_send(client->session) == 0);
    ssize_t got = recv(client->fd, input, sizeof(input), 0);
    if (got < 0 && errno != ECONNRESET)
        fail_msg("the server says no more");
    if (got <= 0)
        return false;
    assert_int_equal(nghttp2_session_mem_recv(client->session, input, (size_t)got), got);
    CHECK(nghttp2_session_send(client->session) == 0);
    return true;
}

static inline void
receive_all(struct client2 *client, struct obtained *obtained)
{
    while (!obtained->is_over)
        if (!pump(client))
            fail_msg("the server has closed the connection");
}

static inline void
assert_received(struct client2 *client, struct obtained *obtained, int code, const char *body)
{
    receive_all(client, obtained);
    assert_int_equal(obtained->code, code);
    assert_int_equal(obtained->error, NGHTTP2_NO_ERROR);
    assert_int_equal(obtained->body.used, strlen(body));
    assert_memory_equal(obtained->body.data != NULL ? obtained->body.data : "", body, strlen(body));
}
