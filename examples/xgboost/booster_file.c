/* SPDX-License-Identifier: Apache-2.0 */
#include "booster_file.h"

#include <endian.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* XGBoost's own files have fewer than 10 levels; its readers recurse for each. */
enum { DEPTH_MAX = 64, VERSION_PART_MAX = 127 };

/* The values that are read of a file, by the names on their path, from the outermost object. */
enum wanted { WANTED_BASE_SCORE, WANTED_OBJECTIVE, WANTED_COUNT };
enum { WANTED_DEPTH = 3 };
static const char *const wanted_paths[WANTED_COUNT][WANTED_DEPTH] = {
    [WANTED_BASE_SCORE] = {"learner", "learner_model_param", "base_score"},
    [WANTED_OBJECTIVE] = {"learner", "objective", "name"},
};

struct scan {
    const unsigned char *bytes;
    size_t size;
    size_t at;
    const char *mistake;       /* NULL: none so far */
    int on_path[WANTED_COUNT]; /* how many of the current names match, from the outermost */
    struct booster_file found;
};

static bool
fails(struct scan *scan, const char *mistake)
{
    if (scan->mistake == NULL)
        scan->mistake = mistake;
    return false;
}

/* ---- the file's own figures ---- */

static bool
name_is(const struct scan *scan, size_t begin, size_t length, const char *name)
{
    return length == strlen(name) && memcmp(scan->bytes + begin, name, length) == 0;
}

/* Notes a name in an object at `depth`, counted from 1. Returns which value it is the name of;
 * WANTED_COUNT: of none. */
static enum wanted
name_leads_to(struct scan *scan, size_t begin, size_t length, int depth)
{
    enum wanted found = WANTED_COUNT;
    for (int i = 0; i < WANTED_COUNT && depth <= WANTED_DEPTH; i++) {
        if (scan->on_path[i] < depth - 1)
            continue;
        bool leads = name_is(scan, begin, length, wanted_paths[i][depth - 1]);
        scan->on_path[i] = leads ? depth : depth - 1;
        if (scan->on_path[i] == WANTED_DEPTH)
            found = (enum wanted)i;
    }
    return found;
}

static void
objective_found(struct scan *scan, size_t begin, size_t length)
{
    char *name = scan->found.objective;
    if (length < sizeof scan->found.objective) {
        memcpy(name, scan->bytes + begin, length);
        name[length] = '\0';
    }
}

static void
version_found(struct scan *scan, int major, int minor)
{
    scan->found.version_major = major;
    scan->found.version_minor = minor;
}

/* ---- JSON: brackets, outside of strings ---- */

/* Stops at a zero byte, so that a sparse file of many gigabytes is not read to its end. */
static const char hole[] = "it holds a zero byte";

static bool
is_space(unsigned char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

/* Skips from after the opening quote to after the closing one. */
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
    return fails(scan, "it is truncated");
}

/* Returns the next byte that is not white space; 0 at the end. */
static unsigned char
json_peek(const struct scan *scan, size_t *at)
{
    while (*at < scan->size && is_space(scan->bytes[*at]))
        ++*at;
    return *at < scan->size ? scan->bytes[*at] : '\0';
}

/* Called after a ':'. A base score is a vector if it is an array, or a string that begins like
 * one. */
static bool
json_is_vector(const struct scan *scan, size_t at)
{
    unsigned char first = json_peek(scan, &at);
    return first == '[' || (first == '"' && at + 1 < scan->size && scan->bytes[at + 1] == '[');
}

/* Called after a ':'. The length of a string is looked for no further than a name may be long. */
static void
json_objective(struct scan *scan, size_t at)
{
    if (json_peek(scan, &at) != '"')
        return;
    size_t begin = ++at;
    while (at < scan->size && at - begin < sizeof scan->found.objective && scan->bytes[at] != '"')
        at++;
    objective_found(scan, begin, at - begin);
}

static bool
json_version_part(const struct scan *scan, size_t *at, unsigned char before, int *part)
{
    if (json_peek(scan, at) != before)
        return false;
    ++*at;
    json_peek(scan, at);
    *part = 0;
    size_t begin = *at;
    for (; *at < scan->size && scan->bytes[*at] >= '0' && scan->bytes[*at] <= '9'; ++*at)
        if ((*part = *part * 10 + (scan->bytes[*at] - '0')) > VERSION_PART_MAX)
            return false;
    return *at > begin;
}

/* The skipped string is a name if a ':' follows. */
static void
json_name(struct scan *scan, size_t begin, size_t depth)
{
    int major;
    int minor;
    size_t length = scan->at - 1 - begin;
    size_t at = scan->at;
    if (depth > WANTED_DEPTH || json_peek(scan, &at) != ':')
        return;
    at++;
    enum wanted wanted = name_leads_to(scan, begin, length, (int)depth);
    if (wanted == WANTED_BASE_SCORE)
        scan->found.has_vector_base_score |= json_is_vector(scan, at);
    else if (wanted == WANTED_OBJECTIVE)
        json_objective(scan, at);
    else if (depth == 1 && name_is(scan, begin, length, "version") &&
             json_version_part(scan, &at, '[', &major) && json_version_part(scan, &at, ',', &minor))
        version_found(scan, major, minor);
}

static bool
json_check(struct scan *scan)
{
    size_t depth = 0;
    do {
        if (scan->at == scan->size)
            return fails(scan, "it is truncated");
        unsigned char byte = scan->bytes[scan->at++];
        if (byte == '\0')
            return fails(scan, hole);
        if (byte == '"') {
            size_t begin = scan->at;
            if (!json_string(scan))
                return false;
            json_name(scan, begin, depth);
        }
        if ((byte == '{' || byte == '[') && ++depth > DEPTH_MAX)
            return fails(scan, "it is nested too deeply");
        if (byte == '}' || byte == ']')
            depth--;
    } while (depth > 0);
    while (scan->at < scan->size && is_space(scan->bytes[scan->at]))
        scan->at++;
    return scan->at == scan->size || fails(scan, "it continues after its end");
}

/* ---- UBJSON: every length ---- */

static bool ubjson_value(struct scan *scan, unsigned char type, int depth);

static bool
skip(struct scan *scan, uint64_t count)
{
    if (count > scan->size - scan->at)
        return fails(scan, "it is truncated, or claims more than it has");
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

/* Returns the size of a value of fixed size; -1 for others. */
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

/* Reads a length of 8 bytes, as XGBoost writes all of them: two for each array of each tree, which
 * is most of the work here. False: it is another form. */
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

/* Numbers are big-endian; a negative length is invalid. */
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
        return fails(scan, "a length is not an integer");
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

/* Called after '['. With a type and a count, all elements have that type, and there is no end
 * marker. */
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
            return fails(scan, "it is truncated, or claims more than it has");
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

/* True if the base score at `at`, which is known to be complete, is an array or a string like
 * one. */
static bool
ubjson_is_vector(const struct scan *scan, size_t at)
{
    struct scan value = {.bytes = scan->bytes, .size = scan->size, .at = at};
    unsigned char type;
    uint64_t length;
    if (!next(&value, &type) || type == '[')
        return type == '[';
    return type == 'S' && ubjson_length(&value, &length) && next(&value, &type) && type == '[';
}

static void
ubjson_objective(struct scan *scan, size_t at)
{
    struct scan value = {.bytes = scan->bytes, .size = scan->size, .at = at};
    unsigned char type;
    uint64_t length;
    if (next(&value, &type) && type == 'S' && ubjson_length(&value, &length))
        objective_found(scan, value.at, length);
}

/* Reads the version at `at` as XGBoost writes it: small integers after their count. */
static void
ubjson_version(struct scan *scan, size_t at)
{
    struct scan value = {.bytes = scan->bytes, .size = scan->size, .at = at};
    unsigned char bytes[2 + 4];
    uint64_t count;
    if (!next(&value, &bytes[0]) || !next(&value, &bytes[1]) || memcmp(bytes, "[#", 2) != 0 ||
        !ubjson_length(&value, &count) || count < 2)
        return;
    for (size_t i = 2; i < sizeof bytes; i++)
        if (!next(&value, &bytes[i]))
            return;
    if (bytes[2] == 'i' && bytes[4] == 'i' && bytes[3] <= VERSION_PART_MAX &&
        bytes[5] <= VERSION_PART_MAX)
        version_found(scan, bytes[3], bytes[5]);
}

/* Called after '{': reads names, which have no type marker, and values. */
static bool
ubjson_object(struct scan *scan, int depth)
{
    unsigned char type;
    uint64_t length;
    while (scan->at < scan->size && scan->bytes[scan->at] != '}') {
        if (!ubjson_length(scan, &length) || !skip(scan, length))
            return false;
        size_t name = scan->at - length;
        size_t value = scan->at;
        enum wanted wanted = name_leads_to(scan, name, length, depth + 1);
        if (!next(scan, &type) || !ubjson_value(scan, type, depth))
            return false;
        if (wanted == WANTED_BASE_SCORE)
            scan->found.has_vector_base_score |= ubjson_is_vector(scan, value);
        else if (wanted == WANTED_OBJECTIVE)
            ubjson_objective(scan, value);
        else if (depth == 0 && name_is(scan, name, length, "version"))
            ubjson_version(scan, value);
    }
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
    return scan->at == scan->size || fails(scan, "it continues after its end");
}

/* ---- either ---- */

/* Decides by the first two bytes that are not white space: JSON has a name next, UBJSON the length
 * of one. */
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

struct booster_file
booster_file_check(const void *bytes, size_t size, char *room, size_t room_bytes)
{
    struct scan scan = {.bytes = bytes, .size = size};
    enum booster_form form = form_of(&scan);
    if (form == BOOSTER_NONE) {
        snprintf(room, room_bytes,
                 "is neither JSON nor UBJSON, the forms in which XGBoost saves as .json and .ubj");
        return scan.found;
    }
    if (form == BOOSTER_JSON ? json_check(&scan) : ubjson_check(&scan))
        scan.found.form = form;
    else
        snprintf(room, room_bytes, "is not XGBoost's %s: %s, at byte %zu",
                 form == BOOSTER_JSON ? "JSON" : "UBJSON", scan.mistake, scan.at);
    return scan.found;
}
