/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The blocking client: one unary call at a time, awaited on the channel's completion queue. The
 * request is copied, because the library may still hold it after a call has timed out.
 */
#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/slice.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "rpc/internal.h"

struct rpc_channel {
    grpc_channel *core;
    grpc_completion_queue *queue;
    const struct rpc_metadata *metadata;
    size_t metadata_count;
};

/* One call under way: the library writes here. */
struct channel_outcome {
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_byte_buffer *message;
    grpc_status_code status;
    grpc_slice text;
};

enum status
rpc_channel_create(const char *target, struct rpc_channel **out, struct error *error)
{
    return rpc_channel_create_tls(target, NULL, out, error);
}

enum status
rpc_channel_create_tls(const char *target, struct rpc_tls *tls, struct rpc_channel **out,
                       struct error *error)
{
    if (target[0] == '\0')
        return error_set(error, STATUS_INVALID_ARGUMENT, "empty address");
    struct rpc_args args = {.count = 0};
    rpc_args_add_connection(&args, RPC_CONNECT_MS);
    rpc_args_add(&args, GRPC_ARG_MAX_RECEIVE_MESSAGE_LENGTH, -1);
    rpc_args_add_peer_name(&args, tls);
    grpc_channel_args core_args = {.num_args = args.count, .args = args.items};
    grpc_channel_credentials *credentials = rpc_tls_client(tls);
    struct rpc_channel *channel = rpc_allocate(1, sizeof(*channel));
    channel->core = grpc_channel_create(target, credentials, &core_args);
    grpc_channel_credentials_release(credentials);
    CHECK(channel->core != NULL); /* an invalid target fails its calls instead */
    channel->queue = grpc_completion_queue_create_for_pluck(NULL);
    *out = channel;
    return STATUS_OK;
}

void
rpc_channel_destroy(struct rpc_channel *channel)
{
    if (channel == NULL)
        return;
    grpc_completion_queue_shutdown(channel->queue);
    grpc_completion_queue_destroy(channel->queue);
    grpc_channel_destroy(channel->core);
    free(channel);
}

void
rpc_channel_set_metadata(struct rpc_channel *channel, const struct rpc_metadata *entries,
                         size_t count)
{
    channel->metadata = entries;
    channel->metadata_count = count;
}

static void
call_run(struct rpc_channel *channel, grpc_call *call, grpc_byte_buffer *request,
         struct channel_outcome *outcome)
{
    struct rpc_headers headers = rpc_headers_to_core(channel->metadata, channel->metadata_count);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA,
         .flags = GRPC_INITIAL_METADATA_WAIT_FOR_READY,
         .data.send_initial_metadata = {.count = headers.count, .metadata = headers.items}},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &outcome->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &outcome->message},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &outcome->trailing,
                                        .status = &outcome->status,
                                        .status_details = &outcome->text}},
    };
    CHECK(grpc_call_start_batch(call, ops, ARRAY_COUNT(ops), call, NULL) == GRPC_CALL_OK);
    /* The call's deadline ends the wait. */
    grpc_event event = grpc_completion_queue_pluck(channel->queue, call,
                                                   gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    CHECK(event.type == GRPC_OP_COMPLETE);
    rpc_headers_release(&headers);
}

static void
response_copy(grpc_byte_buffer *message, void **response, size_t *response_bytes)
{
    size_t bytes = grpc_byte_buffer_length(message);
    uint8_t *to = malloc(bytes > 0 ? bytes : 1);
    CHECK(to != NULL);
    *response = to;
    *response_bytes = bytes;
    grpc_byte_buffer_reader reader;
    CHECK(grpc_byte_buffer_reader_init(&reader, message));
    grpc_slice *slice;
    while (grpc_byte_buffer_reader_peek(&reader, &slice)) {
        memcpy(to, GRPC_SLICE_START_PTR(*slice), GRPC_SLICE_LENGTH(*slice));
        to += GRPC_SLICE_LENGTH(*slice);
    }
    grpc_byte_buffer_reader_destroy(&reader);
}

static enum status
outcome_judge(const struct channel_outcome *outcome, void **response, size_t *response_bytes,
              struct error *error)
{
    if (outcome->status != GRPC_STATUS_OK)
        return error_set(error, status_from_number(outcome->status), "%.*s",
                         (int)GRPC_SLICE_LENGTH(outcome->text),
                         (const char *)GRPC_SLICE_START_PTR(outcome->text));
    if (outcome->message == NULL)
        return error_set(error, STATUS_INTERNAL, "status OK without a response message");
    response_copy(outcome->message, response, response_bytes);
    return STATUS_OK;
}

enum status
rpc_channel_call(struct rpc_channel *channel, const struct rpc_channel_ask *ask, void **response,
                 size_t *response_bytes, struct error *error)
{
    grpc_slice path = grpc_slice_from_copied_string(ask->method);
    grpc_call *call =
        grpc_channel_create_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, channel->queue, path,
                                 NULL, rpc_time_to_core(ask->deadline_ns), NULL);
    CHECK(call != NULL);
    struct rpc_piece piece = {.data = ask->request, .bytes = ask->request_bytes};
    grpc_byte_buffer *message = rpc_message_to_core(&piece, 1);
    struct channel_outcome outcome = {.text = grpc_empty_slice()};
    grpc_metadata_array_init(&outcome.initial);
    grpc_metadata_array_init(&outcome.trailing);
    call_run(channel, call, message, &outcome);
    enum status status = outcome_judge(&outcome, response, response_bytes, error);
    grpc_slice_unref(outcome.text);
    grpc_byte_buffer_destroy(outcome.message);
    grpc_byte_buffer_destroy(message);
    grpc_metadata_array_destroy(&outcome.initial);
    grpc_metadata_array_destroy(&outcome.trailing);
    grpc_call_unref(call);
    grpc_slice_unref(path);
    return status;
}
