/* SPDX-License-Identifier: Apache-2.0 */
/* The tables for people: the registry as this node sees it. */
#include <string.h>

#include "mesh/core/models.h"
#include "mesh/core/calls/refusal.h"
#include "mesh/core/calls/room_queue.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/pools.h"
#include "mesh/core/copies/reconcile.h"
#include "mesh/core/orders/status.h"

static bool
model_is_there(struct mesh *mesh, uint32_t number)
{
    return names_text(&mesh->tables.model_names, number) != NULL && model_at(mesh, number)->known;
}

static struct mesh_sight
sight_of(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    const struct core_entry *entry = entry_of(mesh, model);
    bump_reset(&mesh->actions.arena);
    return (struct mesh_sight){
        .model = model->known
                     ? reconcile_facts(mesh, number)
                     : (struct mesh_model){.id = names_text(&mesh->tables.model_names, number)},
        .status = status_of(mesh, number),
        .here = entry == NULL ? MESH_STATE_NONE : (enum mesh_state)entry->state,
        .pool = entry == NULL ? 0 : entry->pool,
    };
}

uint32_t
mesh_see_models(struct mesh *mesh, uint32_t from, uint32_t count, const char *prefix,
                void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    const struct names *names = &mesh->tables.model_names;
    size_t bytes = strlen(prefix);
    for (; from < names->used && count > 0; from++, count--) {
        if (!model_is_there(mesh, from) || strncmp(names_text(names, from), prefix, bytes) != 0)
            continue;
        const struct mesh_sight sight = sight_of(mesh, from);
        see(context, &sight);
    }
    return from < names->used ? from : 0;
}

static uint32_t
known_model(struct mesh *mesh, const char *id)
{
    uint32_t number = tables_model(&mesh->tables, id);
    return number != NAME_NONE && model_is_there(mesh, number) ? number : NAME_NONE;
}

bool
mesh_see_model(struct mesh *mesh, const char *id,
               void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    uint32_t number = known_model(mesh, id);
    if (number == NAME_NONE)
        return false;
    const struct mesh_sight sight = sight_of(mesh, number);
    see(context, &sight);
    return true;
}

/* The text with which a call that came now would fail; NULL: it would find a node, or a load here.
 * Follows the route of a miss (R5, R6, R14, R17), and leaves the random numbers as they are. */
static const char *
refusal_text(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    const struct core_call call = {.model = number};
    uint64_t random = mesh->random;
    if (model_fresh_failures(mesh, model) >= MESH_FAILURES_MAX)
        return refusal_failure_text(mesh, model);
    struct place_wish wish = call_place_wish(mesh, &call);
    if (place_choose(&mesh->tables, &wish, &random) != NAME_NONE)
        return NULL;
    if (mesh->mirror.session == 0 || mesh->tables.instances[INSTANCE_SELF].session == 0)
        return REGISTRY_AWAY_TEXT;
    if (pool_is_stuck(mesh, number) && load_may_begin(mesh, number))
        return NULL;
    return room_queue_may_help(mesh, number, NULL) ? refusal_after_waiting(mesh, number).text
                                                   : refusal_at_once(mesh, &wish).text;
}

bool
mesh_explain_model(struct mesh *mesh, const char *id,
                   void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    uint32_t number = known_model(mesh, id);
    if (number == NAME_NONE)
        return false;
    struct mesh_sight sight = sight_of(mesh, number);
    if (sight.here == MESH_STATE_NONE &&
        (sight.status.state == MESH_MODEL_NOT_LOADED || sight.status.state == MESH_MODEL_FAILED))
        sight.status.error = refusal_text(mesh, number);
    see(context, &sight);
    return true;
}

uint32_t
mesh_see_copies(struct mesh *mesh, uint32_t from, uint32_t count,
                void (*see)(void *context, const struct mesh_sight *sight), void *context)
{
    for (; from < mesh->entries.used && count > 0; from++, count--) {
        if (mesh->entries.at[from].state == MESH_STATE_NONE)
            continue;
        const struct mesh_sight sight = sight_of(mesh, mesh->entries.at[from].model);
        see(context, &sight);
    }
    return from < mesh->entries.used ? from : 0;
}

uint32_t
mesh_see_vmodels(struct mesh *mesh, uint32_t from, uint32_t count, const char *prefix,
                 void (*see)(void *context, const char *id,
                             const struct mesh_vmodel_status *status),
                 void *context)
{
    const struct names *names = &mesh->vmodels.names;
    size_t bytes = strlen(prefix);
    for (; from < names->used && count > 0; from++, count--) {
        const char *id = names_text(names, from);
        if (id == NULL || !mesh->vmodels.at[from].known || strncmp(id, prefix, bytes) != 0)
            continue;
        bump_reset(&mesh->actions.arena);
        const struct mesh_vmodel_status status = vmodel_status_of(mesh, from);
        see(context, id, &status);
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
