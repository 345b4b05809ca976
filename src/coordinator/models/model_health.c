/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_health.h"

#include "coordinator/models/models.h"

static bool
find_model(void *registry, const char *name, bool *serving)
{
    struct oip_model_info info;
    struct model *model;
    if (!registry_describe(registry, name, &info, serving, &model))
        return false;
    model_leave(model);
    return true;
}

struct health_others
model_health(struct model_registry *registry)
{
    return (struct health_others){find_model, registry};
}
