/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unknown fields of records, to be written back when the record is rewritten. Most records have
 * none and cost nothing here.
 */
#pragma once

#include <stdint.h>

#include "base/hash_table.h"
#include "mesh/store/store.h"

struct unknown_fields {
    struct hash_table all;
    uint64_t seed;
};

void unknown_fields_fini(struct unknown_fields *unknown_fields);

/* Sets the fields of the record as of that revision ("": none). Ignored if a newer one is known. */
void unknown_fields_set(struct unknown_fields *unknown_fields, enum store_table table,
                        const char *id, uint64_t revision, const char *text);
/* The record is absent as of that revision. */
void unknown_fields_drop(struct unknown_fields *unknown_fields, enum store_table table,
                         const char *id, uint64_t revision);
/* Revisions restart: all entries are for absent records. */
void unknown_fields_restart(struct unknown_fields *unknown_fields);
/* The fields as of exactly this revision; NULL: none. */
const char *unknown_fields_get(const struct unknown_fields *unknown_fields, enum store_table table,
                               const char *id, uint64_t revision);
/* The fields as of any revision. */
const char *unknown_fields_find(const struct unknown_fields *unknown_fields, enum store_table table,
                                const char *id);
