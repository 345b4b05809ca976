/* SPDX-License-Identifier: Apache-2.0 */
#include "http/inflate.h"

#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>

#include "base/check.h"

enum {
    CHUNK_BYTES_MIN = 16 * 1024,
    CHUNK_BYTES_MAX = 1 << 20,
    INPUT_BYTES_MAX = 1 << 30, /* zlib counts in 32 bits */
    MEMBERS_MAX = 1024,        /* of a gzip body; empty ones would cost time for nothing */
    GZIP_WINDOW_BITS = MAX_WBITS + 16,
    ZLIB_WINDOW_BITS = MAX_WBITS,
};

struct http_inflation {
    z_stream stream;
    const char *input;
    size_t input_left; /* not given to the stream yet */
    struct bytes *out;
    size_t bytes_max;
    struct error *error;
};

enum http_coding
http_coding_of(const char *content_encoding)
{
    static const struct {
        const char *name;
        enum http_coding coding;
    } codings[] = {
        {"", HTTP_CODING_NONE},       {"identity", HTTP_CODING_NONE},   {"gzip", HTTP_CODING_GZIP},
        {"x-gzip", HTTP_CODING_GZIP}, {"deflate", HTTP_CODING_DEFLATE},
    };
    const char *name = content_encoding == NULL ? "" : content_encoding;
    for (size_t i = 0; i < ARRAY_COUNT(codings); i++)
        if (strcasecmp(name, codings[i].name) == 0)
            return codings[i].coding;
    return HTTP_CODING_UNKNOWN;
}

static void
feed(struct http_inflation *inflation)
{
    z_stream *stream = &inflation->stream;
    if (stream->avail_in > 0 || inflation->input_left == 0)
        return;
    size_t bytes =
        inflation->input_left < INPUT_BYTES_MAX ? inflation->input_left : INPUT_BYTES_MAX;
    stream->next_in = (Bytef *)(uintptr_t)inflation->input;
    stream->avail_in = (uInt)bytes;
    inflation->input += bytes;
    inflation->input_left -= bytes;
}

/* One more piece. At the limit there is room for one more byte, which is written only if the body
 * is too large. */
static enum status
inflate_piece(struct http_inflation *inflation, int *result)
{
    struct bytes *out = inflation->out;
    z_stream *stream = &inflation->stream;
    size_t left = inflation->bytes_max - out->used + 1;
    size_t room = out->used < CHUNK_BYTES_MIN ? CHUNK_BYTES_MIN : out->used;
    room = room < CHUNK_BYTES_MAX ? room : CHUNK_BYTES_MAX;
    room = room < left ? room : left;
    stream->next_out = (Bytef *)bytes_reserve(out, room);
    if (stream->next_out == NULL)
        return error_set(inflation->error, STATUS_RESOURCE_EXHAUSTED,
                         "no memory to decompress the body");
    feed(inflation);
    stream->avail_out = (uInt)room;
    *result = inflate(stream, Z_NO_FLUSH);
    out->used += room - stream->avail_out;
    if (out->used > inflation->bytes_max)
        return error_set(inflation->error, STATUS_OUT_OF_RANGE,
                         "the body takes more than %zu bytes when decompressed (message_mib)",
                         inflation->bytes_max);
    if (*result == Z_MEM_ERROR)
        return error_set(inflation->error, STATUS_RESOURCE_EXHAUSTED,
                         "no memory to decompress the body");
    if (*result != Z_OK && *result != Z_STREAM_END)
        return error_set(inflation->error, STATUS_INVALID_ARGUMENT,
                         "the body cannot be decompressed: %s",
                         *result == Z_BUF_ERROR ? "it is truncated"
                         : stream->msg != NULL  ? stream->msg
                                                : "it is not what Content-Encoding says");
    return STATUS_OK;
}

static enum status
inflate_member(struct http_inflation *inflation)
{
    int result = Z_OK;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && result != Z_STREAM_END)
        status = inflate_piece(inflation, &result);
    return status;
}

/* A gzip body may have several members, one after the other. */
static enum status
inflate_all(struct http_inflation *inflation, enum http_coding coding)
{
    enum status status = inflate_member(inflation);
    unsigned members = 1;
    for (; status == STATUS_OK && coding == HTTP_CODING_GZIP && members < MEMBERS_MAX; members++) {
        if (inflation->stream.avail_in + inflation->input_left == 0)
            break;
        CHECK(inflateReset(&inflation->stream) == Z_OK);
        status = inflate_member(inflation);
    }
    if (status == STATUS_OK && inflation->stream.avail_in + inflation->input_left > 0)
        return error_set(inflation->error, STATUS_INVALID_ARGUMENT,
                         "the body goes on after the end of its compressed data");
    return status;
}

enum status
http_inflate(enum http_coding coding, const struct bytes *body, size_t bytes_max, struct bytes *out,
             struct error *error)
{
    CHECK(coding == HTTP_CODING_GZIP || coding == HTTP_CODING_DEFLATE);
    struct http_inflation inflation = {.input = body->data,
                                       .input_left = body->used,
                                       .out = out,
                                       .bytes_max = bytes_max,
                                       .error = error};
    int window_bits = coding == HTTP_CODING_GZIP ? GZIP_WINDOW_BITS : ZLIB_WINDOW_BITS;
    if (inflateInit2(&inflation.stream, window_bits) != Z_OK)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to decompress the body");
    enum status status = inflate_all(&inflation, coding);
    (void)inflateEnd(&inflation.stream);
    if (status != STATUS_OK)
        bytes_fini(out);
    return status;
}
