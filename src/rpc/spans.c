/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/spans.h"

#include <stdlib.h>

#include "base/check.h"

/* The bytes of a kept piece: at most as many spans as its message has; returns how many. */
static size_t
spans_of_kept(const struct rpc_piece *piece, struct wire_span *spans)
{
    const struct wire_message *whole = rpc_kept_message(piece->kept);
    size_t skip = piece->offset;
    size_t left = piece->bytes;
    size_t count = 0;
    for (size_t i = 0; i < whole->span_count && left > 0; i++) {
        const struct wire_span *span = &whole->spans[i];
        if (span->bytes <= skip) {
            skip -= span->bytes;
            continue;
        }
        size_t bytes = span->bytes - skip < left ? span->bytes - skip : left;
        spans[count++] = (struct wire_span){(const char *)span->data + skip, bytes};
        skip = 0;
        left -= bytes;
    }
    return count;
}

void
spans_of_pieces(struct rpc_spans *spans, const struct rpc_piece *pieces, size_t piece_count)
{
    size_t room = 0;
    for (size_t i = 0; i < piece_count; i++)
        room += pieces[i].kept != NULL ? rpc_kept_message(pieces[i].kept)->span_count : 1;
    spans->many = room > SPANS_FEW ? calloc(room, sizeof(*spans->many)) : NULL;
    CHECK(room <= SPANS_FEW || spans->many != NULL);
    struct wire_span *to = spans->many != NULL ? spans->many : spans->few;
    struct wire_message *message = &spans->message;
    *message = (struct wire_message){.spans = to};
    for (size_t i = 0; i < piece_count; i++) {
        const struct rpc_piece *piece = &pieces[i];
        if (piece->kept != NULL)
            message->span_count += spans_of_kept(piece, to + message->span_count);
        else if (piece->bytes > 0)
            to[message->span_count++] = (struct wire_span){piece->data, piece->bytes};
        message->bytes += piece->bytes;
    }
}

void
spans_fini(struct rpc_spans *spans)
{
    free(spans->many);
}
