/* SPDX-License-Identifier: Apache-2.0 */
#include "http/channel.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "http/tls_io.h"

/* The second is used after the first was filled. With libevent's own bytes they are powers of two,
 * as it would round them up to. */
enum { READ_SMALL_BYTES = (8 << 10) - 64, READ_LARGE_BYTES = (256 << 10) - 64 };
enum { WRITE_BYTES = 256 << 10 }; /* over TLS, in a turn of the loop */

/* ---- reading ---- */

void
http_channel_wake(struct http_channel *channel)
{
    event_active(&channel->readable, EV_READ, 0);
}

/* Adds or removes `readable`. */
static void
read_look(struct http_channel *channel)
{
    bool reads = channel->state == HTTP_CHANNEL_SHAKES_HANDS ||
                 (channel->state == HTTP_CHANNEL_OPEN && !channel->has_ended &&
                  http_channel_input_bytes(channel) < channel->input_max);
    if (reads != channel->reads)
        CHECK((reads ? event_add(&channel->readable, NULL) : event_del(&channel->readable)) == 0);
    channel->reads = reads;
    if (reads && channel->ssl != NULL && http_tls_has_pending(channel->ssl))
        http_channel_wake(channel); /* the kernel does not know of these bytes */
}

void
http_channel_read(struct http_channel *channel, size_t input_max)
{
    channel->input_max = input_max;
    read_look(channel);
}

/* Reads once; an error that came with bytes would otherwise be lost. */
static enum http_moved
read_some(struct http_channel *channel)
{
    size_t room = channel->reads_large ? READ_LARGE_BYTES : READ_SMALL_BYTES;
    size_t left = channel->input_max - http_channel_input_bytes(channel);
    struct evbuffer_iovec space;
    size_t used = 0;
    enum http_moved moved = HTTP_MOVED;
    room = room < left ? room : left;
    CHECK(evbuffer_reserve_space(channel->input, (ev_ssize_t)room, &space, 1) == 1);
    if (channel->ssl != NULL) {
        moved = http_tls_read(channel->ssl, space.iov_base, room, &used);
    } else {
        ssize_t got = recv(channel->fd, space.iov_base, room, 0);
        if (got > 0)
            used = (size_t)got;
        else
            moved = got == 0                            ? HTTP_MOVE_ENDED
                    : errno == EAGAIN || errno == EINTR ? HTTP_MOVE_WANTS_INPUT
                                                        : HTTP_MOVE_FAILED;
    }
    space.iov_len = used;
    CHECK(evbuffer_commit_space(channel->input, &space, 1) == 0);
    channel->reads_large = used == room;
    return moved;
}

static void
want_writable(struct http_channel *channel)
{
    CHECK(event_add(&channel->writable, NULL) == 0);
}

static void
shake_hands(struct http_channel *channel)
{
    enum http_moved moved = http_tls_shake_hands(channel->ssl);
    if (moved == HTTP_MOVE_WANTS_OUTPUT)
        want_writable(channel);
    if (moved == HTTP_MOVE_WANTS_OUTPUT || moved == HTTP_MOVE_WANTS_INPUT)
        return;
    if (moved == HTTP_MOVED)
        channel->state = HTTP_CHANNEL_OPEN;
    else
        channel->has_ended = channel->cannot_write = true;
    read_look(channel);
    http_channel_flush(channel);
    channel->handler->on_event(channel->context,
                               moved == HTTP_MOVED ? HTTP_CHANNEL_READY : HTTP_CHANNEL_READ_FAILED);
}

static void
on_readable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct http_channel *channel = context;
    if (channel->state == HTTP_CHANNEL_SHAKES_HANDS) {
        shake_hands(channel);
        return;
    }
    enum http_moved moved = HTTP_MOVED;
    if (channel->reads && http_channel_input_bytes(channel) < channel->input_max)
        moved = read_some(channel);
    if (moved == HTTP_MOVE_WANTS_OUTPUT)
        want_writable(channel);
    channel->has_ended =
        channel->has_ended || moved == HTTP_MOVE_ENDED || moved == HTTP_MOVE_FAILED;
    read_look(channel);
    if (channel->ssl != NULL)
        http_channel_flush(channel); /* that may have waited for what was read */
    if (moved == HTTP_MOVE_ENDED)
        channel->handler->on_event(channel->context, HTTP_CHANNEL_ENDED);
    else if (moved == HTTP_MOVE_FAILED)
        channel->handler->on_event(channel->context, HTTP_CHANNEL_READ_FAILED);
    else if (http_channel_input_bytes(channel) > 0)
        channel->handler->on_input(channel->context);
}

/* ---- writing ---- */

static enum http_moved
write_some(struct http_channel *channel)
{
    enum http_moved moved = HTTP_MOVED;
    size_t sent = 0; /* a peer that reads as fast must not keep others from their turn */
    while (channel->ssl != NULL && moved == HTTP_MOVED && sent < WRITE_BYTES &&
           http_channel_output_bytes(channel) > 0) {
        struct evbuffer_iovec piece;
        size_t used = 0;
        CHECK(evbuffer_peek(channel->output, -1, NULL, &piece, 1) > 0);
        moved = http_tls_write(channel->ssl, piece.iov_base, piece.iov_len, &used);
        evbuffer_drain(channel->output, used);
        sent += used;
    }
    if (channel->ssl != NULL || evbuffer_write(channel->output, channel->fd) >= 0 ||
        errno == EAGAIN || errno == EINTR)
        return moved == HTTP_MOVED && http_channel_output_bytes(channel) > 0
                   ? HTTP_MOVE_WANTS_OUTPUT
                   : moved;
    return HTTP_MOVE_FAILED;
}

void
http_channel_flush(struct http_channel *channel)
{
    if (channel->state != HTTP_CHANNEL_OPEN || channel->cannot_write ||
        http_channel_output_bytes(channel) == 0 ||
        event_pending(&channel->writable, EV_WRITE, NULL))
        return;
    enum http_moved moved = write_some(channel);
    if (moved == HTTP_MOVE_FAILED || moved == HTTP_MOVE_ENDED)
        event_active(&channel->writable, EV_WRITE, 0); /* fails again, in a turn of its own */
    else if (moved == HTTP_MOVE_WANTS_OUTPUT)
        want_writable(channel);
}

void
http_channel_flush_later(struct http_channel *channel)
{
    if (channel->state == HTTP_CHANNEL_OPEN && !channel->cannot_write &&
        !event_pending(&channel->writable, EV_WRITE, NULL))
        event_active(&channel->writable, EV_WRITE, 0);
}

size_t
http_channel_write(struct http_channel *channel, const struct iovec *spans, int count)
{
    struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)spans,
                             .msg_iovlen = (size_t)count};
    if (channel->state != HTTP_CHANNEL_OPEN || channel->ssl != NULL || channel->cannot_write ||
        http_channel_output_bytes(channel) > 0)
        return 0;
    ssize_t sent = sendmsg(channel->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent > 0 ? (size_t)sent : 0;
}

static void
connected(struct http_channel *channel)
{
    int code = 0;
    socklen_t bytes = sizeof(code);
    if (getsockopt(channel->fd, SOL_SOCKET, SO_ERROR, &code, &bytes) != 0 || code != 0) {
        channel->has_ended = channel->cannot_write = true;
        channel->handler->on_event(channel->context, HTTP_CHANNEL_READ_FAILED);
        return;
    }
    channel->state = channel->ssl != NULL ? HTTP_CHANNEL_SHAKES_HANDS : HTTP_CHANNEL_OPEN;
    if (channel->ssl != NULL) {
        read_look(channel);
        shake_hands(channel);
        return;
    }
    read_look(channel);
    http_channel_flush(channel);
    channel->handler->on_event(channel->context, HTTP_CHANNEL_READY);
}

static void
on_writable(evutil_socket_t fd, short what, void *context)
{
    (void)fd;
    (void)what;
    struct http_channel *channel = context;
    if (channel->state == HTTP_CHANNEL_CONNECTS) {
        connected(channel);
        return;
    }
    if (channel->state == HTTP_CHANNEL_SHAKES_HANDS) {
        shake_hands(channel);
        return;
    }
    enum http_moved moved = channel->cannot_write ? HTTP_MOVE_FAILED : write_some(channel);
    if (moved == HTTP_MOVE_WANTS_OUTPUT)
        want_writable(channel);
    if (channel->ssl != NULL && channel->reads)
        http_channel_wake(channel); /* reading may have waited for this */
    if (moved == HTTP_MOVE_FAILED || moved == HTTP_MOVE_ENDED) {
        channel->cannot_write = true;
        channel->handler->on_event(channel->context, HTTP_CHANNEL_WRITE_FAILED);
    } else if (http_channel_output_bytes(channel) <= channel->low_bytes &&
               channel->handler->on_drained != NULL) {
        channel->handler->on_drained(channel->context);
    }
}

/* ---- life ---- */

void
http_channel_init(struct http_channel *channel, struct event_base *base, int fd, struct ssl_st *ssl,
                  enum http_channel_state state)
{
    *channel = (struct http_channel){.fd = fd, .ssl = ssl, .state = state};
    channel->input = evbuffer_new();
    channel->output = evbuffer_new();
    CHECK(channel->input != NULL && channel->output != NULL);
    CHECK(event_assign(&channel->readable, base, fd, EV_READ | EV_PERSIST, on_readable, channel) ==
              0 &&
          event_assign(&channel->writable, base, fd, EV_WRITE, on_writable, channel) == 0);
    if (ssl != NULL)
        http_tls_set_fd(ssl, fd);
    if (state == HTTP_CHANNEL_CONNECTS)
        want_writable(channel);
    read_look(channel);
}

void
http_channel_handle(struct http_channel *channel, const struct http_channel_handler *handler,
                    void *context)
{
    channel->handler = handler;
    channel->context = context;
}

void
http_channel_fini(struct http_channel *channel)
{
    event_del(&channel->readable);
    event_del(&channel->writable);
    evbuffer_free(channel->input);
    evbuffer_free(channel->output);
    http_tls_free(channel->ssl);
    close(channel->fd);
}
