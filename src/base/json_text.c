/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_text.h"

#include <stdio.h>

#include "base/utf8.h"

static void
put_escape(struct bytes *out, unsigned char character, enum json_escapes escapes)
{
    /* from \b to \r */
    const char *letters = escapes == JSON_ESCAPES_UPPER ? "btn\0fr" : "\0tn\0\0r";
    char letter = 0;
    if (character == '"' || character == '\\')
        letter = (char)character;
    else if (character >= '\b' && character <= '\r')
        letter = letters[character - '\b'];
    char text[8];
    if (letter != 0 && escapes != JSON_ESCAPES_NUMERIC)
        snprintf(text, sizeof(text), "\\%c", letter);
    else
        snprintf(text, sizeof(text), escapes == JSON_ESCAPES_UPPER ? "\\u%04X" : "\\u%04x",
                 (unsigned)character);
    bytes_put_text(out, text);
}

void
json_put_text(struct bytes *out, const char *text, size_t bytes, enum json_escapes escapes)
{
    /* Bytes from ' ' on that need no look: one comparison for each byte, as on the request path. */
    unsigned plain = (escapes == JSON_ESCAPES_ANY ? 0x7f : 0x100) - 0x20;
    size_t start = 0; /* of those not written yet */
    bytes_put_char(out, '"');
    for (size_t i = 0; i < bytes; i++) {
        unsigned char character = (unsigned char)text[i];
        if (character - 0x20u < plain && character != '"' && character != '\\')
            continue;
        size_t length = character > 0x7f ? utf8_length(text + i, bytes - i) : 0;
        if (length > 0) {
            i += length - 1;
            continue;
        }
        bytes_put(out, text + start, i - start);
        start = i + 1;
        if (character > 0x7f)
            bytes_put_text(out, "\\ufffd");
        else
            put_escape(out, character, escapes);
    }
    bytes_put(out, text + start, bytes - start);
    bytes_put_char(out, '"');
}

void
json_put_comma(struct bytes *out)
{
    if (out->used == 0 || out->failed)
        return;
    char last = out->data[out->used - 1];
    if (last != '{' && last != '[' && last != ':')
        bytes_put_char(out, ',');
}
