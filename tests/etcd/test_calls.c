/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outcomes of calls when servers and connections fail: a write whose answer is lost is reported as
 * unknown and never sent again, not even by libcurl on a connection that it used before; what is
 * certain not to have happened is tried on; reads go to the next endpoint; each call ends in its
 * time. Servers are killed and stopped, connections cut by a proxy between.
 */
#include <signal.h>

#include "proxy.h"
#include "rig.h"

static struct cluster cluster;
static struct proxy *proxy;
static struct etcd *etcd; /* through the proxy */

static int
start(void **state)
{
    (void)state;
    cluster_start(&cluster, 1);
    struct etcd *direct =
        rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    done(do_get(direct, "ready"));
    etcd_destroy(direct);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    cluster_stop(&cluster);
    rig_end();
    return 0;
}

static int
begin(void **state)
{
    (void)state;
    if (cluster.members[0].pid == 0) /* a test that failed may have left it so, or stopped */
        member_start(&cluster, 0);
    member_signal(&cluster, 0, SIGCONT);
    proxy = proxy_start(cluster.members[0].client_port);
    etcd = rig_client_of(proxy_url(proxy), (struct etcd_options){.call_timeout_ns = 10 * NS_PER_S});
    return 0;
}

static int
end(void **state)
{
    (void)state;
    etcd_destroy(etcd);
    proxy_stop(proxy);
    return 0;
}

TEST_CASE(lost_answer_is_unknown)
{
    done(do_put(etcd, "lost", "before"));
    proxy_set(proxy, PROXY_DROP_ANSWER);
    assert_fate(do_put(etcd, "lost", "after"), ETCD_UNKNOWN, STATUS_UNAVAILABLE);
    assert_non_null(strstr(got.answer.error.text, "unknown whether the write happened"));
    proxy_set(proxy, PROXY_PASS);
    assert_value(do_get(etcd, "lost"), "after"); /* it did happen */
    assert_int_equal(etcd_figures(etcd)->unknown, 1);
}

/* The first put makes the connection that the second uses: there libcurl would send again. */
TEST_CASE(write_is_sent_once)
{
    int64_t version = 0;
    for (int i = 0; i < 10; i++) {
        done(do_put(etcd, "once", "1"));
        size_t requests = proxy_requests(proxy);
        proxy_set(proxy, i % 2 == 0 ? PROXY_DROP_ANSWER : PROXY_DROP_REQUEST);
        assert_fate(do_put(etcd, "once", "2"), ETCD_UNKNOWN, STATUS_UNAVAILABLE);
        proxy_set(proxy, PROXY_PASS);
        const struct etcd_kv *kv = &done(do_get(etcd, "once"))->responses[0].kvs[0];
        assert_int_equal(kv->version, version + (i % 2 == 0 ? 2 : 1));
        assert_int_equal(proxy_requests(proxy), requests + 2); /* the put, the get */
        version = kv->version;
    }
}

TEST_CASE(reads_are_sent_again)
{
    done(do_put(etcd, "again", "1"));
    proxy_set(proxy, PROXY_DROP_ANSWER);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("again")};
    etcd_op(etcd, &read, to_got(0));
    uint64_t attempts = etcd_figures(etcd)->attempts;
    WAIT_UNTIL(etcd_figures(etcd)->attempts >= attempts + 3);
    assert_false(got.here);
    proxy_set(proxy, PROXY_PASS);
    assert_value(got_wait(), "1");
}

TEST_CASE(silent_server)
{
    proxy_set(proxy, PROXY_SWALLOW);
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("silent"), .value = etcd_text("1")};
    int64_t before_ns = clock_now_ns();
    etcd_op(etcd, &write, to_got(NS_PER_S));
    assert_fate(got_wait(), ETCD_UNKNOWN, STATUS_DEADLINE_EXCEEDED);
    assert_true(clock_now_ns() - before_ns >= NS_PER_S);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("silent")};
    etcd_op(etcd, &read, to_got(NS_PER_S));
    assert_fate(got_wait(), ETCD_NOT_DONE, STATUS_DEADLINE_EXCEEDED);
}

TEST_CASE(server_that_is_stopped)
{
    done(do_put(etcd, "stopped", "1"));
    member_signal(&cluster, 0, SIGSTOP);
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("stopped"), .value = etcd_text("2")};
    etcd_op(etcd, &write, to_got(NS_PER_S / 2));
    assert_fate(got_wait(), ETCD_UNKNOWN, STATUS_DEADLINE_EXCEEDED);
    member_signal(&cluster, 0, SIGCONT);
    done(do_get(etcd, "stopped"));
    assert_true(got.answer.responses[0].kvs[0].version <= 2);
}

/* Nobody listens: that is certain, so it waits for a server that does. */
TEST_CASE(server_that_is_not_there)
{
    struct etcd *direct =
        rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 2 * NS_PER_S});
    done(do_put(direct, "down", "1"));
    member_kill(&cluster, 0);
    assert_fate(do_put(direct, "down", "2"), ETCD_NOT_DONE, STATUS_UNAVAILABLE);
    assert_true(etcd_figures(direct)->attempts > 3);
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("down"), .value = etcd_text("3")};
    etcd_op(direct, &write, to_got(60 * NS_PER_S));
    uint64_t attempts = etcd_figures(direct)->attempts;
    WAIT_UNTIL(etcd_figures(direct)->attempts >= attempts + 2);
    member_start(&cluster, 0);
    got_wait();
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("down")};
    if (got.answer.fate == ETCD_UNKNOWN) /* a server that is starting may say anything */
        printf("unknown: %s\n", got.answer.error.text);
    else
        done(&got.answer);
    etcd_op(direct, &read, to_got(60 * NS_PER_S));
    done(got_wait());
    assert_int_equal(got.answer.responses[0].kvs[0].version, 2);
    etcd_destroy(direct);
}

/* A call with less time than the pause that others' failures have brought is sent all the same. */
TEST_CASE(sent_at_least_once)
{
    struct etcd *paused =
        rig_client_of(proxy_url(proxy), (struct etcd_options){.call_timeout_ns = 4 * NS_PER_S,
                                                              .retry_ns_max = 600 * NS_PER_S});
    proxy_set(proxy, PROXY_DROP_ANSWER);
    assert_int_equal(do_get(paused, "once")->fate, ETCD_NOT_DONE); /* until the pause is longer */
    proxy_set(proxy, PROXY_PASS);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("once")};
    etcd_op(paused, &read, to_got(5 * NS_PER_S / 2));
    done(got_wait());
    etcd_destroy(paused);
}

TEST_CASE(next_endpoint)
{
    struct proxy *other = proxy_start(cluster.members[0].client_port);
    const char *const endpoints[] = {proxy_url(proxy), proxy_url(other)};
    struct etcd_options options = {
        .endpoints = endpoints, .endpoint_count = 2, .call_timeout_ns = 10 * NS_PER_S, .seed = 7};
    struct etcd *two = NULL;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_create(rig_base(), &options, &two, &error), STATUS_OK);
    done(do_put(two, "next", "1"));
    struct proxy *used = proxy_requests(proxy) > 0 ? proxy : other;
    struct proxy *unused = used == proxy ? other : proxy;
    assert_int_equal(proxy_requests(unused), 0);
    assert_string_equal(etcd_endpoint(two), proxy_url(used));
    proxy_set(used, PROXY_SWALLOW);
    assert_value(do_get(two, "next"), "1");
    assert_string_equal(etcd_endpoint(two), proxy_url(unused));
    size_t requests = proxy_requests(used);
    done(do_put(two, "next", "2"));
    assert_int_equal(proxy_requests(used), requests); /* it stays where it works */
    etcd_destroy(two);
    proxy_stop(other);
}

TEST_CASE(long_answer)
{
    struct etcd *small = rig_client(&cluster, (struct etcd_options){.answer_bytes_max = 4096});
    char value[4096];
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    done(do_put(small, "long", value));
    assert_fate(do_get(small, "long"), ETCD_NOT_DONE, STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(etcd_figures(small)->attempts, 2); /* it would be as long again */
    done(do_delete(small, "long"));
    etcd_destroy(small);
}

enum { FULL_AT_ONCE = 8, FULL_VALUE_BYTES = 1 << 20 };

static struct filled {
    enum etcd_fate fate;
    bool full;
} filled[FULL_AT_ONCE];
static size_t filled_count;

static void
on_filled(void *context, const struct etcd_answer *answer)
{
    struct filled *one_put = context;
    one_put->fate = answer->fate;
    one_put->full = strstr(answer->error.text, "database space exceeded") != NULL;
    filled_count++;
}

/* etcd says that its database is full also of the write that filled it, which it has carried out.
 */
TEST_CASE(database_is_full)
{
    struct cluster small = {.args = {"--quota-backend-bytes=16777216"}};
    cluster_start(&small, 1);
    struct etcd *client =
        rig_client(&small, (struct etcd_options){.call_timeout_ns = 60 * NS_PER_S});
    assert_false(etcd_is_full(client));
    char *value = calloc(1, FULL_VALUE_BYTES);
    assert_non_null(value);
    size_t refused = 0;
    size_t carried_out = 0;
    for (int wave = 0; wave < 20 && refused == 0; wave++) {
        char keys[FULL_AT_ONCE][24];
        filled_count = 0;
        for (size_t i = 0; i < FULL_AT_ONCE; i++) {
            snprintf(keys[i], sizeof(keys[i]), "full/%d/%zu", wave, i);
            struct etcd_op write = {
                .kind = ETCD_PUT, .range = one(keys[i]), .value = {value, FULL_VALUE_BYTES}};
            etcd_op(client, &write, (struct etcd_reply){on_filled, &filled[i], 0});
        }
        WAIT_UNTIL(filled_count == FULL_AT_ONCE);
        for (size_t i = 0; i < FULL_AT_ONCE; i++) {
            size_t there = done(do_get(client, keys[i]))->responses[0].kv_count;
            assert_true(filled[i].fate != ETCD_NOT_DONE || there == 0);
            assert_int_equal(filled[i].full, filled[i].fate == ETCD_UNKNOWN);
            refused += filled[i].full;
            carried_out += filled[i].full && there == 1;
        }
    }
    assert_true(refused > 0);
    print_message("refused: %zu; of these carried out: %zu\n", refused, carried_out);
    assert_true(do_put(client, "full/more", "1")->is_full);
    assert_true(etcd_figures(client)->full > refused);
    done(do_delete(client, "full/0/0")); /* this and reads work on, and prove nothing */
    done(do_get(client, "full/0/0"));
    assert_true(etcd_is_full(client));
    free(value);
    etcd_destroy(client);
    cluster_stop(&small);
}

static size_t answers;

static void
count_answer(void *context, const struct etcd_answer *answer)
{
    (void)context;
    done(answer);
    answers++;
}

TEST_CASE(many_at_once)
{
    struct etcd_reply reply = {count_answer, NULL, 60 * NS_PER_S};
    struct etcd_op write = {.kind = ETCD_PUT, .range = one("many"), .value = etcd_text("1")};
    answers = 0;
    for (size_t i = 0; i < 200; i++)
        etcd_op(etcd, &write, reply);
    WAIT_UNTIL(answers == 200);
    assert_in_range(proxy_connections(proxy), 1, 8);
    assert_int_equal(done(do_get(etcd, "many"))->responses[0].kvs[0].version, 200);
}

TEST_CASE(full)
{
    struct etcd_reply reply = {count_answer, NULL, 0};
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("full")};
    proxy_set(proxy, PROXY_SWALLOW);
    for (size_t i = 0; i < ETCD_WAITING_MAX + 8; i++)
        etcd_op(etcd, &read, reply);
    etcd_op(etcd, &read, to_got(0));
    assert_fate(got_wait(), ETCD_NOT_DONE, STATUS_RESOURCE_EXHAUSTED);
} /* the client is destroyed with all of them under way */

TEST_CASE(cancelled)
{
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("cancel")};
    answers = 0;
    proxy_set(proxy, PROXY_SWALLOW);
    struct etcd_call *calls[16];
    for (size_t i = 0; i < ARRAY_COUNT(calls); i++)
        calls[i] = etcd_op(etcd, &read, (struct etcd_reply){count_answer, NULL, 0});
    WAIT_UNTIL(proxy_requests(proxy) == 8); /* the others wait for their turn */
    for (size_t i = ARRAY_COUNT(calls); i > 0; i--)
        etcd_cancel(calls[i - 1]);
    WAIT_UNTIL(proxy_open(proxy) == 0);
    proxy_set(proxy, PROXY_PASS);
    done(do_get(etcd, "cancel"));
    assert_int_equal(answers, 0);
}

TEST_CASE(wrong_options)
{
    static const char *const wrong[] = {
        "127.0.0.1:2379", "ftp://a",    "http://", "http://a/b",
        "http://a b",     "http://u@a", "",        "http://u:s3cret@a:1"};
    struct etcd *none = NULL;
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        struct error error = ERROR_NONE;
        struct etcd_options options = {.endpoints = &wrong[i], .endpoint_count = 1};
        assert_int_equal(etcd_create(rig_base(), &options, &none, &error), STATUS_INVALID_ARGUMENT);
        assert_non_null(strstr(error.text, "http://host:port"));
        assert_null(strstr(error.text, "s3cret"));
    }
    struct error error = ERROR_NONE;
    const char *fine = "http://a:1/";
    struct etcd_options options = {.endpoints = &fine, .endpoint_count = 1, .user = "u"};
    assert_int_equal(etcd_create(rig_base(), &options, &none, &error), STATUS_INVALID_ARGUMENT);
    options = (struct etcd_options){.endpoints = &fine, .endpoint_count = 1, .cert_file = "c"};
    assert_int_equal(etcd_create(rig_base(), &options, &none, &error), STATUS_INVALID_ARGUMENT);
    options = (struct etcd_options){.endpoints = &fine, .endpoint_count = 0};
    assert_int_equal(etcd_create(rig_base(), &options, &none, &error), STATUS_INVALID_ARGUMENT);
}

/* etcd that takes only some host names refuses with a status and a body of its own. */
TEST_CASE(host_is_not_allowed)
{
    struct cluster shy = {.args = {"--host-whitelist=example.org"}};
    cluster_start(&shy, 1);
    struct etcd *client = rig_client(&shy, (struct etcd_options){.call_timeout_ns = 60 * NS_PER_S});
    assert_fate(do_put(client, "a", "1"), ETCD_NOT_DONE, STATUS_INVALID_ARGUMENT);
    if (strstr(got.answer.error.text, "--host-whitelist") == NULL)
        fail_msg("%s", got.answer.error.text);
    etcd_destroy(client);
    cluster_stop(&shy);
}

/* Endpoints of two clusters: the second is not taken for the first. */
TEST_CASE(other_cluster)
{
    struct cluster other = {.args = {"--initial-cluster-token=other"}};
    cluster_start(&other, 1);
    done(do_put(etcd, "cluster", "1"));
    struct proxy *second = proxy_start(other.members[0].client_port);
    const char *const endpoints[] = {proxy_url(proxy), proxy_url(second)};
    struct etcd_options options = {
        .endpoints = endpoints, .endpoint_count = 2, .call_timeout_ns = 60 * NS_PER_S};
    struct etcd *two = NULL;
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_create(rig_base(), &options, &two, &error), STATUS_OK);
    uint64_t cluster_id = done(do_get(two, "cluster"))->cluster_id;
    bool on_first = strcmp(etcd_endpoint(two), proxy_url(proxy)) == 0;
    proxy_set(on_first ? proxy : second, PROXY_SWALLOW);
    struct etcd_op read = {.kind = ETCD_RANGE, .range = one("cluster")};
    etcd_op(two, &read, to_got(5 * NS_PER_S));
    got_wait();
    assert_int_equal(got.answer.fate, ETCD_NOT_DONE);
    proxy_set(on_first ? proxy : second, PROXY_PASS);
    etcd_op(two, &read, to_got(60 * NS_PER_S));
    assert_int_equal(done(got_wait())->cluster_id, cluster_id);
    etcd_destroy(two);
    proxy_stop(second);
    cluster_stop(&other);
}

TEST_MAIN(.setup = begin, .teardown = end, .group_setup = start, .group_teardown = stop)
