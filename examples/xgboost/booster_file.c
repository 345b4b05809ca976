/* SPDX-License-Identifier: Apache-2.0 */
#include "booster_file.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* XGBoost's own files have less than 10; its readers call themselves for each. */
enum { DEPTH_MAX = 64 };

struct scan {
    const unsigned char *bytes;
    size_t size;
    size_t at;
    const char *mistake; /* NULL as long as all is well */
};

static bool
fails(struct scan *scan, const char *mistake)
{
    if (scan->mistake == NULL)
        scan->mistake = mistake;
    return false;
}

/* ---- JSON: brackets, outside of strings ---- */

/* Of a file that is all hole behind its beginning, not every gigabyte is to be read. */
static const char hole[] = "it holds a zero byte";

static bool
is_space(unsigned char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* From behind the opening quote to behind the closing one. */
static bool
json_string(struct scan *scan)
{
    while (scan->at < scan->size) {
        unsigned char byte = scan->bytes[scan->at++];
        if (byte == '"')
            return true;
        if (byte == '\0')
            return fails(scan, hole);
        if (byte == '\\')
            scan->at++;
    }
    return fails(scan, "it is cut short");
}

static bool
json_check(struct scan *scan)
{
    size_t depth = 0;
    do {
        if (scan->at == scan->size)
            return fails(scan, "it is cut short");
        unsigned char byte = scan->bytes[scan->at++];
        if (byte == '\0')
            return fails(scan, hole);
        if (byte == '"' && !json_string(scan))
            return false;
        if ((byte == '{' || byte == '[') && ++depth > DEPTH_MAX)
            return fails(scan, "it is nested too deeply");
        if (byte == '}' || byte == ']')
            depth--;
    } while (depth > 0);
    while (scan->at < scan->size && is_space(scan->bytes[scan->at]))
        scan->at++;
    return scan->at == scan->size || fails(scan, "there is more behind its end");
}

/* ---- UBJSON: every length ---- */

static bool ubjson_value(struct scan *scan, unsigned char type, int depth);

static bool
skip(struct scan *scan, uint64_t count)
{
    if (count > scan->size - scan->at)
        return fails(scan, "it is cut short, or claims more than there is");
    scan->at += count;
    return true;
}

static bool
next(struct scan *scan, unsigned char *byte)
{
    if (!skip(scan, 1))
        return false;
    *byte = scan->bytes[scan->at - 1];
    return true;
}

/* Bytes of a value that has always as many; -1 for the others. */
static int
ubjson_size(unsigned char type)
{
    switch (type) {
    case 'Z':
    case 'N':
    case 'T':
    case 'F': return 0;
    case 'i':
    case 'U':
    case 'C': return 1;
    case 'I': return 2;
    case 'l':
    case 'd': return 4;
    case 'L':
    case 'D': return 8;
    default: return -1;
    }
}

/* A length in 8 bytes, as XGBoost writes all of them: two for each array of each tree, which is
 * most of what there is to be looked at. False: it is none of those. */
static bool
ubjson_usual_length(struct scan *scan, uint64_t *length)
{
    const unsigned char *bytes = scan->bytes + scan->at;
    if (scan->size - scan->at <= sizeof *length || bytes[0] != 'L' || bytes[1] >= 0x80)
        return false;
    memcpy(length, bytes + 1, sizeof *length);
    *length = be64toh(*length);
    scan->at += 1 + sizeof *length;
    return true;
}

/* Numbers are big-endian; a negative length is none. */
static bool
ubjson_length(struct scan *scan, uint64_t *length)
{
    unsigned char type;
    if (ubjson_usual_length(scan, length))
        return true;
    if (!next(scan, &type))
        return false;
    int size = ubjson_size(type);
    if (size < 1 || type == 'C' || type == 'd' || type == 'D')
        return fails(scan, "a length is no integer");
    if (!skip(scan, (uint64_t)size))
        return false;
    *length = 0;
    for (int i = size; i > 0; i--)
        *length = *length << 8 | scan->bytes[scan->at - (size_t)i];
    if (type != 'U' && *length >> (8 * size - 1) != 0)
        return fails(scan, "a length is negative");
    return true;
}

static bool
ubjson_bytes(struct scan *scan)
{
    uint64_t length;
    return ubjson_length(scan, &length) && skip(scan, length);
}

/* Behind '['. With a type and a count, all elements have that type, and no end is marked. */
static bool
ubjson_array(struct scan *scan, int depth)
{
    unsigned char type;
    unsigned char mark;
    uint64_t count;
    if (!next(scan, &type))
        return false;
    if (type == '$') {
        if (!next(scan, &type) || !next(scan, &mark) || !ubjson_length(scan, &count))
            return false;
        int size = ubjson_size(type);
        if (mark != '#' || size < 1)
            return fails(scan, "an array has no type or no count");
        if (count > SIZE_MAX / 8)
            return fails(scan, "it is cut short, or claims more than there is");
        return skip(scan, count * (uint64_t)size);
    }
    if (type == '#') {
        if (!ubjson_length(scan, &count))
            return false;
        for (; count > 0; count--)
            if (!next(scan, &type) || !ubjson_value(scan, type, depth))
                return false;
        return true;
    }
    while (type != ']')
        if (!ubjson_value(scan, type, depth) || !next(scan, &type))
            return false;
    return true;
}

/* Behind '{': names, which have no type of their own, and values. */
static bool
ubjson_object(struct scan *scan, int depth)
{
    unsigned char type;
    while (scan->at < scan->size && scan->bytes[scan->at] != '}')
        if (!ubjson_bytes(scan) || !next(scan, &type) || !ubjson_value(scan, type, depth))
            return false;
    return skip(scan, 1);
}

static bool
ubjson_value(struct scan *scan, unsigned char type, int depth)
{
    if (depth == DEPTH_MAX)
        return fails(scan, "it is nested too deeply");
    switch (type) {
    case '{': return ubjson_object(scan, depth + 1);
    case '[': return ubjson_array(scan, depth + 1);
    case 'S': return ubjson_bytes(scan);
    default: break;
    }
    int size = ubjson_size(type);
    return size >= 0 ? skip(scan, (uint64_t)size) : fails(scan, "a value has no type");
}

static bool
ubjson_check(struct scan *scan)
{
    scan->at = 1;
    if (!ubjson_object(scan, 0))
        return false;
    return scan->at == scan->size || fails(scan, "there is more behind its end");
}

/* ---- either ---- */

/* By the first two bytes that are no space: JSON has a name next, UBJSON the length of one. */
static enum booster_form
form_of(const struct scan *scan)
{
    size_t second = 1;
    while (second < scan->size && is_space(scan->bytes[second]))
        second++;
    if (second >= scan->size || scan->bytes[0] != '{')
        return BOOSTER_NONE;
    return scan->bytes[second] == '"' ? BOOSTER_JSON : BOOSTER_UBJSON;
}

enum booster_form
booster_file_check(const void *bytes, size_t size, char *room, size_t room_bytes)
{
    struct scan scan = {bytes, size, 0, NULL};
    enum booster_form form = form_of(&scan);
    if (form == BOOSTER_NONE) {
        snprintf(room, room_bytes,
                 "is neither JSON nor UBJSON, the forms in which XGBoost saves as .json and .ubj");
        return BOOSTER_NONE;
    }
    if (form == BOOSTER_JSON ? json_check(&scan) : ubjson_check(&scan))
        return form;
    snprintf(room, room_bytes, "is no %s of XGBoost: %s, at byte %zu",
             form == BOOSTER_JSON ? "JSON" : "UBJSON", scan.mistake, scan.at);
    return BOOSTER_NONE;
}
