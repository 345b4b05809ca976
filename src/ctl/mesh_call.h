/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calls of shoalctl mesh to a node over gRPC, as mmesh.ModelMesh: mesh_call.c has options
 * and the table of requests, mesh_order.c the messages.
 */
#pragma once

#include "ctl/client.h"
#include "ctl/ctl.h"

enum { MESH_WORDS_MAX = 2 };

struct mesh_part;

struct mesh_settings {
    const struct mesh_part *part;
    char
        *words[MESH_WORDS_MAX]; /* ids, a path; the messages want them not const, and change none */
    size_t word_count;
    char *type, *path, *key, *owner, *expected;
    char *key_read;       /* what `key` points to, if it came from a file */
    const char *target;   /* NULL: the node whose counters are at `counters` */
    const char *counters; /* NULL: the default */
    char socket[128];     /* what `target` is then */
    struct client_tls tls;
    int64_t timeout_ms;
    bool load, wait, update, force, auto_delete, json;
};

/* One thing that can be asked. `call` prints the answer; whether all is well goes into `good`. */
typedef enum status mesh_order(const struct mesh_settings *settings, struct client *client,
                               bool *good, struct error *error);

struct mesh_part {
    struct ctl_command command;
    const char *word;
    size_t word_count;
    const char *wants; /* those words */
    mesh_order *call;
};

mesh_order mesh_order_register, mesh_order_unregister, mesh_order_status, mesh_order_load,
    mesh_order_set_vmodel, mesh_order_delete_vmodel, mesh_order_vmodel;
