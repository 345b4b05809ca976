/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host side of a modelet: the function table that it is given, and an item with all that the
 * host knows of it. What the modelet sees of an item is its first part only; the table's functions
 * find the rest from there.
 */
#pragma once

#include <shoal/modelet.h>

#include "shm/payload.h"
#include "shm/region.h"
#include "shm/word.h"

/* A request that this worker holds. Large, and never on a stack: one per batch position, for good.
 */
struct source;

struct item {
    struct shoal_item shown;
    struct source *source; /* where it came from, and goes on */
    struct shm_ticket ticket;
    struct shm_slot *slot;
    int64_t enqueued_ns;
    struct shm_stamp *stamp; /* NULL: it is not traced */
    enum status
        refused; /* an output that could not be had; no later word of the modelet mends that */
    char text[SLOT_TEXT_BYTES]; /* of the failure */
    struct payload_view view;
    struct payload_builder builder;
    struct payload_table table; /* of a guest's payload, which `view` points into */
};

static inline struct item *
item_of(struct shoal_item *shown)
{
    return (struct item *)(void *)((char *)shown - offsetof(struct item, shown));
}

/* The table, once per process. `modelet_name` and `directory` (of the configuration) are kept. */
const struct shoal_host *host_table(const char *modelet_name, const char *directory);

/* Sets status and text as the modelet's own `fail` does. */
void item_fail(struct item *item, enum status status, const char *format, ...) PRINTF_LIKE(3, 4);
