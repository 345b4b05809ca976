/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/front/regions.h"

#include <string.h>

#include "base/check.h"

enum { ADDRESS_BYTES = 128 };

/* ---- who may call ---- */

static void
take_name(void *context, const void *name, size_t bytes)
{
    (void)context;
    (void)name;
    (void)bytes;
}

/* As adapters write addresses: "ipv4:127.0.0.1", "ipv6:%5B::1%5D", "unix:", and REST "ipv4:unix".
 */
static bool
is_local(const char *address)
{
    static const char *const local[] = {"unix", "ipv4:127.", "ipv4:unix", "ipv6:%5B::1%5D",
                                        "ipv6:%5B::ffff:127."};
    for (size_t i = 0; i < ARRAY_COUNT(local); i++)
        if (strncmp(address, local[i], strlen(local[i])) == 0)
            return true;
    return false;
}

static enum status
check_caller(const struct inbound *inbound, struct error *error)
{
    char address[ADDRESS_BYTES + 1];
    const struct inbound_type *type = inbound->type;
    size_t bytes = type->address == NULL ? 0 : type->address(inbound->call, address, ADDRESS_BYTES);
    address[bytes] = '\0';
    bool shown = type->names != NULL && type->names(inbound->call, take_name, NULL);
    if (shown || is_local(address))
        return STATUS_OK;
    return error_set(error, STATUS_PERMISSION_DENIED,
                     "shared memory is for callers of the same machine: call the node by a "
                     "loopback address or a unix socket, or show a certificate");
}

/* ---- methods ---- */

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
    if (status == STATUS_OK)
        status = check_caller(inbound, &error);
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
