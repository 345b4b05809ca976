/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state that the files of the configuration's parser share: the report that mistakes go to, and
 * the tree that YAML is turned into before anybody looks for keys in it.
 *
 * Memory: a file is at most a MiB and is read once at start, so a failed allocation here ends the
 * program (CHECK); nothing is to be served without a configuration.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/config/config_keys.h"

/* ---- mistakes ---- */

/* Only so many are told; the rest is counted. */
enum { REPORT_MAX = 100, REPORT_VALUE_BYTES = 80 };

struct report_entry {
    int line;
    char *text;
};

struct report {
    const char *file;
    struct report_entry entries[REPORT_MAX];
    uint32_t count;
    uint32_t untold;
};

/* `line` 0: of none, but of the environment. */
void report_add(struct report *report, int line, const char *format, ...) PRINTF_LIKE(3, 4);
/* Told or not. */
uint32_t report_total(const struct report *report);
/* Moves all to `errors`, by line. */
void report_finish(struct report *report, struct config_errors *errors);

void *must_allocate(size_t count, size_t size); /* zeroed */
char *must_copy(const char *text);
char *must_format(const char *format, ...) PRINTF_LIKE(1, 2);

/* ---- the tree ---- */

enum node_kind {
    NODE_SCALAR,
    NODE_LIST,
    NODE_MAP,
    NODE_BROKEN, /* has been reported: to be passed over in silence */
};

enum node_style { NODE_PLAIN, NODE_QUOTED };

struct node {
    enum node_kind kind;
    enum node_style style;
    int line;
    char *key; /* of a map's entry, of which this is the value */
    int key_line;
    char *text;         /* of a scalar; has no NUL inside */
    struct node *first; /* of a list or map */
    struct node *next;
    uint32_t count; /* of children */
};

/* NULL: not YAML, or nothing in it; reported. */
struct node *tree_read(const char *text, size_t size, struct report *report);
void tree_free(struct node *node);

/* `key:` without a value, or ~ or null. */
bool node_is_null(const struct node *node);
/* `"abc"`, `a list`, `nothing`: a value in an error; cut and without control characters. */
const char *node_show(const struct node *node, char text[REPORT_VALUE_BYTES]);
/* The same for words. */
const char *text_show(const char *value, char text[REPORT_VALUE_BYTES]);

/* ---- reading and checking ---- */

/* The keys that a map of the file gives, by enum config_key_index. */
struct config_given {
    const struct node *nodes[KEY_COUNT]; /* NULL: nothing */
    bool refused[KEY_COUNT];             /* it was wrong, and has been reported */
};

struct config_reader {
    struct config *config;
    struct config_options options;
    struct report *report;
    struct config_given mesh_given; /* in the map `mesh` */
};

/* Fills reader->config from the tree. */
void config_read(struct config_reader *reader, const struct node *tree);
/* One value of a key at the top or in `mesh`, with the range and type that the table wants. */
void config_read_value(struct config_reader *reader, const struct config_key *key,
                       const struct node *node);
/* The map `mesh`, which turns the mesh on. */
void config_read_mesh(struct config_reader *reader, const struct node *map);

/* Takes keys that the file leaves out from the environment, if that asks for a mesh or the file has
 * one. `given`: at the top. */
void config_read_environment(struct config_reader *reader, struct config_given *given);
void config_print_environment(FILE *out, enum config_manual_form form);

/*
 * Checks across keys, of the file, a pipeline or stage whose keys have been read. Values that
 * were refused are at their defaults then, names NULL.
 */
void config_check_top(struct config_reader *reader, const struct config_given *given);
void config_check_pipeline(struct config_reader *reader, const struct config_pipeline *pipeline,
                           const struct config_given *given);
/* Of a pipeline's `method` and `id_path`: part of config_check_pipeline. */
void config_check_method(struct config_reader *reader, const struct config_pipeline *pipeline,
                         const struct config_given *given);
void config_check_stage(struct config_reader *reader, const struct config_pipeline *pipeline,
                        struct config_stage *stage, const struct config_given *given);
/* Of `mesh`, as the file and the environment have it together; part of config_check_top. */
void config_check_mesh(struct config_reader *reader, const struct config_given *given);
/* Of `tls` and `mesh: tls`, likewise. */
void config_check_tls(struct config_reader *reader);
/* Of `mesh: management`, likewise. */
void config_check_management(struct config_reader *reader);
/* Whether only this machine can reach an address. */
bool config_is_local(const char *address);
/* "yes"; NULL is no. */
bool config_is_yes(const char *word);
/* Of a mode such as "0660"; false: it is none. */
bool config_read_mode(const char *text, uint32_t *mode);
void config_check_models(struct config_reader *reader, struct config_pipeline *pipeline,
                         const struct config_given *given);
/* Of an element of such a key: what to listen on, to be freed; NULL: reported. */
char *config_check_address(struct config_reader *reader, const struct config_key *key,
                           const struct node *node, const struct config_addresses *others);
/* The CPU must be one that a process may be pinned to. */
void config_check_cpu(struct config_reader *reader, int line, int cpu);
/* The modelet's file; frees what was written. */
char *config_find_modelet(struct config_reader *reader, char *modelet, int line);

/* For the manual: words on lines of at most 90 columns, indented by eight, without backquotes; a
 * cell of a table in Markdown. */
void config_print_wrapped(FILE *out, const char *text);
void config_print_cell(FILE *out, const char *text);

/* The path from the file's folder on, if it is relative; frees what was written. */
char *config_resolve(const struct config *config, char *path);
