/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base64.h"

#include <stdint.h>

static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 64: not in the alphabet. */
static uint32_t
digit_of(char character)
{
    if (character >= 'A' && character <= 'Z')
        return (uint32_t)(character - 'A');
    if (character >= 'a' && character <= 'z')
        return (uint32_t)(character - 'a') + 26;
    if (character >= '0' && character <= '9')
        return (uint32_t)(character - '0') + 52;
    return character == '+' ? 62 : character == '/' ? 63 : 64;
}

bool
base64_decode(const char *text, size_t bytes, unsigned char *to, size_t *decoded)
{
    if (bytes % 4 != 0)
        return false;
    size_t padding = 0;
    while (padding < 2 && padding < bytes && text[bytes - 1 - padding] == '=')
        padding++;
    uint32_t bits = 0;
    size_t written = 0;
    for (size_t i = 0; i < bytes; i++) {
        uint32_t digit = i + padding < bytes ? digit_of(text[i]) : 0;
        if (digit == 64)
            return false;
        bits = bits << 6 | digit;
        if (i % 4 != 3)
            continue;
        size_t count = i + 1 < bytes ? 3 : 3 - padding;
        for (size_t k = 0; k < count; k++)
            to[written++] = (unsigned char)(bits >> (16 - 8 * k));
        if ((bits & ((UINT32_C(1) << 8 * (3 - count)) - 1)) != 0)
            return false; /* unused bits must be zero: one text for each value */
        bits = 0;
    }
    *decoded = written;
    return true;
}

void
base64_encode(const unsigned char *data, size_t bytes, char *to)
{
    for (size_t i = 0; i < bytes; i += 3, to += 4) {
        size_t count = bytes - i < 3 ? bytes - i : 3;
        uint32_t bits = (uint32_t)data[i] << 16;
        bits |= count > 1 ? (uint32_t)data[i + 1] << 8 : 0;
        bits |= count > 2 ? data[i + 2] : 0;
        to[0] = alphabet[bits >> 18];
        to[1] = alphabet[bits >> 12 & 63];
        to[2] = count > 1 ? alphabet[bits >> 6 & 63] : '=';
        to[3] = count > 2 ? alphabet[bits & 63] : '=';
    }
}
