/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unary calls of the asynchronous client, over unix sockets and TCP, on a queue of its own and on a
 * server's: every call that was started ends exactly once, with the server's answer or a reason,
 * for any fault of the server, the caller or the client meanwhile; nothing leaks. A server in
 * another process is this program, started with an address.
 *
 * ctest: timeout=120 presets=dev,tsan because calls are answered by other threads
 */
#include <errno.h>
#include <semaphore.h>

#include "test_rpc_client_rig.h"

enum { MANY = 500 };

/* ---- calls are answered ---- */

static void
check_echo(struct side *side, struct rpc_client *client, const char *method, size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 7 + i / 251);
    struct probe probe = {.side = side, .keeps = true};
    probe_start(&probe, client, method, data, bytes);
    if (probe_end(&probe) != STATUS_OK)
        fail_msg("%s", probe.text);
    assert_int_equal(probe.messages, 1);
    assert_int_equal(probe.bytes, bytes);
    size_t at = 0;
    const struct wire_message *message = rpc_kept_message(probe.kept);
    for (size_t i = 0; i < message->span_count; i++) {
        assert_memory_equal(message->spans[i].data, data + at, message->spans[i].bytes);
        at += message->spans[i].bytes;
    }
    rpc_kept_release(probe.kept);
    free(data);
}

TEST_CASE(test_sizes)
{
    static const size_t sizes[] = {0, 1, 22, 23, 24, 4096, 65536, 1 << 20, 5 << 20};
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    const char *targets[] = {rig->unix_target, rig->tcp_target};
    for (size_t t = 0; t < ARRAY_COUNT(targets); t++) {
        struct rpc_client *client = client_open(side, targets[t]);
        assert_int_equal(rpc_client_state(client), RPC_CLIENT_IDLE);
        for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
            check_echo(side, client, "/t.T/Echo", sizes[i]);
            check_echo(side, client, "/t.T/EchoCold", sizes[i]);
        }
        assert_int_equal(rpc_client_state(client), RPC_CLIENT_READY);
        rpc_client_destroy(client);
    }
    side_stop(side);
    rig_stop(rig);
}

TEST_CASE(test_many_at_once)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    static struct probe probes[MANY];
    for (size_t i = 0; i < MANY; i++)
        probe_call(&probes[i], side, client, i % 2 ? "/t.T/Echo" : "/t.T/EchoCold", &i, sizeof(i));
    for (size_t i = 0; i < MANY; i++) {
        assert_int_equal(probe_end(&probes[i]), STATUS_OK);
        assert_int_equal(probes[i].bytes, sizeof(i));
    }
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* Nobody holds the call; the context alone shows it. */
TEST_CASE(test_left_alone)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    struct probe probe = {.side = side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Echo", RPC_UNARY);
    rpc_client_start(client, &request, NULL); /* no pieces: an empty message */
    assert_int_equal(probe_end(&probe), STATUS_OK);
    assert_int_equal(probe.messages, 1);
    assert_int_equal(probe.bytes, 0);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* ---- on a server's queue ---- */

static pthread_t end_thread;

static void
on_end_there(void *context, const struct rpc_client_end *end)
{
    end_thread = pthread_self();
    probe_on_end(context, end);
}

TEST_CASE(test_on_a_servers_queue)
{
    static const struct rpc_client_events events = {.on_end = on_end_there};
    struct rig *rig = rig_start(1, NULL);
    struct side *locks = side_start(); /* for its lock */
    struct rpc_client *client =
        client_open_with(rpc_server_queue(rig->server, 0), rig->unix_target, 0);
    for (unsigned i = 0; i < 20; i++) {
        struct probe probe = {.side = locks};
        struct rpc_client_request request = probe_request(&probe, "/t.T/Echo", RPC_UNARY);
        request.events = &events;
        rpc_client_start(client, &request, &probe.call);
        assert_int_equal(probe_end(&probe), STATUS_OK);
        assert_true(pthread_equal(end_thread, rig->threads[0]));
    }
    /* The queue does not end before its client is gone. */
    rpc_server_stop(rig->server);
    rpc_client_destroy(client);
    rig_join(rig);
    rig_destroy(rig);
    side_stop(locks);
}

/* ---- how calls fail ---- */

TEST_CASE(test_failures)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    struct probe probe;
    probe_call(&probe, side, client, "/t.T/None", "x", 1);
    assert_int_equal(probe_end(&probe), STATUS_UNIMPLEMENTED);
    assert_string_equal(probe.text, "unknown method /t.T/None");
    assert_int_equal(probe.messages, 0);
    static const char *const senseless[] = {"", "x", "/\n", "/t.T/Echo\x01"};
    for (size_t i = 0; i < ARRAY_COUNT(senseless); i++) {
        probe_call(&probe, side, client, senseless[i], "x", 1);
        assert_int_not_equal(probe_end(&probe), STATUS_OK);
    }
    size_t much = RIG_LIMIT_BYTES + 1;
    void *zeros = calloc(1, much);
    assert_non_null(zeros);
    probe_call(&probe, side, client, "/t.T/Echo", zeros, much);
    assert_int_equal(probe_end(&probe), STATUS_RESOURCE_EXHAUSTED);
    free(zeros);
    probe_call(&probe, side, client, "/t.T/Hold", "x", 1);
    rig_wait(rig, &rig->held_count, 1);
    rig_end_held(rig, 0, STATUS_ABORTED, "not today");
    assert_int_equal(probe_end(&probe), STATUS_ABORTED);
    assert_string_equal(probe.text, "not today");
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* A unary call of a method that is none, and that answers more than once: only its deadline or a
 * cancel ends it. */
TEST_CASE(test_more_than_one_answer)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    struct probe probe;
    probe_call(&probe, side, client, "/t.T/HoldStream", "x", 1);
    rig_wait(rig, &rig->held_count, 1);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(
            rpc_call_send(rig->held[0], &(struct rpc_piece){.data = "a", .bytes = 1}, 1),
            STATUS_OK);
    rig_end_held(rig, 0, STATUS_OK, NULL);
    struct probe other;
    probe_call(&other, side, client, "/t.T/Echo", "x", 1);
    assert_int_equal(probe_end(&other), STATUS_OK);
    rpc_client_cancel(probe.call);
    assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    assert_int_equal(probe.messages, 0);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

TEST_CASE(test_answer_too_large)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open_with(side->queue, rig->unix_target, 1000);
    static const char bytes[1001];
    struct probe probe;
    probe_call(&probe, side, client, "/t.T/Echo", bytes, 1000);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    probe_call(&probe, side, client, "/t.T/Echo", bytes, 1001);
    assert_int_equal(probe_end(&probe), STATUS_RESOURCE_EXHAUSTED);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

TEST_CASE(test_deadline)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    struct probe probe = {.side = side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Hold", RPC_UNARY);
    request.deadline_ns = clock_now_ns() + 50 * NS_PER_MS;
    rpc_client_start(client, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_DEADLINE_EXCEEDED);
    probe = (struct probe){.side = side};
    request.deadline_ns = clock_now_ns() - NS_PER_S; /* over before it begins */
    rpc_client_start(client, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_DEADLINE_EXCEEDED);
    rig_end_all(rig);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* ---- cancelling ---- */

TEST_CASE(test_cancel)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->tcp_target);
    struct probe probe;
    probe_call(&probe, side, client, "/t.T/Hold", "x", 1);
    rig_wait(rig, &rig->held_count, 1);
    rpc_client_cancel(probe.call);
    rpc_client_cancel(probe.call);
    probe_wait(&probe, &probe.ends, 1);
    rpc_client_cancel(probe.call); /* over: does nothing */
    assert_int_equal(probe_end(&probe), STATUS_CANCELLED);
    rig_wait(rig, &rig->cancels, 1);
    rig_end_held(rig, 0, STATUS_OK + 1, NULL);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* The cancel meets the call at every stage: not sent, on its way, answered, over. */
TEST_CASE(test_cancel_races)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    struct rpc_client *client = client_open(side, rig->unix_target);
    unsigned answered = 0;
    for (unsigned i = 0; i < 300; i++) {
        struct probe probe;
        probe_call(&probe, side, client, "/t.T/Echo", &i, sizeof(i));
        for (unsigned n = i % 3; n > 0; n--)
            sched_yield();
        rpc_client_cancel(probe.call);
        enum status status = probe_end(&probe);
        assert_true(status == STATUS_OK || status == STATUS_CANCELLED);
        answered += status == STATUS_OK;
    }
    printf("%u of 300 were answered before they were cancelled\n", answered);
    rpc_client_destroy(client);
    side_stop(side);
    rig_stop(rig);
}

/* ---- the end of the client ---- */

TEST_CASE(test_destroy_with_calls)
{
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    for (unsigned round = 0; round < 10; round++) {
        struct rpc_client *client = client_open(side, rig->unix_target);
        struct probe probes[32];
        for (unsigned i = 0; i < ARRAY_COUNT(probes); i++)
            probe_call(&probes[i], side, client, "/t.T/HoldCold", "x", 1);
        if (round % 2 == 0)
            rig_wait(rig, &rig->held_count, round + 1);
        rpc_client_destroy(client);
        for (unsigned i = 0; i < ARRAY_COUNT(probes); i++) {
            probe_wait(&probes[i], &probes[i].ends, 1);
            rpc_client_cancel(probes[i].call); /* the client is gone: does nothing */
            assert_int_equal(probe_end(&probes[i]), STATUS_CANCELLED);
        }
    }
    rig_end_all(rig);
    side_stop(side);
    rig_stop(rig);
}

/* Destroyed unused, connecting, by on_end itself, and with its queue right behind. */
static struct rpc_client *doomed;

static void
on_end_destroy(void *context, const struct rpc_client_end *end)
{
    rpc_client_destroy(doomed);
    probe_on_end(context, end);
}

TEST_CASE(test_destroy_at_all_times)
{
    static const struct rpc_client_events events = {.on_end = on_end_destroy};
    struct rig *rig = rig_start(1, NULL);
    struct side *side = side_start();
    rpc_client_destroy(NULL);
    rpc_client_destroy(client_open(side, rig->unix_target));
    rpc_client_destroy(client_open(side, "unix:/nowhere/at/all"));
    rpc_client_destroy(client_open(side, "foo://::::"));
    struct rpc_client *client = client_open(side, rig->unix_target);
    rpc_client_connect(client);
    rpc_client_destroy(client);
    doomed = client_open(side, rig->unix_target);
    struct probe probe = {.side = side};
    struct rpc_client_request request = probe_request(&probe, "/t.T/Echo", RPC_UNARY);
    request.events = &events;
    rpc_client_start(doomed, &request, &probe.call);
    assert_int_equal(probe_end(&probe), STATUS_OK);
    struct rpc_queue *queue = rpc_queue_create();
    rpc_client_destroy(client_open_with(queue, rig->unix_target, 0));
    rpc_queue_destroy(queue);
    side_stop(side);
    rig_stop(rig);
}

TEST_CASE(test_bad_options)
{
    struct side *side = side_start();
    struct rpc_client_options options = {.queue = side->queue, .target = ""};
    struct rpc_client *client;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_client_create(&options, &client, &error), STATUS_INVALID_ARGUMENT);
    assert_string_equal(error.text, "empty address");
    side_stop(side);
}

/* ---- timers ---- */

/* Timers that note the order of their runs. */
struct alarm_clock {
    struct rpc_timer timer; /* first member */
    struct alarms *alarms;
    char name;
};

enum { ALARMS = 4 };

struct alarms {
    struct rpc_post begin; /* first member */
    struct rpc_queue *queue;
    struct alarm_clock clocks[ALARMS];
    int64_t first_ns;
    char rung[16];
    sem_t done;
};

static void
on_alarm(struct rpc_timer *timer)
{
    struct alarm_clock *alarm = (struct alarm_clock *)timer;
    struct alarms *alarms = alarm->alarms;
    size_t count = strlen(alarms->rung);
    CHECK(clock_now_ns() >= alarms->first_ns);
    alarms->rung[count] = alarm->name;
    if (alarm->name == 'd' && count < 6)
        rpc_queue_at(alarms->queue, timer, 0); /* again, in the past */
    else if (alarm->name == 'd')
        sem_post(&alarms->done);
}

/* a is moved from the last place to the first, b dropped, c and d are at the same time. */
static void
set_alarms(struct rpc_post *post)
{
    struct alarms *alarms = (struct alarms *)post;
    struct rpc_timer *timers[ALARMS];
    for (size_t i = 0; i < ALARMS; i++)
        timers[i] = &alarms->clocks[i].timer;
    int64_t now_ns = clock_now_ns();
    alarms->first_ns = now_ns + 20 * NS_PER_MS;
    rpc_queue_at(alarms->queue, timers[2], now_ns + 30 * NS_PER_MS);
    rpc_queue_at(alarms->queue, timers[3], now_ns + 30 * NS_PER_MS);
    rpc_queue_at(alarms->queue, timers[1], now_ns + 10 * NS_PER_MS);
    rpc_queue_at(alarms->queue, timers[0], now_ns + 3600 * NS_PER_S);
    rpc_queue_at(alarms->queue, timers[0], alarms->first_ns);
    rpc_timer_drop(alarms->queue, timers[1]);
    rpc_timer_drop(alarms->queue, timers[1]);
}

TEST_CASE(test_timers)
{
    struct side *side = side_start();
    struct alarms alarms = {.begin = {.run = set_alarms}, .queue = side->queue};
    for (size_t i = 0; i < ALARMS; i++)
        alarms.clocks[i] = (struct alarm_clock){{.run = on_alarm}, &alarms, (char)('a' + i)};
    sem_init(&alarms.done, 0, 0);
    rpc_queue_post(side->queue, &alarms.begin); /* the thread waits forever until then */
    while (sem_wait(&alarms.done) != 0)
        assert_int_equal(errno, EINTR);
    assert_string_equal(alarms.rung, "acddddd");
    side_stop(side);
    sem_destroy(&alarms.done);
}

/* ---- servers that are not there ---- */

/* The last report of on_state. */
struct state_watcher {
    struct rpc_client *client;
    atomic_int reported;
};

static void
on_state(void *context)
{
    struct state_watcher *watcher = context;
    atomic_store(&watcher->reported, (int)rpc_client_state(watcher->client));
}

static void
wait_reported(struct state_watcher *watcher, enum rpc_client_state wanted)
{
    int64_t give_up_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (atomic_load(&watcher->reported) != (int)wanted) {
        if (clock_now_ns() > give_up_ns)
            fail_msg("told %d, not %d", atomic_load(&watcher->reported), wanted);
        sched_yield();
    }
}

static void
wait_state(const struct rpc_client *client, enum rpc_client_state wanted)
{
    int64_t give_up_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (rpc_client_state(client) != wanted) {
        if (clock_now_ns() > give_up_ns)
            fail_msg("state %d, not %d", rpc_client_state(client), wanted);
        sched_yield();
    }
}

/* A call without a deadline ends all the same. */
TEST_CASE(test_nobody_there)
{
    struct side *side = side_start();
    static const char *const targets[] = {"unix:/nowhere/at/all", "127.0.0.1:1",
                                          "foo://::::", "no-such-host.invalid:80"};
    for (size_t i = 0; i < 3; i++) {
        struct rpc_client *client = client_open(side, targets[i]);
        struct probe probe;
        probe_call(&probe, side, client, "/t.T/Echo", "x", 1);
        assert_int_equal(probe_end(&probe), STATUS_UNAVAILABLE);
        assert_true(probe.text[0] != '\0');
        wait_state(client, RPC_CLIENT_FAILING);
        rpc_client_destroy(client);
    }
    side_stop(side);
}

/* It stands still, and only the client's pings show it. */
TEST_CASE(test_server_stopped)
{
    struct elsewhere elsewhere;
    elsewhere_start(&elsewhere);
    struct side *side = side_start();
    struct rpc_client_options options = {.queue = side->queue,
                                         .target = elsewhere.target,
                                         .keepalive_time_ns = NS_PER_S,
                                         .keepalive_timeout_ns = NS_PER_S / 2};
    struct rpc_client *client;
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_client_create(&options, &client, &error), STATUS_OK);
    elsewhere_wait(&elsewhere, side, client);
    struct probe probe;
    probe_call(&probe, side, client, "/t.T/Hold", "x", 1);
    assert_int_equal(kill(elsewhere.pid, SIGSTOP), 0);
    assert_int_equal(probe_end(&probe), STATUS_UNAVAILABLE);
    rpc_client_destroy(client);
    side_stop(side);
    elsewhere_kill(&elsewhere);
    elsewhere_remove(&elsewhere);
}

TEST_CASE(test_server_killed_and_back)
{
    struct elsewhere elsewhere;
    elsewhere_start(&elsewhere);
    struct side *side = side_start();
    struct state_watcher watcher = {.client = NULL};
    struct rpc_client_options options = {.queue = side->queue,
                                         .target = elsewhere.target,
                                         .on_state = on_state,
                                         .context = &watcher};
    struct error error = ERROR_NONE;
    assert_int_equal(rpc_client_create(&options, &watcher.client, &error), STATUS_OK);
    struct rpc_client *client = watcher.client;
    for (unsigned round = 0; round < 3; round++) {
        elsewhere_wait(&elsewhere, side, client);
        wait_state(client, RPC_CLIENT_READY);
        struct probe probes[64];
        for (unsigned i = 0; i < ARRAY_COUNT(probes); i++)
            probe_call(&probes[i], side, client, i % 2 ? "/t.T/Hold" : "/t.T/HoldCold", "x", 1);
        elsewhere_kill(&elsewhere);
        for (unsigned i = 0; i < ARRAY_COUNT(probes); i++)
            assert_int_equal(probe_end(&probes[i]), STATUS_UNAVAILABLE);
        elsewhere_spawn(&elsewhere);
    }
    /* Also seen when there is no call to notice it. */
    elsewhere_wait(&elsewhere, side, client);
    wait_reported(&watcher, RPC_CLIENT_READY);
    elsewhere_kill(&elsewhere);
    wait_reported(&watcher, RPC_CLIENT_IDLE);
    rpc_client_connect(client);
    wait_reported(&watcher, RPC_CLIENT_FAILING);
    /* It goes on trying by itself. */
    elsewhere_spawn(&elsewhere);
    wait_reported(&watcher, RPC_CLIENT_READY);
    rpc_client_destroy(client);
    side_stop(side);
    elsewhere_kill(&elsewhere);
    elsewhere_remove(&elsewhere);
}

int
main(int argc, char **argv)
{
    if (argc > 1)
        return elsewhere_main(argv[1]);
    return TEST_RUN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown);
}
