/* SPDX-License-Identifier: Apache-2.0 */
/* The durations of loads, and what follows from them. */
#pragma once

#include "mesh/core/state.h"

/* A load has ended. */
void load_took(struct mesh *mesh, int64_t took_ms);
int64_t load_assumed_ms(const struct mesh *mesh); /* R4 */
int64_t load_churn_ms(const struct mesh *mesh);   /* P2 */
int64_t load_guard_ms(const struct mesh *mesh);   /* E3 */
