/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of `shoalctl mesh` to mmesh.ModelMesh over gRPC: mesh_call.c has options and the table of
 * requests, mesh_order.c the messages.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/ctl.h"

enum { MESH_WORDS_MAX = 2 };

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
