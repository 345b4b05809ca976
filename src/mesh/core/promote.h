/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader's work for vmodels in transition: rules V3 to V6. Each look at one asks for copies
 * of its target, promotes it, or says that it fails; all of it again and again, so nothing has to
 * be remembered by a leader that dies.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct mesh;

/* V4, V2: the target is loaded as widely as the active model is, or can be; or that is not loaded
 * at all. Models; `active` may be NAME_NONE. */
bool target_is_ready(struct mesh *mesh, uint32_t active, uint32_t target);

void promote_on_model(struct mesh *mesh, uint32_t model);
void promote_on_vmodel(struct mesh *mesh, uint32_t vmodel);
void promote_on_txn(struct mesh *mesh, uint64_t txn);
void promote_tick(struct mesh *mesh);
/* An instance is out of reach since now. */
void promote_on_unreachable(struct mesh *mesh);
