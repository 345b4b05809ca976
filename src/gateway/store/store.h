/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mesh's etcd: its nodes, and the gateway's resources, which `shoalctl apply` puts there as
 * manifests. Each gateway writes a report beside an object, under a lease: the report ends with it.
 *
 * Everything on the thread of the event base.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "gateway/config/endpoint_file.h"
#include "gateway/config/settings.h"
#include "gateway/resources/resources.h"

struct event_base;
struct gateway_store;

/* Names the mistake in the settings, and reads the files that they name. */
enum status gateway_store_check(const struct gateway_settings *settings,
                                struct error *error) WARN_UNUSED;
/* INVALID_ARGUMENT: nodes of a mesh are among them, and no store is given. */
enum status gateway_store_check_entries(const struct gateway_settings *settings,
                                        const struct endpoint_entry *entries, uint32_t count,
                                        struct error *error) WARN_UNUSED;

struct gateway_store_handler {
    /* The resources have been read, or are others; not while etcd is away, as the next. */
    void (*on_resources)(void *context);
    void (*on_nodes)(void *context);
    void *context;
};

enum status gateway_store_create(struct event_base *base, const struct gateway_settings *settings,
                                 const struct gateway_store_handler *handler,
                                 struct gateway_store **store, struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void gateway_store_destroy(struct gateway_store *store);

/* Reads the resources as they are now. UNAVAILABLE: etcd has lost them; or any status of
 * resources_read_texts. */
enum status gateway_store_read(struct gateway_store *store, struct resource_set **set,
                               struct error *error) WARN_UNUSED;
/* Reports the conditions of `set`, which is in force; of objects that are not in it, or are newer
 * there, that they are refused because of `mistake` (NULL: there is none). */
void gateway_store_report(struct gateway_store *store, const struct resource_set *set,
                          const char *mistake);

/* Appends an entry, NAME@NODE, for each node of the mesh that has the labels of `entry` and does
 * not drain. Returns the new count, at most `max`. */
uint32_t gateway_store_expand(const struct gateway_store *store, const struct endpoint_entry *entry,
                              struct endpoint_entry *entries, uint32_t count, uint32_t max);

struct gateway_store_counts {
    uint64_t troubles; /* times that etcd did not answer, or refused */
    uint64_t skipped;  /* records that are no manifests of a gateway, or no nodes */
};
const struct gateway_store_counts *gateway_store_counts(const struct gateway_store *store);
