/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces as one message, in the spans in which they lie. Any thread.
 */
#pragma once

#include "rpc/rpc.h"

enum { SPANS_FEW = 16 };

struct rpc_spans {
    struct wire_message message;
    struct wire_span few[SPANS_FEW];
    struct wire_span *many; /* instead of these; NULL: they suffice */
};

/* Valid as long as the pieces. */
void spans_of_pieces(struct rpc_spans *spans, const struct rpc_piece *pieces, size_t piece_count);
void spans_fini(struct rpc_spans *spans);
