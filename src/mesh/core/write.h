/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions over several records, for orders and for the leader (V1, V5). A batch is what is to
 * be written, and lives for a step; its texts are the tables'. A bid remembers what its owner has
 * out, so that rules T2, T4 and T5 hold for it as they do for the writes of one model.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"

struct mesh;

struct batch {
    struct mesh_write writes[MESH_WRITES_MAX];
    uint32_t count;
};

struct bid {
    uint64_t txn; /* that is out; 0: none */
    uint64_t compares[MESH_WRITES_MAX];
    int64_t again_ms; /* T5: the same compares not before */
    uint32_t count;
};

/* The receiver of the answer; in the upper bits of a transaction's lower half. */
enum bidder { BIDDER_MODEL, BIDDER_ORDER, BIDDER_VMODEL, BIDDER_CALL };
enum { BIDDER_SHIFT = 30 };
#define BIDDER_NUMBER_MAX (UINT32_C(1) << BIDDER_SHIFT)

uint64_t txn_next(struct mesh *mesh, enum bidder bidder, uint32_t number);

/* The record is what it is now; nothing is written. */
void batch_compare_model(struct mesh *mesh, struct batch *batch, uint32_t model);
void batch_compare_vmodel(struct mesh *mesh, struct batch *batch, uint32_t vmodel);
/* One vmodel more refers to it, and it was last used at `used_ms`, or later. */
void batch_hold(struct mesh *mesh, struct batch *batch, uint32_t model, int64_t used_ms);
/* One vmodel less; with none it goes, if that is its wish. */
void batch_release(struct mesh *mesh, struct batch *batch, uint32_t model);
void batch_used(struct mesh *mesh, struct batch *batch, uint32_t model, int64_t used_ms);
void batch_delete_model(struct mesh *mesh, struct batch *batch, uint32_t model);
void batch_delete_vmodel(struct mesh *mesh, struct batch *batch, uint32_t vmodel);

/* A model that there is no record of. */
struct new_model {
    const char *type;
    const char *path;
    const char *key;
    int64_t used_ms;
    uint32_t references;
    bool auto_delete;
};
void batch_create(struct mesh *mesh, struct batch *batch, uint32_t model,
                  const struct new_model *made);

/* The vmodel with these models. */
struct moved_vmodel {
    uint32_t active;
    uint32_t target;
    bool failed;
    const char *owner;
};
void batch_move(struct mesh *mesh, struct batch *batch, uint32_t vmodel,
                const struct moved_vmodel *moved);

/* Sent, if one may be now; whoever is refused looks again when a record changes, or at the tick. */
void bid_send(struct mesh *mesh, struct bid *bid, const struct batch *batch, enum bidder bidder,
              uint32_t number);
/* False: it was not for this. */
bool bid_ended(const struct mesh *mesh, struct bid *bid, uint64_t txn);
/* The last one that was sent compared the same. */
bool bid_is(const struct bid *bid, const struct batch *batch);
