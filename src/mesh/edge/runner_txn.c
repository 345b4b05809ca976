/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Passes the core's transactions to the store: records become bytes here, under the lock, while the
 * core's texts live; the loop thread hands them over.
 */
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "mesh/edge/runner_inside.h"
#include "mesh/record/record.h"

struct txn {
    struct runner_work work;
    struct runner_link link;
    struct mesh_runner *runner;
    uint64_t number; /* the core's */
    uint64_t session;
    struct store_compare compares[MESH_WRITES_MAX + 1];
    struct store_change changes[MESH_WRITES_MAX];
    struct bytes values[MESH_WRITES_MAX];
    size_t compare_count;
    size_t change_count;
    char *ids;          /* one after another */
    struct error error; /* it cannot be written */
};

static struct txn *
txn_of(struct runner_link *link)
{
    return (struct txn *)((char *)link - offsetof(struct txn, link));
}

static void
destroy(struct txn *txn)
{
    for (size_t i = 0; i < MESH_WRITES_MAX; i++)
        bytes_fini(&txn->values[i]);
    free(txn->ids);
    free(txn);
}

/* ---- on the loop thread ---- */

static bool
puts_any(const struct txn *txn)
{
    for (size_t i = 0; i < txn->change_count; i++)
        if (txn->changes[i].value != NULL)
            return true;
    return false;
}

/* `error` may be NULL if the end is LOST. */
static void
end(struct txn *txn, enum store_txn_end received, const struct error *error)
{
    static const enum mesh_txn_end ends[] = {[STORE_OK] = MESH_TXN_OK,
                                             [STORE_LOST] = MESH_TXN_LOST,
                                             [STORE_UNKNOWN] = MESH_TXN_UNKNOWN,
                                             [STORE_FULL] = MESH_TXN_UNKNOWN,
                                             [STORE_BUSY] = MESH_TXN_LOST};
    struct mesh_runner *runner = txn->runner;
    CHECK(received < ARRAY_COUNT(ends));
    enum mesh_txn_end how = ends[received];
    runner_lock(runner);
    link_remove(&txn->link);
    runner->counts.txns_done += how == MESH_TXN_OK;
    runner->counts.txns_lost += how == MESH_TXN_LOST;
    runner->counts.txns_unknown += how == MESH_TXN_UNKNOWN;
    if (!runner->closed)
        runner_step(runner, (struct mesh_event){.kind = MESH_TXN_ENDED,
                                                .txn = {.txn = txn->number, .end = how}});
    if (how == MESH_TXN_OK && puts_any(txn))
        runner->reported.full_ns = 0;
    if (!runner->closed && how != MESH_TXN_OK)
        runner_refuse_txn(runner, txn->compares, txn->compare_count, received, error);
    runner_unlock_and_work(runner);
    destroy(txn);
}

/* A lost transaction is ordinary, and the store reports its own troubles. */
static void
on_end(void *context, enum store_txn_end how, const struct error *error)
{
    end(context, how, error);
}

/* Reports the transaction to the core as lost. The core tries again in a second; the log line is
 * not repeated. */
static void
refuse(struct txn *txn)
{
    struct mesh_runner *runner = txn->runner;
    int64_t now_ns = clock_now_ns();
    if (runner->store_log.refused_ns == 0 ||
        now_ns - runner->store_log.refused_ns > RUNNER_QUIET_NS) {
        runner->store_log.refused_ns = now_ns;
        log_error("mesh_record_refused id=\"%s\" error=\"%s\"", txn->compares[0].id,
                  txn->error.text);
    }
    end(txn, STORE_LOST, NULL);
}

static void
run(struct mesh_runner *runner, struct runner_work *work)
{
    struct txn *txn = (struct txn *)work;
    if (runner->store == NULL) { /* closed before this could run */
        end(txn, STORE_LOST, NULL);
        return;
    }
    const struct store_txn made = {.session = txn->session,
                                   .compares = txn->compares,
                                   .compare_count = txn->compare_count,
                                   .changes = txn->changes,
                                   .change_count = txn->change_count};
    const struct store_reply reply = {.on_end = on_end, .context = txn};
    if (txn->error.status != STATUS_OK ||
        store_txn(runner->store, &made, reply, &txn->error) != STATUS_OK)
        refuse(txn);
}

static void
drop(struct runner_work *work)
{
    struct txn *txn = (struct txn *)work;
    link_remove(&txn->link);
    destroy(txn);
}

/* ---- under the lock ---- */

static enum store_table
table_of(const struct mesh_write *write)
{
    return write->record == MESH_RECORD_MODEL ? STORE_MODELS : STORE_VMODELS;
}

static const char *
id_of(const struct mesh_write *write)
{
    return write->record == MESH_RECORD_MODEL ? write->model.id : write->vmodel.id;
}

/* Copies all ids and the absent instance into the transaction's memory. */
static char *
hold_ids(struct txn *txn, const struct mesh_txn *asked)
{
    size_t bytes = asked->absent == NULL ? 0 : strlen(asked->absent) + 1;
    for (uint32_t i = 0; i < asked->write_count; i++)
        bytes += strlen(id_of(&asked->writes[i])) + 1;
    txn->ids = malloc(bytes);
    CHECK(txn->ids != NULL);
    return txn->ids;
}

static const char *
put_id(char **to, const char *id)
{
    char *copy = *to;
    size_t bytes = strlen(id) + 1;
    memcpy(copy, id, bytes);
    *to += bytes;
    return copy;
}

static enum status
write_value(struct mesh_runner *runner, const struct mesh_write *write, struct bytes *to,
            struct error *error)
{
    const char *unknown_fields = unknown_fields_get(&runner->records.unknown_fields,
                                                    table_of(write), id_of(write), write->compare);
    size_t bytes = unknown_fields == NULL ? 0 : strlen(unknown_fields);
    return write->record == MESH_RECORD_MODEL
               ? record_model_write(&write->model, unknown_fields, bytes, to, error)
               : record_vmodel_write(&write->vmodel, unknown_fields, bytes, to, error);
}

static void
add_write(struct mesh_runner *runner, struct txn *txn, const struct mesh_write *write, char **ids)
{
    const char *id = put_id(ids, id_of(write));
    CHECK(txn->compare_count < ARRAY_COUNT(txn->compares));
    txn->compares[txn->compare_count++] =
        (struct store_compare){.table = table_of(write), .id = id, .revision = write->compare};
    if (write->verb == MESH_VERB_COMPARE)
        return;
    struct store_change *change = &txn->changes[txn->change_count];
    *change = (struct store_change){.table = table_of(write), .id = id};
    if (write->verb == MESH_VERB_PUT && txn->error.status == STATUS_OK) {
        struct bytes *value = &txn->values[txn->change_count];
        if (write_value(runner, write, value, &txn->error) == STATUS_OK) {
            CHECK(!value->failed);
            change->value = value->data;
            change->value_bytes = value->used;
        }
    }
    txn->change_count++;
}

void
runner_txn_do(struct mesh_runner *runner, const struct mesh_txn *asked)
{
    CHECK(asked->write_count >= 1 && asked->write_count <= MESH_WRITES_MAX);
    CHECK(asked->session != 0); /* T1: the fence */
    struct txn *txn = calloc(1, sizeof(*txn));
    CHECK(txn != NULL);
    txn->work = (struct runner_work){.run = run, .drop = drop};
    txn->runner = runner;
    txn->number = asked->txn;
    txn->session = asked->session;
    char *ids = hold_ids(txn, asked);
    for (uint32_t i = 0; i < asked->write_count; i++)
        add_write(runner, txn, &asked->writes[i], &ids);
    if (asked->absent != NULL) {
        CHECK(txn->compare_count < ARRAY_COUNT(txn->compares));
        txn->compares[txn->compare_count++] =
            (struct store_compare){.table = STORE_INSTANCES, .id = put_id(&ids, asked->absent)};
    }
    link_add_last(&runner->txns, &txn->link);
    runner->counts.txns++;
    runner_work_add(runner, &txn->work);
}

void
runner_txn_drop_all(struct mesh_runner *runner)
{
    while (runner->txns.next != &runner->txns)
        drop(&txn_of(runner->txns.next)->work);
}
