/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pending calls of the mesh by tag: rpc.h reports a caller that is gone by its tag, and the call
 * may have ended by then. An item is embedded in its owner and lives while it has references. Any
 * thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pending;

/* Embedded in its owner. */
struct pending_item {
    /* The caller is gone. Called with a reference and without a lock. */
    void (*on_cancel)(struct pending_item *item);
    void (*destroy)(struct pending_item *item);

    /* The table's. */
    struct pending *table;
    _Atomic uint32_t refs;
    uint32_t index;
    bool listed;
};

/* Tags of pipelines (pipeline.h) never have this bit. */
#define PENDING_TAG (UINT64_C(1) << 31)

static inline bool
tag_is_pending(uint64_t tag)
{
    return (tag & PENDING_TAG) != 0;
}

/* A table for at most `count_max` items. */
struct pending *pending_create(uint32_t count_max);
/* Call when it is empty. NULL is ignored. */
void pending_destroy(struct pending *table);

/* Adds an item with one reference, the owner's; returns its tag. 0: the table is full, and the item
 * untouched. */
uint64_t pending_add(struct pending *table, struct pending_item *item);
/* Removes it: its tag means nothing any more. May be repeated. */
void pending_remove(struct pending_item *item);
/* The tag's item with one more reference; NULL: there is none. */
struct pending_item *pending_hold(struct pending *table, uint64_t tag);
/* Calls on_cancel of the tag's item, if there is one. */
void pending_cancel(struct pending *table, uint64_t tag);

void pending_ref(struct pending_item *item);
void pending_unref(struct pending_item *item);

/* The number of items. */
uint32_t pending_count(struct pending *table);
