/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/record/large.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static size_t
digits(const char *at, size_t left)
{
    size_t count = 0;
    while (count < left && at[count] >= '0' && at[count] <= '9')
        count++;
    return count;
}

/* Length of the number at the front by JSON's grammar; 0: none. */
static size_t
number_bytes(const char *at, size_t left, bool *is_real)
{
    size_t bytes = left > 0 && at[0] == '-';
    size_t whole = digits(at + bytes, left - bytes);
    *is_real = false;
    if (whole == 0)
        return 0;
    bytes += at[bytes] == '0' ? 1 : whole;
    size_t fraction =
        bytes < left && at[bytes] == '.' ? digits(at + bytes + 1, left - bytes - 1) : 0;
    if (fraction > 0) {
        bytes += 1 + fraction;
        *is_real = true;
    }
    if (bytes < left && (at[bytes] == 'e' || at[bytes] == 'E')) {
        size_t sign = bytes + 1 < left && (at[bytes + 1] == '+' || at[bytes + 1] == '-');
        size_t exponent = digits(at + bytes + 1 + sign, left - bytes - 1 - sign);
        *is_real = *is_real || exponent > 0;
        bytes += exponent > 0 ? 1 + sign + exponent : 0;
    }
    return bytes;
}

static bool
is_large(const char *number, size_t bytes, bool is_real)
{
    char *text = malloc(bytes + 1);
    CHECK(text != NULL);
    memcpy(text, number, bytes);
    text[bytes] = '\0';
    bool large;
    if (is_real) {
        large = isinf(strtod(text, NULL)); /* one that is too small becomes 0 */
    } else {
        errno = 0;
        (void)strtoll(text, NULL, 10);
        large = errno == ERANGE;
    }
    free(text);
    return large;
}

/* Length of the string at the front with its quotes, or of the rest. False: it contains a NUL. */
static bool
string_bytes(const char *at, size_t left, size_t *bytes)
{
    size_t end = 1;
    while (end < left && at[end] != '"') {
        if (at[end] == '\\' && left - end >= 6 && memcmp(at + end, "\\u0000", 6) == 0)
            return false;
        end += at[end] == '\\' ? 2 : 1;
    }
    *bytes = end + 1 < left ? end + 1 : left;
    return true;
}

bool
large_wrap(const char *json, size_t bytes, struct bytes *to)
{
    for (size_t at = 0, taken; at < bytes; at += taken) {
        bool is_real;
        taken = number_bytes(json + at, bytes - at, &is_real);
        if (taken > 0 && is_large(json + at, taken, is_real)) {
            bytes_put_text(to, "\"\\u0000");
            bytes_put(to, json + at, taken);
            bytes_put_char(to, '"');
            continue;
        }
        if (taken == 0)
            taken = 1;
        if (json[at] == '"' && !string_bytes(json + at, bytes - at, &taken))
            return false;
        bytes_put(to, json + at, taken);
    }
    return true;
}

bool
large_is(const json_t *value)
{
    return json_is_string(value) && json_string_length(value) > 0 &&
           json_string_value(value)[0] == '\0';
}

void
large_put(struct json *to, const json_t *value)
{
    json_put_raw(to, json_string_value(value) + 1, json_string_length(value) - 1);
}
