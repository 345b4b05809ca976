/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connected socket, plain or TLS, with the bytes that were read and the bytes to be written. Not
 * libevent's bufferevent: that reads 4 KiB at a time, asks the kernel how much there is before each
 * read, and cannot write without a turn of the loop.
 *
 * Each callback is the last thing that a channel does in its turn: it may destroy the channel. No
 * callback comes from inside a function of this header.
 */
#pragma once

#include <event2/buffer.h>
#include <event2/event.h>
#include <event2/event_struct.h>
#include <stdbool.h>
#include <sys/uio.h>

struct ssl_st;

enum http_channel_event {
    HTTP_CHANNEL_READY,       /* connected, and the TLS handshake is over */
    HTTP_CHANNEL_ENDED,       /* the peer sends no more; nothing is read any more */
    HTTP_CHANNEL_READ_FAILED, /* likewise: by an error. Before READY: no connection */
    HTTP_CHANNEL_WRITE_FAILED /* nothing is written any more; input can be read */
};

struct http_channel_handler {
    void (*on_input)(void *context);
    /* Called after a write by the loop that left no more than `low_bytes` to be written. May be
     * NULL. */
    void (*on_drained)(void *context);
    void (*on_event)(void *context, enum http_channel_event event);
};

enum http_channel_state { HTTP_CHANNEL_CONNECTS, HTTP_CHANNEL_SHAKES_HANDS, HTTP_CHANNEL_OPEN };

struct http_channel {
    int fd;
    enum http_channel_state state;
    bool has_ended;     /* reads no more */
    bool cannot_write;  /* writes no more */
    bool reads;         /* `readable` is added */
    bool reads_large;   /* the last read filled its room */
    size_t input_max;   /* reads until the input has as many bytes */
    size_t low_bytes;   /* for on_drained */
    struct ssl_st *ssl; /* NULL: plain */
    struct evbuffer *input;
    struct evbuffer *output;
    struct event readable;
    struct event writable;
    const struct http_channel_handler *handler;
    void *context;
};

/* Takes over the descriptor and `ssl`. CONNECTS and SHAKES_HANDS end in READY, or a failure. */
void http_channel_init(struct http_channel *channel, struct event_base *base, int fd,
                       struct ssl_st *ssl, enum http_channel_state state);
void http_channel_handle(struct http_channel *channel, const struct http_channel_handler *handler,
                         void *context);
/* Closes the descriptor; bytes that wait are lost. */
void http_channel_fini(struct http_channel *channel);

/* Reads until the input has `input_max` bytes; 0: not now. To be called again after bytes were
 * taken from the input. */
void http_channel_read(struct http_channel *channel, size_t input_max);
/* Calls on_input in another turn of the loop, though nothing may arrive. */
void http_channel_wake(struct http_channel *channel);

/* Writes what the socket takes at once of these bytes, if none wait before them; returns how
 * many. */
size_t http_channel_write(struct http_channel *channel, const struct iovec *spans, int count);
/* Bytes were added to the output: writes them, if none wait before them. */
void http_channel_flush(struct http_channel *channel);
/* Like http_channel_flush(), but after the callbacks of this turn of the loop, with what they add
 * until then. */
void http_channel_flush_later(struct http_channel *channel);

static inline size_t
http_channel_input_bytes(const struct http_channel *channel)
{
    return evbuffer_get_length(channel->input);
}

static inline size_t
http_channel_output_bytes(const struct http_channel *channel)
{
    return evbuffer_get_length(channel->output);
}
