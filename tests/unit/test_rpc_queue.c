/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The step: it looks without waiting, waits until its deadline and no longer, and returns when it
 * is woken, of which none is ever lost. Several queues share the calls and end together.
 *
 * ctest: timeout=120 presets=dev,tsan because several threads post
 */
#include <sched.h>

#include "test_rpc_rig.h"

/* A server without threads, stepped by the test. */
static struct rpc_server *
create(const struct rpc_method *methods, size_t method_count, size_t queue_count, void *context)
{
    static const char *const listen[] = {"127.0.0.1:0"};
    struct rpc_server_options options = rig_options(listen, 1);
    options.queue_count = queue_count;
    options.methods = methods;
    options.method_count = method_count;
    options.context = context;
    struct rpc_server *server;
    struct error error = ERROR_NONE;
    if (rpc_server_create(&options, &server, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    return server;
}

static void
end(struct rpc_server *server)
{
    rpc_server_stop(server);
    for (size_t i = 0; i < server->queue_count; i++)
        while (rpc_server_step(server, i, TIME_NEVER_NS) >= 0)
            continue;
    for (size_t i = 0; i < server->queue_count; i++) {
        rpc_server_wake(server, i); /* harmless at the end */
        assert_int_equal(rpc_server_step(server, i, TIME_NEVER_NS), -1);
    }
    rpc_server_destroy(server);
}

TEST_CASE(test_look_does_not_wait)
{
    struct rpc_server *server = create(NULL, 0, 1, NULL);
    int64_t start_ns = clock_now_ns();
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(rpc_server_step(server, 0, 0), 0);
        assert_int_equal(rpc_server_step(server, 0, INT64_MIN), 0);
        assert_int_equal(rpc_server_step(server, 0, clock_now_ns() - 1), 0);
        assert_int_equal(rpc_server_step(server, 0, 1), 0);
    }
    assert_true(clock_now_ns() - start_ns < PATIENCE_S * NS_PER_S);
    end(server);
}

TEST_CASE(test_step_waits_until_its_deadline)
{
    struct rpc_server *server = create(NULL, 0, 1, NULL);
    int64_t deadline_ns = clock_now_ns() + 50 * NS_PER_MS;
    assert_int_equal(rpc_server_step(server, 0, deadline_ns), 0);
    assert_true(clock_now_ns() >= deadline_ns);
    assert_true(clock_now_ns() < deadline_ns + PATIENCE_S * NS_PER_S);
    end(server);
}

TEST_CASE(test_wake_before_the_step)
{
    struct rpc_server *server = create(NULL, 0, 1, NULL);
    for (int i = 0; i < 100; i++) {
        rpc_server_wake(server, 0);
        rpc_server_wake(server, 0);
        assert_int_equal(rpc_server_step(server, 0, TIME_NEVER_NS), 0);
    }
    /* They were one each: nothing is left that would wake again. */
    int64_t deadline_ns = clock_now_ns() + 20 * NS_PER_MS;
    assert_int_equal(rpc_server_step(server, 0, deadline_ns), 0);
    assert_true(clock_now_ns() >= deadline_ns);
    end(server);
}

/* ---- wakes from other threads ---- */

enum { WAKERS = 3, WAKES_EACH = 3000 };

struct wakers {
    struct rpc_server *server;
    atomic_uint asked[WAKERS];
    atomic_uint seen[WAKERS];
    atomic_uint done;
};

struct waker {
    struct wakers *all;
    unsigned index;
};

/* Asks for something, wakes, and goes on only when it was seen: a lost wake would end it here. */
static void *
waker_run(void *argument)
{
    struct waker *waker = argument;
    struct wakers *all = waker->all;
    int64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    for (unsigned i = 1; i <= WAKES_EACH; i++) {
        atomic_store_explicit(&all->asked[waker->index], i, memory_order_relaxed);
        rpc_server_wake(all->server, 0);
        while (atomic_load_explicit(&all->seen[waker->index], memory_order_acquire) < i) {
            CHECK(clock_now_ns() < deadline_ns);
            sched_yield();
        }
    }
    atomic_fetch_add_explicit(&all->done, 1, memory_order_relaxed);
    rpc_server_wake(all->server, 0);
    return NULL;
}

TEST_CASE(test_no_wake_is_lost)
{
    struct wakers all = {.server = create(NULL, 0, 1, NULL)};
    struct waker wakers[WAKERS];
    pthread_t threads[WAKERS];
    for (unsigned i = 0; i < WAKERS; i++) {
        wakers[i] = (struct waker){&all, i};
        assert_int_equal(pthread_create(&threads[i], NULL, waker_run, &wakers[i]), 0);
    }
    while (atomic_load_explicit(&all.done, memory_order_relaxed) < WAKERS) {
        assert_int_equal(rpc_server_step(all.server, 0, TIME_NEVER_NS), 0);
        for (unsigned i = 0; i < WAKERS; i++)
            atomic_store_explicit(&all.seen[i],
                                  atomic_load_explicit(&all.asked[i], memory_order_relaxed),
                                  memory_order_release);
    }
    for (unsigned i = 0; i < WAKERS; i++)
        pthread_join(threads[i], NULL);
    end(all.server);
}

/* The end of the queue and wakes from another thread at the same moment. */
static void *
wake_until_done(void *argument)
{
    struct wakers *all = argument;
    while (atomic_load_explicit(&all->done, memory_order_relaxed) == 0)
        rpc_server_wake(all->server, 0);
    return NULL;
}

TEST_CASE(test_wakes_while_it_ends)
{
    for (int i = 0; i < 200; i++) {
        struct wakers all = {.server = create(NULL, 0, 1, NULL)};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, wake_until_done, &all), 0);
        rpc_server_stop(all.server);
        while (rpc_server_step(all.server, 0, TIME_NEVER_NS) >= 0)
            continue;
        atomic_store_explicit(&all.done, 1, memory_order_relaxed);
        pthread_join(thread, NULL);
        rpc_server_destroy(all.server);
    }
}

/* ---- several queues ---- */

struct shares {
    struct rig *rig;
    atomic_uint counts[QUEUES_MAX];
};

static struct shares shares;

static void
on_share(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct rig *rig = context;
    size_t index = (size_t)(call->queue - call->queue->server->queues);
    atomic_fetch_add_explicit(&shares.counts[index], 1, memory_order_relaxed);
    if (!pthread_equal(pthread_self(), rig->threads[index]))
        rig_count(rig, &rig->refused); /* on a thread that does not step that queue */
    on_echo(context, call, message);
}

static const struct rpc_method share_methods[] = {
    {"/t.T/Echo", RPC_UNARY, true, on_share, NULL, NULL},
    {"/t.T/EchoCold", RPC_UNARY, false, on_share, NULL, NULL},
};

static void
adjust_share(struct rpc_server_options *options)
{
    options->methods = share_methods;
    options->method_count = ARRAY_COUNT(share_methods);
}

TEST_CASE(test_queues_share_the_calls)
{
    memset(&shares, 0, sizeof(shares));
    enum { QUEUES = 2, CHANNELS = 8, CALLS = 50 };
    struct rig *rig = rig_start(QUEUES, adjust_share);
    struct error error;
    for (unsigned c = 0; c < CHANNELS; c++) {
        struct rpc_channel *channel;
        assert_int_equal(rpc_channel_create(rig->tcp_target, &channel, &error), STATUS_OK);
        for (unsigned i = 0; i < CALLS; i++) {
            void *response;
            size_t bytes;
            const char *method = i % 2 == 0 ? "/t.T/Echo" : "/t.T/EchoCold";
            assert_int_equal(
                rpc_channel_call(channel, &(struct rpc_channel_ask){method, "x", 1, TIME_NEVER_NS},
                                 &response, &bytes, &error),
                STATUS_OK);
            free(response);
        }
        rpc_channel_destroy(channel);
    }
    unsigned sum = 0;
    for (unsigned q = 0; q < QUEUES; q++) {
        assert_true(shares.counts[q] > 0);
        sum += shares.counts[q];
    }
    assert_int_equal(sum, CHANNELS * CALLS);
    assert_int_equal(rig_read(rig, &rig->refused), 0);
    rig_stop(rig);
}

/* More calls at once than are armed: the others wait in the library, and are not refused. */
TEST_CASE(test_more_calls_than_armed)
{
    enum { CALLS = 100 };
    struct rig *rig = rig_start(1, NULL);
    _Static_assert((int)RIG_ARMED_CALLS < (int)CALLS, "some must wait");
    struct caller *callers = calloc(CALLS, sizeof(*callers));
    assert_non_null(callers);
    for (unsigned i = 0; i < CALLS; i++) {
        caller_open(&callers[i], rig->unix_target, i % 2 == 0 ? "/t.T/Hold" : "/t.T/HoldBidi");
        caller_send(&callers[i], "m", 1);
    }
    rig_wait(rig, &rig->held_count, CALLS);
    for (unsigned i = 0; i < CALLS; i++)
        rig_end_held(rig, i, STATUS_ABORTED, NULL);
    for (unsigned i = 0; i < CALLS; i++) {
        assert_int_equal(caller_status(&callers[i]), STATUS_ABORTED);
        caller_close(&callers[i]);
    }
    free(callers);
    rig_stop(rig);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
