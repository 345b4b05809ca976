/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions in etcd. One goes out at once while fewer than OUT_MAX are out; later ones wait and
 * go out together (batch.h) when one is answered:
 *
 *   if    this node's key has the session's creation revision, and each record its revision
 *   then  put and delete; and read each new record that was put, for its creation revision
 *   else  read this node's key and each compared record
 *
 * So the answer contains the current records, which are reported before it. The mirror reports them
 * again later.
 *
 * If a batch is not applied, members whose compares hold by the answer go out again; the others are
 * lost. Each answer ends at least one. Rejected: a nested transaction per member, with its own
 * answer; etcd 3.4.23 neither counts its puts against the quota nor refuses them beyond it.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/clock.h"
#include "loop/timer.h"
#include "mesh/store/batch.h"
#include "mesh/store/etcd_store.h"

enum { OUT_MAX = 2 };

struct out {
    struct out *next;
    struct out **link; /* that points here */
    struct etcd_store *store;
    struct etcd_call *call;
    struct store_batch batch;
};

/* A batch under construction. etcd_txn copies all of it. */
struct txn_making {
    struct bytes keys[2 * BATCH_OPS_MAX];
    size_t key_count;
    struct etcd_compare compares[BATCH_OPS_MAX];
    size_t compare_count;
    struct etcd_op success[BATCH_OPS_MAX];
    size_t success_count;
    struct etcd_op failure[BATCH_OPS_MAX]; /* as many as compares */
};

static void pump(struct etcd_store *store);

/* ---- asking ---- */

static struct etcd_range
key_range(struct txn_making *making, const struct etcd_store *store, enum store_table table,
          const char *id)
{
    CHECK(making->key_count < ARRAY_COUNT(making->keys));
    struct bytes *key = &making->keys[making->key_count++];
    record_key_put(key, etcd_store_prefix(store), (enum record_area)table, record_text(id));
    CHECK(!key->failed);
    return (struct etcd_range){.span = ETCD_ONE, .key = {key->data, key->used}};
}

static void
make_fence(struct txn_making *making, const struct etcd_store *store, uint64_t session)
{
    struct etcd_range own = key_range(making, store, STORE_INSTANCES, store->store.instance);
    making->compares[0] =
        (struct etcd_compare){.range = own, .target = ETCD_CREATE, .number = (int64_t)session};
    making->failure[0] =
        (struct etcd_op){.kind = ETCD_RANGE, .range = own, .content = ETCD_KEYS_ONLY};
    making->compare_count = 1;
}

static void
make_compares(struct txn_making *making, const struct etcd_store *store,
              const struct store_txn *txn)
{
    for (size_t i = 0; i < txn->compare_count; i++) {
        const struct store_compare *compare = &txn->compares[i];
        struct etcd_range range = key_range(making, store, compare->table, compare->id);
        CHECK(making->compare_count < ARRAY_COUNT(making->compares));
        size_t at = making->compare_count++;
        making->compares[at] = (struct etcd_compare){
            .range = range, .target = ETCD_MOD, .number = (int64_t)compare->revision};
        making->failure[at] = (struct etcd_op){.kind = ETCD_RANGE, .range = range};
    }
}

/* A change is followed by the read that belongs to it. */
static void
make_changes(struct txn_making *making, const struct etcd_store *store, const struct store_txn *txn)
{
    for (size_t i = 0; i < txn->change_count; i++) {
        const struct store_change *change = &txn->changes[i];
        struct etcd_range range = key_range(making, store, change->table, change->id);
        CHECK(making->success_count < ARRAY_COUNT(making->success));
        making->success[making->success_count++] = (struct etcd_op){
            .kind = change->value == NULL ? ETCD_DELETE : ETCD_PUT,
            .range = range,
            .value = {change->value, change->value_bytes},
        };
        if (change->value == NULL || batch_creates(txn, change))
            continue;
        CHECK(making->success_count < ARRAY_COUNT(making->success));
        making->success[making->success_count++] =
            (struct etcd_op){.kind = ETCD_RANGE, .range = range, .content = ETCD_KEYS_ONLY};
    }
}

/* ---- the answer ---- */

void
etcd_store_reported(struct etcd_store *store, enum record_area area, const char *id,
                    uint64_t revision)
{
    const struct store_record reported = {
        .table = (enum store_table)area, .id = id, .revision = revision};
    table_put(&store->reported, &reported);
}

static void
notify_kv(struct etcd_store *store, const struct store_compare *compare,
          const struct etcd_response *response, int64_t revision)
{
    const struct store_events *events = &store->store.events;
    if (response->kv_count == 0) {
        events->on_gone(events->context, compare->table, compare->id, (uint64_t)revision);
        return;
    }
    const struct etcd_kv *kv = &response->kvs[0];
    const struct store_record record = {
        .table = compare->table,
        .id = compare->id,
        .value = kv->value.data == NULL ? "" : kv->value.data,
        .value_bytes = kv->value.bytes,
        .create_revision = (uint64_t)kv->create_revision,
        .revision = (uint64_t)kv->mod_revision,
    };
    events->on_put(events->context, &record);
    etcd_store_reported(store, (enum record_area)record.table, record.id, record.revision);
}

/* `responses`: to its changes and reads. Returns the rest. */
static const struct etcd_response *
notify_changes(struct etcd_store *store, const struct store_txn *txn,
               const struct etcd_response *responses, uint64_t revision)
{
    const struct store_events *events = &store->store.events;
    for (size_t i = 0; i < txn->change_count; i++) {
        const struct store_change *change = &txn->changes[i];
        responses++;
        if (change->value == NULL) {
            events->on_gone(events->context, change->table, change->id, revision);
            continue;
        }
        const struct etcd_kv *kv = NULL;
        if (!batch_creates(txn, change)) {
            kv = responses->kv_count == 1 ? &responses->kvs[0] : NULL;
            responses++;
        }
        const struct store_record record = {
            .table = change->table,
            .id = change->id,
            .value = change->value,
            .value_bytes = change->value_bytes,
            .create_revision = kv == NULL ? revision : (uint64_t)kv->create_revision,
            .revision = revision,
        };
        events->on_put(events->context, &record);
        etcd_store_reported(store, (enum record_area)record.table, record.id, revision);
    }
    return responses;
}

static void
batch_held(struct etcd_store *store, const struct store_batch *batch,
           const struct etcd_answer *answer)
{
    const struct etcd_response *responses = answer->responses;
    for (size_t i = 0; i < batch->count; i++) {
        struct store_request *request = batch->requests[i];
        responses = notify_changes(store, &request->txn, responses, (uint64_t)answer->revision);
        request_end(request, STORE_OK, &answer->error);
    }
}

/* `responses`: to its compares. */
static bool
would_hold(const struct store_txn *txn, const struct etcd_response *responses)
{
    for (size_t i = 0; i < txn->compare_count; i++) {
        const struct etcd_response *response = &responses[i];
        uint64_t revision = response->kv_count == 0 ? 0 : (uint64_t)response->kvs[0].mod_revision;
        if (revision != txn->compares[i].revision)
            return false;
    }
    return true;
}

/* Puts them before all waiting ones. */
static void
again(struct etcd_store *store, struct request_queue *requests, enum request_company company)
{
    for (struct store_request *request = requests->first; request != NULL;
         request = request->next) {
        request->company = company;
        store->waiting_count++;
    }
    request_queue_return(&store->waiting, requests);
}

static void
batch_lost(struct etcd_store *store, const struct store_batch *batch,
           const struct etcd_answer *answer)
{
    const struct etcd_response *own = &answer->responses[0];
    const struct etcd_response *responses = own + 1;
    uint64_t session = own->kv_count == 1 ? (uint64_t)own->kvs[0].create_revision : 0;
    struct request_queue held = {0};
    size_t held_count = 0;
    struct error error;
    claim_seen(store->instance, session, (uint64_t)answer->revision);
    for (size_t i = 0; i < batch->count; i++) {
        struct store_request *request = batch->requests[i];
        const struct store_txn *txn = &request->txn;
        const struct etcd_response *looks = responses;
        responses += txn->compare_count;
        if (batch->count > 1 && session == txn->session && would_hold(txn, looks)) {
            request_queue_put(&held, request);
            held_count++;
            continue;
        }
        error_set(&error, STATUS_ABORTED, "a record has changed");
        if (session != txn->session)
            error_set(&error, STATUS_ABORTED, "the session %" PRIu64 " is over", txn->session);
        for (size_t k = 0; k < txn->compare_count; k++)
            notify_kv(store, &txn->compares[k], &looks[k], answer->revision);
        request_end(request, STORE_LOST, &error);
    }
    /* No etcd would answer so for all of them; alone each gets its own answer. */
    again(store, &held, held_count == batch->count ? REQUEST_ALONE : REQUEST_AGAIN);
}

/* Refused for its content or size: alone, each member gets its own answer. Not for an unavailable
 * or overloaded etcd. */
static bool
is_refused(const struct store_batch *batch, const struct etcd_answer *answer)
{
    return batch->count > 1 && answer->fate == ETCD_NOT_DONE &&
           answer->error.status != STATUS_UNAVAILABLE &&
           answer->error.status != STATUS_DEADLINE_EXCEEDED &&
           answer->error.status != STATUS_RESOURCE_EXHAUSTED;
}

/* Halves the size of batches: etcd's limits are below its defaults. */
static void
batch_shrink(struct etcd_store *store, const struct error *error)
{
    const struct store_events *events = &store->store.events;
    if (store->ops_max == 1)
        return;
    store->ops_max /= 2;
    events->on_batch_limit(events->context, store->ops_max, error);
}

static void
batch_failed(struct etcd_store *store, const struct store_batch *batch,
             const struct etcd_answer *answer)
{
    enum store_txn_end end = answer->is_full                 ? STORE_FULL
                             : answer->fate == ETCD_NOT_DONE ? STORE_LOST
                                                             : STORE_UNKNOWN;
    if (is_refused(batch, answer)) {
        struct request_queue all = {0};
        for (size_t i = 0; i < batch->count; i++)
            request_queue_put(&all, batch->requests[i]);
        if (answer->error.status == STATUS_INVALID_ARGUMENT)
            batch_shrink(store, &answer->error);
        again(store, &all, REQUEST_ALONE);
        return;
    }
    etcd_store_fulls_reported(store);
    store->store.events.on_trouble(store->store.events.context, &answer->error);
    for (size_t i = 0; i < batch->count; i++)
        request_end(batch->requests[i], end, &answer->error);
}

static void
on_answer(void *context, const struct etcd_answer *answer)
{
    struct out *out = context;
    struct etcd_store *store = out->store;
    *out->link = out->next;
    if (out->next != NULL)
        out->next->link = out->link;
    if (answer->fate != ETCD_DONE)
        batch_failed(store, &out->batch, answer);
    else if (answer->succeeded)
        batch_held(store, &out->batch, answer);
    else
        batch_lost(store, &out->batch, answer);
    free(out);
    CHECK(store->out_count > 0);
    store->out_count--; /* not before: transactions added by the callbacks go together */
    pump(store);
}

/* ---- sending ---- */

static void
send(struct etcd_store *store, const struct store_batch *batch, int64_t timeout_ns)
{
    struct txn_making *making = calloc(1, sizeof(*making));
    struct out *out = calloc(1, sizeof(*out));
    CHECK(making != NULL && out != NULL && batch->count > 0);
    make_fence(making, store, batch->requests[0]->txn.session);
    for (size_t i = 0; i < batch->count; i++) {
        make_compares(making, store, &batch->requests[i]->txn);
        make_changes(making, store, &batch->requests[i]->txn);
    }
    const struct etcd_txn txn = {
        making->compares,      making->compare_count, making->success,
        making->success_count, making->failure,       making->compare_count,
    };
    *out = (struct out){store->outs, &store->outs, store, NULL, *batch};
    if (out->next != NULL)
        out->next->link = &out->next;
    store->outs = out;
    store->out_count++;
    CHECK(store->out_count <= OUT_MAX);
    out->call = etcd_txn(store->etcd, &txn, (struct etcd_reply){on_answer, out, timeout_ns});
    for (size_t i = 0; i < making->key_count; i++)
        bytes_fini(&making->keys[i]);
    free(making);
}

static void
refuse(struct etcd_store *store, struct store_request *request, enum store_txn_end end,
       const char *refusal)
{
    request->refused = end;
    request->refusal = refusal;
    request_queue_put(&store->refused, request);
    loop_timer_set(store->refused_timer, 0);
}

/* NULL: it may be sent. */
static const char *
refusal_of(const struct etcd_store *store, const struct store_request *request, int64_t now_ns)
{
    if (store->session == 0 || store->session != request->txn.session || store->lease == NULL ||
        etcd_session_left_ns(store->lease) <= 0)
        return "there is no such session, or its lease is about to end";
    return request->deadline_ns > now_ns ? NULL : "it timed out behind earlier transactions";
}

/* Removes those that may not be sent; returns the least time left of the others. */
static int64_t
batch_sift(struct etcd_store *store, struct store_batch *batch)
{
    int64_t now_ns = clock_now_ns();
    int64_t left_ns = INT64_MAX;
    size_t kept = 0;
    for (size_t i = 0; i < batch->count; i++) {
        struct store_request *request = batch->requests[i];
        const char *refusal = refusal_of(store, request, now_ns);
        if (refusal != NULL) {
            refuse(store, request, STORE_LOST, refusal);
            continue;
        }
        batch->requests[kept++] = request;
        if (request->deadline_ns - now_ns < left_ns)
            left_ns = request->deadline_ns - now_ns;
    }
    batch->count = kept;
    return left_ns;
}

/* Without space each transaction is answered by itself, because one that needs no space succeeds.
 */
static void
pump(struct etcd_store *store)
{
    while (store->waiting_count > 0 && store->out_count < OUT_MAX) {
        struct store_batch batch;
        batch_take(&store->waiting, etcd_is_full(store->etcd) ? 1 : store->ops_max, &batch);
        CHECK(batch.count <= store->waiting_count);
        store->waiting_count -= batch.count;
        int64_t left_ns = batch_sift(store, &batch);
        if (batch.count > 0)
            send(store, &batch, left_ns);
    }
}

/* ---- the interface ---- */

void
etcd_store_txn(struct etcd_store *store, struct store_request *request)
{
    int64_t now_ns = clock_now_ns();
    request->deadline_ns = now_ns + store->timeout_ns;
    const char *refusal = refusal_of(store, request, now_ns);
    if (refusal != NULL) {
        refuse(store, request, STORE_LOST, refusal);
        return;
    }
    if (store->waiting_count >= store->waiting_max) {
        store->busy_count++;
        refuse(store, request, STORE_BUSY, "too many writes are waiting for etcd");
        return;
    }
    request_queue_put(&store->waiting, request);
    store->waiting_count++;
    pump(store);
}

void
etcd_store_txns_drop(struct etcd_store *store)
{
    request_queue_drop(&store->waiting);
    while (store->outs != NULL) {
        struct out *out = store->outs;
        store->outs = out->next;
        etcd_cancel(out->call);
        for (size_t i = 0; i < out->batch.count; i++)
            free(out->batch.requests[i]);
        free(out);
    }
}
