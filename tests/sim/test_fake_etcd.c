/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's etcd keeps the contract that libetcd keeps with a real one: the same suite
 * (tests/etcd/contract.c), answered a turn later. Then what only a model can do at will: be
 * silent, without a leader, or empty; and what leases and watches make of that.
 */
#include "../etcd/contract.h"
#include "fake_etcd.h"

enum { TURN_MS = 50, LATER_MAX = 8, WATCHES_MAX = 4 };

struct store_watch {
    struct fake_watch *watch;
    struct etcd_watch_options options;
    bool open;
};

/* The suite's store: answers and events come when the suite lets time pass. */
struct fake_store {
    struct fake_etcd *etcd;
    int64_t now_ms;
    struct {
        const struct etcd_answer *answer;
        struct etcd_reply reply;
    } later[LATER_MAX];
    size_t count;
    struct store_watch watches[WATCHES_MAX];
};

static struct fake_store store;

static struct etcd_call *
answer_later(const struct etcd_answer *answer, struct etcd_reply reply)
{
    assert_non_null(answer);
    assert_true(store.count < LATER_MAX);
    store.later[store.count].answer = answer;
    store.later[store.count++].reply = reply;
    return NULL;
}

static struct etcd_call *
fake_op(void *of, const struct etcd_op *op, struct etcd_reply reply)
{
    (void)of;
    return answer_later(fake_etcd_op(store.etcd, op), reply);
}

static struct etcd_call *
fake_txn(void *of, const struct etcd_txn *txn, struct etcd_reply reply)
{
    (void)of;
    return answer_later(fake_etcd_txn(store.etcd, txn), reply);
}

static struct etcd_call *
fake_compact(void *of, int64_t revision, struct etcd_reply reply)
{
    (void)of;
    return answer_later(fake_etcd_compact(store.etcd, revision), reply);
}

static struct etcd_call *
fake_grant(void *of, int64_t ttl_s, int64_t lease_id, struct etcd_reply reply)
{
    (void)of;
    return answer_later(fake_etcd_grant(store.etcd, ttl_s, lease_id), reply);
}

static struct etcd_call *
fake_renew(void *of, int64_t lease_id, struct etcd_reply reply)
{
    (void)of;
    return answer_later(fake_etcd_renew(store.etcd, lease_id), reply);
}

static struct etcd_call *
fake_revoke(void *of, int64_t lease_id, struct etcd_reply reply)
{
    (void)of;
    return answer_later(fake_etcd_revoke(store.etcd, lease_id), reply);
}

static void *
fake_watch(void *of, const struct etcd_watch_options *options)
{
    (void)of;
    size_t i = 0;
    while (store.watches[i].watch != NULL)
        assert_true(++i < WATCHES_MAX);
    store.watches[i] = (struct store_watch){
        .watch =
            fake_watch_open(store.etcd, options->ranges, options->range_count, options->revision),
        .options = *options,
    };
    return &store.watches[i];
}

static void
fake_close(void *of, void *watch)
{
    (void)of;
    struct store_watch *closed = watch;
    fake_watch_close(closed->watch);
    closed->watch = NULL;
}

static void
show(struct store_watch *watch)
{
    const struct etcd_watch_options *options = &watch->options;
    struct fake_events events;
    if (!watch->open && options->on_open != NULL)
        options->on_open(options->context);
    watch->open = true;
    enum fake_news news = FAKE_NOTHING;
    while (watch->watch != NULL && (news = fake_watch_next(watch->watch, &events)) == FAKE_EVENTS)
        options->on_events(options->context, events.range_index, events.events, events.count);
    if (watch->watch == NULL)
        return; /* closed by its owner */
    if (news == FAKE_NOTHING) {
        for (size_t i = 0; i < options->range_count; i++)
            options->on_progress(options->context, i, fake_watch_revision(watch->watch));
        return;
    }
    struct error error = {.text = "its history is gone"};
    options->on_end(options->context,
                    news == FAKE_COMPACTED ? ETCD_WATCH_COMPACTED : ETCD_WATCH_BEHIND, &error);
}

static void
fake_turn(void *of)
{
    (void)of;
    store.now_ms += TURN_MS;
    fake_etcd_advance(store.etcd, store.now_ms);
    size_t count = store.count;
    store.count = 0;
    for (size_t i = 0; i < count; i++)
        store.later[i].reply.on_answer(store.later[i].reply.context, store.later[i].answer);
    for (size_t i = 0; i < WATCHES_MAX; i++)
        if (store.watches[i].watch != NULL)
            show(&store.watches[i]);
}

static int
start(void **state)
{
    (void)state;
    store = (struct fake_store){.etcd = fake_etcd_create()};
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    fake_etcd_destroy(store.etcd);
    got_fini();
    return 0;
}

TEST_CASE(test_case)
{
    const struct contract_case *one_case = *state;
    struct contract contract = {&store,     fake_op,     fake_txn,   fake_compact, fake_grant,
                                fake_renew, fake_revoke, fake_watch, fake_close,   fake_turn};
    one_case->run(&contract);
    while (one_case->name != NULL)
        one_case++;
    one_case->run(&contract);
}

/* ---- its faults ---- */

static int64_t
put_leased(const char *key, int64_t lease_id)
{
    struct etcd_op put = {.kind = ETCD_PUT, .range = one(key), .lease_id = lease_id};
    return done(fake_etcd_op(store.etcd, &put))->revision;
}

static bool
is_there(const char *key)
{
    struct etcd_kv kv;
    return fake_etcd_look(store.etcd, etcd_text(key), INT64_MAX, &kv);
}

TEST_CASE(test_unwell)
{
    int64_t lease_id = done(fake_etcd_grant(store.etcd, 10, 0))->lease_id;
    put_leased("c/leased", lease_id);
    fake_etcd_set_health(store.etcd, FAKE_SILENT);
    struct etcd_op get = {.kind = ETCD_RANGE, .range = one("c/leased")};
    assert_null(fake_etcd_op(store.etcd, &get));
    assert_null(fake_etcd_renew(store.etcd, lease_id));
    fake_etcd_set_health(store.etcd, FAKE_NO_LEADER);
    assert_fate(fake_etcd_op(store.etcd, &get), ETCD_NOT_DONE, STATUS_UNAVAILABLE);
    assert_fate(fake_etcd_txn(store.etcd, &(struct etcd_txn){.compares = NULL}), ETCD_NOT_DONE,
                STATUS_UNAVAILABLE);
    get.freshness = ETCD_SERIALIZABLE;
    assert_int_equal(done(fake_etcd_op(store.etcd, &get))->responses[0].kv_count, 1);
    fake_etcd_advance(store.etcd, store.now_ms + 60000); /* nobody ends leases meanwhile */
    assert_true(is_there("c/leased"));
    fake_etcd_set_health(store.etcd, FAKE_WELL); /* and they begin anew */
    fake_etcd_advance(store.etcd, store.now_ms + 69000);
    assert_true(is_there("c/leased"));
    fake_etcd_advance(store.etcd, store.now_ms + 70001);
    assert_false(is_there("c/leased"));
    store.now_ms += 70001;
}

TEST_CASE(test_emptied)
{
    struct etcd_range range = prefix("c/");
    struct fake_events events;
    put_leased("c/a", 0);
    struct fake_watch *watch = fake_watch_open(store.etcd, &range, 1, 0);
    assert_int_equal(fake_watch_next(watch, &events), FAKE_NOTHING);
    uint64_t history = done(fake_etcd_grant(store.etcd, 10, 77))->history;
    fake_etcd_empty(store.etcd);
    assert_int_equal(fake_watch_next(watch, &events), FAKE_BEHIND);
    assert_false(is_there("c/a"));
    assert_true(done(fake_etcd_grant(store.etcd, 10, 77))->history > history);
    int64_t first = put_leased("c/b", 77);
    assert_int_equal(first, 2);
    watch = fake_watch_open(store.etcd, &range, 1, first + 5);
    assert_int_equal(fake_watch_next(watch, &events), FAKE_BEHIND);
}

int
main(void)
{
    struct CMUnitTest tests[64];
    size_t count = 0;
    for (; contract_cases[count].name != NULL; count++) {
        assert_true(count < ARRAY_COUNT(tests) - 2);
        tests[count] = (struct CMUnitTest){
            .name = contract_cases[count].name,
            .test_func = test_case,
            .initial_state = (void *)(uintptr_t)&contract_cases[count],
        };
    }
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_unwell);
    tests[count++] = (struct CMUnitTest)cmocka_unit_test(test_emptied);
    return _cmocka_run_group_tests("fake_etcd", tests, count, start, stop);
}
