/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of storage-config in memory, shared by the fetches that use them. The counts of users are
 * guarded by the storage's lock. */
#pragma once

#include <stdint.h>

#include "serving/storage/storage.h"

struct storage_entries {
    uint32_t users;
    uint32_t count;
    struct storage_entry items[]; /* their texts are owned */
};

/* Returns the entries with one user. */
struct storage_entries *entries_make(const struct storage_entry *items, uint32_t count);
/* No user is left. NULL is ignored. */
void entries_free(struct storage_entries *entries);
/* The text of an entry; NULL: there is none. `entries` may be NULL. */
const char *entries_find(const struct storage_entries *entries, const char *name);
