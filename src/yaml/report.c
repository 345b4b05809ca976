/* SPDX-License-Identifier: Apache-2.0 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "yaml/tree.h"

void *
must_allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    CHECK(memory != NULL);
    return memory;
}

char *
must_copy(const char *text)
{
    char *copy = strdup(text);
    CHECK(copy != NULL);
    return copy;
}

char *
must_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    CHECK(vasprintf(&text, format, args) >= 0);
    va_end(args);
    return text;
}

void
report_add(struct tree_report *report, int line, const char *format, ...)
{
    if (report->count == REPORT_MAX) {
        report->unreported++;
        return;
    }
    char *text = NULL;
    va_list args;
    va_start(args, format);
    CHECK(vasprintf(&text, format, args) >= 0);
    va_end(args);
    /* kept in the order of the file: whole structs are checked after their parts */
    uint32_t at = report->count++;
    for (; at > 0 && report->entries[at - 1].line > line; at--)
        report->entries[at] = report->entries[at - 1];
    report->entries[at] = (struct tree_mistake){.line = line, .text = text};
}

uint32_t
report_total(const struct tree_report *report)
{
    return report->count + report->unreported;
}

char **
report_finish(struct tree_report *report, uint32_t *count)
{
    char **lines = must_allocate(report->count + 1, sizeof(char *));
    *count = 0;
    for (uint32_t i = 0; i < report->count; i++) {
        struct tree_mistake *entry = &report->entries[i];
        lines[(*count)++] = entry->line > 0
                                ? must_format("%s:%d: %s", report->file, entry->line, entry->text)
                                : must_format("%s: %s", report->file, entry->text);
        free(entry->text);
    }
    if (report->unreported > 0)
        lines[(*count)++] =
            must_format("%s: and %u more mistakes", report->file, report->unreported);
    report->count = 0;
    return lines;
}

const char *
text_show(const char *value, char text[REPORT_VALUE_BYTES])
{
    enum { CUT = 60 };
    size_t length = strlen(value);
    size_t shown = length < CUT ? length : CUT;
    while (shown < length && shown > 0 && ((unsigned char)value[shown] & 0xc0) == 0x80)
        shown--; /* not in the middle of a character */
    snprintf(text, REPORT_VALUE_BYTES, "\"%.*s%s\"", (int)shown, value, shown < length ? "…" : "");
    for (char *c = text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    return text;
}

bool
node_is_null(const struct tree_node *node)
{
    return node->kind == NODE_SCALAR && node->style == NODE_PLAIN &&
           (node->text[0] == '\0' || strcmp(node->text, "~") == 0 ||
            strcmp(node->text, "null") == 0);
}

const char *
node_show(const struct tree_node *node, char text[REPORT_VALUE_BYTES])
{
    if (node->kind == NODE_LIST)
        return node->count == 0 ? "an empty list" : "a list";
    if (node->kind == NODE_MAP)
        return node->count == 0 ? "an empty map" : "a map";
    if (node->kind == NODE_BROKEN || node_is_null(node))
        return "nothing";
    text_show(node->text, text);
    return text;
}
