/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/regions.h"

#include "base/check.h"
#include "coordinator/entry/caller.h"

static enum status
register_region(struct shared_memory *memory, const struct triton_request *request,
                struct error *error)
{
    const struct shared_region_spec spec = {request->name, request->key, request->offset,
                                            request->bytes};
    return shared_memory_register(memory, &spec, error);
}

static enum status
cuda_status(const struct triton_request *request, struct error *error)
{
    if (request->name[0] == '\0')
        return STATUS_OK;
    return error_set(error, STATUS_NOT_FOUND, "Unable to find cuda shared memory region: '%.200s'",
                     request->name);
}

static enum status
carry_out(struct shared_memory *memory, const struct triton_request *request, struct bytes *out,
          struct error *error)
{
    switch (request->method) {
    case TRITON_SHARED_STATUS: return shared_memory_put_status(memory, request->name, out, error);
    case TRITON_SHARED_REGISTER: return register_region(memory, request, error);
    case TRITON_SHARED_UNREGISTER:
        shared_memory_unregister(memory, request->name);
        return STATUS_OK;
    case TRITON_CUDA_STATUS: return cuda_status(request, error);
    case TRITON_CUDA_REGISTER:
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "failed to register CUDA shared memory region: '%.200s', GPUs not "
                         "supported: register system shared memory",
                         request->name);
    case TRITON_CUDA_UNREGISTER: return STATUS_OK;
    default: UNREACHABLE();
    }
}

void
regions_take(struct shared_memory *memory, const struct inbound *inbound,
             const struct triton_request *request)
{
    struct error error = ERROR_NONE;
    struct bytes out = {0};
    enum status status = shared_memory_permit(memory, &error);
    if (status == STATUS_OK && !caller_is_near(inbound))
        status = shared_memory_refuse_far(&error);
    if (status == STATUS_OK)
        status = carry_out(memory, request, &out, &error);
    if (status == STATUS_OK && out.failed)
        status = error_set(&error, STATUS_RESOURCE_EXHAUSTED, "no memory to encode the response");
    struct rpc_piece piece = {.data = out.data != NULL ? out.data : "", .bytes = out.used};
    const struct rpc_answer answer = {.status = STATUS_OK, .pieces = &piece, .piece_count = 1};
    if (status == STATUS_OK)
        inbound->type->answer(inbound->call, &answer);
    else
        inbound->type->refuse(inbound->call, status, error.text, 0);
    bytes_fini(&out);
}
