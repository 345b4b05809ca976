/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of HTTP/2, byte by byte, as no library would write them. */
#pragma once

#include <nghttp2/nghttp2.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"

enum { FRAME_HEAD_BYTES = 9, FRAME_MAX = 16 << 10 };
enum { END_STREAM = NGHTTP2_FLAG_END_STREAM, END_HEADERS = NGHTTP2_FLAG_END_HEADERS };

static inline void
frame_put(struct bytes *out, uint8_t type, uint8_t flags, int32_t id, const struct bytes *payload)
{
    size_t bytes = payload != NULL ? payload->used : 0;
    const uint8_t head[FRAME_HEAD_BYTES] = {
        (uint8_t)(bytes >> 16), (uint8_t)(bytes >> 8), (uint8_t)bytes,     type,       flags,
        (uint8_t)(id >> 24),    (uint8_t)(id >> 16),   (uint8_t)(id >> 8), (uint8_t)id};
    bytes_put(out, head, sizeof(head));
    if (bytes > 0)
        bytes_put(out, payload->data, bytes);
}

/* A literal field, which is not indexed; texts of fewer than 127 bytes. */
static inline void
field_put(struct bytes *block, const char *name, const char *value)
{
    bytes_put_char(block, 0);
    bytes_put_char(block, (char)strlen(name));
    bytes_put_text(block, name);
    bytes_put_char(block, (char)strlen(value));
    bytes_put_text(block, value);
}

static inline void
fields_put(struct bytes *block, const char *const *fields)
{
    for (; *fields != NULL; fields += 2)
        field_put(block, fields[0], fields[1]);
}

static inline void
head_put(struct bytes *out, uint8_t flags, int32_t id, const char *const *fields)
{
    struct bytes block = {0};
    fields_put(&block, fields);
    frame_put(out, NGHTTP2_HEADERS, END_HEADERS | flags, id, &block);
    bytes_fini(&block);
}
