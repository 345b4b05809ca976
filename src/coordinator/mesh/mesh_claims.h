/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which nodes run a ServingRuntime, by a label in their records, which end with their
 * leases. If more nodes claim one than it has replicas, those that started first keep it (rule N4).
 *
 * Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/edge/runner.h"
#include "serving/leader/leader.h"

struct mesh_claims {
    uint64_t wanted; /* replicas */
    uint64_t others; /* nodes that claim it besides this one */
    uint64_t before; /* those of them that started earlier */
    uint64_t free;   /* nodes that can run it, and run nothing or what rests */
};

/* The label of a node that claims a runtime. Valid until the next call. */
const char *mesh_claims_label(enum manifest_kind kind, const char *runtime);

/* Sets all but `wanted`. */
void mesh_claims_count(struct mesh_runner *runner, struct serving_leader *leader,
                       const char *instance, enum manifest_kind kind, const char *runtime,
                       struct mesh_claims *claims);

/* Returns whether one more node is to run it. */
static inline bool
mesh_claims_lack(const struct mesh_claims *claims)
{
    return claims->others < claims->wanted;
}

/* The replicas of a runtime that names none: podsPerRuntime of the ConfigMap model-serving-config,
 * else two. */
uint64_t mesh_claims_usual(struct serving_leader *leader);

/* A node's labels: those of its configuration, of its claim (NULL: none) and of the runtime that
 * is READY; sorted. To be freed. */
char *mesh_claims_labels(const char *own, const char *claim, const char *of_runtime);
