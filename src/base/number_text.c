/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number_text.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t
print_whole(char *room, uint64_t magnitude)
{
    char digits[NUMBER_ROOM];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + magnitude % 10);
        magnitude /= 10;
    } while (magnitude > 0);
    memcpy(room, digits + at, sizeof(digits) - at);
    room[sizeof(digits) - at] = '\0';
    return sizeof(digits) - at;
}

size_t
number_text_uint(char room[NUMBER_ROOM], uint64_t number)
{
    return print_whole(room, number);
}

size_t
number_text_int(char room[NUMBER_ROOM], int64_t number)
{
    room[0] = '-';
    return number < 0 ? 1 + print_whole(room + 1, -(uint64_t)number)
                      : print_whole(room, (uint64_t)number);
}

void
number_text_double(char room[NUMBER_ROOM], double number)
{
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(room, NUMBER_ROOM, "%.*g", digits, number);
        if (strtod(room, NULL) == number)
            return;
    }
}

/* ---- floats of ordinary size: by arithmetic, ten times as fast as by trying texts ---- */

/* Nine digits distinguish all floats; below 10^9 they need no exponent. */
enum { FLOAT_DIGITS = 9, EXPONENT_MIN = -5, EXPONENT_MAX = FLOAT_DIGITS - 1 };

static const double powers[] = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5,  1e6,
                                1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13};
_Static_assert(sizeof(powers) / sizeof(powers[0]) == EXPONENT_MAX - EXPONENT_MIN + 1,
               "each is exact as a double, as are all integers here");

/* Returns true if digits · 10^-scale reads as `wanted`. The quotient may be off by half a unit of a
 * double; if its neighbours on both sides round to the same float, so does the exact value. */
static bool
reads_as(uint32_t digits, int scale, float wanted)
{
    double value = scale >= 0 ? (double)digits / powers[scale] : (double)digits * powers[-scale];
    return (float)(value * (1 - 0x1p-51)) == wanted && (float)(value * (1 + 0x1p-51)) == wanted;
}

/* Writes digits · 10^-scale without an exponent. */
static void
print_decimal(char *to, uint32_t digits, int scale)
{
    char text[NUMBER_ROOM];
    int count = (int)print_whole(text, digits);
    int point = count - scale; /* digits before the point */
    if (point <= 0) {
        *to++ = '0';
        *to++ = '.';
        memset(to, '0', (size_t)-point);
        memcpy(to - point, text, (size_t)count + 1);
        return;
    }
    int before = point < count ? point : count;
    memcpy(to, text, (size_t)before);
    to += before;
    memset(to, '0', (size_t)(point - before));
    to += point - before;
    if (before < count) {
        *to++ = '.';
        memcpy(to, text + before, (size_t)(count - before));
        to += count - before;
    }
    *to = '\0';
}

static bool
print_ordinary(char *to, float number)
{
    double value = fabs((double)number);
    if (!(value >= 1e-5 && value < 1e9))
        return false;
    int scale = FLOAT_DIGITS - 1; /* makes nine digits before the point */
    while (scale > 0 && value >= powers[FLOAT_DIGITS - scale])
        scale--;
    while (scale < EXPONENT_MAX - EXPONENT_MIN && value * powers[scale] < 1e8)
        scale++;
    uint64_t all = (uint64_t)(value * powers[scale] + 0.5);
    for (int count = 1; count <= FLOAT_DIGITS; count++) {
        uint64_t unit = (uint64_t)powers[FLOAT_DIGITS - count];
        uint32_t digits = (uint32_t)((all + unit / 2) / unit);
        int digits_scale = scale - (FLOAT_DIGITS - count);
        if (!reads_as(digits, digits_scale, (float)value))
            continue;
        if (signbit(number))
            *to++ = '-';
        print_decimal(to, digits, digits_scale);
        return true;
    }
    return false;
}

void
number_text_float(char room[NUMBER_ROOM], float number)
{
    if (print_ordinary(room, number))
        return;
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(room, NUMBER_ROOM, "%.*g", digits, (double)number);
        if (strtof(room, NULL) == number)
            return;
    }
}
