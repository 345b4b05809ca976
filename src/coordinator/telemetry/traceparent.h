/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Validates the headers `traceparent` and `tracestate` of the W3C recommendation "Trace Context",
 * and repairs nothing. Pure. Values are byte strings without a terminator.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_ID_BYTES = 16,
    SPAN_ID_BYTES = 8,
    TRACESTATE_BYTES_MAX = 512, /* the least that the recommendation asks to pass on */
    TRACESTATE_MEMBERS_MAX = 32,
};

struct traceparent {
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t span_id[SPAN_ID_BYTES]; /* of the caller's span */
    bool sampled;
};

struct tracestate {
    char text[TRACESTATE_BYTES_MAX + 1]; /* terminated; "" without a valid one */
    uint32_t bytes;
    uint32_t members;
    bool refused; /* malformed: none of it is passed on */
};

/*
 * False: not valid, and the request is treated as one without. Version 00 has 55 bytes:
 *
 *     00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
 *
 * in lower-case digits, with no id of zeros only. Version ff is invalid. A later version may
 * continue after another "-".
 */
bool traceparent_parse(const char *text, size_t bytes, struct traceparent *parent);

/* Empties it. */
void tracestate_init(struct tracestate *state);
/* Adds one header's list; several headers make one list. Members that do not fit are left out, the
 * last ones first. */
void tracestate_add(struct tracestate *state, const char *text, size_t bytes);
