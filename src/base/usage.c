/* SPDX-License-Identifier: Apache-2.0 */
#include "base/usage.h"

#include <ctype.h>
#include <getopt.h>
#include <string.h>

bool
usage_form_read(const char *name, enum usage_form *form)
{
    static const char *const names[] = {
        [USAGE_MAN] = "man", [USAGE_BASH] = "bash", [USAGE_ZSH] = "zsh"};
    for (enum usage_form i = USAGE_MAN; i <= USAGE_ZSH; i++)
        if (strcmp(name, names[i]) == 0) {
            *form = i;
            return true;
        }
    return false;
}

static bool
takes_word(const struct usage_option *option)
{
    return option->value != NULL && option->value[0] != '[';
}

/* ---- text ---- */

static void
print_option(FILE *out, const struct usage_option *option)
{
    char left[64];
    snprintf(left, sizeof(left), "--%s%s%s", option->name, takes_word(option) ? " " : "",
             option->value != NULL ? option->value : "");
    for (const char *line = option->help; line != NULL;) {
        size_t length = strcspn(line, "\n");
        fprintf(out, "  %-24s %.*s\n", left, (int)length, line);
        left[0] = '\0';
        line = line[length] == '\n' ? line + length + 1 : NULL;
    }
}

static void
print_text(FILE *out, const struct usage_program *program)
{
    const struct usage_command *command = &program->commands[0];
    fprintf(out, "usage: %s %s%s%s\n\n%s.\n\n", program->name, command->words,
            command->words[0] != '\0' ? " " : "", command->arguments, command->summary);
    for (size_t i = 0; i < command->option_count; i++)
        print_option(out, &command->options[i]);
    if (command->about != NULL)
        fprintf(out, "\n%s", command->about);
    if (command->example != NULL)
        fprintf(out, "\nExample:\n%s", command->example);
    if (command->exits != NULL)
        fprintf(out, "\nExit codes:\n%s", command->exits);
}

/* ---- manual pages ---- */

static void
roff_bytes(FILE *out, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        bool begins = i == 0 || text[i - 1] == '\n';
        if (begins && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] != '`')
            fputc(text[i], out);
    }
}

void
usage_roff(FILE *out, const char *text)
{
    roff_bytes(out, text, strlen(text));
}

static void
roff_upper(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        fputc(toupper((unsigned char)*text), out);
}

void
usage_roff_title(FILE *out, const char *name, const char *section, const char *summary)
{
    fputs(".TH ", out);
    roff_upper(out, name);
    fprintf(out, " %s \"\" Shoal\n.SH NAME\n", section);
    usage_roff(out, name);
    fputs(" \\- ", out);
    usage_roff(out, summary);
    fputc('\n', out);
}

/* Lines that begin with a space are not filled. */
static void
roff_lines(FILE *out, const char *text)
{
    bool is_kept = false;
    while (text != NULL && *text != '\0') {
        size_t length = strcspn(text, "\n");
        bool keep = text[0] == ' ';
        if (keep != is_kept && length > 0) {
            fputs(keep ? ".nf\n" : ".fi\n", out);
            is_kept = keep;
        }
        if (length == 0)
            fputs(".PP", out);
        roff_bytes(out, text, length);
        fputc('\n', out);
        text += length + (text[length] == '\n');
    }
    if (is_kept)
        fputs(".fi\n", out);
}

static void
roff_command(FILE *out, const struct usage_program *program, const struct usage_command *command)
{
    fputs(".B ", out);
    usage_roff(out, program->name);
    fputc(' ', out);
    usage_roff(out, command->words);
    fputs("\n", out);
    usage_roff(out, command->arguments);
    fputs("\n.PP\n", out);
    usage_roff(out, command->summary);
    fputs(".\n.PP\n", out);
    roff_lines(out, command->about);
    for (size_t i = 0; i < command->option_count; i++) {
        const struct usage_option *option = &command->options[i];
        fputs(".TP\n\\fB\\-\\-", out);
        usage_roff(out, option->name);
        fputs(takes_word(option) ? "\\fR \\fI" : "\\fR\\fI", out);
        usage_roff(out, option->value != NULL ? option->value : "");
        fputs("\\fR\n", out);
        usage_roff(out, option->help);
        fputc('\n', out);
    }
    if (command->exits != NULL)
        fputs(".PP\nExit codes:\n.PP\n", out);
    roff_lines(out, command->exits);
    if (command->example != NULL)
        fputs(".PP\nExample:\n.PP\n", out);
    roff_lines(out, command->example);
}

static void
print_man(FILE *out, const struct usage_program *program)
{
    usage_roff_title(out, program->name, program->section, program->summary);
    fputs(".SH DESCRIPTION\n", out);
    roff_lines(out, program->about);
    for (size_t i = 0; i < program->command_count; i++) {
        const struct usage_command *command = &program->commands[i];
        if (command->words[0] != '\0') {
            fputs(".SS ", out);
            usage_roff(out, command->words);
            fputc('\n', out);
        }
        roff_command(out, program, command);
    }
    fprintf(out, ".SH SEE ALSO\n%s\n", program->see_also);
}

/* ---- completion ---- */

/* The words that may follow a command's: those of commands that extend it. */
static void
print_following(FILE *out, const struct usage_program *program, const char *words)
{
    size_t length = strlen(words);
    for (size_t i = 0; i < program->command_count; i++) {
        const char *other = program->commands[i].words;
        if (strncmp(other, words, length) != 0 || (length > 0 && other[length] != ' '))
            continue;
        other += length + (length > 0);
        if (*other != '\0' && strchr(other, ' ') == NULL)
            fprintf(out, "%s ", other);
    }
}

static void
print_option_names(FILE *out, const struct usage_command *command, bool with_values_only)
{
    for (size_t i = 0; i < command->option_count; i++)
        if (!with_values_only || takes_word(&command->options[i]))
            fprintf(out, "--%s ", command->options[i].name);
}

static void
print_bash_case(FILE *out, const struct usage_program *program, const struct usage_command *command)
{
    fprintf(out, "    '%s') words='", command->words);
    if (command->words[0] != '\0')
        print_following(out, program, command->words);
    print_option_names(out, command, false);
    fputs("--help' valued=' ", out);
    print_option_names(out, command, true);
    fputs("' ;;\n", out);
}

/* Words that are neither in the table nor options are completed as names of files. */
static void
print_bash(FILE *out, const struct usage_program *program)
{
    fprintf(out,
            "# bash completion for %s, by `%s --help=bash`\n"
            "_%s() {\n"
            "    local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "    local command='' words='' valued='' i\n"
            "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
            "        case $command${command:+ }${COMP_WORDS[i]} in\n",
            program->name, program->name, program->name);
    for (size_t i = 0; i < program->command_count; i++)
        if (program->commands[i].words[0] != '\0')
            fprintf(out, "        '%s') command='%s' ;;\n", program->commands[i].words,
                    program->commands[i].words);
    fputs("        esac\n    done\n    case $command in\n", out);
    for (size_t i = 0; i < program->command_count; i++)
        print_bash_case(out, program, &program->commands[i]);
    if (program->commands[0].words[0] != '\0') {
        fputs("    '') words='", out);
        print_following(out, program, "");
        fputs("--help --version' ;;\n", out);
    }
    fprintf(out,
            "    esac\n"
            "    COMPREPLY=()\n"
            "    [[ $valued == *\" $before \"* ]] ||\n"
            "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
            "}\n"
            "complete -o default -F _%s %s\n",
            program->name, program->name);
}

/* Within single quotes and brackets of _arguments. */
static void
print_zsh_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '\'')
            fputs("'\\''", out);
        else if (*text == '[' || *text == ']' || *text == ':' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else
            fputc(*text == '\n' ? ' ' : *text, out);
}

static void
print_zsh_options(FILE *out, const struct usage_command *command)
{
    for (size_t i = 0; i < command->option_count; i++) {
        const struct usage_option *option = &command->options[i];
        fprintf(out, " \\\n            '*--%s%s[", option->name, takes_word(option) ? "=" : "");
        print_zsh_text(out, option->help);
        fputs("]", out);
        if (takes_word(option)) {
            fputs(":", out);
            print_zsh_text(out, option->value);
            fputs(":_files", out);
        }
        fputs("'", out);
    }
}

static void
print_zsh_case(FILE *out, const struct usage_program *program, const struct usage_command *command)
{
    fprintf(out, "    '%s')\n        _arguments '--help[this text]'", command->words);
    print_zsh_options(out, command);
    fputs(" \\\n            '*:argument:{ compadd -- ", out);
    if (command->words[0] != '\0')
        print_following(out, program, command->words);
    fputs("; _files }'\n        ;;\n", out);
}

static void
print_zsh(FILE *out, const struct usage_program *program)
{
    fprintf(out,
            "#compdef %s\n"
            "# by `%s --help=zsh`\n"
            "local known='' i\n"
            "for ((i = 2; i < CURRENT; i++)); do\n"
            "    case $known${known:+ }${words[i]} in\n",
            program->name, program->name);
    for (size_t i = 0; i < program->command_count; i++)
        if (program->commands[i].words[0] != '\0')
            fprintf(out, "    '%s') known='%s' ;;\n", program->commands[i].words,
                    program->commands[i].words);
    fputs("    *) ;;\n    esac\ndone\ncase $known in\n", out);
    for (size_t i = 0; i < program->command_count; i++)
        print_zsh_case(out, program, &program->commands[i]);
    if (program->commands[0].words[0] != '\0') {
        fputs("    '') compadd -- ", out);
        print_following(out, program, "");
        fputs("--help --version ;;\n", out);
    }
    fputs("esac\n", out);
}

void
usage_print(FILE *out, const struct usage_program *program, enum usage_form form)
{
    switch (form) {
    case USAGE_TEXT: print_text(out, program); break;
    case USAGE_MAN: print_man(out, program); break;
    case USAGE_BASH: print_bash(out, program); break;
    case USAGE_ZSH: print_zsh(out, program); break;
    }
}

void
usage_getopt(const struct usage_option *options, size_t count, struct option *known)
{
    for (size_t i = 0; i < count; i++) {
        const char *value = options[i].value;
        known[i] = (struct option){.name = options[i].name,
                                   .has_arg = value == NULL     ? no_argument
                                              : value[0] == '[' ? optional_argument
                                                                : required_argument,
                                   .val = (int)i + 1};
    }
    known[count] = (struct option){0};
}
