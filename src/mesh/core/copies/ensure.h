/* SPDX-License-Identifier: Apache-2.0 */
/* Requests for copies here and at other nodes. */
#pragma once

#include "mesh/core/state.h"

/* Requests one more copy at the best place; `used_ms` is the stamp for placement (S4). Returns why
 * no node takes it, or NULL if one may or there are enough. */
const char *ensure_anywhere(struct mesh *mesh, const struct load_wish *load, int64_t used_ms);
/* Requests the copies missing of `target`, each at another node and none at those in `asked`, to
 * which it adds. False: no node would take one. */
bool ensure_copies(struct mesh *mesh, const struct load_wish *load, int64_t used_ms,
                   struct nodes_asked *asked);
/* V3, B4: the same for now, from the first node on again when all have been asked. */
void ensure_in_turn(struct mesh *mesh, const struct load_wish *load, struct nodes_asked *asked);
/* The wish that the first two start from. */
struct place_wish ensure_wish(struct mesh *mesh, uint32_t model);
/* The text of a refusal, with sizes; in the step's memory. */
const char *ensure_refusal_text(struct mesh *mesh, const struct place_wish *wish,
                                enum place_refusal refusal);
void ensure_at(struct mesh *mesh, const struct load_wish *load, uint32_t there);
void ensure_on_ensure(struct mesh *mesh, const struct mesh_event *event);
/* A record has changed: serves an ENSURE that came before it. */
void ensure_on_model(struct mesh *mesh, uint32_t model);
void ensure_tick(struct mesh *mesh);
/* copies_check.c: A7. */
void early_check(const struct mesh *mesh);
