/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Properties of the etcd store alone, with a real etcd: several nodes see each other's records and
 * agree on the leader; a lease that is lost, a key that somebody deletes, a name that is taken
 * twice, an etcd that stops, loses its history, or all it held. The incumbent's keys, values and
 * election.
 */
#include <signal.h>

#include "../etcd/proxy.h"
#include "seen.h"

#define PREFIX "/root/mm/svc/"

enum { NODES = 3, LEASE_S = 4 };

static struct cluster cluster;
static struct etcd *etcd;   /* the test's own eyes and hands */
static struct proxy *proxy; /* NULL: nodes go to the server itself */

struct node {
    struct etcd *etcd;
    struct seen seen;
};
static struct node nodes[NODES];

static void
open_as(struct node *node, const char *name)
{
    struct error error = ERROR_NONE;
    struct store_events events = seen_events(&node->seen);
    const struct store_options options = {name, &events};
    const struct etcd_options client = {.call_timeout_ns = 5 * NS_PER_S};
    node->etcd =
        proxy == NULL ? rig_client(&cluster, client) : rig_client_of(proxy_url(proxy), client);
    const struct store_etcd_options own = {.etcd = node->etcd,
                                           .prefix = PREFIX,
                                           .lease_s = LEASE_S,
                                           .timeout_ns = NS_PER_S,
                                           .page_keys = 3};
    if (store_open_etcd(rig_base(), &options, &own, &node->seen.store, &error) != STATUS_OK)
        fail_msg("%s", error.text);
}

static struct seen *
join(size_t index, const char *name)
{
    open_as(&nodes[index], name);
    seen_join(&nodes[index].seen, "{}");
    WAIT_UNTIL(nodes[index].seen.wholes > 0);
    return &nodes[index].seen;
}

static void
close_node(struct node *node)
{
    if (node->etcd == NULL)
        return;
    store_close(node->seen.store);
    etcd_destroy(node->etcd);
    seen_fini(&node->seen);
    node->etcd = NULL;
}

static int64_t
lease_of(const char *key)
{
    const struct etcd_answer *answer = done(do_get(etcd, key));
    assert_int_equal(answer->responses[0].kv_count, 1);
    return answer->responses[0].kvs[0].lease_id;
}

/* ---- cases ---- */

TEST_CASE(the_incumbents_keys)
{
    struct seen *seen = join(0, "5bd6f8-4xk2p");
    assert_int_equal(model_set(seen, "m__isvc-0123456789", 0, "{\"type\":\"t\"}"), STORE_OK);
    assert_value(done(do_get(etcd, PREFIX "registry/m__isvc-0123456789")), "{\"type\":\"t\"}");
    assert_value(done(do_get(etcd, PREFIX "instances/5bd6f8-4xk2p")), "{}");
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
    assert_value(done(do_get(etcd, PREFIX "leaderLatch/_5bd6f8-4xk2p")), "_5bd6f8-4xk2p");
    int64_t lease_id = lease_of(PREFIX "instances/5bd6f8-4xk2p");
    assert_int_not_equal(lease_id, 0);
    assert_int_equal(lease_of(PREFIX "leaderLatch/_5bd6f8-4xk2p"), lease_id);
    assert_int_equal(lease_of(PREFIX "registry/m__isvc-0123456789"), 0);
    done(do_put(etcd, PREFIX "config/scaleup_rpm_threshold", "500"));
    WAIT_UNTIL(seen_value(seen, STORE_CONFIG, "scaleup_rpm_threshold") != NULL);
    done(do_delete(etcd, PREFIX "config/scaleup_rpm_threshold"));
    WAIT_UNTIL(seen_value(seen, STORE_CONFIG, "scaleup_rpm_threshold") == NULL);
    /* neither somebody else's, nor what is no id */
    size_t known = seen->record_count;
    char key[sizeof(PREFIX) + STORE_ID_BYTES_MAX + 16];
    int used = snprintf(key, sizeof(key), PREFIX "registry/");
    memset(key + used, 'x', STORE_ID_BYTES_MAX + 1);
    key[used + STORE_ID_BYTES_MAX + 1] = '\0';
    done(do_put(etcd, key, "{}"));
    done(do_put(etcd, PREFIX "registry/", "{}"));
    done(do_put(etcd, "/root/mm/svd/registry/a", "{}"));
    done(do_put(etcd, PREFIX "registry/last", "{}"));
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "last") != NULL);
    assert_int_equal(seen->record_count, known + 1);
}

TEST_CASE(all_see_all)
{
    static const char *const names[NODES] = {"a", "b", "c"};
    for (size_t i = 0; i < NODES; i++)
        join(i, names[i]);
    for (size_t i = 0; i < NODES; i++)
        assert_int_equal(model_set(&nodes[i].seen, names[i], 0, names[i]), STORE_OK);
    for (size_t i = 0; i < NODES; i++)
        for (size_t k = 0; k < NODES; k++) {
            const struct seen *seen = &nodes[i].seen;
            WAIT_UNTIL(seen_value(seen, STORE_INSTANCES, names[k]) != NULL);
            WAIT_UNTIL(seen_value(seen, STORE_MODELS, names[k]) != NULL);
            assert_int_equal(seen_created(seen, STORE_INSTANCES, names[k]), nodes[k].seen.session);
        }
    /* one writes over what the other wrote, and the first has to look again */
    uint64_t revision = seen_revision(&nodes[0].seen, STORE_MODELS, "c");
    assert_int_equal(model_set(&nodes[1].seen, "c", revision, "new"), STORE_OK);
    uint64_t newer = seen_revision(&nodes[1].seen, STORE_MODELS, "c");
    assert_int_equal(model_set(&nodes[2].seen, "c", revision, "old"), STORE_LOST);
    assert_string_equal(seen_value(&nodes[2].seen, STORE_MODELS, "c"), "new");
    assert_int_equal(seen_revision(&nodes[2].seen, STORE_MODELS, "c"), newer);
    WAIT_UNTIL(seen_revision(&nodes[0].seen, STORE_MODELS, "c") == newer);
}

TEST_CASE(the_first_leads)
{
    /* the incumbent's, before all of ours */
    done(do_put(etcd, PREFIX "leaderLatch/_theirs", "_theirs"));
    join(0, "a");
    WAIT_UNTIL(done(do_get(etcd, PREFIX "leaderLatch/_a"))->responses[0].kv_count == 1);
    join(1, "b");
    rig_wait_ns(300 * NS_PER_MS);
    assert_int_equal(nodes[0].seen.leadership, STORE_FOLLOWS);
    done(do_delete(etcd, PREFIX "leaderLatch/_theirs"));
    WAIT_UNTIL(nodes[0].seen.leadership == STORE_LEADS);
    assert_int_equal(nodes[1].seen.leadership, STORE_FOLLOWS);
    store_leave(nodes[0].seen.store);
    assert_true(store_is_leaving(nodes[0].seen.store));
    WAIT_UNTIL(!store_is_leaving(nodes[0].seen.store));
    assert_value(done(do_get(etcd, PREFIX "leaderLatch/_b")), "_b");
    assert_int_equal(done(do_get(etcd, PREFIX "instances/a"))->responses[0].kv_count, 0);
    WAIT_UNTIL(nodes[1].seen.leadership == STORE_LEADS);
    WAIT_UNTIL(nodes[0].seen.session == 0);
    WAIT_UNTIL(seen_value(&nodes[1].seen, STORE_INSTANCES, "a") == NULL);
    seen_join(&nodes[0].seen, "{}");
    WAIT_UNTIL(done(do_get(etcd, PREFIX "leaderLatch/_a"))->responses[0].kv_count == 1);
    rig_wait_ns(300 * NS_PER_MS);
    assert_int_equal(nodes[0].seen.leadership, STORE_FOLLOWS);
    close_node(&nodes[1]); /* dies: its keys end with the lease */
    WAIT_UNTIL(nodes[0].seen.leadership == STORE_LEADS);
    WAIT_UNTIL(seen_value(&nodes[0].seen, STORE_INSTANCES, "b") == NULL);
}

TEST_CASE(the_lease_is_lost)
{
    struct seen *seen = join(0, "a");
    uint64_t session = seen->session;
    int64_t lease_id = lease_of(PREFIX "instances/a");
    etcd_lease_revoke(etcd, lease_id, to_got(0));
    done(got_wait());
    WAIT_UNTIL(seen->session == 0);
    WAIT_UNTIL(seen->session != 0);
    assert_true(seen->session > session);
    const struct store_change change = {STORE_MODELS, "m", "x", 1};
    size_t ends = seen->ends;
    txn_begin(seen, &(struct store_txn){session, NULL, 0, &change, 1});
    WAIT_UNTIL(seen->ends > ends);
    assert_int_equal(seen->end, STORE_LOST);
    assert_int_equal(model_set(seen, "m", 0, "y"), STORE_OK);
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
    /* the key alone */
    session = seen->session;
    done(do_delete(etcd, PREFIX "instances/a"));
    WAIT_UNTIL(seen->session > session);
    assert_int_equal(model_set(seen, "m", seen_revision(seen, STORE_MODELS, "m"), "z"), STORE_OK);
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
    /* the candidate alone; it may lead again before the test looks */
    size_t demotions = seen->demotions;
    done(do_delete(etcd, PREFIX "leaderLatch/_a"));
    WAIT_UNTIL(seen->demotions > demotions);
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
}

/* A fence that the mirror has not shown yet: the transaction itself finds out. */
TEST_CASE(the_fence_holds)
{
    struct seen *seen = join(0, "a");
    uint64_t session = seen->session;
    const struct store_change change = {STORE_MODELS, "m", "x", 1};
    struct etcd_op op = {.kind = ETCD_DELETE, .range = one(PREFIX "instances/a")};
    etcd_op(etcd, &op, to_got(0));
    size_t ends = seen->ends;
    while (!got.here)
        rig_turn();
    txn_begin(seen, &(struct store_txn){session, NULL, 0, &change, 1});
    WAIT_UNTIL(seen->ends > ends);
    assert_int_equal(seen->end, STORE_LOST);
    assert_int_equal(done(do_get(etcd, PREFIX "registry/m"))->responses[0].kv_count, 0);
    WAIT_UNTIL(seen->session > session);
}

/* A process that died and begins anew need not wait for its own lease; but of two that live under
 * one name the later one stays, and the other one says so. */
TEST_CASE(a_name_twice)
{
    struct seen *first = join(0, "a");
    uint64_t session = first->session;
    struct seen *second = join(1, "a");
    assert_true(second->session > session);
    WAIT_UNTIL(first->session == 0);
    WAIT_UNTIL(first->troubles > 0 && strstr(first->trouble.text, "the instance \"a\"") != NULL);
    assert_int_equal(first->trouble.status, STATUS_ALREADY_EXISTS);
    session = second->session;
    rig_wait_ns(3 * NS_PER_S);
    assert_int_equal(second->session, session);
    assert_int_equal(first->session, 0);
    store_leave(second->store);
    WAIT_UNTIL(first->session > session);
}

TEST_CASE(etcd_stops)
{
    struct seen *seen = join(0, "a");
    assert_int_equal(model_set(seen, "m", 0, "one"), STORE_OK);
    uint64_t revision = seen_revision(seen, STORE_MODELS, "m");
    member_signal(&cluster, 0, SIGSTOP);
    assert_int_equal(model_set(seen, "m", revision, "two"), STORE_UNKNOWN);
    assert_true(seen->error.text[0] != '\0');
    WAIT_UNTIL(seen->session == 0); /* by its own clock, before etcd can */
    assert_int_equal(model_set(seen, "m", revision, "three"), STORE_LOST); /* not sent */
    member_signal(&cluster, 0, SIGCONT);
    WAIT_UNTIL(seen->session != 0);
    WAIT_UNTIL(model_set(seen, "m", seen_revision(seen, STORE_MODELS, "m"), "four") == STORE_OK);
    assert_value(done(do_get(etcd, PREFIX "registry/m")), "four");
    assert_int_equal(seen->emptied, 0);
    assert_true(seen->troubles > 0);
}

/* A deletion during a disconnection is reported at the revision of the next listing.
 */
TEST_CASE(history_is_lost)
{
    proxy = proxy_start(cluster.members[0].client_port);
    struct seen *seen = join(0, "a");
    char key[64];
    for (int i = 0; i < 10; i++) {
        snprintf(key, sizeof(key), PREFIX "registry/m%d", i);
        done(do_put(etcd, key, "x"));
    }
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "m9") != NULL);
    proxy_set(proxy, PROXY_DROP_REQUEST);
    proxy_cut(proxy);
    done(do_delete(etcd, PREFIX "registry/m3"));
    int64_t deleted = done(do_delete(etcd, PREFIX "registry/m4"))->revision;
    int64_t revision = done(do_put(etcd, PREFIX "registry/m5", "y"))->revision;
    etcd_compact(etcd, revision, to_got(0));
    done(got_wait());
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "m3") == NULL);
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "m4") == NULL);
    WAIT_UNTIL(seen->whole >= (uint64_t)revision);
    assert_string_equal(seen_value(seen, STORE_MODELS, "m5"), "y");
    assert_int_equal(seen->emptied, 0);
    /* reported as of the listing, since nobody knows when it was */
    for (size_t i = 0; i < seen->record_count; i++)
        if (strcmp(seen->records[i].id, "m4") == 0)
            assert_true(seen->records[i].revision > (uint64_t)deleted);
}

/* A record that a transaction reported and the mirror never did goes when the mirror has passed it;
 * the own instance, too. */
TEST_CASE(reported_by_answers_alone)
{
    proxy = proxy_start(cluster.members[0].client_port);
    open_as(&nodes[0], "a");
    struct seen *seen = &nodes[0].seen;
    WAIT_UNTIL(seen->wholes > 0);
    done(do_put(etcd, PREFIX "registry/old", "old"));
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "old") != NULL);
    proxy_set(proxy, PROXY_MUTE_WATCHES);
    seen_join(seen, "{}");
    uint64_t session = seen->session;
    assert_int_equal(model_set(seen, "old", 1, "new"), STORE_LOST);
    assert_int_equal(model_set(seen, "m", 0, "x"), STORE_OK);
    assert_int_equal(model_set(seen, "stays", 0, "y"), STORE_OK);
    done(do_delete(etcd, PREFIX "instances/a"));
    int64_t revision = done(do_delete(etcd, PREFIX "registry/m"))->revision;
    etcd_compact(etcd, revision, to_got(0));
    done(got_wait());
    rig_wait_ns(200 * NS_PER_MS);
    assert_int_equal(seen->session, session);
    proxy_set(proxy, PROXY_PASS);
    proxy_cut(proxy);
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "m") == NULL);
    WAIT_UNTIL(seen->session > session);
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
    assert_string_equal(seen_value(seen, STORE_MODELS, "stays"), "y");
    assert_string_equal(seen_value(seen, STORE_MODELS, "old"), "old");
}

/* A fence that fails is news of the session, if the mirror has none. */
TEST_CASE(the_fence_notifies)
{
    proxy = proxy_start(cluster.members[0].client_port);
    struct seen *seen = join(0, "a");
    uint64_t session = seen->session;
    proxy_set(proxy, PROXY_MUTE_WATCHES);
    done(do_delete(etcd, PREFIX "instances/a"));
    rig_wait_ns(200 * NS_PER_MS);
    assert_int_equal(seen->session, session);
    assert_int_equal(model_set(seen, "m", 0, "x"), STORE_LOST);
    WAIT_UNTIL(seen->session > session);
    assert_int_equal(model_set(seen, "m", 0, "x"), STORE_OK);
}

/* The own record is written, and deleted; the latter is reported first. */
TEST_CASE(deleted_before_the_answer)
{
    proxy = proxy_start(cluster.members[0].client_port);
    struct seen *seen = join(0, "a");
    uint64_t session = seen->session;
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
    proxy_set(proxy, PROXY_HOLD_ANSWERS);
    store_set_instance(seen->store, "{\"n\":2}", 7);
    WAIT_UNTIL(strcmp(seen_value(seen, STORE_INSTANCES, "a"), "{\"n\":2}") == 0);
    done(do_delete(etcd, PREFIX "instances/a"));
    WAIT_UNTIL(seen_value(seen, STORE_INSTANCES, "a") == NULL);
    assert_int_equal(seen->session, session);
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(seen->session > session);
    WAIT_UNTIL(seen_value(seen, STORE_INSTANCES, "a") != NULL);
}

/* The key that a listing shows is not the one that we know of. */
TEST_CASE(replaced_unreceived)
{
    proxy = proxy_start(cluster.members[0].client_port);
    struct seen *seen = join(0, "a");
    proxy_set(proxy, PROXY_DROP_REQUEST);
    proxy_cut(proxy);
    done(do_delete(etcd, PREFIX "instances/a"));
    int64_t revision = done(do_put(etcd, PREFIX "instances/a", "stranger"))->revision;
    etcd_compact(etcd, revision, to_got(0));
    done(got_wait());
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(seen->session == 0);
    WAIT_UNTIL(seen->trouble.status == STATUS_ALREADY_EXISTS);
    assert_string_equal(seen_value(seen, STORE_INSTANCES, "a"), "stranger");
    done(do_delete(etcd, PREFIX "instances/a"));
    WAIT_UNTIL(seen->session != 0);
}

TEST_CASE(etcd_is_emptied)
{
    struct seen *seen = join(0, "a");
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            model_set(seen, "m", seen_revision(seen, STORE_MODELS, "m"), i % 2 ? "x" : "y"),
            STORE_OK);
    done(do_put(etcd, PREFIX "registry/n", "n"));
    WAIT_UNTIL(seen_value(seen, STORE_MODELS, "n") != NULL); /* the mirror has reported both */
    member_kill(&cluster, 0);
    member_empty(&cluster, 0);
    member_start(&cluster, 0);
    WAIT_UNTIL(seen->emptied == 1);
    WAIT_UNTIL(seen->session != 0 && seen->wholes > 0 && seen->whole > 0);
    assert_non_null(seen_value(seen, STORE_MODELS, "m")); /* lost: nobody deleted it */
    assert_non_null(seen_value(seen, STORE_MODELS, "n"));
    /* rewritten by its owner */
    assert_int_equal(model_set(seen, "m", 0, "again"), STORE_OK);
    WAIT_UNTIL(seen->leadership == STORE_LEADS);
    assert_int_equal(seen->emptied, 1);
}

TEST_CASE(wrong_options)
{
    struct error error = ERROR_NONE;
    struct store *store = NULL;
    struct store_events events = seen_events(&nodes[0].seen);
    struct store_options options = {"a", &events};
    struct store_etcd_options own = {.etcd = etcd, .prefix = "/mm/svc"};
    assert_int_equal(store_open_etcd(rig_base(), &options, &own, &store, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(error.text, "does not end in a slash"));
    own.prefix = "/mm/svc/";
    own.lease_s = -1;
    assert_int_equal(store_open_etcd(rig_base(), &options, &own, &store, &error),
                     STATUS_INVALID_ARGUMENT);
    own.lease_s = 0;
    options.instance = "";
    assert_int_equal(store_open_etcd(rig_base(), &options, &own, &store, &error),
                     STATUS_INVALID_ARGUMENT);
    assert_null(store);
}

/* ---- each with an etcd of its own ---- */

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
    for (size_t i = 0; i < NODES; i++)
        close_node(&nodes[i]);
    if (proxy != NULL)
        proxy_stop(proxy);
    proxy = NULL;
    etcd_destroy(etcd);
    cluster_stop(&cluster);
    return 0;
}

int
main(void)
{
    int failed = TEST_RUN(.setup = start, .teardown = stop);
    got_fini();
    rig_end();
    return failed;
}
