/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/oip_json_skim.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { ESCAPED_BYTES = 6 }; /* of a byte, at most: \u0041 */

/* The places of elements: {"inputs": [{"data": …}]}, {"instances": …}. */
static const struct skim_place {
    const char *brackets;
    const char *key;
} places[] = {[SKIM_INPUTS] = {"{[{", "data"}, [SKIM_INSTANCES] = {"{", "instances"}};

struct skim_walk {
    struct oip_json_skim *skim;
    const struct skim_place *place;
    const char *at;
    const char *end;
    unsigned depth;
    char brackets[SKIM_DEPTH_MAX];
    bool after_key; /* of elements */
};

static bool
is_blank(char character)
{
    return character == ' ' || character == '\t' || character == '\n' || character == '\r';
}

/* The position after the closing quote of the string that begins at `at`; NULL: it has none. */
static const char *
string_end(const char *at, const char *end)
{
    for (at++; at < end; at++) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\' && ++at == end)
            return NULL;
    }
    return NULL;
}

const char *
json_run_end(const char *at, const char *end)
{
    size_t depth = 0;
    if (*at == '"')
        return string_end(at, end);
    while (at < end) {
        switch (*at) {
        case '"':
            at = string_end(at, end);
            if (at == NULL)
                return NULL;
            continue;
        case '[':
        case '{': depth++; break;
        case ']':
        case '}':
            if (--depth == 0)
                return at + 1;
            break;
        default: break;
        }
        at++;
    }
    return NULL;
}

/* The same key may be written with escapes: the parser must not find elements under it that were
 * not cut out here. */
bool
json_run_reads(const char *text, size_t bytes, const char *word)
{
    size_t length = strlen(word);
    if (bytes > ESCAPED_BYTES * length + 2)
        return false; /* a long key is not parsed for each word */
    if (memchr(text, '\\', bytes) == NULL)
        return bytes == length + 2 && memcmp(text + 1, word, length) == 0;
    json_t *string = json_loadb(text, bytes, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    bool same = json_is_string(string) && json_string_length(string) == length &&
                memcmp(json_string_value(string), word, length) == 0;
    json_decref(string);
    return same;
}

static bool
is_key_of_elements(const struct skim_walk *walk, const char *after)
{
    size_t depth = strlen(walk->place->brackets);
    while (after < walk->end && is_blank(*after))
        after++;
    return after < walk->end && *after == ':' && walk->depth == depth &&
           memcmp(walk->brackets, walk->place->brackets, depth) == 0;
}

static enum status
keep(struct skim_walk *walk, const char *text, size_t bytes, struct error *error)
{
    struct bytes *small = &walk->skim->small;
    if (bytes > SKIM_BYTES_MAX - small->used)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "names, shapes, id and parameters take more than %d bytes",
                         SKIM_BYTES_MAX);
    bytes_put(small, text, bytes);
    return STATUS_OK;
}

static enum status
cut_out(struct skim_walk *walk, struct error *error)
{
    struct oip_json_skim *skim = walk->skim;
    const char *after = json_run_end(walk->at, walk->end);
    if (after == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the JSON ends within \"%s\"",
                         walk->place->key);
    if (skim->run_count == SHOAL_TENSORS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d inputs", SHOAL_TENSORS_MAX);
    char number[16];
    int bytes = snprintf(number, sizeof(number), "[%u]", skim->run_count);
    skim->runs[skim->run_count++] = (struct json_run){walk->at, (size_t)(after - walk->at)};
    walk->at = after;
    return keep(walk, number, (size_t)bytes, error);
}

static enum status
copy_string(struct skim_walk *walk, struct error *error)
{
    const char *after = string_end(walk->at, walk->end);
    if (after == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the JSON ends within a string");
    size_t bytes = (size_t)(after - walk->at);
    enum status status = keep(walk, walk->at, bytes, error);
    if (status == STATUS_OK && is_key_of_elements(walk, after))
        walk->after_key = json_run_reads(walk->at, bytes, walk->place->key);
    walk->at = after;
    return status;
}

static enum status
copy_bracket(struct skim_walk *walk, struct error *error)
{
    char bracket = *walk->at;
    bool opens = bracket == '[' || bracket == '{';
    if (opens && walk->depth == SKIM_DEPTH_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT, "more than %d nested arrays and objects",
                         SKIM_DEPTH_MAX);
    if (opens)
        walk->brackets[walk->depth++] = bracket;
    else if (walk->depth > 0)
        walk->depth--; /* the parser notices a bracket that closes the wrong one, or none */
    return keep(walk, walk->at++, 1, error);
}

/* Keeps one blank of a run, so that two tokens do not become one. */
static enum status
copy_blanks(struct skim_walk *walk, struct error *error)
{
    while (walk->at < walk->end && is_blank(*walk->at))
        walk->at++;
    return keep(walk, " ", 1, error);
}

static enum status
copy_token(struct skim_walk *walk, struct error *error)
{
    char first = *walk->at;
    if (is_blank(first))
        return copy_blanks(walk, error);
    if (first == ':')
        return keep(walk, walk->at++, 1, error);
    bool is_elements = walk->after_key;
    walk->after_key = false;
    switch (first) {
    case '"': return copy_string(walk, error);
    case '[':
        if (is_elements)
            return cut_out(walk, error);
        return copy_bracket(walk, error);
    case '{':
    case '}':
    case ']': return copy_bracket(walk, error);
    default: return keep(walk, walk->at++, 1, error);
    }
}

enum status
oip_json_skim(struct oip_json_skim *skim, enum skim_form form, const struct json_run *text,
              struct error *error)
{
    skim->small.used = 0;
    skim->run_count = 0;
    struct skim_walk walk = {
        .skim = skim, .place = &places[form], .at = text->text, .end = text->text + text->bytes};
    while (walk.at < walk.end) {
        enum status status = copy_token(&walk, error);
        if (status != STATUS_OK)
            return status;
    }
    if (skim->small.failed)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "no memory to decode the request");
    return STATUS_OK;
}

void
oip_json_skim_fini(struct oip_json_skim *skim)
{
    bytes_fini(&skim->small);
}
