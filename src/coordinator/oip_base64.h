/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 (RFC 4648, the standard alphabet, padded): how BYTES that are no text travel in JSON when
 * a tensor's parameter `content_type` is "base64".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Decodes to memory with room for three quarters of `bytes`. False: it is none. */
bool oip_base64_decode(const char *text, size_t bytes, unsigned char *to, size_t *decoded);

static inline size_t
oip_base64_bytes(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Writes oip_base64_bytes(bytes) characters. */
void oip_base64_encode(const unsigned char *data, size_t bytes, char *to);
