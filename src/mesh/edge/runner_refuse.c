/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Store troubles that make waiting futile. The core repeats a lost or unknown transaction, as it
 * must, but some causes do not pass by themselves, and waiting calls and orders get the reason:
 *
 *   1. A record that cannot be read. The core does not know it, or only its former content, so each
 *      write on it is lost. As soon as one is, orders that need it end INTERNAL with the record and
 *      the reason, and so do calls that wait for a claim of it or that the core gives up.
 *   2. A store without space. A write is refused with the store's words. Orders on its records and
 *      all calls that need a claim end UNAVAILABLE; for FULL_FRESH_NS afterwards new calls and
 *      orders for a load do so at once. The core repeats unfinished work once a second, and the
 *      node's own record is retried as well: the first successful write ends this state.
 *      Without a session, because the store refused the lease, no transaction is sent: each refusal
 *      of the lease answers all calls and orders that wait.
 *   3. A store in which the largest number of transactions is waiting. Orders on the records of a
 *      transaction that it refuses end RESOURCE_EXHAUSTED, so that a caller with many orders slows
 *      down. Calls wait: the core repeats their claims once a second.
 */
#include <string.h>

#include "mesh/edge/runner_inside.h"

#define FULL_FRESH_NS (3 * NS_PER_S)

/* ---- records that cannot be read ---- */

void
runner_refuse_record(struct mesh_runner *runner, enum store_table table, const char *id,
                     uint64_t revision, const char *text)
{
    struct unknown_fields *unreadable = &runner->records.unreadable;
    bool has_room = unreadable->all.count < RUNNER_UNREADABLE_MAX ||
                    unknown_fields_find(unreadable, table, id) != NULL;
    if (text[0] == '\0' || has_room)
        unknown_fields_set(unreadable, table, id, revision, text);
}

/* The first record that cannot be read. */
static const struct store_compare *
find_unreadable(const struct mesh_runner *runner, const struct store_compare *compares,
                size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (unknown_fields_find(&runner->records.unreadable, compares[i].table, compares[i].id) !=
            NULL)
            return &compares[i];
    return NULL;
}

/* ---- calls ---- */

static void
see_nothing(void *context, const struct mesh_sight *sight)
{
    (void)context;
    (void)sight;
}

/* Returns whether the model is registered and must be claimed before it is loaded here. */
static bool
is_unclaimed(const struct mesh_runner *runner, const char *model)
{
    enum mesh_state state = mesh_state(runner->mesh, model);
    return state == MESH_STATE_CLAIMING ||
           (state == MESH_STATE_NONE && mesh_see_model(runner->mesh, model, see_nothing, NULL));
}

/* The model that a call waits for if it must be claimed first; NULL: the call waits for something
 * else, or not at all. */
static const char *
unclaimed_model(const struct mesh_runner *runner, const struct runner_call *call)
{
    if (call == NULL || call->state != CALL_WAITING)
        return NULL;
    const char *model =
        call->name == RUNNER_NAME_VMODEL ? mesh_resolve(runner->mesh, call->model) : call->model;
    return model != NULL && is_unclaimed(runner, model) ? model : NULL;
}

static bool
is_full(const struct mesh_runner *runner)
{
    return runner->reported.full_ns != 0 &&
           clock_now_ns() - runner->reported.full_ns < FULL_FRESH_NS;
}

static void
refuse_full(struct mesh_runner *runner, struct runner_call *call)
{
    runner_call_refuse(runner, call,
                       (struct runner_answer){.end = MESH_END_UNAVAILABLE,
                                              .text = runner->reported.full.text,
                                              .store_refuses = true});
}

void
runner_refuse_call(struct mesh_runner *runner, struct runner_call *call)
{
    if (is_full(runner) && unclaimed_model(runner, call) != NULL)
        refuse_full(runner, call);
}

void
runner_refuse_from_now(struct mesh_runner *runner, const char *said)
{
    static const char words[] = "the registry takes no writes: ";
    bool has_words = strncmp(said, words, sizeof(words) - 1) == 0; /* forwarded from another node */
    runner->reported.full_ns = clock_now_ns();
    error_set(&runner->reported.full, STATUS_UNAVAILABLE, "%s%s", has_words ? "" : words, said);
}

static void
refuse_calls(struct mesh_runner *runner)
{
    for (uint32_t i = 0; i < runner->calls.used; i++)
        if (unclaimed_model(runner, id_table_at(&runner->calls, i)) != NULL)
            refuse_full(runner, id_table_at(&runner->calls, i));
}

static void
refuse_calls_for(struct mesh_runner *runner, const struct store_compare *bad,
                 const struct error *error)
{
    for (uint32_t i = 0; i < runner->calls.used && bad->table == STORE_MODELS; i++) {
        struct runner_call *call = id_table_at(&runner->calls, i);
        const char *model = unclaimed_model(runner, call);
        if (model != NULL && strcmp(model, bad->id) == 0)
            runner_call_refuse(
                runner, call,
                (struct runner_answer){.end = MESH_END_LOAD_FAILED, .text = error->text});
    }
}

/* ---- orders ---- */

static bool
names(const struct runner_order *order, const struct store_compare *record)
{
    const char *id = record->table == STORE_VMODELS  ? order->order.vmodel
                     : record->table == STORE_MODELS ? order->order.model
                                                     : NULL;
    return id != NULL && strcmp(id, record->id) == 0;
}

static bool
names_any(const struct runner_order *order, const struct store_compare *records, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (names(order, &records[i]))
            return true;
    return false;
}

/* A vmodel's order also concerns its models, which it need not name. */
static bool
is_about(const struct runner_order *order, const struct store_compare *record,
         const struct store_compare *records, size_t count)
{
    return names(order, record) ||
           (order->order.vmodel != NULL && names_any(order, records, count));
}

void
runner_refuse_order(struct mesh_runner *runner, struct runner_order *order)
{
    const struct mesh_order *said = &order->order;
    bool loads = said->kind == MESH_ENSURE_LOADED ||
                 (said->kind == MESH_REGISTER && said->load_now && said->sync);
    if (loads && is_full(runner) && is_unclaimed(runner, said->model))
        runner_order_refuse(runner, order, &runner->reported.full);
}

static void
refuse_unreadable(struct mesh_runner *runner, const struct store_compare *bad,
                  const struct store_compare *records, size_t count)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_INTERNAL, "%s",
              unknown_fields_find(&runner->records.unreadable, bad->table, bad->id));
    for (uint32_t i = 0; i < runner->orders.used; i++) {
        struct runner_order *order = id_table_at(&runner->orders, i);
        if (order != NULL && is_about(order, bad, records, count))
            runner_order_refuse(runner, order, &error);
    }
    refuse_calls_for(runner, bad, &error);
}

/* ---- transactions ---- */

static bool
only_reads(const struct runner_order *order)
{
    return order->order.kind == MESH_MODEL_STATUS || order->order.kind == MESH_VMODEL_STATUS;
}

/* Answers the orders that write and name one of the records. `records` NULL: all that write. */
static void
refuse_orders(struct mesh_runner *runner, const struct store_compare *records, size_t count,
              const struct error *error)
{
    for (uint32_t i = 0; i < runner->orders.used; i++) {
        struct runner_order *order = id_table_at(&runner->orders, i);
        if (order != NULL && !only_reads(order) &&
            (records == NULL || names_any(order, records, count)))
            runner_order_refuse(runner, order, error);
    }
}

void
runner_refuse_txn(struct mesh_runner *runner, const struct store_compare *compares, size_t count,
                  enum store_txn_end end, const struct error *error)
{
    struct error busy = ERROR_NONE;
    const struct store_compare *bad = find_unreadable(runner, compares, count);
    if (bad != NULL)
        refuse_unreadable(runner, bad, compares, count);
    if (end == STORE_BUSY) {
        error_set(&busy, STATUS_RESOURCE_EXHAUSTED, "the registry is busy: %s", error->text);
        refuse_orders(runner, compares, count, &busy);
    } else if (end == STORE_FULL) {
        runner_refuse_from_now(runner, error->text);
        refuse_orders(runner, compares, count, &runner->reported.full);
        refuse_calls(runner);
    }
}

void
runner_refuse_writes(struct mesh_runner *runner, const char *said)
{
    runner_refuse_from_now(runner, said);
    refuse_orders(runner, NULL, 0, &runner->reported.full);
    refuse_calls(runner);
}
