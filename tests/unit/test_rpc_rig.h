/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the rpc tests: a real server with one thread per queue and a few methods, and a caller
 * on the bare C core that can do what rpc_channel cannot: open a stream, stall, cancel, vanish.
 * Waits are on a condition, with a deadline that only a failing test reaches.
 */
#pragma once

#include <grpc/byte_buffer.h>
#include <grpc/byte_buffer_reader.h>
#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <grpc/slice.h>
#include <grpc/support/time.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "rpc/internal.h"
#include "rpc/rpc.h"

enum { HELD_MAX = 4096, QUEUES_MAX = 4, PATIENCE_S = 60, RIG_ARMED_CALLS = 16 };

/* Not the library's own default of 4 MiB. */
#define RIG_LIMIT_BYTES ((size_t)5 << 20)

struct rig {
    struct rpc_server *server;
    size_t queue_count;
    char directory[64];
    char unix_target[128];
    char tcp_target[64];
    pthread_t threads[QUEUES_MAX];

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t changed;
    unsigned messages;
    unsigned half_closes;
    unsigned cancels;
    unsigned lent;
    unsigned released;
    unsigned refused; /* rpc_call_send that found the queue full */
    uint64_t cancelled_tag;
    struct rpc_call *held[HELD_MAX];
    unsigned held_count;
    bool ending; /* nothing is held any more */
};

/* ---- waiting ---- */

static inline struct timespec
rig_patience(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return until;
}

/* Waits until *counter, one of the rig's, is at least `wanted`. */
static inline void
rig_wait(struct rig *rig, const unsigned *counter, unsigned wanted)
{
    struct timespec until = rig_patience();
    pthread_mutex_lock(&rig->lock);
    while (*counter < wanted && pthread_cond_timedwait(&rig->changed, &rig->lock, &until) == 0)
        continue;
    unsigned seen = *counter;
    pthread_mutex_unlock(&rig->lock);
    if (seen < wanted)
        fail_msg("waited for %u, saw %u", wanted, seen);
}

static inline unsigned
rig_read(struct rig *rig, const unsigned *counter)
{
    pthread_mutex_lock(&rig->lock);
    unsigned seen = *counter;
    pthread_mutex_unlock(&rig->lock);
    return seen;
}

static inline void
rig_count(struct rig *rig, unsigned *counter)
{
    pthread_mutex_lock(&rig->lock);
    (*counter)++;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

/* ---- the server's methods ---- */

struct lent {
    struct rig *rig;
    unsigned char bytes[];
};

static inline void
lent_release(void *context)
{
    struct lent *lent = context;
    struct rig *rig = lent->rig;
    free(lent); /* a second release is a double free, which the sanitizer and glibc report */
    rig_count(rig, &rig->released);
}

static inline struct rpc_piece
lent_piece(struct rig *rig, const struct wire_message *message)
{
    struct lent *lent = malloc(sizeof(*lent) + message->bytes);
    CHECK(lent != NULL);
    lent->rig = rig;
    rig_count(rig, &rig->lent);
    size_t at = 0;
    for (size_t i = 0; i < message->span_count; i++) {
        memcpy(lent->bytes + at, message->spans[i].data, message->spans[i].bytes);
        at += message->spans[i].bytes;
    }
    CHECK(at == message->bytes);
    return (struct rpc_piece){
        .data = lent->bytes, .bytes = at, .release = lent_release, .release_context = lent};
}

static inline void
on_echo(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct rig *rig = context;
    rig_count(rig, &rig->messages);
    struct rpc_piece piece = lent_piece(rig, message);
    rpc_call_reply(call, &piece, 1);
}

/* Keeps the call for the test to end; its tag is 1000 + its number. */
static inline void
on_hold(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)message;
    struct rig *rig = context;
    CHECK(!call->closed); /* or on_cancel would never come */
    if (rpc_call_user(call) != NULL)
        return; /* another message of a stream that is held */
    pthread_mutex_lock(&rig->lock);
    if (rig->ending) {
        pthread_mutex_unlock(&rig->lock);
        rpc_call_finish(call, STATUS_CANCELLED, NULL);
        return;
    }
    CHECK(rig->held_count < HELD_MAX);
    rpc_call_set_tag(call, 1000 + rig->held_count);
    rpc_call_set_user(call, rig);
    rig->held[rig->held_count++] = call;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

static inline void
on_cancel(void *context, uint64_t tag)
{
    struct rig *rig = context;
    pthread_mutex_lock(&rig->lock);
    rig->cancels++;
    rig->cancelled_tag = tag;
    pthread_cond_broadcast(&rig->changed);
    pthread_mutex_unlock(&rig->lock);
}

/* A call that was not held, because no message came, ends here. */
static inline void
on_hold_half_close(void *context, struct rpc_call *call)
{
    struct rig *rig = context;
    CHECK(!call->closed);
    rig_count(rig, &rig->half_closes);
    if (rpc_call_user(call) == NULL)
        rpc_call_finish(call, STATUS_OK, NULL);
}

/* Bidirectional echo, ended by the caller's half-close. */
static inline void
on_chat(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct rig *rig = context;
    rig_count(rig, &rig->messages);
    rpc_call_set_tag(call, (uintptr_t)call); /* all that ends it is on this thread */
    struct rpc_piece piece = lent_piece(rig, message);
    if (rpc_call_send(call, &piece, 1) != STATUS_OK)
        rig_count(rig, &rig->refused);
}

static inline void
on_chat_end(void *context, struct rpc_call *call)
{
    struct rig *rig = context;
    rig_count(rig, &rig->half_closes);
    rpc_call_finish(call, STATUS_OK, NULL);
}

static inline void
on_chat_cancel(void *context, uint64_t tag)
{
    on_cancel(context, tag);
    if (tag != 0)
        rpc_call_finish((struct rpc_call *)(uintptr_t)tag, STATUS_CANCELLED, NULL);
}

static const struct rpc_method rig_methods[] = {
    {"/t.T/Echo", RPC_UNARY, true, on_echo, NULL, on_cancel},
    {"/t.T/EchoCold", RPC_UNARY, false, on_echo, NULL, on_cancel},
    {"/t.T/Hold", RPC_UNARY, true, on_hold, NULL, on_cancel},
    {"/t.T/HoldCold", RPC_UNARY, false, on_hold, NULL, on_cancel},
    {"/t.T/HoldStream", RPC_SERVER_STREAM, false, on_hold, NULL, on_cancel},
    {"/t.T/HoldBidi", RPC_BIDI_STREAM, false, on_hold, on_hold_half_close, on_cancel},
    {"/t.T/Chat", RPC_BIDI_STREAM, false, on_chat, on_chat_end, on_chat_cancel},
    {"/t.T/ChatHot", RPC_BIDI_STREAM, true, on_chat, on_chat_end, on_chat_cancel},
};

/* ---- the server ---- */

struct rig_thread {
    struct rig *rig;
    size_t queue_index;
};

static inline void *
rig_thread_run(void *argument)
{
    struct rig_thread *thread = argument;
    while (rpc_server_step(thread->rig->server, thread->queue_index, TIME_NEVER_NS) >= 0)
        continue;
    free(thread);
    return NULL;
}

static inline struct rpc_server_options
rig_options(const char *const *listen, size_t listen_count)
{
    return (struct rpc_server_options){
        .listen = listen,
        .listen_count = listen_count,
        .queue_count = 1,
        .message_bytes_max = RIG_LIMIT_BYTES,
        .metadata_bytes_max = 32768,
        .concurrent_streams_max = 4096,
        .armed_calls = RIG_ARMED_CALLS,
        .armed_calls_other = RIG_ARMED_CALLS,
        .methods = rig_methods,
        .method_count = ARRAY_COUNT(rig_methods),
    };
}

static inline void
rig_make_directory(char directory[64])
{
    snprintf(directory, 64, "/tmp/rpc-test-XXXXXX");
    assert_non_null(mkdtemp(directory));
}

/* Starts a server on a unix socket and a port; `adjust` may change its options. */
static inline struct rig *
rig_start(size_t queue_count, void (*adjust)(struct rpc_server_options *options))
{
    struct rig *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    pthread_mutex_init(&rig->lock, NULL);
    pthread_cond_init(&rig->changed, NULL);
    rig_make_directory(rig->directory);
    snprintf(rig->unix_target, sizeof(rig->unix_target), "unix:%s/s", rig->directory);
    const char *listen[] = {rig->unix_target, "127.0.0.1:0"};
    struct rpc_server_options options = rig_options(listen, ARRAY_COUNT(listen));
    options.queue_count = rig->queue_count = queue_count;
    options.context = rig;
    if (adjust != NULL)
        adjust(&options);
    struct error error = ERROR_NONE;
    if (rpc_server_create(&options, &rig->server, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    snprintf(rig->tcp_target, sizeof(rig->tcp_target), "127.0.0.1:%d",
             rpc_server_port(rig->server, 1));
    for (size_t i = 0; i < queue_count; i++) {
        struct rig_thread *thread = malloc(sizeof(*thread));
        assert_non_null(thread);
        *thread = (struct rig_thread){rig, i};
        assert_int_equal(pthread_create(&rig->threads[i], NULL, rig_thread_run, thread), 0);
    }
    return rig;
}

/* Ends the call that was held as number `index`. */
static inline void
rig_end_held(struct rig *rig, unsigned index, enum status status, const char *text)
{
    pthread_mutex_lock(&rig->lock);
    CHECK(index < rig->held_count && rig->held[index] != NULL);
    struct rpc_call *call = rig->held[index];
    rig->held[index] = NULL;
    pthread_mutex_unlock(&rig->lock);
    rpc_call_finish(call, status, text);
}

/* Ends all calls that are held, and those that would be. */
static inline void
rig_end_all(struct rig *rig)
{
    pthread_mutex_lock(&rig->lock);
    rig->ending = true;
    pthread_mutex_unlock(&rig->lock);
    for (unsigned i = 0; i < rig->held_count; i++)
        if (rig->held[i] != NULL)
            rig_end_held(rig, i, STATUS_CANCELLED, NULL);
}

static inline void
rig_join(struct rig *rig)
{
    for (size_t i = 0; i < rig->queue_count; i++)
        assert_int_equal(pthread_join(rig->threads[i], NULL), 0);
}

/* After rig_join: every object is back where it came from. */
static inline void
rig_destroy(struct rig *rig)
{
    for (size_t i = 0; i < rig->queue_count; i++) {
        assert_int_equal(rig->server->queues[i].live, 0);
        assert_int_equal(rpc_server_step(rig->server, i, 0), -1);
    }
    rpc_server_destroy(rig->server);
    /* a thread of the library gives back what a cancelled call was lent, in its own time */
    rig_wait(rig, &rig->released, rig->lent);
    assert_int_equal(rmdir(rig->directory), 0); /* so the socket file is gone, and all else */
    pthread_cond_destroy(&rig->changed);
    pthread_mutex_destroy(&rig->lock);
    free(rig);
}

static inline void
rig_stop(struct rig *rig)
{
    rpc_server_stop(rig->server);
    rig_join(rig);
    rig_destroy(rig);
}

/* ---- a caller on the bare library ---- */

enum caller_tag { TAG_OPEN = 1, TAG_INITIAL, TAG_SEND, TAG_HALF_CLOSE, TAG_RECEIVE, TAG_STATUS };

struct caller {
    grpc_channel *channel;
    grpc_completion_queue *queue;
    grpc_call *call;
    grpc_metadata_array initial;
    grpc_metadata_array trailing;
    grpc_byte_buffer *received;
    grpc_status_code status;
    grpc_slice text;
    unsigned started; /* a bit for each tag whose event was not taken yet */
};

/* True if the event comes in time. */
static inline bool
caller_pluck(struct caller *caller, enum caller_tag tag, int64_t timeout_ns)
{
    grpc_event event = grpc_completion_queue_pluck(
        caller->queue, (void *)(uintptr_t)tag, rpc_time_to_core(clock_now_ns() + timeout_ns), NULL);
    if (event.type != GRPC_OP_COMPLETE)
        return false;
    caller->started &= ~(1u << tag);
    return true;
}

static inline void
caller_start(struct caller *caller, const grpc_op *op, enum caller_tag tag)
{
    grpc_call_error error =
        grpc_call_start_batch(caller->call, op, 1, (void *)(uintptr_t)tag, NULL);
    assert_int_equal(error, GRPC_CALL_OK);
    caller->started |= 1u << tag;
}

static inline void
caller_open_with(struct caller *caller, const char *target, const char *method, int64_t deadline_ns,
                 grpc_metadata *metadata, size_t metadata_count)
{
    memset(caller, 0, sizeof(*caller));
    grpc_arg local = {.type = GRPC_ARG_INTEGER, .value.integer = 1};
    local.key = (char *)(uintptr_t)GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL;
    grpc_channel_args args = {1, &local};
    grpc_channel_credentials *credentials = grpc_insecure_credentials_create();
    caller->channel = grpc_channel_create(target, credentials, &args);
    grpc_channel_credentials_release(credentials);
    caller->queue = grpc_completion_queue_create_for_pluck(NULL);
    grpc_slice path = grpc_slice_from_copied_string(method);
    caller->call =
        grpc_channel_create_call(caller->channel, NULL, GRPC_PROPAGATE_DEFAULTS, caller->queue,
                                 path, NULL, rpc_time_to_core(deadline_ns), NULL);
    grpc_slice_unref(path);
    caller->text = grpc_empty_slice();
    grpc_op op = {.op = GRPC_OP_SEND_INITIAL_METADATA};
    op.data.send_initial_metadata.metadata = metadata;
    op.data.send_initial_metadata.count = metadata_count;
    caller_start(caller, &op, TAG_OPEN);
    op = (grpc_op){.op = GRPC_OP_RECV_INITIAL_METADATA};
    op.data.recv_initial_metadata.recv_initial_metadata = &caller->initial;
    caller_start(caller, &op, TAG_INITIAL);
    op = (grpc_op){.op = GRPC_OP_RECV_STATUS_ON_CLIENT};
    op.data.recv_status_on_client.trailing_metadata = &caller->trailing;
    op.data.recv_status_on_client.status = &caller->status;
    op.data.recv_status_on_client.status_details = &caller->text;
    caller_start(caller, &op, TAG_STATUS);
    assert_true(caller_pluck(caller, TAG_OPEN, PATIENCE_S * NS_PER_S));
}

static inline void
caller_open(struct caller *caller, const char *target, const char *method)
{
    caller_open_with(caller, target, method, TIME_NEVER_NS, NULL, 0);
}

/* Sends a message; does not wait for it to go out. */
static inline void
caller_start_send(struct caller *caller, grpc_byte_buffer *message)
{
    grpc_op op = {.op = GRPC_OP_SEND_MESSAGE};
    op.data.send_message.send_message = message;
    caller_start(caller, &op, TAG_SEND);
    grpc_byte_buffer_destroy(message);
}

static inline void
caller_send(struct caller *caller, const void *data, size_t bytes)
{
    struct rpc_piece piece = {.data = data, .bytes = bytes};
    caller_start_send(caller, rpc_message_to_core(&piece, 1));
    assert_true(caller_pluck(caller, TAG_SEND, PATIENCE_S * NS_PER_S));
}

static inline void
caller_half_close(struct caller *caller)
{
    grpc_op op = {.op = GRPC_OP_SEND_CLOSE_FROM_CLIENT};
    caller_start(caller, &op, TAG_HALF_CLOSE);
    assert_true(caller_pluck(caller, TAG_HALF_CLOSE, PATIENCE_S * NS_PER_S));
}

static inline void
caller_start_receive(struct caller *caller)
{
    grpc_op op = {.op = GRPC_OP_RECV_MESSAGE};
    op.data.recv_message.recv_message = &caller->received;
    caller_start(caller, &op, TAG_RECEIVE);
}

/* The next message's length, or -1 if there is none to come; its first bytes go to `into`. */
static inline long
caller_receive(struct caller *caller, void *into, size_t into_bytes)
{
    caller_start_receive(caller);
    assert_true(caller_pluck(caller, TAG_RECEIVE, PATIENCE_S * NS_PER_S));
    if (caller->received == NULL)
        return -1;
    grpc_byte_buffer_reader reader;
    assert_true(grpc_byte_buffer_reader_init(&reader, caller->received));
    grpc_slice all = grpc_byte_buffer_reader_readall(&reader);
    long length = (long)GRPC_SLICE_LENGTH(all);
    if (into_bytes > 0)
        memcpy(into, GRPC_SLICE_START_PTR(all),
               (size_t)length < into_bytes ? (size_t)length : into_bytes);
    grpc_slice_unref(all);
    grpc_byte_buffer_reader_destroy(&reader);
    grpc_byte_buffer_destroy(caller->received);
    caller->received = NULL;
    return length;
}

/* Waits for the status; its text is in caller->text. */
static inline int
caller_status(struct caller *caller)
{
    assert_true(caller_pluck(caller, TAG_STATUS, PATIENCE_S * NS_PER_S));
    return (int)caller->status;
}

/* Gives the call up, if it is not over, and everything back. */
static inline void
caller_close(struct caller *caller)
{
    grpc_call_cancel(caller->call, NULL);
    for (enum caller_tag tag = TAG_OPEN; tag <= TAG_STATUS; tag++)
        if (caller->started & (1u << tag))
            assert_true(caller_pluck(caller, tag, PATIENCE_S * NS_PER_S));
    grpc_byte_buffer_destroy(caller->received);
    grpc_slice_unref(caller->text);
    grpc_metadata_array_destroy(&caller->initial);
    grpc_metadata_array_destroy(&caller->trailing);
    grpc_call_unref(caller->call);
    grpc_completion_queue_shutdown(caller->queue);
    grpc_completion_queue_destroy(caller->queue);
    grpc_channel_destroy(caller->channel);
}

/* One whole unary exchange on a new channel; what was received is not kept. */
static inline enum status
rig_call(const char *target, const char *method, const void *request, size_t bytes,
         struct error *error)
{
    struct rpc_channel *channel;
    *error = ERROR_NONE;
    if (rpc_channel_create(target, &channel, error) != STATUS_OK)
        fail_msg("%s", error->text);
    void *response = NULL;
    size_t response_bytes = 0;
    enum status status = rpc_channel_call(
        channel,
        &(struct rpc_channel_ask){method, request, bytes, clock_now_ns() + PATIENCE_S * NS_PER_S},
        &response, &response_bytes, error);
    if (status == STATUS_OK) {
        assert_int_equal(response_bytes, bytes);
        if (bytes > 0)
            assert_memory_equal(response, request, bytes);
    }
    free(response);
    rpc_channel_destroy(channel);
    return status;
}

static inline int
rig_group_setup(void **state)
{
    (void)state;
    rpc_init();
    return 0;
}

static inline int
rig_group_teardown(void **state)
{
    (void)state;
    rpc_shutdown();
    return 0;
}
