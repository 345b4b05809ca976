/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mirror equals etcd at the revision that it claims, under all faults: random writes while the
 * connection is cut, etcd is killed, its history is compacted, and once all of its data is lost.
 * Its reports are applied to a table here; reported twice, in the wrong order or not at all, it
 * would differ from a listing. However much there is to list, the watch after it opens at the first
 * try.
 */
#include "../random.h"
#include "proxy.h"
#include "rig.h"

enum { TABLE_MAX = 4096, KEYS = 40, MANY = 3500, MANY_AT_ONCE = 100 };

struct row {
    size_t range_index;
    char key[32];
    char value[32];
    int64_t mod_revision;
};

struct table {
    struct etcd_mirror *mirror;
    struct row rows[TABLE_MAX];
    size_t count;
    size_t puts, deletes, syncs, troubles;
    int64_t synced_revision;
    bool synced;
    bool goes_back; /* revisions may */
    size_t closes_after;
};

static struct cluster cluster;
static struct proxy *proxy;
static struct etcd *direct;
static struct etcd *etcd; /* through the proxy */

static struct row *
find(struct table *table, struct etcd_bytes key)
{
    for (size_t i = 0; i < table->count; i++)
        if (bytes_are(key, table->rows[i].key))
            return &table->rows[i];
    return NULL;
}

static void
close_when_due(struct table *table)
{
    if (table->closes_after > 0 && --table->closes_after == 0)
        etcd_mirror_close(table->mirror);
}

static void
on_put(void *context, size_t range_index, const struct etcd_kv *kv)
{
    struct table *table = context;
    struct row *row = find(table, kv->key);
    if (row == NULL) {
        assert_true(table->count < TABLE_MAX);
        row = &table->rows[table->count++];
        *row = (struct row){.range_index = range_index};
        snprintf(row->key, sizeof(row->key), "%.*s", (int)kv->key.bytes,
                 (const char *)kv->key.data);
    }
    assert_int_equal(row->range_index, range_index);
    assert_true(table->goes_back || kv->mod_revision > row->mod_revision);
    row->mod_revision = kv->mod_revision;
    snprintf(row->value, sizeof(row->value), "%.*s", (int)kv->value.bytes,
             (const char *)kv->value.data);
    table->puts++;
    close_when_due(table);
}

static void
on_delete(void *context, size_t range_index, const struct etcd_kv *kv)
{
    struct table *table = context;
    struct row *row = find(table, kv->key);
    assert_non_null(row); /* each is reported once */
    assert_int_equal(row->range_index, range_index);
    assert_true(kv->mod_revision == 0 || kv->mod_revision > row->mod_revision);
    *row = table->rows[--table->count];
    table->deletes++;
    close_when_due(table);
}

static void
on_synced(void *context, int64_t revision)
{
    struct table *table = context;
    assert_true(table->goes_back || revision >= table->synced_revision);
    table->synced_revision = revision;
    table->syncs++;
    table->synced = true;
    close_when_due(table);
}

static void
on_trouble(void *context, const struct error *error)
{
    struct table *table = context;
    assert_true(error->text[0] != '\0');
    table->troubles++;
    table->synced = false;
}

static const struct etcd_range ranges[2] = {
    {.span = ETCD_PREFIX, .key = {"m/", 2}},
    {.span = ETCD_PREFIX, .key = {"n/", 2}},
};

static void
mirror_open_with(struct table *table, struct etcd *client, struct etcd_mirror_options given)
{
    *table = (struct table){0};
    struct etcd_mirror_options options = {
        .ranges = given.ranges,
        .range_count = given.range_count,
        .page_keys = given.page_keys,
        .progress_ns = 10 * NS_PER_S, /* a busy machine is no silent server */
        .on_put = on_put,
        .on_delete = on_delete,
        .on_synced = on_synced,
        .on_trouble = on_trouble,
        .context = table,
    };
    struct error error = ERROR_NONE;
    assert_int_equal(etcd_mirror_open(client, &options, &table->mirror, &error), STATUS_OK);
}

static void
mirror_open(struct table *table, struct etcd *client, int64_t page_keys)
{
    mirror_open_with(
        table, client,
        (struct etcd_mirror_options){.ranges = ranges, .range_count = 2, .page_keys = page_keys});
}

/* All of etcd in the ranges, as of one revision, is in the table, and nothing else. */
static void
assert_same(struct table *table, int64_t revision)
{
    size_t count = 0;
    for (size_t r = 0; r < 2; r++) {
        struct etcd_op all = {.kind = ETCD_RANGE, .range = ranges[r], .revision = revision};
        const struct etcd_response *listed = &done(do_op(direct, all))->responses[0];
        assert_in_range(listed->kv_count, 0, KVS_MAX);
        for (size_t i = 0; i < listed->kv_count; i++) {
            const struct row *row = find(table, listed->kvs[i].key);
            assert_non_null(row);
            assert_true(bytes_are(listed->kvs[i].value, row->value));
            assert_int_equal(row->mod_revision, listed->kvs[i].mod_revision);
            assert_int_equal(etcd_mirror_reported(table->mirror, listed->kvs[i].key),
                             row->mod_revision);
        }
        count += listed->kv_count;
    }
    assert_int_equal(table->count, count);
    assert_int_equal(etcd_mirror_keys(table->mirror), count);
    assert_int_equal(etcd_mirror_reported(table->mirror, etcd_text("no such key")), 0);
}

/* Quiet: then what is mirrored at the last revision is all. */
static void
wait_same(struct table *table)
{
    int64_t revision = done(do_get(direct, "m/"))->revision;
    WAIT_UNTIL(table->synced && etcd_mirror_revision(table->mirror) >= revision);
    assert_same(table, revision);
}

static void
write_random(uint64_t *seed, size_t writes)
{
    for (size_t i = 0; i < writes; i++) {
        char key[24], value[24];
        uint64_t drawn = random_draw(seed);
        snprintf(key, sizeof(key), "%c/%d", drawn & 1 ? 'm' : 'n',
                 (int)(drawn >> 8 & 0xffff) % KEYS);
        snprintf(value, sizeof(value), "%llx", (unsigned long long)drawn);
        if (drawn >> 4 & 3)
            done(do_put(direct, key, value));
        else
            done(do_delete(direct, key));
    }
}

static void
compact(int64_t revision)
{
    etcd_compact(direct, revision, to_got(0));
    done(got_wait());
}

static int
start(void **state)
{
    (void)state;
    cluster_start(&cluster, 1);
    proxy = proxy_start(cluster.members[0].client_port);
    struct etcd_options options = {.call_timeout_ns = 30 * NS_PER_S};
    direct = rig_client(&cluster, options);
    etcd = rig_client_of(proxy_url(proxy), options);
    done(do_get(direct, "ready"));
    return 0;
}

static int
stop(void **state)
{
    (void)state;
    etcd_destroy(etcd);
    etcd_destroy(direct);
    proxy_stop(proxy);
    cluster_stop(&cluster);
    rig_end();
    return 0;
}

static int
clean(void **state)
{
    (void)state;
    for (size_t r = 0; r < 2; r++)
        done(do_op(direct, (struct etcd_op){.kind = ETCD_DELETE, .range = ranges[r]}));
    return 0;
}

TEST_CASE(lists_and_follows)
{
    static struct table table;
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    mirror_open(&table, etcd, 0);
    WAIT_UNTIL(table.synced);
    assert_int_equal(table.count, 0);
    write_random(&seed, 100);
    wait_same(&table);
    assert_int_equal(table.troubles, 0);
    static struct table paged;
    mirror_open(&paged, etcd, 3);
    WAIT_UNTIL(paged.synced);
    wait_same(&paged);
    assert_int_equal(paged.puts, paged.count);
    etcd_mirror_close(paged.mirror);
    etcd_mirror_close(table.mirror);
}

static void
on_many_put(void *context, const struct etcd_answer *answer)
{
    assert_int_equal(answer->fate, ETCD_DONE);
    (*(size_t *)context)++;
}

static void
put_many(void)
{
    char keys[MANY_AT_ONCE][32];
    char value[200];
    struct etcd_op ops[MANY_AT_ONCE];
    memset(value, 'v', sizeof(value));
    for (size_t i = 0; i < MANY; i += MANY_AT_ONCE) {
        size_t answers = 0;
        for (size_t k = 0; k < MANY_AT_ONCE; k++) {
            int length = snprintf(keys[k], sizeof(keys[k]), "m/many%zu", i + k);
            ops[k] = (struct etcd_op){.kind = ETCD_PUT,
                                      .range = {.key = {keys[k], (size_t)length}},
                                      .value = {value, sizeof(value)}};
        }
        const struct etcd_txn txn = {.success = ops, .success_count = MANY_AT_ONCE};
        etcd_txn(direct, &txn, (struct etcd_reply){.on_answer = on_many_put, .context = &answers});
        WAIT_UNTIL(answers == 1);
    }
}

/* As many ranges as a mesh has; some have nothing. A watch that does not open at once would be seen
 * by its trouble, and by a second stream. */
TEST_CASE(opens_at_once)
{
    static struct table table;
    static const struct etcd_range many[] = {
        {.span = ETCD_PREFIX, .key = {"m/", 2}},
        {.span = ETCD_PREFIX, .key = {"n/", 2}},
        {.span = ETCD_PREFIX, .key = {"instances/", 10}},
        {.span = ETCD_PREFIX, .key = {"config/", 7}},
        {.span = ETCD_PREFIX, .key = {"leaders/", 8}},
    };
    put_many();
    for (int i = 0; i < 5; i++) {
        struct etcd *client =
            rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
        mirror_open_with(
            &table, client,
            (struct etcd_mirror_options){.ranges = many, .range_count = ARRAY_COUNT(many)});
        WAIT_UNTIL(table.synced);
        assert_int_equal(table.count, MANY);
        char key[24];
        snprintf(key, sizeof(key), "leaders/%d", i);
        done(do_put(direct, key, "1")); /* of the last range: seeing it proves that all are open */
        WAIT_UNTIL(table.troubles > 0 || table.count > MANY);
        assert_int_equal(table.troubles, 0);
        assert_int_equal(etcd_figures(client)->streams, 1);
        done(do_delete(direct, key));
        etcd_mirror_close(table.mirror);
        etcd_destroy(client);
    }
}

TEST_CASE(survives)
{
    static struct table table;
    uint64_t seed = random_seed((uint64_t)clock_now_ns());
    mirror_open(&table, etcd, 5);
    WAIT_UNTIL(table.synced);
    for (int round = 0; round < 20; round++) {
        uint64_t fault = random_draw(&seed) % 5;
        write_random(&seed, random_draw(&seed) % 10);
        if (fault == 0) {
            proxy_cut(proxy);
        } else if (fault == 1) {
            proxy_set(proxy, PROXY_DROP_ANSWER);
            write_random(&seed, 5);
            rig_turn();
            proxy_set(proxy, PROXY_PASS);
        } else if (fault == 2 && round % 4 == 0) {
            member_kill(&cluster, 0);
            member_start(&cluster, 0);
        } else if (fault == 3) { /* keys that it has not seen are forgotten */
            proxy_set(proxy, PROXY_DROP_ANSWER);
            proxy_cut(proxy);
            write_random(&seed, 10);
            compact(done(do_get(direct, "m/"))->revision);
            proxy_set(proxy, PROXY_PASS);
        }
        write_random(&seed, random_draw(&seed) % 10);
        if (round % 3 == 0)
            wait_same(&table);
    }
    wait_same(&table);
    etcd_mirror_close(table.mirror);
}

/* A listing whose revision is compacted between two pages begins again, and is whole. */
TEST_CASE(compacted_while_listing)
{
    static struct table table;
    for (int i = 0; i < 20; i++) {
        char key[24];
        snprintf(key, sizeof(key), "m/%d", i);
        done(do_put(direct, key, "1"));
    }
    uint64_t lists = etcd_figures(etcd)->lists;
    mirror_open(&table, etcd, 1);
    WAIT_UNTIL(table.puts >= 3);
    proxy_set(proxy, PROXY_SWALLOW);
    done(do_delete(direct, "m/0"));
    compact(done(do_put(direct, "m/1", "2"))->revision);
    proxy_cut(proxy);
    proxy_set(proxy, PROXY_PASS);
    WAIT_UNTIL(table.synced);
    wait_same(&table);
    assert_true(etcd_figures(etcd)->lists - lists >= 2);
    etcd_mirror_close(table.mirror);
}

/* Pages that are longer than an answer may be: they are asked for in parts. */
TEST_CASE(long_pages)
{
    static struct table table;
    char value[4096];
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    for (int i = 0; i < 60; i++) {
        char key[24];
        snprintf(key, sizeof(key), "m/long%d", i);
        done(do_put(direct, key, value));
    }
    struct etcd *small =
        rig_client(&cluster, (struct etcd_options){.answer_bytes_max = 50000,
                                                   .call_timeout_ns = 30 * NS_PER_S});
    mirror_open(&table, small, 0);
    WAIT_UNTIL(table.synced || table.troubles > 0);
    assert_int_equal(table.troubles, 0);
    assert_int_equal(table.count, 60);
    etcd_mirror_close(table.mirror);
    etcd_destroy(small);
}

static bool keys_put;
static bool keys_synced;
static int keys_reported;

static void
on_keys_put(void *context, const struct etcd_answer *answer)
{
    (void)context;
    done(answer);
    keys_put = true;
}

static void
on_key_reported(void *context, size_t range_index, const struct etcd_kv *kv)
{
    (void)context;
    (void)range_index;
    (void)kv;
    keys_reported++;
}

static void
on_keys_synced(void *context, int64_t revision)
{
    (void)context;
    (void)revision;
    keys_synced = true;
}

/* So many keys of one length, in transactions. */
static void
put_keys(int count, size_t value_bytes)
{
    enum { OPS = 100 };
    char *value = calloc(1, value_bytes + 1);
    assert_non_null(value);
    memset(value, 'v', value_bytes);
    int at_once = value_bytes > 4096 ? 1 : OPS;
    for (int from = 0; from < count; from += at_once) {
        char keys[OPS][24];
        struct etcd_op ops[OPS];
        for (int i = 0; i < at_once; i++) {
            snprintf(keys[i], sizeof(keys[i]), "m/many%06d", from + i);
            ops[i] = (struct etcd_op){
                .kind = ETCD_PUT, .range = one(keys[i]), .value = {value, value_bytes}};
        }
        const struct etcd_txn txn = {.success = ops, .success_count = (size_t)at_once};
        struct etcd_reply reply = {.on_answer = on_keys_put, .timeout_ns = 30 * NS_PER_S};
        keys_put = false;
        etcd_txn(direct, &txn, reply);
        WAIT_UNTIL(keys_put);
    }
    free(value);
}

/* For each page etcd counts the keys behind it: pages are as large as their bytes permit. */
TEST_CASE(few_pages)
{
    static const struct {
        int keys;
        size_t value_bytes;
        int64_t page_keys;
        unsigned calls;
    } cases[] = {
        {8100, 16, 0, 2},      /* 4,096, and the rest */
        {48, 512 << 10, 20, 5} /* 20 blindly, then 4 MiB each */
    };
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        put_keys(cases[i].keys, cases[i].value_bytes);
        struct etcd *lister =
            rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
        const struct etcd_range all = prefix("m/");
        const struct etcd_mirror_options options = {.ranges = &all,
                                                    .range_count = 1,
                                                    .page_keys = cases[i].page_keys,
                                                    .on_put = on_key_reported,
                                                    .on_delete = on_key_reported,
                                                    .on_synced = on_keys_synced};
        struct etcd_mirror *mirror;
        struct error error = ERROR_NONE;
        assert_int_equal(etcd_mirror_open(lister, &options, &mirror, &error), STATUS_OK);
        keys_reported = 0;
        keys_synced = false;
        WAIT_UNTIL(keys_synced);
        assert_int_equal(keys_reported, cases[i].keys);
        assert_int_equal(etcd_figures(lister)->calls, cases[i].calls);
        etcd_mirror_close(mirror);
        etcd_destroy(lister);
        done(do_op(direct, (struct etcd_op){.kind = ETCD_DELETE, .range = prefix("m/")}));
    }
}

/* History is compacted faster than a mirror can list: it does not list without end. */
TEST_CASE(compacted_always)
{
    static struct table table;
    for (int i = 0; i < 20; i++) {
        char key[24];
        snprintf(key, sizeof(key), "m/%d", i);
        done(do_put(direct, key, "1"));
    }
    uint64_t lists = etcd_figures(etcd)->lists;
    mirror_open(&table, etcd, 1);
    int64_t end_ns = clock_now_ns() + 3 * NS_PER_S;
    while (clock_now_ns() < end_ns) /* a slow machine makes fewer, never more */
        compact(done(do_put(direct, "m/1", "2"))->revision);
    assert_in_range(etcd_figures(etcd)->lists - lists, 2, 8);
    WAIT_UNTIL(table.synced);
    wait_same(&table);
    etcd_mirror_close(table.mirror);
}

TEST_CASE(emptied)
{
    static struct table table;
    done(do_put(direct, "m/both", "old"));
    done(do_put(direct, "m/old", "old"));
    for (int i = 0; i < 30; i++)
        done(do_put(direct, "n/more", "old"));
    mirror_open(&table, etcd, 0);
    WAIT_UNTIL(table.synced);
    wait_same(&table);
    table.goes_back = true;
    member_kill(&cluster, 0);
    member_empty(&cluster, 0);
    member_start(&cluster, 0);
    size_t syncs = table.syncs;
    /* a client that has seen nothing takes it as it is */
    struct etcd *fresh =
        rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    done(do_put(fresh, "m/both", "new"));
    WAIT_UNTIL(table.synced && table.syncs > syncs && find(&table, etcd_text("m/old")) == NULL);
    assert_string_equal(find(&table, etcd_text("m/both"))->value, "new");
    done(do_put(fresh, "m/new", "new"));
    WAIT_UNTIL(table.count == 2);
    assert_true(etcd_figures(etcd)->histories >= 1);
    etcd_destroy(fresh);
    etcd_mirror_close(table.mirror);
}

/* It comes back without its data and has written more than before, until the mirror asks again:
 * revisions go on as if nothing had happened. */
static void
replaced(bool with_keys)
{
    static struct table table;
    if (with_keys)
        done(do_put(direct, "n/both", "old"));
    mirror_open(&table, etcd, 0);
    WAIT_UNTIL(table.synced);
    wait_same(&table);
    table.goes_back = true;
    uint64_t histories = etcd_figures(etcd)->histories;
    int64_t before = etcd_mirror_revision(table.mirror);
    proxy_set(proxy, PROXY_SWALLOW);
    proxy_cut(proxy);
    WAIT_UNTIL(table.troubles > 0);
    member_kill(&cluster, 0);
    member_empty(&cluster, 0);
    member_start(&cluster, 0);
    struct etcd *fresh =
        rig_client(&cluster, (struct etcd_options){.call_timeout_ns = 30 * NS_PER_S});
    done(do_put(fresh, "m/new", "new"));
    done(do_put(fresh, "n/both", "new"));
    done(do_delete(fresh, "n/both"));
    while (done(do_put(fresh, "elsewhere", "1"))->revision < before + 20)
        continue;
    proxy_set(proxy, PROXY_PASS);
    proxy_cut(proxy);
    WAIT_UNTIL(table.synced);
    assert_int_equal(table.count, 1);
    assert_string_equal(table.rows[0].key, "m/new");
    assert_int_equal(etcd_figures(etcd)->histories - histories, with_keys);
    done(do_put(fresh, "n/both", "newer"));
    WAIT_UNTIL(table.count == 2);
    etcd_destroy(fresh);
    etcd_mirror_close(table.mirror);
}

TEST_CASE(replaced_with_keys)
{
    replaced(true);
}

TEST_CASE(replaced_without_keys)
{
    replaced(false);
}

TEST_CASE(closed_by_callback)
{
    static struct table table;
    for (int i = 0; i < 10; i++) {
        char key[24];
        snprintf(key, sizeof(key), "n/close%d", i);
        done(do_put(direct, key, "1"));
    }
    size_t keys = 0;
    for (size_t after = 1; after <= 14; after++) {
        mirror_open(&table, direct, 4);
        table.closes_after = after;
        if (keys == 0) {
            table.closes_after = 0;
            WAIT_UNTIL(table.synced);
            keys = table.count;
            etcd_mirror_close(table.mirror);
            continue;
        }
        if (after > keys + 1) {
            WAIT_UNTIL(table.synced);
            done(do_put(direct, "m/close", "1"));
            done(do_delete(direct, "m/close"));
            done(do_put(direct, "m/close", "1"));
        }
        WAIT_UNTIL(table.closes_after == 0);
        size_t reported = table.puts + table.deletes + table.syncs;
        done(do_put(direct, "n/close0", "2"));
        assert_int_equal(table.puts + table.deletes + table.syncs, reported);
        done(do_delete(direct, "m/close"));
    }
}

static void
ignore_lease(void *context, int64_t lease_id)
{
    (void)context;
    (void)lease_id;
}

static void
ignore_error(void *context, const struct error *error)
{
    (void)context;
    (void)error;
}

/* A mirror, a session and their client are gone at any moment between a cut and being well again.
 */
TEST_CASE(closed_at_any_moment)
{
    static struct table table;
    done(do_put(direct, "m/moment", "1"));
    struct etcd_session_options options = {
        .ttl_s = 60, .on_granted = ignore_lease, .on_lost = ignore_error};
    for (int turns = 0; turns < 40; turns++) {
        struct etcd *client = rig_client_of(proxy_url(proxy), (struct etcd_options){0});
        struct etcd_session *session = etcd_session_open(client, &options);
        mirror_open(&table, client, 1);
        if (turns >= 15) {
            WAIT_UNTIL(table.synced);
            proxy_cut(proxy);
        }
        for (int i = 0; i < turns % 15; i++)
            rig_turn();
        etcd_mirror_close(table.mirror);
        etcd_session_close(session);
        etcd_destroy(client);
        size_t reported = table.puts + table.deletes + table.syncs + table.troubles;
        rig_turn();
        assert_int_equal(table.puts + table.deletes + table.syncs + table.troubles, reported);
    }
}

TEST_MAIN(.setup = clean, .group_setup = start, .group_teardown = stop)
