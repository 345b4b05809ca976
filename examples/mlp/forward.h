/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes a network's answer: one matrix product per layer for all rows together. The only place
 * that calls OpenBLAS. One caller at a time: the library's own threads are switched off.
 */
#pragma once

#include "network.h"

/* Call once, before the first forward: limits OpenBLAS to one thread, because a worker has one
 * core. */
void forward_prepare(void);

/* `in` is rows × input_width, `out` rows × output_width, each scratch rows × width_max; none of
 * them may overlap. `rows` is at least 1. */
void forward(const struct network *network, const float *in, float *out, size_t rows,
             float *const scratch[2]);
