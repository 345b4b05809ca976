/* SPDX-License-Identifier: Apache-2.0 */
#include "http/body.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hex.h"

enum { HEX_DIGITS_MAX = 15 }; /* no sum of sizes overflows */

static enum http_verdict
bad(struct http_body *body, int code, const char *mistake)
{
    body->code = code;
    body->mistake = mistake;
    return HTTP_BAD;
}

static enum http_verdict
too_large(struct http_body *body)
{
    return bad(body, 413, "the body is too large");
}

void
http_body_fini(struct http_body *body)
{
    free(body->line);
    body->line = NULL;
    body->line_used = 0;
}

enum http_verdict
http_body_init(struct http_body *body, const struct http_parser *head, uint64_t bytes_max)
{
    body->part = head->is_chunked ? HTTP_BODY_CHUNK_LINE : HTTP_BODY_DATA;
    body->left = head->is_chunked ? 0 : head->length;
    body->total = body->left;
    body->bytes_max = bytes_max;
    body->trailer_bytes = 0;
    body->line = NULL;
    body->line_used = 0;
    if (body->total > bytes_max)
        return too_large(body);
    return head->is_chunked || body->left > 0 ? HTTP_MORE : HTTP_DONE;
}

/* SIZE [; extensions], which are ignored. */
static enum http_verdict
judge_size(struct http_body *body, const char *line, size_t bytes)
{
    uint64_t size = 0;
    size_t digits = 0;
    for (; digits < bytes && hex_digit(line[digits]) >= 0; digits++) {
        if (digits == HEX_DIGITS_MAX)
            return too_large(body);
        size = size << 4 | (uint64_t)hex_digit(line[digits]);
    }
    size_t at = digits;
    while (at < bytes && (line[at] == ' ' || line[at] == '\t'))
        at++;
    if (digits == 0 || (at < bytes && line[at] != ';') || (at == bytes && at != digits))
        return bad(body, 400, "a chunk's size is malformed");
    for (; at < bytes; at++)
        if (((unsigned char)line[at] < 0x20 && line[at] != '\t') || line[at] == 0x7f)
            return bad(body, 400, "a chunk's extension holds a control character");
    if (size > body->bytes_max - body->total)
        return too_large(body);
    body->total += size;
    body->left = size;
    body->part = size > 0 ? HTTP_BODY_CHUNK_DATA : HTTP_BODY_TRAILER_LINE;
    return HTTP_MORE;
}

static enum http_verdict
judge_trailer(struct http_body *body, const char *line, size_t bytes)
{
    size_t name;
    size_t value;
    size_t value_bytes;
    if (bytes == 0)
        return HTTP_DONE;
    const char *mistake = http_field_judge(line, bytes, &name, &value, &value_bytes);
    return mistake != NULL ? bad(body, 400, mistake) : HTTP_MORE;
}

/* A line with its LF. */
static enum http_verdict
judge_line(struct http_body *body, const char *line, size_t bytes)
{
    if (bytes == 1 || line[bytes - 2] != '\r')
        return bad(body, 400, "a line between chunks is malformed: it ends in LF without CR");
    bytes -= 2;
    switch (body->part) {
    case HTTP_BODY_CHUNK_LINE: return judge_size(body, line, bytes);
    case HTTP_BODY_TRAILER_LINE: return judge_trailer(body, line, bytes);
    case HTTP_BODY_CHUNK_END:
        body->part = HTTP_BODY_CHUNK_LINE;
        return bytes == 0 ? HTTP_MORE : bad(body, 400, "a chunk is longer than its size says");
    case HTTP_BODY_DATA:
    case HTTP_BODY_CHUNK_DATA: break;
    }
    UNREACHABLE();
}

static size_t
line_room(const struct http_body *body)
{
    if (body->part == HTTP_BODY_CHUNK_END)
        return 2 - body->line_used;
    size_t room = HTTP_CHUNK_LINE_BYTES_MAX - body->line_used;
    size_t trailers = HTTP_TRAILER_BYTES_MAX - body->trailer_bytes;
    return body->part == HTTP_BODY_TRAILER_LINE && trailers < room ? trailers : room;
}

static enum http_verdict
line_feed(struct http_body *body, const char *data, size_t bytes, size_t *used)
{
    size_t room = line_room(body);
    size_t looked = bytes < room ? bytes : room;
    const char *end = memchr(data, '\n', looked);
    *used = end != NULL ? (size_t)(end - data) + 1 : looked;
    if (body->part == HTTP_BODY_TRAILER_LINE)
        body->trailer_bytes += *used;
    if (end != NULL && body->line == NULL)
        return judge_line(body, data, *used);
    if (body->line == NULL)
        body->line = malloc(HTTP_CHUNK_LINE_BYTES_MAX);
    CHECK(body->line != NULL);
    memcpy(body->line + body->line_used, data, *used);
    body->line_used += *used;
    if (end != NULL) {
        enum http_verdict verdict = judge_line(body, body->line, body->line_used);
        http_body_fini(body);
        return verdict;
    }
    if (*used < room)
        return HTTP_MORE;
    return body->part == HTTP_BODY_CHUNK_END
               ? bad(body, 400, "a chunk is longer than its size says")
               : bad(body, 400, "a line between chunks, or the trailer, is too long");
}

enum http_verdict
http_body_feed(struct http_body *body, const char *data, size_t bytes, size_t *used,
               size_t *piece_bytes)
{
    *piece_bytes = 0;
    *used = 0;
    if (bytes == 0)
        return HTTP_MORE;
    if (body->part != HTTP_BODY_DATA && body->part != HTTP_BODY_CHUNK_DATA)
        return line_feed(body, data, bytes, used);
    *used = *piece_bytes = bytes < body->left ? bytes : (size_t)body->left;
    body->left -= *used;
    if (body->left > 0)
        return HTTP_MORE;
    if (body->part == HTTP_BODY_DATA)
        return HTTP_DONE;
    body->part = HTTP_BODY_CHUNK_END;
    return HTTP_MORE;
}
