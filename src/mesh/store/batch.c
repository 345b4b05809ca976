/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/batch.h"

#include <stdint.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

enum batch_kind { KIND_COMPARES, KIND_DELETES, KIND_PUTS };

struct batch_key {
    uint64_t hash;
    enum store_table table;
    const char *id;
    bool changed;
};

/* A batch under construction. */
struct batch_making {
    struct batch_key keys[2 * BATCH_OPS_MAX];
    size_t key_count;
    size_t compares; /* including the session's */
    size_t ops;      /* if the compares hold */
    size_t bytes;
};

struct batch_cost {
    size_t compares, ops, bytes;
};

bool
batch_creates(const struct store_txn *txn, const struct store_change *change)
{
    for (size_t i = 0; i < txn->compare_count; i++) {
        const struct store_compare *compare = &txn->compares[i];
        if (compare->table == change->table && strcmp(compare->id, change->id) == 0)
            return compare->revision == 0;
    }
    return false;
}

static enum batch_kind
kind_of(const struct store_txn *txn)
{
    for (size_t i = 0; i < txn->change_count; i++)
        if (txn->changes[i].value != NULL)
            return KIND_PUTS;
    return txn->change_count > 0 ? KIND_DELETES : KIND_COMPARES;
}

static struct batch_cost
cost_of(const struct store_txn *txn)
{
    struct batch_cost cost = {.compares = txn->compare_count, .ops = txn->change_count};
    for (size_t i = 0; i < txn->compare_count; i++)
        cost.bytes += 2 * strlen(txn->compares[i].id);
    for (size_t i = 0; i < txn->change_count; i++) {
        const struct store_change *change = &txn->changes[i];
        cost.ops += change->value != NULL && !batch_creates(txn, change);
        cost.bytes += 2 * strlen(change->id) + change->value_bytes;
    }
    return cost;
}

static struct batch_key
key_of(enum store_table table, const char *id, bool changed)
{
    uint64_t hash = hash_fnv1a(HASH_FNV1A_SEED + (uint64_t)table, id, strlen(id));
    return (struct batch_key){hash, table, id, changed};
}

/* B1 */
static bool
is_independent(const struct batch_making *making, struct batch_key key)
{
    for (size_t i = 0; i < making->key_count; i++) {
        const struct batch_key *other = &making->keys[i];
        if (other->hash == key.hash && other->table == key.table &&
            strcmp(other->id, key.id) == 0 && (other->changed || key.changed))
            return false;
    }
    return true;
}

static bool
are_independent(const struct batch_making *making, const struct store_txn *txn)
{
    for (size_t i = 0; i < txn->compare_count; i++)
        if (!is_independent(making, key_of(txn->compares[i].table, txn->compares[i].id, false)))
            return false;
    for (size_t i = 0; i < txn->change_count; i++)
        if (!is_independent(making, key_of(txn->changes[i].table, txn->changes[i].id, true)))
            return false;
    return true;
}

static bool
joins(const struct batch_making *making, const struct store_request *first,
      const struct store_request *request, size_t ops_max)
{
    struct batch_cost cost = cost_of(&request->txn);
    return request->company == first->company && request->company != REQUEST_ALONE &&
           request->txn.session == first->txn.session &&
           kind_of(&request->txn) == kind_of(&first->txn) &&
           making->compares + cost.compares <= ops_max && making->ops + cost.ops <= ops_max &&
           making->bytes + cost.bytes <= BATCH_BYTES_MAX && are_independent(making, &request->txn);
}

static void
add(struct batch_making *making, struct store_batch *batch, struct store_request *request)
{
    const struct store_txn *txn = &request->txn;
    struct batch_cost cost = cost_of(txn);
    CHECK(batch->count < BATCH_OPS_MAX);
    CHECK(making->key_count + txn->compare_count + txn->change_count <= ARRAY_COUNT(making->keys));
    batch->requests[batch->count++] = request;
    making->compares += cost.compares;
    making->ops += cost.ops;
    making->bytes += cost.bytes;
    for (size_t i = 0; i < txn->compare_count; i++)
        making->keys[making->key_count++] =
            key_of(txn->compares[i].table, txn->compares[i].id, false);
    for (size_t i = 0; i < txn->change_count; i++)
        making->keys[making->key_count++] = key_of(txn->changes[i].table, txn->changes[i].id, true);
}

void
batch_take(struct request_queue *queue, size_t ops_max, struct store_batch *batch)
{
    struct batch_making making = {.compares = 1};
    struct request_queue passed = {0};
    struct store_request *first = request_queue_take(queue);
    CHECK(first != NULL && ops_max <= BATCH_OPS_MAX);
    batch->count = 0;
    add(&making, batch, first);
    for (size_t looks = 0; looks < BATCH_LOOKS_MAX && batch->count < ops_max; looks++) {
        struct store_request *request = request_queue_take(queue);
        if (request == NULL)
            break;
        if (joins(&making, first, request, ops_max))
            add(&making, batch, request);
        else
            request_queue_put(&passed, request);
    }
    request_queue_return(queue, &passed);
}
