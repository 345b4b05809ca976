/* SPDX-License-Identifier: Apache-2.0 */
/* Resources: read at the start and whenever a file changes. A set with a mistake changes nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "gateway/endpoints/internal.h"

uint64_t
pool_bits(const struct endpoint_pool *pool, const struct endpoint_entry *entry)
{
    const char *colon = strrchr(entry->address, ':');
    return resources_pools_of(pool->resources, entry->labels,
                              (uint32_t)strtoul(colon + 1, NULL, 10));
}

/* Before the step, which may send requests by the new routes. */
static void
replace(struct endpoint_pool *pool, struct resource_set *set)
{
    size_t max = (size_t)pool->settings->endpoints_max;
    struct resource_set *old = pool->resources;
    uint64_t *bits = calloc(max, sizeof(*bits));
    CHECK(bits != NULL);
    pool->resources = set;
    for (size_t i = 0; i < max; i++)
        if (pool->members[i].is_used)
            bits[i] = pool_bits(pool, &pool->members[i].entry);
    const struct gateway_routes routes = {.routes = set->routes,
                                          .route_count = set->route_count,
                                          .targets = set->targets,
                                          .target_count = set->target_count,
                                          .open_pools = set->open_pools,
                                          .rollouts = set->rollouts,
                                          .rollout_count = set->rollout_count,
                                          .pools = bits};
    endpoint_pool_step(pool, &(struct gateway_event){.kind = GATEWAY_ROUTED, .routes = &routes});
    resources_free(old);
    free(bits);
}

static uint64_t
stamp(const struct endpoint_pool *pool)
{
    return resources_stamp(pool->settings->resources) * 31 +
           resources_stamp(pool->settings->objectives);
}

enum status
pool_resources_read(struct endpoint_pool *pool, struct error *error)
{
    const char *const paths[] = {pool->settings->resources, pool->settings->objectives};
    struct resource_set *set;
    pool->resources_stamp = stamp(pool);
    enum status status = resources_read(paths, ARRAY_COUNT(paths), &set, error);
    free(pool->resources_mistake);
    pool->resources_mistake = NULL;
    if (status == STATUS_OK) {
        replace(pool, set);
        log_info("resources_read count=%u", set->count);
        return status;
    }
    pool->resources_mistake = strdup(error->text);
    CHECK(pool->resources_mistake != NULL);
    resources_free(set);
    return status;
}

void
pool_resources_watch(struct endpoint_pool *pool)
{
    struct error error = ERROR_NONE;
    if (!pool->has_resources || stamp(pool) == pool->resources_stamp)
        return;
    if (pool_resources_read(pool, &error) == STATUS_OK) {
        pool->file_reloads++;
        return;
    }
    pool->file_mistakes++;
    log_warn("resources_refused error=\"%s\"", error.text);
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
