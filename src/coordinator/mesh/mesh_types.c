/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_types.h"

#include <string.h>

#include "coordinator/config/config_types.h"
#include "coordinator/models/runtime_request.h"

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

uint32_t
mesh_types_pool(const void *context, const char *type, const char *key)
{
    const struct config *config = context;
    const char *others = config->mesh.runtime_types;
    char name[CONFIG_NAME_BYTES_MAX + 1];
    runtime_key_type(key, name);
    if (name[0] == '\0')
        mesh_types_name(type, name);
    if (config_types_has_pipeline(config, name) ||
        (others != NULL && !config_types_lists(others, name)))
        return MESH_POOL_PIPELINES;
    return MESH_POOL_EXTERNAL;
}
