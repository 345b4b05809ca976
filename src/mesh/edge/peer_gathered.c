/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_gathered.h"

#include <stdlib.h>

#include "base/check.h"

void
gathered_add(struct peer_gathered *gathered, const struct wire_message *message,
             const struct peer_frame *frame)
{
    if (frame->payload_bytes == 0)
        return;
    if (gathered->count == gathered->capacity) {
        gathered->capacity = gathered->capacity == 0 ? 1 : gathered->capacity * 2;
        gathered->pieces =
            realloc(gathered->pieces, gathered->capacity * sizeof(*gathered->pieces));
        CHECK(gathered->pieces != NULL);
    }
    gathered->received += frame->payload_bytes;
    CHECK(gathered->received <= gathered->expected); /* as the owner has validated */
    gathered->pieces[gathered->count++] = (struct rpc_piece){
        .kept = rpc_message_keep(message),
        .offset = (size_t)frame->payload_offset,
        .bytes = (size_t)frame->payload_bytes,
    };
}

void
gathered_release(struct peer_gathered *gathered)
{
    for (size_t i = 0; i < gathered->count; i++)
        rpc_kept_release((struct rpc_kept *)(uintptr_t)gathered->pieces[i].kept);
    free(gathered->pieces);
    *gathered = (struct peer_gathered){.pieces = NULL};
}
