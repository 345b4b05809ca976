/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators who have asked over the control socket for a drain, and wait to hear of its end. Loop
 * thread. Zero is empty.
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

/* A request CONTROL_DRAIN, answered at once or later. True: the node is to drain. */
bool drains_take(struct drains *drains, const struct control_request *request,
                 struct control_call *call, bool can_drain);
/* It has drained: so many requests were left in flight, and copies that nobody else has. Who hears
 * that it has is kept (control.h): where the last models went is asked then. */
void drains_tell(struct drains *drains, uint64_t in_flight, bool left_copies);
/* It stops; who has not been told by now is told that. */
void drains_stop(struct drains *drains);
