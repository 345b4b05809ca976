/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/protocol/services.h"

#include <string.h>

#include "base/check.h"

void
services_on_check(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct services *services = context;
    health_on_check(services->health, call, message);
}

void
services_on_watch(void *context, struct rpc_call *call, const struct wire_message *message)
{
    struct services *services = context;
    health_on_watch(services->health, call, message);
}

void
services_on_watch_cancel(void *context, uint64_t tag)
{
    struct services *services = context;
    health_on_cancel(services->health, tag);
}

/* A reflection stream has no state but the call, and only the stepping thread ends it, so the call
 * itself can be the tag, unlike for inference. */
void
services_on_reflection(void *context, struct rpc_call *call, const struct wire_message *message)
{
    (void)context;
    rpc_call_set_tag(call, (uint64_t)(uintptr_t)call);
    reflection_on_message(REFLECTION_V1, call, message);
}

void
services_on_reflection_alpha(void *context, struct rpc_call *call,
                             const struct wire_message *message)
{
    (void)context;
    rpc_call_set_tag(call, (uint64_t)(uintptr_t)call);
    reflection_on_message(REFLECTION_V1ALPHA, call, message);
}

void
services_on_reflection_end(void *context, struct rpc_call *call)
{
    (void)context;
    rpc_call_finish(call, STATUS_OK, NULL);
}

void
services_on_reflection_cancel(void *context, uint64_t tag)
{
    (void)context;
    if (tag != 0)
        rpc_call_finish((struct rpc_call *)(uintptr_t)tag, STATUS_CANCELLED, NULL);
}

bool
services_lack(const char *path)
{
    static const char *const ours[] = {"/inference.GRPCInferenceService/", "/mmesh.ModelMesh/",
                                       "/grpc."};
    if (strcmp(path, "/inference.GRPCInferenceService/ModelStreamInfer") == 0)
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(ours); i++)
        if (strncmp(path, ours[i], strlen(ours[i])) == 0)
            return true;
    return false;
}

bool
services_reserve(const char *path)
{
    static const char runtime[] = "/mmesh.ModelRuntime/";
    return strncmp(path, runtime, sizeof(runtime) - 1) == 0;
}
