/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "gateway/endpoints/internal.h"

uint64_t
pool_bits(const struct endpoint_pool *pool, const struct endpoint_entry *entry)
{
    const char *colon = strrchr(entry->address, ':');
    return resources_pools_of(pool->resources, entry->labels,
                              (uint32_t)strtoul(colon + 1, NULL, 10));
}

const char *
pool_target_name(const struct endpoint_pool *pool, uint32_t target)
{
    return target < UINT32_MAX ? pool->resources->target_names[target] : NULL;
}

bool
endpoint_pool_priority(const struct endpoint_pool *pool, const char *objective, int32_t *priority)
{
    return pool->resources != NULL && resources_priority(pool->resources, objective, priority);
}

void
endpoint_pool_write_resources(const struct endpoint_pool *pool, struct bytes *out)
{
    struct bytes list = {0};
    if (pool->resources != NULL)
        resources_write_json(pool->resources, &list);
    else
        bytes_put_text(&list, "[]");
    CHECK(!list.failed);
    struct json json = json_begin(out, JSON_STYLE_ANY);
    json_open(&json, '{');
    json_name(&json, "resources");
    json_put_raw(&json, list.data, list.used);
    json_name(&json, "refused");
    if (pool->resources_mistake != NULL)
        json_put_string(&json, pool->resources_mistake);
    else
        json_put_null(&json);
    json_close(&json, '}');
    bytes_fini(&list);
}
