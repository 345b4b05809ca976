/* SPDX-License-Identifier: Apache-2.0 */
/* shoalctl new modelet: a folder that builds, tests and serves a modelet. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/check.h"
#include "ctl/ctl.h"
#include "ctl/new_modelet.h"

enum { NEW_NAME_BYTES_MAX = 40, NEW_PATH_BYTES = 4096 };

static const struct new_file {
    const char *name; /* of the file */
    const unsigned char *text;
    const size_t *size;
} templates[] = {
    {"CMakeLists.txt", new_modelet_build, &new_modelet_build_size},
    {"@NAME@.c", new_modelet_source, &new_modelet_source_size},
    {"test_@NAME@.c", new_modelet_test, &new_modelet_test_size},
    {"shoald.yaml", new_modelet_config, &new_modelet_config_size},
    {"README.md", new_modelet_readme, &new_modelet_readme_size},
};

/* ---- filling in ---- */

struct new_word {
    const char *mark;
    const char *value;
};

/* The folder above that of this program, where CMake finds what is installed with it. */
static void
prefix_of(char prefix[NEW_PATH_BYTES])
{
    ssize_t bytes = readlink("/proc/self/exe", prefix, NEW_PATH_BYTES - 1);
    prefix[bytes > 0 ? bytes : 0] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(prefix, '/');
        if (slash != NULL)
            *slash = '\0';
    }
}

/* Replaces the marks in a text. */
static void
fill_in(struct bytes *out, const char *text, size_t size, const struct new_word words[])
{
    for (size_t i = 0; i < size;) {
        const struct new_word *word = words;
        while (word->mark != NULL && (size - i < strlen(word->mark) ||
                                      memcmp(text + i, word->mark, strlen(word->mark)) != 0))
            word++;
        if (word->mark == NULL) {
            bytes_put(out, &text[i++], 1);
            continue;
        }
        bytes_put(out, word->value, strlen(word->value));
        i += strlen(word->mark);
    }
}

/* ---- files ---- */

static enum status
write_file(int folder, const char *name, const struct bytes *text, struct error *error)
{
    int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0)
        return error_set_errno(error, "%s", name);
    ssize_t written = write(fd, text->data, text->used);
    enum status status = STATUS_OK;
    if (written != (ssize_t)text->used)
        status = error_set_errno(error, "%s", name);
    if (close(fd) != 0 && status == STATUS_OK)
        status = error_set_errno(error, "%s", name);
    return status;
}

static enum status
write_template(int folder, const struct new_file *template, const struct new_word words[],
               struct error *error)
{
    struct bytes name = {0};
    struct bytes text = {0};
    fill_in(&name, template->name, strlen(template->name) + 1, words);
    fill_in(&text, (const char *)template->text, *template->size, words);
    CHECK(!name.failed && !text.failed);
    enum status status = write_file(folder, name.data, &text, error);
    bytes_fini(&name);
    bytes_fini(&text);
    return status;
}

static enum status
write_folder(const char *name, struct error *error)
{
    char prefix[NEW_PATH_BYTES];
    prefix_of(prefix);
    const struct new_word words[] = {
        {"@NAME@", name}, {"@PREFIX@", prefix}, {"@VERSION@", SHOAL_VERSION}, {NULL, NULL}};
    if (mkdir(name, 0777) != 0)
        return error_set_errno(error, "%s%s", name,
                               errno == EEXIST ? ": nothing is overwritten" : "");
    int folder = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return error_set_errno(error, "%s", name);
    enum status status = STATUS_OK;
    for (size_t i = 0; i < ARRAY_COUNT(templates) && status == STATUS_OK; i++)
        status = write_template(folder, &templates[i], words, error);
    close(folder);
    return status;
}

/* ---- the command ---- */

/* The name becomes that of files, of a target of CMake, and of a pipeline. */
static enum status
name_check(const char *name, struct error *error)
{
    static const char *const taken[] = {"all", "clean", "help", "install", "package", "test"};
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz";
    size_t bytes = strlen(name);
    if (bytes == 0 || bytes > NEW_NAME_BYTES_MAX || strchr(letters, name[0]) == NULL ||
        strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != bytes)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "the name \"%.64s\" must have 1 to %d lower-case letters, digits and "
                         "underscores, a letter first",
                         name, NEW_NAME_BYTES_MAX);
    for (size_t i = 0; i < ARRAY_COUNT(taken); i++)
        if (strcmp(name, taken[i]) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "the name \"%s\" means something else "
                             "to CMake",
                             name);
    return STATUS_OK;
}

static enum status
on_name(void *context, const char *value, struct error *error)
{
    const char **name = context;
    if (*name != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "one name at a time");
    *name = value;
    return name_check(value, error);
}

static const struct ctl_command new_modelet_command = {
    .name = "new modelet",
    .arguments = "NAME",
    .summary = "Make a folder with a new modelet",
    .about = "The folder NAME has a modelet in C, its test, a configuration that serves it, and a\n"
             "CMakeLists.txt that builds it against the installed Shoal. Its README.md says how.\n",
    .exits = "  0  the folder was made\n",
    .example = "  shoalctl new modelet twice && cd twice\n"
               "  cmake -B build && cmake --build build && ctest --test-dir build\n"
               "  shoald shoald.yaml\n",
};

static int
new_modelet_run(int argc, char **argv)
{
    const char *name = NULL;
    int code = ctl_options_read(&new_modelet_command, argc, argv, on_name, &name);
    if (code >= 0)
        return code;
    struct error error = ERROR_NONE;
    if (name == NULL) {
        fprintf(stderr,
                "shoalctl new modelet: a name is missing; see shoalctl new modelet --help\n");
        return CTL_USAGE;
    }
    if (write_folder(name, &error) != STATUS_OK)
        return ctl_fail(CTL_UNREACHABLE, CTL_TEXT, &error);
    printf("%s/README.md says how to build, test and serve it\n", name);
    return CTL_OK;
}

static const struct ctl_part parts[] = {{"modelet", new_modelet_run}};

static int
new_run(int argc, char **argv)
{
    return ctl_parts_run(&new_command, argc, argv);
}

const struct ctl_command new_command = {
    .name = "new",
    .arguments = "modelet NAME",
    .summary = "Make a folder with a new modelet",
    .about = "  modelet NAME   make the folder NAME, with a modelet to start from\n",
    .exits = "  0  the folder was made\n",
    .example = "  shoalctl new modelet twice\n",
    .parts = parts,
    .part_count = ARRAY_COUNT(parts),
    .run = new_run,
};
