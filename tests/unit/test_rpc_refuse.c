/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a server that is still called: calls under way end well, each later one is answered
 * UNAVAILABLE for every method, nobody can connect, and no caller gets CANCELLED, however many
 * calls arrive while the server ends.
 *
 * ctest: timeout=120 presets=dev,tsan because calls arrive on other threads while it ends
 */
#include <sched.h>
#include <stdatomic.h>

#include "test_rpc_burst.h"
#include "test_rpc_rig.h"

#define TEXT "closing down"

static void
wait_quiet(const struct rig *rig)
{
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (!rpc_server_is_quiet(rig->server)) {
        assert_true(clock_now_ns() < deadline_ns);
        sched_yield();
    }
}

static void
end_and_join(struct rig *rig)
{
    rpc_server_end(rig->server, PATIENCE_S * NS_PER_S);
    rig_join(rig);
}

static struct rpc_channel *
connect_channel(const char *target)
{
    struct rpc_channel *channel;
    struct error error;
    error_clear(&error);
    assert_int_equal(rpc_channel_create(target, &channel, &error), STATUS_OK);
    return channel;
}

static enum status
call_on(struct rpc_channel *channel, const char *method, struct error *error)
{
    void *response = NULL;
    size_t bytes = 0;
    error_clear(error);
    enum status status = rpc_channel_call(
        channel, &(struct rpc_channel_ask){method, "m", 1, clock_now_ns() + PATIENCE_S * NS_PER_S},
        &response, &bytes, error);
    free(response);
    return status;
}

static void
check_refused(struct rpc_channel *channel, const char *method)
{
    struct error error;
    assert_int_equal(call_on(channel, method, &error), STATUS_UNAVAILABLE);
    assert_string_equal(error.text, TEXT);
}

TEST_CASE(test_later_calls_are_refused)
{
    for (size_t queues = 1; queues <= 2; queues++) {
        struct rig *rig = rig_start(queues, NULL);
        struct rpc_channel *channel = connect_channel(rig->tcp_target);
        struct error error;
        assert_int_equal(call_on(channel, "/t.T/Echo", &error), STATUS_OK);
        struct caller held;
        caller_open(&held, rig->unix_target, "/t.T/Hold");
        caller_send(&held, "m", 1);
        rig_wait(rig, &rig->held_count, 1);

        rpc_server_refuse(rig->server, TEXT);
        rpc_server_refuse(rig->server, "said before");
        for (size_t i = 0; i < ARRAY_COUNT(rig_methods); i++)
            check_refused(channel, rig_methods[i].path);
        check_refused(channel, "/t.T/None");
        assert_int_equal(rig_read(rig, &rig->messages), 1);
        struct caller late;
        caller_open(&late, rig->tcp_target, "/t.T/Echo");
        assert_int_equal(caller_status(&late), STATUS_UNAVAILABLE);
        caller_close(&late);

        rig_end_held(rig, 0, STATUS_ABORTED, "in time");
        assert_int_equal(caller_status(&held), STATUS_ABORTED);
        caller_close(&held);
        wait_quiet(rig);
        end_and_join(rig);
        rpc_channel_destroy(channel);
        rig_destroy(rig);
    }
}

static void
part_until(struct rig *rig, uint64_t connections)
{
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    for (rpc_server_part(rig->server); rpc_server_figures(rig->server).connections > connections;
         rpc_server_part(rig->server)) {
        assert_true(clock_now_ns() < deadline_ns);
        sched_yield();
    }
}

/* Clients leave by themselves; a call under way keeps its connection, and is answered. */
TEST_CASE(test_parting_clients_leave_and_calls_are_finished)
{
    struct rig *rig = rig_start(2, NULL);
    struct rpc_channel *idle = connect_channel(rig->tcp_target);
    struct error error;
    assert_int_equal(call_on(idle, "/t.T/Echo", &error), STATUS_OK);
    struct caller held;
    caller_open(&held, rig->tcp_target, "/t.T/Hold");
    caller_send(&held, "m", 1);
    rig_wait(rig, &rig->held_count, 1);
    part_until(rig, 1);
    rig_end_held(rig, 0, STATUS_ABORTED, "in time");
    assert_int_equal(caller_status(&held), STATUS_ABORTED);
    caller_close(&held);
    part_until(rig, 0);
    rpc_server_refuse(rig->server, TEXT);
    end_and_join(rig);
    rpc_channel_destroy(idle);
    rig_destroy(rig);
}

/* Nobody is connected: there is nobody to wait for. */
TEST_CASE(test_alone_is_quiet)
{
    struct rig *rig = rig_start(1, NULL);
    rpc_server_refuse(rig->server, TEXT);
    assert_true(rpc_server_is_quiet(rig->server));
    end_and_join(rig);
    rig_destroy(rig);
}

/* A caller that goes on and on is answered, and does not hold up the end. */
TEST_CASE(test_callers_that_never_stop)
{
    struct rig *rig = rig_start(1, NULL);
    struct rpc_channel *channel = connect_channel(rig->unix_target);
    struct error error;
    assert_int_equal(call_on(channel, "/t.T/Echo", &error), STATUS_OK);
    rpc_server_refuse(rig->server, TEXT);
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (!rpc_server_is_quiet(rig->server)) {
        check_refused(channel, "/t.T/Echo");
        assert_true(clock_now_ns() < deadline_ns);
    }
    end_and_join(rig);
    rpc_channel_destroy(channel);
    rig_destroy(rig);
}

static void *
run_end(void *context)
{
    struct rig *rig = context;
    rig_count(rig, &rig->half_closes); /* not used here: it has begun */
    rpc_server_end(rig->server, PATIENCE_S * NS_PER_S);
    return NULL;
}

TEST_CASE(test_end_waits_for_calls)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller held;
    caller_open(&held, rig->tcp_target, "/t.T/HoldCold");
    caller_send(&held, "m", 1);
    rig_wait(rig, &rig->held_count, 1);
    rpc_server_refuse(rig->server, TEXT);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_end, rig), 0);
    rig_wait(rig, &rig->half_closes, 1);
    rig_end_held(rig, 0, STATUS_ABORTED, "in time");
    assert_int_equal(caller_status(&held), STATUS_ABORTED);
    caller_close(&held);
    assert_int_equal(pthread_join(thread, NULL), 0);
    rig_join(rig);
    rig_destroy(rig);
}

/* The time is over: the caller loses its connection, the user is notified and ends the call. */
TEST_CASE(test_end_does_not_wait_for_ever)
{
    struct rig *rig = rig_start(1, NULL);
    struct caller held;
    caller_open(&held, rig->tcp_target, "/t.T/Hold");
    caller_send(&held, "m", 1);
    rig_wait(rig, &rig->held_count, 1);
    rpc_server_refuse(rig->server, TEXT);
    rpc_server_end(rig->server, 0);
    assert_int_equal(caller_status(&held), STATUS_UNAVAILABLE);
    rig_wait(rig, &rig->cancels, 1);
    rig_end_held(rig, 0, STATUS_ABORTED, "too late");
    caller_close(&held);
    rig_join(rig);
    rig_destroy(rig);
}

/* Callers that replace each call that is over by another one. */
struct storm {
    struct burst *burst;
    const char *method;
    atomic_bool is_over;
};

static void *
run_storm(void *context)
{
    struct storm *storm = context;
    while (!atomic_load(&storm->is_over)) {
        struct burst_call *call = burst_take(storm->burst, clock_now_ns() + NS_PER_MS);
        if (call == NULL)
            continue;
        storm->burst->count++;
        burst_start_call(storm->burst, call, storm->method);
    }
    return NULL;
}

/* `quiet`: callers have their time first. Returns how many calls there were. */
static unsigned
end_in_a_storm(unsigned round, const char *method, bool quiet)
{
    enum { OUTSTANDING = 100 };
    struct rig *rig = rig_start(1 + round % 2, NULL);
    struct storm storm = {.method = method};
    storm.burst =
        burst_start(round % 3 == 0 ? rig->tcp_target : rig->unix_target, method, OUTSTANDING);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run_storm, &storm), 0);
    rig_wait(rig, &rig->messages, 3 * OUTSTANDING);
    rpc_server_refuse(rig->server, TEXT);
    if (quiet)
        wait_quiet(rig);
    end_and_join(rig);
    atomic_store(&storm.is_over, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    unsigned count = storm.burst->count;
    unsigned statuses[STATUS_COUNT];
    burst_end(storm.burst, statuses);
    assert_int_equal(statuses[STATUS_OK] + statuses[STATUS_UNAVAILABLE], count);
    rig_wait(rig, &rig->released, rig->messages);
    rig_destroy(rig);
    return count;
}

TEST_CASE(test_no_caller_is_cancelled)
{
    enum { ROUNDS = 30 };
    static const char *const methods[] = {"/t.T/Echo", "/t.T/EchoCold"};
    for (unsigned round = 0; round < ROUNDS; round++)
        assert_true(end_in_a_storm(round, methods[round % 2], round % 10 == 9) > 0);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
