/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, for people: what the registry says as this node sees it. */
#include "base/check.h"
#include "mesh/core/state.h"

static const struct mesh_place *
places_of(struct mesh *mesh, const struct model *model)
{
    const struct place *places = model_places(model);
    struct mesh_place *made =
        memory_arena_take(&mesh->arena, (model->place_count + 1u) * sizeof(*made));
    for (uint32_t i = 0; i < model->place_count; i++) {
        uint32_t reason = places[i].reason;
        made[i] = (struct mesh_place){
            .instance = names_text(&mesh->tables.instance_names, places[i].instance),
            .reason = reason == NAME_NONE ? NULL : names_text(&mesh->tables.reasons, reason),
            .since_ms = places[i].since_ms,
            .kind = (enum mesh_place_kind)places[i].kind,
        };
    }
    return made;
}

uint32_t
mesh_visit_models(struct mesh *mesh, uint32_t from, uint32_t count,
                  void (*visit)(void *context, const struct mesh_model *model), void *context)
{
    const struct names *names = &mesh->tables.model_names;
    for (; from < names->used && count > 0; from++) {
        const struct model *model = model_at(mesh, from);
        if (names_text(names, from) == NULL || !model->known)
            continue;
        memory_arena_reset(&mesh->arena);
        const struct mesh_model made = {
            .id = names_text(names, from),
            .type = names_text(&mesh->tables.type_names, model->type),
            .path = model->path,
            .key = model->path + __builtin_strlen(model->path) + 1,
            .create_revision = model->create_revision,
            .revision = model->revision,
            .used_ms = model->used_ms,
            .unloaded_ms = model->unloaded_ms,
            .references = model->references,
            .auto_delete = model->auto_delete,
            .places = places_of(mesh, model),
            .place_count = model->place_count,
        };
        visit(context, &made);
        count--;
    }
    return from < names->used ? from : 0;
}

uint32_t
mesh_visit_instances(struct mesh *mesh, uint32_t from, uint32_t count,
                     void (*visit)(void *context, const struct mesh_instance *instance),
                     void *context)
{
    const struct names *names = &mesh->tables.instance_names;
    for (; from < names->used && count > 0; from++) {
        const struct instance *instance = &mesh->tables.instances[from];
        if (names_text(names, from) == NULL || instance->session == 0)
            continue;
        bool labelled = instance->label_set != NAME_NONE;
        const struct mesh_instance made = {
            .id = names_text(names, from),
            .labels = labelled ? names_text(&mesh->tables.label_sets, instance->label_set) : "",
            .session = instance->session,
            .revision = instance->revision,
            .start_ms = instance->start_ms,
            .version = instance->version,
            .draining = instance->draining,
            .figures = from == INSTANCE_SELF ? mesh_figures(mesh) : instance->figures,
        };
        visit(context, &made);
        count--;
    }
    return from < names->used ? from : 0;
}

static const char *
model_id(const struct mesh *mesh, uint32_t number)
{
    return number == NAME_NONE ? NULL : names_text(&mesh->tables.model_names, number);
}

uint32_t
mesh_visit_vmodels(struct mesh *mesh, uint32_t from, uint32_t count,
                   void (*visit)(void *context, const struct mesh_vmodel *vmodel), void *context)
{
    const struct names *names = &mesh->vmodels.names;
    for (; from < names->used && count > 0; from++) {
        const struct vmodel *vmodel = &mesh->vmodels.at[from];
        if (names_text(names, from) == NULL || !vmodel->known)
            continue;
        const struct mesh_vmodel made = {
            .id = names_text(names, from),
            .owner = vmodel->owner,
            .active = model_id(mesh, vmodel->active),
            .target = model_id(mesh, vmodel->target),
            .create_revision = vmodel->create_revision,
            .revision = vmodel->revision,
            .failed = vmodel->failed,
        };
        visit(context, &made);
        count--;
    }
    return from < names->used ? from : 0;
}

struct mesh_population
mesh_population(const struct mesh *mesh)
{
    struct mesh_population population = {.models = mesh->tables.known,
                                         .instances = mesh->tables.live};
    for (uint32_t i = 0; i < mesh->vmodels.names.used; i++)
        population.vmodels +=
            names_text(&mesh->vmodels.names, i) != NULL && mesh->vmodels.at[i].known;
    return population;
}
