/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link is a connection with the calls that it carries; nghttp2 frames them.
 *
 * A call lives until nghttp2 has closed its stream (or the link is lost) and its user was notified,
 * or has cancelled it, whichever comes last. Sends and cancellations wait for the link's next turn
 * of the loop, where all of them leave together. So no callback comes from inside a function of the
 * header; on_writable comes while nghttp2 frames.
 *
 * A link may be lost, or its target destroyed, while its callback is on the stack: its memory stays
 * until the last hold is released.
 */
#include "http/http2_client.h"

#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "http/client_internal.h"
#include "http/http2_limits.h"
#include "loop/timer.h"

enum {
    STREAM_WINDOW_BYTES = 256 << 10,
    CONNECTION_WINDOW_BYTES = 16 << 20,
    READ_BYTES = 256 << 10,
    SLICE_BYTES = 16 << 10, /* of input, before its output follows */
    CALLS_PER_LINK = 100,
};

struct fields {
    struct bytes text; /* "name\0value\0name\0..." */
    size_t bytes;      /* as HTTP/2 counts them */
};

struct http2_link {
    struct http_target *target; /* NULL: destroyed, or the link is lost */
    struct http_channel channel;
    bool has_channel;
    struct loop_timer *timer; /* a turn of its own, or the end of an idle link */
    struct nghttp2_session *session;
    uint32_t holds;
    bool is_running; /* nghttp2 is on the stack: output follows */
    bool is_connected;
    bool is_going;   /* takes no more calls */
    bool has_served; /* an answer has come */
    bool has_frame;  /* the server speaks HTTP/2 */
    bool is_foreign; /* it has shown that it does not, or TLS that cannot be had */
    bool has_news;
    int64_t idle_ns; /* since when it has no calls; 0: it has */
    uint32_t call_count;
    LIST_HEAD(, http2_call) calls;
    TAILQ_ENTRY(http2_link) entry;
};

struct http2_call {
    struct http2_link *link;
    struct http_target *target;
    const struct http2_call_handler *handler;
    void *context;
    struct http_call_timeouts timeouts;
    struct loop_timer *timer;
    int32_t id;
    int64_t started_ns;
    int64_t progress_ns;
    bool is_kept;      /* its link had served another before it */
    bool is_over;      /* the user was notified, or has cancelled it */
    bool is_notifying; /* on_end is on the stack */
    bool is_closed;    /* by nghttp2, or with the link */
    bool has_byte;
    bool has_head;
    bool has_end; /* the answer is whole */
    bool is_malformed;
    bool is_paused;
    bool is_deferred; /* nghttp2 asks for output only when told */
    bool is_ending;   /* `out` is the rest of the request */
    bool waits;       /* HTTP_WAIT was returned */
    uint32_t closed_code;
    int code;
    size_t unconsumed;
    struct evbuffer *out;
    struct fields fields[2]; /* by http2_block */
    LIST_ENTRY(http2_call) entry;
};

/* ---- memory ---- */

static void
call_free(struct http2_call *call)
{
    LIST_REMOVE(call, entry);
    CHECK(call->is_over && call->link->call_count > 0);
    call->link->call_count--;
    loop_timer_destroy(call->timer);
    evbuffer_free(call->out);
    bytes_fini(&call->fields[HTTP2_HEAD].text);
    bytes_fini(&call->fields[HTTP2_TRAILERS].text);
    free(call);
}

static void
call_look(struct http2_call *call)
{
    if (call->is_over && call->is_closed && !call->is_notifying)
        call_free(call);
}

static void
link_release(struct http2_link *link)
{
    CHECK(link->holds > 0);
    if (--link->holds > 0 || link->target != NULL)
        return;
    while (!LIST_EMPTY(&link->calls))
        // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it leaves the list
        call_free(LIST_FIRST(&link->calls));
    nghttp2_session_del(link->session);
    loop_timer_destroy(link->timer);
    if (link->has_channel)
        http_channel_fini(&link->channel);
    free(link);
}

/* Its calls are over. */
static void
link_close(struct http2_link *link)
{
    struct http2_call *call;
    link->holds++;
    LIST_FOREACH (call, &link->calls, entry)
        CHECK(call->is_over);
    TAILQ_REMOVE(&link->target->links, link, entry);
    link->target = NULL;
    link_release(link);
}

void
http2_links_close(struct http_target *target)
{
    while (!TAILQ_EMPTY(&target->links))
        link_close(TAILQ_FIRST(&target->links));
}

/* ---- the end of a call ---- */

/* Notifies the server, unless nothing is left to report. */
static void
abandon(struct http2_call *call)
{
    CHECK(call->target->call_count > 0);
    call->is_over = true;
    call->target->call_count--;
    loop_timer_clear(call->timer);
    evbuffer_drain(call->out, evbuffer_get_length(call->out));
    nghttp2_session *session = call->link->session;
    bool is_done = call->has_end && nghttp2_session_get_stream_local_close(session, call->id) == 1;
    if (!call->is_closed && !is_done)
        CHECK(nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, call->id, NGHTTP2_CANCEL) == 0);
    call_look(call);
}

static void
finish(struct http2_call *call, enum http_call_end end)
{
    call->is_notifying = true;
    abandon(call);
    call->handler->on_end(call->context, call, end);
    call->is_notifying = false;
    call_look(call);
}

static enum http_call_end
end_of(const struct http2_call *call)
{
    const struct http2_link *link = call->link;
    bool was_refused = call->closed_code == NGHTTP2_REFUSED_STREAM && !call->has_byte;
    bool is_foreign = link->is_foreign || (link->is_connected && !link->has_frame);
    if (call->is_malformed || is_foreign)
        return HTTP_CALL_MALFORMED;
    if (!link->is_connected)
        return HTTP_CALL_REFUSED;
    if (call->is_kept && !call->has_byte &&
        ((was_refused && link->is_going) || call->closed_code == NGHTTP2_NO_ERROR))
        return HTTP_CALL_STALE;
    return was_refused ? HTTP_CALL_DECLINED : HTTP_CALL_BROKEN;
}

/* A user that is notified may cancel other calls: the search begins anew. */
static void
notify_news(struct http2_link *link)
{
    struct http2_call *call;
    link->has_news = false;
    do {
        LIST_FOREACH (call, &link->calls, entry)
            // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): what was freed left the list
            if (call->is_closed && !call->is_over)
                break;
        if (call != NULL)
            finish(call, end_of(call));
    } while (call != NULL);
}

/* The connection is of no more use: all calls end. `link` is held. */
static void
lose(struct http2_link *link)
{
    struct http2_call *call;
    link->is_going = true;
    LIST_FOREACH (call, &link->calls, entry) {
        if (!call->is_closed)
            call->closed_code = NGHTTP2_NO_ERROR;
        call->is_closed = true;
    }
    notify_news(link);
    if (link->target != NULL)
        link_close(link);
}

void
http2_call_cancel(struct http2_call *call)
{
    struct http2_link *link = call->link;
    if (call->is_over) /* within on_end */
        return;
    abandon(call);
    loop_timer_set(link->timer, 0);
}

/* ---- time ---- */

static int64_t
deadline(const struct http2_call *call)
{
    return http_call_deadline(&call->timeouts,
                              &(struct http_call_progress){.started_ns = call->started_ns,
                                                           .moved_ns = call->progress_ns,
                                                           .is_connected = call->link->is_connected,
                                                           .has_byte = call->has_byte,
                                                           .is_paused = call->is_paused});
}

static void
arm(struct http2_call *call)
{
    int64_t at_ns = deadline(call);
    if (at_ns != TIME_NEVER_NS)
        loop_timer_set(call->timer, at_ns - clock_now_ns() + NS_PER_US);
}

/* A link whose server shows no sign of life serves no other call. */
static void
on_call_timer(void *context)
{
    struct http2_call *call = context;
    struct http2_link *link = call->link;
    if (deadline(call) > clock_now_ns()) {
        arm(call);
        return;
    }
    link->is_going = link->is_going || !call->has_byte;
    link->holds++;
    finish(call, link->is_connected ? HTTP_CALL_LATE : HTTP_CALL_REFUSED);
    if (link->target != NULL)
        loop_timer_set(link->timer, 0);
    link_release(link);
}

/* ---- output ---- */

static bool
is_full(const struct http2_link *link)
{
    return http_channel_output_bytes(&link->channel) > HTTP2_WRITE_BYTES;
}

static ssize_t
on_send_frame(nghttp2_session *session, const uint8_t *data, size_t bytes, int flags, void *context)
{
    (void)session, (void)flags;
    struct http2_link *link = context;
    if (is_full(link))
        return NGHTTP2_ERR_WOULDBLOCK;
    CHECK(evbuffer_add(link->channel.output, data, bytes) == 0);
    return (ssize_t)bytes;
}

static ssize_t
on_wanted(nghttp2_session *session, int32_t id,
          uint8_t *to, // NOLINT(readability-non-const-parameter): nghttp2's type
          size_t room, uint32_t *flags, nghttp2_data_source *source, void *context)
{
    (void)session, (void)id, (void)to, (void)context;
    struct http2_call *call = source->ptr;
    size_t waiting = evbuffer_get_length(call->out);
    if (call->is_over)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (waiting == 0 && !call->is_ending) {
        call->is_deferred = true;
        return NGHTTP2_ERR_DEFERRED;
    }
    if (waiting > 0)
        *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    if (waiting <= room && call->is_ending)
        *flags |= NGHTTP2_DATA_FLAG_EOF;
    return (ssize_t)(waiting < room ? waiting : room);
}

static int
on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head, size_t bytes,
             nghttp2_data_source *source, void *context)
{
    (void)session, (void)frame;
    struct http2_link *link = context;
    struct http2_call *call = source->ptr;
    if (is_full(link))
        return NGHTTP2_ERR_WOULDBLOCK;
    if (call->is_over) /* between the head of this frame and its bytes */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    CHECK(evbuffer_add(link->channel.output, head, HTTP2_DATA_HEAD_BYTES) == 0);
    CHECK(evbuffer_remove_buffer(call->out, link->channel.output, bytes) == (int)bytes);
    call->progress_ns = clock_now_ns();
    if (call->waits && evbuffer_get_length(call->out) <= HTTP_LOW_WATER_BYTES) {
        call->waits = false;
        call->handler->on_writable(call->context, call);
    }
    return 0;
}

static void
flush(struct http2_link *link)
{
    size_t before;
    bool has_framed;
    if (link->is_running || link->target == NULL || !link->has_channel)
        return;
    do {
        before = http_channel_output_bytes(&link->channel);
        link->is_running = true;
        CHECK(nghttp2_session_send(link->session) == 0);
        link->is_running = false;
        has_framed = http_channel_output_bytes(&link->channel) > before;
        http_channel_flush(&link->channel);
    } while (has_framed && http_channel_output_bytes(&link->channel) == 0);
    if (link->has_news)
        loop_timer_set(link->timer, 0);
}

/* ---- input ---- */

static void
put_field(struct fields *fields, const uint8_t *name, size_t name_bytes, const uint8_t *value,
          size_t value_bytes)
{
    bytes_put(&fields->text, name, name_bytes);
    bytes_put_char(&fields->text, '\0');
    bytes_put(&fields->text, value, value_bytes);
    bytes_put_char(&fields->text, '\0');
    CHECK(!fields->text.failed);
}

static int
on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
          size_t name_bytes, const uint8_t *value, size_t value_bytes, uint8_t flags, void *context)
{
    (void)flags;
    const struct http2_link *link = context;
    struct http2_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call == NULL || call->is_over)
        return 0;
    struct fields *fields = &call->fields[call->has_head ? HTTP2_TRAILERS : HTTP2_HEAD];
    fields->bytes += name_bytes + value_bytes + HTTP2_HEADER_COST_BYTES;
    call->is_malformed = fields->bytes > link->target->client->options.header_bytes_max ||
                         memchr(value, '\0', value_bytes) != NULL;
    if (call->is_malformed)
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    if (name_bytes == 7 && memcmp(name, ":status", 7) == 0)
        call->code = atoi((const char *)value); /* nghttp2 has checked that it is three digits */
    else
        put_field(fields, name, name_bytes, value, value_bytes);
    return 0;
}

static int
on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *context)
{
    struct http2_link *link = context;
    link->has_frame = true;
    if (frame->hd.type == NGHTTP2_GOAWAY)
        link->is_going = true;
    bool is_headers = frame->hd.type == NGHTTP2_HEADERS;
    if (!is_headers && frame->hd.type != NGHTTP2_DATA)
        return 0;
    struct http2_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
    if (call == NULL || call->is_over)
        return 0;
    bool is_interim = is_headers && !call->has_head && call->code < 200;
    bool is_head = is_headers && !call->has_head && !is_interim;
    bool is_end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    call->has_end = is_end;
    call->progress_ns = clock_now_ns();
    if (!call->has_byte) {
        call->has_byte = true;
        arm(call);
    }
    if (is_interim)
        call->fields[HTTP2_HEAD].text.used = 0;
    if (is_head) {
        call->has_head = link->has_served = true;
        call->handler->on_head(call->context, call);
    }
    if (is_end && !call->is_over)
        finish(call, call->has_head ? HTTP_CALL_DONE : HTTP_CALL_MALFORMED);
    return 0;
}

static void
consume(struct http2_call *call)
{
    if (call->is_closed || call->is_over || call->is_paused || call->unconsumed == 0)
        return;
    CHECK(nghttp2_session_consume_stream(call->link->session, call->id, call->unconsumed) == 0);
    call->unconsumed = 0;
}

static int
on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data, size_t bytes,
        void *context)
{
    (void)flags, (void)context;
    struct http2_call *call = nghttp2_session_get_stream_user_data(session, id);
    CHECK(nghttp2_session_consume_connection(session, bytes) == 0);
    if (call == NULL || call->is_over)
        return 0;
    call->progress_ns = clock_now_ns();
    call->unconsumed += bytes;
    call->handler->on_piece(call->context, call, data, bytes);
    consume(call);
    return 0;
}

static int
on_stream_close(nghttp2_session *session, int32_t id, uint32_t code, void *context)
{
    struct http2_link *link = context;
    struct http2_call *call = nghttp2_session_get_stream_user_data(session, id);
    if (call == NULL)
        return 0;
    call->is_closed = true;
    call->closed_code = code == NGHTTP2_NO_ERROR ? NGHTTP2_INTERNAL_ERROR : code;
    link->has_news = link->has_news || !call->is_over;
    call_look(call);
    return 0;
}

/* False: it is no HTTP/2, or a flood. */
static bool
take_input(struct http2_link *link)
{
    struct evbuffer *input = link->channel.input;
    struct evbuffer_iovec piece;
    ssize_t used = 0;
    while (used >= 0 && link->target != NULL && evbuffer_peek(input, -1, NULL, &piece, 1) > 0 &&
           piece.iov_len > 0) {
        size_t bytes = piece.iov_len < SLICE_BYTES ? piece.iov_len : SLICE_BYTES;
        link->is_running = true;
        used = nghttp2_session_mem_recv(link->session, piece.iov_base, bytes);
        link->is_running = false;
        evbuffer_drain(input, bytes);
        if (used >= 0 && http2_is_flooded(link->session))
            used = -1;
    }
    return used >= 0;
}

/* Returns whether there are calls. Those that are over wait for nghttp2, perhaps forever: for
 * output that the server does not read, or a stream that it does not allow. */
static bool
has_calls(const struct http2_link *link)
{
    const struct http2_call *call;
    LIST_FOREACH (call, &link->calls, entry)
        if (!call->is_over)
            return true;
    return false;
}

/* An idle link is kept for a while; one that takes no more calls is not. */
static void
finish_turn(struct http2_link *link)
{
    int64_t now_ns = clock_now_ns();
    int64_t keep_ns = link->target->client->options.keep_ns;
    bool is_over =
        !nghttp2_session_want_read(link->session) && !nghttp2_session_want_write(link->session);
    if (has_calls(link) && !is_over) {
        link->idle_ns = 0;
        return;
    }
    if (link->idle_ns == 0)
        link->idle_ns = now_ns;
    if (is_over)
        lose(link);
    else if (link->is_going || !link->is_connected || now_ns - link->idle_ns >= keep_ns)
        link_close(link);
    else
        loop_timer_set(link->timer, link->idle_ns + keep_ns - now_ns + NS_PER_US);
}

static void
run(struct http2_link *link)
{
    link->holds++;
    bool is_sound = take_input(link);
    if (link->target != NULL)
        flush(link);
    notify_news(link);
    if (link->target != NULL && !is_sound)
        lose(link);
    if (link->target != NULL) {
        flush(link);
        finish_turn(link);
    }
    if (link->target != NULL)
        http_channel_read(&link->channel, READ_BYTES);
    link_release(link);
}

/* ---- links ---- */

static void
on_link_timer(void *context)
{
    struct http2_link *link = context;
    link->holds++;
    if (!link->has_channel) /* no connection could be made */
        lose(link);
    else
        run(link);
    link_release(link);
}

static void
on_moved(void *context)
{
    run(context);
}

static void
on_event(void *context, enum http_channel_event event)
{
    struct http2_link *link = context;
    bool is_wrong = event == HTTP_CHANNEL_READY && link->channel.ssl != NULL &&
                    !http_tls_is_http2(link->channel.ssl);
    link->is_foreign = is_wrong || link->channel.state == HTTP_CHANNEL_SHAKES_HANDS;
    link->holds++;
    if (event == HTTP_CHANNEL_READY && !is_wrong) {
        link->is_connected = true;
        run(link);
    } else if (event == HTTP_CHANNEL_WRITE_FAILED && link->is_connected) {
        link->is_going = true; /* answers may have come before */
    } else {
        lose(link);
    }
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): it is held
    link_release(link);
}

static void
session_create(struct http2_link *link)
{
    nghttp2_session_callbacks *callbacks;
    nghttp2_option *option = http2_option_create();
    const uint32_t header_bytes_max = (uint32_t)link->target->client->options.header_bytes_max;
    const nghttp2_settings_entry settings[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, header_bytes_max},
    };
    CHECK(nghttp2_session_callbacks_new(&callbacks) == 0);
    nghttp2_session_callbacks_set_send_callback(callbacks, on_send_frame);
    nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data);
    nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close);
    CHECK(nghttp2_session_client_new2(&link->session, callbacks, link, option) == 0);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_option_del(option);
    CHECK(nghttp2_submit_settings(link->session, NGHTTP2_FLAG_NONE, settings,
                                  sizeof(settings) / sizeof(settings[0])) == 0);
    CHECK(nghttp2_session_set_local_window_size(link->session, NGHTTP2_FLAG_NONE, 0,
                                                CONNECTION_WINDOW_BYTES) == 0);
}

static struct http2_link *
link_open(struct http_target *target)
{
    static const struct http_channel_handler handler = {on_moved, on_moved, on_event};
    struct http2_link *link = calloc(1, sizeof(*link));
    CHECK(link != NULL);
    link->target = target;
    link->timer = loop_timer_create(target->client->base, on_link_timer, link);
    LIST_INIT(&link->calls);
    TAILQ_INSERT_TAIL(&target->links, link, entry);
    session_create(link);
    link->has_channel = http_target_connect(target, HTTP_2_ALONE, &link->channel);
    if (!link->has_channel) {
        link->is_going = true;
        loop_timer_set(link->timer, 0);
        return link;
    }
    http_channel_handle(&link->channel, &handler, link);
    link->channel.low_bytes = HTTP_LOW_WATER_BYTES;
    http_channel_read(&link->channel, READ_BYTES);
    return link;
}

static bool
has_room(const struct http2_link *link)
{
    uint32_t allowed =
        nghttp2_session_get_remote_settings(link->session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
    uint32_t max = allowed < CALLS_PER_LINK ? allowed : CALLS_PER_LINK;
    return !link->is_going && link->call_count < (max > 0 ? max : 1) &&
           nghttp2_session_check_request_allowed(link->session) != 0;
}

static struct http2_link *
link_find(struct http_target *target)
{
    struct http2_link *link;
    TAILQ_FOREACH (link, &target->links, entry)
        if (has_room(link))
            return link;
    return link_open(target);
}

/* ---- the start of a call ---- */

static nghttp2_nv
field(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)(uintptr_t)name, (uint8_t *)(uintptr_t)value, strlen(name),
                        strlen(value), NGHTTP2_NV_FLAG_NONE};
}

static void
submit(struct http2_call *call, const struct http2_call_request *request)
{
    enum { OUR_FIELDS = 4 };
    const nghttp2_data_provider provider = {.source = {.ptr = call}, .read_callback = on_wanted};
    size_t count = 0;
    nghttp2_nv *fields = calloc(request->header_count + OUR_FIELDS, sizeof(*fields));
    CHECK(fields != NULL);
    fields[count++] = field(":method", "POST");
    fields[count++] = field(":scheme", call->target->tls_name != NULL ? "https" : "http");
    fields[count++] = field(":path", request->path);
    fields[count++] = field(":authority", call->target->text);
    for (size_t i = 0; i < request->header_count; i++)
        fields[count++] = field(request->headers[i].name, request->headers[i].value);
    call->id = nghttp2_submit_request(call->link->session, NULL, fields, count, &provider, call);
    CHECK(call->id > 0);
    free(fields);
}

struct http2_call *
http2_call_start(struct http_target *target, const struct http2_call_request *request,
                 const struct http2_call_handler *handler, void *context)
{
    struct http2_call *call = calloc(1, sizeof(*call));
    CHECK(call != NULL);
    call->target = target;
    call->link = link_find(target);
    call->handler = handler;
    call->context = context;
    call->timeouts = request->timeouts;
    call->started_ns = call->progress_ns = clock_now_ns();
    call->is_kept = call->link->has_served;
    call->timer = loop_timer_create(target->client->base, on_call_timer, call);
    call->out = evbuffer_new();
    CHECK(call->out != NULL);
    LIST_INSERT_HEAD(&call->link->calls, call, entry);
    call->link->call_count++;
    call->link->idle_ns = 0;
    target->call_count++;
    submit(call, request);
    arm(call);
    loop_timer_set(call->link->timer, 0);
    return call;
}

static void
more(struct http2_call *call)
{
    if (call->is_deferred && !call->is_closed) {
        call->is_deferred = false;
        /* an error: nghttp2 is about to close it */
        (void)nghttp2_session_resume_data(call->link->session, call->id);
    }
    loop_timer_set(call->link->timer, 0);
}

enum http_flow
http2_call_send(struct http2_call *call, const void *data, size_t bytes)
{
    CHECK(!call->is_ending);
    if (call->is_over)
        return HTTP_GO_ON;
    CHECK(evbuffer_add(call->out, data, bytes) == 0);
    more(call);
    call->waits = evbuffer_get_length(call->out) > HTTP_HIGH_WATER_BYTES;
    return call->waits ? HTTP_WAIT : HTTP_GO_ON;
}

void
http2_call_send_end(struct http2_call *call)
{
    call->is_ending = true;
    if (!call->is_over)
        more(call);
}

/* ---- the answer ---- */

void
http2_call_pause(struct http2_call *call)
{
    call->is_paused = true;
}

void
http2_call_resume(struct http2_call *call)
{
    if (!call->is_paused)
        return;
    call->is_paused = false;
    call->progress_ns = clock_now_ns();
    if (call->is_over)
        return;
    arm(call);
    consume(call);
    loop_timer_set(call->link->timer, 0);
}

int
http2_call_code(const struct http2_call *call)
{
    return call->code;
}

bool
http2_call_walk(const struct http2_call *call, enum http2_block block, size_t *position,
                const char **name, const char **value)
{
    const struct bytes *text = &call->fields[block].text;
    if (*position >= text->used)
        return false;
    *name = text->data + *position;
    *value = *name + strlen(*name) + 1;
    *position = (size_t)(*value - text->data) + strlen(*value) + 1;
    return true;
}

const char *
http2_call_find(const struct http2_call *call, enum http2_block block, const char *wanted)
{
    size_t position = 0;
    const char *name;
    const char *value;
    while (http2_call_walk(call, block, &position, &name, &value))
        if (strcmp(name, wanted) == 0)
            return value;
    return NULL;
}
