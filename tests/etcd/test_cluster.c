/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Three members: calls, watches, sessions and mirrors go on when the member that they use is
 * killed, stopped, or cut off from the others, and when the leader is. A member without a leader is
 * left at once, though it answers, and goes on reporting progress to clients that do not ask for a
 * leader. With two of three gone, writes are reported as certainly not done or as unknown, never as
 * done.
 */
#include <signal.h>

#include "../random.h"
#include "rig.h"

static struct cluster cluster;
static struct etcd *etcd;

struct seen {
    size_t events, opens, troubles;
    int64_t last;
};

static void
on_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    struct seen *seen = context;
    (void)range_index;
    for (size_t i = 0; i < count; i++) {
        assert_true(events[i].kv.mod_revision > seen->last);
        seen->last = events[i].kv.mod_revision;
    }
    seen->events += count;
}

static void
on_open(void *context)
{
    ((struct seen *)context)->opens++;
}

static void
on_trouble(void *context, const struct error *error)
{
    (void)error;
    ((struct seen *)context)->troubles++;
}

static void
on_end(void *context, enum etcd_watch_end end, const struct error *error)
{
    (void)context;
    fail_msg("the watch ended: %d %s", end, error->text);
}

static struct etcd_watch *
watch(struct seen *seen, struct etcd *client)
{
    struct etcd_range range = prefix("k/");
    *seen = (struct seen){0};
    struct etcd_watch_options options = {
        .ranges = &range,
        .range_count = 1,
        .progress_ns = NS_PER_S / 2,
        .on_events = on_events,
        .on_open = on_open,
        .on_trouble = on_trouble,
        .on_end = on_end,
        .context = seen,
    };
    struct etcd_watch *opened = NULL;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_watch_open(client, &options, &opened, &error), STATUS_OK);
    WAIT_UNTIL(seen->opens == 1);
    return opened;
}

static size_t
member_used(void)
{
    for (size_t i = 0; i < cluster.count; i++)
        if (strcmp(cluster.members[i].url, etcd_endpoint(etcd)) == 0)
            return i;
    fail_msg("%s is no member", etcd_endpoint(etcd));
    return 0;
}

/* Until it is done: what is not known may have happened, a second time does no harm here. */
static void
put_somehow(const char *value)
{
    int64_t end_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (do_put(etcd, "k/a", value)->fate != ETCD_DONE)
        if (clock_now_ns() > end_ns)
            fail_msg("%s", got.answer.error.text);
}

static int
start(void **state)
{
    (void)state;
    cluster_start(&cluster, 3);
    etcd =
        rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 10 * NS_PER_S,
                                                   .seed = random_seed((uint64_t)clock_now_ns())});
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    etcd_destroy(etcd);
    cluster_stop(&cluster);
    rig_end();
    return 0;
}

/* All members answer: what a test did to the cluster is over. */
static int
ready(void **state)
{
    (void)state;
    for (size_t i = 0; i < cluster.count; i++) {
        if (cluster.members[i].pid == 0)
            member_start(&cluster, i);
        member_signal(&cluster, i, SIGCONT); /* a test that failed may have left it stopped */
        struct etcd *lone = rig_client_of(cluster.members[i].url, (struct etcd_options){0});
        struct etcd_op read = {.kind = ETCD_RANGE, .range = one("k/a")};
        etcd_op(lone, &read, to_got(60 * NS_PER_S));
        done(got_wait());
        etcd_destroy(lone);
    }
    put_somehow("ready");
    return 0;
}

TEST_CASE(member_is_killed)
{
    static struct seen seen;
    struct etcd_watch *opened = watch(&seen, etcd);
    size_t used = member_used();
    member_kill(&cluster, used);
    put_somehow("killed");
    int64_t revision = got.answer.revision;
    WAIT_UNTIL(seen.last == revision);
    WAIT_UNTIL(member_used() != used);
    assert_value(do_get(etcd, "k/a"), "killed");
    etcd_watch_close(opened);
}

TEST_CASE(member_is_stopped)
{
    static struct seen seen;
    struct etcd_watch *opened = watch(&seen, etcd);
    size_t used = member_used();
    member_signal(&cluster, used, SIGSTOP);
    done(do_get(etcd, "k/a")); /* within the time of one call */
    WAIT_UNTIL(member_used() != used);
    put_somehow("stopped");
    int64_t revision = got.answer.revision;
    WAIT_UNTIL(seen.last == revision); /* the silence of the old stream was noticed */
    member_signal(&cluster, used, SIGCONT);
    etcd_watch_close(opened);
}

/* The two others are stopped: the remaining one answers, without a leader. */
TEST_CASE(member_is_cut_off)
{
    static struct seen seen;
    size_t used = member_used();
    struct etcd *lone = rig_client_of(cluster.members[used].url,
                                      (struct etcd_options){.call_timeout_ns = 20 * NS_PER_S});
    done(do_put(lone, "k/b", "1"));
    struct etcd_watch *opened = watch(&seen, lone);
    for (size_t i = 0; i < cluster.count; i++)
        if (i != used)
            member_signal(&cluster, i, SIGSTOP);
    WAIT_UNTIL(seen.troubles > 0); /* told by the member: it is not silent */
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("k/b"), .value = etcd_text("2")};
    etcd_op(lone, &write, to_got(NS_PER_S));
    assert_int_not_equal(got_wait()->fate, ETCD_DONE);
    WAIT_UNTIL(
        (etcd_op(lone, &write, to_got(NS_PER_S)),
         got_wait()->fate == ETCD_NOT_DONE && strstr(got.answer.error.text, "no leader") != NULL));
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("k/b")};
    etcd_op(lone, &read, to_got(NS_PER_S));
    assert_int_equal(got_wait()->fate, ETCD_NOT_DONE);
    for (size_t i = 0; i < cluster.count; i++)
        if (i != used)
            member_signal(&cluster, i, SIGCONT);
    etcd_op(lone, &read, to_got(60 * NS_PER_S));
    done(got_wait());
    WAIT_UNTIL(seen.opens >= 2);
    etcd_watch_close(opened);
    etcd_destroy(lone);
}

static size_t granted, lost;

static void
on_granted(void *context, int64_t lease_id)
{
    (void)context;
    (void)lease_id;
    granted++;
}

static void
on_lost(void *context, const struct error *error)
{
    (void)context;
    print_message("lost: %s\n", error->text);
    lost++;
}

/* Each member in turn, the leader among them, under a session and a writer. */
TEST_CASE(rolling_restart)
{
    static struct seen seen;
    struct etcd_watch *opened = watch(&seen, etcd);
    struct etcd_session_options options = {
        .ttl_s = 30, .on_granted = on_granted, .on_lost = on_lost};
    granted = lost = 0;
    struct etcd_session *session = etcd_session_open(etcd, &options);
    WAIT_UNTIL(granted == 1);
    for (size_t i = 0; i < cluster.count; i++) {
        member_kill(&cluster, i);
        for (int n = 0; n < 10; n++)
            put_somehow("rolling");
        ready(NULL);
    }
    int64_t revision = done(do_put(etcd, "k/a", "end"))->revision;
    WAIT_UNTIL(seen.last == revision);
    assert_int_equal(lost, 0);
    assert_true(etcd_session_left_ns(session) > 0);
    etcd_session_close(session);
    etcd_watch_close(opened);
}

TEST_MAIN(.setup = ready, .group_setup = start, .group_teardown = stop)
