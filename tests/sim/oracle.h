/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The same calls on one cache with all nodes' memory that knows every call at once: least recently
 * used goes first, sizes counted.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct oracle;

struct oracle *oracle_create(uint32_t models);
void oracle_destroy(struct oracle *oracle);
/* True: it had the model. */
bool oracle_use(struct oracle *oracle, uint32_t model, uint32_t units, uint64_t capacity_units);
