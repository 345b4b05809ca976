/* SPDX-License-Identifier: Apache-2.0 */
/* A request's message as it goes to a runtime: with the model's id where the runtime wants it. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/edge/external_state.h"

static void
list_put(struct external_list *list, struct rpc_piece piece)
{
    if (list->count == list->room) {
        list->room *= 2;
        struct rpc_piece *more = malloc(list->room * sizeof(*more));
        CHECK(more != NULL);
        memcpy(more, list->at, list->count * sizeof(*more));
        if (list->at != list->at_hand)
            free(list->at);
        list->at = more;
    }
    list->at[list->count++] = piece;
}

void
external_list_fini(struct external_list *list)
{
    if (list->at != list->at_hand)
        free(list->at);
}

/* Bytes of the message. */
static void
list_put_range(struct external_list *list, const struct external_pieces *whole,
               struct id_range range)
{
    uint64_t at = 0;
    for (size_t i = 0; i < whole->count && at < range.to; i++) {
        const struct rpc_piece *piece = &whole->at[i];
        uint64_t from = at < range.from ? range.from - at : 0;
        uint64_t to = at + piece->bytes < range.to ? piece->bytes : range.to - at;
        at += piece->bytes;
        if (from >= to)
            continue;
        struct rpc_piece part = *piece;
        part.offset += (size_t)from;
        part.bytes = (size_t)(to - from);
        list_put(list, part);
    }
}

/* The locations of kept pieces' bytes, as one message. */
struct external_spans {
    struct wire_span *at;
    size_t count;
    size_t bytes;
};

static void
spans_put(struct external_spans *spans, const struct rpc_piece *piece)
{
    const struct wire_message *message = rpc_kept_message(piece->kept);
    size_t skip = piece->offset;
    size_t left = piece->bytes;
    for (size_t i = 0; i < message->span_count && left > 0; i++) {
        struct wire_span span = message->spans[i];
        size_t gone = skip < span.bytes ? skip : span.bytes;
        skip -= gone;
        span.bytes -= gone;
        if (span.bytes == 0)
            continue;
        span.data = (const unsigned char *)span.data + gone;
        span.bytes = span.bytes < left ? span.bytes : left;
        left -= span.bytes;
        spans->at[spans->count++] = span;
        spans->bytes += span.bytes;
    }
}

static struct external_spans
spans_of(const struct external_pieces *from)
{
    size_t count = 1;
    for (size_t i = 0; i < from->count; i++)
        count += rpc_kept_message(from->at[i].kept)->span_count;
    struct external_spans spans = {
        .at = malloc(count * sizeof(struct wire_span))}; /* one per block */
    CHECK(spans.at != NULL);
    for (size_t i = 0; i < from->count; i++)
        spans_put(&spans, &from->at[i]);
    return spans;
}

/* The message with the id; `plan` and `model` must stay until it was sent. */
static enum status
message_inject(struct external_list *list, const struct external_pieces *from,
               const struct external_method *method, const char *model, struct id_inject *plan,
               struct error *error)
{
    struct external_spans spans = spans_of(from);
    struct wire_message message = {spans.at, spans.count, spans.bytes};
    size_t id_bytes = strlen(model);
    enum status status =
        id_inject_plan(&message, method->path, method->depth, id_bytes, plan, error);
    free(spans.at);
    if (status != STATUS_OK)
        return error_prefix(error, "request: no place for the model's id");
    const unsigned char *head = plan->heads;
    for (uint32_t i = 0; i < plan->range_count; i++) {
        list_put_range(list, from, plan->ranges[i]);
        if (plan->head_bytes[i] > 0)
            list_put(list, (struct rpc_piece){.data = head, .bytes = plan->head_bytes[i]});
        head += plan->head_bytes[i];
        if (i + 2 == plan->range_count)
            list_put(list, (struct rpc_piece){.data = model, .bytes = id_bytes});
    }
    return STATUS_OK;
}

enum status
external_list_make(struct external_list *list, const struct external_method *method,
                   const struct external_pieces *from, const char *model, struct id_inject *plan,
                   struct error *error)
{
    list->at = list->at_hand;
    list->count = 0;
    list->room = ARRAY_COUNT(list->at_hand);
    if (method != NULL && method->depth > 0)
        return message_inject(list, from, method, model, plan, error);
    list_put_range(list, from, (struct id_range){0, UINT64_MAX});
    return STATUS_OK;
}
