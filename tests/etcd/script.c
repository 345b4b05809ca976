/* SPDX-License-Identifier: Apache-2.0 */
#include "script.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <sys/queue.h>

#include "rig.h"

struct line {
    LIST_ENTRY(line) link;
    struct script *script;
    struct bufferevent *peer;
    bool asking; /* has a request that was not answered as a whole */
};

struct script {
    struct evconnlistener *listener;
    LIST_HEAD(, line) lines;
    struct line *asking; /* the newest with a request; NULL: none, or it is gone */
    size_t requests;
    char path[64];
    char url[URL_BYTES];
};

static void
line_end(struct line *line)
{
    if (line->script->asking == line)
        line->script->asking = NULL;
    LIST_REMOVE(line, link);
    bufferevent_free(line->peer);
    free(line);
}

/* The length of the request at the beginning of the input; 0: it has not come as a whole. */
static size_t
request_bytes(struct evbuffer *input)
{
    struct evbuffer_ptr end = evbuffer_search(input, "\r\n\r\n", 4, NULL);
    if (end.pos < 0)
        return 0;
    char head[4096];
    size_t bytes = (size_t)end.pos + 4;
    assert_true(bytes < sizeof(head));
    evbuffer_copyout(input, head, bytes);
    head[bytes] = '\0';
    const char *length = strcasestr(head, "\r\nContent-Length:");
    assert_non_null(length); /* a body without one would be waited for by etcd */
    bytes += strtoul(length + 17, NULL, 10);
    return evbuffer_get_length(input) < bytes ? 0 : bytes;
}

static void
on_data(struct bufferevent *peer, void *context)
{
    struct line *line = context;
    struct script *script = line->script;
    struct evbuffer *input = bufferevent_get_input(peer);
    size_t bytes;
    while ((bytes = request_bytes(input)) > 0) {
        char first[128] = {0};
        evbuffer_copyout(input, first, bytes < sizeof(first) ? bytes : sizeof(first) - 1);
        assert_int_equal(sscanf(first, "POST %63s", script->path), 1); /* NOLINT */
        evbuffer_drain(input, bytes);
        script->requests++;
        script->asking = line;
        line->asking = true;
    }
}

static void
on_line_event(struct bufferevent *peer, short what, void *context)
{
    (void)peer;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        line_end(context);
}

static void
on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int length,
          void *context)
{
    (void)listener;
    (void)from;
    (void)length;
    struct script *script = context;
    struct line *line = calloc(1, sizeof(*line));
    assert_non_null(line);
    line->script = script;
    LIST_INSERT_HEAD(&script->lines, line, link);
    line->peer = bufferevent_socket_new(rig_base(), fd, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(line->peer, on_data, NULL, on_line_event, line);
    bufferevent_enable(line->peer, EV_READ | EV_WRITE);
}

struct script *
script_start(void)
{
    struct script *script = calloc(1, sizeof(*script));
    assert_non_null(script);
    LIST_INIT(&script->lines);
    script->listener = rig_listen(on_accept, script, script->url);
    return script;
}

void
script_stop(struct script *script)
{
    while (!LIST_EMPTY(&script->lines))
        line_end(LIST_FIRST(&script->lines));
    evconnlistener_free(script->listener);
    free(script);
}

const char *
script_url(const struct script *script)
{
    return script->url;
}

size_t
script_requests(const struct script *script)
{
    return script->requests;
}

const char *
script_path(const struct script *script)
{
    return script->path;
}

void
script_say(struct script *script, const char *bytes, size_t count)
{
    if (script->asking != NULL) /* a client may have left before */
        bufferevent_write(script->asking->peer, bytes, count);
}

static void
say(struct script *script, const char *text)
{
    script_say(script, text, strlen(text));
}

void
script_hang_up(struct script *script)
{
    assert_non_null(script->asking);
    line_end(script->asking);
}

void
script_answer(struct script *script, int http_status, const char *body)
{
    char head[128];
    snprintf(head, sizeof(head), "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n", http_status,
             strlen(body));
    say(script, head);
    say(script, body);
    if (script->asking != NULL)
        script->asking->asking = false;
}

void
script_answer_all(struct script *script, int http_status, const char *body)
{
    struct line *line;
    LIST_FOREACH (line, &script->lines, link) {
        script->asking = line;
        if (line->asking)
            script_answer(script, http_status, body);
    }
}

void
script_stream(struct script *script)
{
    say(script, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
}

void
script_chunk(struct script *script, const char *text)
{
    char size[24];
    snprintf(size, sizeof(size), "%zx\r\n", strlen(text));
    say(script, size);
    say(script, text);
    say(script, "\r\n");
}

void
script_stream_end(struct script *script)
{
    say(script, "0\r\n\r\n");
}
