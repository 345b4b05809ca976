/* SPDX-License-Identifier: Apache-2.0 */
/* The manifests that a node needs to run a runtime, and the values that they refer to. */
#include <stdlib.h>
#include <string.h>

#include "base/base64.h"
#include "base/check.h"
#include "base/clock.h"
#include "serving/leader/inside.h"
#include "serving/manifest/check.h"

void
serving_on_runtimes(struct serving_leader *leader, void (*on_change)(void *context), void *context)
{
    leader->on_runtimes = on_change;
    leader->on_runtimes_context = context;
}

void
serving_on_models(struct serving_leader *leader, void (*on_change)(void *context))
{
    leader->on_models = on_change;
}

bool
serving_is_open(const struct serving_leader *leader)
{
    return leader->whole && !leader->stopped && leader->store != NULL &&
           store_session(leader->store) != 0;
}

void
serving_visit_runtimes(struct serving_leader *leader,
                       void (*visit)(void *context, const struct manifest *manifest), void *context)
{
    static const enum manifest_kind kinds[] = {MANIFEST_SERVING_RUNTIME,
                                               MANIFEST_CLUSTER_SERVING_RUNTIME};
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        struct hash_entry *entry = NULL;
        while ((entry = hash_table_walk(&leader->objects, entry)) != NULL) {
            const struct serving_object *object = (struct serving_object *)(void *)entry;
            if (object->kind == kinds[i] && object->revision != 0 && !object->deleted)
                visit(context, object_manifest(object));
        }
    }
}

/* NULL: there is none. */
static const struct manifest *
find_config(struct serving_leader *leader)
{
    const struct serving_object *object = object_find(leader, "ConfigMap/" MANIFEST_CONFIG);
    return object != NULL && object->revision != 0 ? object_manifest(object) : NULL;
}

uint64_t
serving_pods_per_runtime(struct serving_leader *leader)
{
    const struct manifest *config = find_config(leader);
    return config != NULL ? config->pods_per_runtime : 0;
}

int64_t
serving_grace_ns(struct serving_leader *leader)
{
    const struct manifest *config = find_config(leader);
    return config != NULL ? config->grace_ns : TIME_NEVER_NS;
}

/* A value of `data` of a Secret is in base64. A zero byte would end a variable early. */
static enum serving_value
put_decoded(const char *text, struct bytes *value)
{
    size_t bytes = strlen(text);
    unsigned char *decoded = must_allocate(bytes + 1, 1);
    bool good = base64_decode(text, bytes, decoded, &bytes) && memchr(decoded, 0, bytes) == NULL;
    if (good)
        bytes_put(value, decoded, bytes);
    free(decoded);
    return good ? SERVING_VALUE_FOUND : SERVING_VALUE_NO_KEY;
}

enum serving_value
serving_value(struct serving_leader *leader, enum manifest_kind kind, const char *name,
              const char *key, struct bytes *value)
{
    char id[STORE_ID_BYTES_MAX + 1];
    if (strlen(name) > MANIFEST_NAME_BYTES_MAX)
        return SERVING_VALUE_NO_OBJECT;
    char *wanted = must_format("%s/%s", manifest_kind_name(kind), name);
    memcpy(id, wanted, strlen(wanted) + 1);
    free(wanted);
    const struct serving_object *object = object_find(leader, id);
    if (object == NULL || object->revision == 0)
        return SERVING_VALUE_NO_OBJECT;
    const struct tree_node *document = object_manifest(object)->document;
    bool is_secret = kind == MANIFEST_SECRET;
    const char *plain =
        manifest_text(manifest_find(document, is_secret ? "stringData" : "data"), key);
    const char *coded =
        manifest_text(manifest_find(document, is_secret ? "data" : "binaryData"), key);
    if (plain != NULL) {
        bytes_put_text(value, plain);
        return SERVING_VALUE_FOUND;
    }
    return coded != NULL ? put_decoded(coded, value) : SERVING_VALUE_NO_KEY;
}
