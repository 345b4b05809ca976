/* SPDX-License-Identifier: Apache-2.0 */
/* A message of somebody's that comes in one frame or in parts: what has come of it, by reference.
 */
#pragma once

#include "mesh/edge/peer_wire.h"

struct gathered {
    struct rpc_piece *pieces; /* kept; references of ours */
    size_t count;
    size_t capacity;
    uint64_t received;
    uint64_t expected;
};

/* The payload of a frame that lies in `message`; within the callback that brought it. */
void gathered_add(struct gathered *gathered, const struct rpc_message *message,
                  const struct peer_frame *frame);
/* And is empty then. */
void gathered_release(struct gathered *gathered);
