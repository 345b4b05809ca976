/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One contract over all stores: each case runs in memory, in a file and in a real etcd.
 * Transactions happen as a whole or not at all, for their session alone, and the records as they
 * are come before the answer; the own instance's record is the session; refusals have a text.
 */
#include "seen.h"

enum kind { MEMORY, A_FILE, ETCD, KINDS };

static struct cluster cluster;
static struct etcd *etcd;
static char folder[64];
static struct seen seen;
static enum kind kind;
static int number; /* of the case: each has keys and a file of its own */

static void
open_store(void)
{
    struct error error = ERROR_NONE;
    struct store_events events = seen_events(&seen);
    const struct store_options options = {"n1", &events};
    char text[128];
    enum status status = STATUS_OK;
    switch (kind) {
    case MEMORY: status = store_open_memory(rig_base(), &options, &seen.store, &error); break;
    case A_FILE:
        snprintf(text, sizeof(text), "%s/%d", folder, number);
        status = store_open_file(rig_base(), &options, text, &seen.store, &error);
        break;
    default:
        snprintf(text, sizeof(text), "/root/mm/s%d/", number);
        status = store_open_etcd(
            rig_base(), &options,
            &(struct store_etcd_options){.etcd = etcd, .prefix = text, .timeout_ns = 30 * NS_PER_S},
            &seen.store, &error);
        break;
    }
    if (status != STATUS_OK)
        fail_msg("%s", error.text);
    assert_int_equal(seen.wholes, 0);
}

static void
close_store(void)
{
    store_close(seen.store);
    seen_fini(&seen);
}

/* ---- cases ---- */

static void
begins(void)
{
    static const char *const names[KINDS] = {"memory", "file", "etcd"};
    assert_string_equal(store_kind(seen.store), names[kind]);
    assert_int_equal(store_session(seen.store), 0);
    WAIT_UNTIL(seen.wholes > 0);
    assert_int_equal(seen.record_count, 0);
    assert_int_equal(seen.session, 0); /* nobody asked for one */
    assert_int_equal(model_set(&seen, "m", 0, "{}"), STORE_LOST);
    seen_join(&seen, "{\"loc\":\"here\"}");
    assert_string_equal(seen_value(&seen, STORE_INSTANCES, "n1"), "{\"loc\":\"here\"}");
    assert_int_equal(seen_created(&seen, STORE_INSTANCES, "n1"), seen.session);
    char leader[STORE_ID_BYTES_MAX + 1];
    WAIT_UNTIL(seen.leadership == STORE_LEADS);
    assert_true(store_leader(seen.store, leader));
    assert_string_equal(leader, "n1");
    WAIT_UNTIL(seen.whole >= 1);
}

static void
life_of_a_record(void)
{
    seen_join(&seen, "{}");
    assert_int_equal(model_set(&seen, "m", 0, "one"), STORE_OK);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "m"), "one");
    uint64_t created = seen_created(&seen, STORE_MODELS, "m");
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "m"), created);
    assert_true(created > seen.session);
    assert_int_equal(model_set(&seen, "m", 0, "two"), STORE_LOST);
    assert_int_equal(model_set(&seen, "m", created, "three"), STORE_OK);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "m"), "three");
    assert_int_equal(seen_created(&seen, STORE_MODELS, "m"), created);
    uint64_t changed = seen_revision(&seen, STORE_MODELS, "m");
    assert_true(changed > created);
    assert_int_equal(model_set(&seen, "m", created, NULL), STORE_LOST);
    assert_int_equal(model_set(&seen, "m", changed, NULL), STORE_OK);
    assert_null(seen_value(&seen, STORE_MODELS, "m"));
    assert_int_equal(model_set(&seen, "m", changed, "four"), STORE_LOST);
    assert_int_equal(model_set(&seen, "m", 0, "five"), STORE_OK);
    assert_true(seen_created(&seen, STORE_MODELS, "m") > changed);
}

/* The loser has been shown what is there, though it had forgotten it. */
static void
lost_shows_what_is(void)
{
    seen_join(&seen, "{}");
    assert_int_equal(model_set(&seen, "m", 0, "one"), STORE_OK);
    uint64_t revision = seen_revision(&seen, STORE_MODELS, "m");
    seen.records[seen.record_count - 1].revision = 0;
    free(seen.records[seen.record_count - 1].value);
    seen.records[seen.record_count - 1].value = NULL;
    size_t gones = seen.gones;
    const struct store_compare compares[] = {{STORE_MODELS, "m", revision + 7},
                                             {STORE_VMODELS, "not", 0}};
    assert_int_equal(txn_run(&seen, compares, 2, NULL, 0), STORE_LOST);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "m"), "one");
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "m"), revision);
    assert_true(seen.gones > gones);
}

static void
several_at_once(void)
{
    seen_join(&seen, "{}");
    assert_int_equal(model_set(&seen, "a", 0, "a1"), STORE_OK);
    uint64_t revision = seen_revision(&seen, STORE_MODELS, "a");
    const struct store_compare compares[] = {{STORE_VMODELS, "v", 0},
                                             {STORE_MODELS, "a", revision},
                                             {STORE_MODELS, "b", 0},
                                             {STORE_INSTANCES, "other", 0}};
    const struct store_change changes[] = {{STORE_VMODELS, "v", "v1", 2},
                                           {STORE_MODELS, "a", NULL, 0},
                                           {STORE_MODELS, "b", "b1", 2},
                                           {STORE_CONFIG, "c", "", 0}};
    assert_int_equal(txn_run(&seen, compares, 4, changes, 4), STORE_OK);
    assert_string_equal(seen_value(&seen, STORE_VMODELS, "v"), "v1");
    assert_string_equal(seen_value(&seen, STORE_CONFIG, "c"), "");
    assert_null(seen_value(&seen, STORE_MODELS, "a"));
    uint64_t of = seen_revision(&seen, STORE_VMODELS, "v");
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "b"), of);
    assert_true(of > revision);
    /* one compare of several does not hold: nothing of it happens */
    assert_int_equal(txn_run(&seen, compares, 4, changes, 4), STORE_LOST);
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "b"), of);
}

static void
of_its_session_alone(void)
{
    seen_join(&seen, "{}");
    const struct store_change change = {STORE_MODELS, "m", "x", 1};
    size_t ends = seen.ends;
    txn_begin(&seen, &(struct store_txn){seen.session + 1, NULL, 0, &change, 1});
    WAIT_UNTIL(seen.ends == ends + 1);
    assert_int_equal(seen.end, STORE_LOST);
    assert_null(seen_value(&seen, STORE_MODELS, "m"));
    const struct store_compare alive = {STORE_INSTANCES, "n1", 0};
    assert_int_equal(txn_run(&seen, &alive, 1, &change, 1), STORE_LOST);
    assert_int_equal(txn_run(&seen, NULL, 0, &change, 1), STORE_OK);
}

static void
own_instance(void)
{
    seen_join(&seen, "{\"n\":1}");
    uint64_t session = seen.session;
    store_set_instance(seen.store, "{\"n\":2}", 7);
    store_set_instance(seen.store, "{\"n\":3}", 7);
    store_set_instance(seen.store, "{\"n\":4}", 7);
    WAIT_UNTIL(strcmp(seen_value(&seen, STORE_INSTANCES, "n1"), "{\"n\":4}") == 0);
    assert_int_equal(seen_created(&seen, STORE_INSTANCES, "n1"), session);
    assert_int_equal(seen.session, session);
    assert_int_equal(model_set(&seen, "m", 0, "x"), STORE_OK); /* it is the same session */
    WAIT_UNTIL(seen.leadership == STORE_LEADS);
    store_leave(seen.store);
    WAIT_UNTIL(seen.session == 0);
    assert_int_equal(seen.leadership, STORE_FOLLOWS);
    WAIT_UNTIL(seen_value(&seen, STORE_INSTANCES, "n1") == NULL);
    assert_int_equal(model_set(&seen, "m", 0, "y"), STORE_LOST);
    seen_join(&seen, "{\"n\":5}");
    assert_true(seen.session > session);
    assert_int_equal(seen.sessions, 2);
    WAIT_UNTIL(seen.leadership == STORE_LEADS);
    assert_string_equal(seen_value(&seen, STORE_INSTANCES, "n1"), "{\"n\":5}");
}

/* Left and wanted again before the one has happened. */
static void
leaves_and_joins(void)
{
    seen_join(&seen, "{\"n\":1}");
    uint64_t session = seen.session;
    store_leave(seen.store);
    store_set_instance(seen.store, "{\"n\":2}", 7);
    WAIT_UNTIL(seen.sessions == 2 && seen.session != 0);
    assert_true(seen.session > session);
    assert_int_equal(model_set(&seen, "m", 0, "x"), STORE_OK);
    store_set_instance(seen.store, "{\"n\":3}", 7);
    store_leave(seen.store);
    WAIT_UNTIL(seen.session == 0);
    store_leave(seen.store);
    assert_int_equal(model_set(&seen, "m", 0, "x"), STORE_LOST);
    assert_int_equal(seen.session, 0);
}

static void
any_bytes(void)
{
    char id[STORE_ID_BYTES_MAX + 1];
    memset(id, 'i', sizeof(id) - 1);
    id[STORE_ID_BYTES_MAX] = '\0';
    seen_join(&seen, "{}");
    static const char *const ids[] = {"a/b", "/", "größe \xff\x01", "%2F", "m__ksp-0123456789"};
    for (size_t i = 0; i < ARRAY_COUNT(ids); i++)
        assert_int_equal(model_set(&seen, ids[i], 0, ids[i]), STORE_OK);
    for (size_t i = 0; i < ARRAY_COUNT(ids); i++)
        assert_string_equal(seen_value(&seen, STORE_MODELS, ids[i]), ids[i]);
    assert_int_equal(model_set(&seen, id, 0, "long"), STORE_OK);
    enum { LARGE = 900 * 1000 };
    char *value = malloc(LARGE);
    assert_non_null(value);
    for (size_t i = 0; i < LARGE; i++)
        value[i] = (char)(i * 7);
    const struct store_change change = {STORE_MODELS, "large", value, LARGE};
    assert_int_equal(txn_run(&seen, NULL, 0, &change, 1), STORE_OK);
    const char *large = seen_value(&seen, STORE_MODELS, "large");
    assert_non_null(large);
    assert_memory_equal(large, value, LARGE);
    free(value);
}

static void
many_at_once(void)
{
    enum { COUNT = 100 };
    struct store_txn txn = {.compare_count = 1, .change_count = 1};
    seen_join(&seen, "{}");
    size_t ends = seen.ends;
    for (int i = 0; i < COUNT; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        const struct store_compare compare = {STORE_MODELS, id, 0};
        const struct store_change change = {STORE_MODELS, id, id, strlen(id)};
        txn.session = seen.session;
        txn.compares = &compare;
        txn.changes = &change;
        txn_begin(&seen, &txn);
    }
    WAIT_UNTIL(seen.ends == ends + COUNT);
    for (int i = 0; i < COUNT; i++) {
        char id[16];
        snprintf(id, sizeof(id), "m%d", i);
        assert_string_equal(seen_value(&seen, STORE_MODELS, id), id);
    }
}

enum { PARTS = 32 }; /* the most compares, and changes, of a transaction */

static const char *
part_id(size_t index, size_t part)
{
    static char id[16];
    snprintf(id, sizeof(id), "m%zu-%zu", index, part);
    return id;
}

static uint64_t
part_revision(size_t index)
{
    return seen_revision(&seen, STORE_MODELS, part_id(index, 0));
}

/* Changes the first `changes` of its records: puts `puts` of them and deletes the others. */
static void
begin_large(size_t index, size_t compares, size_t changes, size_t puts)
{
    char ids[PARTS][16];
    struct store_compare compared[PARTS];
    struct store_change changed[PARTS];
    for (size_t i = 0; i < PARTS; i++) {
        snprintf(ids[i], sizeof(ids[i]), "%s", part_id(index, i));
        compared[i] = (struct store_compare){STORE_MODELS, ids[i], 0};
        changed[i] = (struct store_change){STORE_MODELS, ids[i], i < puts ? "x" : NULL, i < puts};
    }
    txn_begin(&seen, &(struct store_txn){seen.session, compared, compares, changed, changes});
}

/* etcd's default is 128 compares and 128 operations: a batch has as many (B3), and no more. */
static void
large_ones_at_once(void)
{
    seen_join(&seen, "{}");
    size_t ends = seen.ends;
    for (size_t i = 0; i < 2; i++)
        begin_large(i, 1, 0, 0); /* they go to etcd alone, and the others wait meanwhile */
    for (size_t i = 2; i < 5; i++)
        begin_large(i, PARTS, PARTS, PARTS);
    begin_large(5, PARTS - 1, PARTS, PARTS - 1); /* the session has a compare, too */
    for (size_t i = 6; i < 9; i++)
        begin_large(i, 0, PARTS, PARTS); /* two operations each: such a put is read, too */
    for (size_t i = 9; i < 13; i++)
        begin_large(i, PARTS, 0, 0);
    WAIT_UNTIL(seen.ends == ends + 13);
    for (size_t i = 2; i < 9; i++)
        assert_true(part_revision(i) != 0);
    assert_int_equal(part_revision(2) == part_revision(5), kind == ETCD);
    assert_int_not_equal(part_revision(5), part_revision(6));
    assert_int_equal(part_revision(6) == part_revision(7), kind == ETCD);
    assert_int_not_equal(part_revision(7), part_revision(8));
    assert_int_equal(seen.batch_limits, 0);
    assert_int_equal(seen.troubles, 0);
}

/* Both compare the same revision: one of them happens. */
static void
one_of_two(void)
{
    const struct store_compare compare = {STORE_MODELS, "m", 0};
    const struct store_change changes[] = {{STORE_MODELS, "m", "first", 5},
                                           {STORE_MODELS, "m", "other", 5}};
    seen_join(&seen, "{}");
    size_t ends = seen.ends;
    struct seen *to = &seen;
    txn_begin(to, &(struct store_txn){seen.session, &compare, 1, &changes[0], 1});
    txn_begin(to, &(struct store_txn){seen.session, &compare, 1, &changes[1], 1});
    WAIT_UNTIL(seen.ends == ends + 2);
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "m"),
                     seen_created(&seen, STORE_MODELS, "m"));
}

static void
refused(const struct store_txn *txn, const char *text)
{
    struct error error = ERROR_NONE;
    assert_int_equal(store_txn(seen.store, txn, (struct store_reply){0}, &error),
                     STATUS_INVALID_ARGUMENT);
    if (strstr(error.text, text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", error.text, text);
}

static void
limits(void)
{
    static struct store_compare compares[STORE_COMPARES_MAX + 1];
    static struct store_change changes[STORE_CHANGES_MAX];
    static char ids[STORE_CHANGES_MAX][8];
    static char long_id[STORE_ID_BYTES_MAX + 2];
    seen_join(&seen, "{}");
    for (size_t i = 0; i <= STORE_COMPARES_MAX; i++)
        compares[i] = (struct store_compare){STORE_MODELS, "none", 0};
    for (size_t i = 0; i < STORE_CHANGES_MAX; i++) {
        snprintf(ids[i], sizeof(ids[i]), "m%zu", i);
        changes[i] = (struct store_change){STORE_MODELS, ids[i], "x", 1};
    }
    memset(long_id, 'x', sizeof(long_id) - 1);
    refused(&(struct store_txn){1, compares, STORE_COMPARES_MAX + 1, NULL, 0},
            "33 compares and 0 changes; at most 32 and 32 are taken");
    refused(&(struct store_txn){1, &(struct store_compare){STORE_MODELS, "", 0}, 1, NULL, 0},
            "an id has 0 bytes, not 1 to 1024");
    refused(
        &(struct store_txn){1, NULL, 0, &(struct store_change){STORE_MODELS, long_id, "", 0}, 1},
        "an id has 1025 bytes");
    refused(
        &(struct store_txn){1, NULL, 0, &(struct store_change){STORE_INSTANCES, "n1", "", 0}, 1},
        "cannot change instances");
    refused(&(struct store_txn){1, NULL, 0,
                                &(struct store_change){STORE_MODELS, "m", "",
                                                       STORE_VALUE_BYTES_MAX + 1},
                                1},
            "the value of \"m\" has 1048577 bytes; at most 1048576 are taken");
    changes[5].id = "m4";
    refused(&(struct store_txn){1, NULL, 0, changes, STORE_CHANGES_MAX}, "\"m4\" is changed twice");
    changes[5].id = ids[5];
    /* as many as may be */
    assert_int_equal(txn_run(&seen, compares, STORE_COMPARES_MAX, changes, STORE_CHANGES_MAX),
                     STORE_OK);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "m31"), "x");
}

static void
opened_again(void)
{
    if (kind == MEMORY)
        return;
    seen_join(&seen, "{}");
    assert_int_equal(model_set(&seen, "gone", 0, "x"), STORE_OK);
    assert_int_equal(model_set(&seen, "m", 0, "one"), STORE_OK);
    uint64_t created = seen_created(&seen, STORE_MODELS, "m");
    assert_int_equal(model_set(&seen, "m", created, "two"), STORE_OK);
    uint64_t revision = seen_revision(&seen, STORE_MODELS, "m");
    assert_int_equal(model_set(&seen, "gone", seen_revision(&seen, STORE_MODELS, "gone"), NULL),
                     STORE_OK);
    uint64_t session = seen.session;
    close_store();
    open_store();
    WAIT_UNTIL(seen.wholes > 0);
    assert_string_equal(seen_value(&seen, STORE_MODELS, "m"), "two");
    assert_int_equal(seen_created(&seen, STORE_MODELS, "m"), created);
    assert_int_equal(seen_revision(&seen, STORE_MODELS, "m"), revision);
    assert_null(seen_value(&seen, STORE_MODELS, "gone"));
    seen_join(&seen, "{}"); /* at once, though the last one's lease has not ended */
    assert_true(seen.session > session && seen.session > revision);
    assert_int_equal(model_set(&seen, "m", revision, "three"), STORE_OK);
}

/* Nothing is said any more. */
static void
closed_amid(void)
{
    const struct store_change change = {STORE_MODELS, "m", "x", 1};
    seen_join(&seen, "{}");
    size_t ends = seen.ends;
    txn_begin(&seen, &(struct store_txn){seen.session, NULL, 0, &change, 1});
    txn_begin(&seen, &(struct store_txn){seen.session + 1, NULL, 0, &change, 1});
    store_set_instance(seen.store, "{\"more\":1}", 10);
    store_close(seen.store);
    rig_wait_ns(200 * NS_PER_MS);
    assert_int_equal(seen.ends, ends);
    seen_fini(&seen);
    open_store();
}

/* ---- running them ---- */

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {
    {"begins", begins},
    {"life_of_a_record", life_of_a_record},
    {"lost_shows_what_is", lost_shows_what_is},
    {"several_at_once", several_at_once},
    {"of_its_session_alone", of_its_session_alone},
    {"own_instance", own_instance},
    {"leaves_and_joins", leaves_and_joins},
    {"any_bytes", any_bytes},
    {"many_at_once", many_at_once},
    {"large_ones_at_once", large_ones_at_once},
    {"one_of_two", one_of_two},
    {"limits", limits},
    {"opened_again", opened_again},
    {"closed_amid", closed_amid},
};

static int
start(void **state)
{
    (void)state;
    snprintf(folder, sizeof(folder), "/tmp/shoal-store-XXXXXX");
    assert_non_null(mkdtemp(folder));
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
    run("rm -r %s", folder);
    got_fini();
    rig_end();
    return 0;
}

TEST_CASE(test_case)
{
    size_t at = (size_t)(uintptr_t)*state;
    kind = (enum kind)(at % KINDS);
    number = (int)at;
    open_store();
    cases[at / KINDS].run();
    close_store();
}

int
main(void)
{
    static const char *const names[KINDS] = {"memory", "file", "etcd"};
    static char texts[ARRAY_COUNT(cases) * KINDS][64];
    struct CMUnitTest tests[ARRAY_COUNT(cases) * KINDS];
    for (size_t i = 0; i < ARRAY_COUNT(tests); i++) {
        snprintf(texts[i], sizeof(texts[i]), "%s: %s", names[i % KINDS], cases[i / KINDS].name);
        tests[i] = (struct CMUnitTest){
            .name = texts[i], .test_func = test_case, .initial_state = (void *)(uintptr_t)i};
    }
    return _cmocka_run_group_tests("store", tests, ARRAY_COUNT(tests), start, stop);
}
