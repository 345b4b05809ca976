/* SPDX-License-Identifier: Apache-2.0 */
#include "proxy.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <sys/queue.h>

#include "rig.h"

struct pipe {
    LIST_ENTRY(pipe) link;
    struct proxy *proxy;
    struct bufferevent *client;
    struct bufferevent *server;
    bool watches;
};

struct proxy {
    struct evconnlistener *listener;
    LIST_HEAD(, pipe) pipes;
    enum proxy_mode mode;
    int target_port;
    size_t connections, open, requests;
    char url[URL_BYTES];
};

static void
pipe_end(struct pipe *pipe)
{
    LIST_REMOVE(pipe, link);
    pipe->proxy->open--;
    bufferevent_free(pipe->client);
    bufferevent_free(pipe->server);
    free(pipe);
}

/* Each request of the gateway's clients is one POST; its head comes in one piece here. */
static void
count_requests(struct pipe *pipe, struct evbuffer *input)
{
    struct evbuffer_ptr at = evbuffer_search(input, "POST ", 5, NULL);
    pipe->proxy->requests += at.pos == 0;
    pipe->watches |= evbuffer_search(input, "POST /v3/watch", 14, NULL).pos == 0;
}

static void
on_client_data(struct bufferevent *client, void *context)
{
    struct pipe *pipe = context;
    struct evbuffer *input = bufferevent_get_input(client);
    count_requests(pipe, input);
    switch (pipe->proxy->mode) {
    case PROXY_SWALLOW: evbuffer_drain(input, evbuffer_get_length(input)); break;
    case PROXY_DROP_REQUEST:
        if (evbuffer_search(input, "}", 1, NULL).pos >= 0) /* the body's end */
            pipe_end(pipe);
        break;
    case PROXY_PASS:
    case PROXY_MUTE_WATCHES:
    case PROXY_HOLD_ANSWERS:
    case PROXY_DROP_ANSWER: bufferevent_write_buffer(pipe->server, input); break;
    }
}

static void
on_server_data(struct bufferevent *server, void *context)
{
    struct pipe *pipe = context;
    enum proxy_mode mode = pipe->proxy->mode;
    if (mode == PROXY_HOLD_ANSWERS && !pipe->watches)
        return;
    if (mode == PROXY_DROP_ANSWER)
        pipe_end(pipe);
    else if (mode == PROXY_PASS || mode == PROXY_HOLD_ANSWERS ||
             (mode == PROXY_MUTE_WATCHES && !pipe->watches))
        bufferevent_write_buffer(pipe->client, bufferevent_get_input(server));
    else
        evbuffer_drain(bufferevent_get_input(server), SIZE_MAX);
}

static void
on_pipe_event(struct bufferevent *one, short what, void *context)
{
    (void)one;
    if (what & (BEV_EVENT_EOF | BEV_EVENT_ERROR))
        pipe_end(context);
}

static void
on_accept(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *from, int length,
          void *context)
{
    (void)listener;
    (void)from;
    (void)length;
    struct proxy *proxy = context;
    struct sockaddr_in target = {.sin_family = AF_INET,
                                 .sin_port = htons((uint16_t)proxy->target_port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct pipe *pipe = calloc(1, sizeof(*pipe));
    assert_non_null(pipe);
    pipe->proxy = proxy;
    proxy->connections++;
    proxy->open++;
    LIST_INSERT_HEAD(&proxy->pipes, pipe, link);
    pipe->client = bufferevent_socket_new(rig_base(), fd, BEV_OPT_CLOSE_ON_FREE);
    pipe->server = bufferevent_socket_new(rig_base(), -1, BEV_OPT_CLOSE_ON_FREE);
    bufferevent_setcb(pipe->client, on_client_data, NULL, on_pipe_event, pipe);
    bufferevent_setcb(pipe->server, on_server_data, NULL, on_pipe_event, pipe);
    bufferevent_enable(pipe->client, EV_READ | EV_WRITE);
    bufferevent_enable(pipe->server, EV_READ | EV_WRITE);
    bufferevent_socket_connect(pipe->server, (struct sockaddr *)&target, sizeof(target));
}

struct proxy *
proxy_start(int target_port)
{
    struct proxy *proxy = calloc(1, sizeof(*proxy));
    assert_non_null(proxy);
    proxy->target_port = target_port;
    LIST_INIT(&proxy->pipes);
    proxy->listener = rig_listen(on_accept, proxy, proxy->url);
    return proxy;
}

void
proxy_stop(struct proxy *proxy)
{
    if (proxy == NULL)
        return;
    proxy_cut(proxy);
    evconnlistener_free(proxy->listener);
    free(proxy);
}

const char *
proxy_url(const struct proxy *proxy)
{
    return proxy->url;
}

void
proxy_set(struct proxy *proxy, enum proxy_mode mode)
{
    struct pipe *pipe, *next;
    bool held = proxy->mode == PROXY_HOLD_ANSWERS;
    proxy->mode = mode;
    for (pipe = LIST_FIRST(&proxy->pipes); held && pipe != NULL; pipe = next) {
        next = LIST_NEXT(pipe, link);
        if (evbuffer_get_length(bufferevent_get_input(pipe->server)) > 0)
            on_server_data(pipe->server, pipe);
    }
}

void
proxy_cut(struct proxy *proxy)
{
    while (!LIST_EMPTY(&proxy->pipes))
        pipe_end(LIST_FIRST(&proxy->pipes));
}

size_t
proxy_connections(const struct proxy *proxy)
{
    return proxy->connections;
}

size_t
proxy_open(const struct proxy *proxy)
{
    return proxy->open;
}

size_t
proxy_requests(const struct proxy *proxy)
{
    return proxy->requests;
}
