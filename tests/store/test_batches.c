/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions that wait for etcd go out together, each with the end that it would have had alone.
 * A proxy holds the answers back, so that two are out and the test knows which ones wait; writes of
 * one revision went out together. With a real etcd, whose limits are small in some cases.
 */
#include "../etcd/proxy.h"
#include "seen.h"

#define PREFIX "/root/mm/svc/"

enum { OUT = 2, WAITING = 40, ALL = OUT + WAITING, ID_MAX = 16, NO_END = -1, BATCH_MAX = 128 };

static struct cluster cluster;
static struct etcd *etcd; /* the test's own eyes and hands */
static struct etcd *client;
static struct proxy *proxy;
static struct seen seen;
static int ends[ALL]; /* enum store_txn_end */
static size_t order[ALL];
static size_t end_count;

static void
open_store(int64_t timeout_ns)
{
    struct error error = ERROR_NONE;
    struct store_events events = seen_events(&seen);
    const struct store_options options = {"n1", &events};
    proxy = proxy_start(cluster.members[0].client_port);
    client = rig_client_of(proxy_url(proxy), (struct etcd_options){0});
    const struct store_etcd_options own = {
        .etcd = client, .prefix = PREFIX, .timeout_ns = timeout_ns, .waiting_max = WAITING};
    if (store_open_etcd(rig_base(), &options, &own, &seen.store, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    seen_join(&seen, "{}");
    WAIT_UNTIL(seen.wholes > 0 && seen.leadership == STORE_LEADS);
    end_count = 0;
    for (size_t i = 0; i < ALL; i++)
        ends[i] = NO_END;
}

static void
start_with(const char *option)
{
    cluster = (struct cluster){.args = {option}};
    cluster_start(&cluster, 1);
    etcd = rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    done(do_get(etcd, "ready"));
    open_store(30 * NS_PER_S);
}

static int
start(void **state)
{
    (void)state;
    start_with(NULL);
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    store_close(seen.store);
    seen_fini(&seen);
    etcd_destroy(client);
    proxy_stop(proxy);
    etcd_destroy(etcd);
    cluster_stop(&cluster);
    return 0;
}

/* ---- transactions ---- */

static const char *
name(size_t index)
{
    static char names[ALL][ID_MAX];
    snprintf(names[index], ID_MAX, "m%zu", index);
    return names[index];
}

static void
on_end(void *context, enum store_txn_end end, const struct error *error)
{
    int *to = context;
    assert_int_equal(end == STORE_OK, error->status == STATUS_OK);
    assert_int_equal(*to, NO_END);
    *to = (int)end;
    order[end_count++] = (size_t)(to - ends);
}

static void
begin(size_t index, const struct store_compare *compare, const struct store_change *change)
{
    struct error error = ERROR_NONE;
    const struct store_txn txn = {seen.session, compare, 1, change, change == NULL ? 0 : 1};
    const struct store_reply reply = {on_end, &ends[index]};
    assert_int_equal(store_txn(seen.store, &txn, reply, &error), STATUS_OK);
}

static void
create(size_t index, const char *id, const char *value)
{
    begin(index, &(struct store_compare){STORE_MODELS, id, 0},
          &(struct store_change){STORE_MODELS, id, value, strlen(value)});
}

/* The first two go out, and are carried out; their answers are held back. */
static void
hold(void)
{
    proxy_set(proxy, PROXY_HOLD_ANSWERS);
    for (size_t i = 0; i < OUT; i++)
        create(i, name(i), "x");
    for (size_t i = 0; i < OUT; i++)
        WAIT_UNTIL(seen_value(&seen, STORE_MODELS, name(i)) != NULL);
    assert_int_equal(end_count, 0);
}

static void
let_go(size_t count)
{
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(end_count == count);
}

static struct store_figures
figures(void)
{
    struct store_figures now;
    store_look(seen.store, &now);
    return now;
}

static uint64_t
revision_of(size_t index)
{
    return seen_revision(&seen, STORE_MODELS, name(index));
}

static bool
is_there(const char *id)
{
    char key[sizeof(PREFIX) + ID_MAX + 16];
    snprintf(key, sizeof(key), PREFIX "registry/%s", id);
    return done(do_get(etcd, key))->responses[0].kv_count == 1;
}

/* ---- cases ---- */

TEST_CASE(those_that_wait_go_together)
{
    hold();
    for (size_t i = OUT; i < ALL; i++)
        create(i, name(i), "x");
    let_go(ALL);
    for (size_t i = 0; i < ALL; i++) {
        assert_int_equal(ends[i], STORE_OK);
        assert_int_equal(seen_created(&seen, STORE_MODELS, name(i)), revision_of(i));
    }
    assert_int_not_equal(revision_of(0), revision_of(1));
    for (size_t i = OUT; i < ALL; i++) {
        assert_int_equal(order[i], i);
        assert_int_equal(revision_of(i), revision_of(OUT));
    }
    assert_int_equal(seen.troubles, 0);
}

/* Those of a batch whose records have changed are lost, and only those. */
TEST_CASE(some_are_lost)
{
    hold();
    done(do_put(etcd, PREFIX "registry/m5", "theirs"));
    done(do_put(etcd, PREFIX "registry/m9", "theirs"));
    for (size_t i = OUT; i < ALL; i++)
        create(i, name(i), "x");
    let_go(ALL);
    for (size_t i = 0; i < ALL; i++) {
        bool stale = i == 5 || i == 9;
        assert_int_equal(ends[i], stale ? STORE_LOST : STORE_OK);
        assert_string_equal(seen_value(&seen, STORE_MODELS, name(i)), stale ? "theirs" : "x");
    }
    assert_int_equal(order[OUT], 5);
    assert_int_equal(order[OUT + 1], 9);
    assert_int_equal(revision_of(ALL - 1), revision_of(OUT));
}

/* A record that was there keeps its creation, and one that is deleted is gone. */
TEST_CASE(records_that_are_there)
{
    assert_int_equal(model_set(&seen, "m2", 0, "old"), STORE_OK);
    assert_int_equal(model_set(&seen, "m3", 0, "old"), STORE_OK);
    uint64_t created = seen_created(&seen, STORE_MODELS, "m2");
    hold();
    begin(2, &(struct store_compare){STORE_MODELS, "m2", revision_of(2)},
          &(struct store_change){STORE_MODELS, "m2", "new", 3});
    begin(3, &(struct store_compare){STORE_MODELS, "m3", revision_of(3)},
          &(struct store_change){STORE_MODELS, "m3", NULL, 0});
    begin(4, &(struct store_compare){STORE_MODELS, "m3", revision_of(3)}, NULL);
    create(5, "m5", "x");
    let_go(6);
    assert_int_equal(ends[2], STORE_OK);
    assert_int_equal(ends[3], STORE_OK);
    assert_int_equal(ends[5], STORE_OK);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "m2"), "new");
    assert_int_equal(seen_created(&seen, STORE_MODELS, "m2"), created);
    assert_int_equal(revision_of(2), revision_of(5));
    assert_null(seen_value(&seen, STORE_MODELS, "m3"));
    WAIT_UNTIL(!is_there("m3"));
}

static void
expect_one_of(size_t one, size_t other)
{
    assert_int_equal((ends[one] == STORE_OK) + (ends[other] == STORE_OK), 1);
    assert_int_equal((ends[one] == STORE_LOST) + (ends[other] == STORE_LOST), 1);
}

/* Each compares what the other changes: whichever is first, the other one is lost. */
TEST_CASE(dependent_ones_see_each_other)
{
    hold();
    begin(2, &(struct store_compare){STORE_MODELS, "x", 0},
          &(struct store_change){STORE_MODELS, "y", "2", 1});
    begin(3, &(struct store_compare){STORE_MODELS, "y", 0},
          &(struct store_change){STORE_MODELS, "x", "3", 1});
    let_go(4);
    expect_one_of(2, 3);
}

TEST_CASE(one_key_twice)
{
    hold();
    create(2, "same", "2");
    create(3, "same", "3");
    create(4, name(4), "x");
    let_go(5);
    expect_one_of(2, 3);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "same"), ends[2] == STORE_OK ? "2" : "3");
    assert_int_equal(ends[4], STORE_OK);
    assert_int_equal(seen.troubles, 0);
}

TEST_CASE(the_session_is_over)
{
    uint64_t session = seen.session;
    hold();
    for (size_t i = OUT; i < ALL; i++)
        create(i, name(i), "x");
    done(do_delete(etcd, PREFIX "instances/n1"));
    let_go(ALL);
    for (size_t i = 0; i < ALL; i++)
        assert_int_equal(ends[i], i < OUT ? STORE_OK : STORE_LOST);
    assert_false(is_there(name(OUT)));
    WAIT_UNTIL(seen.session > session);
    assert_int_equal(model_set(&seen, name(OUT), 0, "x"), STORE_OK);
}

/* All of a batch whose answer is lost end UNKNOWN, and the mirror reports what happened. */
TEST_CASE(the_answer_is_lost)
{
    hold();
    for (size_t i = OUT; i < ALL; i++)
        create(i, name(i), "x");
    proxy_set(proxy, PROXY_DROP_ANSWER);
    WAIT_UNTIL(end_count == ALL);
    proxy_set(proxy, PROXY_PASS);
    for (size_t i = 0; i < ALL; i++) {
        assert_int_equal(ends[i], STORE_UNKNOWN);
        WAIT_UNTIL(seen_value(&seen, STORE_MODELS, name(i)) != NULL);
        assert_int_equal(i < OUT || revision_of(i) == revision_of(OUT), true);
    }
}

/* Nobody answers: those that are out are unknown; the others were not sent, or are unknown. */
TEST_CASE(nobody_answers)
{
    proxy_set(proxy, PROXY_SWALLOW);
    for (size_t i = 0; i < ALL; i++)
        create(i, name(i), "x");
    WAIT_UNTIL(end_count == ALL);
    for (size_t i = 0; i < ALL; i++)
        assert_true(ends[i] == STORE_UNKNOWN || (i >= OUT && ends[i] == STORE_LOST));
    proxy_set(proxy, PROXY_PASS);
    assert_false(is_there(name(0)));
}

static int
start_impatient(void **state)
{
    (void)state;
    start_with(NULL);
    store_close(seen.store);
    seen_fini(&seen);
    etcd_destroy(client);
    proxy_stop(proxy);
    open_store(2 * NS_PER_S);
    return 0;
}

/* ---- an etcd with limits of its own ---- */

static int
start_few_ops(void **state)
{
    (void)state;
    start_with("--max-txn-ops=8");
    return 0;
}

static int
start_small_requests(void **state)
{
    (void)state;
    start_with("--max-request-bytes=20000");
    return 0;
}

/* Members of a refused batch are accepted alone; the next ones go in batches that are taken. */
TEST_CASE(too_much_at_once)
{
    char value[2001];
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    hold();
    for (size_t i = OUT; i < ALL; i++)
        create(i, name(i), value);
    let_go(ALL);
    for (size_t i = 0; i < ALL; i++)
        assert_int_equal(ends[i], STORE_OK);
    assert_int_not_equal(revision_of(ALL - 1), revision_of(ALL - 2));
    assert_int_equal(seen.troubles, 0);
    assert_true(seen.batch_limits > 0);
    assert_int_equal(seen.batch_max, BATCH_MAX >> seen.batch_limits);
    assert_int_equal(figures().batch_max, seen.batch_max);
}

/* One that is too large for etcd is lost, and those that waited with it are not. */
TEST_CASE(one_is_too_large)
{
    char value[30001];
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    hold();
    for (size_t i = OUT; i < 10; i++)
        create(i, name(i), i == 5 ? value : "x");
    let_go(10);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(ends[i], i == 5 ? STORE_LOST : STORE_OK);
    assert_true(seen.troubles > 0);
}

static int
start_small(void **state)
{
    (void)state;
    start_with("--quota-backend-bytes=16777216");
    return 0;
}

static void
fill(void)
{
    enum { BYTES = 1 << 20 };
    char *value = calloc(1, BYTES);
    char key[ID_MAX];
    assert_non_null(value);
    for (size_t i = 0; !etcd_is_full(etcd); i++) {
        snprintf(key, sizeof(key), "full/%zu", i);
        do_op(etcd, (struct etcd_op){.kind = ETCD_PUT, .range = one(key), .value = {value, BYTES}});
        assert_true(i < 100);
    }
    free(value);
}

/* Without space etcd refuses all that put, and takes deletions and compares. */
TEST_CASE(there_is_no_space)
{
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(model_set(&seen, name(10 + i), 0, "x"), STORE_OK);
    hold();
    fill();
    assert_false(etcd_is_full(client));
    for (size_t i = OUT; i < 10; i++)
        create(i, name(i), "x");
    for (size_t i = 10; i < 14; i++)
        begin(i, &(struct store_compare){STORE_MODELS, name(i), revision_of(i)},
              &(struct store_change){STORE_MODELS, name(i), NULL, 0});
    begin(14, &(struct store_compare){STORE_MODELS, "none", 0}, NULL);
    let_go(15);
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(ends[i], i >= OUT && i < 10 ? STORE_FULL : STORE_OK);
    for (size_t i = OUT; i < 14; i++)
        assert_false(is_there(name(i)));
    assert_true(etcd_is_full(client));
    /* each by itself from here on */
    proxy_set(proxy, PROXY_HOLD_ANSWERS);
    for (size_t i = 0; i < 6; i++) {
        ends[i] = NO_END;
        create(i, name(20 + i), "x");
    }
    let_go(15 + 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(ends[i], STORE_FULL);
    assert_int_equal(seen.fulls, 0); /* each was reported by its end */
}

/* Nor does it grant a lease: a store that is opened then reports that at each try. */
TEST_CASE(there_is_no_space_for_a_lease)
{
    fill();
    store_leave(seen.store);
    WAIT_UNTIL(seen.session == 0);
    store_set_instance(seen.store, "{}", 2);
    WAIT_UNTIL(seen.fulls >= 2);
    assert_true(seen.troubles >= seen.fulls);
}

/* ---- limits of our own, and the end ---- */

static size_t oks, busies;

static void
count_end(void *context, enum store_txn_end end, const struct error *error)
{
    (void)context;
    oks += end == STORE_OK;
    busies += end == STORE_BUSY && strcmp(error->text, "too many writes are waiting for etcd") == 0;
}

/* Transactions beyond waiting_max end at once; the others are carried out in their turn. */
TEST_CASE(too_many_wait)
{
    struct error error = ERROR_NONE;
    const struct store_compare compare = {STORE_MODELS, "none", 0};
    const struct store_txn txn = {seen.session, &compare, 1, NULL, 0};
    oks = busies = 0;
    hold();
    assert_int_equal(figures().waiting, 0);
    for (size_t i = 0; i < WAITING + 3; i++)
        assert_int_equal(store_txn(seen.store, &txn, (struct store_reply){count_end, NULL}, &error),
                         STATUS_OK);
    assert_int_equal(busies, 0); /* never from within */
    WAIT_UNTIL(busies == 3);
    assert_int_equal(oks, 0);
    assert_int_equal(figures().waiting, WAITING);
    assert_int_equal(figures().busy, 3);
    assert_int_equal(figures().batch_max, BATCH_MAX);
    let_go(OUT);
    WAIT_UNTIL(oks == WAITING);
    assert_int_equal(figures().waiting, 0);
}

TEST_CASE(closed_while_they_wait)
{
    hold();
    for (size_t i = OUT; i < ALL; i++)
        create(i, name(i), "x");
    store_close(seen.store);
    seen_fini(&seen);
    proxy_set(proxy, PROXY_PASS);
    rig_turn();
    assert_int_equal(end_count, 0);
    struct error error = ERROR_NONE;
    struct store_events events = seen_events(&seen);
    assert_int_equal(
        store_open_memory(rig_base(), &(struct store_options){"n1", &events}, &seen.store, &error),
        STATUS_OK);
}

#define CASE(name, begin) cmocka_unit_test_setup_teardown(name, begin, stop)

int
main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(those_that_wait_go_together, start),
        CASE(some_are_lost, start),
        CASE(records_that_are_there, start),
        CASE(dependent_ones_see_each_other, start),
        CASE(one_key_twice, start),
        CASE(the_session_is_over, start),
        CASE(the_answer_is_lost, start),
        CASE(nobody_answers, start_impatient),
        CASE(too_much_at_once, start_few_ops),
        CASE(too_much_at_once, start_small_requests),
        CASE(one_is_too_large, start_small_requests),
        CASE(there_is_no_space, start_small),
        CASE(there_is_no_space_for_a_lease, start_small),
        CASE(too_many_wait, start),
        CASE(closed_while_they_wait, start),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    rig_end();
    return failed;
}
