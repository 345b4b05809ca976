/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts messages between the user's form and the library's. Lent bytes become separate slices,
 * kept ones are the received slices, and adjacent copied pieces share one; received bytes stay
 * where the library put them.
 *
 * A message is kept by taking the library's buffer out of the delivery under way on this thread.
 * The delivery is found by the message's spans, not by a mark, since users make and copy messages:
 * a message that is not the delivery's is copied.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

enum { SLICES_ON_STACK = 32 };

struct rpc_kept {
    atomic_uint references;
    grpc_byte_buffer *buffer;
    struct wire_message message; /* of the spans below */
    struct wire_span spans[];
};

static _Thread_local struct rpc_delivery *delivery_now;

/* ---- to be sent ---- */

/* Copies the leading copied pieces into one slice; `*taken` is their number. */
static grpc_slice
copied_slice(const struct rpc_piece *pieces, size_t piece_count, size_t *taken)
{
    size_t count = 0;
    size_t bytes = 0;
    while (count < piece_count && pieces[count].release == NULL && pieces[count].kept == NULL)
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
    /* The library only reads it, but its types do not say so. */
    void *data = (void *)(uintptr_t)piece->data;
    return grpc_slice_new_with_user_data(data, piece->bytes, piece->release,
                                         piece->release_context);
}

/* The slices of a part of a kept message; returns their number. */
static size_t
kept_slices(const struct rpc_piece *piece, grpc_slice *slices)
{
    CHECK(piece->offset <= piece->kept->message.bytes &&
          piece->bytes <= piece->kept->message.bytes - piece->offset);
    const grpc_slice_buffer *all = &piece->kept->buffer->data.raw.slice_buffer;
    size_t skip = piece->offset;
    size_t left = piece->bytes;
    size_t count = 0;
    for (size_t i = 0; left > 0; i++) {
        size_t bytes = GRPC_SLICE_LENGTH(all->slices[i]);
        if (skip >= bytes) {
            skip -= bytes;
            continue;
        }
        size_t used = bytes - skip < left ? bytes - skip : left;
        if (used == bytes)
            slices[count++] = grpc_slice_ref(all->slices[i]);
        else
            slices[count++] = grpc_slice_sub(all->slices[i], skip, skip + used);
        skip = 0;
        left -= used;
    }
    return count;
}

static size_t
slices_needed(const struct rpc_piece *pieces, size_t piece_count)
{
    size_t count = 0;
    for (size_t i = 0; i < piece_count; i++)
        count += pieces[i].kept != NULL ? pieces[i].kept->message.span_count : 1;
    return count;
}

static size_t
slices_make(const struct rpc_piece *pieces, size_t piece_count, grpc_slice *slices)
{
    size_t count = 0;
    for (size_t i = 0; i < piece_count;) {
        size_t taken = 1;
        if (pieces[i].kept != NULL)
            count += kept_slices(&pieces[i], &slices[count]);
        else if (pieces[i].release == NULL)
            slices[count++] = copied_slice(&pieces[i], piece_count - i, &taken);
        else if (pieces[i].bytes > 0)
            slices[count++] = lent_slice(&pieces[i]);
        else
            pieces[i].release(pieces[i].release_context);
        i += taken;
    }
    return count;
}

void
rpc_pieces_release(const struct rpc_piece *pieces, size_t piece_count)
{
    for (size_t i = 0; i < piece_count; i++)
        if (pieces[i].release != NULL)
            pieces[i].release(pieces[i].release_context);
}

grpc_byte_buffer *
rpc_message_to_core(const struct rpc_piece *pieces, size_t piece_count)
{
    grpc_slice on_stack[SLICES_ON_STACK];
    grpc_slice *slices = on_stack;
    size_t room = slices_needed(pieces, piece_count);
    if (room > SLICES_ON_STACK)
        slices = rpc_allocate(room, sizeof(*slices));
    size_t count = slices_make(pieces, piece_count, slices);
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(slices, count);
    for (size_t i = 0; i < count; i++)
        grpc_slice_unref(slices[i]);
    if (slices != on_stack)
        free(slices);
    return buffer;
}

/* ---- received ---- */

/* Looks at each slice in the buffer: a slice may hold its bytes within itself, so a copy of it
 * would not do. */
void
rpc_delivery_begin(struct rpc_delivery *delivery, struct rpc_queue *queue, grpc_byte_buffer *buffer)
{
    const grpc_slice_buffer *all = &buffer->data.raw.slice_buffer;
    CHECK(buffer->data.raw.compression == GRPC_COMPRESS_NONE); /* see rpc_inflate */
    if (all->count > queue->span_capacity)
        queue->spans =
            rpc_grow(queue->spans, &queue->span_capacity, all->count, sizeof(*queue->spans));
    struct wire_message message = {.spans = queue->spans};
    for (size_t i = 0; i < all->count; i++)
        if (GRPC_SLICE_LENGTH(all->slices[i]) > 0)
            queue->spans[message.span_count++] = rpc_span_of(&all->slices[i]);
    message.bytes = all->length;
    *delivery = (struct rpc_delivery){.message = message, .buffer = buffer};
    delivery_now = delivery;
}

void
rpc_delivery_end(struct rpc_delivery *delivery)
{
    delivery_now = NULL;
    if (delivery->kept != NULL)
        rpc_kept_release(delivery->kept);
    else
        grpc_byte_buffer_destroy(delivery->buffer);
}

/* ---- kept ---- */

static struct rpc_kept *
kept_create(size_t span_count, unsigned references)
{
    struct rpc_kept *kept = malloc(sizeof(*kept) + span_count * sizeof(kept->spans[0]));
    CHECK(kept != NULL);
    atomic_init(&kept->references, references);
    return kept;
}

/* The delivery has one reference itself, so that keeping it again gives the same object. */
static struct rpc_kept *
keep_delivered(struct rpc_delivery *delivery)
{
    if (delivery->kept != NULL) {
        rpc_kept_acquire(delivery->kept);
        return delivery->kept;
    }
    const struct wire_message *message = &delivery->message;
    struct rpc_kept *kept = delivery->kept = kept_create(message->span_count, 2);
    kept->buffer = delivery->buffer;
    kept->message = *message;
    kept->message.spans = kept->spans;
    for (size_t i = 0; i < message->span_count; i++)
        kept->spans[i] = message->spans[i];
    return kept;
}

struct rpc_kept *
rpc_message_copy(const struct wire_message *message)
{
    grpc_slice slice = grpc_slice_malloc_large(message->bytes);
    uint8_t *to = GRPC_SLICE_START_PTR(slice);
    for (size_t i = 0; i < message->span_count; i++) {
        if (message->spans[i].bytes > 0)
            memcpy(to, message->spans[i].data, message->spans[i].bytes);
        to += message->spans[i].bytes;
    }
    struct rpc_kept *kept = kept_create(1, 1);
    kept->buffer = grpc_raw_byte_buffer_create(&slice, message->bytes > 0 ? 1 : 0);
    kept->spans[0] = rpc_span_of(&slice);
    kept->message = (struct wire_message){
        .spans = kept->spans, .span_count = message->bytes > 0 ? 1 : 0, .bytes = message->bytes};
    grpc_slice_unref(slice);
    return kept;
}

struct rpc_kept *
rpc_message_keep(const struct wire_message *message)
{
    struct rpc_delivery *delivery = delivery_now;
    if (delivery != NULL && delivery->message.spans == message->spans &&
        delivery->message.bytes == message->bytes &&
        delivery->message.span_count == message->span_count)
        return keep_delivered(delivery);
    return rpc_message_copy(message);
}

void
rpc_kept_acquire(struct rpc_kept *kept)
{
    atomic_fetch_add_explicit(&kept->references, 1, memory_order_relaxed);
}

/* The last release sees all that other threads did before theirs. */
void
rpc_kept_release(struct rpc_kept *kept)
{
    if (kept == NULL || atomic_fetch_sub_explicit(&kept->references, 1, memory_order_acq_rel) != 1)
        return;
    grpc_byte_buffer_destroy(kept->buffer);
    free(kept);
}

const struct wire_message *
rpc_kept_message(const struct rpc_kept *kept)
{
    return &kept->message;
}

struct rpc_piece
rpc_kept_piece(const struct rpc_kept *kept)
{
    return (struct rpc_piece){.kept = kept, .bytes = kept->message.bytes};
}
