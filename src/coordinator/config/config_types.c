/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/config/config_types.h"

#include <string.h>

static bool
has_models(const struct config *config)
{
    bool has = false;
    for (uint32_t i = 0; i < config->pipeline_count; i++)
        has = has || config->pipelines[i].models.root != NULL;
    return has;
}

bool
config_has_runtime(const struct config *config)
{
    return config->mesh.runtime != NULL || config->mesh.images != NULL;
}

bool
config_types_are_shared(const struct config *config)
{
    return config_has_runtime(config) && has_models(config);
}

bool
config_types_has_pipeline(const struct config *config, const char *name)
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
config_types_lists(const char *names, const char *name)
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
