/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/core/copies/write.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/copies/reconcile.h"

#include <string.h>

uint64_t
txn_next(struct mesh *mesh, enum bidder bidder, uint32_t number)
{
    mesh->reconcile.txns = (mesh->reconcile.txns + 1) & UINT32_MAX;
    mesh->reconcile.txns += mesh->reconcile.txns == 0;
    return mesh->reconcile.txns << 32 | (uint64_t)bidder << BIDDER_SHIFT | number;
}

/* ---- a batch ---- */

static struct mesh_write *
add(struct write_batch *batch, enum mesh_verb verb, enum mesh_record record, uint64_t compare)
{
    CHECK(batch->count < MESH_WRITES_MAX);
    struct mesh_write *write = &batch->writes[batch->count++];
    *write = (struct mesh_write){.verb = verb, .record = record, .compare = compare};
    return write;
}

struct mesh_write *
batch_model(struct mesh *mesh, struct write_batch *batch, enum mesh_verb verb, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    struct mesh_write *write =
        add(batch, verb, MESH_RECORD_MODEL, model->known ? model->revision : 0);
    if (verb == MESH_VERB_PUT && model->known)
        write->model = reconcile_record(mesh, number);
    else
        write->model.id = names_text(&mesh->tables.model_names, number);
    return write;
}

struct mesh_write *
batch_vmodel(struct mesh *mesh, struct write_batch *batch, enum mesh_verb verb, uint32_t number)
{
    const struct vmodel *vmodel = &mesh->vmodels.at[number];
    struct mesh_write *write =
        add(batch, verb, MESH_RECORD_VMODEL, vmodel->known ? vmodel->revision : 0);
    write->vmodel.id = names_text(&mesh->vmodels.names, number);
    return write;
}

void
batch_used(struct mesh *mesh, struct write_batch *batch, uint32_t model, int64_t used_ms)
{
    struct mesh_write *write = batch_model(mesh, batch, MESH_VERB_PUT, model);
    if (used_ms > write->model.used_ms)
        write->model.used_ms = used_ms;
}

void
batch_hold(struct mesh *mesh, struct write_batch *batch, uint32_t model, int64_t used_ms)
{
    batch_used(mesh, batch, model, used_ms);
    struct mesh_model *record = &batch->writes[batch->count - 1].model;
    record->references += record->references < UINT32_MAX;
}

void
batch_release(struct mesh *mesh, struct write_batch *batch, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    if (!model->known)
        batch_model(mesh, batch, MESH_VERB_COMPARE, number);
    else if (model->references <= 1 && model->auto_delete)
        batch_model(mesh, batch, MESH_VERB_DELETE, number);
    else {
        struct mesh_write *write = batch_model(mesh, batch, MESH_VERB_PUT, number);
        write->model.references -= write->model.references > 0; /* others may miscount */
    }
}

void
batch_create(struct mesh *mesh, struct write_batch *batch, uint32_t model,
             const struct new_model *made)
{
    struct mesh_write *write = batch_model(mesh, batch, MESH_VERB_PUT, model);
    CHECK(write->compare == 0);
    write->model.type = made->type;
    write->model.path = made->path;
    write->model.key = made->key;
    write->model.used_ms = made->used_ms;
    write->model.references = made->references;
    write->model.auto_delete = made->auto_delete;
    write->model.bounds = made->bounds;
}

static const char *
model_text(const struct mesh *mesh, uint32_t model)
{
    return model == NAME_NONE ? NULL : names_text(&mesh->tables.model_names, model);
}

void
batch_move(struct mesh *mesh, struct write_batch *batch, uint32_t number,
           const struct moved_vmodel *moved)
{
    const struct vmodel *vmodel = &mesh->vmodels.at[number];
    struct mesh_write *write = batch_vmodel(mesh, batch, MESH_VERB_PUT, number);
    write->vmodel.owner = vmodel->known ? vmodel->owner : moved->owner;
    write->vmodel.active = model_text(mesh, moved->active);
    write->vmodel.target = model_text(mesh, moved->target);
    write->vmodel.failed = moved->failed;
    write->vmodel.create_revision = vmodel->known ? vmodel->create_revision : 0;
    write->vmodel.revision = write->compare;
}

/* ---- a bid ---- */

bool
bid_is(const struct bid *bid, const struct write_batch *batch)
{
    if (bid->count != batch->count)
        return false;
    for (uint32_t i = 0; i < batch->count; i++)
        if (bid->compares[i] != batch->writes[i].compare)
            return false;
    return true;
}

/* Returns the id; within one table equal ids are one text. */
static const char *
record_id(const struct mesh_write *write)
{
    return write->record == MESH_RECORD_MODEL ? write->model.id : write->vmodel.id;
}

/* Writes of single models go first; both at once would only collide. */
static bool
is_spoken_for(struct mesh *mesh, const struct write_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++) {
        const struct mesh_write *write = &batch->writes[i];
        if (write->record != MESH_RECORD_MODEL)
            continue;
        uint32_t number = tables_model(&mesh->tables, write->model.id);
        if (model_at(mesh, number)->txn != 0)
            return true;
    }
    return false;
}

/* T8: each record is compared once, so a batch cannot contradict itself. */
static bool
repeats_record(const struct write_batch *batch)
{
    for (uint32_t i = 0; i < batch->count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (batch->writes[i].record == batch->writes[k].record &&
                record_id(&batch->writes[i]) == record_id(&batch->writes[k]))
                return true;
    return false;
}

void
bid_send(struct mesh *mesh, struct bid *bid, const struct write_batch *batch, enum bidder bidder,
         uint32_t number)
{
    if (mesh->mirror.session == 0 || !mesh->mirror.whole || is_spoken_for(mesh, batch))
        return;
    if (bid_is(bid, batch) && (bid->txn != 0 || mesh->now_ms < bid->again_ms))
        return; /* T4, T5 */
    CHECK(batch->count > 0 && !repeats_record(batch));
    bid->txn = txn_next(mesh, bidder, number);
    bid->count = batch->count;
    for (uint32_t i = 0; i < batch->count; i++)
        bid->compares[i] = batch->writes[i].compare;
    size_t size = batch->count * sizeof(batch->writes[0]);
    struct mesh_write *writes = bump_take(&mesh->actions.arena, size);
    memcpy(writes, batch->writes, size);
    struct mesh_action *action = act(mesh, MESH_DO_TXN);
    action->txn = (struct mesh_txn){.txn = bid->txn,
                                    .session = mesh->mirror.session,
                                    .writes = writes,
                                    .write_count = batch->count};
}

bool
bid_ended(const struct mesh *mesh, struct bid *bid, uint64_t txn)
{
    if (bid->txn != txn)
        return false;
    bid->txn = 0;
    bid->again_ms = mesh->now_ms + RETRY_MS; /* later changes are compared anew */
    return true;
}
