/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads in advance: rules G3 to G5. During its pass over all models the reaper notes those without
 * a copy. After the pass each node gets a share for loads in advance until the next one; then the
 * latest used models are requested, second by second.
 */
#include "mesh/core/upkeep/preload.h"
#include "base/check.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/ensure.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/reconcile.h"

enum {
    NOTED_MAX = 16384, /* latest used first; as many as a thousand nodes load in a minute */
    PACE_MS = 4000,    /* G5: per node */
    MESH_PACE = 1000,  /* G5: of the mesh: loads per second × nodes */
    LOAD = 1000,       /* unit of the mesh's budget, so that fractions count */
    SAVED_MS_MAX = 10000,
    FAILURES_MAX = 2, /* G3 */
    KEPT_FREE = 8,    /* an eighth of a node stays free */
    RENEWED = 20,     /* G4: at least a twentieth, even of a full node */
    LATER_MAX = 16,   /* models deferred before the tick gives up */
    LOOKS_MAX = 256,  /* per second */
};

static bool
is_wanted(const struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = &mesh->tables.models[number];
    return names_text(&mesh->tables.model_names, number) != NULL && model->known &&
           !model_is_lost(model) && model->entry == ENTRY_NONE &&
           model_copies(&mesh->tables, model) == 0 &&
           model_fresh_failures(mesh, model) < FAILURES_MAX;
}

void
preload_note(struct mesh *mesh, uint32_t number)
{
    if (!is_wanted(mesh, number))
        return;
    heap_set(&mesh->preload.unloaded, number, model_at(mesh, number)->used_ms);
    if (mesh->preload.unloaded.count > NOTED_MAX)
        heap_remove(&mesh->preload.unloaded, heap_first(&mesh->preload.unloaded));
}

/* Average size of a loaded model over all nodes. */
static uint32_t
mean_units(const struct mesh *mesh)
{
    uint64_t units = 0;
    uint64_t copies = 0;
    uint64_t mean = 0;
    for (uint32_t i = 0; i < mesh->pools.count; i++)
        if (mesh->pools.at[i].default_units > mean)
            mean = mesh->pools.at[i].default_units;
    for (uint32_t i = 0; i < mesh->tables.instance_names.used; i++) {
        const struct instance *instance = &mesh->tables.instances[i];
        if (instance->session == 0)
            continue;
        units += instance->figures.capacity_units - instance->figures.free_units;
        copies += instance->figures.copies;
    }
    if (copies > 0)
        mean = units / copies;
    return mean == 0 ? 1 : mean < UINT32_MAX ? (uint32_t)mean : UINT32_MAX;
}

/* G3, G4 */
static void
give_share(struct instance *instance)
{
    uint64_t capacity = instance->figures.capacity_units;
    uint64_t room = instance->figures.full ? 0 : instance->figures.free_units;
    uint64_t kept = capacity / KEPT_FREE;
    uint64_t renewed = capacity / RENEWED;
    instance->preload_units = room > kept ? (room - kept) / 2 : 0;
    instance->renew_units =
        renewed > instance->preload_units ? renewed - instance->preload_units : 0;
}

static void
forget_all(struct heap *heap)
{
    while (heap_first(heap) != HEAP_NONE)
        heap_remove(heap, heap_first(heap));
}

void
preload_plan(struct mesh *mesh)
{
    mesh->tables.instances[INSTANCE_SELF].figures = mesh_figures(mesh);
    mesh->preload.units = mean_units(mesh);
    for (uint32_t i = 0; i < mesh->tables.instance_names.used; i++)
        give_share(&mesh->tables.instances[i]);
    forget_all(&mesh->preload.queue);
    while (heap_first(&mesh->preload.unloaded) != HEAP_NONE) {
        uint32_t number = heap_first(&mesh->preload.unloaded);
        heap_set(&mesh->preload.queue, number, -heap_first_key(&mesh->preload.unloaded));
        heap_remove(&mesh->preload.unloaded, number);
    }
}

/* G5, of the mesh. Unused budget of more than a second, or one load, lapses. */
static void
budget_grow(struct mesh *mesh)
{
    int64_t nodes = mesh->tables.live > 0 ? mesh->tables.live : 1;
    int64_t passed_ms = mesh->now_ms - mesh->preload.paid_ms;
    int64_t a_second = (int64_t)MESH_PACE * LOAD / nodes;
    int64_t most = a_second > LOAD ? a_second : LOAD;
    if (passed_ms > SAVED_MS_MAX)
        passed_ms = SAVED_MS_MAX;
    mesh->preload.budget += a_second * passed_ms / 1000;
    if (mesh->preload.budget > most)
        mesh->preload.budget = most;
    mesh->preload.paid_ms = mesh->now_ms;
}

enum preload_sent { SENT, SENT_LATER, SENT_NEVER };

static enum preload_sent
send_preload(struct mesh *mesh, uint32_t number)
{
    if (!is_wanted(mesh, number))
        return SENT_NEVER;
    int64_t used_ms = model_at(mesh, number)->used_ms;
    const struct load_wish load = {
        .model = number,
        .used_ms = used_ms < mesh->wall_ms ? used_ms : mesh->wall_ms,
        .class = MESH_CLASS_ADVANCE,
        .target = 1,
    };
    struct place_wish wish = ensure_wish(mesh, number);
    wish.own = false;
    wish.used_ms = load.used_ms;
    wish.preload_units = mesh->preload.units;
    wish.paced_ms = mesh->now_ms - PACE_MS;
    uint32_t there = place_choose(&mesh->tables, &wish, &mesh->random);
    if (there == NAME_NONE) {
        wish.paced_ms = mesh->now_ms;
        return place_choose(&mesh->tables, &wish, &mesh->random) == NAME_NONE ? SENT_NEVER
                                                                              : SENT_LATER;
    }
    struct instance *instance = &mesh->tables.instances[there];
    uint64_t *share = instance->preload_units >= mesh->preload.units ? &instance->preload_units
                                                                     : &instance->renew_units;
    CHECK(*share >= mesh->preload.units);
    *share -= mesh->preload.units;
    instance->preload_ms = mesh->now_ms;
    ensure_at(mesh, &load, there);
    return SENT;
}

void
preload_tick(struct mesh *mesh)
{
    uint32_t waiting[LATER_MAX];
    uint32_t waiting_count = 0;
    if (!mesh->leader || mesh->mirror.session == 0)
        forget_all(&mesh->preload.queue);
    budget_grow(mesh);
    for (uint32_t looks = 0; looks < LOOKS_MAX && waiting_count < LATER_MAX; looks++) {
        uint32_t number = heap_first(&mesh->preload.queue);
        if (number == HEAP_NONE || mesh->preload.budget < LOAD)
            break;
        heap_remove(&mesh->preload.queue, number);
        enum preload_sent sent = send_preload(mesh, number);
        if (sent == SENT)
            mesh->preload.budget -= LOAD;
        else if (sent == SENT_LATER)
            waiting[waiting_count++] = number;
    }
    for (uint32_t i = 0; i < waiting_count; i++)
        heap_set(&mesh->preload.queue, waiting[i], -model_at(mesh, waiting[i])->used_ms);
}

void
preload_check(const struct mesh *mesh)
{
    heap_check(&mesh->preload.unloaded);
    heap_check(&mesh->preload.queue);
    CHECK(mesh->preload.unloaded.count <= NOTED_MAX && mesh->preload.queue.count <= NOTED_MAX);
    CHECK(mesh->preload.budget >= 0); /* G5 */
}
