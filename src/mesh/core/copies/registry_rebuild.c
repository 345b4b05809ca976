/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An emptied etcd: rule W1. This node's knowledge of models and instances is all that is left of
 * them, so it is kept: routing continues, and lost records are rewritten, only where they are
 * absent: those with a copy by the nodes that have it, the others and vmodels by the leader and
 * then by every node, since the leader may not have seen them or may have started later. Each node
 * writes a limited number per second. A model whose record was lost has revision 0.
 *
 * A node that had received nothing from etcd for a while has outdated knowledge. So each node waits
 * for half the age of its knowledge: the one that saw etcd last writes first.
 */
#include <string.h>

#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/reconcile.h"

enum {
    BACK_MS = 60000,   /* time for an instance to rewrite its key */
    OTHERS_MS = 10000, /* time that the leader leaves records to nodes with copies */
    LEADER_MS = 20000, /* time that all nodes leave records to the leader */
    MODELS_PER_TICK = 20000,
    WRITES_PER_TICK = 128,
    WAIT_MS_MAX = 30000, /* maximum delay for outdated knowledge */
    TICK_LATE_MS = 5000, /* this process was suspended */
};

static void
lose_model(struct mesh *mesh, uint32_t number)
{
    struct core_model *model = model_at(mesh, number);
    struct core_entry *entry = entry_of(mesh, model);
    if (entry != NULL && (!model->known || entry->create_revision != model->create_revision))
        entry->create_revision = 0; /* of no record any more (T7), in every case */
    heap_remove(&mesh->reconcile.retries, number);
    heap_remove(&mesh->reconcile.graves, number);
    model->txn = 0;
    model->txn_compare = TXN_COMPARED_NONE;
    model->revision = 0;
    tables_forget_model(&mesh->tables, number); /* records deleted before are not restored */
}

void
registry_rebuild_on_contact(struct mesh *mesh)
{
    mesh->registry_rebuild.contact_ms = mesh->now_ms;
}

void
registry_rebuild_on_emptied(struct mesh *mesh)
{
    int64_t wait_ms = (mesh->now_ms - mesh->registry_rebuild.contact_ms) / 2;
    mesh->registry_rebuild.wait_ms = wait_ms < WAIT_MS_MAX ? wait_ms : WAIT_MS_MAX;
    mesh->mirror.session = 0;
    mesh->mirror.seen = 0;
    vmodels_lose(&mesh->vmodels);
    mesh->registry_rebuild.emptied_ms = mesh->now_ms;
    mesh->registry_rebuild.pending = true;
    mesh->registry_rebuild.found = true;
    /* Start at a random model so that nodes write different records. The models before it are in
     * the next sweep. */
    uint32_t used = mesh->tables.model_names.used;
    mesh->registry_rebuild.at = used == 0 ? 0 : (uint32_t)(random_next(&mesh->random) % used);
    mesh->registry_rebuild.writes = WRITES_PER_TICK;
    for (uint32_t i = 0; i < mesh->tables.model_names.used; i++)
        if (names_text(&mesh->tables.model_names, i) != NULL)
            lose_model(mesh, i);
    for (uint32_t i = 0; i < mesh->tables.instance_names.used; i++) {
        struct instance *instance = &mesh->tables.instances[i];
        instance->revision = 0;
        if (instance->session == 0 || i == INSTANCE_SELF)
            continue;
        instance->lost = true;
        instance->gone_ms = mesh->now_ms;
    }
}

enum lost
registry_rebuild_judge(const struct mesh *mesh, const struct mesh_model *record)
{
    uint32_t number = tables_model(&mesh->tables, record->id);
    if (number == NAME_NONE || !model_is_lost(&mesh->tables.models[number]))
        return LOST_NOT;
    const struct core_model *model = &mesh->tables.models[number];
    bool same = strcmp(names_text(&mesh->tables.type_names, model->type), record->type) == 0 &&
                strcmp(model->path, record->path) == 0 &&
                strcmp(model->path + strlen(model->path) + 1, record->key) == 0;
    return same ? LOST_SAME : LOST_OTHER;
}

/* Revisions restart: equal numbers mean nothing. */
void
registry_rebuild_ends(struct mesh *mesh, uint32_t number, enum lost lost)
{
    struct core_model *model = model_at(mesh, number);
    struct core_entry *entry = entry_of(mesh, model);
    if (entry != NULL && entry->create_revision != 0)
        entry->create_revision = lost == LOST_SAME ? model->create_revision : 0;
}

bool
rebuild_lately(const struct mesh *mesh)
{
    return mesh->registry_rebuild.pending ||
           (mesh->registry_rebuild.emptied_ms != 0 &&
            mesh->now_ms - mesh->registry_rebuild.emptied_ms < 2 * (int64_t)BACK_MS);
}

bool
registry_rebuild_is_mine(const struct mesh *mesh)
{
    return mesh->now_ms - mesh->registry_rebuild.emptied_ms >=
           mesh->registry_rebuild.wait_ms + (mesh->leader ? OTHERS_MS : LEADER_MS);
}

bool
registry_rebuild_may_write(struct mesh *mesh)
{
    if (mesh->registry_rebuild.writes == 0 ||
        mesh->now_ms - mesh->registry_rebuild.emptied_ms < mesh->registry_rebuild.wait_ms)
        return false;
    mesh->registry_rebuild.writes--;
    return true;
}

/* Instances that have not returned by now are gone. */
static bool
drop_instances(struct mesh *mesh)
{
    bool some = false;
    for (uint32_t i = 0; i < mesh->tables.instance_names.used; i++) {
        const struct instance *instance = &mesh->tables.instances[i];
        if (!instance->lost)
            continue;
        some = true;
        if (mesh->now_ms - instance->gone_ms >= BACK_MS)
            tables_drop_instance(&mesh->tables, names_text(&mesh->tables.instance_names, i), 1,
                                 mesh->now_ms); /* any revision of etcd's is larger */
    }
    return some;
}

static void
write_anew(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    if (!model_is_lost(model))
        return;
    mesh->registry_rebuild.found = true;
    if (model->txn != 0)
        return;
    if (model->entry != ENTRY_NONE)
        reconcile(mesh, number);
    else if (registry_rebuild_is_mine(mesh) && registry_rebuild_may_write(mesh))
        reconcile_anew(mesh, number);
}

void
registry_rebuild_tick(struct mesh *mesh)
{
    if (mesh->mirror.session != 0 && mesh->now_ms - mesh->registry_rebuild.ticked_ms < TICK_LATE_MS)
        registry_rebuild_on_contact(
            mesh); /* after a suspension the session may be over unnoticed */
    mesh->registry_rebuild.ticked_ms = mesh->now_ms;
    if (!mesh->registry_rebuild.pending)
        return;
    bool waits = drop_instances(mesh);
    if (mesh->mirror.session == 0)
        return;
    mesh->registry_rebuild.writes = WRITES_PER_TICK;
    for (uint32_t looked = 0; looked < MODELS_PER_TICK && mesh->registry_rebuild.writes > 0;
         looked++) {
        if (mesh->registry_rebuild.at >= mesh->tables.model_names.used) {
            mesh->registry_rebuild.pending = mesh->registry_rebuild.found || waits;
            mesh->registry_rebuild.found = false;
            mesh->registry_rebuild.at = 0;
            return;
        }
        uint32_t number = mesh->registry_rebuild.at++;
        if (names_text(&mesh->tables.model_names, number) != NULL)
            write_anew(mesh, number);
    }
}
