/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/request.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

static enum status
id_check(const char *id, struct error *error)
{
    size_t bytes = strlen(id);
    if (bytes > 0 && bytes <= STORE_ID_BYTES_MAX)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT,
                     "a transaction: an id has %zu bytes, not 1 to %d", bytes, STORE_ID_BYTES_MAX);
}

static enum status
change_check(const struct store_txn *txn, size_t index, struct error *error)
{
    const struct store_change *change = &txn->changes[index];
    CHECK(change->table < STORE_TABLES);
    if (change->table == STORE_INSTANCES)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a transaction: it cannot change instances");
    if (change->value_bytes > STORE_VALUE_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a transaction: the value of \"%s\" has %zu bytes; at most %d are taken",
                         change->id, change->value_bytes, STORE_VALUE_BYTES_MAX);
    for (size_t i = 0; i < index; i++)
        if (txn->changes[i].table == change->table && strcmp(txn->changes[i].id, change->id) == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "a transaction: \"%s\" is changed twice", change->id);
    return id_check(change->id, error);
}

static enum status
txn_check(const struct store_txn *txn, struct error *error)
{
    if (txn->compare_count > STORE_COMPARES_MAX || txn->change_count > STORE_CHANGES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "a transaction: %zu compares and %zu changes; at most %d and %d are taken",
                         txn->compare_count, txn->change_count, STORE_COMPARES_MAX,
                         STORE_CHANGES_MAX);
    for (size_t i = 0; i < txn->compare_count; i++) {
        CHECK(txn->compares[i].table < STORE_TABLES);
        if (id_check(txn->compares[i].id, error) != STATUS_OK)
            return error->status;
    }
    for (size_t i = 0; i < txn->change_count; i++)
        if (change_check(txn, i, error) != STATUS_OK)
            return error->status;
    return STATUS_OK;
}

static void *
copy(char **at, const void *data, size_t bytes)
{
    char *to = *at;
    if (bytes > 0)
        memcpy(to, data, bytes);
    *at += bytes;
    return to;
}

enum status
request_create(const struct store_txn *txn, struct store_reply reply, struct store_request **made,
               struct error *error)
{
    if (txn_check(txn, error) != STATUS_OK)
        return error->status;
    size_t bytes = 0;
    for (size_t i = 0; i < txn->compare_count; i++)
        bytes += strlen(txn->compares[i].id) + 1;
    for (size_t i = 0; i < txn->change_count; i++)
        bytes += strlen(txn->changes[i].id) + 1 + txn->changes[i].value_bytes;
    size_t compares = txn->compare_count * sizeof(struct store_compare);
    size_t changes = txn->change_count * sizeof(struct store_change);
    struct store_request *request = calloc(1, sizeof(*request) + compares + changes + bytes);
    CHECK(request != NULL);
    char *at = (char *)(request + 1);
    struct store_compare *compare = copy(&at, txn->compares, compares);
    struct store_change *change = copy(&at, txn->changes, changes);
    request->txn = *txn;
    request->txn.compares = compare;
    request->txn.changes = change;
    request->reply = reply;
    for (size_t i = 0; i < txn->compare_count; i++)
        compare[i].id = copy(&at, txn->compares[i].id, strlen(txn->compares[i].id) + 1);
    for (size_t i = 0; i < txn->change_count; i++) {
        change[i].id = copy(&at, txn->changes[i].id, strlen(txn->changes[i].id) + 1);
        if (change[i].value != NULL)
            change[i].value = copy(&at, txn->changes[i].value, txn->changes[i].value_bytes);
    }
    CHECK(at <= (char *)(request + 1) + compares + changes + bytes);
    *made = request;
    return STATUS_OK;
}

void
request_end(struct store_request *request, enum store_txn_end end, const struct error *error)
{
    static const struct error none = {.status = STATUS_OK};
    CHECK(error != NULL || end == STORE_OK);
    request->reply.on_end(request->reply.context, end, error == NULL ? &none : error);
    free(request);
}

void
request_queue_put(struct request_queue *queue, struct store_request *request)
{
    CHECK(queue->first == NULL || queue->last->next == NULL);
    request->next = NULL;
    if (queue->first == NULL)
        queue->first = request;
    else
        queue->last->next = request;
    queue->last = request;
}

void
request_queue_return(struct request_queue *queue, struct request_queue *front)
{
    if (front->first == NULL)
        return;
    front->last->next = queue->first;
    if (queue->first == NULL)
        queue->last = front->last;
    queue->first = front->first;
    *front = (struct request_queue){0};
}

struct store_request *
request_queue_take(struct request_queue *queue)
{
    struct store_request *request = queue->first;
    if (request != NULL)
        queue->first = request->next;
    return request;
}

void
request_queue_drop(struct request_queue *queue)
{
    struct store_request *request;
    while ((request = request_queue_take(queue)) != NULL)
        free(request);
}
