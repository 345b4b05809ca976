/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the gRPC clients among the test programs: connections of its own to one method, and a
 * unary call sent and received as bytes in one batch of six operations. The caller owns the struct;
 * between unary_call_start and unary_call_end it belongs to gRPC, whose completion queue gives back
 * the tag. A failure that is the program's own ends it (BENCH_FAIL).
 */
#pragma once

#include "samples.h"

#include <grpc/byte_buffer.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>

#define INFER_METHOD "/inference.GRPCInferenceService/ModelInfer"

enum { CHANNEL_ARGS_MAX = 16 };

/* Integer arguments of a channel or a server, in the order given. */
struct channel_args {
    grpc_arg items[CHANNEL_ARGS_MAX];
    size_t count;
};

struct unary_channel {
    grpc_channel *core;
    void *method;
};

struct unary_call {
    grpc_call *core;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_byte_buffer *answer; /* NULL: there is none */
    grpc_slice details;
    grpc_status_code status;
};

/* Optional parts of a call besides its message. */
struct unary_options {
    gpr_timespec deadline;
    uint32_t initial_flags;
    grpc_metadata *metadata;
    size_t metadata_count;
};

static inline gpr_timespec
unary_within_ms(uint64_t ms)
{
    return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                        gpr_time_from_millis((int64_t)ms, GPR_TIMESPAN));
}

/* The key is kept, not copied. */
static inline void
channel_args_add(struct channel_args *args, const char *key, int value)
{
    if (args->count == CHANNEL_ARGS_MAX)
        BENCH_FAIL("more than %d channel arguments", CHANNEL_ARGS_MAX);
    args->items[args->count++] =
        (grpc_arg){.type = GRPC_ARG_INTEGER, .key = (char *)(uintptr_t)key, .value.integer = value};
}

/* KEY=NUMBER, as a command line gives it; the text is changed and kept. */
static inline void
channel_args_parse(struct channel_args *args, char *text)
{
    char *equals = strchr(text, '=');
    if (equals == NULL || equals == text)
        BENCH_FAIL("--arg %s: want KEY=NUMBER", text);
    *equals = '\0';
    channel_args_add(args, text, (int)bench_number("arg", equals + 1, 0, INT32_MAX));
}

/* Opens a connection of its own: channels with equal arguments would share one, so each is given a
 * number. The environment's proxies are ignored. */
static inline void
unary_channel_open(struct unary_channel *channel, const char *target, const char *method,
                   const struct channel_args *more, int number)
{
    struct channel_args args = {.count = 0};
    channel_args_add(&args, "shoal.test.channel", number);
    channel_args_add(&args, "grpc.enable_http_proxy", 0);
    for (size_t i = 0; i < more->count; i++)
        channel_args_add(&args, more->items[i].key, more->items[i].value.integer);
    grpc_channel_args core_args = {.num_args = args.count, .args = args.items};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    channel->core = grpc_channel_create(target, credentials, &core_args);
    grpc_channel_credentials_release(credentials);
    channel->method = grpc_channel_register_call(channel->core, method, NULL, NULL);
}

/* Waits until the channel is connected; nothing else may come out of the queue meanwhile. */
static inline void
unary_channel_wait(const struct unary_channel *channel, grpc_completion_queue *queue,
                   const char *target, uint64_t limit_s)
{
    uint64_t end_ns = bench_now_ns() + limit_s * BENCH_NS_PER_S;
    for (;;) {
        grpc_connectivity_state state = grpc_channel_check_connectivity_state(channel->core, 1);
        if (state == GRPC_CHANNEL_READY)
            return;
        if (bench_now_ns() > end_ns)
            BENCH_FAIL("cannot connect to %s", target);
        grpc_channel_watch_connectivity_state(channel->core, state, unary_within_ms(1000), queue,
                                              NULL);
        (void)grpc_completion_queue_next(queue, gpr_inf_future(GPR_CLOCK_MONOTONIC), NULL);
    }
}

/* Sends the message; its bytes are shared, not copied. */
static inline void
unary_call_start(struct unary_call *call, const struct unary_channel *channel,
                 grpc_completion_queue *queue, const struct unary_options *options,
                 grpc_slice message, void *tag)
{
    call->core =
        grpc_channel_create_registered_call(channel->core, NULL, GRPC_PROPAGATE_DEFAULTS, queue,
                                            channel->method, options->deadline, NULL);
    /* Sending takes the slices out of the buffer, so it is a new one each time. */
    grpc_byte_buffer *buffer = grpc_raw_byte_buffer_create(&message, 1);
    grpc_metadata_array_init(&call->initial);
    grpc_metadata_array_init(&call->trailing);
    call->answer = NULL;
    grpc_op ops[6] = {
        {.op = GRPC_OP_SEND_INITIAL_METADATA, .flags = options->initial_flags},
        {.op = GRPC_OP_SEND_MESSAGE},
        {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT},
        {.op = GRPC_OP_RECV_INITIAL_METADATA},
        {.op = GRPC_OP_RECV_MESSAGE},
        {.op = GRPC_OP_RECV_STATUS_ON_CLIENT},
    };
    ops[0].data.send_initial_metadata.count = options->metadata_count;
    ops[0].data.send_initial_metadata.metadata = options->metadata;
    ops[1].data.send_message.send_message = buffer;
    ops[3].data.recv_initial_metadata.recv_initial_metadata = &call->initial;
    ops[4].data.recv_message.recv_message = &call->answer;
    ops[5].data.recv_status_on_client.trailing_metadata = &call->trailing;
    ops[5].data.recv_status_on_client.status = &call->status;
    ops[5].data.recv_status_on_client.status_details = &call->details;
    grpc_call_error error = grpc_call_start_batch(call->core, ops, 6, tag, NULL);
    if (error != GRPC_CALL_OK)
        BENCH_FAIL("starting a call: %s", grpc_call_error_to_string(error));
    grpc_byte_buffer_destroy(buffer);
}

/* Frees the call's results. */
static inline void
unary_call_end(struct unary_call *call)
{
    if (call->answer != NULL)
        grpc_byte_buffer_destroy(call->answer);
    grpc_slice_unref(call->details);
    grpc_metadata_array_destroy(&call->initial);
    grpc_metadata_array_destroy(&call->trailing);
    grpc_call_unref(call->core);
}

static inline void
unary_queue_destroy(grpc_completion_queue *queue, uint64_t limit_ms)
{
    grpc_completion_queue_shutdown(queue);
    while (grpc_completion_queue_next(queue, unary_within_ms(limit_ms), NULL).type ==
           GRPC_OP_COMPLETE)
        continue;
    grpc_completion_queue_destroy(queue);
}
