/* SPDX-License-Identifier: Apache-2.0 */
#include "serving/runtimes/expand.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"

static char **
find(const struct variables *variables, const char *name, size_t bytes)
{
    for (uint32_t i = 0; i < variables->count; i++)
        if (strncmp(variables->items[i], name, bytes) == 0 && variables->items[i][bytes] == '=')
            return &variables->items[i];
    return NULL;
}

void
variables_put(struct variables *variables, char *variable)
{
    char **former = find(variables, variable, strcspn(variable, "="));
    if (former != NULL) {
        free(*former);
        *former = variable;
        return;
    }
    if (variables->count + 1 >= variables->room) {
        variables->room = 2 * variables->room + 16;
        variables->items = realloc(variables->items, variables->room * sizeof(char *));
        CHECK(variables->items != NULL);
    }
    variables->items[variables->count++] = variable;
    variables->items[variables->count] = NULL;
}

const char *
variables_find(const struct variables *variables, const char *name, size_t bytes)
{
    char **found = find(variables, name, bytes);
    return found != NULL ? *found + bytes + 1 : NULL;
}

void
variables_fini(struct variables *variables)
{
    for (uint32_t i = 0; i < variables->count; i++)
        free(variables->items[i]);
    free(variables->items);
    *variables = (struct variables){0};
}

/* `at`: behind a dollar; `last`: the text's last bracket. Returns the first character that is not
 * part of the reference. */
static const char *
put_reference(struct bytes *to, const char *at, const char *last, const struct variables *variables)
{
    const char *end = *at == '(' && at < last ? strchr(at, ')') : NULL;
    if (*at == '$') {
        bytes_put_char(to, '$');
        return at + 1;
    }
    if (end == NULL) {
        bytes_put_char(to, '$');
        return at;
    }
    const char *value = variables_find(variables, at + 1, (size_t)(end - at - 1));
    if (value != NULL) {
        bytes_put_text(to, value);
    } else {
        bytes_put_char(to, '$');
        bytes_put(to, at, (size_t)(end + 1 - at));
    }
    return end + 1;
}

char *
expand(const char *text, const struct variables *variables, size_t bytes_max)
{
    struct bytes to = {0};
    const char *last = strrchr(text, ')');
    if (last == NULL)
        last = text;
    while (*text != '\0' && to.used <= bytes_max) {
        size_t plain = strcspn(text, "$");
        bytes_put(&to, text, plain);
        text += plain;
        if (*text == '$')
            text = put_reference(&to, text + 1, last, variables);
    }
    if (to.used > bytes_max) {
        bytes_fini(&to);
        return NULL;
    }
    bytes_put_char(&to, '\0');
    CHECK(!to.failed);
    return bytes_take(&to, &(size_t){0});
}
