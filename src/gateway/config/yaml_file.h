/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first document of a YAML file of at most YAML_FILE_BYTES_MAX bytes, as a tree. NULL
 * stands for a value that is not there, and may be passed to all functions.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "yaml/tree.h"

enum { YAML_FILE_BYTES_MAX = 1 << 20 };

struct yaml_file;

/* INVALID_ARGUMENT with path and line. The file is freed with yaml_file_free. */
enum status yaml_file_read(const char *path, struct yaml_file **file,
                           struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void yaml_file_free(struct yaml_file *file);

const struct tree_node *yaml_root(const struct yaml_file *file);
bool yaml_is_map(const struct tree_node *value);
bool yaml_is_list(const struct tree_node *value);
/* NULL: it is no scalar. */
const char *yaml_text(const struct tree_node *value);
/* The value of the first such key of a map. */
const struct tree_node *yaml_find(const struct tree_node *map, const char *key);
/* The first value of a list or map. */
const struct tree_node *yaml_first(const struct tree_node *container);
/* "PATH:LINE: " goes in front of the text. Returns INVALID_ARGUMENT. */
enum status yaml_mistake(const struct yaml_file *file, const struct tree_node *value,
                         struct error *error, const char *format, ...) PRINTF_LIKE(4, 5);
