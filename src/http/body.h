/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The body of an HTTP/1 request: input in any pieces, the body's bytes out. Pure, like parse.h; the
 * verdict does not depend on where the input was cut.
 */
#pragma once

#include "http/parse.h"

enum { HTTP_CHUNK_LINE_BYTES_MAX = 1024, HTTP_TRAILER_BYTES_MAX = 8192 };

enum http_body_part {
    HTTP_BODY_DATA,        /* `left` bytes of a body of known length */
    HTTP_BODY_CHUNK_LINE,  /* size and extensions */
    HTTP_BODY_CHUNK_DATA,  /* `left` bytes */
    HTTP_BODY_CHUNK_END,   /* CR LF behind them */
    HTTP_BODY_TRAILER_LINE /* a field, or the final empty line */
};

struct http_body {
    enum http_body_part part;
    uint64_t left;
    uint64_t total; /* bytes of the body so far, or announced in this chunk */
    uint64_t bytes_max;
    size_t trailer_bytes;
    size_t line_used;
    char *line; /* the start of one that came in parts; NULL: none */
    int code;   /* this and the next: after HTTP_BAD */
    const char *mistake;
};

/* Validates the head's length. HTTP_DONE: there is no body; HTTP_BAD: it is too large. */
enum http_verdict http_body_init(struct http_body *body, const struct http_parser *head,
                                 uint64_t bytes_max);

/* Frees the rest of a body that did not end. */
void http_body_fini(struct http_body *body);

/* Consumes `*used` bytes, of which the last `*piece_bytes` are body bytes. HTTP_MORE: call it again
 * with the rest. */
enum http_verdict http_body_feed(struct http_body *body, const char *data, size_t bytes,
                                 size_t *used, size_t *piece_bytes);
