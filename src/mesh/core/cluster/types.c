/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/types.h"
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>
#include <string.h>

enum { RULES_MAX = 4096 };

void
types_init(struct types *types, uint64_t key)
{
    *types = (struct types){.fallback = NAME_NONE};
    names_init(&types->labels, TYPES_LABELS_MAX, key);
    names_init(&types->rules, RULES_MAX, key);
}

void
types_fini(struct types *types)
{
    names_fini(&types->labels);
    names_fini(&types->rules);
    free(types->at);
    types->at = NULL;
}

static bool
bits_of(struct names *labels, const char *const *texts, uint32_t count, uint64_t *bits)
{
    *bits = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t bit = names_hold(labels, texts[i]);
        if (bit == NAME_NONE)
            return false;
        *bits |= UINT64_C(1) << bit;
    }
    return true;
}

static bool
add_rule(struct types *types, const struct mesh_type_rule *rule)
{
    struct type_rule made;
    uint32_t number = names_hold(&types->rules, rule->type);
    if (number == NAME_NONE ||
        !bits_of(&types->labels, rule->required, rule->required_count, &made.required) ||
        !bits_of(&types->labels, rule->preferred, rule->preferred_count, &made.preferred))
        return false;
    scratch_grow((void **)&types->at, &types->capacity, number + 1, sizeof(*types->at));
    types->at[number] = made;
    return true;
}

bool
types_set(struct types *types, const struct mesh_type_rule *rules, uint32_t count)
{
    struct types made;
    types_init(&made, types->labels.key);
    for (uint32_t i = 0; i < count; i++)
        if (!add_rule(&made, &rules[i])) {
            types_fini(&made);
            return false;
        }
    made.fallback = names_find(&made.rules, "_default");
    types_fini(types);
    *types = made;
    return true;
}

uint64_t
types_labels(const struct types *types, const char *labels)
{
    uint64_t bits = 0;
    while (*labels != '\0') {
        char one[256];
        size_t length = strcspn(labels, ",");
        if (length < sizeof(one)) {
            memcpy(one, labels, length);
            one[length] = '\0';
            uint32_t bit = names_find(&types->labels, one);
            if (bit != NAME_NONE)
                bits |= UINT64_C(1) << bit;
        }
        labels += length;
        labels += *labels == ',';
    }
    return bits;
}

const struct type_rule *
types_rule(const struct types *types, const char *type)
{
    uint32_t number = names_find(&types->rules, type);
    if (number == NAME_NONE)
        number = types->fallback;
    return number == NAME_NONE ? NULL : &types->at[number];
}

int32_t
types_preference(const struct types *types, const struct type_rule *rule, uint64_t labels)
{
    if (rule != NULL && rule->preferred != 0)
        return (labels & rule->preferred) != 0;
    int32_t score = 0;
    for (uint32_t i = 0; i < types->rules.used; i++) {
        score += types_allow(&types->at[i], labels) ? 0 : 4;
        score -= (labels & types->at[i].preferred) != 0;
    }
    return score;
}
