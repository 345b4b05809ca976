/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions over several records, for orders and for the leader (V1, V5). A batch lists the
 * writes and lives for a step; its texts belong to the tables. A bid remembers what its owner has
 * out, so that T2, T4 and T5 hold for batches as for the writes of one model.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/cluster/bid.h"
#include "mesh/core/mesh_core.h"

struct mesh;

struct write_batch {
    struct mesh_write writes[MESH_WRITES_MAX];
    uint32_t count;
};

uint64_t txn_next(struct mesh *mesh, enum bidder bidder, uint32_t number);

/* Compares the record, and puts it as it is or deletes it, by the verb. */
struct mesh_write *batch_model(struct mesh *mesh, struct write_batch *batch, enum mesh_verb verb,
                               uint32_t model);
struct mesh_write *batch_vmodel(struct mesh *mesh, struct write_batch *batch, enum mesh_verb verb,
                                uint32_t vmodel);
/* Adds a vmodel's reference; last use becomes at least `used_ms`. */
void batch_hold(struct mesh *mesh, struct write_batch *batch, uint32_t model, int64_t used_ms);
/* Drops a vmodel's reference; deletes the record at 0 if it is auto_delete. */
void batch_release(struct mesh *mesh, struct write_batch *batch, uint32_t model);
void batch_used(struct mesh *mesh, struct write_batch *batch, uint32_t model, int64_t used_ms);

/* A model without a record. */
struct new_model {
    const char *type;
    const char *path;
    const char *key;
    int64_t used_ms;
    uint32_t references;
    bool auto_delete;
    struct mesh_bounds bounds;
};
void batch_create(struct mesh *mesh, struct write_batch *batch, uint32_t model,
                  const struct new_model *made);

/* The vmodel's new content. */
struct moved_vmodel {
    uint32_t active;
    uint32_t target;
    bool failed;
    const char *owner;
};
void batch_move(struct mesh *mesh, struct write_batch *batch, uint32_t vmodel,
                const struct moved_vmodel *moved);

/* Sends the batch if a transaction may be sent now; otherwise the owner tries again when a record
 * changes or at the tick. */
void bid_send(struct mesh *mesh, struct bid *bid, const struct write_batch *batch,
              enum bidder bidder, uint32_t number);
/* False: the answer was not for this bid. */
bool bid_ended(const struct mesh *mesh, struct bid *bid, uint64_t txn);
/* Returns whether the last transaction made the same compares. */
bool bid_is(const struct bid *bid, const struct write_batch *batch);
