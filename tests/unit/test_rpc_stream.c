/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: order, half-close, a status that waits for the queue, a queue that is bounded, callers
 * that stop reading or vanish, senders on other threads. The caller is the bare C core, so that it
 * can stall and vanish at chosen points; every lent message counts its release.
 *
 * ctest: timeout=120 presets=dev,tsan because messages are sent by other threads
 */
#include <sched.h>

#include "test_rpc_rig.h"

enum { BIG_BYTES = 65536 };

static struct rpc_call *
held_call(struct rig *rig, unsigned index)
{
    rig_wait(rig, &rig->held_count, index + 1);
    pthread_mutex_lock(&rig->lock);
    struct rpc_call *call = rig->held[index];
    pthread_mutex_unlock(&rig->lock);
    return call;
}

/* One lent message of `bytes` that starts with `number`. */
static enum status
send_numbered(struct rig *rig, struct rpc_call *call, unsigned number, size_t bytes)
{
    static const unsigned char zeros[BIG_BYTES];
    struct wire_span spans[] = {{&number, sizeof(number)}, {zeros, bytes - sizeof(number)}};
    struct wire_message message = {spans, 2, bytes};
    struct rpc_piece piece = lent_piece(rig, &message);
    return rpc_call_send(call, &piece, 1);
}

TEST_CASE(test_chat)
{
    struct rig *rig = rig_start(1, NULL);
    static const char *const methods[] = {"/t.T/Chat", "/t.T/ChatHot"};
    for (unsigned m = 0; m < ARRAY_COUNT(methods); m++) {
        struct caller caller;
        caller_open(&caller, m == 0 ? rig->unix_target : rig->tcp_target, methods[m]);
        for (unsigned i = 0; i < 200; i++) {
            unsigned seen;
            caller_send(&caller, &i, sizeof(i));
            assert_int_equal(caller_receive(&caller, &seen, sizeof(seen)), sizeof(seen));
            assert_int_equal(seen, i);
        }
        caller_half_close(&caller);
        assert_int_equal(caller_receive(&caller, NULL, 0), -1);
        assert_int_equal(caller_status(&caller), STATUS_OK);
        caller_close(&caller);
        assert_int_equal(rig_read(rig, &rig->half_closes), m + 1);
    }
    rig_wait(rig, &rig->released, 400);
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    rig_stop(rig);
}

/* A caller that sends 50 messages and the end before it reads anything gets all 50, in order. */
TEST_CASE(test_chat_without_turns)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/Chat");
    for (unsigned i = 0; i < 50; i++)
        caller_send(&caller, &i, sizeof(i));
    caller_half_close(&caller);
    for (unsigned i = 0; i < 50; i++) {
        unsigned seen;
        assert_int_equal(caller_receive(&caller, &seen, sizeof(seen)), sizeof(seen));
        assert_int_equal(seen, i);
    }
    assert_int_equal(caller_receive(&caller, NULL, 0), -1);
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
    rig_stop(rig);
}

TEST_CASE(test_server_stream)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldStream");
    caller_send(&caller, "q", 1);
    caller_half_close(&caller);
    struct rpc_call *call = held_call(rig, 0);
    for (unsigned i = 0; i < 20; i++)
        assert_int_equal(send_numbered(rig, call, i, 100), STATUS_OK);
    rig_end_held(rig, 0, STATUS_ABORTED, "enough");
    for (unsigned i = 0; i < 20; i++) {
        unsigned seen;
        assert_int_equal(caller_receive(&caller, &seen, sizeof(seen)), 100);
        assert_int_equal(seen, i);
    }
    assert_int_equal(caller_receive(&caller, NULL, 0), -1);
    assert_int_equal(caller_status(&caller), STATUS_ABORTED);
    assert_int_equal(grpc_slice_str_cmp(caller.text, "enough"), 0);
    caller_close(&caller);
    rig_wait(rig, &rig->released, 20);
    rig_stop(rig);
}

TEST_CASE(test_open_is_answered_at_once)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldBidi");
    assert_true(caller_pluck(&caller, TAG_INITIAL, PATIENCE_S * NS_PER_S));
    assert_int_equal(rig_read(rig, &rig->held_count), 0);
    caller_close(&caller);
    rig_stop(rig);
    /* The user never learned of it, so there is nobody to be notified of its end. */
}

TEST_CASE(test_half_close_leaves_the_other_half_open)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldBidi");
    caller_send(&caller, "a", 1);
    struct rpc_call *call = held_call(rig, 0);
    caller_half_close(&caller);
    rig_wait(rig, &rig->half_closes, 1);
    assert_int_equal(send_numbered(rig, call, 7, 4), STATUS_OK);
    unsigned seen;
    assert_int_equal(caller_receive(&caller, &seen, sizeof(seen)), 4);
    rig_end_held(rig, 0, STATUS_OK, NULL);
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
    assert_int_equal(rig_read(rig, &rig->half_closes), 1);
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    rig_stop(rig);
}

TEST_CASE(test_finish_before_the_caller_is_done)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldBidi");
    caller_send(&caller, "a", 1);
    rig_wait(rig, &rig->held_count, 1);
    rig_end_held(rig, 0, STATUS_FAILED_PRECONDITION, "no more");
    assert_int_equal(caller_status(&caller), STATUS_FAILED_PRECONDITION);
    /* Gone already on the server's side, which must not mind that the caller never half-closes. */
    rig_stop(rig);
    caller_close(&caller);
}

/* Sends until the queue is full; returns how many were taken. */
static unsigned
fill(struct rig *rig, struct rpc_call *call)
{
    unsigned taken = 0;
    enum status status;
    while ((status = send_numbered(rig, call, taken, BIG_BYTES)) == STATUS_OK)
        assert_true(++taken < 10000);
    assert_int_equal(status, STATUS_RESOURCE_EXHAUSTED);
    assert_true(taken >= RPC_STREAM_QUEUE_MAX);
    return taken;
}

TEST_CASE(test_full_queue_then_read)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldStream");
    caller_send(&caller, "q", 1);
    unsigned taken = fill(rig, held_call(rig, 0));
    rig_end_held(rig, 0, STATUS_OK, NULL);
    for (unsigned i = 0; i < taken; i++) {
        unsigned seen;
        assert_int_equal(caller_receive(&caller, &seen, sizeof(seen)), BIG_BYTES);
        assert_int_equal(seen, i);
    }
    assert_int_equal(caller_receive(&caller, NULL, 0), -1);
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
    rig_wait(rig, &rig->released, taken + 1);
    rig_stop(rig);
}

/* Many more messages than QUEUE_MAX wait, as their bytes are what is limited; one is always taken.
 */
TEST_CASE(test_full_by_bytes_then_read)
{
    enum { WAITING = 300, COST = BIG_BYTES + RPC_MESSAGE_COST };
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldStream");
    caller_send(&caller, "q", 1);
    struct rpc_call *call = held_call(rig, 0);
    unsigned taken = 0;
    enum status status;
    do {
        unsigned char message[BIG_BYTES] = {0};
        memcpy(message, &taken, sizeof(taken));
        const struct rpc_piece piece = {.data = message, .bytes = sizeof(message)};
        uint64_t most = taken == 0 ? 0 : (uint64_t)WAITING * COST;
        status = rpc_call_send_within(call, &piece, 1, most);
        taken += status == STATUS_OK;
    } while (status == STATUS_OK && taken < 10000);
    assert_int_equal(status, STATUS_RESOURCE_EXHAUSTED);
    assert_true(taken >= WAITING);
    rig_end_held(rig, 0, STATUS_OK, NULL);
    for (unsigned i = 0; i < taken; i++) {
        unsigned seen;
        assert_int_equal(caller_receive(&caller, &seen, sizeof(seen)), BIG_BYTES);
        assert_int_equal(seen, i);
    }
    assert_int_equal(caller_receive(&caller, NULL, 0), -1);
    assert_int_equal(caller_status(&caller), STATUS_OK);
    caller_close(&caller);
    rig_stop(rig);
}

TEST_CASE(test_full_queue_then_vanish)
{
    struct rig *rig = rig_start(1, NULL);
    unsigned tried = 0;
    for (unsigned i = 0; i < 20; i++) {
        struct caller caller;
        caller_open(&caller, i % 2 == 0 ? rig->unix_target : rig->tcp_target, "/t.T/HoldStream");
        caller_send(&caller, "q", 1);
        struct rpc_call *call = held_call(rig, i);
        tried += fill(rig, call) + 1;
        caller_close(&caller);
        rig_wait(rig, &rig->cancels, i + 1);
        assert_int_equal(rig->cancelled_tag, 1000 + i);
        tried++;
        assert_int_equal(send_numbered(rig, call, 0, 4), STATUS_CANCELLED);
        rig_end_held(rig, i, STATUS_OK, NULL);
        rig_wait(rig, &rig->released, tried);
    }
    rig_stop(rig);
}

/* The queue is full and the user ends the call before the caller vanishes. */
TEST_CASE(test_finish_then_vanish)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller caller;
    caller_open(&caller, rig->unix_target, "/t.T/HoldStream");
    caller_send(&caller, "q", 1);
    unsigned tried = fill(rig, held_call(rig, 0)) + 1;
    rig_end_held(rig, 0, STATUS_OK, NULL);
    caller_close(&caller);
    rig_wait(rig, &rig->released, tried);
    rig_stop(rig);
}

TEST_CASE(test_cancel_in_the_middle)
{
    struct rig *rig = rig_start(1, NULL);
    for (unsigned i = 0; i < 50; i++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, "/t.T/HoldBidi");
        caller_send(&caller, "a", 1);
        rig_wait(rig, &rig->held_count, i + 1);
        caller_close(&caller);
        rig_wait(rig, &rig->cancels, i + 1);
        assert_int_equal(rig->cancelled_tag, 1000 + i);
        rig_end_held(rig, i, STATUS_CANCELLED, NULL);
    }
    rig_stop(rig);
}

/* ---- senders on threads of their own ---- */

enum { SENDERS = 2, MESSAGES_EACH = 1000 };

struct sender {
    struct rig *rig;
    unsigned index;
};

static void *
sender_run(void *argument)
{
    struct sender *sender = argument;
    pthread_mutex_lock(&sender->rig->lock);
    struct rpc_call *call = sender->rig->held[sender->index];
    pthread_mutex_unlock(&sender->rig->lock);
    for (unsigned i = 0; i < MESSAGES_EACH; i++) {
        while (send_numbered(sender->rig, call, i, 64) == STATUS_RESOURCE_EXHAUSTED)
            sched_yield();
    }
    rig_end_held(sender->rig, sender->index, STATUS_OK, NULL);
    return NULL;
}

TEST_CASE(test_senders_on_other_threads)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller callers[SENDERS];
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    for (unsigned i = 0; i < SENDERS; i++) {
        caller_open(&callers[i], rig->unix_target, "/t.T/HoldStream");
        caller_send(&callers[i], "q", 1);
        rig_wait(rig, &rig->held_count, i + 1);
        senders[i] = (struct sender){rig, i};
        assert_int_equal(pthread_create(&threads[i], NULL, sender_run, &senders[i]), 0);
    }
    for (unsigned n = 0; n < MESSAGES_EACH; n++)
        for (unsigned i = 0; i < SENDERS; i++) {
            unsigned seen;
            assert_int_equal(caller_receive(&callers[i], &seen, sizeof(seen)), 64);
            assert_int_equal(seen, n);
        }
    for (unsigned i = 0; i < SENDERS; i++) {
        assert_int_equal(caller_receive(&callers[i], NULL, 0), -1);
        assert_int_equal(caller_status(&callers[i]), STATUS_OK);
        caller_close(&callers[i]);
        pthread_join(threads[i], NULL);
    }
    rig_stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
