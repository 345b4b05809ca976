/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators that asked for a drain over the control socket and wait for its end. Loop thread.
 * Zero is empty.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/loop/control.h"

enum { DRAINS_MAX = 16 };

struct drains {
    struct control_call *calls[DRAINS_MAX];
    uint32_t count;
};

/* Calls and copies that remain when a drain ends. */
struct drain_rest {
    uint64_t in_flight; /* requests */
    bool copies;        /* some that no other node has */
};

/* Takes a CONTROL_DRAIN, and answers it at once or later. True: the node is to drain. */
bool drains_take(struct drains *drains, const struct control_request *request,
                 struct control_call *call);
/* Adds a call to notify of the end of a drain that it did not ask for; there is room while
 * the node does not drain. */
void drains_add(struct drains *drains, struct control_call *call);
/* Refuses a CONTROL_DRAIN: the node is stopping. */
void drains_refuse(struct control_call *call);
/* Answers all: the node has drained. Their connections are kept (control.h), because an operator
 * asks next where the last models went. */
void drains_notify(struct drains *drains, const struct drain_rest *rest);
/* Answers those without an answer that the node stops. */
void drains_stop(struct drains *drains);
