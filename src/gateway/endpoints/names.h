/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Endpoints that are given by name: each address of the name is one. Names are looked up again and
 * again, one at a time, in a thread, because the system's resolver blocks. A name that cannot be
 * resolved keeps its last addresses: scrapes say which are of use.
 */
#pragma once

#include <stdint.h>

#include "gateway/config/endpoint_file.h"

enum { NAME_ADDRESSES_MAX = 64 };

struct event_base;
struct endpoint_names;

/* `on_changed` is called when a name has other addresses than before. */
struct endpoint_names *endpoint_names_create(struct event_base *base, int64_t interval_ms,
                                             void (*on_changed)(void *context), void *context);
/* Does not wait for a lookup under way. NULL is ignored. */
void endpoint_names_destroy(struct endpoint_names *names);
/* Replaces the names by those among the entries; what is known of those that stay is kept. */
void endpoint_names_set(struct endpoint_names *names, const struct endpoint_entry *entries,
                        uint32_t count);
/* Appends an entry for each address, called NAME@ADDRESS. Returns the new count, at most `max`. */
uint32_t endpoint_names_expand(struct endpoint_names *names, struct endpoint_entry *entries,
                               uint32_t count, uint32_t max);

struct endpoint_names_counts {
    uint64_t lookups;
    uint64_t failed;
    uint64_t ignored; /* addresses beyond a limit */
};
const struct endpoint_names_counts *endpoint_names_counts(const struct endpoint_names *names);
