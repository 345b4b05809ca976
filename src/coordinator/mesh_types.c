/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh_types.h"

#include <string.h>

#include "coordinator/runtime_request.h"

/* Types of those who come from KServe: "mt:sklearn:1.2|pv:grpc-v2" is a format, with a version and
 * a protocol, "rt:name" a runtime. */
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

static bool
has_models(const struct config *config)
{
    bool has = false;
    for (uint32_t i = 0; i < config->pipeline_count; i++)
        has = has || config->pipelines[i].models.root != NULL;
    return has;
}

bool
mesh_types_are_shared(const struct config *config)
{
    return config->mesh.runtime != NULL && has_models(config);
}

bool
mesh_types_has_pipeline(const struct config *config, const char *name)
{
    for (uint32_t i = 0; i < config->pipeline_count; i++) {
        const struct config_models *models = &config->pipelines[i].models;
        for (uint32_t j = 0; j < models->type_count; j++)
            if (strcmp(models->types[j], name) == 0)
                return true;
    }
    return false;
}

bool
mesh_types_lists(const char *names, const char *name)
{
    size_t bytes = strlen(name);
    for (;;) {
        size_t length = strcspn(names, ",");
        if (length == bytes && memcmp(names, name, bytes) == 0)
            return true;
        if (names[length] == '\0')
            return false;
        names += length + 1;
    }
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
    if (mesh_types_has_pipeline(config, name) ||
        (others != NULL && !mesh_types_lists(others, name)))
        return MESH_POOL_PIPELINES;
    return MESH_POOL_EXTERNAL;
}
