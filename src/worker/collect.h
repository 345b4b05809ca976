/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `collect`: one answer of the pieces of an item whose caller takes no pieces, in private memory
 * until the item is passed on. `concat` joins outputs of the same name along their first dimension,
 * `last` keeps those of the last piece.
 */
#pragma once

#include "base/error.h"
#include "ipc/handshake.h"
#include "shm/payload.h"
#include "worker/host.h"

struct collected;

/* Adds the outputs that the item has now. INVALID_ARGUMENT: an output that cannot be joined to that
 * of an earlier piece; RESOURCE_EXHAUSTED: together they are larger than an answer may be. */
enum status item_collect(struct host_item *item, struct error *error) WARN_UNUSED;

/* Like item_collect(), but first drops what was collected before. */
enum status item_collect_last(struct host_item *item, struct error *error) WARN_UNUSED;

/* The run is over: makes what was collected the item's outputs, with those that it has now; with
 * COLLECT_LAST only if it has none. */
enum status item_gather(struct host_item *item, enum handshake_collect collect,
                        struct shm_payload *overwritten, struct error *error) WARN_UNUSED;

/* NULL is ignored. */
void collected_drop(struct collected **collected);
