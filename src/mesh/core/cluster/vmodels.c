/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/cluster/vmodels.h"
#include "base/check.h"
#include "mesh/core/containers/scratch.h"

#include <stdlib.h>
#include <string.h>

void
vmodels_init(struct vmodels *vmodels, const struct mesh_config *config)
{
    *vmodels = (struct vmodels){0};
    names_init(&vmodels->names, config->vmodels_max, config->seed ^ UINT64_C(0x766d6f64656c7321));
}

void
vmodels_fini(struct vmodels *vmodels)
{
    for (uint32_t i = 0; i < vmodels->names.used; i++)
        free(vmodels->at[i].owner);
    free(vmodels->at);
    heap_fini(&vmodels->moving);
    heap_fini(&vmodels->graves);
    names_fini(&vmodels->names);
}

uint32_t
vmodels_hold(struct vmodels *vmodels, const char *id)
{
    uint32_t number = names_hold(&vmodels->names, id);
    if (number == NAME_NONE)
        return NAME_NONE;
    scratch_grow((void **)&vmodels->at, &vmodels->capacity, number + 1, sizeof(*vmodels->at));
    if (vmodels->names.at[number].references == 1)
        vmodels->at[number] = (struct vmodel){.active = NAME_NONE, .target = NAME_NONE};
    return number;
}

static void
clear(struct vmodels *vmodels, struct tables *tables, uint32_t number)
{
    struct vmodel *vmodel = &vmodels->at[number];
    if (vmodel->active != NAME_NONE)
        names_release(&tables->model_names, vmodel->active);
    if (vmodel->target != NAME_NONE)
        names_release(&tables->model_names, vmodel->target);
    free(vmodel->owner);
    vmodel->owner = NULL;
    vmodel->active = NAME_NONE;
    vmodel->target = NAME_NONE;
    vmodel->known = false;
    heap_remove(&vmodels->moving, number);
}

static bool
is_named(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* False: no room for the id. */
static bool
hold_model(struct tables *tables, const char *id, uint32_t *number)
{
    *number = is_named(id) ? tables_hold_model(tables, id) : NAME_NONE;
    return *number != NAME_NONE || !is_named(id);
}

/* Reserves numbers for the vmodel and both of its models, all or none. */
static bool
hold_all(struct vmodels *vmodels, struct tables *tables, const struct mesh_vmodel *record,
         uint32_t numbers[3])
{
    if (!hold_model(tables, record->active, &numbers[1]))
        return false;
    const char *target = is_named(record->target) ? record->target : record->active;
    bool held = hold_model(tables, target, &numbers[2]);
    numbers[0] = held ? vmodels_hold(vmodels, record->id) : NAME_NONE;
    if (numbers[0] != NAME_NONE)
        return true;
    if (numbers[1] != NAME_NONE)
        names_release(&tables->model_names, numbers[1]);
    if (held && numbers[2] != NAME_NONE)
        names_release(&tables->model_names, numbers[2]);
    return false;
}

bool
vmodels_put(struct vmodels *vmodels, struct tables *tables, const struct mesh_vmodel *record,
            uint32_t *number)
{
    uint32_t at = names_find(&vmodels->names, record->id);
    if (at != NAME_NONE && record->revision <= vmodels->at[at].revision)
        return false;
    uint32_t numbers[3];
    if (!hold_all(vmodels, tables, record, numbers))
        return false;
    at = numbers[0];
    struct vmodel *vmodel = &vmodels->at[at];
    if (vmodel->listed)
        names_release(&vmodels->names, at); /* it has one already */
    bool other_target = vmodel->target != numbers[2];
    clear(vmodels, tables, at);
    vmodel->listed = true;
    vmodel->known = true;
    vmodel->active = numbers[1];
    vmodel->target = numbers[2];
    if (is_named(record->owner))
        vmodel->owner = scratch_copy(record->owner, strlen(record->owner) + 1);
    vmodel->create_revision = record->create_revision;
    vmodel->revision = record->revision;
    vmodel->failed = record->failed;
    if (other_target) {
        vmodel->asked_ms = 0;
        vmodel->asks = 0;
        vmodel->asked.count = 0;
    }
    if (vmodel_is_moving(vmodel))
        heap_set(&vmodels->moving, at, 0);
    heap_remove(&vmodels->graves, at);
    *number = at;
    return true;
}

bool
vmodels_drop(struct vmodels *vmodels, struct tables *tables, const char *id, uint64_t revision,
             uint32_t *number)
{
    uint32_t at = names_find(&vmodels->names, id);
    if (at == NAME_NONE || revision <= vmodels->at[at].revision)
        return false;
    clear(vmodels, tables, at);
    vmodels->at[at].revision = revision;
    heap_set(&vmodels->graves, at, (int64_t)revision);
    *number = at;
    return true;
}

void
vmodels_dig_up(struct vmodels *vmodels, uint64_t revision)
{
    while (heap_first_key(&vmodels->graves) <= (int64_t)revision &&
           heap_first(&vmodels->graves) != HEAP_NONE) {
        uint32_t number = heap_first(&vmodels->graves);
        heap_remove(&vmodels->graves, number);
        struct vmodel *vmodel = &vmodels->at[number];
        CHECK(!vmodel->known);
        if (vmodel->listed) {
            vmodel->listed = false;
            names_release(&vmodels->names, number);
        }
    }
}

void
vmodels_lose(struct vmodels *vmodels)
{
    vmodels_dig_up(vmodels, INT64_MAX); /* records deleted before are not restored */
    for (uint32_t i = 0; i < vmodels->names.used; i++) {
        vmodels->at[i].revision = 0;
        vmodels->at[i].bid = (struct bid){0};
    }
    vmodels->lost = true;
}
