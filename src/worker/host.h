/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of a modelet: its function table, and an item with the host's state. The modelet
 * sees only an item's first member; the table's functions find the rest from there.
 */
#pragma once

#include <shoal/modelet.h>

#include "shm/payload.h"
#include "shm/region.h"
#include "shm/word.h"

/* A request that this worker holds. Large: one per batch position, allocated once. */
struct source;
struct sandbox;

struct host_item {
    struct shoal_item shown;
    struct source *source; /* its source, to which it is passed on */
    struct shm_ticket ticket;
    struct shm_slot *slot;
    int64_t enqueued_ns;
    struct shm_stamp *stamp;     /* NULL: not traced */
    enum status refused;         /* the error of a refused output; the modelet cannot change it */
    uint32_t emitted;            /* pieces of this run */
    struct collected *collected; /* of them, in one stage; NULL: none (collect.h) */
    char text[SLOT_TEXT_BYTES];  /* of a failure */
    struct payload_view view;
    struct payload_builder builder;
    struct payload_table table; /* copy of a client region's payload, which `view` points into */
};

static inline struct host_item *
item_of(struct shoal_item *shown)
{
    return (struct host_item *)(void *)((char *)shown - offsetof(struct host_item, shown));
}

/* Returns the table with this `emit` (emit.c); call once per process. `modelet_name` and
 * `directory` (of the configuration) are kept. */
const struct shoal_host *host_table(const char *modelet_name, const char *directory,
                                    int32_t (*emit)(struct shoal_item *item));

/* Sets status and text like the modelet's `fail`. */
void item_fail(struct host_item *item, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);

/* Adds to a failed item's text the key that loosens the sandbox, and logs what the sandbox refuses,
 * if that can be the reason. The text is cut to make room. */
void item_explain(struct host_item *item, const struct sandbox *sandbox);

/* Refuses an output or a piece: the item fails, even if the modelet reports success later. */
enum status item_refuse(struct host_item *item, const struct error *error);
