/* SPDX-License-Identifier: Apache-2.0 */
/* Many calls at once over one channel of the bare C core, and how they ended. */
#pragma once

#include "test_rpc_rig.h"

struct burst_call {
    grpc_call *call;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_byte_buffer *message;
    grpc_status_code status;
    grpc_slice text;
};

struct burst {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    unsigned count;
    unsigned taken;
    unsigned statuses[STATUS_COUNT];
    struct burst_call calls[2000];
};

static inline void
burst_start_call(struct burst *burst, struct burst_call *call, const char *method)
{
    grpc_slice path = grpc_slice_from_static_string(method);
    call->call =
        grpc_channel_create_call(burst->channel, NULL, GRPC_PROPAGATE_DEFAULTS, burst->queue, path,
                                 NULL, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    struct rpc_piece piece = {.data = "m", .bytes = 1};
    grpc_byte_buffer *request = rpc_message_to_core(&piece, 1);
    grpc_op ops[] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA},
        {.op = GRPC_OP_SEND_MESSAGE, .data.send_message.send_message = request},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA,
         .data.recv_initial_metadata.recv_initial_metadata = &call->initial},
        {.op = GRPC_OP_RECV_MESSAGE, .data.recv_message.recv_message = &call->message},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT,
         .data.recv_status_on_client = {.trailing_metadata = &call->trailing,
                                        .status = &call->status,
                                        .status_details = &call->text}},
    };
    assert_int_equal(grpc_call_start_batch(call->call, ops, ARRAY_COUNT(ops), call, NULL),
                     GRPC_CALL_OK);
    grpc_byte_buffer_destroy(request);
}

static inline struct burst *
burst_start(const char *target, const char *method, unsigned count)
{
    struct burst *burst = calloc(1, sizeof(*burst));
    assert_non_null(burst);
    assert_true(count <= ARRAY_COUNT(burst->calls));
    burst->count = count;
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    burst->channel = grpc_channel_create(target, credentials, NULL);
    grpc_channel_credentials_release(credentials);
    burst->queue = grpc_completion_queue_create_for_next(NULL);
    for (unsigned i = 0; i < count; i++)
        burst_start_call(burst, &burst->calls[i], method);
    return burst;
}

/* Waits for one result at most until `deadline_ns`; returns the call that is over, or NULL. */
static inline struct burst_call *
burst_take(struct burst *burst, int64_t deadline_ns)
{
    grpc_event event =
        grpc_completion_queue_next(burst->queue, rpc_time_to_core(deadline_ns), NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return NULL;
    struct burst_call *call = event.tag;
    burst->taken++;
    burst->statuses[call->status]++;
    grpc_slice_unref(call->text);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_byte_buffer_destroy(call->message);
    grpc_call_unref(call->call);
    memset(call, 0, sizeof(*call));
    return call;
}

/* Lets the calls out until the server has `wanted` of them. */
static inline void
burst_until(struct burst *burst, struct rig *rig, const unsigned *counter, unsigned wanted)
{
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (rig_read(rig, counter) < wanted) {
        assert_true(clock_now_ns() < deadline_ns);
        burst_take(burst, clock_now_ns() + NS_PER_MS);
    }
}

static inline void
burst_cancel(struct burst *burst)
{
    for (unsigned i = 0; i < burst->count; i++)
        if (burst->calls[i].call != NULL)
            grpc_call_cancel(burst->calls[i].call, NULL);
}

/* Takes all results; `statuses` says how many there were of each. */
static inline void
burst_end(struct burst *burst, unsigned statuses[STATUS_COUNT])
{
    while (burst->taken < burst->count)
        assert_non_null(burst_take(burst, clock_now_ns() + PATIENCE_S * NS_PER_S));
    memcpy(statuses, burst->statuses, sizeof(burst->statuses));
    grpc_completion_queue_shutdown(burst->queue);
    while (grpc_completion_queue_next(burst->queue, rpc_time_to_core(TIME_NEVER_NS), NULL).type !=
           GRPC_QUEUE_SHUTDOWN)
        continue;
    grpc_completion_queue_destroy(burst->queue);
    grpc_channel_destroy(burst->channel);
    free(burst);
}
