/* SPDX-License-Identifier: Apache-2.0 */
/*
 * I14. References count vmodels, exactly, and no vmodel names a model that is not there. (In an
 * etcd that was emptied, a node that rewrites a record writes its former content.)
 */
#include "../codec.h"
#include "../invariants.h"

struct counted {
    uint32_t vmodels;
    uint32_t references;
    bool exists;
};

static void
count_vmodel(struct world *world, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return;
    struct counted *counted = of_model(world, &I14_references, number_of(name));
    counted->vmodels++;
}

static void
see(struct world *world, const struct sight *sight)
{
    (void)sight;
    if (world->emptied > 0)
        return;
    for (uint32_t m = 0; m < world->options.models; m++) {
        struct mesh_place places[CODEC_PLACES_MAX];
        struct mesh_model record = {0};
        struct counted *counted = of_model(world, &I14_references, m);
        counted->exists = record_now(world, m, places, &record);
        counted->references = record.references;
        counted->vmodels = 0;
    }
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        if (!vmodel_now(world, v, &vmodel))
            continue;
        count_vmodel(world, vmodel.active);
        if (model_differs(vmodel.active, vmodel.target))
            count_vmodel(world, vmodel.target);
    }
    for (uint32_t m = 0; m < world->options.models; m++) {
        const struct counted *counted = of_model(world, &I14_references, m);
        if (counted->exists ? counted->references != counted->vmodels : counted->vmodels > 0)
            broken(world, &I14_references, "m%u says %u references, and %u vmodels name it%s", m,
                   counted->references, counted->vmodels,
                   counted->exists ? "" : "; it is not there");
    }
}

const struct invariant I14_references = {
    .name = "I14 references",
    .sees = SEES(WRITTEN) | SEES(CONVERGED),
    .model_bytes = sizeof(struct counted),
    .see = see,
};
