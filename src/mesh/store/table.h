/* SPDX-License-Identifier: Apache-2.0 */
/* Records in memory, by table and id. */
#pragma once

#include <stddef.h>

#include "mesh/store/store.h"

struct record_table {
    void *root; /* tsearch's */
    size_t count;
    size_t bytes; /* of ids and values */
};

void table_fini(struct record_table *table);

/* Stores a copy; the record under that id is freed. */
void table_put(struct record_table *table, const struct store_record *record);
void table_delete(struct record_table *table, enum store_table of, const char *id);
/* NULL: none. Valid until the record is put or deleted. */
const struct store_record *table_find(const struct record_table *table, enum store_table of,
                                      const char *id);
/* Table by table, in id order. The table must not change meanwhile. */
void table_walk(const struct record_table *table,
                void (*visit)(void *context, const struct store_record *record), void *context);
