/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl --help=man, bash or zsh: all commands, from the tables that their --help prints. */
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/usage.h"
#include "ctl/ctl.h"

enum { COMMANDS_MAX = 64 };

struct manual {
    struct usage_command commands[COMMANDS_MAX];
    size_t count;
};

static void
add(struct manual *manual, const struct ctl_command *command)
{
    struct usage_option *options = ctl_allocate(command->option_count, sizeof(*options));
    CHECK(manual->count < COMMANDS_MAX);
    for (size_t i = 0; i < command->option_count; i++)
        options[i] = (struct usage_option){command->options[i].name, command->options[i].value,
                                           command->options[i].help};
    manual->commands[manual->count++] = (struct usage_command){
        .words = command->name,
        .arguments = command->arguments,
        .summary = command->summary,
        .about = command->about,
        .exits = command->exits,
        .example = command->example,
        .options = options,
        .option_count = command->option_count,
    };
}

int
ctl_manual(const char *form, const char *about, const struct ctl_command *const *commands,
           size_t count)
{
    static struct manual manual;
    enum usage_form read;
    if (!usage_form_read(form, &read)) {
        fprintf(stderr, "shoalctl: --help=%.32s: man, bash or zsh\n", form);
        return CTL_USAGE;
    }
    for (size_t i = 0; i < count; i++) {
        add(&manual, commands[i]);
        for (size_t j = 0; j < commands[i]->part_count; j++)
            add(&manual, ctl_command_of(commands[i]->parts[j].run, commands[i]->parts[j].word));
    }
    struct usage_program program = {
        .name = "shoalctl",
        .section = "1",
        .summary = "call, inspect and manage the nodes of the Shoal model server",
        .about = about,
        .see_also = ".BR shoald (8),\n.BR shoald.yaml (5)",
        .commands = manual.commands,
        .command_count = manual.count,
    };
    usage_print(stdout, &program, read);
    for (size_t i = 0; i < manual.count; i++)
        free((void *)(uintptr_t)manual.commands[i].options);
    return CTL_OK;
}
