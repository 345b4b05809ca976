/* SPDX-License-Identifier: Apache-2.0 */
/* A message as it may come: in spans of any length, also of none. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "rpc/rpc.h"

enum { SPANS_MAX = 256 };

/* Spans of 0 … `step` bytes, the last as long as it must be; `step` 0: one. */
static inline struct wire_message
cut(const uint8_t *data, size_t size, unsigned step, struct wire_span spans[SPANS_MAX])
{
    size_t count = 0;
    for (size_t at = 0, bytes = 0; at < size; at += bytes, count++) {
        bytes = step == 0 || count == SPANS_MAX - 1 ? size - at : count * 7 % (step + 1);
        if (bytes > size - at)
            bytes = size - at;
        spans[count] = (struct wire_span){data + at, bytes};
    }
    return (struct wire_message){spans, count, size};
}
