/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gRPC server over cleartext HTTP/2 on an event base: nghttp2 frames, this module adds gRPC's
 * messages, limits and times. The gateway's only thread runs it (DESIGN.md says why it is not
 * src/rpc).
 *
 * Life of a stream. `on_open` hands it to the user, which ends it with grpc_finish; after that, or
 * after `on_gone`, the pointer is dead. Callbacks come only from the event loop, never from within
 * a function of this module.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct event_base;
struct grpc_server;
struct grpc_stream;

enum grpc_overflow {
    GRPC_MESSAGE_TOO_LARGE,
    GRPC_HELD_FULL, /* held_bytes_max */
};

/* The callbacks. All may be called only for streams that are not finished. */
struct grpc_method {
    const char *path;
    void (*on_open)(void *context, struct grpc_stream *stream);
    /* The message is valid until it returns. */
    void (*on_message)(struct grpc_stream *stream, const void *data, size_t bytes);
    void (*on_half_close)(struct grpc_stream *stream);
    /* Reset by the client, lost with its connection, or idle for too long. May be NULL. */
    void (*on_gone)(struct grpc_stream *stream);
    /* A message that will not come. NULL: RESOURCE_EXHAUSTED. */
    void (*on_overflow)(struct grpc_stream *stream, enum grpc_overflow overflow);
    /* Little is waiting to be sent: the time for the next piece of something large. May be NULL. */
    void (*on_writable)(struct grpc_stream *stream);
};

struct grpc_options {
    const char *name; /* in the log */
    const char *listen;
    uint32_t connections_max;
    uint32_t streams_max; /* of all connections; more are reset */
    size_t message_bytes_max;
    uint64_t held_bytes_max;
    int64_t idle_timeout_ns;           /* of a stream between two messages */
    const struct grpc_method *methods; /* kept */
    size_t method_count;
    void *context;
};

struct grpc_figures {
    uint32_t connections;
    uint32_t streams;
    uint64_t held_bytes; /* of messages in both directions, and of what grpc_hold took */
    uint64_t connections_total;
    uint64_t connections_refused; /* connections_max */
    uint64_t connections_evicted; /* idle, for a new one */
    uint64_t streams_reset;       /* streams_max */
    uint64_t malformed;           /* messages and connections */
    uint64_t overflows;           /* message_bytes_max, held_bytes_max */
    uint64_t idle;                /* idle_timeout_ns */
    uint64_t not_accepting;       /* no descriptor or memory */
};

enum status grpc_front_create(struct event_base *base, const struct grpc_options *options,
                              struct grpc_server **server, struct error *error) WARN_UNUSED;
/* Closes the listener and asks clients to reconnect elsewhere; streams go on. */
void grpc_front_part(struct grpc_server *server);
/* NULL is ignored. Calls on_gone for what is open. */
void grpc_front_destroy(struct grpc_server *server);
const struct grpc_figures *grpc_front_figures(const struct grpc_server *server);

/* Counts memory of the user's against held_bytes_max. False: there is no room. */
bool grpc_hold(struct grpc_server *server, size_t bytes) WARN_UNUSED;
void grpc_hold_end(struct grpc_server *server, size_t bytes);

void grpc_stream_set_user(struct grpc_stream *stream, void *user);
void *grpc_stream_user(const struct grpc_stream *stream);
/* A message in two parts, which are copied. */
void grpc_send(struct grpc_stream *stream, const void *head, size_t head_bytes, const void *tail,
               size_t tail_bytes);
/* Bytes that wait to be sent. */
size_t grpc_waiting(const struct grpc_stream *stream);
/* `text` may be NULL; it is copied. Waiting messages are sent first. */
void grpc_finish(struct grpc_stream *stream, enum status status, const char *text);
