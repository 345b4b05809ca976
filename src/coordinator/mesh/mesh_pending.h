/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that wait for something of the mesh, by tags: what rpc.h tells of a caller who has gone is
 * a tag, and the call may have ended by then. An item is a part of something larger; it lives as
 * long as it has references. Any thread.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pending;

/* The owner's. */
struct pending_item {
    /* The caller has gone. With a reference, and without a lock. */
    void (*on_cancel)(struct pending_item *item);
    void (*destroy)(struct pending_item *item);

    /* The table's. */
    struct pending *table;
    _Atomic uint32_t refs;
    uint32_t index;
    uint32_t generation;
    bool listed;
};

/* Tags of pipelines (pipeline.h) never have this bit. */
#define PENDING_TAG (UINT64_C(1) << 31)

static inline bool
tag_is_pending(uint64_t tag)
{
    return (tag & PENDING_TAG) != 0;
}

/* For so many at once, at most. */
struct pending *pending_create(uint32_t count_max);
/* Nothing is in it any more. NULL is left alone. */
void pending_destroy(struct pending *table);

/* Puts it in with one reference, the owner's; returns its tag. 0: there are as many as there may
 * be; the item is untouched. */
uint64_t pending_add(struct pending *table, struct pending_item *item);
/* Takes it out: its tag means nothing any more. Once more is harmless. */
void pending_remove(struct pending_item *item);
/* The item, with one more reference; NULL: there is none. */
struct pending_item *pending_hold(struct pending *table, uint64_t tag);
/* Tells the item, if there is one. */
void pending_cancel(struct pending *table, uint64_t tag);

void pending_ref(struct pending_item *item);
void pending_unref(struct pending_item *item);

/* How many are in it. */
uint32_t pending_count(struct pending *table);
