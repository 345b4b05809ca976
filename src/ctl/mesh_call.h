/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of `shoalctl mesh` to mmesh.ModelMesh over gRPC: mesh_call.c has options and the table of
 * requests, mesh_order.c the messages.
 */
#pragma once

#include "ctl/ask.h"
#include "ctl/client.h"
#include "ctl/ctl.h"

enum {
    MESH_WORDS_MAX = 2,
    MESH_CALL_TIMEOUT_MS = 60000,
    MESH_CALL_TIMEOUT_MS_MAX = 24 * 3600 * 1000
};

struct mesh_part;

struct mesh_call_settings {
    const struct mesh_part *part;
    char *words[MESH_WORDS_MAX]; /* ids, a path; not const because the message types are not */
    size_t word_count;
    char *type, *path, *key, *owner, *expected;
    char *key_read;       /* the memory of `key`, if it came from a file */
    const char *target;   /* NULL: the node whose counters are at `counters` */
    const char *counters; /* NULL: the default path */
    char socket[128];     /* its path as a target, if `target` is NULL */
    struct client_tls tls;
    int64_t timeout_ms;
    bool load, wait, update, force, auto_delete;
    enum ctl_output output;
};

/* Makes one request. It prints the answer and sets `good` to whether it is a success. */
typedef enum status mesh_order(const struct mesh_call_settings *settings, struct client *client,
                               bool *good, struct error *error);

struct mesh_part {
    struct ctl_command command;
    const char *word;
    size_t word_count;
    const char *wants; /* their names in usage texts */
    mesh_order *call;
};

mesh_order mesh_order_register, mesh_order_unregister, mesh_order_status, mesh_order_load,
    mesh_order_set_vmodel, mesh_order_delete_vmodel, mesh_order_vmodel;

/* ---- a node of a mesh, for other commands as well ---- */

/* Rows of a table of options; `at`: where in the command's settings the mesh_call_settings are. */
#define MESH_CALL_AT(at, field) ((at) + offsetof(struct mesh_call_settings, field))
#define MESH_CALL_OPTIONS(to)                                                                      \
    {"counters", "PATH", ASK_COUNTERS_HELP, .form = CTL_WORD, .at = MESH_CALL_AT(to, counters)},   \
        {"target", "ADDRESS",                                                                      \
         "a management address of any other node; see `mesh: management` in\n"                     \
         "shoald --help-config",                                                                   \
         .form = CTL_WORD, .at = MESH_CALL_AT(to, target)},                                        \
        CLIENT_TLS_OPTIONS(MESH_CALL_AT(to, tls)),                                                 \
        {"timeout-ms",                                                                             \
         "N",                                                                                      \
         "how long to wait; default 60000. The request continues afterwards",                      \
         .form = CTL_WHOLE,                                                                        \
         .at = MESH_CALL_AT(to, timeout_ms),                                                       \
         .most = MESH_CALL_TIMEOUT_MS_MAX},                                                        \
    {                                                                                              \
        "json", NULL, "one line of JSON", .form = CTL_AS_JSON, .at = MESH_CALL_AT(to, output)      \
    }
/* Checks that the options fit together. */
enum status mesh_call_check(const struct mesh_call_settings *settings,
                            struct error *error) WARN_UNUSED;
/* Sets the target to the local node's socket, unless it is given; every node of a mesh has one
 * beside its counters. */
enum status mesh_call_find(struct mesh_call_settings *settings, struct error *error) WARN_UNUSED;
/* UNAVAILABLE: nobody answers there; a node without a mesh has no such socket. */
enum status mesh_call_reach(const struct mesh_call_settings *settings, struct client *client,
                            struct error *error) WARN_UNUSED;
