/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations of a kind of store. `struct store` is the first member of the kind's struct.
 * Arguments have been checked against the limits.
 */
#pragma once

#include "mesh/record/keys.h"
#include "mesh/store/request.h"
#include "mesh/store/store.h"

struct store_kind {
    const char *name;
    void (*close)(struct store *store);
    void (*set_instance)(struct store *store, const void *value, size_t value_bytes);
    void (*leave)(struct store *store);
    bool (*is_leaving)(const struct store *store);
    void (*txn)(struct store *store, struct store_request *request); /* takes ownership */
    uint64_t (*session)(const struct store *store);
    bool (*leader)(const struct store *store, char id[STORE_ID_BYTES_MAX + 1]);
    struct record_span (*prefix)(const struct store *store);                /* of all keys */
    void (*look)(const struct store *store, struct store_figures *figures); /* NULL: all are 0 */
};

struct store {
    const struct store_kind *kind;
    struct store_events events;
    char *instance;
};

/* INVALID_ARGUMENT: the instance has no id, or one that is too long. */
enum status store_init(struct store *store, const struct store_kind *kind,
                       const struct store_options *options, struct error *error) WARN_UNUSED;
void store_fini(struct store *store);
