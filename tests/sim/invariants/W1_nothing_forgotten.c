/* SPDX-License-Identifier: Apache-2.0 */
/*
 * W1. A vmodel that some node knew when etcd lost its data is there again when faults have ended
 * for a while, as long as one of those nodes lives, and nobody has deleted it: for any leader and
 * its view. (Models are registered anew by the simulator's operator: not looked at.)
 */
#include "../invariants.h"
#include "mesh/core/state.h"

enum { VMODELS_MAX = 16 };

/* Of each node. */
struct knowledge {
    uint32_t life; /* in which it knew them */
    bool known[VMODELS_MAX];
};

/* Of all vmodels. */
struct owed {
    bool is[VMODELS_MAX]; /* it was there, and was not deleted since */
};

static struct owed *
owed_of(struct world *world)
{
    return of_model(world, &W1_nothing_forgotten, 0);
}

static bool
knows(const struct mesh *mesh, const char *id)
{
    uint32_t number = names_find(&mesh->vmodels.names, id);
    return number != NAME_NONE && mesh->vmodels.at[number].known;
}

static void
on_emptied(struct world *world)
{
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        owed_of(world)->is[v] |= vmodel_now(world, v, &vmodel);
    }
    for (uint32_t n = 0; n < world->options.nodes; n++) {
        struct knowledge *knew = of_node(world, &W1_nothing_forgotten, n);
        const struct node *node = &world->nodes[n];
        *knew = (struct knowledge){.life = node->life};
        for (uint32_t v = 0; node->mesh != NULL && v < world->options.vmodels; v++)
            knew->known[v] = knows(node->mesh, world->vmodel_names[v]);
    }
}

static void
on_converged(struct world *world)
{
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        if (!owed_of(world)->is[v] || vmodel_now(world, v, &vmodel))
            continue;
        for (uint32_t n = 0; n < world->options.nodes; n++) {
            const struct knowledge *knew = of_node(world, &W1_nothing_forgotten, n);
            const struct node *node = &world->nodes[n];
            if (node->mesh != NULL && node->life == knew->life && knew->known[v])
                broken(world, &W1_nothing_forgotten,
                       "v%u, which n%u knew when etcd was emptied, is not there", v, n);
        }
    }
}

static void
see(struct world *world, const struct sight *sight)
{
    switch (sight->kind) {
    case SAW_EMPTIED: on_emptied(world); break;
    case SAW_VMODEL:
        if (sight->vmodel_after->id == NULL)
            owed_of(world)->is[sight->number] = false;
        break;
    default: on_converged(world); break;
    }
}

const struct invariant W1_nothing_forgotten = {
    .name = "W1 nothing forgotten",
    .sees = SEES(EMPTIED) | SEES(VMODEL) | SEES(CONVERGED),
    .node_bytes = sizeof(struct knowledge),
    .model_bytes = sizeof(struct owed), /* of the first model: all vmodels' */
    .see = see,
};
