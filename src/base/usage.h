/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program's commands and options as one table, and its products: `--help`, the manual page, and
 * completion for bash and zsh.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum usage_form { USAGE_TEXT, USAGE_MAN, USAGE_BASH, USAGE_ZSH };

struct usage_option {
    const char *name;
    const char *value; /* its placeholder; "[=…]" if it may be left out; NULL: it takes none */
    const char *help;  /* may have several lines */
};

struct usage_command {
    const char *words;     /* behind the program's name; "" for a program without commands */
    const char *arguments; /* in the usage line */
    const char *summary;   /* one sentence without a full stop */
    const char *about;     /* lines that end in \n; those that begin with a space stay as they are;
                              NULL: none */
    const char *exits;     /* the same, for exit codes */
    const char *example;   /* the same */
    const struct usage_option *options;
    size_t option_count;
};

struct usage_program {
    const char *name;
    const char *section; /* of the manual */
    const char *summary;
    const char *about; /* as of a command */
    const char *see_also;
    /* a program with several commands has each command's words before those that extend them */
    const struct usage_command *commands;
    size_t command_count;
};

/* "man", "bash" or "zsh". False: there is no such form. */
bool usage_form_read(const char *name, enum usage_form *form);

/* Prints only the first command if `form` is text. */
void usage_print(FILE *out, const struct usage_program *program, enum usage_form form);

/* Writes the same options for getopt_long: element i becomes option i + 1, and an end follows them.
 * `known` has room for `count` + 1. */
struct option;
void usage_getopt(const struct usage_option *options, size_t count, struct option *known);

/* Writes text into a manual page, and such a page's first lines; backquotes are left out. */
void usage_roff(FILE *out, const char *text);
void usage_roff_title(FILE *out, const char *name, const char *section, const char *summary);
