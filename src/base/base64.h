/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Base64 (RFC 4648, standard alphabet, padded): for binary data in JSON, both in tensors whose
 * parameter `content_type` is "base64" and in keys and values of etcd.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Decodes; `to` has room for three quarters of `bytes`. False: not Base64. */
bool base64_decode(const char *text, size_t bytes, unsigned char *to, size_t *decoded);

static inline size_t
base64_bytes(size_t bytes)
{
    return (bytes + 2) / 3 * 4;
}

/* Writes base64_bytes(bytes) characters. */
void base64_encode(const unsigned char *data, size_t bytes, char *to);
