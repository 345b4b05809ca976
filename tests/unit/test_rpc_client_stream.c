/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams of the asynchronous client: messages in order both ways, with back-pressure on both
 * halves; a bounded number waits, and its user learns when they leave; exactly one end, behind the
 * last message, by any cause: the server, the client, its user, a deadline, a kill.
 *
 * ctest: timeout=120 presets=dev,tsan because messages are sent by other threads
 */
#include "test_rpc_client_rig.h"

enum { BIG_BYTES = 100000, STREAMS = 32 };

static char big[BIG_BYTES];

static enum status
send_bytes(struct probe *probe, const void *data, size_t bytes)
{
    struct rpc_piece piece = {.data = data, .bytes = bytes};
    return rpc_client_send(probe->call, &piece, 1);
}

/* ---- both ways ---- */

/* Streams of both forms, several at once, each message answered before the next is sent or not. */
TEST_CASE(test_echoes)
{
    struct client_stage stage = client_stage_start(NULL);
    static const char *const methods[] = {"/t.T/Chat", "/t.T/ChatHot"};
    static const struct rpc_piece first_piece = {.data = big, .bytes = 100};
    struct probe probes[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        probes[i] = (struct probe){.side = stage.side, .greedy = true};
        struct rpc_client_request request =
            probe_request(&probes[i], methods[i % 2], RPC_BIDI_STREAM);
        if (i % 4 >= 2)
            request.events = &probe_plain_stream;
        request.initial_late = i % 16 >= 8;
        if (i % 8 >= 4) { /* the first message with the opening */
            request.pieces = &first_piece;
            request.piece_count = 1;
        }
        rpc_client_start(stage.client, &request, &probes[i].call);
    }
    for (unsigned n = 0; n < 50; n++)
        for (unsigned i = 0; i < STREAMS; i++)
            assert_int_equal(send_bytes(&probes[i], big, n * i), STATUS_OK);
    for (unsigned i = 0; i < STREAMS; i++)
        rpc_client_half_close(probes[i].call);
    for (unsigned i = 0; i < STREAMS; i++) {
        assert_int_equal(probe_end(&probes[i]), STATUS_OK);
        bool first = i % 8 >= 4;
        assert_int_equal(probes[i].messages, 50 + first);
        assert_int_equal(probes[i].bytes, 49 * 50 / 2 * i + (first ? 100 : 0));
        assert_int_equal(probes[i].initials, i % 4 < 2);
        if (i % 4 < 2) /* the status may overtake the word of the last one */
            assert_in_range(probes[i].sents, 49 + first, 50 + first);
    }
    client_stage_stop(&stage);
}

/* A server stream: one message, with its half-close, in one piece with the opening. */
TEST_CASE(test_one_and_last)
{
    struct client_stage stage = client_stage_start(NULL);
    struct rig *rig = stage.rig;
    struct probe probe = {.side = stage.side, .greedy = true};
    struct rpc_client_request request = probe_request(&probe, "/t.T/HoldBidi", RPC_BIDI_STREAM);
    request.pieces = &(struct rpc_piece){.data = "q", .bytes = 1};
    request.piece_count = 1;
    request.last = true;
    rpc_client_start(stage.client, &request, &probe.call);
    rig_wait(rig, &rig->held_count, 1);
    rig_wait(rig, &rig->half_closes, 1);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(
            rpc_call_send(rig->held[0], &(struct rpc_piece){.data = "abc", .bytes = 3}, 1),
            STATUS_OK);
    rig_end_held(rig, 0, STATUS_OK, NULL);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.messages, 10);
    assert_int_equal(probe.bytes, 30);
    client_stage_stop(&stage);
}

/* The note of each message runs once when the step ends; dropped notes do not. */
struct noting {
    struct probe probe; /* first */
    struct rpc_later done;
    struct rpc_later dropped;
    unsigned noted;
    unsigned ran;
    unsigned wrong;
};

static void
noting_done(struct rpc_later *later)
{
    struct noting *noting =
        (struct noting *)(void *)((char *)later - offsetof(struct noting, done));
    pthread_mutex_lock(&noting->probe.side->lock);
    noting->ran++;
    noting->wrong += later->link != NULL;
    pthread_cond_broadcast(&noting->probe.side->changed);
    pthread_mutex_unlock(&noting->probe.side->lock);
}

static void
noting_dropped(struct rpc_later *later)
{
    (void)later;
    fail();
}

static void
noting_on_message(void *context, const struct wire_message *message)
{
    struct noting *noting = context;
    rpc_later_drop(&noting->dropped);
    if (noting->done.link == NULL) {
        rpc_queue_later(noting->probe.side->queue, &noting->dropped);
        rpc_queue_later(noting->probe.side->queue, &noting->done);
        rpc_later_drop(&noting->dropped);
        noting->noted++;
    }
    probe_on_message(context, message);
}

TEST_CASE(test_at_the_end_of_a_step)
{
    static const struct rpc_client_events events = {NULL, noting_on_message, NULL, probe_on_end};
    struct client_stage stage = client_stage_start(NULL);
    struct noting noting = {.probe = {.side = stage.side, .greedy = true},
                            .done.run = noting_done,
                            .dropped.run = noting_dropped};
    struct rpc_client_request request = probe_request(&noting.probe, "/t.T/Chat", RPC_BIDI_STREAM);
    request.events = &events;
    rpc_client_start(stage.client, &request, &noting.probe.call);
    for (unsigned i = 1; i <= 50; i++) {
        assert_int_equal(send_bytes(&noting.probe, big, 1), STATUS_OK);
        if (i % 10 == 0) {
            probe_wait(&noting.probe, &noting.probe.messages, i);
            /* The last note may still wait for its step; the next ten would join it. */
            probe_wait(&noting.probe, &noting.ran, i / 10);
        }
    }
    rpc_client_half_close(noting.probe.call);
    assert_int_equal(probe_end(&noting.probe), STATUS_OK);
    client_stage_stop(&stage);
    assert_true(noting.noted >= 5);
    assert_int_equal(noting.ran, noting.noted);
    assert_int_equal(noting.wrong, 0);
}

/* ---- back-pressure ---- */

/* A server that does not read: so much is taken, no more; then it reads, and all of it leaves. */
TEST_CASE(test_sending_is_bounded)
{
    struct client_stage stage = client_stage_start(NULL);
    struct rig *rig = stage.rig;
    /* Its callback waits for the lock of the rig, so nothing is received meanwhile. */
    pthread_mutex_lock(&rig->lock);
    struct probe probe = {.side = stage.side, .greedy = true};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Chat", RPC_BIDI_STREAM);
    rpc_client_start(stage.client, &request, &probe.call);
    unsigned taken = 0;
    enum status status;
    while ((status = send_bytes(&probe, big, sizeof(big))) == STATUS_OK)
        assert_true(++taken < 10000);
    assert_int_equal(status, STATUS_RESOURCE_EXHAUSTED);
    assert_true(taken >= RPC_STREAM_QUEUE_MAX);
    pthread_mutex_unlock(&rig->lock);
    probe_wait(&probe, &probe.sents, taken);
    assert_int_equal(probe.waiting, 0);
    assert_int_equal(send_bytes(&probe, big, sizeof(big)), STATUS_OK);
    rpc_client_half_close(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.messages + rig_read(rig, &rig->refused), taken + 1);
    assert_int_equal(probe.bytes, probe.messages * sizeof(big));
    client_stage_stop(&stage);
}

/* Waiting messages come back to their lender when a stream is over. */
TEST_CASE(test_waiting_messages_are_released)
{
    for (unsigned how = 0; how < 3; how++) {
        struct client_stage stage = client_stage_start(NULL);
        struct rig *rig = stage.rig;
        struct probe probe;
        probe_open(&probe, stage.side, stage.client, "/t.T/HoldBidi");
        assert_int_equal(send_bytes(&probe, "x", 1), STATUS_OK);
        rig_wait(rig, &rig->held_count, 1);
        struct rig lender = {.lock = PTHREAD_MUTEX_INITIALIZER,
                             .changed = PTHREAD_COND_INITIALIZER};
        struct wire_message message = {&(struct wire_span){big, sizeof(big)}, 1, sizeof(big)};
        /* The server's thread waits here, so that what is sent piles up. */
        pthread_mutex_lock(&rig->lock);
        unsigned lent = 0;
        enum status status = STATUS_OK;
        while (status == STATUS_OK) {
            struct rpc_piece piece = lent_piece(&lender, &message);
            lent++;
            status = rpc_client_send(probe.call, &piece, 1);
        }
        assert_int_equal(status, STATUS_RESOURCE_EXHAUSTED);
        pthread_mutex_unlock(&rig->lock);
        if (how == 0)
            rpc_client_cancel(probe.call);
        else if (how == 1)
            rig_end_held(rig, 0, STATUS_ABORTED, NULL);
        else
            rpc_client_destroy(stage.client);
        probe_wait(&probe, &probe.ends, 1);
        assert_int_equal(probe.status, how == 1 ? STATUS_ABORTED : STATUS_CANCELLED);
        struct rpc_piece late = lent_piece(&lender, &message);
        lent++;
        assert_int_equal(rpc_client_send(probe.call, &late, 1), STATUS_CANCELLED);
        rpc_client_read(probe.call); /* these do nothing any more */
        rpc_client_half_close(probe.call);
        rpc_client_cancel(probe.call);
        probe_end(&probe);
        rig_wait(&lender, &lender.released, lent);
        if (how == 2)
            stage.client = NULL;
        client_stage_stop(&stage);
    }
}

/* A user that does not read gets one message, and holds up the rest and the end. */
TEST_CASE(test_reading_is_asked_for)
{
    struct client_stage stage = client_stage_start(NULL);
    struct rig *rig = stage.rig;
    struct probe probe;
    probe_open(&probe, stage.side, stage.client, "/t.T/HoldBidi");
    assert_int_equal(send_bytes(&probe, "x", 1), STATUS_OK);
    rig_wait(rig, &rig->held_count, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(
            rpc_call_send(rig->held[0], &(struct rpc_piece){.data = "abc", .bytes = 3}, 1),
            STATUS_OK);
    rig_end_held(rig, 0, STATUS_OK, NULL);
    for (unsigned i = 1; i < 3; i++) {
        probe_wait(&probe, &probe.messages, i);
        /* Another call goes there and back meanwhile. */
        struct probe other;
        probe_call(&other, stage.side, stage.client, "/t.T/Echo", "x", 1);
        assert_int_equal(probe_end(&other), STATUS_OK);
        assert_int_equal(probe.messages, i);
        assert_int_equal(probe.ends, 0);
        rpc_client_read(probe.call);
    }
    /* With the last one taken, the end needs no asking. */
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.messages, 3);
    client_stage_stop(&stage);
}

/* ---- ends ---- */

TEST_CASE(test_server_ends_first)
{
    struct client_stage stage = client_stage_start(NULL);
    struct rig *rig = stage.rig;
    for (unsigned i = 0; i < 20; i++) {
        struct probe probe;
        probe_open(&probe, stage.side, stage.client, "/t.T/HoldBidi");
        assert_int_equal(send_bytes(&probe, "x", 1), STATUS_OK);
        rig_wait(rig, &rig->held_count, i + 1);
        rig_end_held(rig, i, STATUS_FAILED_PRECONDITION, "enough");
        assert_int_equal(probe_end(&probe), STATUS_FAILED_PRECONDITION);
        assert_string_equal(probe.text, "enough");
    }
    client_stage_stop(&stage);
}

TEST_CASE(test_deadline)
{
    struct client_stage stage = client_stage_start(NULL);
    struct probe probe = {.side = stage.side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/HoldBidi", RPC_BIDI_STREAM);
    request.deadline_ns = clock_now_ns() + 50 * NS_PER_MS;
    rpc_client_start(stage.client, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_DEADLINE_EXCEEDED);
    client_stage_stop(&stage);
}

TEST_CASE(test_nobody_there)
{
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, "unix:/nowhere/at/all");
    for (unsigned i = 0; i < 10; i++) {
        struct probe probe;
        probe_open(&probe, side, client, "/t.T/Chat");
        while (send_bytes(&probe, "x", 1) == STATUS_OK)
            sched_yield();
        assert_int_equal(probe_end(&probe), STATUS_UNAVAILABLE);
        assert_int_equal(probe.messages, 0);
    }
    rpc_client_destroy(client);
    side_stop(side);
}

TEST_CASE(test_server_killed)
{
    struct elsewhere elsewhere;
    elsewhere_start(&elsewhere);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, elsewhere.target);
    elsewhere_wait(&elsewhere, side, client);
    struct probe probes[STREAMS];
    for (unsigned i = 0; i < STREAMS; i++) {
        probe_open(&probes[i], side, client, "/t.T/Chat");
        probes[i].greedy = i % 2;
        for (unsigned n = 0; n < 20; n++)
            assert_int_equal(send_bytes(&probes[i], big, n * 1000), STATUS_OK);
    }
    elsewhere_kill(&elsewhere);
    for (unsigned i = 0; i < STREAMS; i++) {
        /* Messages that were received may still lie there. */
        while (rpc_client_send(probes[i].call, NULL, 0) != STATUS_CANCELLED) {
            rpc_client_read(probes[i].call);
            sched_yield();
        }
        assert_int_equal(probe_end(&probes[i]), STATUS_UNAVAILABLE);
    }
    rpc_client_destroy(client);
    side_stop(side);
    elsewhere_remove(&elsewhere);
}

/* Two threads at one stream: one sends, one cancels. */
static void *
cancel_run(void *argument)
{
    struct probe *probe = argument;
    probe_wait(probe, &probe->messages, 10);
    rpc_client_cancel(probe->call);
    return NULL;
}

TEST_CASE(test_cancelled_by_another_thread)
{
    struct client_stage stage = client_stage_start(NULL);
    for (unsigned i = 0; i < 20; i++) {
        struct probe probe = {.side = stage.side, .greedy = true};
        struct rpc_client_request request = probe_request(&probe, "/t.T/Chat", RPC_BIDI_STREAM);
        rpc_client_start(stage.client, &request, &probe.call);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, cancel_run, &probe), 0);
        while (send_bytes(&probe, big, 1000) != STATUS_CANCELLED)
            sched_yield();
        probe_wait(&probe, &probe.ends, 1);
        pthread_join(thread, NULL);
        assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    }
    client_stage_stop(&stage);
}

int
main(int argc, char **argv)
{
    if (argc > 1)
        return elsewhere_main(argv[1]);
    return TEST_RUN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown);
}
