/* SPDX-License-Identifier: Apache-2.0 */
/* Records in memory, by table and id. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/store/store.h"

struct table {
    void *root; /* tsearch's */
    size_t count;
    size_t bytes; /* of ids and values */
};

void table_fini(struct table *table);

/* A copy of it; what was there under the id is freed. */
void table_put(struct table *table, const struct store_record *record);
void table_delete(struct table *table, enum store_table of, const char *id);
/* NULL: there is none. Good until it is put or deleted. */
const struct store_record *table_find(const struct table *table, enum store_table of,
                                      const char *id);
/* Table by table, in the order of ids. The table stays as it is meanwhile. */
void table_walk(const struct table *table,
                void (*visit)(void *context, const struct store_record *record), void *context);
