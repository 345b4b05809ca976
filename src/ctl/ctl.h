/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shoalctl: an operator's commands. Each command is one entry of a table (name, summary, options,
 * function), from which dispatch, help and option parser follow.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/error.h"

/* Exit codes that scripts may rely on. */
enum ctl_exit {
    CTL_OK = 0,
    CTL_NEGATIVE = 1,    /* the node answered with an error, or is not in the requested state */
    CTL_USAGE = 2,       /* wrong option or argument */
    CTL_UNREACHABLE = 3, /* no node there, or a file that cannot be read or written */
    CTL_LATE = 4,        /* a deadline passed */
};

enum ctl_output { CTL_TEXT, CTL_JSON };

/* The form of an option's value, which is stored at `at` in the command's settings. */
enum ctl_form {
    CTL_OWN,     /* `take` decides */
    CTL_FLAG,    /* bool */
    CTL_WORD,    /* const char *, any */
    CTL_NAME,    /* const char *, as ctl_take_text, of less than `most` bytes */
    CTL_WHOLE,   /* int64_t, from 1 to `most` */
    CTL_SECONDS, /* int64_t, in nanoseconds */
    CTL_AS_JSON, /* enum ctl_output */
};

struct ctl_option {
    const char *name;
    const char *value; /* placeholder of its value in the help; NULL: it takes none */
    const char *help;  /* may have several lines */
    enum ctl_form form;
    size_t at;
    int64_t most;
    const char *what; /* of CTL_NAME: its name in errors */
    enum status (*take)(void *settings, const char *value, struct error *error);
};

/* A command below another: `shoalctl model load`. */
struct ctl_part {
    const char *word;
    int (*run)(int argc, char **argv); /* argv[0] is the word */
};

struct ctl_command {
    const char *name;
    const char *arguments; /* in the usage line, after the name */
    const char *summary;   /* one line */
    const char *about;     /* paragraphs, each line ending in \n; NULL: the summary suffices */
    const char *exits;     /* the meaning of 0 and 1 here; NULL: the general one */
    const char *example;
    const struct ctl_option *options;
    size_t option_count;
    const char *letters; /* for the first options, which have values: "-f FILE"; NULL: none */
    const struct ctl_part *parts; /* NULL: none */
    size_t part_count;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name */
};

#define CTL_OPTIONS(table) .options = (table), .option_count = ARRAY_COUNT(table)

extern const struct ctl_command apply_command, delete_command, describe_command, diff_command,
    get_command, wait_command, infer_command, mesh_command, model_command, new_command,
    reload_command, stat_command, status_command, top_command, upgrade_command;

/* The whole program. */
int ctl_run(int argc, char **argv);

/* The known word that `word` probably stands for; NULL if none is close. */
const char *ctl_nearest(const char *word, const char *const *known, size_t known_count);

/* NULL: the command takes no arguments. */
typedef enum status ctl_on_argument(void *settings, const char *value, struct error *error);

/*
 * Parses argv: options as the command's table says, every argument by `on_argument`, whose errors
 * the user sees. Returns -1 to continue, otherwise the program's exit code: help was printed, or
 * there was a mistake.
 */
int ctl_options_read(const struct ctl_command *command, int argc, char **argv,
                     ctl_on_argument *on_argument, void *settings);

/* Runs the command that argv[1] names, for a command that only has others below it. */
int ctl_parts_run(const struct ctl_command *command, int argc, char **argv);

/* Runs a command with --help, which gives its table here instead of being printed. */
const struct ctl_command *ctl_command_of(int (*run)(int argc, char **argv), const char *word);

/* Prints the manual page or completion (base/usage.h) of all commands; returns the exit code. */
int ctl_manual(const char *form, const char *about, const struct ctl_command *const *commands,
               size_t count);

/* Reads a number within limits; errors name them. */
enum status ctl_read_whole(const char *text, int64_t least, int64_t most, int64_t *number,
                           struct error *error) WARN_UNUSED;
/* Reads seconds, possibly with a fraction, as nanoseconds; more than 0. */
enum status ctl_read_seconds(const char *text, int64_t *duration_ns,
                             struct error *error) WARN_UNUSED;

/* A text of the command line with less than `room_max` bytes, in UTF-8; errors say `what` it is. */
enum status ctl_take_text(const char **text, size_t room_max, const char *what, const char *value,
                          struct error *error) WARN_UNUSED;

/* Prints the error on stderr, and in JSON also as an object on stdout; returns `code`. */
int ctl_fail(enum ctl_exit code, enum ctl_output output, const struct error *error);
/* Prints a line of JSON and frees it. */
void ctl_print_line(struct bytes *line, FILE *out);

/* The counters file of this user's node, or, if there is none, of the service's that this user may
 * read. Valid until the next call. */
const char *ctl_counters_default(void);

/* $SHOAL_TARGET, or 127.0.0.1:8033. */
const char *ctl_target_default(void);

/* Zeroed memory; exits if there is none. */
void *ctl_allocate(size_t count, size_t bytes);
