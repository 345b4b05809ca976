/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the releases of a model to serve, by Triton's rules (`version_policy` of config.pbtxt).
 * Pure; zeros are the default, the highest one. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { RELEASE_POLICY_MAX = 16, RELEASE_POLICY_NUMBER_BYTES = 19 };

struct release_policy {
    enum { RELEASES_LATEST, RELEASES_ALL, RELEASES_SPECIFIC } kind;
    uint32_t count; /* LATEST: how many, 0 as 1; SPECIFIC: of `numbers` */
    char numbers[RELEASE_POLICY_MAX][RELEASE_POLICY_NUMBER_BYTES];
};

static inline bool
release_policy_is(const struct release_policy *policy, const struct release_policy *other)
{
    if (policy->kind != other->kind || policy->count != other->count)
        return false;
    for (uint32_t i = 0; policy->kind == RELEASES_SPECIFIC && i < policy->count; i++)
        if (strcmp(policy->numbers[i], other->numbers[i]) != 0)
            return false;
    return true;
}

/* Returns whether it takes this release, of which there are `taken` higher ones that it takes. */
static inline bool
release_policy_takes(const struct release_policy *policy, const char *number, uint32_t taken)
{
    if (policy->kind == RELEASES_ALL)
        return true;
    if (policy->kind == RELEASES_LATEST)
        return taken < (policy->count == 0 ? 1 : policy->count);
    for (uint32_t i = 0; i < policy->count; i++)
        if (strcmp(policy->numbers[i], number) == 0)
            return true;
    return false;
}
