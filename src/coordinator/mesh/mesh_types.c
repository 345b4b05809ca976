/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_types.h"

#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/check.h"
#include "coordinator/config/config_types.h"
#include "coordinator/models/runtime_request.h"

_Static_assert((int)MESH_POOL_NAME_BYTES == (int)CONFIG_NAME_BYTES_MAX + 1, "a pool's name fits");
_Static_assert((int)MESH_POOLS_MAX > (int)CONFIG_PIPELINES_MAX, "and a pool for the runtime");

/* KServe's type names: "mt:sklearn:1.2|pv:grpc-v2" is a format with a version and a protocol,
 * "rt:name" a runtime. */
void
mesh_types_name(const char *type, char name[CONFIG_NAME_BYTES_MAX + 1])
{
    bool format = strncmp(type, "mt:", 3) == 0;
    if (format || strncmp(type, "rt:", 3) == 0)
        type += 3;
    size_t bytes = strcspn(type, format ? ":|" : "|");
    bool fits = bytes <= CONFIG_NAME_BYTES_MAX;
    memcpy(name, type, fits ? bytes : 0);
    name[fits ? bytes : 0] = '\0';
}

void
mesh_types_pool_name(const char *type, const char *key, char name[MESH_POOL_NAME_BYTES])
{
    runtime_key_type(key, name);
    if (name[0] == '\0')
        mesh_types_name(type, name);
}

static char *
join(char *const *types, uint32_t count)
{
    struct bytes joined = {0};
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            bytes_put_char(&joined, ',');
        bytes_put_text(&joined, types[i]);
    }
    bytes_put_char(&joined, '\0');
    CHECK(!joined.failed);
    return joined.data;
}

void
mesh_types_pools(const struct config *config, struct mesh_pools *pools)
{
    const struct config_mesh *mesh = &config->mesh;
    pools->count = 0;
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct config_models *models = &config->pipelines[i].models;
        if (models->root != NULL)
            pools->types[pools->count++] = join(models->types, models->type_count);
    }
    if (config_has_runtime(config)) {
        char *types = strdup(mesh->runtime_types != NULL ? mesh->runtime_types : "*");
        CHECK(types != NULL);
        pools->types[pools->count++] = types;
    }
}

void
mesh_types_pools_fini(struct mesh_pools *pools)
{
    for (uint32_t i = 0; i < pools->count; i++)
        free(pools->types[i]);
}
