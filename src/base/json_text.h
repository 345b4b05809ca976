/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts that all writers of JSON share: strings and commas, appended to a buffer. Running out
 * of memory sets the buffer's `failed`. Any thread; the buffer is the caller's.
 */
#pragma once

#include "base/bytes.h"

/* JSON allows several escapes for one character. Each format keeps the one it began with, since
 * others compare its bytes. Quotes and backslashes are \" and \\ unless it says otherwise. */
enum json_escapes {
    JSON_ESCAPES_SHORT,   /* \n \r \t, \u00xx in lower case for other control characters */
    JSON_ESCAPES_UPPER,   /* \b \f \n \r \t, \u00XX in upper case */
    JSON_ESCAPES_NUMERIC, /* \u00xx in lower case for all, including \u0022 and \u005c */
    JSON_ESCAPES_ANY,     /* as SHORT, and \u007f; bytes that are not UTF-8 become \ufffd */
};

/* Writes the text with quotes. It is UTF-8, except with JSON_ESCAPES_ANY; it may contain NULs. */
void json_put_text(struct bytes *out, const char *text, size_t bytes, enum json_escapes escapes);

/* Writes a comma unless the next value or name is the first in its object, array or buffer, or
 * follows a name. */
void json_put_comma(struct bytes *out);
