/* SPDX-License-Identifier: Apache-2.0 */
#include "gateway/config/objective_file.h"

#include <stdlib.h>
#include <string.h>

#include "gateway/config/yaml_file.h"
#include "gateway/core/gateway_core.h"

static enum status
read_objective(const struct yaml_file *file, struct gateway_objective *objectives, uint32_t count,
               struct error *error)
{
    int root = yaml_root(file);
    const char *kind = yaml_text(file, yaml_find(file, root, "kind"));
    const char *name = yaml_text(file, yaml_find(file, yaml_find(file, root, "metadata"), "name"));
    int value = yaml_find(file, yaml_find(file, root, "spec"), "priority");
    const char *text = yaml_text(file, value);
    char *end = NULL;
    if (kind == NULL || strcmp(kind, "InferenceObjective") != 0 || name == NULL || *name == '\0')
        return yaml_mistake(file, root, error,
                            "`kind: InferenceObjective` with metadata.name is wanted");
    long priority = text != NULL ? strtol(text, &end, 10) : 0;
    if (value != 0 && (text == NULL || end == text || *end != '\0' || priority < INT32_MIN ||
                       priority > INT32_MAX))
        return yaml_mistake(file, value, error, "priority: a whole number is wanted");
    if (count == OBJECTIVES_MAX)
        return yaml_mistake(file, root, error, "more than %d objectives", OBJECTIVES_MAX);
    objectives[count] =
        (struct gateway_objective){gateway_name_hash(name, strlen(name)), (int32_t)priority};
    for (uint32_t i = 0; i < count; i++)
        if (objectives[i].name == objectives[count].name)
            return yaml_mistake(file, root, error, "%.80s: listed twice", name);
    return STATUS_OK;
}

enum status
objective_file_read(const char *path, struct gateway_objective objectives[OBJECTIVES_MAX],
                    uint32_t *count, struct error *error)
{
    struct yaml_file *file;
    *count = 0;
    enum status status = yaml_file_read(path, &file, error);
    if (status != STATUS_OK)
        return status;
    while (status == STATUS_OK && yaml_root(file) != 0) {
        status = read_objective(file, objectives, *count, error);
        *count += status == STATUS_OK;
        if (status == STATUS_OK)
            status = yaml_file_next(file, error);
    }
    yaml_file_free(file);
    return status;
}
