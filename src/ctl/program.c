/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl itself: finds the command that the user names. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "ctl/ctl.h"

static const struct ctl_command *const commands[] = {
    &infer_command,   &status_command,   &stat_command, &top_command,    &reload_command,
    &upgrade_command, &model_command,    &mesh_command, &apply_command,  &diff_command,
    &get_command,     &describe_command, &wait_command, &delete_command, &new_command,
};

#define ABOUT                                                                                      \
    "shoalctl COMMAND --help describes a command; --version prints the version.\n"                 \
    "A node is found by its address ($SHOAL_TARGET, else 127.0.0.1:8033) or on its own\n"          \
    "machine by its counters file.\n"                                                              \
    "Exit codes: 0 success, 1 the node answered with an error or is not in the state asked\n"      \
    "for, 2 wrong usage, 3 no node or file, 4 a deadline passed.\n"

static void
help(FILE *out)
{
    fputs("usage: shoalctl COMMAND [options]\n\n", out);
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        fprintf(out, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n" ABOUT, out);
}

/* Output that could not be written must not look like success. */
static int
output_finish(int code)
{
    CHECK(code >= CTL_OK && code <= CTL_LATE);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "shoalctl: writing: %s\n", strerror(errno));
    return code == CTL_OK ? CTL_UNREACHABLE : code;
}

int
ctl_run(int argc, char **argv)
{
    const char *word = argc > 1 ? argv[1] : "";
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        help(stdout);
        return CTL_OK;
    }
    if (strncmp(word, "--help=", strlen("--help=")) == 0)
        return output_finish(
            ctl_manual(word + strlen("--help="), ABOUT, commands, ARRAY_COUNT(commands)));
    if (strcmp(word, "--version") == 0) {
        puts("shoalctl " SHOAL_VERSION);
        return CTL_OK;
    }
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        if (strcmp(word, commands[i]->name) == 0)
            return output_finish(commands[i]->run(argc - 1, argv + 1));
    if (word[0] == '\0') {
        help(stderr);
        return CTL_USAGE;
    }
    const char *names[ARRAY_COUNT(commands)];
    for (size_t i = 0; i < ARRAY_COUNT(commands); i++)
        names[i] = commands[i]->name;
    const char *nearest = ctl_nearest(word, names, ARRAY_COUNT(commands));
    fprintf(stderr, "shoalctl: no command \"%.32s\"%s%s; see shoalctl --help\n", word,
            nearest != NULL ? ", did you mean " : "", nearest != NULL ? nearest : "");
    return CTL_USAGE;
}
