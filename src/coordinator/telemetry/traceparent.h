/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The headers `traceparent` and `tracestate` of the W3C recommendation "Trace Context", as callers
 * send them: validated, never repaired. Pure. Values are runs of bytes, not terminated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TRACE_ID_BYTES = 16,
    SPAN_ID_BYTES = 8,
    TRACESTATE_BYTES_MAX = 512, /* what the recommendation asks to be passed on at least */
    TRACESTATE_MEMBERS_MAX = 32,
};

struct traceparent {
    uint8_t trace_id[TRACE_ID_BYTES];
    uint8_t span_id[SPAN_ID_BYTES]; /* of the caller's span */
    bool sampled;
};

struct tracestate {
    char text[TRACESTATE_BYTES_MAX +
              1]; /* terminated; "" when there is none, or none that is valid */
    uint32_t bytes;
    uint32_t members;
    bool refused; /* something in it was malformed: none of it is passed on */
};

/*
 * False: it is none, and the request is as one without. Of version 00 it is 55 bytes:
 *
 *     00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
 *
 * in lower-case digits, no id of zeros only. Version ff there is not. A later version may go on
 * after these, behind another "-".
 */
bool traceparent_parse(const char *text, size_t bytes, struct traceparent *parent);

/* Empties it. */
void tracestate_init(struct tracestate *state);
/* Adds one header's list; several headers are one list. Members beyond what there is room for are
 * left out, the last ones first. */
void tracestate_add(struct tracestate *state, const char *text, size_t bytes);
