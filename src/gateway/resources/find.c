/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "gateway/resources/resources.h"

const struct resource *
resources_find(const struct resource_set *set, enum resource_kind kind, const char *name)
{
    for (uint32_t i = 0; i < set->count; i++)
        if (set->items[i].kind == kind && strcmp(set->items[i].name, name) == 0)
            return &set->items[i];
    return NULL;
}
