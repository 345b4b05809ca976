/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session keeps its lease for as long as etcd can be asked, also across a restart of it; says
 * that it is lost when etcd has let it go; and gives it up by its own clock, before etcd can, when
 * nobody answers. etcd is killed, and stopped.
 */
#include <signal.h>

#include "rig.h"

static struct cluster cluster;
static struct etcd *etcd;

struct kept {
    struct etcd_session *session;
    int64_t lease_id;
    size_t granted, lost, troubles;
    int64_t lost_ns;
    enum status why;
};

static void
on_granted(void *context, int64_t lease_id)
{
    struct kept *kept = context;
    kept->granted++;
    kept->lease_id = lease_id;
}

static void
on_lost(void *context, const struct error *error)
{
    struct kept *kept = context;
    kept->lost++;
    kept->lost_ns = clock_now_ns();
    kept->why = error->status;
    assert_true(error->text[0] != '\0');
    assert_int_equal(etcd_session_left_ns(kept->session), 0);
}

static void
on_trouble(void *context, const struct error *error)
{
    struct kept *kept = context;
    assert_int_not_equal(error->status, STATUS_OK);
    kept->troubles++;
}

static void
keep(struct kept *kept, int64_t ttl_s)
{
    *kept = (struct kept){0};
    struct etcd_session_options options = {
        .ttl_s = ttl_s,
        .on_granted = on_granted,
        .on_lost = on_lost,
        .on_trouble = on_trouble,
        .context = kept,
    };
    kept->session = etcd_session_open(etcd, &options);
    assert_int_equal(etcd_session_left_ns(kept->session), 0);
}

static int
start(void **state)
{
    (void)state;
    cluster_start(&cluster, 1);
    etcd = rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    done(do_get(etcd, "ready"));
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

static void
put_leased(struct kept *kept, const char *key)
{
    struct etcd_op leased = {.kind = ETCD_PUT, .range = one(key), .lease_id = kept->lease_id};
    done(do_op(etcd, leased));
}

static bool
is_there(const char *key)
{
    return done(do_get(etcd, key))->responses[0].kv_count == 1;
}

TEST_CASE(is_kept)
{
    struct kept kept;
    keep(&kept, 5);
    WAIT_UNTIL(kept.granted == 1);
    assert_int_equal(etcd_session_lease_id(kept.session), kept.lease_id);
    int64_t left_ns = etcd_session_left_ns(kept.session);
    assert_in_range(left_ns, 1, 5 * NS_PER_S - 5 * NS_PER_S / 10);
    put_leased(&kept, "kept");
    rig_wait_ns(11 * NS_PER_S); /* more than twice its time */
    assert_true(is_there("kept"));
    assert_true(etcd_session_left_ns(kept.session) > 0);
    assert_int_equal(kept.lost, 0);
    etcd_session_close(kept.session);
    WAIT_UNTIL(!is_there("kept")); /* nobody keeps it */
}

/* However early it is given up, it is renewed before. */
TEST_CASE(margin_is_large)
{
    struct kept kept = {0};
    struct etcd_session_options options = {
        .ttl_s = 60,
        .margin_ns = 50 * NS_PER_S,
        .on_granted = on_granted,
        .on_lost = on_lost,
        .context = &kept,
    };
    kept.session = etcd_session_open(etcd, &options);
    WAIT_UNTIL(kept.granted == 1);
    assert_in_range(etcd_session_left_ns(kept.session), 1, 10 * NS_PER_S);
    WAIT_UNTIL(etcd_session_left_ns(kept.session) < 7 * NS_PER_S);
    WAIT_UNTIL(etcd_session_left_ns(kept.session) > 8 * NS_PER_S || kept.lost > 0);
    assert_int_equal(kept.lost, 0);
    etcd_session_close(kept.session);
}

TEST_CASE(is_revoked)
{
    struct kept kept;
    keep(&kept, 10);
    WAIT_UNTIL(kept.granted == 1);
    etcd_lease_revoke(etcd, kept.lease_id, to_got(0));
    done(got_wait());
    WAIT_UNTIL(kept.lost == 1);
    assert_int_equal(kept.why, STATUS_NOT_FOUND);
    etcd_session_close(kept.session);
}

TEST_CASE(etcd_is_restarted)
{
    struct kept kept;
    keep(&kept, 30);
    WAIT_UNTIL(kept.granted == 1);
    put_leased(&kept, "restart");
    member_kill(&cluster, 0);
    member_start(&cluster, 0);
    WAIT_UNTIL(etcd_session_left_ns(kept.session) < 24 * NS_PER_S);
    WAIT_UNTIL(etcd_session_left_ns(kept.session) > 25 * NS_PER_S); /* it was renewed */
    assert_true(is_there("restart"));
    assert_int_equal(kept.lost, 0);
    etcd_session_close(kept.session);
}

/* By our clock it is over before etcd can know; and what comes later does not bring it back. */
TEST_CASE(etcd_is_stopped)
{
    struct kept kept;
    keep(&kept, 10);
    WAIT_UNTIL(kept.granted == 1);
    put_leased(&kept, "stopped");
    member_signal(&cluster, 0, SIGSTOP);
    assert_in_range(etcd_session_left_ns(kept.session), 1, 9 * NS_PER_S);
    WAIT_UNTIL(etcd_session_left_ns(kept.session) == 0);
    WAIT_UNTIL(kept.lost == 1);
    assert_int_equal(kept.why, STATUS_DEADLINE_EXCEEDED);
    member_signal(&cluster, 0, SIGCONT);
    done(do_get(etcd, "stopped"));
    rig_wait_ns(NS_PER_S);
    assert_int_equal(etcd_session_left_ns(kept.session), 0);
    assert_int_equal(kept.lost, 1);
    etcd_session_close(kept.session);
}

TEST_CASE(etcd_is_not_there)
{
    struct kept kept;
    member_kill(&cluster, 0);
    struct etcd *hasty =
        rig_client(&cluster, (struct etcd_options){.call_timeout_ns = NS_PER_S / 5});
    struct etcd *patient = etcd;
    etcd = hasty;
    keep(&kept, 5);
    WAIT_UNTIL(kept.troubles >= 2);
    assert_int_equal(kept.granted, 0);
    member_start(&cluster, 0);
    WAIT_UNTIL(kept.granted == 1);
    etcd_session_close(kept.session);
    keep(&kept, 5);
    etcd_session_close(kept.session); /* while it is asked for */
    etcd_destroy(hasty);
    etcd = patient;
}

TEST_MAIN(.group_setup = start, .group_teardown = stop)
