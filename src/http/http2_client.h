/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls over HTTP/2, whose requests and answers may be streamed at once. The calls of a target
 * share connections, each of which carries up to a hundred, or as many as its server allows.
 *
 * Threads and ownership as in client.h, with the same ends. Without TLS the server must know HTTP/2
 * without being asked; with it, it must choose it by ALPN.
 */
#pragma once

#include "http/client.h"

struct http2_call;

struct http2_call_request {
    const char *path;
    const struct http_header *headers; /* without those that frame a message; Host is ours */
    size_t header_count;
    struct http_call_timeouts timeouts; /* idle_ns: between two bytes of either direction */
};

struct http2_call_handler {
    void (*on_head)(void *context, struct http2_call *call);
    /* Bytes of the answer's body, valid during the call. */
    void (*on_piece)(void *context, struct http2_call *call, const void *data, size_t bytes);
    /* Called after HTTP_WAIT, when less than HTTP_LOW_WATER_BYTES wait. May send more, and must
     * call nothing else of this client. */
    void (*on_writable)(void *context, struct http2_call *call);
    /* DONE: the answer is whole, though perhaps the request is not. MALFORMED: also a server that
     * can be reached, but not by HTTP/2. */
    void (*on_end)(void *context, struct http2_call *call, enum http_call_end end);
};

/* Copies `request`. The handler must outlive the call. */
struct http2_call *http2_call_start(struct http_target *target,
                                    const struct http2_call_request *request,
                                    const struct http2_call_handler *handler, void *context);
/* More of the request's body, which is copied. HTTP_WAIT: more than HTTP_HIGH_WATER_BYTES wait. */
enum http_flow http2_call_send(struct http2_call *call, const void *data, size_t bytes);
/* The request is whole. */
void http2_call_send_end(struct http2_call *call);
/* No callback comes any more; the server is notified. */
void http2_call_cancel(struct http2_call *call);

/* Between pause and resume the server may send no more than it has been allowed: 256 KiB. */
void http2_call_pause(struct http2_call *call);
void http2_call_resume(struct http2_call *call);

/* The fields may be read from on_head on, the trailers in on_end. */
enum http2_block { HTTP2_HEAD, HTTP2_TRAILERS };
int http2_call_code(const struct http2_call *call);
/* The first field with that name, in small letters; NULL: none. */
const char *http2_call_find(const struct http2_call *call, enum http2_block block,
                            const char *name);
/* Iterates over fields in their order, from position 0; false at the end. */
bool http2_call_walk(const struct http2_call *call, enum http2_block block, size_t *position,
                     const char **name, const char **value);
