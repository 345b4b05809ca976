/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/pbtxt.h"

#include <stdbool.h>
#include <string.h>

struct pbtxt_reading {
    const char *at, *end;
    uint32_t line, depth;
    pbtxt_visit *visit;
    void *context;
    struct error *error;
    size_t path_used;
    char path[PBTXT_PATH_BYTES];
    char text[PBTXT_TEXT_BYTES];
};

static enum status read_fields(struct pbtxt_reading *reading, char closing);

static enum status
wrong(struct pbtxt_reading *reading, const char *what)
{
    return error_set(reading->error, STATUS_INVALID_ARGUMENT, "line %u: %s",
                     (unsigned)reading->line, what);
}

/* The next character that is no space and in no comment; '\0': the end. */
static char
peek(struct pbtxt_reading *reading)
{
    for (; reading->at < reading->end; reading->at++) {
        if (*reading->at == '#')
            while (reading->at + 1 < reading->end && reading->at[1] != '\n')
                reading->at++;
        else if (*reading->at == '\n')
            reading->line++;
        else if (strchr(" \t\r", *reading->at) == NULL || *reading->at == '\0')
            return *reading->at;
    }
    return '\0';
}

static bool
take(struct pbtxt_reading *reading, char wanted)
{
    bool there = peek(reading) == wanted && reading->at < reading->end;
    reading->at += there;
    return there;
}

static bool
is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_.+-", c) != NULL);
}

/* The characters of a name, a number or an enumerator; 0: there is none. */
static size_t
word(struct pbtxt_reading *reading, const char **begin)
{
    (void)peek(reading);
    *begin = reading->at;
    while (reading->at < reading->end && is_word(*reading->at))
        reading->at++;
    return (size_t)(reading->at - *begin);
}

static void
put(struct pbtxt_reading *reading, size_t *used, char c)
{
    if (*used + 1 < sizeof(reading->text))
        reading->text[(*used)++] = c;
}

/* In an escape only the character behind the backslash counts: no name or number has one. */
static enum status
read_string(struct pbtxt_reading *reading, char quote, size_t *used)
{
    for (reading->at++; reading->at < reading->end && *reading->at != quote; reading->at++) {
        if (*reading->at == '\n')
            break;
        if (*reading->at == '\\' && reading->at + 1 < reading->end)
            reading->at++;
        put(reading, used, *reading->at);
    }
    if (reading->at == reading->end || *reading->at != quote)
        return wrong(reading, "a string does not end");
    reading->at++;
    return STATUS_OK;
}

static enum status
visit_item(struct pbtxt_reading *reading, int kind, const char *text)
{
    const struct pbtxt_item item = {.kind = kind, .path = reading->path, .text = text};
    if (reading->visit(reading->context, &item, reading->error) == STATUS_OK)
        return STATUS_OK;
    return error_prefix(reading->error, "line %u", (unsigned)reading->line);
}

static enum status
read_scalar(struct pbtxt_reading *reading)
{
    size_t used = 0;
    char quote = peek(reading);
    if (quote == '"' || quote == '\'') {
        while ((quote = peek(reading)) == '"' || quote == '\'')
            if (read_string(reading, quote, &used) != STATUS_OK)
                return reading->error->status;
    } else {
        const char *begin;
        size_t bytes = word(reading, &begin);
        if (bytes == 0)
            return wrong(reading, "a value is missing");
        for (size_t i = 0; i < bytes; i++)
            put(reading, &used, begin[i]);
    }
    reading->text[used] = '\0';
    if (memchr(reading->text, '\0', used) != NULL)
        return wrong(reading, "a string has a zero byte");
    return visit_item(reading, PBTXT_VALUE, reading->text);
}

static enum status
read_message(struct pbtxt_reading *reading, char closing)
{
    if (reading->depth == PBTXT_DEPTH_MAX)
        return wrong(reading, "nested too deeply");
    if (visit_item(reading, PBTXT_MESSAGE, "") != STATUS_OK)
        return reading->error->status;
    reading->depth++;
    enum status status = read_fields(reading, closing);
    reading->depth--;
    return status;
}

/* `has_colon`: a message may follow the name without one. */
static enum status
read_value(struct pbtxt_reading *reading, bool has_colon)
{
    if (take(reading, '{'))
        return read_message(reading, '}');
    if (take(reading, '<'))
        return read_message(reading, '>');
    return has_colon ? read_scalar(reading) : wrong(reading, "':' or '{' is missing after a name");
}

static enum status
read_list(struct pbtxt_reading *reading)
{
    if (take(reading, ']'))
        return STATUS_OK;
    do
        if (read_value(reading, true) != STATUS_OK)
            return reading->error->status;
    while (take(reading, ','));
    return take(reading, ']') ? STATUS_OK : wrong(reading, "',' or ']' is missing in a list");
}

static enum status
read_field(struct pbtxt_reading *reading)
{
    const char *name;
    size_t before = reading->path_used;
    size_t bytes = word(reading, &name);
    if (bytes == 0)
        return wrong(reading, "a name is missing");
    if (before + bytes + 2 > sizeof(reading->path))
        return wrong(reading, "names are too long");
    if (before > 0)
        reading->path[reading->path_used++] = '.';
    memcpy(reading->path + reading->path_used, name, bytes);
    reading->path_used += bytes;
    reading->path[reading->path_used] = '\0';
    bool has_colon = take(reading, ':');
    enum status status = take(reading, '[') ? read_list(reading) : read_value(reading, has_colon);
    reading->path_used = before;
    reading->path[before] = '\0';
    return status;
}

/* `closing` '\0': up to the end of the text. */
static enum status
read_fields(struct pbtxt_reading *reading, char closing)
{
    for (;;) {
        char next = peek(reading);
        if (reading->at == reading->end && closing != '\0')
            return wrong(reading, "a message does not end");
        if (reading->at == reading->end)
            return STATUS_OK;
        if (closing != '\0' && next == closing) {
            reading->at++;
            return STATUS_OK;
        }
        if (read_field(reading) != STATUS_OK)
            return reading->error->status;
        if (!take(reading, ','))
            (void)take(reading, ';');
    }
}

enum status
pbtxt_read(const char *text, size_t bytes, pbtxt_visit *visit, void *context, struct error *error)
{
    struct pbtxt_reading reading = {.at = text,
                                    .end = text + bytes,
                                    .line = 1,
                                    .visit = visit,
                                    .context = context,
                                    .error = error};
    return read_fields(&reading, '\0');
}
