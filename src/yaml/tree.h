/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A YAML text as a tree of nodes that know their lines, and the report that collects mistakes in
 * it. JSON is read as the YAML that it is. Features that a file for people does not need are
 * refused where they occur, so that no file can expand beyond its bytes: aliases and anchors, tags,
 * NUL bytes, depth, number of values.
 *
 * Memory: texts are limited and nothing works without them, so a failed allocation ends the program
 * (CHECK). Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* ---- mistakes ---- */

/* Largest number of mistakes that are listed; further ones are counted. */
enum { REPORT_MAX = 100, REPORT_VALUE_BYTES = 80 };

struct tree_mistake {
    int line;
    char *text;
};

struct tree_report {
    const char *file;
    struct tree_mistake entries[REPORT_MAX];
    uint32_t count;
    uint32_t unreported;
};

/* `line` 0: not in the file. */
void report_add(struct tree_report *report, int line, const char *format, ...) PRINTF_LIKE(3, 4);
/* Listed or only counted. */
uint32_t report_total(const struct tree_report *report);
/* Empties the report and returns its lines, "FILE:LINE: TEXT", in the order of the file. The caller
 * frees each and the array. */
char **report_finish(struct tree_report *report, uint32_t *count);

void *must_allocate(size_t count, size_t size); /* zeroed */
char *must_copy(const char *text);
char *must_format(const char *format, ...) PRINTF_LIKE(1, 2);

/* ---- the tree ---- */

enum node_kind {
    NODE_SCALAR,
    NODE_LIST,
    NODE_MAP,
    NODE_BROKEN, /* reported already; skip it silently */
};

enum node_style { NODE_PLAIN, NODE_QUOTED };

struct tree_node {
    enum node_kind kind;
    enum node_style style;
    int line;
    char *key; /* of the map entry whose value this is */
    int key_line;
    char *text;              /* a scalar's; without a NUL inside */
    struct tree_node *first; /* child of a list or map */
    struct tree_node *next;
    uint32_t count; /* of children */
};

struct tree_limits {
    const char *what;  /* "configuration": in texts about oversized files */
    const char *empty; /* the text for a file without a document */
    size_t bytes_max;
    int depth_max;
    uint32_t nodes_max;
    uint32_t documents_max;
    bool has_secrets; /* anchors, aliases and tags are not quoted: they may be unquoted values */
};

/* The first document; the others follow by `next`. NULL: not YAML, or empty; reported. */
struct tree_node *tree_read(const char *text, size_t size, const struct tree_limits *limits,
                            struct tree_report *report);
void tree_free(struct tree_node *node);

/* `key:` without a value, or ~ or null. */
bool node_is_null(const struct tree_node *node);
/* A value for an error text: `"abc"`, `a list`, `nothing`; shortened, without control characters.
 */
const char *node_show(const struct tree_node *node, char text[REPORT_VALUE_BYTES]);
/* Like node_show(), for a string. */
const char *text_show(const char *value, char text[REPORT_VALUE_BYTES]);
