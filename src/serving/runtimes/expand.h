/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubernetes' references to variables: $(NAME) becomes the variable's value, and stays as it is if
 * there is no such variable; $$ becomes $. Pure; any thread.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Variables as "NAME=value"; of several of one name the last one counts. */
struct variables {
    char **items; /* with NULL at the end; NULL: there are none */
    uint32_t count;
    uint32_t room;
};

/* Takes "NAME=value", from malloc; replaces one of that name. */
void variables_put(struct variables *variables, char *variable);
/* The value; NULL: there is none. */
const char *variables_find(const struct variables *variables, const char *name, size_t bytes);
void variables_fini(struct variables *variables);

/* Expands references to variables; the caller frees the text. NULL: it would have more bytes than
 * that; references to references multiply. */
char *expand(const char *text, const struct variables *variables, size_t bytes_max);
