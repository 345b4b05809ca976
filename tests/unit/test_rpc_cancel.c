/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that end early: the caller cancels, its deadline passes, its connection dies, the server
 * stops or cancels everything. Each is reported to the user once, by tag, and only if the user
 * knows of the call and has not ended it; ending it afterwards is harmless and gives back what was
 * lent. A caller that dies at a chosen byte is a plain socket that speaks just enough HTTP/2.
 *
 * ctest: timeout=120 presets=dev,tsan because cancellation races with the answer
 */
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "test_rpc_burst.h"
#include "test_rpc_rig.h"

/* ---- a connection by hand ---- */

static int
raw_connect(const struct rig *rig)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", rig->unix_target + strlen("unix:"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

static void
raw_write(int fd, const void *data, size_t bytes)
{
    assert_int_equal(write(fd, data, bytes), bytes);
}

static void
raw_frame(int fd, unsigned char type, unsigned char flags, unsigned char stream, const void *data,
          size_t bytes)
{
    unsigned char header[9] = {(unsigned char)(bytes >> 16),
                               (unsigned char)(bytes >> 8),
                               (unsigned char)bytes,
                               type,
                               flags,
                               0,
                               0,
                               0,
                               stream};
    raw_write(fd, header, sizeof(header));
    raw_write(fd, data, bytes);
}

static void
raw_begin(int fd)
{
    static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    raw_write(fd, preface, strlen(preface));
    raw_frame(fd, 4, 0, 0, "", 0); /* SETTINGS */
}

/* HEADERS of a call, as literals that are not indexed. */
static void
raw_open(int fd, const char *method)
{
    const char *const fields[] = {":method", "POST",     ":scheme",      "http",
                                  ":path",   method,     ":authority",   "x",
                                  "te",      "trailers", "content-type", "application/grpc"};
    unsigned char block[512];
    size_t used = 0;
    for (size_t i = 0; i < ARRAY_COUNT(fields); i++) {
        if (i % 2 == 0)
            block[used++] = 0;
        size_t length = strlen(fields[i]);
        block[used++] = (unsigned char)length;
        memcpy(block + used, fields[i], length);
        used += length;
    }
    raw_frame(fd, 1, 4, 1, block, used); /* END_HEADERS */
}

/* ---- one call each ---- */

TEST_CASE(test_cancel)
{
    struct rig *rig = rig_start(1, NULL);
    static const char *const methods[] = {"/t.T/Hold", "/t.T/HoldCold"};
    for (unsigned i = 0; i < 40; i++) {
        struct caller caller;
        caller_open(&caller, i % 4 < 2 ? rig->unix_target : rig->tcp_target, methods[i % 2]);
        caller_send(&caller, "m", 1);
        caller_half_close(&caller);
        rig_wait(rig, &rig->held_count, i + 1);
        grpc_call_cancel(caller.call, NULL);
        rig_wait(rig, &rig->cancels, i + 1);
        assert_int_equal(rig->cancelled_tag, 1000 + i);
        caller_close(&caller);
        rig_end_held(rig, i, STATUS_ABORTED, "too late");
    }
    rig_stop(rig);
}

TEST_CASE(test_deadline)
{
    struct rig *rig = rig_start(1, NULL);
    unsigned tries = 0;
    do { /* on a busy machine the deadline may come before the call has */
        struct caller caller;
        int64_t timeout_ns = 100 * (int64_t)NS_PER_MS << tries++;
        assert_true(timeout_ns < PATIENCE_S * NS_PER_S);
        caller_open_with(&caller, rig->unix_target, "/t.T/Hold", clock_now_ns() + timeout_ns, NULL,
                         0);
        caller_send(&caller, "m", 1);
        caller_half_close(&caller);
        assert_int_equal(caller_status(&caller), STATUS_DEADLINE_EXCEEDED);
        caller_close(&caller);
    } while (rig_read(rig, &rig->held_count) == 0);
    rig_wait(rig, &rig->cancels, 1);
    assert_in_range(rig->cancelled_tag, 1000, 1000 + tries - 1);
    /* A reply that comes too late goes nowhere, and gives back what it was lent. */
    struct wire_span span = {"late", 4};
    struct wire_message message = {&span, 1, 4};
    struct rpc_piece piece = lent_piece(rig, &message);
    rpc_call_reply(rig->held[0], &piece, 1);
    rig->held[0] = NULL;
    rig_wait(rig, &rig->released, 1);
    rig_end_all(rig); /* an earlier try may have come after all */
    rig_stop(rig);
}

/* The caller is gone while the reply is on its way: the call is ended by both at the same time. */
TEST_CASE(test_reply_races_with_cancel)
{
    struct rig *rig = rig_start(1, NULL);
    enum { ROUNDS = 200 };
    static unsigned char zeros[65536];
    struct wire_span span = {zeros, sizeof(zeros)};
    struct wire_message message = {&span, 1, sizeof(zeros)};
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct caller caller;
        caller_open(&caller, rig->unix_target, "/t.T/Hold");
        caller_send(&caller, "m", 1);
        rig_wait(rig, &rig->held_count, i + 1);
        struct rpc_piece piece = lent_piece(rig, &message);
        grpc_call_cancel(caller.call, NULL);
        rpc_call_reply(rig->held[i], &piece, 1);
        caller_close(&caller);
    }
    rig_wait(rig, &rig->released, ROUNDS);
    rig_stop(rig);
}

TEST_CASE(test_vanish)
{
    struct rig *rig = rig_start(1, NULL);
    static const char *const methods[] = {"/t.T/Hold", "/t.T/HoldCold", "/t.T/HoldStream",
                                          "/t.T/HoldBidi"};
    for (unsigned i = 0; i < ARRAY_COUNT(methods); i++) {
        int fd = raw_connect(rig);
        raw_begin(fd);
        raw_open(fd, methods[i]);
        raw_frame(fd, 0, 0, 1, "\0\0\0\0\1m", 6);
        rig_wait(rig, &rig->held_count, i + 1);
        close(fd);
        rig_wait(rig, &rig->cancels, i + 1);
        assert_int_equal(rig->cancelled_tag, 1000 + i);
        rig_end_held(rig, i, STATUS_CANCELLED, NULL);
    }
    rig_stop(rig);
}

/* A connection that dies before the message is whole: the user never learns of the call. */
TEST_CASE(test_vanish_in_a_message)
{
    struct rig *rig = rig_start(1, NULL);
    static const char *const methods[] = {"/t.T/Hold", "/t.T/HoldCold", "/t.T/HoldStream",
                                          "/t.T/HoldBidi"};
    static const char message[] = "\0\0\0\0\5hel";
    for (unsigned i = 0; i < ARRAY_COUNT(methods); i++)
        for (size_t bytes = 0; bytes < sizeof(message); bytes++) {
            int fd = raw_connect(rig);
            raw_begin(fd);
            raw_open(fd, methods[i]);
            if (bytes > 0)
                raw_frame(fd, 0, 0, 1, message, bytes - 1);
            close(fd);
        }
    /* Nor do those that were before it matter to a call that is whole. */
    struct error error;
    assert_int_equal(rig_call(rig->unix_target, "/t.T/Echo", "x", 1, &error), STATUS_OK);
    rpc_server_stop(rig->server);
    rig_join(rig);
    assert_int_equal(rig->held_count, 0);
    assert_int_equal(rig->cancels, 0);
    rig_destroy(rig);
}

TEST_CASE(test_nonsense)
{
    struct rig *rig = rig_start(1, NULL);
    static const char *const nonsense[] = {"GET / HTTP/1.1\r\n\r\n", "",
                                           "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxx"};
    for (size_t i = 0; i < ARRAY_COUNT(nonsense); i++) {
        int fd = raw_connect(rig);
        raw_write(fd, nonsense[i], strlen(nonsense[i]) + 1);
        close(fd);
    }
    struct error error;
    assert_int_equal(rig_call(rig->unix_target, "/t.T/Echo", "x", 1, &error), STATUS_OK);
    rig_stop(rig);
}

static void
adjust_patient(struct rpc_server_options *options)
{
    options->keepalive_time_ns = 100 * NS_PER_MS;
    options->keepalive_timeout_ns = 3600 * NS_PER_S; /* a busy machine answers late */
}

static void
adjust_impatient(struct rpc_server_options *options)
{
    options->keepalive_time_ns = 100 * NS_PER_MS;
    options->keepalive_timeout_ns = 2 * NS_PER_S; /* it sends a call first */
}

/* A caller with a call that is held. */
static int
raw_hold(struct rig *rig)
{
    int fd = raw_connect(rig);
    raw_begin(fd);
    raw_open(fd, "/t.T/Hold");
    raw_frame(fd, 0, 0, 1, "\0\0\0\0\1m", 6);
    rig_wait(rig, &rig->held_count, 1);
    return fd;
}

static void
raw_read(int fd, void *into, size_t bytes)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    for (size_t got = 0; got < bytes;) {
        assert_int_equal(poll(&poll_fd, 1, PATIENCE_S * 1000), 1);
        ssize_t more = read(fd, (char *)into + got, bytes - got);
        assert_true(more > 0);
        got += (size_t)more;
    }
}

/* Reads frames up to a ping, and its eight bytes. */
static void
raw_read_ping(int fd, unsigned char bytes[8])
{
    unsigned char header[9], payload[1024];
    do {
        raw_read(fd, header, sizeof(header));
        size_t length = (size_t)header[1] << 8 | header[2];
        assert_true(header[0] == 0 && length <= sizeof(payload));
        raw_read(fd, payload, length);
    } while (header[3] != 6 || header[4] != 0);
    memcpy(bytes, payload, 8);
}

/* A caller that answers pings is kept, however long it says nothing else; one that does not answer
 * is given up, with its call. */
TEST_CASE(test_keepalive)
{
    struct rig *rig = rig_start(1, adjust_patient);
    int fd = raw_hold(rig);
    for (int i = 0; i < 6; i++) {
        unsigned char ping[8];
        raw_read_ping(fd, ping); /* there is no other before this one is answered */
        raw_frame(fd, 6, 1, 0, ping, sizeof(ping));
    }
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    rig_end_held(rig, 0, STATUS_CANCELLED, NULL);
    close(fd);
    rig_stop(rig);
    rig = rig_start(1, adjust_impatient);
    fd = raw_hold(rig);
    rig_wait(rig, &rig->cancels, 1);
    rig_end_held(rig, 0, STATUS_CANCELLED, NULL);
    close(fd);
    rig_stop(rig);
}

/* ---- the server stops ---- */

static void
stop_with_calls_under_way(size_t queue_count)
{
    struct rig *rig = rig_start(queue_count, NULL);
    enum { CALLS = 2000 };
    struct burst *burst = burst_start(rig->unix_target, "/t.T/Hold", CALLS);
    burst_until(burst, rig, &rig->held_count, CALLS);
    rpc_server_stop(rig->server);
    struct caller late;
    caller_open(&late, rig->tcp_target, "/t.T/Echo");
    assert_int_equal(caller_status(&late), STATUS_UNAVAILABLE);
    caller_close(&late);
    for (unsigned i = 0; i < CALLS; i++)
        rig_end_held(rig, i, STATUS_ABORTED, "in time");
    unsigned statuses[STATUS_COUNT];
    burst_end(burst, statuses);
    assert_int_equal(statuses[STATUS_ABORTED], CALLS);
    assert_int_equal(rig_read(rig, &rig->cancels), 0);
    rig_join(rig);
    rig_destroy(rig);
}

TEST_CASE(test_stop_lets_calls_end)
{
    stop_with_calls_under_way(1);
    stop_with_calls_under_way(3);
}

TEST_CASE(test_cancel_all)
{
    struct rig *rig = rig_start(2, NULL);
    enum { CALLS = 1000 };
    struct burst *burst = burst_start(rig->unix_target, "/t.T/Hold", CALLS);
    burst_until(burst, rig, &rig->held_count, CALLS);
    rpc_server_stop(rig->server);
    rpc_server_cancel_all(rig->server);
    rig_wait(rig, &rig->cancels, CALLS);
    /* The library is done before the user is: the queues must stay until the calls were ended. */
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (!atomic_load_explicit(&rig->server->queues[0].stopped, memory_order_acquire)) {
        assert_true(clock_now_ns() < deadline_ns);
        sched_yield();
    }
    for (unsigned i = 0; i < CALLS; i++)
        rig_end_held(rig, i, STATUS_ABORTED, "nobody reads this");
    unsigned statuses[STATUS_COUNT];
    burst_end(burst, statuses);
    assert_int_equal(statuses[STATUS_OK], 0);
    assert_int_equal(rig_read(rig, &rig->cancels), CALLS);
    rig_join(rig);
    rig_destroy(rig);
}

/* A connection that does not answer holds the end up until everything is cancelled. */
TEST_CASE(test_cancel_all_ends_idle_connections)
{
    struct rig *rig = rig_start(1, NULL);
    int fd = raw_connect(rig);
    raw_begin(fd);
    char buffer[512];
    assert_true(read(fd, buffer, sizeof(buffer)) > 0);
    int64_t start_ns = clock_now_ns();
    rpc_server_stop(rig->server);
    rpc_server_cancel_all(rig->server);
    rig_join(rig);
    assert_true(clock_now_ns() - start_ns < PATIENCE_S * NS_PER_S);
    close(fd);
    rig_destroy(rig);
}

/*
 * Calls arrive and are answered while the server stops. None is left without an answer, and no
 * object is left over. The library may forget a call that it takes at this very moment (DESIGN.md,
 * "What happens when each party dies"); rpc_server_cancel_all ends it, as servers do after their
 * grace time.
 */
TEST_CASE(test_stop_races_with_calls)
{
    for (unsigned round = 0; round < 10; round++) {
        struct rig *rig = rig_start(1 + round % 2, NULL);
        struct burst *burst = burst_start(rig->unix_target, "/t.T/Echo", 1000);
        burst_until(burst, rig, &rig->messages, 1);
        rpc_server_stop(rig->server);
        if (round % 3 == 2)
            rpc_server_cancel_all(rig->server);
        if (round % 5 == 4)
            burst_cancel(burst);
        while (burst->taken < burst->count && burst_take(burst, clock_now_ns() + NS_PER_S))
            continue;
        if (burst->taken < burst->count)
            rpc_server_cancel_all(rig->server);
        unsigned statuses[STATUS_COUNT];
        burst_end(burst, statuses);
        assert_int_equal(
            statuses[STATUS_OK] + statuses[STATUS_UNAVAILABLE] + statuses[STATUS_CANCELLED], 1000);
        rig_join(rig);
        rig_wait(rig, &rig->released, rig->messages);
        rig_destroy(rig);
    }
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
