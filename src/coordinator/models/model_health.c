/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/model_health.h"

#include <string.h>

#include "coordinator/models/models.h"

static bool
find_model(void *registry, const char *name, bool *serving)
{
    struct oip_model_info info;
    struct model_description reported;
    const struct model_name asked = {name, strlen(name), ""};
    if (!registry_describe(registry, &asked, &info, &reported))
        return false;
    *serving = reported.ready;
    model_leave(reported.model);
    return true;
}

struct health_others
model_health(struct model_registry *registry)
{
    return (struct health_others){find_model, registry};
}
