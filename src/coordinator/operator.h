/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operator's requests (ipc/control.h), except for a drain, passed to the parts of the node that
 * carry them out. In a mesh, models are its own business, so orders for them are refused. Loop
 * thread.
 */
#pragma once

#include <stdbool.h>

#include "coordinator/loop/control.h"

struct mesh_node;
struct model_directories;
struct model_orders;
struct reloads;

struct operator_scope {
    struct mesh_node *mesh; /* NULL: the node is of no mesh */
    struct model_orders *model_orders;
    struct model_directories *directories;
    struct reloads *reloads;
};

/* Returns whether the request only asks for a list, which a node answers at any time. */
bool operator_only_looks(const struct control_request *request);

/* Writes the list that it asks for: an object with `rows`. */
enum status operator_list(const struct operator_scope *scope, const struct control_request *request,
                          struct bytes *list, struct error *error) WARN_UNUSED;

/* Answers the call, now or later. */
void operator_take(const struct operator_scope *scope, const struct control_request *request,
                   struct control_call *call);
/* Refuses requests other than lists, because the node is `doing` something else: "starting". */
void operator_refuse(const struct operator_scope *scope, const struct control_request *request,
                     const char *doing, struct control_call *call);
