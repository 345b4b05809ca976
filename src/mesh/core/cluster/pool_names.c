/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/pool_names.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/hash.h"

static uint32_t
number_of(const char *name, size_t bytes)
{
    if (bytes == 0 || (bytes == 1 && name[0] == '*'))
        return POOL_NAME_OTHER;
    uint64_t hash = hash_fnv1a(HASH_FNV1A_SEED, name, bytes);
    uint32_t number = (uint32_t)(hash ^ hash >> 32);
    return number > POOL_NAME_OTHER ? number : POOL_NAME_OTHER + 1;
}

uint32_t
pool_name_number(const char *name)
{
    return number_of(name, strlen(name));
}

static uint32_t
count_names(const char *list)
{
    uint32_t count = list[0] != '\0';
    for (; *list != '\0'; list++)
        count += *list == ',';
    return count;
}

struct pool_names *
pool_names_create(const char *const *lists, uint32_t pool_count)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < pool_count; i++)
        count += count_names(lists[i]);
    struct pool_names *names = malloc(sizeof(*names) + count * sizeof(names->at[0]));
    CHECK(names != NULL);
    uint32_t first = 0;
    uint32_t last = count;
    for (uint32_t i = 0; i < pool_count; i++) {
        const char *list = lists[i];
        for (uint32_t left = count_names(list); left > 0; left--) {
            size_t bytes = strcspn(list, ",");
            uint32_t number = number_of(list, bytes);
            names->at[number == POOL_NAME_OTHER ? --last : first++] =
                (struct pool_name){.name = number, .pool = i};
            list += bytes + (list[bytes] == ',');
        }
    }
    names->count = count;
    return names;
}

uint32_t
pool_names_find(const struct pool_names *names, uint32_t name)
{
    if (names == NULL || name == POOL_NAME_UNKNOWN)
        return POOL_UNNAMED;
    for (uint32_t i = 0; i < names->count; i++)
        if (names->at[i].name == name || names->at[i].name == POOL_NAME_OTHER)
            return names->at[i].pool;
    return POOL_UNNAMED;
}
