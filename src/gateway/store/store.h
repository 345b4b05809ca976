/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gateway's resources in a mesh's etcd, where `shoalctl apply` puts them as manifests. Each
 * gateway tells beside an object what it makes of it, under a lease: what it told ends with it.
 *
 * Everything on the thread of the event base.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "gateway/config/settings.h"
#include "gateway/resources/resources.h"

struct event_base;
struct gateway_store;

/* Names the mistake in the settings. */
enum status gateway_store_check(const struct gateway_settings *settings,
                                struct error *error) WARN_UNUSED;
/* `on_changed`: the resources have been read, or are others; not while etcd is away. */
enum status gateway_store_create(struct event_base *base, const struct gateway_settings *settings,
                                 void (*on_changed)(void *context), void *context,
                                 struct gateway_store **store, struct error *error) WARN_UNUSED;
/* NULL is ignored. */
void gateway_store_destroy(struct gateway_store *store);

/* Reads the resources as they are now. Any status of resources_read_texts. */
enum status gateway_store_read(struct gateway_store *store, struct resource_set **set,
                               struct error *error) WARN_UNUSED;
/* Tells the conditions of `set`, which is in force; of objects that are not in it, or are newer
 * there, that they are refused because of `mistake` (NULL: there is none). */
void gateway_store_tell(struct gateway_store *store, const struct resource_set *set,
                        const char *mistake);

struct gateway_store_counts {
    uint64_t troubles; /* times that etcd did not answer, or refused */
    uint64_t skipped;  /* records that are no manifests of a gateway */
};
const struct gateway_store_counts *gateway_store_counts(const struct gateway_store *store);
