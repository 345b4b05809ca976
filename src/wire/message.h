/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A message as it lies in memory: bytes scattered over spans, in order.
 */
#pragma once

#include <stddef.h>

/* One contiguous run of bytes. */
struct wire_span {
    const void *data;
    size_t bytes;
};

/* The spans in order, `bytes` their sum. */
struct wire_message {
    const struct wire_span *spans;
    size_t span_count;
    size_t bytes;
};
