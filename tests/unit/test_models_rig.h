/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of models for tests: files whose times are long past, each another one. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../test.h"

static inline const char *
path_of(const char *directory, const char *name, const char *file)
{
    static char path[512];
    snprintf(path, sizeof(path), "%s/%s/%s", directory, name, file);
    return path;
}

static inline void
age(const char *path)
{
    static int64_t hours; /* each time another one */
    const struct timespec long_ago = {.tv_sec = 1000000000 + 3600 * ++hours};
    const struct timespec times[2] = {long_ago, long_ago};
    assert_int_equal(utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW), 0);
}

static inline void
write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
    age(path);
}

/* A model that has been there for long. `key` NULL: without one. */
static inline void
make_model_in(const char *directory, const char *name, const char *key)
{
    assert_int_equal(mkdir(path_of(directory, name, ""), 0755), 0);
    write_file(path_of(directory, name, "weights"), name, strlen(name));
    if (key != NULL)
        write_file(path_of(directory, name, "key.json"), key, strlen(key));
    age(path_of(directory, name, ""));
}

static inline void
remove_all(const char *path)
{
    char command[256];
    snprintf(command, sizeof(command), "rm -rf '%s'", path);
    assert_int_equal(system(command), 0);
}

static inline void
remove_model_in(const char *directory, const char *name)
{
    (void)unlink(path_of(directory, name, "key.json"));
    (void)unlink(path_of(directory, name, "weights"));
    assert_int_equal(rmdir(path_of(directory, name, "")), 0);
}
