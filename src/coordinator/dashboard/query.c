/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/dashboard/query.h"

#include <string.h>

static int
digit(char character)
{
    static const char digits[] = "0123456789abcdefABCDEF";
    const char *at = character != '\0' ? strchr(digits, character) : NULL;
    if (at == NULL)
        return -1;
    return at - digits < 16 ? (int)(at - digits) : (int)(at - digits) - 6;
}

/* Decodes one character and moves behind it; -1: a bad escape. */
static int
take(const char **at)
{
    char character = *(*at)++;
    if (character == '+')
        return ' ';
    if (character != '%')
        return (unsigned char)character;
    int high = digit((*at)[0]);
    int low = high < 0 ? -1 : digit((*at)[1]);
    *at += low < 0 ? 0 : 2;
    return low < 0 ? -1 : high * 16 + low;
}

static enum query_find
decode(const char *at, char *value, size_t room)
{
    size_t used = 0;
    while (*at != '\0' && *at != '&') {
        int character = take(&at);
        if (character <= 0 || used + 1 >= room) {
            value[0] = '\0';
            return QUERY_WRONG;
        }
        value[used++] = (char)character;
    }
    value[used] = '\0';
    return QUERY_FOUND;
}

enum query_find
query_value(const char *query, const char *name, char *value, size_t room)
{
    size_t bytes = strlen(name);
    value[0] = '\0';
    for (const char *at = query; at != NULL; at = strchr(at, '&')) {
        at += *at == '&';
        if (strncmp(at, name, bytes) == 0 && at[bytes] == '=')
            return decode(at + bytes + 1, value, room);
    }
    return QUERY_ABSENT;
}
