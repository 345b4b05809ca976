/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transaction in etcd:
 *
 *   if    the own instance's key has the session's creation revision, and each record its revision
 *   then  put and delete; and look at each that was put, for the creation revision
 *   else  look at the own key, and at each record that was compared
 *
 * So the answer has the records as they now are, and they are told before it. The mirror tells the
 * same later.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/etcd/timer.h"
#include "mesh/store/etcd_store.h"

enum { KEYS_MAX = 1 + STORE_COMPARES_MAX + STORE_CHANGES_MAX };

struct out {
    struct out *next;
    struct out **link; /* that points here */
    struct etcd_store *store;
    struct request *request;
    struct etcd_call *call;
};

/* A transaction in the making. etcd_txn copies all of it. */
struct making {
    struct bytes keys[KEYS_MAX];
    size_t key_count;
    struct etcd_compare compares[1 + STORE_COMPARES_MAX];
    struct etcd_op success[2 * STORE_CHANGES_MAX];
    size_t success_count;
    struct etcd_op failure[1 + STORE_COMPARES_MAX];
};

/* ---- asking ---- */

static struct etcd_range
key_range(struct making *making, const struct etcd_store *store, enum store_table table,
          const char *id)
{
    struct bytes *key = &making->keys[making->key_count++];
    record_key_put(key, etcd_store_prefix(store), (enum record_area)table, record_text(id));
    CHECK(!key->failed);
    return (struct etcd_range){.span = ETCD_ONE, .key = {key->data, key->used}};
}

static void
make_compares(struct making *making, const struct etcd_store *store, const struct store_txn *txn)
{
    struct etcd_range own = key_range(making, store, STORE_INSTANCES, store->store.instance);
    making->compares[0] =
        (struct etcd_compare){.range = own, .target = ETCD_CREATE, .number = (int64_t)txn->session};
    making->failure[0] =
        (struct etcd_op){.kind = ETCD_RANGE, .range = own, .content = ETCD_KEYS_ONLY};
    for (size_t i = 0; i < txn->compare_count; i++) {
        const struct store_compare *compare = &txn->compares[i];
        struct etcd_range range = key_range(making, store, compare->table, compare->id);
        making->compares[1 + i] = (struct etcd_compare){
            .range = range, .target = ETCD_MOD, .number = (int64_t)compare->revision};
        making->failure[1 + i] = (struct etcd_op){.kind = ETCD_RANGE, .range = range};
    }
}

static void
make_changes(struct making *making, const struct etcd_store *store, const struct store_txn *txn)
{
    making->success_count = txn->change_count;
    for (size_t i = 0; i < txn->change_count; i++) {
        const struct store_change *change = &txn->changes[i];
        struct etcd_range range = key_range(making, store, change->table, change->id);
        making->success[i] = (struct etcd_op){
            .kind = change->value == NULL ? ETCD_DELETE : ETCD_PUT,
            .range = range,
            .value = {change->value, change->value_bytes},
        };
        if (change->value != NULL)
            making->success[making->success_count++] =
                (struct etcd_op){.kind = ETCD_RANGE, .range = range, .content = ETCD_KEYS_ONLY};
    }
}

/* ---- the answer ---- */

static void
tell_kv(struct etcd_store *store, const struct store_compare *compare,
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
    etcd_store_told(store, (enum record_area)record.table, record.id, record.revision);
}

static void
tell_changes(struct etcd_store *store, const struct store_txn *txn,
             const struct etcd_answer *answer)
{
    const struct store_events *events = &store->store.events;
    const struct etcd_response *look = &answer->responses[txn->change_count];
    for (size_t i = 0; i < txn->change_count; i++) {
        const struct store_change *change = &txn->changes[i];
        uint64_t revision = (uint64_t)answer->revision;
        if (change->value == NULL) {
            events->on_gone(events->context, change->table, change->id, revision);
            continue;
        }
        const struct etcd_kv *kv = look->kv_count == 1 ? &look->kvs[0] : NULL;
        const struct store_record record = {
            .table = change->table,
            .id = change->id,
            .value = change->value,
            .value_bytes = change->value_bytes,
            .create_revision = kv == NULL ? revision : (uint64_t)kv->create_revision,
            .revision = revision,
        };
        events->on_put(events->context, &record);
        etcd_store_told(store, (enum record_area)record.table, record.id, revision);
        look++;
    }
}

static void
tell_compared(struct etcd_store *store, const struct store_txn *txn,
              const struct etcd_answer *answer, struct error *error)
{
    const struct etcd_response *own = &answer->responses[0];
    uint64_t session = own->kv_count == 1 ? (uint64_t)own->kvs[0].create_revision : 0;
    error_set(error, STATUS_ABORTED, "a record has changed since");
    if (session != txn->session)
        error_set(error, STATUS_ABORTED, "the session %" PRIu64 " is over", txn->session);
    for (size_t i = 0; i < txn->compare_count; i++)
        tell_kv(store, &txn->compares[i], &answer->responses[1 + i], answer->revision);
    claim_seen(store->instance, session, (uint64_t)answer->revision);
}

static void
on_answer(void *context, const struct etcd_answer *answer)
{
    struct out *out = context;
    struct etcd_store *store = out->store;
    struct request *request = out->request;
    struct error error = answer->error;
    enum store_txn_end end;
    *out->link = out->next;
    if (out->next != NULL)
        out->next->link = out->link;
    free(out);
    if (answer->fate == ETCD_DONE && answer->succeeded) {
        end = STORE_OK;
        tell_changes(store, &request->txn, answer);
    } else if (answer->fate == ETCD_DONE) {
        end = STORE_LOST;
        tell_compared(store, &request->txn, answer, &error);
    } else {
        end = answer->is_full                 ? STORE_FULL
              : answer->fate == ETCD_NOT_DONE ? STORE_LOST
                                              : STORE_UNKNOWN;
        store->store.events.on_trouble(store->store.events.context, &error);
    }
    request_end(request, end, &error);
}

/* ---- the interface ---- */

static void
send(struct etcd_store *store, struct request *request)
{
    struct making *making = calloc(1, sizeof(*making));
    struct out *out = calloc(1, sizeof(*out));
    CHECK(making != NULL && out != NULL);
    make_compares(making, store, &request->txn);
    make_changes(making, store, &request->txn);
    const struct etcd_txn txn = {
        making->compares, 1 + request->txn.compare_count, making->success, making->success_count,
        making->failure,  1 + request->txn.compare_count,
    };
    *out = (struct out){store->outs, &store->outs, store, request, NULL};
    if (out->next != NULL)
        out->next->link = &out->next;
    store->outs = out;
    out->call = etcd_txn(store->etcd, &txn, (struct etcd_reply){on_answer, out, store->timeout_ns});
    for (size_t i = 0; i < making->key_count; i++)
        bytes_fini(&making->keys[i]);
    free(making);
}

void
etcd_store_txn(struct etcd_store *store, struct request *request)
{
    bool may = store->session != 0 && store->session == request->txn.session &&
               store->lease != NULL && etcd_session_left_ns(store->lease) > 0;
    if (may) {
        send(store, request);
        return;
    }
    request_queue_put(&store->refused, request);
    etcd_timer_set(store->refused_timer, 0);
}

void
etcd_store_txns_drop(struct etcd_store *store)
{
    while (store->outs != NULL) {
        struct out *out = store->outs;
        store->outs = out->next;
        etcd_cancel(out->call);
        free(out->request);
        free(out);
    }
}
