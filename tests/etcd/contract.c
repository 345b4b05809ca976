/* SPDX-License-Identifier: Apache-2.0 */
#include "contract.h"

/* The gateway ignores unknown fields: so each field that can be sent
 * is seen to work here, by an answer that would be another one without it, and by its contrary. */

enum { LARGE_BYTES = 400 << 10 };

static const struct etcd_answer *
wait_answer(const struct contract *contract)
{
    int64_t end_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    while (!got.here && clock_now_ns() < end_ns)
        contract->turn(contract->store);
    assert_true(got.here);
    return &got.answer;
}

static const struct etcd_answer *
op(const struct contract *contract, struct etcd_op op)
{
    contract->op(contract->store, &op, to_got(0));
    return wait_answer(contract);
}

static const struct etcd_answer *
put(const struct contract *contract, const char *key, const char *value)
{
    return done(op(contract, (struct etcd_op){
                                 .kind = ETCD_PUT, .range = one(key), .value = etcd_text(value)}));
}

static const struct etcd_answer *
get(const struct contract *contract, struct etcd_op what)
{
    what.kind = ETCD_RANGE;
    return op(contract, what);
}

/* After each case. */
static void
clean(const struct contract *contract)
{
    done(op(contract, (struct etcd_op){.kind = ETCD_DELETE, .range = prefix("c/")}));
}

static const struct etcd_answer *
txn(const struct contract *contract, struct etcd_txn txn)
{
    contract->txn(contract->store, &txn, to_got(0));
    return wait_answer(contract);
}

/* ---- keys and values ---- */

static void
case_put_and_get(const struct contract *contract)
{
    int64_t first = put(contract, "c/a", "1")->revision;
    assert_true(first > 0);
    assert_true(got.answer.cluster_id != 0 && got.answer.member_id != 0);
    assert_true(got.answer.raft_term > 0);
    assert_int_equal(got.answer.responses[0].kv_count, 0);
    assert_int_equal(put(contract, "c/a", "2")->revision, first + 1);
    const struct etcd_answer *answer = get(contract, (struct etcd_op){.range = one("c/a")});
    assert_value(answer, "2");
    const struct etcd_kv *kv = &answer->responses[0].kvs[0];
    assert_true(bytes_are(kv->key, "c/a"));
    assert_int_equal(kv->create_revision, first);
    assert_int_equal(kv->mod_revision, first + 1);
    assert_int_equal(kv->version, 2);
    assert_int_equal(kv->lease_id, 0);
    assert_int_equal(answer->responses[0].count, 1);
    assert_int_equal(answer->revision, first + 1);
}

static void
case_nothing_there(const struct contract *contract)
{
    const struct etcd_answer *answer = done(get(contract, (struct etcd_op){.range = one("c/no")}));
    assert_int_equal(answer->response_count, 1);
    assert_int_equal(answer->responses[0].kv_count, 0);
    assert_int_equal(answer->responses[0].count, 0);
    assert_false(answer->responses[0].more);
    int64_t before = answer->revision;
    answer = done(op(contract, (struct etcd_op){.kind = ETCD_DELETE, .range = one("c/no")}));
    assert_int_equal(answer->responses[0].count, 0);
    assert_int_equal(answer->revision, before); /* nothing changed */
}

static void
case_any_bytes(const struct contract *contract)
{
    unsigned char data[2 + 256] = {'c', '/'};
    for (int length = 0; length <= 256; length += length < 4 ? 1 : 63) {
        for (int i = 0; i < length; i++)
            data[2 + i] = (unsigned char)(i * 7 + length);
        struct etcd_bytes key = {data, 2 + (size_t)length};
        struct etcd_bytes value = {data + 2, (size_t)length};
        struct etcd_range range = {.key = key};
        done(op(contract, (struct etcd_op){.kind = ETCD_PUT, .range = range, .value = value}));
        const struct etcd_kv *kv =
            &done(get(contract, (struct etcd_op){.range = range}))->responses[0].kvs[0];
        assert_int_equal(got.answer.responses[0].kv_count, 1);
        assert_int_equal(kv->key.bytes, key.bytes);
        assert_memory_equal(kv->key.data, key.data, key.bytes);
        assert_int_equal(kv->value.bytes, value.bytes);
        assert_memory_equal(kv->value.data, value.data, value.bytes);
    }
}

static void
case_previous(const struct contract *contract)
{
    put(contract, "c/a", "old");
    struct etcd_op write = {.kind = ETCD_PUT,
                            .range = one("c/a"),
                            .value = etcd_text("new"),
                            .previous = ETCD_WITH_PREVIOUS};
    assert_value(op(contract, write), "old");
    struct etcd_op delete = {
        .kind = ETCD_DELETE, .range = one("c/a"), .previous = ETCD_WITH_PREVIOUS};
    assert_value(op(contract, delete), "new");
    assert_int_equal(got.answer.responses[0].count, 1);
    assert_int_equal(op(contract, delete)->responses[0].kv_count, 0);
    assert_int_equal(done(op(contract, write))->responses[0].kv_count, 0);
}

/* The keys found, as one text. */
static const char *
keys(const struct etcd_answer *answer)
{
    static char text[256];
    text[0] = '\0';
    done(answer);
    for (size_t i = 0; i < answer->responses[0].kv_count; i++) {
        struct etcd_bytes key = answer->responses[0].kvs[i].key;
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%.*s", i == 0 ? "" : " ", (int)key.bytes - 2,
                 (const char *)key.data + 2);
    }
    return text;
}

static const char *
keys_of(const struct contract *contract, enum etcd_span span, const char *key, const char *end)
{
    struct etcd_range range = {.span = span, .key = etcd_text(key), .end = etcd_text(end)};
    return keys(get(contract, (struct etcd_op){.range = range}));
}

static void
case_spans(const struct contract *contract)
{
    static const char *const all[] = {"c/a", "c/ab", "c/abc", "c/b", "c/\xff", "c/\xff\xff"};
    for (size_t i = 0; i < ARRAY_COUNT(all); i++)
        put(contract, all[i], "");
    assert_string_equal(keys_of(contract, ETCD_ONE, "c/a", ""), "a");
    assert_string_equal(keys_of(contract, ETCD_PREFIX, "c/ab", ""), "ab abc");
    assert_string_equal(keys_of(contract, ETCD_PREFIX, "c/\xff", ""), "\xff \xff\xff");
    assert_string_equal(keys_of(contract, ETCD_PREFIX, "c/x", ""), "");
    assert_string_equal(keys_of(contract, ETCD_UNTIL, "c/ab", "c/b"), "ab abc");
    assert_string_equal(keys_of(contract, ETCD_UNTIL, "c/ab", "c/b1"), "ab abc b");
    assert_non_null(strstr(keys_of(contract, ETCD_FROM, "c/b", ""), "b \xff \xff\xff"));
    struct etcd_op everything = {.range = prefix(""), .content = ETCD_COUNT_ONLY};
    assert_true(done(get(contract, everything))->responses[0].count >= 6);
}

static void
case_range_options(const struct contract *contract)
{
    put(contract, "c/a", "1");
    put(contract, "c/b", "1");
    int64_t then = put(contract, "c/c", "1")->revision;
    put(contract, "c/d", "1");
    struct etcd_op what = {.range = prefix("c/"), .limit = 2};
    assert_string_equal(keys(get(contract, what)), "a b");
    assert_true(got.answer.responses[0].more);
    assert_int_equal(got.answer.responses[0].count, 4);
    what.limit = 4;
    assert_string_equal(keys(get(contract, what)), "a b c d");
    assert_false(got.answer.responses[0].more);
    what = (struct etcd_op){.range = prefix("c/"), .revision = then};
    assert_string_equal(keys(get(contract, what)), "a b c");
    what = (struct etcd_op){.range = prefix("c/"), .content = ETCD_KEYS_ONLY};
    assert_string_equal(keys(get(contract, what)), "a b c d");
    assert_int_equal(got.answer.responses[0].kvs[0].value.bytes, 0);
    what.content = ETCD_COUNT_ONLY;
    assert_string_equal(keys(get(contract, what)), "");
    assert_int_equal(got.answer.responses[0].count, 4);
    what = (struct etcd_op){.range = one("c/a"), .freshness = ETCD_SERIALIZABLE};
    assert_value(get(contract, what), "1");
    struct etcd_op gone = {.kind = ETCD_DELETE, .range = prefix("c/")};
    assert_int_equal(done(op(contract, gone))->responses[0].count, 4);
}

/* ---- transactions ---- */

static bool
holds(const struct contract *contract, struct etcd_compare compare)
{
    struct etcd_txn asked = {.compares = &compare, .compare_count = 1};
    return done(txn(contract, asked))->succeeded;
}

static void
check_number(const struct contract *contract, const char *key, enum etcd_target target,
             int64_t number)
{
    struct etcd_compare compare = {.range = one(key), .target = target, .number = number};
    for (int64_t off = -1; off <= 1; off++) {
        compare.number = number + off;
        compare.relation = ETCD_EQUAL;
        assert_int_equal(holds(contract, compare), off == 0);
        compare.relation = ETCD_NOT_EQUAL;
        assert_int_equal(holds(contract, compare), off != 0);
        compare.relation = ETCD_GREATER; /* the key's is greater than the given one */
        assert_int_equal(holds(contract, compare), off < 0);
        compare.relation = ETCD_LESS;
        assert_int_equal(holds(contract, compare), off > 0);
    }
}

static void
case_compares(const struct contract *contract)
{
    contract->grant(contract->store, 60, 0, to_got(0));
    int64_t lease_id = done(wait_answer(contract))->lease_id;
    int64_t create = put(contract, "c/a", "v")->revision;
    put(contract, "c/a", "v");
    struct etcd_op leased = {
        .kind = ETCD_PUT, .range = one("c/a"), .value = etcd_text("m"), .lease_id = lease_id};
    int64_t mod = done(op(contract, leased))->revision;
    check_number(contract, "c/a", ETCD_VERSION, 3);
    check_number(contract, "c/a", ETCD_CREATE, create);
    check_number(contract, "c/a", ETCD_MOD, mod);
    check_number(contract, "c/a", ETCD_LEASE, lease_id);
    check_number(contract, "c/no", ETCD_VERSION, 0);
    check_number(contract, "c/no", ETCD_CREATE, 0);
    check_number(contract, "c/no", ETCD_MOD, 0);
    struct etcd_compare value = {.range = one("c/a"), .target = ETCD_VALUE};
    static const char *const texts[] = {"l", "m", "n"};
    for (int i = 0; i < 3; i++) {
        value.value = etcd_text(texts[i]);
        value.relation = ETCD_EQUAL;
        assert_int_equal(holds(contract, value), i == 1);
        value.relation = ETCD_GREATER;
        assert_int_equal(holds(contract, value), i == 0);
        value.relation = ETCD_LESS;
        assert_int_equal(holds(contract, value), i == 2);
    }
    put(contract, "c/b", "m");
    struct etcd_compare all = {.range = prefix("c/"), .target = ETCD_VERSION, .number = 1};
    assert_false(holds(contract, all));
    all.relation = ETCD_LESS;
    all.number = 4;
    assert_true(holds(contract, all));
    contract->revoke(contract->store, lease_id, to_got(0));
    done(wait_answer(contract));
}

static void
case_txn_branches(const struct contract *contract)
{
    int64_t created = put(contract, "c/a", "1")->revision;
    struct etcd_compare compares[] = {
        {.range = one("c/a"), .target = ETCD_MOD, .number = created},
        {.range = one("c/b"), .target = ETCD_CREATE, .number = 0},
    };
    struct etcd_op success[] = {
        {.kind = ETCD_PUT, .range = one("c/b"), .value = etcd_text("2")},
        {.kind = ETCD_DELETE, .range = one("c/a")},
        {.kind = ETCD_RANGE, .range = prefix("c/")},
    };
    struct etcd_op failure[] = {{.kind = ETCD_RANGE, .range = one("c/b")}};
    struct etcd_txn asked = {compares, 2, success, 3, failure, 1};
    const struct etcd_answer *answer = done(txn(contract, asked));
    assert_true(answer->succeeded);
    assert_int_equal(answer->revision, created + 1);
    assert_int_equal(answer->response_count, 3);
    assert_int_equal(answer->responses[0].kind, ETCD_PUT);
    assert_int_equal(answer->responses[1].kind, ETCD_DELETE);
    assert_int_equal(answer->responses[1].count, 1);
    assert_int_equal(answer->responses[2].kind, ETCD_RANGE);
    assert_int_equal(answer->responses[2].kv_count, 1);
    assert_int_equal(answer->responses[2].kvs[0].mod_revision, created + 1);
    answer = done(txn(contract, asked));
    assert_false(answer->succeeded);
    assert_int_equal(answer->revision, created + 1);
    assert_value(answer, "2");
}

static void
case_txn_refusals(const struct contract *contract)
{
    struct etcd_op ops[129];
    char names[129][16];
    for (size_t i = 0; i < ARRAY_COUNT(ops); i++) {
        snprintf(names[i], sizeof(names[i]), "c/%zu", i);
        ops[i] = (struct etcd_op){.kind = ETCD_PUT, .range = one(names[i])};
    }
    assert_fate(txn(contract, (struct etcd_txn){.success = ops, .success_count = 129}),
                ETCD_NOT_DONE, STATUS_INVALID_ARGUMENT);
    ops[1].range = ops[0].range;
    assert_fate(txn(contract, (struct etcd_txn){.success = ops, .success_count = 2}), ETCD_NOT_DONE,
                STATUS_INVALID_ARGUMENT);
    assert_int_equal(
        done(get(contract, (struct etcd_op){.range = prefix("c/")}))->responses[0].count, 0);
}

static void
case_compaction(const struct contract *contract)
{
    int64_t first = put(contract, "c/a", "1")->revision;
    put(contract, "c/a", "2");
    int64_t last = put(contract, "c/a", "3")->revision;
    contract->compact(contract->store, last, to_got(0));
    done(wait_answer(contract));
    struct etcd_op then = {.range = one("c/a"), .revision = first};
    assert_fate(get(contract, then), ETCD_NOT_DONE, STATUS_OUT_OF_RANGE);
    then.revision = last;
    assert_value(get(contract, then), "3");
    then.revision = last + 1000;
    assert_fate(get(contract, then), ETCD_NOT_DONE, STATUS_OUT_OF_RANGE);
    contract->compact(contract->store, first, to_got(0));
    assert_fate(wait_answer(contract), ETCD_NOT_DONE, STATUS_OUT_OF_RANGE);
}

/* ---- leases ---- */

static void
case_leases(const struct contract *contract)
{
    int64_t chosen = INT64_C(0x7123456789abcdef); /* more than a double holds */
    contract->grant(contract->store, 60, chosen, to_got(0));
    assert_int_equal(done(wait_answer(contract))->lease_id, chosen);
    assert_int_equal(got.answer.ttl_s, 60);
    contract->grant(contract->store, 60, chosen, to_got(0));
    assert_fate(wait_answer(contract), ETCD_NOT_DONE, STATUS_FAILED_PRECONDITION);
    struct etcd_op leased = {
        .kind = ETCD_PUT, .range = one("c/a"), .value = etcd_text("1"), .lease_id = chosen};
    done(op(contract, leased));
    assert_value(get(contract, (struct etcd_op){.range = one("c/a")}), "1");
    assert_int_equal(got.answer.responses[0].kvs[0].lease_id, chosen);
    contract->renew(contract->store, chosen, to_got(0));
    assert_int_equal(done(wait_answer(contract))->ttl_s, 60);
    assert_int_equal(got.answer.lease_id, chosen);
    contract->revoke(contract->store, chosen, to_got(0));
    done(wait_answer(contract));
    assert_int_equal(
        done(get(contract, (struct etcd_op){.range = one("c/a")}))->responses[0].kv_count, 0);
    contract->renew(contract->store, chosen, to_got(0));
    assert_int_equal(done(wait_answer(contract))->ttl_s, 0);
    contract->revoke(contract->store, chosen, to_got(0));
    assert_fate(wait_answer(contract), ETCD_NOT_DONE, STATUS_NOT_FOUND);
    assert_fate(op(contract, leased), ETCD_NOT_DONE, STATUS_NOT_FOUND);
}

static void
case_lease_ends(const struct contract *contract)
{
    contract->grant(contract->store, 1, 0, to_got(0)); /* it may give more */
    int64_t lease_id = done(wait_answer(contract))->lease_id;
    assert_true(got.answer.ttl_s >= 1 && lease_id != 0);
    struct etcd_op leased = {.kind = ETCD_PUT, .range = one("c/a"), .lease_id = lease_id};
    done(op(contract, leased));
    int64_t end_ns = clock_now_ns() + WAIT_S * NS_PER_S;
    struct etcd_op look = {.range = one("c/a")};
    while (done(get(contract, look))->responses[0].kv_count > 0 && clock_now_ns() < end_ns)
        contract->turn(contract->store);
    assert_int_equal(got.answer.responses[0].kv_count, 0);
    contract->renew(contract->store, lease_id, to_got(0));
    assert_int_equal(done(wait_answer(contract))->ttl_s, 0);
}

/* ---- watches ---- */

enum { SEEN_MAX = 64 };

/* Events that a watch has shown: "0 put c/a=1" as a text each. */
struct seen {
    void *watch;
    const struct contract *contract;
    size_t count;
    size_t calls;
    char texts[SEEN_MAX][64];
    int64_t revisions[SEEN_MAX];
    size_t call_of[SEEN_MAX];
    size_t bytes;
    int64_t progress[ETCD_RANGES_MAX];
    bool open, ended, closes;
    enum etcd_watch_end end;
};

static void
on_events(void *context, size_t range_index, const struct etcd_event *events, size_t count)
{
    struct seen *seen = context;
    seen->calls++;
    for (size_t i = 0; i < count; i++) {
        const struct etcd_kv *kv = &events[i].kv;
        assert_in_range(seen->count, 0, SEEN_MAX - 1);
        seen->revisions[seen->count] = kv->mod_revision;
        seen->call_of[seen->count] = seen->calls;
        seen->bytes += kv->value.bytes;
        snprintf(seen->texts[seen->count++], sizeof(seen->texts[0]), "%zu %s %.*s=%.*s",
                 range_index, events[i].kind == ETCD_EVENT_PUT ? "put" : "delete",
                 (int)kv->key.bytes, (const char *)kv->key.data,
                 kv->value.bytes < 20 ? (int)kv->value.bytes : 0, (const char *)kv->value.data);
    }
    if (seen->closes) {
        seen->contract->watch_close(seen->contract->store, seen->watch);
        seen->watch = NULL;
    }
}

static void
on_progress(void *context, size_t range_index, int64_t revision)
{
    ((struct seen *)context)->progress[range_index] = revision;
}

static void
on_open(void *context)
{
    ((struct seen *)context)->open = true;
}

static void
on_end(void *context, enum etcd_watch_end end, const struct error *error)
{
    struct seen *seen = context;
    assert_true(error->text[0] != '\0');
    seen->ended = true;
    seen->end = end;
}

static void
watch(const struct contract *contract, struct seen *seen, const struct etcd_range *ranges,
      size_t count, int64_t revision)
{
    *seen = (struct seen){.contract = contract};
    struct etcd_watch_options options = {
        .ranges = ranges,
        .range_count = count,
        .revision = revision,
        .on_events = on_events,
        .on_progress = on_progress,
        .on_open = on_open,
        .on_end = on_end,
        .context = seen,
    };
    seen->watch = contract->watch(contract->store, &options);
}

#define WAIT_SEEN(contract, condition)                                                             \
    do {                                                                                           \
        int64_t wait_end_ns_ = clock_now_ns() + WAIT_S * NS_PER_S;                                 \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() > wait_end_ns_)                                                     \
                fail_msg("waited in vain for: %s", #condition);                                    \
            (contract)->turn((contract)->store);                                                   \
        }                                                                                          \
    } while (0)

static void
case_watch_from_now(const struct contract *contract)
{
    struct seen seen;
    struct etcd_range range = prefix("c/");
    put(contract, "c/before", "0");
    watch(contract, &seen, &range, 1, 0);
    WAIT_SEEN(contract, seen.open);
    put(contract, "c/a", "1");
    put(contract, "other", "1");
    int64_t last =
        done(op(contract, (struct etcd_op){.kind = ETCD_DELETE, .range = one("c/a")}))->revision;
    WAIT_SEEN(contract, seen.count == 2);
    assert_string_equal(seen.texts[0], "0 put c/a=1");
    assert_string_equal(seen.texts[1], "0 delete c/a=");
    assert_int_equal(seen.revisions[1], last);
    done(op(contract, (struct etcd_op){.kind = ETCD_DELETE, .range = one("other")}));
    WAIT_SEEN(contract, seen.progress[0] > last); /* though nothing in the range has changed */
    contract->watch_close(contract->store, seen.watch);
}

static void
case_watch_from_then(const struct contract *contract)
{
    struct seen seen;
    struct etcd_range range = one("c/a");
    put(contract, "c/a", "0");
    int64_t then = put(contract, "c/a", "1")->revision;
    put(contract, "c/ab", "x");
    put(contract, "c/a", "2");
    watch(contract, &seen, &range, 1, then);
    WAIT_SEEN(contract, seen.count == 2);
    assert_string_equal(seen.texts[0], "0 put c/a=1");
    assert_int_equal(seen.revisions[0], then);
    assert_string_equal(seen.texts[1], "0 put c/a=2");
    contract->watch_close(contract->store, seen.watch);
}

static void
case_watch_ranges(const struct contract *contract)
{
    struct seen seen;
    struct etcd_range ranges[] = {prefix("c/x/"), prefix("c/y/"), one("c/z")};
    watch(contract, &seen, ranges, 3, 0);
    WAIT_SEEN(contract, seen.open);
    struct etcd_op ops[] = {
        {.kind = ETCD_PUT, .range = one("c/x/1"), .value = etcd_text("1")},
        {.kind = ETCD_PUT, .range = one("c/y/1"), .value = etcd_text("1")},
        {.kind = ETCD_PUT, .range = one("c/y/2"), .value = etcd_text("1")},
    };
    int64_t together =
        done(txn(contract, (struct etcd_txn){.success = ops, .success_count = 3}))->revision;
    put(contract, "c/z", "2");
    WAIT_SEEN(contract, seen.count == 4);
    assert_int_equal(seen.calls, 3); /* one revision of one range is not torn */
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(seen.revisions[i], together);
    assert_string_equal(seen.texts[3], "2 put c/z=2");
    assert_int_equal(seen.revisions[3], together + 1);
    WAIT_SEEN(contract, seen.progress[0] > together && seen.progress[1] > together &&
                            seen.progress[2] > together);
    contract->watch_close(contract->store, seen.watch);
}

static void
case_watch_compacted(const struct contract *contract)
{
    struct seen seen;
    struct etcd_range range = prefix("c/");
    int64_t first = put(contract, "c/a", "0")->revision;
    put(contract, "c/a", "1");
    int64_t last = put(contract, "c/a", "2")->revision;
    contract->compact(contract->store, last, to_got(0));
    done(wait_answer(contract));
    watch(contract, &seen, &range, 1, first);
    WAIT_SEEN(contract, seen.ended);
    assert_int_equal(seen.end, ETCD_WATCH_COMPACTED);
    assert_int_equal(seen.count, 0);
    contract->watch_close(contract->store, seen.watch);
    watch(contract, &seen, &range, 1, last);
    WAIT_SEEN(contract, seen.count == 1);
    assert_string_equal(seen.texts[0], "0 put c/a=2");
    contract->watch_close(contract->store, seen.watch);
}

static void
case_watch_closed_by_callback(const struct contract *contract)
{
    struct seen seen;
    struct etcd_range range = prefix("c/");
    watch(contract, &seen, &range, 1, 0);
    seen.closes = true;
    WAIT_SEEN(contract, seen.open);
    put(contract, "c/a", "1");
    WAIT_SEEN(contract, seen.watch == NULL);
    put(contract, "c/a", "2");
    contract->turn(contract->store);
    assert_int_equal(seen.count, 1);
}

/* More than fits in one message of the server: it comes in pieces, that end within a revision. */
static void
case_watch_large(const struct contract *contract)
{
    struct seen seen;
    struct etcd_range range = prefix("c/");
    char *value = malloc(LARGE_BYTES);
    assert_non_null(value);
    memset(value, 'v', LARGE_BYTES);
    struct etcd_op three[] = {
        {.kind = ETCD_PUT, .range = one("c/1"), .value = {value, LARGE_BYTES}},
        {.kind = ETCD_PUT, .range = one("c/2"), .value = {value, LARGE_BYTES}},
        {.kind = ETCD_PUT, .range = one("c/3"), .value = {value, LARGE_BYTES}},
    };
    int64_t first = 0;
    for (int i = 0; i < 4; i++) {
        struct etcd_txn all = {.success = three, .success_count = 3};
        int64_t revision = done(txn(contract, all))->revision;
        first = first == 0 ? revision : first;
    }
    watch(contract, &seen, &range, 1, first);
    WAIT_SEEN(contract, seen.count == 12);
    assert_int_equal(seen.bytes, 12 * LARGE_BYTES);
    for (size_t i = 0; i < 12; i++) {
        assert_int_equal(seen.revisions[i], first + (int64_t)i / 3);
        assert_int_equal(seen.call_of[i], seen.call_of[i / 3 * 3]);
    }
    contract->watch_close(contract->store, seen.watch);
    free(value);
}

static void
case_too_large(const struct contract *contract)
{
    size_t bytes = 3 << 20;
    char *value = calloc(1, bytes);
    assert_non_null(value);
    struct etcd_op large = {.kind = ETCD_PUT, .range = one("c/a"), .value = {value, bytes / 2}};
    assert_fate(op(contract, large), ETCD_NOT_DONE, STATUS_INVALID_ARGUMENT);
    large.value.bytes = bytes; /* another limit, with the code of overload: it is none */
    assert_fate(op(contract, large), ETCD_NOT_DONE, STATUS_RESOURCE_EXHAUSTED);
    free(value);
    assert_int_equal(
        done(get(contract, (struct etcd_op){.range = one("c/a")}))->responses[0].kv_count, 0);
}

#define CASE(name)                                                                                 \
    {                                                                                              \
#name, case_##name                                                                         \
    }

const struct contract_case contract_cases[] = {
    CASE(put_and_get),
    CASE(nothing_there),
    CASE(any_bytes),
    CASE(previous),
    CASE(spans),
    CASE(range_options),
    CASE(compares),
    CASE(txn_branches),
    CASE(txn_refusals),
    CASE(compaction),
    CASE(leases),
    CASE(lease_ends),
    CASE(watch_from_now),
    CASE(watch_from_then),
    CASE(watch_ranges),
    CASE(watch_compacted),
    CASE(watch_closed_by_callback),
    CASE(watch_large),
    CASE(too_large),
    {NULL, clean}, /* after each */
};
