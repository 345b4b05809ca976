/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/yaml_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { DEPTH_MAX = 64, VALUES_MAX = 1 << 18 };

struct yaml_file {
    char *path;
    struct tree_node *root;
};

static enum status
read_bytes(const char *path, char **text, size_t *bytes, struct error *error)
{
    FILE *in = fopen(path, "re");
    if (in == NULL)
        return error_set_errno(error, "%s", path);
    *text = malloc(YAML_FILE_BYTES_MAX + 1);
    CHECK(*text != NULL);
    *bytes = fread(*text, 1, YAML_FILE_BYTES_MAX + 1, in);
    bool failed = ferror(in) != 0;
    (void)fclose(in);
    if (!failed && *bytes <= YAML_FILE_BYTES_MAX)
        return STATUS_OK;
    free(*text);
    *text = NULL;
    return failed ? error_set(error, STATUS_UNAVAILABLE, "%s: cannot be read", path)
                  : error_set(error, STATUS_INVALID_ARGUMENT, "%s: more than %d bytes", path,
                              YAML_FILE_BYTES_MAX);
}

/* The first mistake of the report as the error. */
static enum status
take_report(struct tree_report *report, struct error *error)
{
    uint32_t count;
    char **lines = report_finish(report, &count);
    enum status status =
        count == 0 ? STATUS_OK : error_set(error, STATUS_INVALID_ARGUMENT, "%s", lines[0]);
    for (uint32_t i = 0; i < count; i++)
        free(lines[i]);
    free(lines);
    return status;
}

enum status
yaml_file_read(const char *path, struct yaml_file **file, struct error *error)
{
    static const struct tree_limits limits = {.what = "configuration",
                                              .empty = "the file is empty",
                                              .bytes_max = YAML_FILE_BYTES_MAX,
                                              .depth_max = DEPTH_MAX,
                                              .nodes_max = VALUES_MAX,
                                              .documents_max = UINT32_MAX};
    struct tree_report report = {.file = path};
    size_t bytes = 0;
    char *text = NULL;
    enum status status = read_bytes(path, &text, &bytes, error);
    if (status != STATUS_OK)
        return status;
    struct tree_node *root = tree_read(text, bytes, &limits, &report);
    free(text);
    status = take_report(&report, error);
    if (status != STATUS_OK) {
        tree_free(root);
        return status;
    }
    *file = must_allocate(1, sizeof(**file));
    **file = (struct yaml_file){.path = must_copy(path), .root = root};
    return STATUS_OK;
}

void
yaml_file_free(struct yaml_file *file)
{
    if (file == NULL)
        return;
    tree_free(file->root);
    free(file->path);
    free(file);
}

const struct tree_node *
yaml_root(const struct yaml_file *file)
{
    return file->root;
}

bool
yaml_is_map(const struct tree_node *value)
{
    return value != NULL && value->kind == NODE_MAP;
}

bool
yaml_is_list(const struct tree_node *value)
{
    return value != NULL && value->kind == NODE_LIST;
}

const char *
yaml_text(const struct tree_node *value)
{
    return value != NULL && value->kind == NODE_SCALAR ? value->text : NULL;
}

const struct tree_node *
yaml_first(const struct tree_node *container)
{
    return container != NULL ? container->first : NULL;
}

const struct tree_node *
yaml_find(const struct tree_node *map, const char *key)
{
    const struct tree_node *value = yaml_is_map(map) ? map->first : NULL;
    while (value != NULL && strcmp(value->key, key) != 0)
        value = value->next;
    return value;
}

enum status
yaml_mistake(const struct yaml_file *file, const struct tree_node *value, struct error *error,
             const char *format, ...)
{
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s:%d: %s", file->path,
                     value != NULL ? value->line : 1, text);
}
