/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML file in memory: at most YAML_FILE_BYTES_MAX bytes, one document at a time. A value is a
 * number of that file; 0 stands for a value that is not there, and may be passed to all functions.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { YAML_FILE_BYTES_MAX = 1 << 20 };

struct yaml_file;

/* INVALID_ARGUMENT with path and line. The file is freed with yaml_file_free. */
enum status yaml_file_read(const char *path, struct yaml_file **file,
                           struct error *error) WARN_UNUSED;
/* Goes on to the next document; without one the file is empty. INVALID_ARGUMENT as above. */
enum status yaml_file_next(struct yaml_file *file, struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void yaml_file_free(struct yaml_file *file);

/* The document; 0: it is empty. */
int yaml_root(const struct yaml_file *file);
bool yaml_is_map(const struct yaml_file *file, int value);
bool yaml_is_list(const struct yaml_file *file, int value);
/* NULL: it is no scalar. */
const char *yaml_text(const struct yaml_file *file, int value);
/* The value of the first such key of a map. */
int yaml_find(const struct yaml_file *file, int map, const char *key);
/* The element of a list, or value of a map, at that position; and a map's key. */
int yaml_at(const struct yaml_file *file, int container, uint32_t position, const char **key);
/* "PATH:LINE: " goes in front of the text. Returns INVALID_ARGUMENT. */
enum status yaml_mistake(const struct yaml_file *file, int value, struct error *error,
                         const char *format, ...) PRINTF_LIKE(4, 5);
