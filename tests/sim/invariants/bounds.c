/* SPDX-License-Identifier: Apache-2.0 */
#include "bounds.h"

uint32_t
copies_that_stay(struct world *world, const struct mesh_model *record, enum mesh_place_kind least)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < record->place_count; i++) {
        const struct mesh_place *place = &record->places[i];
        struct mesh_instance key;
        copies += is_registered(place) && place->kind >= least && place_is_alive(world, place) &&
                  key_now(world, number_of(place->instance), &key) && !key.draining;
    }
    return copies;
}

uint32_t
copies_needed(struct world *world, const struct mesh_model *record)
{
    const struct mesh_bounds *bounds = &record->bounds;
    for (uint32_t v = 0; v < world->options.vmodels; v++) {
        struct mesh_vmodel vmodel;
        if (vmodel_now(world, v, &vmodel) && model_differs(vmodel.active, vmodel.target) &&
            !vmodel.failed && !model_differs(vmodel.active, record->id))
            return 0;
    }
    bool crossed = bounds->copies_max != 0 && bounds->copies_max < bounds->copies_min;
    return crossed ? bounds->copies_max : bounds->copies_min;
}
