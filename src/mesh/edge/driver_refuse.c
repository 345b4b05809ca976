/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Troubles of the store that make waiting vain. The core repeats a transaction that is lost
 * or unknown, as it must; but two causes do not pass by themselves, and whoever waits is told:
 *
 *   1. A record that cannot be read. The core does not know it, or only its former self, so each
 *      write on it is lost. Orders that need it are INTERNAL, with the record and the reason, as
 *      soon as a transaction on it is lost; so are calls that wait for a claim of it, or that the
 *      core gives up.
 *   2. A store without space. A write is refused, with the store's words. Orders on its records and
 *      all calls that need a claim are UNAVAILABLE; so are calls, and orders for a load, at once
 * for FULL_FRESH_NS after it. The core goes on trying what it has begun, once a second, and the
 * node's own record is tried as well: the first write that is taken ends it.
 */
#include <string.h>

#include "mesh/edge/driver_inside.h"

#define FULL_FRESH_NS (3 * NS_PER_S)

/* ---- records that cannot be read ---- */

void
driver_refuse_record(struct driver *driver, enum store_table table, const char *id,
                     uint64_t revision, const char *text)
{
    struct extras *unreadable = &driver->unreadable;
    bool has_room =
        unreadable->count < DRIVER_UNREADABLE_MAX || extras_find(unreadable, table, id) != NULL;
    if (text[0] == '\0' || has_room)
        extras_set(unreadable, table, id, revision, text);
}

/* The first of them that cannot be read. */
static const struct store_compare *
find_unreadable(const struct driver *driver, const struct store_compare *compares, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (extras_find(&driver->unreadable, compares[i].table, compares[i].id) != NULL)
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

/* Whether the model is registered, and has to be claimed before it is loaded here. */
static bool
is_unclaimed(const struct driver *driver, const char *model)
{
    enum mesh_state state = mesh_state(driver->mesh, model);
    return state == MESH_STATE_CLAIMING ||
           (state == MESH_STATE_NONE && mesh_see_model(driver->mesh, model, see_nothing, NULL));
}

/* The model that a call waits for, if it has to be claimed first; NULL: it waits for another thing,
 * or does not wait. */
static const char *
unclaimed_model(const struct driver *driver, const struct driver_call *call)
{
    if (call == NULL || call->state != CALL_WAITING)
        return NULL;
    const char *model =
        call->name == DRIVER_NAME_VMODEL ? mesh_resolve(driver->mesh, call->model) : call->model;
    return model != NULL && is_unclaimed(driver, model) ? model : NULL;
}

static bool
is_full(const struct driver *driver)
{
    return driver->full_ns != 0 && clock_now_ns() - driver->full_ns < FULL_FRESH_NS;
}

static void
refuse_full(struct driver *driver, struct driver_call *call)
{
    driver_call_refuse(driver, call,
                       (struct driver_answer){.end = MESH_END_UNAVAILABLE,
                                              .text = driver->full.text,
                                              .store_refuses = true});
}

void
driver_refuse_call(struct driver *driver, struct driver_call *call)
{
    if (is_full(driver) && unclaimed_model(driver, call) != NULL)
        refuse_full(driver, call);
}

void
driver_refuse_from_now(struct driver *driver, const char *said)
{
    static const char words[] = "the registry takes no writes: ";
    bool has_words = strncmp(said, words, sizeof(words) - 1) == 0; /* of another node */
    driver->full_ns = clock_now_ns();
    error_set(&driver->full, STATUS_UNAVAILABLE, "%s%s", has_words ? "" : words, said);
}

static void
refuse_calls(struct driver *driver)
{
    for (uint32_t i = 0; i < driver->calls.used; i++)
        if (unclaimed_model(driver, driver->calls.held[i]) != NULL)
            refuse_full(driver, driver->calls.held[i]);
}

static void
refuse_calls_for(struct driver *driver, const struct store_compare *bad, const struct error *error)
{
    for (uint32_t i = 0; i < driver->calls.used && bad->table == STORE_MODELS; i++) {
        struct driver_call *call = driver->calls.held[i];
        const char *model = unclaimed_model(driver, call);
        if (model != NULL && strcmp(model, bad->id) == 0)
            driver_call_refuse(
                driver, call,
                (struct driver_answer){.end = MESH_END_LOAD_FAILED, .text = error->text});
    }
}

/* ---- orders ---- */

static bool
names(const struct driver_order *order, const struct store_compare *record)
{
    const char *id = record->table == STORE_VMODELS  ? order->order.vmodel
                     : record->table == STORE_MODELS ? order->order.model
                                                     : NULL;
    return id != NULL && strcmp(id, record->id) == 0;
}

static bool
names_any(const struct driver_order *order, const struct store_compare *records, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (names(order, &records[i]))
            return true;
    return false;
}

/* A vmodel's order is about its models, too, which need not stand in it. */
static bool
is_about(const struct driver_order *order, const struct store_compare *record,
         const struct store_compare *records, size_t count)
{
    return names(order, record) ||
           (order->order.vmodel != NULL && names_any(order, records, count));
}

void
driver_refuse_order(struct driver *driver, struct driver_order *order)
{
    const struct mesh_order *said = &order->order;
    bool loads = said->kind == MESH_ENSURE_LOADED ||
                 (said->kind == MESH_REGISTER && said->load_now && said->sync);
    if (loads && is_full(driver) && is_unclaimed(driver, said->model))
        driver_order_refuse(driver, order, &driver->full);
}

static void
refuse_unreadable(struct driver *driver, const struct store_compare *bad,
                  const struct store_compare *records, size_t count)
{
    struct error error = ERROR_NONE;
    error_set(&error, STATUS_INTERNAL, "%s", extras_find(&driver->unreadable, bad->table, bad->id));
    for (uint32_t i = 0; i < driver->orders.used; i++) {
        struct driver_order *order = driver->orders.held[i];
        if (order != NULL && is_about(order, bad, records, count))
            driver_order_refuse(driver, order, &error);
    }
    refuse_calls_for(driver, bad, &error);
}

/* ---- transactions ---- */

static bool
only_reads(const struct driver_order *order)
{
    return order->order.kind == MESH_MODEL_STATUS || order->order.kind == MESH_VMODEL_STATUS;
}

void
driver_refuse_txn(struct driver *driver, const struct store_compare *compares, size_t count,
                  const struct error *full)
{
    const struct store_compare *bad = find_unreadable(driver, compares, count);
    if (bad != NULL)
        refuse_unreadable(driver, bad, compares, count);
    if (full == NULL)
        return;
    driver_refuse_from_now(driver, full->text);
    for (uint32_t i = 0; i < driver->orders.used; i++) {
        struct driver_order *order = driver->orders.held[i];
        if (order != NULL && !only_reads(order) && names_any(order, compares, count))
            driver_order_refuse(driver, order, &driver->full);
    }
    refuse_calls(driver);
}
