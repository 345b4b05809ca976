/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides which instances may hold a model of a type and which are preferred: rules H1 to H3. Each
 * label that a rule names has a bit, 64 at most, so a label set is converted once.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/core/containers/names.h"

enum { TYPES_LABELS_MAX = 64 };

struct type_rule {
    uint64_t required;
    uint64_t preferred;
};

struct types {
    struct names labels; /* a label's number is its bit */
    struct names rules;  /* by type */
    struct type_rule *at;
    uint32_t capacity;
    uint32_t fallback; /* rule of "_default"; NAME_NONE: none */
};

void types_init(struct types *types, uint64_t key);
void types_fini(struct types *types);

/* Replaces the rules. False: too many labels or types; the old rules stay. */
bool types_set(struct types *types, const struct mesh_type_rule *rules, uint32_t count);

/* The bits of a comma-separated label set, in any order. */
uint64_t types_labels(const struct types *types, const char *labels);

/* NULL: no constraint. */
const struct type_rule *types_rule(const struct types *types, const char *type);

static inline bool
types_allow(const struct type_rule *rule, uint64_t labels)
{
    return rule == NULL || (labels & rule->required) == rule->required;
}

/* H2: preference for an instance with these labels; only the order is meaningful. */
int32_t types_preference(const struct types *types, const struct type_rule *rule, uint64_t labels);
