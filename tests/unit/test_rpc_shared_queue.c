/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two servers on one queue: the host, whose it is, and a client region. One thread serves both,
 * each has its own calls and its own end, and the queue ends after both. And posts to that thread.
 *
 * ctest: timeout=120 presets=dev,tsan because client regions post from other threads
 */
#include <sched.h>

#include "test_rpc_rig.h"

static struct rpc_queue *host_queue; /* NULL: the server that is made is the host */

static void
adjust(struct rpc_server_options *options)
{
    options->queue_count = 1;
    options->queue = host_queue;
}

/* Neither has threads; step() starts the stepping thread. */
struct both {
    struct rig *host;
    struct rig *sharer;
};

static struct both
open_both(void)
{
    struct both both;
    host_queue = NULL;
    both.host = rig_start(0, adjust);
    host_queue = rpc_server_queue(both.host->server, 0);
    both.sharer = rig_start(0, adjust);
    assert_ptr_equal(rpc_server_queue(both.sharer->server, 0), host_queue);
    return both;
}

static void
step(struct rig *host)
{
    struct rig_thread *thread = malloc(sizeof(*thread));
    assert_non_null(thread);
    *thread = (struct rig_thread){host, 0};
    assert_int_equal(pthread_create(&host->threads[0], NULL, rig_thread_run, thread), 0);
    host->queue_count = 1;
}

static void
check_echo(const struct rig *rig, const char *method)
{
    struct error error;
    if (rig_call(rig->unix_target, method, "abc", 3, &error) != STATUS_OK)
        fail_msg("%s: %s", method, error.text);
}

/* After the host's rig_join. */
static void
check_sharer_is_gone(struct rig *sharer)
{
    rig_destroy(sharer);
}

TEST_CASE(test_each_has_its_calls)
{
    struct both both = open_both();
    step(both.host);
    for (int i = 0; i < 20; i++) {
        check_echo(both.host, "/t.T/Echo");
        check_echo(both.sharer, "/t.T/Echo");
        check_echo(both.sharer, "/t.T/EchoCold");
    }
    struct caller chat;
    caller_open(&chat, both.sharer->tcp_target, "/t.T/Chat");
    caller_send(&chat, "xy", 2);
    assert_int_equal(caller_receive(&chat, NULL, 0), 2);
    caller_half_close(&chat);
    assert_int_equal(caller_status(&chat), STATUS_OK);
    caller_close(&chat);
    assert_int_equal(rig_read(both.host, &both.host->messages), 20);
    assert_int_equal(rig_read(both.sharer, &both.sharer->messages), 41);
    assert_int_equal(rig_read(both.sharer, &both.sharer->half_closes), 1);
    rpc_server_stop(both.sharer->server);
    rpc_server_stop(both.host->server);
    rig_join(both.host);
    check_sharer_is_gone(both.sharer);
    rig_destroy(both.host);
}

/* Its end is not the queue's. */
TEST_CASE(test_sharer_ends_first)
{
    struct both both = open_both();
    struct caller held;
    step(both.host);
    caller_open(&held, both.sharer->unix_target, "/t.T/HoldBidi");
    caller_send(&held, "m", 1);
    rig_wait(both.sharer, &both.sharer->held_count, 1);
    rpc_server_stop(both.sharer->server);
    check_echo(both.host, "/t.T/EchoCold");
    rig_end_held(both.sharer, 0, STATUS_ABORTED, NULL);
    assert_int_equal(caller_status(&held), STATUS_ABORTED);
    caller_close(&held);
    check_echo(both.host, "/t.T/EchoCold");
    rig_stop(both.host);
    check_sharer_is_gone(both.sharer);
}

/* The host has nothing left, and the client region goes on. */
TEST_CASE(test_sharer_holds_up_the_end)
{
    struct both both = open_both();
    struct caller held;
    step(both.host);
    caller_open(&held, both.sharer->unix_target, "/t.T/Hold");
    caller_send(&held, "m", 1);
    rig_wait(both.sharer, &both.sharer->held_count, 1);
    rpc_server_stop(both.host->server);
    int64_t deadline_ns = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (!atomic_load(&host_queue->stopped)) {
        assert_true(clock_now_ns() < deadline_ns);
        sched_yield();
    }
    check_echo(both.sharer, "/t.T/EchoCold");
    rpc_server_stop(both.sharer->server);
    rpc_server_cancel_all(both.sharer->server);
    rig_wait(both.sharer, &both.sharer->cancels, 1);
    rig_end_held(both.sharer, 0, STATUS_CANCELLED, NULL);
    caller_close(&held);
    rig_join(both.host);
    check_sharer_is_gone(both.sharer);
    rig_destroy(both.host);
}

/* It has bound one address, and cannot bind the other: the stepping thread does the rest. */
TEST_CASE(test_sharer_that_cannot_bind)
{
    host_queue = NULL;
    struct rig *host = rig_start(0, adjust);
    static const char *const listen[] = {"127.0.0.1:0", "nonsense"};
    struct rpc_server_options options = rig_options(listen, ARRAY_COUNT(listen));
    options.queue = rpc_server_queue(host->server, 0);
    struct rpc_server *sharer = NULL;
    struct error error = ERROR_NONE;
    assert_int_not_equal(rpc_server_create(&options, &sharer, &error), STATUS_OK);
    assert_null(sharer);
    step(host);
    check_echo(host, "/t.T/Echo");
    rig_stop(host);
}

/* ---- posts ---- */

enum { POSTERS = 3, POSTS_EACH = 3000 };

struct poster {
    struct rpc_post post; /* first */
    struct rpc_queue *queue;
    pthread_t stepping;
    atomic_uint asked;
    atomic_uint seen;
};

static void
on_post(struct rpc_post *post)
{
    struct poster *poster = (struct poster *)post;
    CHECK(pthread_equal(pthread_self(), poster->stepping));
    atomic_store(&poster->seen, atomic_load_explicit(&poster->asked, memory_order_relaxed));
}

/* A post's run sees the writes before it, and none is lost. */
static void *
post_many(void *argument)
{
    struct poster *poster = argument;
    int64_t deadline_ns = clock_now_ns() + 60 * NS_PER_S;
    for (unsigned i = 1; i <= POSTS_EACH; i++) {
        atomic_store_explicit(&poster->asked, i, memory_order_relaxed);
        rpc_queue_post(poster->queue, &poster->post);
        while (i % 3 == 0 && atomic_load(&poster->seen) < i) {
            CHECK(clock_now_ns() < deadline_ns);
            sched_yield();
        }
    }
    return NULL;
}

TEST_CASE(test_no_post_is_lost)
{
    host_queue = NULL;
    struct rig *host = rig_start(0, adjust);
    struct poster posters[POSTERS];
    pthread_t threads[POSTERS];
    step(host);
    for (unsigned i = 0; i < POSTERS; i++) {
        posters[i] = (struct poster){.post.run = on_post,
                                     .queue = rpc_server_queue(host->server, 0),
                                     .stepping = host->threads[0]};
        assert_int_equal(pthread_create(&threads[i], NULL, post_many, &posters[i]), 0);
    }
    for (unsigned i = 0; i < POSTERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(atomic_load(&posters[i].seen), POSTS_EACH);
    }
    rig_stop(host);
}

TEST_MAIN(.group_setup = rig_group_setup, .group_teardown = rig_group_teardown)
