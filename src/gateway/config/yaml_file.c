/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/yaml_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"

struct yaml_file {
    char *path;
    char *text;
    yaml_parser_t parser;
    yaml_document_t document;
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

static enum status
load(struct yaml_file *file, struct error *error)
{
    const yaml_parser_t *parser = &file->parser;
    if (yaml_parser_load(&file->parser, &file->document) == 1)
        return STATUS_OK;
    memset(&file->document, 0, sizeof(file->document));
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s:%zu: not YAML: %s", file->path,
                     parser->problem_mark.line + 1,
                     parser->problem != NULL ? parser->problem : "unreadable");
}

enum status
yaml_file_read(const char *path, struct yaml_file **file, struct error *error)
{
    size_t bytes = 0;
    struct yaml_file *read = calloc(1, sizeof(*read));
    CHECK(read != NULL && yaml_parser_initialize(&read->parser) == 1);
    read->path = strdup(path);
    CHECK(read->path != NULL);
    enum status status = read_bytes(path, &read->text, &bytes, error);
    if (status == STATUS_OK) {
        yaml_parser_set_input_string(&read->parser, (const unsigned char *)read->text, bytes);
        status = load(read, error);
    }
    if (status == STATUS_OK)
        *file = read;
    else
        yaml_file_free(read);
    return status;
}

enum status
yaml_file_next(struct yaml_file *file, struct error *error)
{
    yaml_document_delete(&file->document);
    return load(file, error);
}

void
yaml_file_free(struct yaml_file *file)
{
    if (file == NULL)
        return;
    yaml_document_delete(&file->document);
    yaml_parser_delete(&file->parser);
    free(file->text);
    free(file->path);
    free(file);
}

/* libyaml's functions take no constant document, but change nothing. */
static const yaml_node_t *
node_of(const struct yaml_file *file, int value)
{
    const yaml_node_t *first = file->document.nodes.start;
    CHECK(value >= 0 && value <= file->document.nodes.top - first);
    return value > 0 ? first + value - 1 : NULL;
}

int
yaml_root(const struct yaml_file *file)
{
    return file->document.nodes.top > file->document.nodes.start ? 1 : 0;
}

bool
yaml_is_map(const struct yaml_file *file, int value)
{
    const yaml_node_t *node = node_of(file, value);
    return node != NULL && node->type == YAML_MAPPING_NODE;
}

bool
yaml_is_list(const struct yaml_file *file, int value)
{
    const yaml_node_t *node = node_of(file, value);
    return node != NULL && node->type == YAML_SEQUENCE_NODE;
}

const char *
yaml_text(const struct yaml_file *file, int value)
{
    const yaml_node_t *node = node_of(file, value);
    return node != NULL && node->type == YAML_SCALAR_NODE ? (const char *)node->data.scalar.value
                                                          : NULL;
}

int
yaml_at(const struct yaml_file *file, int container, uint32_t position, const char **key)
{
    const yaml_node_t *node = node_of(file, container);
    if (yaml_is_list(file, container)) {
        const yaml_node_item_t *at = node->data.sequence.items.start + position;
        return at < node->data.sequence.items.top ? *at : 0;
    }
    if (!yaml_is_map(file, container))
        return 0;
    const yaml_node_pair_t *at = node->data.mapping.pairs.start + position;
    if (at >= node->data.mapping.pairs.top)
        return 0;
    const char *text = yaml_text(file, at->key);
    if (key != NULL)
        *key = text != NULL ? text : "";
    return at->value;
}

int
yaml_find(const struct yaml_file *file, int map, const char *key)
{
    const char *name;
    if (!yaml_is_map(file, map))
        return 0;
    for (uint32_t i = 0;; i++) {
        int value = yaml_at(file, map, i, &name);
        if (value == 0 || strcmp(name, key) == 0)
            return value;
    }
}

enum status
yaml_mistake(const struct yaml_file *file, int value, struct error *error, const char *format, ...)
{
    const yaml_node_t *node = node_of(file, value);
    char text[ERROR_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    return error_set(error, STATUS_INVALID_ARGUMENT, "%s:%zu: %s", file->path,
                     node != NULL ? node->start_mark.line + 1 : 1, text);
}
