/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reconciles this node's entries with the records: rules T1 to T7. Nothing waits for an answer:
 * `reconcile` compares both and takes the one next step, for any cause of the difference.
 */
#include "mesh/core/copies/reconcile.h"
#include "base/check.h"
#include "mesh/core/actions.h"
#include "mesh/core/models.h"
#include "mesh/core/cluster/place.h"
#include "mesh/core/copies/copy_calls.h"
#include "mesh/core/copies/load.h"
#include "mesh/core/copies/registry_rebuild.h"
#include "mesh/core/copies/migrate.h"
#include "mesh/core/copies/write.h"

void
reconcile_later(struct mesh *mesh, uint32_t model)
{
    if (mesh->reconcile.unreconciled_count > 0 &&
        mesh->reconcile.unreconciled[mesh->reconcile.unreconciled_count - 1] == model)
        return;
    scratch_grow((void **)&mesh->reconcile.unreconciled, &mesh->reconcile.unreconciled_capacity,
                 mesh->reconcile.unreconciled_count + 1, sizeof(*mesh->reconcile.unreconciled));
    mesh->reconcile.unreconciled[mesh->reconcile.unreconciled_count++] = model;
}

void
reconcile_all(struct mesh *mesh)
{
    for (uint32_t i = 0; i < mesh->tables.model_names.used; i++) {
        struct core_model *model = model_at(mesh, i);
        if (names_text(&mesh->tables.model_names, i) == NULL)
            continue;
        if (model->entry != ENTRY_NONE || model_place(model, INSTANCE_SELF) != NULL)
            reconcile_later(mesh, i);
    }
}

uint32_t
model_fresh_failures(const struct mesh *mesh, const struct core_model *model)
{
    const struct core_place *places = model_places(model);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->place_count; i++)
        count += places[i].kind == MESH_PLACE_FAILED &&
                 failure_is_fresh(places[i].since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
    return count;
}

/* ---- writing ---- */

enum what { SAY_NOTHING, SAY_LOADING, SAY_LOADED, SAY_FAILED };

/* Copies the places that stay: all except those of one instance (UINT16_MAX: none) and stale
 * failures. */
static uint32_t
copy_others(struct mesh *mesh, const struct core_model *model, uint16_t but,
            struct mesh_place *made)
{
    const struct core_place *places = model_places(model);
    uint32_t count = 0;
    for (uint32_t i = 0; i < model->place_count; i++) {
        const struct core_place *place = &places[i];
        bool stale =
            place->kind == MESH_PLACE_FAILED &&
            !failure_is_fresh(place->since_ms, mesh->wall_ms, mesh->config.failure_fresh_ms);
        if (place->instance == but || stale) /* F3 */
            continue;
        bool said = place->reason != NAME_NONE;
        made[count++] = (struct mesh_place){
            .instance = names_text(&mesh->tables.instance_names, place->instance),
            .reason = said ? names_text(&mesh->tables.reasons, place->reason) : NULL,
            .since_ms = place->since_ms,
            .kind = (enum mesh_place_kind)place->kind,
        };
    }
    return count;
}

/* T2, T5: whether a write may go out now. If not, it is retried in time. */
static bool
may_write(struct mesh *mesh, const struct core_model *model, uint32_t number)
{
    if (mesh->mirror.session == 0 || model->txn != 0)
        return false;
    if (model->txn_compare != model->revision || mesh->now_ms >= model->txn_again_ms)
        return true;
    heap_set(&mesh->reconcile.retries, number, model->txn_again_ms);
    return false;
}

struct mesh_model
reconcile_facts(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    return (struct mesh_model){
        .id = names_text(&mesh->tables.model_names, number),
        .type = names_text(&mesh->tables.type_names, model->type),
        .path = model->path,
        .key = model->path + __builtin_strlen(model->path) + 1,
        .create_revision = model->create_revision,
        .revision = model->revision,
        .used_ms = model->used_ms,
        .unloaded_ms = model->unloaded_ms,
        .references = model->references,
        .auto_delete = model->auto_delete,
        .bounds = model->bounds,
    };
}

struct mesh_model
reconcile_record(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    struct mesh_place *places =
        bump_take(&mesh->actions.arena, (model->place_count + 1u) * sizeof(*places));
    struct mesh_model record = reconcile_facts(mesh, number);
    record.places = places;
    record.place_count = copy_others(mesh, model, UINT16_MAX, places);
    return record;
}

/* Values to write instead of the record's own. */
struct revised {
    const struct mesh_place *places;
    uint32_t place_count;
    int64_t used_ms;
    int64_t unloaded_ms;
    const char *absent;
};

static void
send_record(struct mesh *mesh, uint32_t number, const struct revised *revised)
{
    struct core_model *model = model_at(mesh, number);
    CHECK(mesh->mirror.session != 0 && model->txn == 0); /* T2 */
    CHECK(model->known && revised->place_count <= model->place_count + 1u);
    model->txn = txn_next(mesh, BIDDER_MODEL, number);
    model->txn_compare = model->revision;
    struct mesh_write *write = bump_take(&mesh->actions.arena, sizeof(*write));
    *write =
        (struct mesh_write){.compare = model->revision, .model = reconcile_facts(mesh, number)};
    write->model.used_ms = revised->used_ms;
    write->model.unloaded_ms = revised->unloaded_ms;
    write->model.places = revised->places;
    write->model.place_count = revised->place_count;
    struct mesh_action *action = act(mesh, MESH_DO_TXN);
    action->txn = (struct mesh_txn){
        .txn = model->txn,
        .session = mesh->mirror.session,
        .absent = revised->absent,
        .writes = write,
        .write_count = 1,
    };
}

/* Writes the record with this node's place changed. */
static void
write_record(struct mesh *mesh, uint32_t number, const struct core_entry *entry, enum what what)
{
    struct core_model *model = model_at(mesh, number);
    if (!may_write(mesh, model, number))
        return;
    struct mesh_place *places =
        bump_take(&mesh->actions.arena, (model->place_count + 1u) * sizeof(*places));
    uint32_t count = copy_others(mesh, model, INSTANCE_SELF, places);
    if (what != SAY_NOTHING) {
        bool failed = what == SAY_FAILED;
        places[count++] = (struct mesh_place){
            .instance = names_text(&mesh->tables.instance_names, INSTANCE_SELF),
            .reason = failed && entry->reason != NAME_NONE
                          ? names_text(&mesh->tables.reasons, entry->reason)
                          : NULL,
            .since_ms = entry->since_ms,
            .kind = failed               ? MESH_PLACE_FAILED
                    : what == SAY_LOADED ? MESH_PLACE_LOADED
                                         : MESH_PLACE_LOADING,
        };
    }
    bool later_used = entry != NULL && entry->used_ms > model->used_ms;
    bool unloads = what == SAY_NOTHING || what == SAY_FAILED;
    const struct revised revised = {
        .places = places,
        .place_count = count,
        .used_ms = later_used ? entry->used_ms : model->used_ms,
        .unloaded_ms = unloads ? mesh->wall_ms : model->unloaded_ms,
    };
    send_record(mesh, number, &revised);
}

/* Writes the record without the place of an instance and with another last use. `absent`: an
 * instance whose key must be absent, or NULL. */
static void
reconcile_as(struct mesh *mesh, uint32_t number, uint16_t without, int64_t used_ms,
             const char *absent)
{
    struct core_model *model = model_at(mesh, number);
    if (!may_write(mesh, model, number))
        return;
    struct mesh_place *places =
        bump_take(&mesh->actions.arena, (model->place_count + 1u) * sizeof(*places));
    const struct revised revised = {
        .places = places,
        .place_count = copy_others(mesh, model, without, places),
        .used_ms = used_ms,
        .unloaded_ms = model->unloaded_ms,
        .absent = absent,
    };
    send_record(mesh, number, &revised);
}

void
reconcile_without(struct mesh *mesh, uint32_t number, uint16_t instance)
{
    int64_t used_ms = model_at(mesh, number)->used_ms;
    reconcile_as(mesh, number, instance, used_ms < mesh->wall_ms ? used_ms : mesh->wall_ms, /* G2 */
                 names_text(&mesh->tables.instance_names, instance));
}

void
reconcile_anew(struct mesh *mesh, uint32_t number)
{
    reconcile_as(mesh, number, INSTANCE_SELF, model_at(mesh, number)->used_ms, NULL);
}

void
reconcile_used_now(struct mesh *mesh, uint32_t number)
{
    reconcile_as(mesh, number, UINT16_MAX, mesh->wall_ms, NULL);
}

void
reconcile_say_used(struct mesh *mesh, uint32_t number)
{
    const struct core_model *model = model_at(mesh, number);
    const struct core_entry *entry = entry_of(mesh, model);
    const struct core_place *own = model->known ? model_place(model, INSTANCE_SELF) : NULL;
    if (own != NULL && own->kind == MESH_PLACE_LOADED && own->since_ms == entry->since_ms)
        write_record(mesh, number, entry, SAY_LOADED);
}

/* ---- one step per state ---- */

/* A2 to A4: whether the current record lets this node load. */
static bool
claim_is_due(const struct mesh *mesh, const struct core_model *model,
             const struct core_entry *entry)
{
    return model_copies(&mesh->tables, model) < entry->target &&
           !model_is_at_most(&mesh->tables, model) &&
           model_fresh_failures(mesh, model) < MESH_FAILURES_MAX;
}

static void
reconcile_claiming(struct mesh *mesh, struct core_entry *entry, const struct core_place *own)
{
    const struct core_model *model = model_at(mesh, entry->model);
    if (own != NULL && own->kind != MESH_PLACE_FAILED && own->since_ms == entry->since_ms) {
        if (entry->sized)
            entry_admit(mesh, entry);
        return;
    }
    if (model->txn != 0)
        return;
    if (claim_is_due(mesh, model, entry)) {
        write_record(mesh, entry->model, entry, SAY_LOADING);
        return;
    }
    calls_reroute(mesh, entry, MESH_END_OK); /* another node loads it; the calls will find it */
    entry_set(mesh, entry, MESH_STATE_NONE);
}

/* Another node took this one for dead, or the session is new. */
static void
reconcile_unlisted(struct mesh *mesh, struct core_entry *entry)
{
    const struct core_model *model = model_at(mesh, entry->model);
    bool wanted = model_copies(&mesh->tables, model) < entry->target;
    if ((wanted || entry->state == MESH_STATE_LOADING) && !model_is_at_most(&mesh->tables, model))
        write_record(mesh, entry->model, entry,
                     entry->state == MESH_STATE_LOADED ? SAY_LOADED : SAY_LOADING);
    else if (model->txn == 0)
        entry_leave(mesh, entry); /* J3 */
}

static void
reconcile_withdrawing(struct mesh *mesh, struct core_entry *entry, const struct core_place *own)
{
    const struct core_model *model = model_at(mesh, entry->model);
    bool listed = own != NULL && own->kind != MESH_PLACE_FAILED;
    bool unreported = entry->failed && (own == NULL || listed || own->since_ms != entry->since_ms);
    if (listed && migrate_stays(mesh, entry))
        return;
    if (listed || unreported)
        write_record(mesh, entry->model, entry, entry->failed ? SAY_FAILED : SAY_NOTHING);
    else if (model->txn == 0) {
        entry_set(mesh, entry, MESH_STATE_EMPTYING);
        reconcile_later(mesh, entry->model);
        migrate_evicted(mesh, entry);
    }
}

static void
reconcile_emptying(struct mesh *mesh, struct core_entry *entry)
{
    if (entry->in_flight > 0)
        return; /* I4 */
    if (!entry->resident) {
        entry_set(mesh, entry, MESH_STATE_NONE);
        return;
    }
    entry_set(mesh, entry, MESH_STATE_UNLOADING);
    act_on_model(mesh, MESH_DO_UNLOAD, entry);
}

/* The record is gone, or belongs to another model (T7). */
static void
reconcile_orphan(struct mesh *mesh, struct core_entry *entry)
{
    uint32_t number = entry->model;
    switch ((enum mesh_state)entry->state) {
    case MESH_STATE_CLAIMING:
    case MESH_STATE_QUEUED:
        calls_reroute(mesh, entry, MESH_END_OK);
        entry_set(mesh, entry, MESH_STATE_NONE);
        break;
    case MESH_STATE_LOADING:
        if (!entry->doomed)
            entry_leave(mesh, entry);
        break;
    case MESH_STATE_LOADED:
    case MESH_STATE_WITHDRAWING:
        entry_set(mesh, entry, MESH_STATE_EMPTYING);
        reconcile_later(mesh, number);
        break;
    case MESH_STATE_EMPTYING: reconcile_emptying(mesh, entry); break;
    case MESH_STATE_NONE:
    case MESH_STATE_UNLOADING: break;
    }
}

/* W1: the record was lost; each node with an entry rewrites it. */
static void
reconcile_lost(struct mesh *mesh, struct core_entry *entry, const struct core_place *own)
{
    bool listed = own != NULL && own->kind != MESH_PLACE_FAILED && own->since_ms == entry->since_ms;
    bool waits = entry->state == MESH_STATE_CLAIMING || entry->state >= MESH_STATE_EMPTYING;
    if (mesh->mirror.session == 0 || model_at(mesh, entry->model)->txn != 0 ||
        (!waits && !registry_rebuild_may_write(mesh)))
        return;
    switch ((enum mesh_state)entry->state) {
    case MESH_STATE_CLAIMING:
        if (listed)
            write_record(mesh, entry->model, entry, SAY_LOADING);
        else
            reconcile_claiming(mesh, entry, own);
        break;
    case MESH_STATE_QUEUED:
    case MESH_STATE_LOADING: write_record(mesh, entry->model, entry, SAY_LOADING); break;
    case MESH_STATE_LOADED: write_record(mesh, entry->model, entry, SAY_LOADED); break;
    case MESH_STATE_WITHDRAWING:
        if (!listed || !migrate_stays(mesh, entry))
            write_record(mesh, entry->model, entry, entry->failed ? SAY_FAILED : SAY_NOTHING);
        break;
    case MESH_STATE_EMPTYING:
    case MESH_STATE_NONE:
    case MESH_STATE_UNLOADING: break; /* registry_rebuild_tick writes it */
    }
}

static void
reconcile_entry(struct mesh *mesh, struct core_entry *entry, const struct core_place *own)
{
    bool listed = own != NULL && own->kind != MESH_PLACE_FAILED && own->since_ms == entry->since_ms;
    switch ((enum mesh_state)entry->state) {
    case MESH_STATE_CLAIMING: reconcile_claiming(mesh, entry, own); break;
    case MESH_STATE_QUEUED:
    case MESH_STATE_LOADING:
        if (!listed && !entry->doomed)
            reconcile_unlisted(mesh, entry);
        break;
    case MESH_STATE_LOADED:
        if (!listed)
            reconcile_unlisted(mesh, entry);
        else if (own->kind != MESH_PLACE_LOADED)
            write_record(mesh, entry->model, entry, SAY_LOADED);
        break;
    case MESH_STATE_WITHDRAWING: reconcile_withdrawing(mesh, entry, own); break;
    case MESH_STATE_EMPTYING: reconcile_emptying(mesh, entry); break;
    case MESH_STATE_NONE:
    case MESH_STATE_UNLOADING: break;
    }
}

void
reconcile(struct mesh *mesh, uint32_t number)
{
    if (number >= mesh->tables.model_names.used ||
        names_text(&mesh->tables.model_names, number) == NULL)
        return;
    struct core_model *model = model_at(mesh, number);
    struct core_entry *entry = entry_of(mesh, model);
    if (entry != NULL && entry->state == MESH_STATE_EMPTYING) {
        reconcile_emptying(mesh, entry);
        return;
    }
    if (!mesh->mirror.whole)
        return;
    if (entry != NULL && (!model->known || model->create_revision != entry->create_revision)) {
        reconcile_orphan(mesh, entry);
        return;
    }
    const struct core_place *own = model->known ? model_place(model, INSTANCE_SELF) : NULL;
    if (entry != NULL && model_is_lost(model))
        reconcile_lost(mesh, entry, own);
    else if (entry != NULL)
        reconcile_entry(mesh, entry, own);
    else if (model_is_lost(model))
        return; /* W1: registry_rebuild_tick writes it */
    else if (own != NULL && own->kind != MESH_PLACE_FAILED)
        write_record(mesh, number, NULL, SAY_NOTHING); /* J1 */
}

/* ---- answers ---- */

void
reconcile_on_txn(struct mesh *mesh, uint64_t txn, enum mesh_txn_end end)
{
    uint32_t number = (uint32_t)txn;
    if (number >= mesh->tables.model_names.used ||
        names_text(&mesh->tables.model_names, number) == NULL)
        return;
    struct core_model *model = model_at(mesh, number);
    if (model->txn != txn)
        return; /* a newer record has reconciled it (T3) */
    model->txn_again_ms = mesh->now_ms + RETRY_MS;
    bool unseen = end == MESH_TXN_OK && model->txn_compare == model->revision;
    if (end == MESH_TXN_UNKNOWN || unseen) { /* T4: still out */
        heap_set(&mesh->reconcile.retries, number, model->txn_again_ms);
        return;
    }
    model->txn = 0;
    reconcile_later(mesh, number);
}

void
reconcile_tick(struct mesh *mesh)
{
    while (heap_first_key(&mesh->reconcile.retries) <= mesh->now_ms) {
        uint32_t number = heap_first(&mesh->reconcile.retries);
        heap_remove(&mesh->reconcile.retries, number);
        if (number < mesh->tables.model_names.used)
            model_at(mesh, number)->txn = 0;
        reconcile_later(mesh, number);
    }
}
