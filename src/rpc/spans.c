/* SPDX-License-Identifier: Apache-2.0 */
#include "rpc/spans.h"

size_t
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
