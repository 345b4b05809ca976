/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a ProcessingRequest: what is read of it lies within it, a second look finds the
 * same, and answers made of its texts read back as a ProcessingResponse with the tail at its end.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "gateway/extproc/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TEXT_MAX = 100 };

struct look {
    const char *data;
    size_t size;
    uint32_t addresses;
};

static void
check_inside(const struct look *look, struct wire_span span)
{
    const char *at = span.data;
    CHECK(span.bytes == 0 || (at >= look->data && at + span.bytes <= look->data + look->size));
}

static void
on_address(void *context, struct wire_span address)
{
    struct look *look = context;
    check_inside(look, address);
    look->addresses++;
}

/* The fields of a message that we wrote: they end where it does. */
static uint32_t
count_fields(struct wire_cursor cursor, struct wire_field *last)
{
    uint32_t count = 0;
    enum wire_result result;
    while ((result = wire_next(&cursor, last)) == WIRE_FIELD)
        count++;
    CHECK(result == WIRE_END);
    return count;
}

static void
check_answer(const struct extproc_answer *answer, struct wire_span tail, uint32_t number)
{
    const struct wire_span spans[] = {
        {.data = answer->room + answer->at, .bytes = EXTPROC_ANSWER_BYTES - answer->at}, tail};
    const struct wire_message message = {
        .spans = spans, .span_count = 2, .bytes = spans[0].bytes + tail.bytes};
    struct wire_field last;
    CHECK(answer->bytes == message.bytes);
    CHECK(count_fields(wire_begin(&message), &last) > 0 && last.number == number);
    CHECK(last.type == WIRE_BYTES);
    if (last.value > 0)
        (void)count_fields(last.data, &last);
}

static void
check_answers(const struct extproc_event *event, struct wire_span text)
{
    struct extproc_answer answer;
    char value[TEXT_MAX + 1] = "";
    size_t bytes = text.bytes < TEXT_MAX ? text.bytes : TEXT_MAX;
    if (bytes > 0)
        memcpy(value, text.data, bytes);
    const struct extproc_pick pick = {
        .address = value, .request_id = value, .content_length = 1, .body = &event->body};
    const struct extproc_refusal refusal = {
        .code = 503, .request_id = value, .retry_after = "1", .details = value};
    extproc_write_pick(&answer, EXTPROC_REQUEST_BODY, &pick);
    check_answer(&answer, event->body, 3);
    extproc_write_piece(&answer, EXTPROC_RESPONSE_BODY, event->body.bytes, EXTPROC_END);
    check_answer(&answer, event->body, 4);
    extproc_write_refusal(&answer, &refusal, event->body.bytes);
    check_answer(&answer, event->body, 7);
    if (event->phase != EXTPROC_NOTHING) {
        extproc_write_pass(&answer, event->phase);
        CHECK(answer.bytes <= 4);
    }
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size > 0 ? size : 1); /* of exactly that size: reading beyond it is seen */
    CHECK(text != NULL);
    memcpy(text, data, size);
    struct look look = {.data = text, .size = size};
    struct look again = look;
    struct extproc_event event;
    if (extproc_event_read(&event, text, size)) {
        struct wire_span key = {0};
        struct wire_span value = {0};
        struct wire_span longest = {0};
        check_inside(&look, event.body);
        while (extproc_header_next(&event.headers, &key, &value)) {
            check_inside(&look, key.bytes > 0 ? key : (struct wire_span){0});
            check_inside(&look, value.bytes > 0 ? value : (struct wire_span){0});
            longest = value.bytes > longest.bytes ? value : longest;
        }
        bool has = extproc_subset(&event, on_address, &look);
        CHECK(has == extproc_subset(&event, on_address, &again));
        CHECK(look.addresses == again.addresses && (has || look.addresses == 0));
        check_inside(&look, extproc_attribute(&event, "response.code_details"));
        check_answers(&event, longest);
    }
    free(text);
    return 0;
}
