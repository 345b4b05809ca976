/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_id.h"

#include "base/check.h"

/* In the order in which they count: where both forms are there, the one that is not -bin, which the
 * library decodes; the old name only if there is no other. */
static const struct key {
    const char *key;
    enum driver_name name;
} keys[] = {
    {"mm-model-id", DRIVER_NAME_MODEL},   {"mm-model-id-bin", DRIVER_NAME_MODEL},
    {"mm-vmodel-id", DRIVER_NAME_VMODEL}, {"mm-vmodel-id-bin", DRIVER_NAME_VMODEL},
    {"tas-model-id", DRIVER_NAME_MODEL},
};

_Static_assert((int)TARGET_ID_BYTES_MAX == (int)MESH_ID_BYTES_MAX, "what can be registered");

enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]), OLD = KEY_COUNT - 1 };

/* The text stays as it is: most of this is done for keys that a call does not have. */
static void
named_init(struct mesh_named *named, enum driver_name name, const char *key)
{
    named->id.bytes = 0;
    named->name = name;
    named->key = key;
    named->count = 0;
}

static enum status
read_value(const struct key *key, const struct rpc_span *value, struct target_id *id,
           struct error *error)
{
    if (value->bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "provided %smodel-id header must be non-empty",
                         key->name == DRIVER_NAME_VMODEL ? "v" : "");
    return target_id_set(id, key->key, value, error);
}

static enum status
read_key(const struct rpc_call *call, const struct key *key, struct mesh_named *named,
         struct error *error)
{
    struct rpc_span value;
    size_t position = 0;
    named_init(named, key->name, key->key);
    while (rpc_call_metadata_next(call, key->key, &position, &value)) {
        struct target_id other;
        if (named->count == MESH_IDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "metadata %s comes more than %d times: a call is for so many models "
                             "at most",
                             key->key, MESH_IDS_MAX);
        struct target_id *id = named->count++ == 0 ? &named->id : &other;
        if (read_value(key, &value, id, error) != STATUS_OK)
            return error->status;
    }
    return STATUS_OK;
}

enum status
mesh_id_of_call(const struct rpc_call *call, struct mesh_named *named, struct error *error)
{
    named_init(named, DRIVER_NAME_MODEL, NULL);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        struct mesh_named found;
        bool any = named->count > 0;
        if (any && (i == OLD || keys[i].name == named->name))
            continue;
        if (read_key(call, &keys[i], &found, error) != STATUS_OK)
            return error->status;
        if (found.count > 0 && any)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "must include only one of model id and vmodel id");
        if (found.count > 0)
            *named = found;
    }
    return STATUS_OK;
}

enum status
mesh_id_find(const struct rpc_call *call, const struct rpc_message *message,
             const struct dataplane_rule *rule, struct mesh_named *named, struct error *error)
{
    if (rule->depth > 0) {
        named_init(named, rule->name, NULL);
        if (target_id_of_message(message, rule->numbers, rule->depth, TARGET_ID_BYTES_MAX,
                                 &named->id, error) != STATUS_OK)
            return error_prefix(error, "looking for the model's id in the request");
        if (named->id.bytes > 0)
            return STATUS_OK;
    }
    return mesh_id_of_call(call, named, error);
}

bool
mesh_id_next(const struct rpc_call *call, const struct mesh_named *named, size_t *position,
             struct target_id *id)
{
    struct rpc_span value;
    struct error error;
    if (!rpc_call_metadata_next(call, named->key, position, &value))
        return false;
    CHECK(target_id_set(id, named->key, &value, &error) == STATUS_OK);
    return true;
}
