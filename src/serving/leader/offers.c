/* SPDX-License-Identifier: Apache-2.0 */
/* The runtimes of manifests, and the nodes of the mesh as of a second ago at most. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "serving/leader/inside.h"

enum { NODES_PAGE = 64 };

#define FRESH_NS ((int64_t)NS_PER_S)

struct offers {
    struct serving_offers offers;
    struct serving_runtime *runtimes;
    struct serving_node *nodes;
    uint32_t node_capacity;
};

static void *
grow(void *list, size_t count, size_t size)
{
    list = realloc(list, count * size);
    CHECK(list != NULL);
    return list;
}

static const char *
copy(const char *text)
{
    char *made = strdup(text != NULL ? text : "");
    CHECK(made != NULL);
    return made;
}

/* Namespaced runtimes come before those of the cluster. */
static void
gather_runtimes(struct serving_leader *leader, struct offers *offers, enum manifest_kind kind)
{
    struct hash_entry *entry = NULL;
    while ((entry = hash_table_walk(&leader->objects, entry)) != NULL) {
        const struct serving_object *object = (struct serving_object *)(void *)entry;
        if (object->kind == kind && object->revision != 0)
            offers->runtimes[offers->offers.runtime_count++] = object->file.items[0].runtime;
    }
}

/* Called under the runner's lock. */
static void
gather_node(void *context, const struct mesh_instance *instance)
{
    struct offers *offers = context;
    if (offers->offers.node_count == offers->node_capacity) {
        offers->node_capacity = offers->node_capacity * 2 + NODES_PAGE;
        offers->nodes = grow(offers->nodes, offers->node_capacity, sizeof(*offers->nodes));
    }
    const char **types = grow(NULL, instance->pool_count + 1, sizeof(*types));
    for (uint32_t i = 0; i < instance->pool_count; i++)
        types[i] = copy(instance->pool_types[i]);
    offers->nodes[offers->offers.node_count++] = (struct serving_node){
        .labels = copy(instance->labels), .pool_types = types, .pool_count = instance->pool_count};
}

void
offers_drop(struct serving_leader *leader)
{
    struct offers *offers = leader->offers;
    leader->offers = NULL;
    if (offers == NULL)
        return;
    for (uint32_t i = 0; i < offers->offers.node_count; i++) {
        const struct serving_node *node = &offers->nodes[i];
        for (uint32_t k = 0; k < node->pool_count; k++)
            free((void *)(uintptr_t)node->pool_types[k]);
        free((void *)(uintptr_t)node->pool_types);
        free((void *)(uintptr_t)node->labels);
    }
    free(offers->nodes);
    free(offers->runtimes);
    free(offers);
}

const struct serving_offers *
offers_look(struct serving_leader *leader)
{
    int64_t now_ns = clock_now_ns();
    uint64_t from = 0;
    if (leader->offers != NULL && now_ns - leader->offers_ns < FRESH_NS)
        return &leader->offers->offers;
    offers_drop(leader);
    struct offers *offers = calloc(1, sizeof(*offers));
    CHECK(offers != NULL);
    offers->runtimes = grow(NULL, leader->objects.count + 1, sizeof(*offers->runtimes));
    gather_runtimes(leader, offers, MANIFEST_SERVING_RUNTIME);
    gather_runtimes(leader, offers, MANIFEST_CLUSTER_SERVING_RUNTIME);
    do {
        from =
            runner_visit_instances(leader->options.runner, from, NODES_PAGE, gather_node, offers);
    } while (from != 0);
    offers->offers.runtimes = offers->runtimes;
    offers->offers.nodes = offers->nodes;
    leader->offers = offers;
    leader->offers_ns = now_ns;
    return &offers->offers;
}
