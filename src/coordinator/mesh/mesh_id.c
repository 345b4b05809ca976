/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/mesh/mesh_id.h"

#include "base/check.h"

/* The keys in order of precedence: of both forms the one without -bin counts, which the library
 * decodes; the old name counts only if there is no other. */
static const struct id_key {
    const char *key;
    enum runner_name name;
} keys[] = {
    {"mm-model-id", RUNNER_NAME_MODEL},   {"mm-model-id-bin", RUNNER_NAME_MODEL},
    {"mm-vmodel-id", RUNNER_NAME_VMODEL}, {"mm-vmodel-id-bin", RUNNER_NAME_VMODEL},
    {"tas-model-id", RUNNER_NAME_MODEL},
};

_Static_assert((int)TARGET_ID_BYTES_MAX == (int)MESH_ID_BYTES_MAX,
               "the longest id of a registered model");

enum { KEY_COUNT = sizeof(keys) / sizeof(keys[0]), OLD = KEY_COUNT - 1 };

/* The text stays in place: most lookups are for keys that a call does not have. */
static void
named_init(struct mesh_named *named, enum runner_name name, const char *key)
{
    named->id.bytes = 0;
    named->name = name;
    named->key = key;
    named->count = 0;
}

static enum status
read_value(const struct id_key *key, const struct wire_span *value, struct target_id *id,
           struct error *error)
{
    if (value->bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT,
                         "provided %smodel-id header must be non-empty",
                         key->name == RUNNER_NAME_VMODEL ? "v" : "");
    return target_id_set(id, key->key, value, TARGET_ID_BYTES_MAX, error);
}

static enum status
read_key(const struct inbound *inbound, const struct id_key *key, struct mesh_named *named,
         struct error *error)
{
    struct wire_span value;
    size_t position = 0;
    named_init(named, key->name, key->key);
    while (inbound->type->metadata(inbound->call, key->key, &position, &value)) {
        struct target_id other;
        if (named->count == MESH_IDS_MAX)
            return error_set(error, STATUS_INVALID_ARGUMENT,
                             "metadata %s comes more than %d times: a call names no more models",
                             key->key, MESH_IDS_MAX);
        struct target_id *id = named->count++ == 0 ? &named->id : &other;
        if (read_value(key, &value, id, error) != STATUS_OK)
            return error->status;
    }
    return STATUS_OK;
}

enum status
mesh_id_of_metadata(const struct inbound *inbound, struct mesh_named *named, struct error *error)
{
    named_init(named, RUNNER_NAME_MODEL, NULL);
    for (size_t i = 0; i < KEY_COUNT; i++) {
        struct mesh_named found;
        bool any = named->count > 0;
        if (any && (i == OLD || keys[i].name == named->name))
            continue;
        if (read_key(inbound, &keys[i], &found, error) != STATUS_OK)
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
mesh_id_find(const struct inbound *inbound, const struct dataplane_rule *rule,
             struct mesh_named *named, struct error *error)
{
    if (rule->depth > 0) {
        named_init(named, rule->name, NULL);
        if (target_id_of_message(inbound_message(inbound), rule->numbers, rule->depth,
                                 TARGET_ID_BYTES_MAX, &named->id, error) != STATUS_OK)
            return error_prefix(error, "looking for the model's id in the request");
        if (named->id.bytes > 0)
            return STATUS_OK;
    }
    return mesh_id_of_metadata(inbound, named, error);
}

bool
mesh_id_next(const struct inbound *inbound, const struct mesh_named *named, size_t *position,
             struct target_id *id)
{
    struct wire_span value;
    struct error error;
    if (!inbound->type->metadata(inbound->call, named->key, position, &value))
        return false;
    CHECK(target_id_set(id, named->key, &value, TARGET_ID_BYTES_MAX, &error) == STATUS_OK);
    return true;
}
