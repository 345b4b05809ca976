/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed bodies: each coding and its names; whole, cut at every byte, damaged, with more after
 * the end, in several members. A body that becomes larger than the limit is refused and costs no
 * more memory than the limit. Input is memory of exactly its size, so that a read past the end is
 * seen. ctest: libs=zlib
 */

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>

#include "../test.h"
#include "base/check.h"
#include "http/inflate.h"

enum {
    PLAIN_BYTES = 100000,
    GZIP_BITS = MAX_WBITS + 16,
    BOMB_BYTES = 256 << 20,
    LIMIT_BYTES = 1 << 20,
    MEMORY_KIB_MAX = 64 << 10,
};

/* Compresses `bytes` bytes, as zlib's window bits say. */
static struct bytes
compress_bytes(const void *data, size_t bytes, int window_bits)
{
    struct bytes out = {0};
    z_stream stream = {0};
    CHECK(deflateInit2(&stream, 6, Z_DEFLATED, window_bits, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t room = deflateBound(&stream, bytes);
    stream.next_in = (Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)bytes;
    stream.next_out = (Bytef *)bytes_reserve(&out, room);
    stream.avail_out = (uInt)room;
    CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    out.used = stream.total_out;
    deflateEnd(&stream);
    return out;
}

static enum status
try_inflate(enum http_coding coding, const void *data, size_t bytes, size_t bytes_max,
            struct bytes *out, struct error *error)
{
    struct bytes body = {.data = malloc(bytes > 0 ? bytes : 1), .used = bytes};
    CHECK(body.data != NULL);
    if (bytes > 0)
        memcpy(body.data, data, bytes);
    *error = ERROR_NONE;
    enum status status = http_inflate(coding, &body, bytes_max, out, error);
    assert_int_equal(status, error->status);
    if (status != STATUS_OK)
        assert_null(out->data);
    free(body.data);
    return status;
}

static void
expect(enum http_coding coding, const struct bytes *body, const char *plain, size_t plain_bytes)
{
    struct bytes out = {0};
    struct error error;
    assert_int_equal(try_inflate(coding, body->data, body->used, plain_bytes, &out, &error),
                     STATUS_OK);
    assert_int_equal(out.used, plain_bytes);
    assert_memory_equal(out.data, plain, plain_bytes);
    bytes_fini(&out);
    if (plain_bytes == 0)
        return;
    assert_int_equal(try_inflate(coding, body->data, body->used, plain_bytes - 1, &out, &error),
                     STATUS_OUT_OF_RANGE);
    assert_non_null(strstr(error.text, "message_mib"));
}

static void
expect_invalid(enum http_coding coding, const void *data, size_t bytes, const char *word)
{
    struct bytes out = {0};
    struct error error;
    assert_int_equal(try_inflate(coding, data, bytes, PLAIN_BYTES, &out, &error),
                     STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, word) == NULL)
        fail_msg("\"%s\" has no \"%s\"", error.text, word);
}

TEST_CASE(test_names)
{
    static const struct {
        const char *name;
        enum http_coding coding;
    } cases[] = {{NULL, HTTP_CODING_NONE},       {"", HTTP_CODING_NONE},
                 {"Identity", HTTP_CODING_NONE}, {"gzip", HTTP_CODING_GZIP},
                 {"X-GZIP", HTTP_CODING_GZIP},   {"deflate", HTTP_CODING_DEFLATE},
                 {"br", HTTP_CODING_UNKNOWN},    {"gzip, gzip", HTTP_CODING_UNKNOWN},
                 {"gzi", HTTP_CODING_UNKNOWN}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++)
        assert_int_equal(http_coding_of(cases[i].name), cases[i].coding);
}

TEST_CASE(test_bodies)
{
    static char plain[PLAIN_BYTES];
    for (size_t i = 0; i < sizeof(plain); i++)
        plain[i] = (char)(i * i >> 7);
    static const size_t sizes[] = {0, 1, 16384, 16385, PLAIN_BYTES};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        struct bytes gzip = compress_bytes(plain, sizes[i], GZIP_BITS);
        struct bytes zlib = compress_bytes(plain, sizes[i], MAX_WBITS);
        expect(HTTP_CODING_GZIP, &gzip, plain, sizes[i]);
        expect(HTTP_CODING_DEFLATE, &zlib, plain, sizes[i]);
        bytes_fini(&gzip);
        bytes_fini(&zlib);
    }
}

TEST_CASE(test_members)
{
    struct bytes one = compress_bytes("ab", 2, GZIP_BITS);
    struct bytes none = compress_bytes("", 0, GZIP_BITS);
    struct bytes body = {0};
    bytes_put(&body, one.data, one.used);
    bytes_put(&body, none.data, none.used);
    bytes_put(&body, one.data, one.used);
    expect(HTTP_CODING_GZIP, &body, "abab", 4);
    body.used = 0;
    for (int i = 0; i < 1024; i++)
        bytes_put(&body, none.data, none.used);
    expect(HTTP_CODING_GZIP, &body, "", 0);
    bytes_put(&body, none.data, none.used);
    expect_invalid(HTTP_CODING_GZIP, body.data, body.used, "goes on after the end");
    bytes_fini(&one);
    bytes_fini(&none);
    bytes_fini(&body);
}

TEST_CASE(test_damaged)
{
    struct bytes gzip = compress_bytes("hello, hello", 12, GZIP_BITS);
    struct bytes zlib = compress_bytes("hello, hello", 12, MAX_WBITS);
    struct bytes raw = compress_bytes("hello, hello", 12, -MAX_WBITS);
    for (size_t i = 0; i < gzip.used; i++)
        expect_invalid(HTTP_CODING_GZIP, gzip.data, i, "truncated");
    for (size_t i = 0; i < zlib.used; i++)
        expect_invalid(HTTP_CODING_DEFLATE, zlib.data, i, "truncated");
    expect_invalid(HTTP_CODING_DEFLATE, gzip.data, gzip.used, "cannot be decompressed");
    expect_invalid(HTTP_CODING_GZIP, zlib.data, zlib.used, "cannot be decompressed");
    expect_invalid(HTTP_CODING_DEFLATE, raw.data, raw.used, "cannot be decompressed");
    expect_invalid(HTTP_CODING_GZIP, "{\"inputs\":[]}", 13, "cannot be decompressed");
    bytes_put_char(&zlib, 'x');
    expect_invalid(HTTP_CODING_DEFLATE, zlib.data, zlib.used, "goes on after the end");
    bytes_put_char(&gzip, 'x');
    expect_invalid(HTTP_CODING_GZIP, gzip.data, gzip.used, "cannot be decompressed");
    gzip.data[gzip.used - 6] ^= 1; /* of the checksum */
    expect_invalid(HTTP_CODING_GZIP, gzip.data, gzip.used - 1, "cannot be decompressed");
    bytes_fini(&gzip);
    bytes_fini(&zlib);
    bytes_fini(&raw);
}

TEST_CASE(test_bomb)
{
    static char block[1 << 16];
    struct bytes bomb = {0};
    z_stream stream = {0};
    CHECK(deflateInit2(&stream, 6, Z_DEFLATED, GZIP_BITS, 8, Z_DEFAULT_STRATEGY) == Z_OK);
    size_t room = BOMB_BYTES / 512;
    stream.next_out = (Bytef *)bytes_reserve(&bomb, room);
    stream.avail_out = (uInt)room;
    for (size_t done = 0; done < BOMB_BYTES; done += sizeof(block)) {
        stream.next_in = (Bytef *)block;
        stream.avail_in = sizeof(block);
        CHECK(deflate(&stream, Z_NO_FLUSH) == Z_OK);
    }
    CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
    bomb.used = stream.total_out;
    deflateEnd(&stream);
    struct bytes out = {0};
    struct error error;
    struct rusage usage;
    assert_int_equal(try_inflate(HTTP_CODING_GZIP, bomb.data, bomb.used, LIMIT_BYTES, &out, &error),
                     STATUS_OUT_OF_RANGE);
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    assert_true(usage.ru_maxrss < MEMORY_KIB_MAX);
    bytes_fini(&bomb);
}

TEST_MAIN()
