/* SPDX-License-Identifier: Apache-2.0 */
/* A message that arrives in one frame or in parts: the references received so far. */
#pragma once

#include "mesh/edge/peer_wire.h"

struct peer_gathered {
    struct rpc_piece *pieces; /* kept; references of this struct */
    size_t count;
    size_t capacity;
    uint64_t received;
    uint64_t expected;
};

/* Adds the payload of a frame in `message`, within the callback that brought it. */
void gathered_add(struct peer_gathered *gathered, const struct wire_message *message,
                  const struct peer_frame *frame);
/* Releases the pieces; it is empty afterwards. */
void gathered_release(struct peer_gathered *gathered);
