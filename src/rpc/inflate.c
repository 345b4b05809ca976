/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed messages. The library would inflate a whole message before it compares its size with
 * the limit: a megabyte became a gigabyte of memory and seconds of the stepping thread. So it hands
 * messages over as they arrived (`grpc.per_message_decompression` is off), and they are inflated
 * here, chunk by chunk, up to the limit.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <grpc/slice_buffer.h>
#include <zlib.h>

#include "rpc/internal.h"

enum {
    CHUNK_BYTES_MIN = 4096,
    CHUNK_BYTES_MAX = 1 << 18,
    GROWTH = 4,            /* usual ratio of decompressed to compressed size */
    GZIP_WINDOW_BITS = 31, /* 15 with a gzip header; 15 alone means a zlib header: "deflate" */
    ZLIB_WINDOW_BITS = 15,
};

/* A message being inflated. */
struct inflation {
    z_stream stream;
    grpc_slice_buffer out; /* full chunks */
    grpc_slice chunk;      /* the chunk being filled, of `room` bytes */
    size_t room;           /* 0: there is none */
    size_t chunk_bytes;
    size_t bytes_max;
    bool ended; /* the compressed data's end was seen */
};

static enum status
broken(const char *why, struct error *error)
{
    return error_set(error, STATUS_INTERNAL, "the message cannot be decompressed: %s", why);
}

static size_t
bytes_so_far(const struct inflation *inflation)
{
    return inflation->out.length + inflation->room - inflation->stream.avail_out;
}

static void
chunk_close(struct inflation *inflation)
{
    if (inflation->room == 0)
        return;
    GRPC_SLICE_SET_LENGTH(inflation->chunk, inflation->room - inflation->stream.avail_out);
    grpc_slice_buffer_add(&inflation->out, inflation->chunk);
    inflation->room = 0;
    inflation->stream.avail_out = 0;
}

/* At the limit there is room for one more byte, which is written only if the message is too
 * large. */
static void
chunk_open(struct inflation *inflation)
{
    chunk_close(inflation);
    size_t left = inflation->bytes_max - inflation->out.length + 1;
    inflation->room = inflation->chunk_bytes < left ? inflation->chunk_bytes : left;
    inflation->chunk = grpc_slice_malloc_large(inflation->room);
    inflation->stream.next_out = GRPC_SLICE_START_PTR(inflation->chunk);
    inflation->stream.avail_out = (uInt)inflation->room;
}

static enum status
inflate_judge(struct inflation *inflation, int result, struct error *error)
{
    const z_stream *stream = &inflation->stream;
    if (bytes_so_far(inflation) > inflation->bytes_max)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "Received message larger than max (more than %zu when decompressed vs. "
                         "%zu)",
                         inflation->bytes_max, inflation->bytes_max);
    inflation->ended = result == Z_STREAM_END;
    if (inflation->ended && stream->avail_in > 0)
        return broken("there is more behind its end", error);
    if (result == Z_MEM_ERROR)
        return broken("no memory", error);
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR)
        return STATUS_OK;
    return broken(stream->msg != NULL ? stream->msg : "malformed", error);
}

static enum status
inflate_slice(struct inflation *inflation, const grpc_slice *slice, struct error *error)
{
    z_stream *stream = &inflation->stream;
    stream->next_in = (Bytef *)(uintptr_t)GRPC_SLICE_START_PTR(*slice); /* not modified */
    stream->avail_in = (uInt)GRPC_SLICE_LENGTH(*slice);
    if (inflation->ended && stream->avail_in > 0)
        return broken("there is more behind its end", error);
    do {
        if (stream->avail_out == 0)
            chunk_open(inflation);
        enum status status = inflate_judge(inflation, inflate(stream, Z_NO_FLUSH), error);
        if (status != STATUS_OK)
            return status;
    } while (!inflation->ended && stream->avail_out == 0);
    return STATUS_OK;
}

static enum status
inflate_all(struct inflation *inflation, const grpc_slice_buffer *in, struct error *error)
{
    for (size_t i = 0; i < in->count; i++) {
        if (GRPC_SLICE_LENGTH(in->slices[i]) == 0)
            continue;
        enum status status = inflate_slice(inflation, &in->slices[i], error);
        if (status != STATUS_OK)
            return status;
    }
    return inflation->ended ? STATUS_OK : broken("it is cut short", error);
}

static size_t
chunk_for(size_t bytes)
{
    if (bytes < CHUNK_BYTES_MIN / GROWTH)
        return CHUNK_BYTES_MIN;
    return bytes > CHUNK_BYTES_MAX / GROWTH ? CHUNK_BYTES_MAX : GROWTH * bytes;
}

enum status
rpc_inflate(grpc_byte_buffer **buffer, size_t bytes_max, struct error *error)
{
    grpc_compression_algorithm algorithm = (*buffer)->data.raw.compression;
    if (algorithm == GRPC_COMPRESS_NONE)
        return STATUS_OK;
    const grpc_slice_buffer *in = &(*buffer)->data.raw.slice_buffer;
    struct inflation inflation = {.bytes_max = bytes_max, .chunk_bytes = chunk_for(in->length)};
    if (algorithm != GRPC_COMPRESS_GZIP && algorithm != GRPC_COMPRESS_DEFLATE)
        return broken("its algorithm is not known here", error);
    int bits = algorithm == GRPC_COMPRESS_GZIP ? GZIP_WINDOW_BITS : ZLIB_WINDOW_BITS;
    if (inflateInit2(&inflation.stream, bits) != Z_OK)
        return broken("no memory", error);
    grpc_slice_buffer_init(&inflation.out);
    enum status status = inflate_all(&inflation, in, error);
    chunk_close(&inflation);
    inflateEnd(&inflation.stream);
    if (status == STATUS_OK) {
        grpc_byte_buffer_destroy(*buffer);
        *buffer = grpc_raw_byte_buffer_create(inflation.out.slices, inflation.out.count);
    }
    grpc_slice_buffer_destroy(&inflation.out);
    return status;
}
