/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sending side of a received call, and its end. A unary call has one sending batch, started by
 * the one thread that ends it; everything else goes through the call's stream.
 */
#include <grpc/byte_buffer.h>
#include <grpc/slice.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

/* `ended` is set before the last batch starts, and after all other accesses to the call: the
 * stepping thread, which reads `ended` at that batch's event, may reuse the call at once. */
static void
call_end(struct rpc_call *call)
{
    CHECK(!atomic_exchange_explicit(&call->ended, true, memory_order_acq_rel));
}

static void
ending_release(struct rpc_ending *ending)
{
    grpc_slice_unref(ending->text);
    rpc_headers_release(&ending->trailers);
}

/* `message` and `initial` may be NULL. Takes over only the message. */
static void
unary_end(struct rpc_call *call, grpc_byte_buffer *message, const struct rpc_headers *initial,
          struct rpc_ending *ending)
{
    grpc_call *core = call->core;
    call->sending = message;
    rpc_watch_sending(call, message);
    call_end(call);
    grpc_op ops[3] = {{.op = GRPC_OP_SEND_INITIAL_METADATA},
                      {.op = GRPC_OP_SEND_STATUS_FROM_SERVER},
                      {.op = GRPC_OP_SEND_MESSAGE}};
    if (initial != NULL) {
        ops[0].data.send_initial_metadata.metadata = initial->items;
        ops[0].data.send_initial_metadata.count = initial->count;
    }
    ops[1].data.send_status_from_server.status = (grpc_status_code)ending->status;
    if (GRPC_SLICE_LENGTH(ending->text) > 0)
        ops[1].data.send_status_from_server.status_details = &ending->text;
    ops[1].data.send_status_from_server.trailing_metadata = ending->trailers.items;
    ops[1].data.send_status_from_server.trailing_metadata_count = ending->trailers.count;
    ops[2].data.send_message.send_message = message;
    rpc_call_start(core, ops, message != NULL ? 3 : 2, &call->tags[RPC_EVENT_ENDED]);
}

static grpc_slice
text_to_core(const char *text, size_t bytes)
{
    if (bytes == 0)
        return grpc_empty_slice();
    return grpc_slice_from_copied_buffer(text,
                                         bytes < RPC_TEXT_BYTES_MAX ? bytes : RPC_TEXT_BYTES_MAX);
}

/* Takes over the ending. */
static void
call_end_without_message(struct rpc_call *call, struct rpc_ending *ending)
{
    /* Also for a method that nobody serves. */
    if (call->method == NULL || call->method->kind == RPC_UNARY) {
        unary_end(call, NULL, NULL, ending);
        ending_release(ending);
        return;
    }
    call_end(call);
    rpc_stream_finish(call->stream, NULL, (struct rpc_headers){0}, ending);
}

void
rpc_call_fail(struct rpc_call *call, enum status status, const char *text)
{
    struct rpc_ending ending = {
        .status = status,
        .text = text_to_core(text, text != NULL ? strnlen(text, RPC_TEXT_BYTES_MAX) : 0),
    };
    call_end_without_message(call, &ending);
}

/* ---- the user's side ---- */

void
rpc_call_reply(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    struct rpc_ending ending = {.status = STATUS_OK, .text = grpc_empty_slice()};
    grpc_byte_buffer *message = rpc_message_to_core(pieces, piece_count);
    if (call->method->kind == RPC_UNARY) {
        unary_end(call, message, NULL, &ending);
        return;
    }
    CHECK(call->method->kind == RPC_SERVER_STREAM);
    call_end(call);
    rpc_stream_finish(call->stream, message, (struct rpc_headers){0}, &ending);
}

enum status
rpc_call_send(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    CHECK(call->method->kind != RPC_UNARY);
    return rpc_stream_send(call->stream, rpc_message_to_core(pieces, piece_count), RPC_STREAM_COUNT,
                           RPC_STREAM_QUEUE_MAX);
}

enum status
rpc_call_send_within(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count,
                     uint64_t waiting_bytes_max)
{
    CHECK(call->method->kind != RPC_UNARY);
    return rpc_stream_send(call->stream, rpc_message_to_core(pieces, piece_count), RPC_STREAM_BYTES,
                           waiting_bytes_max);
}

void
rpc_call_begin(struct rpc_call *call, const struct rpc_metadata *initial, size_t initial_count)
{
    CHECK(rpc_call_is_any(call) || call->method->kind == RPC_SERVER_STREAM);
    rpc_stream_open(call->stream, rpc_headers_to_core(initial, initial_count), NULL,
                    RPC_STREAM_MORE);
}

void
rpc_call_answer(struct rpc_call *call, const struct rpc_answer *answer)
{
    bool unary = call->method->kind == RPC_UNARY;
    grpc_byte_buffer *message = NULL;
    if (answer->pieces != NULL || (unary && answer->status == STATUS_OK))
        message = rpc_message_to_core(answer->pieces, answer->pieces ? answer->piece_count : 0);
    struct rpc_headers initial = rpc_headers_to_core(answer->initial, answer->initial_count);
    struct rpc_ending ending = {
        .status = answer->status,
        .text = text_to_core(answer->text.data, answer->text.bytes),
        .trailers = rpc_headers_to_core(answer->trailers, answer->trailer_count),
    };
    if (!unary) {
        call_end(call);
        rpc_stream_finish(call->stream, message, initial, &ending);
        return;
    }
    if (answer->status != STATUS_OK) {
        grpc_byte_buffer_destroy(message);
        message = NULL;
    }
    unary_end(call, message, &initial, &ending);
    rpc_headers_release(&initial);
    ending_release(&ending);
}

void
rpc_call_finish(struct rpc_call *call, enum status status, const char *text)
{
    CHECK(call->method->kind != RPC_UNARY || status != STATUS_OK);
    rpc_call_fail(call, status, text);
}

void
rpc_call_refuse(struct rpc_call *call, enum status status, const char *text, uint32_t retry_ms)
{
    CHECK(status != STATUS_OK);
    char number[16];
    int length = snprintf(number, sizeof(number), "%u", retry_ms);
    struct rpc_metadata trailer = {.key = {"grpc-retry-pushback-ms", 22},
                                   .value = {number, (size_t)length}};
    struct rpc_ending ending = {
        .status = status,
        .text = text_to_core(text, text != NULL ? strnlen(text, RPC_TEXT_BYTES_MAX) : 0),
        .trailers = rpc_headers_to_core(&trailer, retry_ms > 0 ? 1 : 0),
    };
    call_end_without_message(call, &ending);
}
