/* SPDX-License-Identifier: Apache-2.0 */
#include "ctl/ctl.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/utf8.h"
#include "ipc/counters.h"

enum { WORD_MAX = 32, OPTIONS_MAX = 32 };

/* Results of getopt besides letters. */
enum { GIVEN_ARGUMENT = 1, GIVEN_OPTION = 256, GIVEN_HELP };

void *
ctl_allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes > 0 ? bytes : 1);
    CHECK(memory != NULL);
    return memory;
}

const char *
ctl_counters_default(void)
{
    static char path[COUNTERS_PATH_BYTES_MAX + 1];
    counters_default_path(path, sizeof(path));
    bool of_service = access(path, F_OK) != 0 && access(COUNTERS_PATH_SERVICE, R_OK) == 0;
    return of_service ? COUNTERS_PATH_SERVICE : path;
}

const char *
ctl_target_default(void)
{
    const char *target = getenv("SHOAL_TARGET");
    return target != NULL && target[0] != '\0' ? target : "127.0.0.1:8033";
}

void
ctl_print_line(struct bytes *line, FILE *out)
{
    CHECK(!line->failed && memchr(line->data, '\n', line->used) == NULL);
    fwrite(line->data, 1, line->used, out);
    putc('\n', out);
    bytes_fini(line);
}

int
ctl_fail(enum ctl_exit code, enum ctl_output output, const struct error *error)
{
    const char *text = error->text[0] != '\0' ? error->text : status_name(error->status);
    fflush(stdout);
    fprintf(stderr, "shoalctl: %s\n", text);
    if (output == CTL_JSON) {
        struct bytes line = {0};
        struct json json = json_begin(&line, JSON_STYLE_SPACED);
        json_open(&json, '{');
        json_field_string(&json, "error", text);
        json_field_string(&json, "status", status_name(error->status));
        json_field_uint(&json, "code", error->status);
        json_close(&json, '}');
        ctl_print_line(&line, stdout);
    }
    return code;
}

/* ---- suggestions for misspelt words ---- */

/* The number of letters to insert, drop or change to turn `a` into `b`. */
static size_t
distance(const char *a, const char *b)
{
    size_t a_length = strnlen(a, WORD_MAX);
    size_t b_length = strnlen(b, WORD_MAX);
    size_t rows[2][WORD_MAX + 1];
    for (size_t j = 0; j <= b_length; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        size_t *row = rows[i % 2];
        const size_t *above = rows[(i + 1) % 2];
        row[0] = i;
        for (size_t j = 1; j <= b_length; j++) {
            size_t best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            row[j] = best;
        }
    }
    return rows[a_length % 2][b_length];
}

const char *
ctl_nearest(const char *word, const char *const *known, size_t known_count)
{
    const char *nearest = NULL;
    size_t least = SIZE_MAX;
    for (size_t i = 0; i < known_count; i++) {
        size_t steps = distance(word, known[i]);
        if (steps < least) {
            least = steps;
            nearest = known[i];
        }
    }
    /* At most half of the word may be wrong: `xyz` resembles nothing. */
    return nearest != NULL && least <= (strnlen(nearest, WORD_MAX) + 1) / 2 ? nearest : NULL;
}

/* ---- options ---- */

static void
option_help(const struct ctl_option *option, char letter)
{
    char left[64];
    const char given[] = {',', ' ', '-', letter, '\0'};
    snprintf(left, sizeof left, "--%s%s%s%s", option->name, option->value != NULL ? " " : "",
             option->value != NULL ? option->value : "", letter != '\0' ? given : "");
    const char *line = option->help;
    for (;;) {
        size_t length = strcspn(line, "\n");
        printf("  %-24s %.*s\n", left, (int)length, line);
        left[0] = '\0';
        if (line[length] == '\0')
            return;
        line += length + 1;
    }
}

static char
letter_of(const struct ctl_command *command, size_t option)
{
    return command->letters != NULL && option < strlen(command->letters) ? command->letters[option]
                                                                         : '\0';
}

static void
command_help(const struct ctl_command *command)
{
    printf("usage: shoalctl %s %s\n\n%s.\n", command->name, command->arguments, command->summary);
    if (command->about != NULL)
        printf("\n%s", command->about);
    printf("\nOptions:\n");
    for (size_t i = 0; i < command->option_count; i++)
        option_help(&command->options[i], letter_of(command, i));
    option_help(&(struct ctl_option){.name = "help", .help = "this text"}, '\0');
    printf("\nExit codes:\n"
           "%s"
           "  2  a wrong option or argument\n"
           "  3  no node could be reached there, or a file could not be read\n"
           "  4  a deadline passed\n"
           "\nExample:\n%s",
           command->exits != NULL ? command->exits
                                  : "  0  success\n  1  the node answered with an error\n",
           command->example);
}

static int
usage_error(const struct ctl_command *command, const char *text)
{
    fprintf(stderr, "shoalctl %s: %s; see shoalctl %s --help\n", command->name, text,
            command->name);
    return CTL_USAGE;
}

/* `given` starts with "--" and may contain "=value". */
static int
option_unknown(const struct ctl_command *command, const char *given)
{
    const char *names[OPTIONS_MAX];
    char text[256];
    char word[WORD_MAX + 1];
    for (size_t i = 0; i < command->option_count; i++)
        names[i] = command->options[i].name;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
    const char *nearest = NULL;
    if (strncmp(word, "--", 2) == 0)
        nearest = ctl_nearest(word + 2, names, command->option_count);
    for (size_t i = 0; i < command->option_count && strlen(word) > 4; i++)
        if (strncmp(names[i], word + 2, strlen(word) - 2) == 0)
            nearest = names[i];
    if (nearest != NULL && strcmp(nearest, word + 2) == 0) {
        snprintf(text, sizeof text, "%s takes no value", word);
        return usage_error(command, text);
    }
    snprintf(text, sizeof text, "unknown option %s%s%s", word,
             nearest != NULL ? ", did you mean --" : "", nearest != NULL ? nearest : "");
    return usage_error(command, text);
}

/* NULL: `--help` prints. */
static const struct ctl_command **asked;

const struct ctl_command *
ctl_command_of(int (*run)(int argc, char **argv), const char *word)
{
    const struct ctl_command *command = NULL;
    char name[WORD_MAX + 1];
    char help[] = "--help";
    snprintf(name, sizeof name, "%s", word);
    char *words[] = {name, help, NULL};
    asked = &command;
    (void)run(2, words);
    asked = NULL;
    CHECK(command != NULL);
    return command;
}

/* `letters`: getopt's, which begin with the order and the colon for missing values. */
static void
known_fill(const struct ctl_command *command, struct option known[OPTIONS_MAX + 2],
           char letters[2 * OPTIONS_MAX + 3])
{
    CHECK(command->option_count <= OPTIONS_MAX);
    size_t count = 0;
    for (; count < command->option_count; count++)
        known[count] = (struct option){
            .name = command->options[count].name,
            .has_arg = command->options[count].value != NULL ? required_argument : no_argument,
            .val = GIVEN_OPTION};
    memcpy(letters, "-:", 3);
    for (size_t i = 0; i < command->option_count; i++)
        if (letter_of(command, i) != '\0') {
            size_t end = strlen(letters);
            memcpy(letters + end, (char[]){letter_of(command, i), ':', '\0'}, 3);
        }
    known[count++] = (struct option){.name = "help", .has_arg = no_argument, .val = GIVEN_HELP};
    known[count] = (struct option){0};
}

/* getopt takes any beginning of a name that no other option shares. */
static bool
is_shortened(const char *given, const char *name)
{
    size_t bytes = strlen(name);
    return strncmp(given + 2, name, bytes) != 0 ||
           (given[2 + bytes] != '\0' && given[2 + bytes] != '=');
}

static enum status
set_option(const struct ctl_option *option, void *settings, const char *value, struct error *error)
{
    void *to = (char *)settings + option->at;
    switch (option->form) {
    case CTL_OWN: return option->take(settings, value, error);
    case CTL_FLAG: *(bool *)to = true; break;
    case CTL_WORD: memcpy(to, &value, sizeof(value)); break;
    case CTL_NAME: return ctl_take_text(to, (size_t)option->most, option->what, value, error);
    case CTL_WHOLE: return ctl_read_whole(value, 1, option->most, to, error);
    case CTL_SECONDS: return ctl_read_seconds(value, to, error);
    case CTL_AS_JSON: *(enum ctl_output *)to = CTL_JSON; break;
    }
    return STATUS_OK;
}

static enum status
take_option(const struct ctl_option *option, void *settings, const char *value, struct error *error)
{
    enum status status = set_option(option, settings, value, error);
    return status == STATUS_OK ? status : error_prefix(error, "--%s", option->name);
}

static enum status
no_argument_wanted(void *settings, const char *value, struct error *error)
{
    (void)settings;
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.64s\" is an unexpected argument", value);
}

int
ctl_options_read(const struct ctl_command *command, int argc, char **argv,
                 ctl_on_argument *on_argument, void *settings)
{
    if (on_argument == NULL)
        on_argument = no_argument_wanted;
    struct option known[OPTIONS_MAX + 2];
    char letters[2 * OPTIONS_MAX + 3];
    known_fill(command, known, letters);
    opterr = 0;
    optind = 0; /* glibc: reset */
    for (;;) {
        struct error error = ERROR_NONE;
        int index = 0;
        int at = optind > 0 ? optind : 1;
        int option = getopt_long(argc, argv, letters, known, &index);
        if (option == -1)
            break;
        switch (option) {
        case GIVEN_HELP:
            if (asked == NULL)
                command_help(command);
            else
                *asked = command;
            return CTL_OK;
        case ':': {
            char text[256];
            snprintf(text, sizeof text, "%.64s needs a value", argv[at]);
            return usage_error(command, text);
        }
        case '?': return option_unknown(command, argv[at]);
        case GIVEN_ARGUMENT:
            if (on_argument(settings, optarg, &error) != STATUS_OK)
                return usage_error(command, error.text);
            break;
        case GIVEN_OPTION:
            if (is_shortened(argv[at], known[index].name)) /* --timeout 20 is not --timeout-ms 20 */
                return option_unknown(command, argv[at]);
            if (take_option(&command->options[index], settings, optarg, &error) != STATUS_OK)
                return usage_error(command, error.text);
            break;
        default:
            index = (int)(strchr(command->letters, option) - command->letters);
            if (take_option(&command->options[index], settings, optarg, &error) != STATUS_OK)
                return usage_error(command, error.text);
        }
    }
    for (; optind < argc; optind++) {
        struct error error = ERROR_NONE;
        if (on_argument(settings, argv[optind], &error) != STATUS_OK)
            return usage_error(command, error.text);
    }
    return -1;
}

/* ---- commands below a command ---- */

static enum status
unknown_part(void *context, const char *value, struct error *error)
{
    const struct ctl_command *command = context;
    const char *words[OPTIONS_MAX];
    CHECK(command->part_count <= OPTIONS_MAX);
    for (size_t i = 0; i < command->part_count; i++)
        words[i] = command->parts[i].word;
    const char *nearest = ctl_nearest(value, words, command->part_count);
    return error_set(error, STATUS_INVALID_ARGUMENT, "\"%.32s\" is not one of its commands%s%s",
                     value, nearest != NULL ? ": did you mean " : "",
                     nearest != NULL ? nearest : "");
}

int
ctl_parts_run(const struct ctl_command *command, int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < command->part_count; i++)
        if (strcmp(argv[1], command->parts[i].word) == 0)
            return command->parts[i].run(argc - 1, argv + 1);
    int code = ctl_options_read(command, argc, argv, unknown_part, (void *)(uintptr_t)command);
    return code >= 0 ? code : usage_error(command, "a command is missing");
}

enum status
ctl_read_whole(const char *text, int64_t least, int64_t most, int64_t *number, struct error *error)
{
    char *end;
    errno = 0;
    long long read = strtoll(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || read < least || read > most)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.32s\" is not an integer from %" PRId64 " to %" PRId64, text, least,
                         most);
    *number = read;
    return STATUS_OK;
}

enum status
ctl_read_seconds(const char *text, int64_t *duration_ns, struct error *error)
{
    enum { SECONDS_MAX = 1000000 };
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds <= 0 || seconds > SECONDS_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "\"%.32s\" is not a number of seconds above 0 and at most %d", text,
                         SECONDS_MAX);
    *duration_ns = (int64_t)(seconds * (double)NS_PER_S);
    return STATUS_OK;
}

enum status
ctl_take_text(const char **text, size_t room_max, const char *what, const char *value,
              struct error *error)
{
    size_t bytes = strlen(value);
    if (bytes == 0 || bytes >= room_max)
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s has 1 to %zu bytes, not %zu", what,
                         room_max - 1, bytes);
    if (!utf8_is_text(value, bytes))
        return error_set(error, STATUS_INVALID_ARGUMENT, "%s must be UTF-8", what);
    *text = value;
    return STATUS_OK;
}
