/* SPDX-License-Identifier: Apache-2.0 */
/* Decides how many copies a model has, by its use: rules S. */
#pragma once

#include "mesh/core/state.h"

void copies_use(struct mesh *mesh, struct core_entry *entry, uint32_t count);
/* S5: `count` calls have ended and took `took_us` together. */
void copies_time(struct core_entry *entry, uint32_t count, uint64_t took_us);
void copies_tick(struct mesh *mesh);
