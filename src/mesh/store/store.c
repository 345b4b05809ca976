/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/store/store.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "mesh/store/kind.h"

enum status
store_init(struct store *store, const struct store_kind *kind, const struct store_options *options,
           struct error *error)
{
    size_t bytes = strlen(options->instance);
    if (bytes == 0 || bytes > STORE_ID_BYTES_MAX)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "store %s: this node's id has %zu bytes, not 1 to %d", kind->name, bytes,
                         STORE_ID_BYTES_MAX);
    store->kind = kind;
    store->events = *options->events;
    store->instance = strdup(options->instance);
    CHECK(store->instance != NULL);
    return STATUS_OK;
}

void
store_fini(struct store *store)
{
    free(store->instance);
}

void
store_close(struct store *store)
{
    if (store != NULL)
        store->kind->close(store);
}

void
store_set_instance(struct store *store, const void *value, size_t value_bytes)
{
    CHECK(value_bytes <= STORE_VALUE_BYTES_MAX);
    store->kind->set_instance(store, value, value_bytes);
}

void
store_leave(struct store *store)
{
    store->kind->leave(store);
}

bool
store_is_leaving(const struct store *store)
{
    return store->kind->is_leaving(store);
}

enum status
store_txn(struct store *store, const struct store_txn *txn, struct store_reply reply,
          struct error *error)
{
    struct store_request *request;
    if (request_create(txn, reply, &request, error) != STATUS_OK)
        return error->status;
    store->kind->txn(store, request);
    return STATUS_OK;
}

void
store_key_put(const struct store *store, enum store_table table, const char *id, struct bytes *to)
{
    record_key_put(to, store->kind->prefix(store), (enum record_area)table, record_text(id));
}

const char *
store_kind(const struct store *store)
{
    return store->kind->name;
}

uint64_t
store_session(const struct store *store)
{
    return store->kind->session(store);
}

bool
store_leader(const struct store *store, char id[STORE_ID_BYTES_MAX + 1])
{
    return store->kind->leader(store, id);
}

void
store_look(const struct store *store, struct store_figures *figures)
{
    *figures = (struct store_figures){0};
    if (store->kind->look != NULL)
        store->kind->look(store, figures);
}
