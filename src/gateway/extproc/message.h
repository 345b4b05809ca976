/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The messages of envoy.service.ext_proc.v3.ExternalProcessor as bytes: what Envoy says is read in
 * place, what we say is written without a tree. Only the fields that a picker needs are known.
 * Pure.
 */
#pragma once

#include "wire/wire.h"

/* The numbers that ProcessingRequest has for them. */
enum extproc_phase {
    EXTPROC_NOTHING = 0,
    EXTPROC_REQUEST_HEADERS = 2,
    EXTPROC_RESPONSE_HEADERS = 3,
    EXTPROC_REQUEST_BODY = 4,
    EXTPROC_RESPONSE_BODY = 5,
    EXTPROC_REQUEST_TRAILERS = 6,
    EXTPROC_RESPONSE_TRAILERS = 7,
};

enum extproc_body_mode {
    EXTPROC_BODY_NONE = 0,
    EXTPROC_BODY_STREAMED = 1,
    EXTPROC_BODY_BUFFERED = 2,
    EXTPROC_BODY_BUFFERED_PARTIAL = 3,
    EXTPROC_BODY_DUPLEX = 4,
};

/* A ProcessingRequest. Points into the message and into itself: it does not move. */
struct extproc_event {
    struct wire_span whole;
    struct wire_message message;
    enum extproc_phase phase;
    struct wire_cursor headers; /* of headers and trailers */
    struct wire_span body;
    bool is_end;
    bool has_modes; /* Envoy gives them in a stream's first message */
    uint64_t request_mode;
    uint64_t response_mode;
    bool only_observes; /* it will ignore what we say */
    struct wire_cursor metadata;
};

/* False: malformed. The message must outlive `event`. */
bool extproc_event_read(struct extproc_event *event, const void *data, size_t bytes);
/* The next header; false: there are no more. */
bool extproc_header_next(struct wire_cursor *headers, struct wire_span *key,
                         struct wire_span *value);
/* The addresses to choose from, as "ip:port": a list, or one text with commas. False: no hint. */
bool extproc_subset(const struct extproc_event *event,
                    void (*visit)(void *context, struct wire_span address), void *context);
/* An attribute of the filter, such as response.code_details; no bytes: not sent. */
struct wire_span extproc_attribute(const struct extproc_event *event, const char *name);

static inline bool
extproc_is(struct wire_span text, const char *wanted)
{
    size_t bytes = __builtin_strlen(wanted);
    return text.bytes == bytes && __builtin_memcmp(text.data, wanted, bytes) == 0;
}

/* ---- answers ---- */

/* A ProcessingResponse, written from its end; then come `tail` bytes, which are not copied. */
enum { EXTPROC_ANSWER_BYTES = 4096 };
struct extproc_answer {
    unsigned char room[EXTPROC_ANSWER_BYTES];
    size_t at;      /* it begins here */
    uint64_t bytes; /* with the tail */
};

struct extproc_pick {
    const char *address;
    const char *request_id;       /* NULL: the request has one */
    int64_t content_length;       /* negative: as it is */
    const struct wire_span *body; /* BUFFERED: a new body, the tail; NULL: as it is */
};

/* The decision, as the answer to request headers or to a request's body. */
void extproc_write_pick(struct extproc_answer *answer, enum extproc_phase phase,
                        const struct extproc_pick *pick);
/* Lets this phase pass as it is. */
void extproc_write_pass(struct extproc_answer *answer, enum extproc_phase phase);
/* FULL_DUPLEX_STREAMED: a piece of a body, the tail. */
enum extproc_end { EXTPROC_MORE, EXTPROC_END };
void extproc_write_piece(struct extproc_answer *answer, enum extproc_phase phase, size_t tail,
                         enum extproc_end end);

struct extproc_refusal {
    int code;
    const char *request_id;  /* NULL: none */
    const char *retry_after; /* NULL: none */
    const char *details;     /* for Envoy's log */
};

/* An ImmediateResponse with a JSON body, the tail. */
void extproc_write_refusal(struct extproc_answer *answer, const struct extproc_refusal *refusal,
                           size_t tail);
