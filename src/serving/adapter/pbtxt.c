/* SPDX-License-Identifier: Apache-2.0 */
/* Protobuf's text format, as far as it takes to drop one scalar field of the outermost message. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "serving/adapter/inside.h"

/* Past white space and comments. */
static const char *
skip_blank(const char *at)
{
    for (;;) {
        at += strspn(at, " \t\r\n\f\v");
        if (*at != '#')
            return at;
        at += strcspn(at, "\n");
    }
}

/* Past a text in quotes; NULL: it does not end. */
static const char *
skip_quoted(const char *at)
{
    char quote = *at++;
    while (*at != quote) {
        if (*at == '\\')
            at++;
        if (*at == '\0' || *at == '\n')
            return NULL;
        at++;
    }
    return at + 1;
}

static size_t
word_bytes(const char *at)
{
    return strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.+-/");
}

/* Past `name: "text" "more"` and a separator behind it. */
static const char *
skip_name(const char *at)
{
    at = skip_blank(at + strlen("name"));
    if (*at != ':')
        return NULL;
    at = skip_blank(at + 1);
    if (*at != '"' && *at != '\'')
        return NULL;
    while (*at == '"' || *at == '\'') {
        at = skip_quoted(at);
        if (at == NULL)
            return NULL;
        at = skip_blank(at);
    }
    return *at == ';' || *at == ',' ? at + 1 : at;
}

/* Past the next token, whose effect on the depth is counted; NULL: malformed. */
static const char *
skip_token(const char *at, int *depth)
{
    if (*at == '"' || *at == '\'')
        return skip_quoted(at);
    if (strchr("{[<", *at) != NULL)
        ++*depth;
    if (strchr("}]>", *at) != NULL && --*depth < 0)
        return NULL;
    size_t bytes = word_bytes(at);
    return at + (bytes > 0 ? bytes : 1);
}

/* A `name` that follows a colon is a value, such as of an enum. */
char *
pbtxt_without_name(const char *text)
{
    char *copy = malloc(strlen(text) + 1);
    CHECK(copy != NULL);
    size_t used = 0;
    int depth = 0;
    bool is_value = false;
    const char *at = text;
    while (at != NULL) {
        const char *token = skip_blank(at);
        memcpy(copy + used, at, (size_t)(token - at));
        used += (size_t)(token - at);
        at = token;
        if (*token == '\0')
            break;
        if (depth == 0 && !is_value && word_bytes(token) == 4 && memcmp(token, "name", 4) == 0) {
            at = skip_name(token);
            continue;
        }
        is_value = *token == ':';
        at = skip_token(token, &depth);
        if (at == NULL)
            break;
        memcpy(copy + used, token, (size_t)(at - token));
        used += (size_t)(at - token);
    }
    copy[used] = '\0';
    if (at != NULL && depth == 0)
        return copy;
    free(copy);
    return NULL;
}
