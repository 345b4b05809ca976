/* SPDX-License-Identifier: Apache-2.0 */
/* grpc_server.c accepts and ends idle streams; grpc_connection.c frames; grpc_limits.c counts. */
#pragma once

#include <sys/queue.h>

#include "base/bytes.h"
#include "gateway/extproc/grpc.h"
#include "loop/timer.h"

struct event;
struct nghttp2_session;
struct nghttp2_session_callbacks;
struct nghttp2_option;

enum {
    GRPC_PREFIX_BYTES = 5,
    GRPC_INPUT_BYTES = 256 << 10,
    GRPC_PATH_BYTES = 128,
    GRPC_STATUS_TEXT_BYTES = 256,
};

struct grpc_stream {
    struct grpc_connection *connection;
    int32_t id;
    const struct grpc_method *method; /* NULL: finished, or not opened */
    void *user;
    int64_t since_ns; /* when a message last moved */
    char path[GRPC_PATH_BYTES];
    size_t header_bytes; /* as the client wrote them before compression */

    /* what arrives */
    unsigned char prefix[GRPC_PREFIX_BYTES];
    size_t prefix_used;
    size_t message_bytes;
    struct bytes in; /* a message whose rest is to come */
    size_t in_held;
    size_t unconsumed; /* not granted to the client again, because `out` is full */

    /* what leaves */
    struct bytes out;
    size_t out_at;
    size_t out_held; /* its capacity, as counted in held_bytes */
    bool has_begun;
    bool is_deferred; /* nghttp2 asks again only when told */
    bool is_ending;
    bool half_closed; /* the client sends no more */
    enum status status;
    char status_text[GRPC_STATUS_TEXT_BYTES];

    LIST_ENTRY(grpc_stream) link;
    TAILQ_ENTRY(grpc_stream) by_time;
};

struct grpc_connection {
    struct grpc_server *server;
    int fd;
    struct event *readable;
    struct event *writable;
    struct nghttp2_session *session;
    struct bytes out;
    size_t out_at;
    bool is_running; /* input is being handled: output follows at its end */
    uint32_t stream_count;
    LIST_HEAD(, grpc_stream) streams;
    TAILQ_ENTRY(grpc_connection) link; /* the one used last is last */
};

struct grpc_server {
    struct event_base *base;
    struct grpc_options options;
    struct grpc_figures figures;
    int fd;
    char *unix_path;
    struct event *readable;
    struct loop_timer *idle;
    struct loop_timer *pause;
    struct nghttp2_session_callbacks *callbacks;
    struct nghttp2_option *option;
    unsigned char *input;
    TAILQ_HEAD(grpc_connections, grpc_connection) connections;
    TAILQ_HEAD(grpc_streams, grpc_stream) streams; /* the one idle longest first */
};

/* ---- grpc_connection.c ---- */

void grpc_frames_init(struct grpc_server *server);
void grpc_frames_fini(struct grpc_server *server);
/* Takes the descriptor. */
void grpc_connection_open(struct grpc_server *server, int fd);
void grpc_connection_close(struct grpc_connection *connection);
void grpc_connection_part(struct grpc_connection *connection);
/* Ends an idle stream, whether or not it is finished already. */
void grpc_stream_expire(struct grpc_stream *stream);

/* ---- grpc_limits.c ---- */

/* Sets the timer for the stream that has been idle longest. */
void grpc_idle_arm(struct grpc_server *server, int64_t now_ns);
/* A message moved: the stream is not idle. */
void grpc_stream_touch(struct grpc_stream *stream);
