/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages between the user's form and the library's. Lent bytes become slices of their own, and
 * neighbours that are copied share one; received bytes stay where the library has put them.
 */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

enum { SLICES_ON_STACK = 32 };

/* The leading pieces that are copied, as one slice; `*taken` says how many. */
static grpc_slice
copied_slice(const struct rpc_piece *pieces, size_t piece_count, size_t *taken)
{
    size_t count = 0;
    size_t bytes = 0;
    while (count < piece_count && pieces[count].release == NULL)
        bytes += pieces[count++].bytes;
    grpc_slice slice = grpc_slice_malloc(bytes);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    for (size_t i = 0; i < count; i++) {
        if (pieces[i].bytes > 0)
            memcpy(to, pieces[i].data, pieces[i].bytes);
        to += pieces[i].bytes;
    }
    *taken = count;
    return slice;
}

static grpc_slice
lent_slice(const struct rpc_piece *piece)
{
    /* The library only reads what is sent, but does not say so in its types. */
    void *data = (void *)(uintptr_t)piece->data;
    return grpc_slice_new_with_user_data(data, piece->bytes, piece->release,
                                         piece->release_context);
}

grpc_byte_buffer *
rpc_message_to_core(const struct rpc_piece *pieces, size_t piece_count)
{
    grpc_slice on_stack[SLICES_ON_STACK];
    grpc_slice *slices = on_stack;
    if (piece_count > SLICES_ON_STACK)
        slices = rpc_allocate(piece_count, sizeof(*slices));
    size_t slice_count = 0;
    for (size_t i = 0; i < piece_count;) {
        size_t taken = 1;
        if (pieces[i].release == NULL)
            slices[slice_count++] = copied_slice(&pieces[i], piece_count - i, &taken);
        else if (pieces[i].bytes > 0)
            slices[slice_count++] = lent_slice(&pieces[i]);
        else
            pieces[i].release(pieces[i].release_context);
        i += taken;
    }
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, slice_count);
    for (size_t i = 0; i < slice_count; i++)
        grpc_slice_unref(slices[i]);
    if (slices != on_stack)
        free(slices);
    return buffer;
}

static void
span_add(struct rpc_queue *queue, size_t index, const grpc_slice *slice)
{
    if (index == queue->span_capacity) {
        size_t capacity = queue->span_capacity == 0 ? 64 : 2 * queue->span_capacity;
        queue->spans = realloc(queue->spans, capacity * sizeof(*queue->spans));
        CHECK(queue->spans != NULL);
        queue->span_capacity = capacity;
    }
    queue->spans[index] =
        (struct rpc_span){GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice)};
}

/*
 * Peeks instead of reading on: a slice that holds its bytes within itself must be looked at where
 * it lies, in the buffer, not in a copy on our stack.
 */
struct rpc_message
rpc_message_from_core(struct rpc_queue *queue, grpc_byte_buffer *buffer)
{
    struct rpc_message message = {0};
    grpc_byte_buffer_reader reader;
    CHECK(grpc_byte_buffer_reader_init(&reader, buffer));
    grpc_slice *slice;
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        if (GRPC_SLICE_LENGTH(*slice) == 0)
            continue;
        span_add(queue, message.span_count++, slice);
        message.bytes += GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
    message.spans = queue->spans;
    return message;
}
