/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An etcd that was emptied: rule W1. What this node knows of models and instances is all that is
 * left of them, so it stays: routing goes on by it, and the records are written anew, only where
 * there is none, by whoever holds a copy; those that nobody holds, and vmodels, by the leader, and
 * then by everybody: the leader may not have seen them, or have begun after etcd was emptied. So
 * many a second each. A model whose record was lost has revision 0.
 *
 * A node that had not heard of etcd for a while knows what was, and not what became of it. So
 * whoever writes waits for half of the age that its knowledge had: who saw etcd last goes first.
 */
#include <string.h>

#include "mesh/core/state.h"

enum {
    BACK_MS = 60000,   /* so long an instance may take to write its key again */
    OTHERS_MS = 10000, /* so long the leader leaves records to those that hold copies */
    LEADER_MS = 20000, /* so long everybody leaves them to the leader */
    MODELS_PER_TICK = 20000,
    WRITES_PER_TICK = 128,
    WAIT_MS_MAX = 30000, /* for those who know what is old */
    TICK_LATE_MS = 5000, /* this process stood still */
};

static void
lose_model(struct mesh *mesh, uint32_t number)
{
    struct model *model = model_at(mesh, number);
    struct entry *entry = entry_of(mesh, model);
    if (entry != NULL && (!model->known || entry->create_revision != model->create_revision))
        entry->create_revision = 0; /* of no record any more (T7), whatever numbers come */
    heap_remove(&mesh->retries, number);
    heap_remove(&mesh->graves, number);
    model->txn = 0;
    model->txn_compare = TXN_COMPARED_NONE;
    model->revision = 0;
    tables_forget_model(&mesh->tables, number); /* what was deleted before is not missed */
}

void
lost_on_contact(struct mesh *mesh)
{
    mesh->contact_ms = mesh->now_ms;
}

void
lost_on_emptied(struct mesh *mesh)
{
    int64_t wait_ms = (mesh->now_ms - mesh->contact_ms) / 2;
    mesh->lost_wait_ms = wait_ms < WAIT_MS_MAX ? wait_ms : WAIT_MS_MAX;
    mesh->session = 0;
    mesh->seen = 0;
    vmodels_lose(&mesh->vmodels);
    mesh->emptied_ms = mesh->now_ms;
    mesh->lost = true;
    mesh->lost_seen = true;
    /* Anywhere: not all nodes are to write the same. This sweep's beginning is in the next one. */
    uint32_t used = mesh->tables.model_names.used;
    mesh->lost_at = used == 0 ? 0 : (uint32_t)(random_next(&mesh->random) % used);
    mesh->lost_writes = WRITES_PER_TICK;
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
lost_judge(const struct mesh *mesh, const struct mesh_model *record)
{
    uint32_t number = tables_model(&mesh->tables, record->id);
    if (number == NAME_NONE || !model_is_lost(&mesh->tables.models[number]))
        return LOST_NOT;
    const struct model *model = &mesh->tables.models[number];
    bool same = strcmp(names_text(&mesh->tables.type_names, model->type), record->type) == 0 &&
                strcmp(model->path, record->path) == 0 &&
                strcmp(model->path + strlen(model->path) + 1, record->key) == 0;
    return same ? LOST_SAME : LOST_OTHER;
}

/* Revisions begin anew: that the numbers are the same says nothing. */
void
lost_ends(struct mesh *mesh, uint32_t number, enum lost lost)
{
    struct model *model = model_at(mesh, number);
    struct entry *entry = entry_of(mesh, model);
    if (entry != NULL && entry->create_revision != 0)
        entry->create_revision = lost == LOST_SAME ? model->create_revision : 0;
}

bool
lost_lately(const struct mesh *mesh)
{
    return mesh->lost ||
           (mesh->emptied_ms != 0 && mesh->now_ms - mesh->emptied_ms < 2 * (int64_t)BACK_MS);
}

bool
lost_is_mine(const struct mesh *mesh)
{
    return mesh->now_ms - mesh->emptied_ms >=
           mesh->lost_wait_ms + (mesh->leader ? OTHERS_MS : LEADER_MS);
}

bool
lost_may_write(struct mesh *mesh)
{
    if (mesh->lost_writes == 0 || mesh->now_ms - mesh->emptied_ms < mesh->lost_wait_ms)
        return false;
    mesh->lost_writes--;
    return true;
}

/* Those that have not come back by now do not live. */
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
                                 mesh->now_ms); /* any key of etcd's is of a later revision */
    }
    return some;
}

static void
write_anew(struct mesh *mesh, uint32_t number)
{
    const struct model *model = model_at(mesh, number);
    if (!model_is_lost(model))
        return;
    mesh->lost_seen = true;
    if (model->txn != 0)
        return;
    if (model->entry != ENTRY_NONE)
        settle(mesh, number);
    else if (lost_is_mine(mesh) && lost_may_write(mesh))
        settle_anew(mesh, number);
}

void
lost_tick(struct mesh *mesh)
{
    if (mesh->session != 0 && mesh->now_ms - mesh->ticked_ms < TICK_LATE_MS)
        lost_on_contact(mesh); /* who has been still for long may not know yet that it is over */
    mesh->ticked_ms = mesh->now_ms;
    if (!mesh->lost)
        return;
    bool waits = drop_instances(mesh);
    if (mesh->session == 0)
        return;
    mesh->lost_writes = WRITES_PER_TICK;
    for (uint32_t looked = 0; looked < MODELS_PER_TICK && mesh->lost_writes > 0; looked++) {
        if (mesh->lost_at >= mesh->tables.model_names.used) {
            mesh->lost = mesh->lost_seen || waits;
            mesh->lost_seen = false;
            mesh->lost_at = 0;
            return;
        }
        uint32_t number = mesh->lost_at++;
        if (names_text(&mesh->tables.model_names, number) != NULL)
            write_anew(mesh, number);
    }
}
