/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/extproc/message.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"

static const char destination[] = "x-gateway-destination-endpoint";

/* Headers that only the gateway may send to model servers. */
static const char *const ours[] = {
    "x-gateway-destination-endpoint-subset", "x-gateway-destination-endpoint-served",
    "x-gateway-model-name-rewrite",          "x-gateway-inference-objective",
    "x-gateway-inference-fairness-id",       "x-llm-d-model-name-rewrite",
    "x-llm-d-inference-objective",           "x-llm-d-inference-fairness-id",
};

/* ---- reading ---- */

/* The bytes of a field in a message that is one span. */
static struct wire_span
span_of(struct wire_cursor data)
{
    const unsigned char *at = NULL;
    size_t bytes = wire_run(&data, &at);
    return (struct wire_span){.data = at, .bytes = bytes};
}

/* The value of an entry of map<string, Message>. False: none, or malformed before it. */
static bool
map_find(struct wire_cursor message, uint32_t number, const char *key, struct wire_cursor *value)
{
    struct wire_field field;
    struct wire_field part;
    bool found = false;
    while (wire_next(&message, &field) == WIRE_FIELD) {
        if (field.number != number || field.type != WIRE_BYTES)
            continue;
        struct wire_span name = {0};
        struct wire_cursor content = {0};
        while (wire_next(&field.data, &part) == WIRE_FIELD) {
            if (part.number == 1 && part.type == WIRE_BYTES)
                name = span_of(part.data);
            else if (part.number == 2 && part.type == WIRE_BYTES)
                content = part.data;
        }
        if (!extproc_is(name, key))
            continue;
        found = true;
        *value = content;
    }
    return found;
}

static bool
read_modes(struct extproc_event *event, struct wire_cursor config)
{
    struct wire_field field;
    enum wire_result result;
    event->has_modes = true;
    while ((result = wire_next(&config, &field)) == WIRE_FIELD) {
        if (field.type != WIRE_VARINT)
            continue;
        if (field.number == 1)
            event->request_mode = field.value;
        else if (field.number == 2)
            event->response_mode = field.value;
    }
    return result == WIRE_END;
}

/* HttpHeaders, HttpBody or HttpTrailers. */
static bool
read_content(struct extproc_event *event, uint32_t phase, struct wire_cursor content)
{
    bool is_body = phase == EXTPROC_REQUEST_BODY || phase == EXTPROC_RESPONSE_BODY;
    bool is_headers = phase == EXTPROC_REQUEST_HEADERS || phase == EXTPROC_RESPONSE_HEADERS;
    uint32_t end = is_body ? 2 : 3;
    struct wire_field field;
    enum wire_result result;
    event->phase = (enum extproc_phase)phase;
    event->headers = (struct wire_cursor){0};
    event->body = (struct wire_span){0};
    event->is_end = false;
    while ((result = wire_next(&content, &field)) == WIRE_FIELD) {
        if (field.number == 1 && field.type == WIRE_BYTES && is_body)
            event->body = span_of(field.data);
        else if (field.number == 1 && field.type == WIRE_BYTES)
            event->headers = field.data;
        else if (field.number == end && field.type == WIRE_VARINT && (is_body || is_headers))
            event->is_end = field.value != 0;
    }
    return result == WIRE_END;
}

bool
extproc_event_read(struct extproc_event *event, const void *data, size_t bytes)
{
    *event = (struct extproc_event){.whole = {.data = data, .bytes = bytes}};
    event->message = (struct wire_message){.spans = &event->whole, .span_count = 1, .bytes = bytes};
    struct wire_cursor cursor = wire_begin(&event->message);
    struct wire_field field;
    enum wire_result result = WIRE_END;
    bool is_well = true;
    while (is_well && (result = wire_next(&cursor, &field)) == WIRE_FIELD) {
        if (field.type == WIRE_VARINT && field.number == 10)
            event->only_observes = field.value != 0;
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number >= EXTPROC_REQUEST_HEADERS && field.number <= EXTPROC_RESPONSE_TRAILERS)
            is_well = read_content(event, field.number, field.data);
        else if (field.number == 8)
            event->metadata = field.data;
        else if (field.number == 11)
            is_well = read_modes(event, field.data);
    }
    return is_well && result == WIRE_END;
}

bool
extproc_header_next(struct wire_cursor *headers, struct wire_span *key, struct wire_span *value)
{
    struct wire_field field;
    struct wire_field part;
    *key = *value = (struct wire_span){.data = "", .bytes = 0};
    while (wire_next(headers, &field) == WIRE_FIELD) {
        if (field.number != 1 || field.type != WIRE_BYTES)
            continue;
        while (wire_next(&field.data, &part) == WIRE_FIELD) {
            if (part.type != WIRE_BYTES)
                continue;
            if (part.number == 1)
                *key = span_of(part.data);
            else if ((part.number == 2 && value->bytes == 0) || part.number == 3)
                *value = span_of(part.data); /* raw_value, if there is one */
        }
        return true;
    }
    return false;
}

static void
visit_list(struct wire_span list, void (*visit)(void *context, struct wire_span address),
           void *context)
{
    const char *at = list.data;
    size_t left = list.bytes;
    while (left > 0) {
        const char *comma = memchr(at, ',', left);
        size_t bytes = comma != NULL ? (size_t)(comma - at) : left;
        size_t blanks = 0;
        while (blanks < bytes && at[blanks] == ' ')
            blanks++;
        visit(context, (struct wire_span){.data = at + blanks, .bytes = bytes - blanks});
        bytes += comma != NULL;
        at += bytes;
        left -= bytes;
    }
}

/* Value: 3 is a string, 6 a list of values. */
static void
visit_value(struct wire_cursor value, void (*visit)(void *context, struct wire_span address),
            void *context)
{
    struct wire_field field;
    struct wire_field element;
    struct wire_field part;
    while (wire_next(&value, &field) == WIRE_FIELD) {
        if (field.type != WIRE_BYTES)
            continue;
        if (field.number == 3)
            visit_list(span_of(field.data), visit, context);
        while (field.number == 6 && wire_next(&field.data, &element) == WIRE_FIELD)
            while (element.number == 1 && element.type == WIRE_BYTES &&
                   wire_next(&element.data, &part) == WIRE_FIELD)
                if (part.number == 3 && part.type == WIRE_BYTES)
                    visit_list(span_of(part.data), visit, context);
    }
}

bool
extproc_subset(const struct extproc_event *event,
               void (*visit)(void *context, struct wire_span address), void *context)
{
    struct wire_cursor fields;
    struct wire_cursor value;
    if (!map_find(event->metadata, 1, "envoy.lb.subset_hint", &fields) ||
        !map_find(fields, 1, "x-gateway-destination-endpoint-subset", &value))
        return false;
    visit_value(value, visit, context);
    return true;
}

struct wire_span
extproc_attribute(const struct extproc_event *event, const char *name)
{
    struct wire_cursor fields;
    struct wire_cursor value;
    struct wire_field field;
    struct wire_span text = {.data = "", .bytes = 0};
    if (!map_find(wire_begin(&event->message), 9, "envoy.filters.http.ext_proc", &fields) ||
        !map_find(fields, 1, name, &value))
        return text;
    while (wire_next(&value, &field) == WIRE_FIELD)
        if (field.number == 3 && field.type == WIRE_BYTES)
            text = span_of(field.data);
    return text;
}

/* ---- writing: inner messages before their heads, last fields first ---- */

static void
begin(struct extproc_answer *answer, size_t tail)
{
    answer->at = EXTPROC_ANSWER_BYTES;
    answer->bytes = tail;
}

static void
put(struct extproc_answer *answer, const void *data, size_t bytes)
{
    CHECK(answer->at >= bytes); /* addresses, ids and texts are bounded */
    answer->at -= bytes;
    answer->bytes += bytes;
    memcpy(answer->room + answer->at, data, bytes);
}

static void
put_number(struct extproc_answer *answer, uint32_t number, uint64_t value)
{
    unsigned char text[2 * WIRE_VARINT_BYTES_MAX];
    size_t used = wire_put_varint(text, wire_tag(number, WIRE_VARINT));
    used += wire_put_varint(text + used, value);
    put(answer, text, used);
}

/* The head of the field whose content was put since then. */
static void
close_since(struct extproc_answer *answer, uint32_t number, uint64_t since)
{
    unsigned char head[WIRE_HEAD_BYTES_MAX];
    put(answer, head, wire_put_head(head, number, answer->bytes - since));
}

static void
put_text(struct extproc_answer *answer, uint32_t number, const char *text)
{
    uint64_t since = answer->bytes;
    put(answer, text, strlen(text));
    close_since(answer, number, since);
}

/* A HeaderValueOption. Envoy takes raw_value alone, and replaces what is there. */
static void
put_header(struct extproc_answer *answer, const char *name, const char *value)
{
    uint64_t since = answer->bytes;
    put_text(answer, 3, value);
    put_text(answer, 1, name);
    close_since(answer, 1, since);
    close_since(answer, 1, since);
}

/* {"envoy.lb": {"x-gateway-destination-endpoint": ADDRESS}} */
static void
put_metadata(struct extproc_answer *answer, const char *address)
{
    uint64_t since = answer->bytes;
    put_text(answer, 3, address);
    close_since(answer, 2, since);
    put_text(answer, 1, destination);
    close_since(answer, 1, since);
    close_since(answer, 5, since); /* Value.struct_value */
    close_since(answer, 2, since);
    put_text(answer, 1, "envoy.lb");
    close_since(answer, 1, since);
    close_since(answer, 8, since);
}

static uint32_t
answer_number(enum extproc_phase phase)
{
    static const unsigned char numbers[] = {
        [EXTPROC_REQUEST_HEADERS] = 1,  [EXTPROC_RESPONSE_HEADERS] = 2,
        [EXTPROC_REQUEST_BODY] = 3,     [EXTPROC_RESPONSE_BODY] = 4,
        [EXTPROC_REQUEST_TRAILERS] = 5, [EXTPROC_RESPONSE_TRAILERS] = 6,
    };
    CHECK(phase != EXTPROC_NOTHING);
    return numbers[phase];
}

void
extproc_write_pick(struct extproc_answer *answer, enum extproc_phase phase,
                   const struct extproc_pick *pick)
{
    begin(answer, pick->body != NULL ? pick->body->bytes : 0);
    if (pick->body != NULL) {
        close_since(answer, 1, 0); /* BodyMutation.body, the tail */
        close_since(answer, 3, 0);
    }
    put_number(answer, 5, 1); /* clear_route_cache */
    uint64_t mutation = answer->bytes;
    for (size_t i = 0; i < ARRAY_COUNT(ours); i++)
        put_text(answer, 2, ours[i]);
    if (pick->request_id != NULL)
        put_header(answer, "x-request-id", pick->request_id);
    if (pick->content_length >= 0) {
        char length[24];
        snprintf(length, sizeof(length), "%lld", (long long)pick->content_length);
        put_header(answer, "content-length", length);
    }
    put_header(answer, destination, pick->address);
    close_since(answer, 2, mutation);
    close_since(answer, 1, 0);
    close_since(answer, answer_number(phase), 0);
    put_metadata(answer, pick->address);
}

void
extproc_write_pass(struct extproc_answer *answer, enum extproc_phase phase)
{
    begin(answer, 0);
    if (phase != EXTPROC_REQUEST_TRAILERS && phase != EXTPROC_RESPONSE_TRAILERS)
        close_since(answer, 1, 0); /* an empty CommonResponse */
    close_since(answer, answer_number(phase), 0);
}

void
extproc_write_piece(struct extproc_answer *answer, enum extproc_phase phase, size_t tail,
                    enum extproc_end end)
{
    begin(answer, tail);
    if (tail > 0)
        close_since(answer, 1, 0);
    if (end == EXTPROC_END)
        put_number(answer, 2, 1);
    close_since(answer, 3, 0); /* BodyMutation.streamed_response */
    close_since(answer, 3, 0); /* CommonResponse.body_mutation */
    close_since(answer, 1, 0);
    close_since(answer, answer_number(phase), 0);
}

void
extproc_write_refusal(struct extproc_answer *answer, const struct extproc_refusal *refusal,
                      size_t tail)
{
    begin(answer, tail);
    close_since(answer, 3, 0); /* body, the tail */
    put_text(answer, 5, refusal->details);
    uint64_t since = answer->bytes;
    if (refusal->request_id != NULL)
        put_header(answer, "x-request-id", refusal->request_id);
    if (refusal->retry_after != NULL)
        put_header(answer, "retry-after", refusal->retry_after);
    put_header(answer, "content-type", "application/json");
    close_since(answer, 2, since);
    since = answer->bytes;
    put_number(answer, 1, (uint64_t)refusal->code);
    close_since(answer, 1, since);
    close_since(answer, 7, 0);
}
