/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh_id.h"

#include <string.h>

/* In the order in which they count: where both forms are there, the one that is not -bin, which the
 * library decodes; the old name only if there is no other. */
static const struct named {
    const char *key;
    enum driver_name name;
} named[] = {
    {"mm-model-id", DRIVER_NAME_MODEL},   {"mm-model-id-bin", DRIVER_NAME_MODEL},
    {"mm-vmodel-id", DRIVER_NAME_VMODEL}, {"mm-vmodel-id-bin", DRIVER_NAME_VMODEL},
    {"tas-model-id", DRIVER_NAME_MODEL},
};

enum { NAMED_COUNT = sizeof(named) / sizeof(named[0]), OLD = NAMED_COUNT - 1 };

static enum status
read_key(const struct rpc_call *call, const struct named *one, struct target_id *id, bool *found,
         struct error *error)
{
    struct rpc_span value;
    size_t position = 0;
    *found = false;
    while (rpc_call_metadata_next(call, one->key, &position, &value)) {
        if (value.bytes == 0)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "provided %smodel-id header must be non-empty",
                             one->name == DRIVER_NAME_VMODEL ? "v" : "");
        if (*found && (id->bytes != value.bytes || memcmp(id->text, value.data, value.bytes) != 0))
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "metadata %s names several models: one call is for one of them",
                             one->key);
        *found = true;
        if (target_id_set(id, one->key, &value, error) != STATUS_OK)
            return error->status;
    }
    return STATUS_OK;
}

enum status
mesh_id_of_call(const struct rpc_call *call, struct target_id *id, enum driver_name *name,
                struct error *error)
{
    bool any = false;
    id->bytes = 0;
    *name = DRIVER_NAME_MODEL;
    for (size_t i = 0; i < NAMED_COUNT; i++) {
        struct target_id one;
        bool found;
        if (any && (i == OLD || named[i].name == *name))
            continue;
        if (read_key(call, &named[i], &one, &found, error) != STATUS_OK)
            return error->status;
        if (found && any)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "must include only one of model id and vmodel id");
        if (found) {
            any = true;
            *id = one;
            *name = named[i].name;
        }
    }
    return STATUS_OK;
}
