/* SPDX-License-Identifier: Apache-2.0 */
/*
 * State shared by the files of the configuration's parser, which look keys up in a tree
 * (yaml/tree.h).
 *
 * Memory: a file has at most a MiB, and nothing can be served without a configuration, so a failed
 * allocation here ends the program (CHECK).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "coordinator/config/config.h"
#include "coordinator/config/config_keys.h"
#include "yaml/tree.h"

/* ---- reading and checking ---- */

/* The keys that a map of the file gives, by enum config_key_index. */
struct config_given {
    const struct tree_node *nodes[KEY_COUNT]; /* NULL: not given */
    bool refused[KEY_COUNT];                  /* given, wrong and reported */
};

struct config_reader {
    struct config *config;
    struct config_options options;
    struct tree_report *report;
    struct config_given mesh_given; /* in the map `mesh` */
};

/* Fills reader->config from the tree. False: the tree is no map, which is reported. `given`: the
 * keys at the top. */
bool config_read(struct config_reader *reader, const struct tree_node *tree,
                 struct config_given *given);
/* Reads one value of a key at the top or in `mesh`, checked against the table's range and type. */
void config_read_value(struct config_reader *reader, const struct config_key *key,
                       const struct tree_node *node);
/* Reads the map `mesh`, which turns the mesh on. */
void config_read_mesh(struct config_reader *reader, const struct tree_node *map);

/* Reads keys that the file leaves out from the environment, if the environment asks for a mesh or
 * the file has one. `given`: the keys at the top. */
void config_read_environment(struct config_reader *reader, struct config_given *given);
void config_print_environment(FILE *out, enum config_manual_form form);

/*
 * Checks across the keys of the file, a pipeline or a stage, after all of them have been read.
 * Refused values are at their defaults then, refused names NULL.
 */
void config_check_top(struct config_reader *reader, const struct config_given *given);
void config_check_pipeline(struct config_reader *reader, const struct config_pipeline *pipeline,
                           const struct config_given *given);
/* `method` and `id_path`; part of config_check_pipeline. */
void config_check_method(struct config_reader *reader, const struct config_pipeline *pipeline,
                         const struct config_given *given);
void config_check_stage(struct config_reader *reader, const struct config_pipeline *pipeline,
                        struct config_stage *stage, const struct config_given *given);
/* `mesh` of file and environment together; part of config_check_top. */
void config_check_mesh(struct config_reader *reader, const struct config_given *given);
/* `tls` and `mesh: tls`; likewise. */
void config_check_tls(struct config_reader *reader);
/* `mesh: management`; likewise. */
void config_check_management(struct config_reader *reader);
void config_check_models(struct config_reader *reader, struct config_pipeline *pipeline,
                         const struct config_given *given);
/* The address of one element of a list of addresses, to be freed; NULL: refused and reported. */
char *config_check_address(struct config_reader *reader, const struct config_key *key,
                           const struct tree_node *node, const struct config_addresses *others);
/* Reports a CPU that a process cannot be pinned to. */
void config_check_cpu(struct config_reader *reader, int line, int cpu);
/* The path of the modelet's file; frees `modelet`. */
char *config_find_modelet(struct config_reader *reader, char *modelet, int line);

/* Prints text of the manual in lines of at most 90 columns, indented by eight, without backquotes:
 * an item of a Markdown list. */
void config_print_wrapped(FILE *out, const char *text);
void config_print_item(FILE *out, const char *text);

/* ---- values (config_value.c) ---- */

/* Returns whether only this machine can reach an address. */
bool config_is_local(const char *address);
/* Returns whether it is "yes"; NULL is no. */
bool config_is_yes(const char *word);
/* Parses a file mode such as "0660"; false: it is none. */
bool config_read_mode(const char *text, uint32_t *mode);
/* Makes a relative path absolute, from the file's folder; frees `path`. */
char *config_resolve(const struct config *config, char *path);
