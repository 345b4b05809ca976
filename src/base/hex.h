/* SPDX-License-Identifier: Apache-2.0 */
/* Hexadecimal digits. */
#pragma once

/* The digit's value, in either case; -1: it is none. */
static inline int
hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
