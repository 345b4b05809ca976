/* SPDX-License-Identifier: Apache-2.0 */
/* UTF-8 (RFC 3629): no overlong forms, no surrogates, nothing above U+10FFFF. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the well-formed character at the front, 1 to 4 (NUL: 1); 0: malformed, or `left` is 0.
 */
static inline size_t
utf8_length(const void *text, size_t left)
{
    const unsigned char *at = text;
    if (left == 0)
        return 0;
    unsigned char first = at[0];
    if (first < 0x80)
        return 1;
    size_t length = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
    if (length == 0 || length > left)
        return 0;
    unsigned char second_min = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char second_max = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (at[1] < second_min || at[1] > second_max)
        return 0;
    for (size_t i = 2; i < length; i++)
        if (at[i] < 0x80 || at[i] > 0xbf)
            return 0;
    return length;
}

static inline bool
utf8_is_text(const void *text, size_t bytes)
{
    size_t at = 0;
    for (size_t length = 1; at < bytes && length > 0; at += length)
        length = utf8_length((const char *)text + at, bytes - at);
    return at == bytes;
}
