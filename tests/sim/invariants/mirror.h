/* SPDX-License-Identifier: Apache-2.0 */
/* A core's table of models against what etcd has had: shared by I10 and L1. */
#pragma once

#include "../invariants.h"

/* NULL: the core knows the model as of `revision` or later, and rightly. Else the fault. */
const char *mirror_judge(struct world *world, uint32_t node, uint32_t model, uint64_t revision);
