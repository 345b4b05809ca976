/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 (RFC 4648, the standard alphabet, padded): how bytes that are no text travel in JSON, in
 * tensors whose parameter `content_type` is "base64" as in keys and values of etcd.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Decodes to memory with room for three quarters of `bytes`. False: it is none. */
bool base64_decode(const char *text, size_t bytes, unsigned char *to, size_t *decoded);

static inline size_t
base64_bytes(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Writes base64_bytes(bytes) characters. */
void base64_encode(const unsigned char *data, size_t bytes, char *to);
