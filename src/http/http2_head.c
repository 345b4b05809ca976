/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The head of a request: nghttp2 unpacks the fields, and refuses heads that RFC 9113 calls
 * malformed (pseudo-fields, fields of a connection, capitals); the parser of HTTP/1 then judges
 * each field as a line of its own.
 */
#include <nghttp2/nghttp2.h>
#include <string.h>
#include <strings.h>

#include "base/check.h"
#include "http/http2.h"

static struct http_span
span_of(nghttp2_rcbuf *text)
{
    if (text == NULL)
        return (struct http_span){.data = ""};
    nghttp2_vec bytes = nghttp2_rcbuf_get_buf(text);
    return (struct http_span){.data = (const char *)bytes.base, .bytes = bytes.len};
}

static bool
is_name(struct http_span name, const char *wanted)
{
    return name.bytes == strlen(wanted) && memcmp(name.data, wanted, name.bytes) == 0;
}

static void
drop(nghttp2_rcbuf **kept)
{
    if (*kept != NULL)
        nghttp2_rcbuf_decref(*kept);
    *kept = NULL;
}

/* There is one of each: nghttp2 refuses a second. */
static void
keep(nghttp2_rcbuf **kept, nghttp2_rcbuf *value)
{
    drop(kept);
    nghttp2_rcbuf_incref(value);
    *kept = value;
}

/* Servers of HTTP/1 know but one Cookie. */
static enum http_verdict
cookie_take(struct http2_stream *stream, struct http_span value)
{
    struct bytes *cookies = &stream->head.cookies;
    if (cookies->used + value.bytes > stream->parser.bytes_max) {
        stream->parser.code = 431;
        stream->parser.mistake = "the headers are too long";
        return HTTP_BAD;
    }
    if (cookies->used > 0)
        bytes_put_text(cookies, "; ");
    bytes_put(cookies, value.data, value.bytes);
    CHECK(!cookies->failed);
    return HTTP_MORE;
}

static bool
is_grpc(struct http_span name, struct http_span value)
{
    static const char type[] = "application/grpc";
    const size_t bytes = sizeof(type) - 1;
    return is_name(name, "content-type") && value.bytes >= bytes &&
           memcmp(value.data, type, bytes) == 0 &&
           (value.bytes == bytes || value.data[bytes] == '+' || value.data[bytes] == ';');
}

void
http2_head_take(struct http2_stream *stream, nghttp2_rcbuf *name, nghttp2_rcbuf *value)
{
    struct http2_head *head = &stream->head;
    struct http_span field = span_of(name);
    head->is_grpc = head->is_grpc || is_grpc(field, span_of(value));
    if (head->verdict == HTTP_BAD)
        return;
    if (is_name(field, ":method"))
        keep(&head->method, value);
    else if (is_name(field, ":path"))
        keep(&head->path, value);
    else if (is_name(field, ":authority"))
        keep(&head->authority, value);
    else if (is_name(field, "cookie"))
        head->verdict = cookie_take(stream, span_of(value));
    else if (!is_name(field, ":scheme"))
        head->verdict = http_parser_put_field(&stream->parser, field, span_of(value));
}

/* The authority is the host; a client may name it in both ways, if it names the same one. */
static enum http_verdict
host_put(struct http2_stream *stream)
{
    static const struct http_span name = {.data = "host", .bytes = 4};
    struct http_parser *parser = &stream->parser;
    struct http_span authority = span_of(stream->head.authority);
    const char *host = http_parser_find(parser, "host");
    if (stream->head.authority == NULL)
        return HTTP_MORE;
    if (host == NULL)
        return http_parser_put_field(parser, name, authority);
    if (strlen(host) == authority.bytes && strncasecmp(host, authority.data, authority.bytes) == 0)
        return HTTP_MORE;
    parser->code = 400;
    parser->mistake = "Host differs from the authority";
    return HTTP_BAD;
}

enum http_verdict
http2_head_end(struct http2_stream *stream, enum http_rest rest)
{
    static const struct http_span cookie = {.data = "cookie", .bytes = 6};
    struct http2_head *head = &stream->head;
    struct http_parser *parser = &stream->parser;
    if (head->verdict != HTTP_BAD)
        head->verdict = http_parser_put_request(parser, span_of(head->method), span_of(head->path));
    if (head->verdict != HTTP_BAD)
        head->verdict = host_put(stream);
    if (head->verdict != HTTP_BAD && head->cookies.used > 0)
        head->verdict = http_parser_put_field(
            parser, cookie,
            (struct http_span){.data = head->cookies.data, .bytes = head->cookies.used});
    enum http_verdict verdict =
        head->verdict == HTTP_BAD ? HTTP_BAD : http_parser_put_end(parser, rest);
    http2_head_fini(stream);
    return verdict;
}

void
http2_head_fini(struct http2_stream *stream)
{
    drop(&stream->head.method);
    drop(&stream->head.path);
    drop(&stream->head.authority);
    bytes_fini(&stream->head.cookies);
}
