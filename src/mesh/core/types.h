/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which instances may hold a model of a type, and which should: rules H1 to H3. A label gets a bit
 * if a rule names it, 64 at most; a set of labels is judged once, not once per instance.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "mesh/core/mesh_core.h"
#include "mesh/core/names.h"

enum { TYPES_LABELS_MAX = 64 };

struct type_rule {
    uint64_t required;
    uint64_t preferred;
};

struct types {
    struct names labels; /* number: bit */
    struct names rules;  /* type: number of its rule */
    struct type_rule *at;
    uint32_t capacity;
    uint32_t fallback; /* rule of "_default"; NAME_NONE */
};

void types_init(struct types *types, uint64_t key);
void types_fini(struct types *types);

/* New rules instead of the old. False: more labels or types than there is room for; the old ones
 * hold. */
bool types_set(struct types *types, const struct mesh_type_rule *rules, uint32_t count);

/* The bits of a set of labels, sorted or not, comma between. */
uint64_t types_labels(const struct types *types, const char *labels);

/* The rule of a type; NULL: it may be anywhere. */
const struct type_rule *types_rule(const struct types *types, const char *type);

static inline bool
types_allow(const struct type_rule *rule, uint64_t labels)
{
    return rule == NULL || (labels & rule->required) == rule->required;
}

/* H2: how much a model of that rule wants to be there; only the order matters. */
int32_t types_preference(const struct types *types, const struct type_rule *rule, uint64_t labels);
