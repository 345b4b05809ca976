/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An HTTP/1.1 client on an event loop of libevent's: one call at a time per connection, idle
 * connections kept for the next call.
 *
 * Threads. As in server.h: everything on the thread of the event base.
 *
 * Ownership. A call lives from http_call_start until its on_end returns or http_call_cancel.
 * on_end comes exactly once unless the call is cancelled, never from inside http_call_start.
 * Afterwards neither the call nor the accessors may be used. A handler may cancel its call, start
 * others or destroy nothing but that, from any callback.
 *
 * TLS. A server must show a certificate of a known authority with the target's name.
 *
 * Errors. An answer is refused as malformed by the rules that parse.h has for requests; one without
 * length and chunks lasts until the server closes. 1xx answers are skipped, at most eight; 101 is
 * malformed, because no call asks for another protocol.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "http/server.h"

struct http_call;
struct http_client;
struct http_target;

struct http_client_options {
    uint32_t idle_max; /* connections kept idle per target; the one idle longest is closed */
    int64_t keep_ns;   /* an idle connection is closed after this */
    size_t header_bytes_max;
    struct http_tls *tls; /* from http_tls_create_client; NULL: no target has TLS */
};

/* Copies `options`. */
struct http_client *http_client_create(struct event_base *base,
                                       const struct http_client_options *options);
/* Every target has been destroyed. NULL is ignored. */
void http_client_destroy(struct http_client *client);

/* A destination of calls: "127.0.0.1:8000" or "[::1]:8000". No names: resolving them would block.
 * `tls_name`: the name or numeric address in the server's certificate; NULL: without TLS.
 * INVALID_ARGUMENT with the address. */
enum status http_target_create(struct http_client *client, const char *address,
                               const char *tls_name, struct http_target **target,
                               struct error *error) WARN_UNUSED;
/* No call is open (CHECK). Closes idle connections. NULL is ignored. */
void http_target_destroy(struct http_target *target);

enum http_call_end {
    HTTP_CALL_DONE,      /* the whole answer has arrived */
    HTTP_CALL_REFUSED,   /* no connection: refused, unreachable, no descriptor, or timed out */
    HTTP_CALL_STALE,     /* a kept connection ended before the first byte: repeating is sensible */
    HTTP_CALL_BROKEN,    /* the server closed or reset before the end of its answer */
    HTTP_CALL_MALFORMED, /* the answer breaks HTTP */
    HTTP_CALL_LATE,      /* the first byte, the next byte or the end came too late */
    HTTP_CALL_DECLINED   /* over HTTP/2: the server has not looked at it */
};

/* 0: no limit. */
struct http_call_timeouts {
    int64_t connect_ns;
    int64_t first_byte_ns; /* from the start of the call to the answer's first byte */
    int64_t idle_ns;       /* between two bytes of the answer; not while paused */
    int64_t total_ns;
};

struct http_call_request {
    const char *method;
    const char *path;                  /* with its query */
    const struct http_header *headers; /* without Host, Content-Length and Connection */
    size_t header_count;
    const void *body; /* lent until the call ends or has sent it; NULL: none */
    size_t body_bytes;
    struct http_call_timeouts timeouts;
};

struct http_call_handler {
    /* The answer's head has arrived: use the accessors below, here or later. */
    void (*on_head)(void *context, struct http_call *call);
    /* Bytes of the body, valid during the call. */
    void (*on_piece)(void *context, struct http_call *call, const void *data, size_t bytes);
    void (*on_end)(void *context, struct http_call *call, enum http_call_end end);
};

/* Copies `request` but not the body. The handler must outlive the call. */
struct http_call *http_call_start(struct http_target *target,
                                  const struct http_call_request *request,
                                  const struct http_call_handler *handler, void *context);
/* No callback comes any more; the connection is closed, so that the server sees it. */
void http_call_cancel(struct http_call *call);

/* No piece comes between pause and resume: the rest waits in the kernel and with the server. */
void http_call_pause(struct http_call *call);
void http_call_resume(struct http_call *call);

/* ---- after on_head ---- */

int http_call_code(const struct http_call *call);
/* The first header with that name, in any case; NULL: none. */
const char *http_call_header(const struct http_call *call, const char *name);
/* Iterates over the headers in their order, from position 0; false at the end. */
bool http_call_header_walk(const struct http_call *call, size_t *position, const char **name,
                           const char **value);
/* Returns, in on_piece, whether more bytes have arrived behind this piece, perhaps another one. */
bool http_call_has_more(const struct http_call *call);
/* The whole request was sent: its body is not needed any more. */
bool http_call_has_sent(const struct http_call *call);
/* The announced length; -1: chunked, or until the connection closes. */
int64_t http_call_length(const struct http_call *call);

/* Returns, in on_end, what is wrong after HTTP_CALL_MALFORMED, or why the server's certificate was
 * refused after HTTP_CALL_REFUSED, or NULL. */
const char *http_call_mistake(const struct http_call *call);
