/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All changes are one log, in order of revisions; a change knows the key's former one. So a key as
 * of a revision is found by going back from its last change, and a watch is a place in the log.
 */
#include "fake_etcd.h"

#include <stdlib.h>
#include <string.h>

#include "arena.h"
#include "base/check.h"

enum { OPS_MAX = 128, REQUEST_MAX = 3 << 19, MESSAGE_MAX = 2 << 20, TTL_S_MIN = 2 };

#define CHANGE_NONE UINT32_MAX

struct change {
    struct etcd_kv kv;
    uint32_t before; /* the key's former change */
    bool gone;
};

struct key {
    struct etcd_bytes bytes;
    uint32_t last; /* change; CHANGE_NONE */
};

struct lease {
    int64_t id;
    int64_t ttl_s;
    int64_t end_ms;
};

struct fake_etcd {
    struct arena arena;
    struct key *keys; /* in order of their bytes, with those that are gone */
    uint32_t key_count;
    uint32_t key_capacity;
    struct change *changes;
    uint32_t change_count;
    uint32_t change_capacity;
    struct lease *leases;
    uint32_t lease_count;
    uint32_t lease_capacity;
    int64_t revision;
    int64_t compacted;
    int64_t now_ms;
    int64_t leases_given;
    uint64_t term;
    uint64_t history;
    enum fake_health health;
};

struct fake_watch {
    struct fake_etcd *etcd;
    struct etcd_range *ranges;
    size_t count;
    uint64_t history;
    uint32_t at;      /* change: the first of the revision that is being shown */
    size_t range;     /* the next one of that revision */
    int64_t revision; /* all before it are shown, or are not to be */
};

struct fake_etcd *
fake_etcd_create(void)
{
    struct fake_etcd *etcd = calloc(1, sizeof(*etcd));
    CHECK(etcd != NULL);
    etcd->revision = 1;
    etcd->term = 2;
    etcd->history = 1;
    return etcd;
}

void
fake_etcd_destroy(struct fake_etcd *etcd)
{
    arena_fini(&etcd->arena);
    free(etcd->keys);
    free(etcd->changes);
    free(etcd->leases);
    free(etcd);
}

/* Room for one more element. */
static void *
grow(void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    *capacity = *capacity * 2 + 64;
    array = reallocarray(array, *capacity, size);
    CHECK(array != NULL);
    return array;
}

/* ---- keys ---- */

static int
compare_bytes(struct etcd_bytes a, struct etcd_bytes b)
{
    size_t least = a.bytes < b.bytes ? a.bytes : b.bytes;
    int order = least == 0 ? 0 : memcmp(a.data, b.data, least);
    if (order != 0)
        return order;
    return a.bytes < b.bytes ? -1 : a.bytes > b.bytes;
}

/* The first key that is not before those bytes. */
static uint32_t
key_from(const struct fake_etcd *etcd, struct etcd_bytes bytes)
{
    uint32_t low = 0;
    uint32_t high = etcd->key_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (compare_bytes(etcd->keys[middle].bytes, bytes) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool
in_range(const struct etcd_range *range, struct etcd_bytes key)
{
    int order = compare_bytes(key, range->key);
    switch (range->span) {
    case ETCD_ONE: return order == 0;
    case ETCD_FROM: return order >= 0;
    case ETCD_UNTIL: return order >= 0 && compare_bytes(key, range->end) < 0;
    case ETCD_PREFIX:
        return range->key.bytes == 0 || (key.bytes >= range->key.bytes &&
                                         memcmp(key.data, range->key.data, range->key.bytes) == 0);
    }
    UNREACHABLE();
}

static uint32_t
key_hold(struct fake_etcd *etcd, struct etcd_bytes bytes)
{
    uint32_t at = key_from(etcd, bytes);
    if (at < etcd->key_count && compare_bytes(etcd->keys[at].bytes, bytes) == 0)
        return at;
    etcd->keys = grow(etcd->keys, etcd->key_count, &etcd->key_capacity, sizeof(*etcd->keys));
    memmove(&etcd->keys[at + 1], &etcd->keys[at], (etcd->key_count - at) * sizeof(*etcd->keys));
    etcd->key_count++;
    etcd->keys[at] = (struct key){
        .bytes = {arena_copy(&etcd->arena, bytes.data, bytes.bytes), bytes.bytes},
        .last = CHANGE_NONE,
    };
    return at;
}

/* NULL: it was not there. */
static const struct change *
change_at(const struct fake_etcd *etcd, const struct key *key, int64_t revision)
{
    uint32_t at = key->last;
    while (at != CHANGE_NONE && etcd->changes[at].kv.mod_revision > revision)
        at = etcd->changes[at].before;
    return at == CHANGE_NONE || etcd->changes[at].gone ? NULL : &etcd->changes[at];
}

static const struct change *
change_now(const struct fake_etcd *etcd, struct etcd_bytes key)
{
    uint32_t at = key_from(etcd, key);
    if (at == etcd->key_count || compare_bytes(etcd->keys[at].bytes, key) != 0)
        return NULL;
    return change_at(etcd, &etcd->keys[at], INT64_MAX);
}

static struct lease *
lease_of(struct fake_etcd *etcd, int64_t lease_id)
{
    for (uint32_t i = 0; i < etcd->lease_count; i++)
        if (etcd->leases[i].id == lease_id)
            return &etcd->leases[i];
    return NULL;
}

/* ---- one operation, as part of the revision that is being made ---- */

static void
change_add(struct fake_etcd *etcd, uint32_t key, struct change change)
{
    etcd->changes =
        grow(etcd->changes, etcd->change_count, &etcd->change_capacity, sizeof(*etcd->changes));
    change.kv.key = etcd->keys[key].bytes;
    change.before = etcd->keys[key].last;
    etcd->keys[key].last = etcd->change_count;
    etcd->changes[etcd->change_count++] = change;
}

static void
answer_kvs(struct fake_etcd *etcd, struct etcd_response *response, const struct change *change)
{
    response->kvs = arena_copy(&etcd->arena, &change->kv, sizeof(change->kv));
    response->kv_count = 1;
}

static void
do_put(struct fake_etcd *etcd, const struct etcd_op *op, int64_t revision,
       struct etcd_response *response)
{
    const struct change *before = change_now(etcd, op->range.key);
    if (before != NULL && op->previous == ETCD_WITH_PREVIOUS)
        answer_kvs(etcd, response, before);
    struct change change = {
        .kv = {.value = {arena_copy(&etcd->arena, op->value.data, op->value.bytes),
                         op->value.bytes},
               .create_revision = before != NULL ? before->kv.create_revision : revision,
               .mod_revision = revision,
               .version = before != NULL ? before->kv.version + 1 : 1,
               .lease_id = op->lease_id},
    };
    change_add(etcd, key_hold(etcd, op->range.key), change);
}

static void
delete_key(struct fake_etcd *etcd, uint32_t key, int64_t revision)
{
    change_add(etcd, key, (struct change){.kv = {.mod_revision = revision}, .gone = true});
}

static void
do_delete(struct fake_etcd *etcd, const struct etcd_op *op, int64_t revision,
          struct etcd_response *response)
{
    uint32_t first = key_from(etcd, op->range.key);
    struct etcd_kv *kvs = NULL;
    if (op->previous == ETCD_WITH_PREVIOUS)
        kvs = arena_take(&etcd->arena, (etcd->key_count - first) * sizeof(*kvs));
    for (uint32_t i = first; i < etcd->key_count && in_range(&op->range, etcd->keys[i].bytes);
         i++) {
        const struct change *change = change_at(etcd, &etcd->keys[i], INT64_MAX);
        if (change == NULL)
            continue;
        if (kvs != NULL)
            kvs[response->kv_count++] = change->kv;
        response->count++;
        delete_key(etcd, i, revision);
    }
    response->kvs = kvs;
}

static void
do_range(struct fake_etcd *etcd, const struct etcd_op *op, struct etcd_response *response)
{
    uint32_t first = key_from(etcd, op->range.key);
    uint32_t end = first;
    while (end < etcd->key_count && in_range(&op->range, etcd->keys[end].bytes))
        end++;
    int64_t revision = op->revision == 0 ? INT64_MAX : op->revision;
    struct etcd_kv *kvs = NULL;
    if (op->content != ETCD_COUNT_ONLY)
        kvs = arena_take(&etcd->arena, (end - first) * sizeof(*kvs));
    for (uint32_t i = first; i < end; i++) {
        const struct change *change = change_at(etcd, &etcd->keys[i], revision);
        if (change == NULL)
            continue;
        response->count++;
        response->more = op->limit > 0 && response->count > op->limit;
        if (kvs == NULL || response->more)
            continue;
        kvs[response->kv_count] = change->kv;
        if (op->content == ETCD_KEYS_ONLY)
            kvs[response->kv_count].value = (struct etcd_bytes){0};
        response->kv_count++;
    }
    response->kvs = kvs;
}

/* ---- answers ---- */

static struct etcd_answer *
answer_make(struct fake_etcd *etcd)
{
    struct etcd_answer *answer = arena_take(&etcd->arena, sizeof(*answer));
    answer->fate = ETCD_DONE;
    answer->revision = etcd->revision;
    answer->cluster_id = 1;
    answer->member_id = 1;
    answer->raft_term = etcd->term;
    answer->history = etcd->history;
    return answer;
}

static struct etcd_answer *
refuse(struct fake_etcd *etcd, enum status status, const char *text)
{
    struct etcd_answer *answer = answer_make(etcd);
    answer->fate = ETCD_NOT_DONE;
    (void)error_set(&answer->error, status, "%s", text);
    return answer;
}

/* NULL: it is well. */
static struct etcd_answer *
refuse_unwell(struct fake_etcd *etcd)
{
    return etcd->health == FAKE_WELL ? NULL
                                     : refuse(etcd, STATUS_UNAVAILABLE, "etcdserver: no leader");
}

static const char *
judge_op(struct fake_etcd *etcd, const struct etcd_op *op, enum status *status)
{
    *status = STATUS_OUT_OF_RANGE;
    if (op->kind == ETCD_RANGE && op->revision > etcd->revision)
        return "mvcc: required revision is a future revision";
    if (op->kind == ETCD_RANGE && op->revision != 0 && op->revision < etcd->compacted)
        return "mvcc: required revision has been compacted";
    *status = STATUS_NOT_FOUND;
    if (op->kind == ETCD_PUT && op->lease_id != 0 && lease_of(etcd, op->lease_id) == NULL)
        return "etcdserver: requested lease not found";
    return NULL;
}

static size_t
op_bytes(const struct etcd_op *op)
{
    return op->range.key.bytes + op->range.end.bytes + op->value.bytes;
}

static bool
puts_twice(const struct etcd_op *ops, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count; j++)
            if (i != j && ops[i].kind == ETCD_PUT && ops[j].kind != ETCD_RANGE &&
                in_range(&ops[j].range, ops[i].range.key))
                return true;
    return false;
}

/* NULL: it may be done. Sizes first, as the server does. */
static const char *
judge_ops(const struct etcd_op *ops, size_t count, size_t *bytes, enum status *status)
{
    for (size_t i = 0; i < count; i++)
        *bytes += op_bytes(&ops[i]);
    *status = STATUS_RESOURCE_EXHAUSTED;
    if (*bytes > MESSAGE_MAX)
        return "grpc: received message larger than max";
    *status = STATUS_INVALID_ARGUMENT;
    if (count > OPS_MAX)
        return "etcdserver: too many operations in txn request";
    if (puts_twice(ops, count))
        return "etcdserver: duplicate key given in txn request";
    if (*bytes > REQUEST_MAX)
        return "etcdserver: request is too large";
    return NULL;
}

/* All of them in one revision, if they change anything. */
static struct etcd_answer *
do_ops(struct fake_etcd *etcd, const struct etcd_op *ops, size_t count)
{
    enum status status;
    for (size_t i = 0; i < count; i++) {
        const char *wrong = judge_op(etcd, &ops[i], &status);
        if (wrong != NULL)
            return refuse(etcd, status, wrong);
    }
    struct etcd_response *responses = arena_take(&etcd->arena, count * sizeof(*responses));
    uint32_t changes = etcd->change_count;
    for (size_t i = 0; i < count; i++) {
        responses[i].kind = ops[i].kind;
        switch (ops[i].kind) {
        case ETCD_PUT: do_put(etcd, &ops[i], etcd->revision + 1, &responses[i]); break;
        case ETCD_DELETE: do_delete(etcd, &ops[i], etcd->revision + 1, &responses[i]); break;
        case ETCD_RANGE: do_range(etcd, &ops[i], &responses[i]); break;
        }
    }
    etcd->revision += etcd->change_count > changes;
    struct etcd_answer *answer = answer_make(etcd);
    answer->responses = responses;
    answer->response_count = count;
    return answer;
}

const struct etcd_answer *
fake_etcd_op(struct fake_etcd *etcd, const struct etcd_op *op)
{
    if (etcd->health == FAKE_SILENT)
        return NULL;
    if (etcd->health == FAKE_NO_LEADER &&
        !(op->kind == ETCD_RANGE && op->freshness == ETCD_SERIALIZABLE))
        return refuse_unwell(etcd);
    enum status status;
    size_t bytes = 0;
    const char *wrong = judge_ops(op, 1, &bytes, &status);
    return wrong != NULL ? refuse(etcd, status, wrong) : do_ops(etcd, op, 1);
}

/* ---- transactions ---- */

static int
compare_numbers(int64_t a, int64_t b)
{
    return a < b ? -1 : a > b;
}

static bool
holds_for(const struct etcd_compare *compare, const struct etcd_kv *kv)
{
    int order = 0;
    switch (compare->target) {
    case ETCD_VERSION: order = compare_numbers(kv->version, compare->number); break;
    case ETCD_CREATE: order = compare_numbers(kv->create_revision, compare->number); break;
    case ETCD_MOD: order = compare_numbers(kv->mod_revision, compare->number); break;
    case ETCD_LEASE: order = compare_numbers(kv->lease_id, compare->number); break;
    case ETCD_VALUE: order = compare_bytes(kv->value, compare->value); break;
    }
    switch (compare->relation) {
    case ETCD_EQUAL: return order == 0;
    case ETCD_GREATER: return order > 0;
    case ETCD_LESS: return order < 0;
    case ETCD_NOT_EQUAL: return order != 0;
    }
    UNREACHABLE();
}

static bool
holds(const struct fake_etcd *etcd, const struct etcd_compare *compare)
{
    bool any = false;
    for (uint32_t i = key_from(etcd, compare->range.key);
         i < etcd->key_count && in_range(&compare->range, etcd->keys[i].bytes); i++) {
        const struct change *change = change_at(etcd, &etcd->keys[i], INT64_MAX);
        if (change == NULL)
            continue;
        any = true;
        if (!holds_for(compare, &change->kv))
            return false;
    }
    const struct etcd_kv none = {0};
    return any || (compare->target != ETCD_VALUE && holds_for(compare, &none));
}

const struct etcd_answer *
fake_etcd_txn(struct fake_etcd *etcd, const struct etcd_txn *txn)
{
    if (etcd->health != FAKE_WELL)
        return etcd->health == FAKE_SILENT ? NULL : refuse_unwell(etcd);
    enum status status;
    size_t bytes = 0;
    const char *wrong = judge_ops(txn->success, txn->success_count, &bytes, &status);
    if (wrong == NULL)
        wrong = judge_ops(txn->failure, txn->failure_count, &bytes, &status);
    if (wrong != NULL)
        return refuse(etcd, status, wrong);
    bool succeeded = true;
    for (size_t i = 0; i < txn->compare_count; i++)
        succeeded = succeeded && holds(etcd, &txn->compares[i]);
    struct etcd_answer *answer = succeeded ? do_ops(etcd, txn->success, txn->success_count)
                                           : do_ops(etcd, txn->failure, txn->failure_count);
    answer->succeeded = succeeded && answer->fate == ETCD_DONE;
    return answer;
}

const struct etcd_answer *
fake_etcd_compact(struct fake_etcd *etcd, int64_t revision)
{
    if (etcd->health != FAKE_WELL)
        return etcd->health == FAKE_SILENT ? NULL : refuse_unwell(etcd);
    if (revision <= etcd->compacted)
        return refuse(etcd, STATUS_OUT_OF_RANGE, "mvcc: required revision has been compacted");
    if (revision > etcd->revision)
        return refuse(etcd, STATUS_OUT_OF_RANGE, "mvcc: required revision is a future revision");
    etcd->compacted = revision;
    return answer_make(etcd);
}

/* ---- leases ---- */

const struct etcd_answer *
fake_etcd_grant(struct fake_etcd *etcd, int64_t ttl_s, int64_t lease_id)
{
    if (etcd->health != FAKE_WELL)
        return etcd->health == FAKE_SILENT ? NULL : refuse_unwell(etcd);
    if (lease_id == 0)
        lease_id = INT64_C(0x5000000000000000) + ++etcd->leases_given;
    if (lease_of(etcd, lease_id) != NULL)
        return refuse(etcd, STATUS_FAILED_PRECONDITION, "etcdserver: lease already exists");
    if (ttl_s < TTL_S_MIN)
        ttl_s = TTL_S_MIN;
    etcd->leases =
        grow(etcd->leases, etcd->lease_count, &etcd->lease_capacity, sizeof(*etcd->leases));
    etcd->leases[etcd->lease_count++] =
        (struct lease){.id = lease_id, .ttl_s = ttl_s, .end_ms = etcd->now_ms + ttl_s * 1000};
    struct etcd_answer *answer = answer_make(etcd);
    answer->lease_id = lease_id;
    answer->ttl_s = ttl_s;
    return answer;
}

const struct etcd_answer *
fake_etcd_renew(struct fake_etcd *etcd, int64_t lease_id)
{
    if (etcd->health != FAKE_WELL)
        return etcd->health == FAKE_SILENT ? NULL : refuse_unwell(etcd);
    struct lease *lease = lease_of(etcd, lease_id);
    struct etcd_answer *answer = answer_make(etcd);
    answer->lease_id = lease_id;
    if (lease == NULL)
        return answer; /* without a TTL */
    lease->end_ms = etcd->now_ms + lease->ttl_s * 1000;
    answer->ttl_s = lease->ttl_s;
    return answer;
}

/* Its keys go in one revision. */
static void
lease_end(struct fake_etcd *etcd, struct lease *lease)
{
    int64_t lease_id = lease->id;
    *lease = etcd->leases[--etcd->lease_count];
    uint32_t changes = etcd->change_count;
    for (uint32_t i = 0; i < etcd->key_count; i++) {
        const struct change *change = change_at(etcd, &etcd->keys[i], INT64_MAX);
        if (change != NULL && change->kv.lease_id == lease_id)
            delete_key(etcd, i, etcd->revision + 1);
    }
    etcd->revision += etcd->change_count > changes;
}

const struct etcd_answer *
fake_etcd_revoke(struct fake_etcd *etcd, int64_t lease_id)
{
    if (etcd->health != FAKE_WELL)
        return etcd->health == FAKE_SILENT ? NULL : refuse_unwell(etcd);
    struct lease *lease = lease_of(etcd, lease_id);
    if (lease == NULL)
        return refuse(etcd, STATUS_NOT_FOUND, "etcdserver: requested lease not found");
    lease_end(etcd, lease);
    return answer_make(etcd);
}

void
fake_etcd_advance(struct fake_etcd *etcd, int64_t now_ms)
{
    etcd->now_ms = now_ms;
    for (uint32_t i = 0; etcd->health == FAKE_WELL && i < etcd->lease_count;) {
        if (etcd->leases[i].end_ms > now_ms)
            i++;
        else
            lease_end(etcd, &etcd->leases[i]); /* the last one is in its place */
    }
}

/* ---- its faults ---- */

void
fake_etcd_set_health(struct fake_etcd *etcd, enum fake_health health)
{
    if (etcd->health != FAKE_WELL && health == FAKE_WELL) {
        etcd->term++;
        for (uint32_t i = 0; i < etcd->lease_count; i++)
            etcd->leases[i].end_ms = etcd->now_ms + etcd->leases[i].ttl_s * 1000;
    }
    etcd->health = health;
}

void
fake_etcd_empty(struct fake_etcd *etcd)
{
    etcd->key_count = 0;
    etcd->change_count = 0;
    etcd->lease_count = 0;
    etcd->revision = 1;
    etcd->compacted = 0;
    etcd->term = 2;
    etcd->history++;
}

int64_t
fake_etcd_revision(const struct fake_etcd *etcd)
{
    return etcd->revision;
}

uint64_t
fake_etcd_history(const struct fake_etcd *etcd)
{
    return etcd->history;
}

int64_t
fake_etcd_compacted(const struct fake_etcd *etcd)
{
    return etcd->compacted;
}

bool
fake_etcd_look(const struct fake_etcd *etcd, struct etcd_bytes key, int64_t revision,
               struct etcd_kv *kv)
{
    uint32_t at = key_from(etcd, key);
    if (at == etcd->key_count || compare_bytes(etcd->keys[at].bytes, key) != 0)
        return false;
    const struct change *change = change_at(etcd, &etcd->keys[at], revision);
    if (change != NULL)
        *kv = change->kv;
    return change != NULL;
}

const struct etcd_kv *
fake_etcd_all(struct fake_etcd *etcd, size_t *count)
{
    const struct etcd_op all = {.kind = ETCD_RANGE, .range = {.span = ETCD_PREFIX}};
    struct etcd_response response = {0};
    do_range(etcd, &all, &response);
    *count = response.kv_count;
    return response.kvs;
}

/* ---- watches ---- */

struct fake_watch *
fake_watch_open(struct fake_etcd *etcd, const struct etcd_range *ranges, size_t count,
                int64_t revision)
{
    struct fake_watch *watch = arena_take(&etcd->arena, sizeof(*watch));
    *watch = (struct fake_watch){
        .etcd = etcd,
        .ranges = arena_copy(&etcd->arena, ranges, count * sizeof(*ranges)),
        .count = count,
        .history = etcd->history,
        .revision = revision == 0 ? etcd->revision + 1 : revision,
    };
    for (size_t i = 0; i < count; i++) {
        struct etcd_range *range = &watch->ranges[i];
        range->key.data = arena_copy(&etcd->arena, range->key.data, range->key.bytes);
        range->end.data = arena_copy(&etcd->arena, range->end.data, range->end.bytes);
    }
    watch->at = etcd->change_count;
    while (watch->at > 0 && etcd->changes[watch->at - 1].kv.mod_revision >= watch->revision)
        watch->at--;
    return watch;
}

void
fake_watch_close(struct fake_watch *watch)
{
    watch->history = 0; /* its memory is etcd's */
}

/* One range's view of the changes from `at` up to `end`. */
static size_t
collect(const struct fake_watch *watch, const struct etcd_range *range, uint32_t end,
        struct etcd_event *events)
{
    size_t count = 0;
    for (uint32_t i = watch->at; i < end; i++) {
        const struct change *change = &watch->etcd->changes[i];
        if (!in_range(range, change->kv.key))
            continue;
        if (events != NULL)
            events[count] = (struct etcd_event){
                .kind = change->gone ? ETCD_EVENT_DELETE : ETCD_EVENT_PUT, .kv = change->kv};
        count++;
    }
    return count;
}

enum fake_news
fake_watch_next(struct fake_watch *watch, struct fake_events *events)
{
    struct fake_etcd *etcd = watch->etcd;
    CHECK(watch->history != 0);
    if (watch->history != etcd->history || watch->revision > etcd->revision + 1)
        return FAKE_BEHIND;
    while (watch->at < etcd->change_count) {
        int64_t revision = etcd->changes[watch->at].kv.mod_revision;
        if (revision < etcd->compacted)
            return FAKE_COMPACTED;
        uint32_t end = watch->at;
        while (end < etcd->change_count && etcd->changes[end].kv.mod_revision == revision)
            end++;
        while (watch->range < watch->count) {
            const struct etcd_range *range = &watch->ranges[watch->range++];
            size_t count = collect(watch, range, end, NULL);
            if (count == 0)
                continue;
            struct etcd_event *made = arena_take(&etcd->arena, count * sizeof(*made));
            collect(watch, range, end, made);
            *events = (struct fake_events){watch->range - 1, made, count};
            return FAKE_EVENTS;
        }
        watch->range = 0;
        watch->at = end;
        watch->revision = revision + 1;
    }
    watch->revision = etcd->revision + 1;
    return FAKE_NOTHING;
}

int64_t
fake_watch_revision(const struct fake_watch *watch)
{
    return watch->revision - 1;
}
