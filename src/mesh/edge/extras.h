/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fields of records that we do not know, to be written back when we rewrite them. Most
 * have nothing such, and cost nothing here. A hash table with chains; it grows and does not shrink.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "mesh/store/store.h"

struct extra;

struct extras {
    struct extra **slots;
    size_t slot_count; /* a power of two; 0 before the first */
    size_t count;
    uint64_t seed;
};

void extras_fini(struct extras *extras);

/* The record as of the revision has these ("": none). An older one than there is is left alone. */
void extras_set(struct extras *extras, enum store_table table, const char *id, uint64_t revision,
                const char *text);
/* The record is not there, as of the revision. */
void extras_drop(struct extras *extras, enum store_table table, const char *id, uint64_t revision);
/* Revisions begin anew: all stand for records that are not there. */
void extras_restart(struct extras *extras);
/* Those of the record as of exactly this revision; NULL: none. */
const char *extras_get(const struct extras *extras, enum store_table table, const char *id,
                       uint64_t revision);
/* Those of the record as of any revision. */
const char *extras_find(const struct extras *extras, enum store_table table, const char *id);
