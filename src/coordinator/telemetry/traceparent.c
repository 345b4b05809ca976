/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/telemetry/traceparent.h"

#include <string.h>

enum {
    VERSION_AT = 0,
    TRACE_ID_AT = 3,
    SPAN_ID_AT = 36,
    FLAGS_AT = 53,
    TRACEPARENT_BYTES = 55, /* of version 00, and of the part that later versions keep */
    MEMBER_PART_BYTES_MAX = 256,
};

/* HTTP allows blanks around a value. */
static void
trim(const char **text, size_t *bytes)
{
    while (*bytes > 0 && (**text == ' ' || **text == '\t')) {
        (*text)++;
        (*bytes)--;
    }
    while (*bytes > 0 && ((*text)[*bytes - 1] == ' ' || (*text)[*bytes - 1] == '\t'))
        (*bytes)--;
}

/* ---- traceparent ---- */

static int
digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Two digits for each byte; false: something else. */
static bool
read_bytes(const char *text, uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int high = digit(text[2 * i]);
        int low = digit(text[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        bytes[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool
is_zero(const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

bool
traceparent_parse(const char *text, size_t bytes, struct traceparent *parent)
{
    uint8_t version;
    uint8_t flags;
    trim(&text, &bytes);
    if (bytes < TRACEPARENT_BYTES || !read_bytes(text + VERSION_AT, &version, 1) || version == 0xff)
        return false;
    if (bytes > TRACEPARENT_BYTES && (version == 0 || text[TRACEPARENT_BYTES] != '-'))
        return false;
    if (text[TRACE_ID_AT - 1] != '-' || text[SPAN_ID_AT - 1] != '-' || text[FLAGS_AT - 1] != '-')
        return false;
    if (!read_bytes(text + TRACE_ID_AT, parent->trace_id, TRACE_ID_BYTES) ||
        !read_bytes(text + SPAN_ID_AT, parent->span_id, SPAN_ID_BYTES) ||
        !read_bytes(text + FLAGS_AT, &flags, 1))
        return false;
    parent->sampled = flags & 1;
    return !is_zero(parent->trace_id, TRACE_ID_BYTES) && !is_zero(parent->span_id, SPAN_ID_BYTES);
}

/* ---- tracestate ---- */

void
tracestate_init(struct tracestate *state)
{
    state->text[0] = '\0';
    state->bytes = 0;
    state->members = 0;
    state->refused = false;
}

static bool
is_key(const char *text, size_t bytes)
{
    if (bytes < 1 || bytes > MEMBER_PART_BYTES_MAX ||
        !((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= '0' && text[0] <= '9')))
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] == '\0' || strchr("abcdefghijklmnopqrstuvwxyz0123456789_-*/@", text[i]) == NULL)
            return false;
    return true;
}

static bool
is_value(const char *text, size_t bytes)
{
    if (bytes < 1 || bytes > MEMBER_PART_BYTES_MAX)
        return false;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] < 0x20 || text[i] > 0x7e || text[i] == '=')
            return false;
    return true;
}

/* Reads one member, without the blanks around it; false: it is malformed. */
static bool
add_member(struct tracestate *state, const char *text, size_t bytes)
{
    const char *equals = memchr(text, '=', bytes);
    if (equals == NULL || !is_key(text, (size_t)(equals - text)) ||
        !is_value(equals + 1, bytes - (size_t)(equals + 1 - text)) ||
        state->members == TRACESTATE_MEMBERS_MAX)
        return false;
    state->members++;
    size_t comma = state->bytes > 0 ? 1 : 0;
    if (state->bytes + comma + bytes > TRACESTATE_BYTES_MAX)
        return true; /* no room: left out */
    if (comma > 0)
        state->text[state->bytes++] = ',';
    memcpy(state->text + state->bytes, text, bytes);
    state->bytes += (uint32_t)bytes;
    state->text[state->bytes] = '\0';
    return true;
}

void
tracestate_add(struct tracestate *state, const char *text, size_t bytes)
{
    while (bytes > 0 && !state->refused) {
        const char *comma = memchr(text, ',', bytes);
        size_t length = comma != NULL ? (size_t)(comma - text) : bytes;
        const char *member = text;
        size_t member_bytes = length;
        trim(&member, &member_bytes);
        if (member_bytes > 0 && !add_member(state, member, member_bytes)) {
            tracestate_init(state);
            state->refused = true;
        }
        size_t passed = comma != NULL ? length + 1 : length;
        text += passed;
        bytes -= passed;
    }
}
