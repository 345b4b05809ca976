/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader's work for vmodels in transition: rules V3 to V6. Each check requests copies of the
 * target, promotes it, or marks it failed. Everything repeats, so a new leader needs no memory of
 * the old one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mesh;

/* V2, V4: the target is loaded as widely as the active model, or as widely as it can be, or the
 * active model has no copy. `active` may be NAME_NONE. */
bool target_is_ready(struct mesh *mesh, uint32_t active, uint32_t target);

void promote_on_model(struct mesh *mesh, uint32_t model);
void promote_on_vmodel(struct mesh *mesh, uint32_t vmodel);
void promote_on_txn(struct mesh *mesh, uint64_t txn);
void promote_tick(struct mesh *mesh);
/* An instance has become unreachable. */
void promote_on_unreachable(struct mesh *mesh);
