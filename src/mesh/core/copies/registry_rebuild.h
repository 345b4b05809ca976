/* SPDX-License-Identifier: Apache-2.0 */
/* Rewrites the records after etcd was emptied: rule W1. */
#pragma once

#include "mesh/core/state.h"

void registry_rebuild_on_emptied(struct mesh *mesh);
/* Something arrived from etcd. */
void registry_rebuild_on_contact(struct mesh *mesh);
void registry_rebuild_tick(struct mesh *mesh);
/* Judges a record that is about to be put: not lost before, the same model again, or another one
 * under its id. */
enum lost { LOST_NOT, LOST_SAME, LOST_OTHER };
enum lost registry_rebuild_judge(const struct mesh *mesh, const struct mesh_model *record);
/* The record has been put: the entry is for it, or for no record. */
void registry_rebuild_ends(struct mesh *mesh, uint32_t model, enum lost lost);
/* Returns whether this node now rewrites lost records of which no other node has an entry. */
bool registry_rebuild_is_mine(const struct mesh *mesh);
/* Takes one of this second's rewrites; those that calls wait for are not counted. */
bool registry_rebuild_may_write(struct mesh *mesh);
/* Peers may still refer to revisions from before. */
bool rebuild_lately(const struct mesh *mesh);

static inline bool
model_is_lost(const struct core_model *model)
{
    return model->known && model->revision == 0;
}
