/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compressed bodies (RFC 9110, Content-Encoding). The server hands bodies over as they arrived; the
 * handler inflates one where and when it can afford that. Pure; any thread.
 */
#pragma once

#include "base/bytes.h"
#include "base/error.h"

/* The codings by their names in Content-Encoding. `deflate` is zlib's format, as the RFC says. */
enum http_coding { HTTP_CODING_NONE, HTTP_CODING_GZIP, HTTP_CODING_DEFLATE, HTTP_CODING_UNKNOWN };

/* NULL, "" and "identity": none. */
enum http_coding http_coding_of(const char *content_encoding);

/*
 * Appends the inflated body to `out`, which is empty at first. OUT_OF_RANGE: it has more than
 * `bytes_max` bytes, of which no more than one was inflated beyond them. INVALID_ARGUMENT: it is
 * damaged, truncated, or goes on after its end. RESOURCE_EXHAUSTED: no memory. `out` is empty after
 * any failure.
 */
enum status http_inflate(enum http_coding coding, const struct bytes *body, size_t bytes_max,
                         struct bytes *out, struct error *error) WARN_UNUSED;
