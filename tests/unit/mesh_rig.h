/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One node on a scripted clock, and the test is the rest: an etcd with records that transactions
 * compare, which may keep from the node what it has (a late watch), lose transactions, or their
 * answers; a runtime that answers at once, if it is to; other nodes by name. Texts are copied out
 * of actions, which do not last.
 */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "mesh/core/mesh_core.h"

#define WALL INT64_C(1000000000000)
#define HOUR INT64_C(3600000)

enum { UNIT = 8192, IDS = 24, PLACES = 4, TEXT = 32, KEPT = 64, ORDERS = 8 };

struct kept_place {
    char instance[TEXT];
    char reason[TEXT];
    int64_t since_ms;
    enum mesh_place_kind kind;
};

struct kept_model {
    char id[TEXT], type[TEXT], path[TEXT], key[TEXT];
    uint64_t create_revision, revision; /* 0: there is none */
    int64_t used_ms;
    uint32_t references;
    bool auto_delete;
    struct kept_place places[PLACES];
    uint32_t place_count;
};

struct kept_vmodel {
    char id[TEXT], owner[TEXT], active[TEXT], target[TEXT];
    uint64_t create_revision, revision;
    bool failed;
};

struct kept_reply {
    bool came;
    enum mesh_outcome outcome;
    enum mesh_model_state model;
    uint32_t copies;
    char first[TEXT];
    char error[4 * TEXT];
    enum mesh_vmodel_state vmodel;
    char owner[TEXT], active[TEXT], target[TEXT];
    enum mesh_model_state active_state, target_state;
};

enum network { NETWORK_WELL, NETWORK_UNHEARD, NETWORK_LOST, NETWORK_LATE };

static struct mesh *mesh;
static int64_t now_ms;
static uint64_t revision;
static struct kept_model models[IDS];
static struct kept_vmodel vmodels[IDS];
static enum network network; /* what becomes of transactions */
static bool prompt;          /* the runtime answers at once */
static bool load_fails;
static struct kept_reply replies[ORDERS];
static struct mesh_action kept[KEPT]; /* since `begin`; without what they point to */
static char kept_ids[KEPT][2][TEXT];
static uint32_t kept_count;
static uint32_t txns; /* since `begin`: those with writes, and those without */
static uint32_t compares;
static uint64_t late_txn; /* LATE: the last that was applied, and is not answered yet */

static void step(struct mesh_event event);

static inline void
set_text(char *to, const char *text)
{
    snprintf(to, TEXT, "%s", text == NULL ? "" : text);
}

/* ---- etcd ---- */

static inline struct kept_model *
model_at(const char *id)
{
    struct kept_model *spare = NULL;
    for (int i = 0; i < IDS; i++) {
        if (strcmp(models[i].id, id) == 0)
            return &models[i];
        if (spare == NULL && models[i].id[0] == '\0')
            spare = &models[i];
    }
    assert_non_null(spare);
    set_text(spare->id, id);
    return spare;
}

static inline struct kept_vmodel *
vmodel_at(const char *id)
{
    struct kept_vmodel *spare = NULL;
    for (int i = 0; i < IDS; i++) {
        if (strcmp(vmodels[i].id, id) == 0)
            return &vmodels[i];
        if (spare == NULL && vmodels[i].id[0] == '\0')
            spare = &vmodels[i];
    }
    assert_non_null(spare);
    set_text(spare->id, id);
    return spare;
}

static inline void
tell_model(const char *id)
{
    const struct kept_model *model = model_at(id);
    if (model->revision == 0) {
        step((struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {id, revision}});
        return;
    }
    struct mesh_place places[PLACES];
    for (uint32_t i = 0; i < model->place_count; i++)
        places[i] = (struct mesh_place){.instance = model->places[i].instance,
                                        .reason = model->places[i].reason,
                                        .since_ms = model->places[i].since_ms,
                                        .kind = model->places[i].kind};
    step((struct mesh_event){.kind = MESH_MODEL_PUT,
                             .model = {.id = id,
                                       .type = model->type,
                                       .path = model->path,
                                       .key = model->key,
                                       .create_revision = model->create_revision,
                                       .revision = model->revision,
                                       .used_ms = model->used_ms,
                                       .references = model->references,
                                       .auto_delete = model->auto_delete,
                                       .places = places,
                                       .place_count = model->place_count}});
}

static inline void
tell_vmodel(const char *id)
{
    const struct kept_vmodel *vmodel = vmodel_at(id);
    if (vmodel->revision == 0) {
        step((struct mesh_event){.kind = MESH_VMODEL_GONE, .gone = {id, revision}});
        return;
    }
    step((struct mesh_event){.kind = MESH_VMODEL_PUT,
                             .vmodel = {.id = id,
                                        .owner = vmodel->owner,
                                        .active = vmodel->active,
                                        .target = vmodel->target,
                                        .create_revision = vmodel->create_revision,
                                        .revision = vmodel->revision,
                                        .failed = vmodel->failed}});
}

static inline void
apply_model(const struct mesh_write *write)
{
    const struct mesh_model *given = &write->model;
    struct kept_model *model = model_at(given->id);
    uint64_t created = model->create_revision;
    bool is_new = model->revision == 0;
    memset(model, 0, sizeof(*model));
    set_text(model->id, given->id);
    if (write->verb == MESH_VERB_DELETE)
        return;
    set_text(model->type, given->type);
    set_text(model->path, given->path);
    set_text(model->key, given->key);
    model->create_revision = is_new ? revision : created;
    model->revision = revision;
    model->used_ms = given->used_ms;
    model->references = given->references;
    model->auto_delete = given->auto_delete;
    assert_true(given->place_count <= PLACES);
    model->place_count = given->place_count;
    for (uint32_t i = 0; i < given->place_count; i++) {
        set_text(model->places[i].instance, given->places[i].instance);
        set_text(model->places[i].reason, given->places[i].reason);
        model->places[i].since_ms = given->places[i].since_ms;
        model->places[i].kind = given->places[i].kind;
    }
}

static inline void
apply_vmodel(const struct mesh_write *write)
{
    const struct mesh_vmodel *given = &write->vmodel;
    struct kept_vmodel *vmodel = vmodel_at(given->id);
    uint64_t created = vmodel->create_revision;
    bool is_new = vmodel->revision == 0;
    memset(vmodel, 0, sizeof(*vmodel));
    set_text(vmodel->id, given->id);
    if (write->verb == MESH_VERB_DELETE)
        return;
    set_text(vmodel->owner, given->owner);
    set_text(vmodel->active, given->active);
    set_text(vmodel->target, given->target);
    vmodel->create_revision = is_new ? revision : created;
    vmodel->revision = revision;
    vmodel->failed = given->failed;
}

static inline const char *
id_of(const struct mesh_write *write)
{
    return write->record == MESH_RECORD_MODEL ? write->model.id : write->vmodel.id;
}

static inline bool
holds(const struct mesh_txn *txn)
{
    bool all = txn->session == 5;
    for (uint32_t i = 0; i < txn->write_count; i++) {
        const struct mesh_write *write = &txn->writes[i];
        uint64_t is = write->record == MESH_RECORD_MODEL ? model_at(id_of(write))->revision
                                                         : vmodel_at(id_of(write))->revision;
        all = all && is == write->compare;
        for (uint32_t other = 0; other < i; other++) /* etcd takes each key once */
            assert_true(txn->writes[other].record != write->record ||
                        strcmp(id_of(&txn->writes[other]), id_of(write)) != 0);
    }
    return all;
}

static inline void
apply(const struct mesh_txn *txn)
{
    revision++;
    for (uint32_t i = 0; i < txn->write_count; i++) {
        const struct mesh_write *write = &txn->writes[i];
        if (write->verb == MESH_VERB_COMPARE)
            continue;
        if (write->record == MESH_RECORD_MODEL)
            apply_model(write);
        else
            apply_vmodel(write);
    }
}

struct told {
    uint64_t txn;
    enum mesh_txn_end end;
    uint32_t count;
    enum mesh_record records[MESH_WRITES_MAX];
    char ids[MESH_WRITES_MAX][TEXT];
};

/* What the transaction named, as it is now; then its end. */
static inline void
tell(const struct told *told)
{
    for (uint32_t i = 0; i < told->count; i++)
        if (told->records[i] == MESH_RECORD_MODEL)
            tell_model(told->ids[i]);
        else
            tell_vmodel(told->ids[i]);
    step((struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {told->txn, told->end}});
}

static inline struct told
run_txn(const struct mesh_txn *txn)
{
    struct told told = {.txn = txn->txn, .count = txn->write_count};
    bool only_compares = true;
    for (uint32_t i = 0; i < txn->write_count; i++) {
        told.records[i] = txn->writes[i].record;
        set_text(told.ids[i], id_of(&txn->writes[i]));
        only_compares = only_compares && txn->writes[i].verb == MESH_VERB_COMPARE;
    }
    txns += !only_compares;
    compares += only_compares;
    bool held = holds(txn);
    if (held && network != NETWORK_LOST)
        apply(txn);
    told.end = held ? MESH_TXN_OK : MESH_TXN_LOST;
    if (network == NETWORK_WELL)
        return told;
    late_txn = txn->txn;
    told.count = 0;
    told.end = MESH_TXN_UNKNOWN;
    if (network == NETWORK_LATE)
        told.txn = 0;
    return told;
}

/* ---- a step ---- */

static inline void
follow(const struct mesh_action *action)
{
    struct mesh_event event = {.loaded = {.ticket = action->load.ticket, .freed = true}};
    if (!prompt)
        return;
    if (action->kind == MESH_DO_SIZE)
        event.kind = MESH_SIZE_PREDICTED;
    else if (action->kind == MESH_DO_LOAD)
        event.kind = MESH_LOAD_ENDED;
    else if (action->kind == MESH_DO_UNLOAD)
        event.kind = MESH_UNLOAD_ENDED;
    else
        return;
    if (action->kind == MESH_DO_LOAD && load_fails) {
        event.loaded.end = MESH_LOAD_NOT_ATTEMPTED;
        event.loaded.reason = "broken";
    }
    event.loaded.size_bytes = UNIT;
    step(event);
}

static inline void
keep_reply(const struct mesh_action *action)
{
    struct kept_reply *reply = &replies[action->reply.order];
    assert_false(reply->came);
    const struct mesh_status *status = &action->reply.model;
    const struct mesh_vmodel_status *vmodel = &action->reply.vmodel;
    *reply = (struct kept_reply){.came = true,
                                 .outcome = action->reply.outcome,
                                 .model = status->state,
                                 .copies = status->place_count,
                                 .vmodel = vmodel->state,
                                 .active_state = vmodel->active_status.state,
                                 .target_state = vmodel->target_status.state};
    if (status->place_count > 0)
        set_text(reply->first, status->places[0].instance);
    snprintf(reply->error, sizeof(reply->error), "%s", status->error == NULL ? "" : status->error);
    set_text(reply->owner, vmodel->owner);
    set_text(reply->active, vmodel->active);
    set_text(reply->target, vmodel->target);
}

static inline void
step(struct mesh_event event)
{
    event.now_ms = now_ms;
    event.wall_ms = WALL + now_ms;
    struct mesh_actions actions = mesh_step(mesh, &event);
    mesh_check(mesh);
    struct told told[KEPT];
    uint32_t told_count = 0;
    uint32_t first = kept_count;
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct mesh_action *action = &actions.at[i];
        assert_true(kept_count < KEPT);
        kept[kept_count] = *action;
        if (action->kind == MESH_DO_ENSURE) {
            set_text(kept_ids[kept_count][0], action->ensure.model);
            set_text(kept_ids[kept_count][1], action->ensure.instance);
        } else if (action->kind == MESH_DO_FORWARD || action->kind == MESH_DO_SERVE) {
            set_text(kept_ids[kept_count][0], action->attempt.model);
            set_text(kept_ids[kept_count][1], action->attempt.instance);
        }
        kept_count++;
        if (action->kind == MESH_DO_TXN)
            told[told_count++] = run_txn(&action->txn);
        else if (action->kind == MESH_DO_REPLY)
            keep_reply(action);
    }
    uint32_t last = kept_count;
    for (uint32_t i = 0; i < told_count; i++)
        if (told[i].txn != 0)
            tell(&told[i]);
    for (uint32_t i = first; i < last; i++)
        follow(&kept[i]);
}

static inline void
begin(void)
{
    kept_count = 0;
    txns = 0;
    compares = 0;
    memset(replies, 0, sizeof(replies));
}

static inline const struct mesh_action *
seen(enum mesh_action_kind kind)
{
    for (uint32_t i = 0; i < kept_count; i++)
        if (kept[i].kind == kind)
            return &kept[i];
    return NULL;
}

static inline uint32_t
count_seen(enum mesh_action_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < kept_count; i++)
        count += kept[i].kind == kind;
    return count;
}

static inline const char *
seen_id(enum mesh_action_kind kind, int which)
{
    for (uint32_t i = 0; i < kept_count; i++)
        if (kept[i].kind == kind)
            return kept_ids[i][which];
    return "none";
}

static inline void
tick(int64_t after_ms)
{
    now_ms += after_ms;
    step((struct mesh_event){.kind = MESH_TICK});
}

/* ---- what the tests do ---- */

static inline void
order_more(struct mesh_order said)
{
    said.deadline_ms = now_ms + 60000;
    step((struct mesh_event){.kind = MESH_ORDER, .order = said});
}

/* Its answer, if it came in the same step. */
static inline const struct kept_reply *
order(struct mesh_order said)
{
    begin();
    order_more(said);
    return &replies[said.order];
}

static inline enum mesh_outcome
outcome(struct mesh_order said)
{
    const struct kept_reply *reply = order(said);
    assert_true(reply->came);
    return reply->outcome;
}

/* The first of the rest is the type, or the target; then fields by name. */
#define REGISTER(id, ...)                                                                          \
    ((struct mesh_order){.kind = MESH_REGISTER, .model = (id), .type = __VA_ARGS__})
#define SET(id, ...)                                                                               \
    ((struct mesh_order){.kind = MESH_SET_VMODEL, .vmodel = (id), .model = __VA_ARGS__})

static inline void
instance(const char *id, uint64_t session, uint64_t room)
{
    step(
        (struct mesh_event){.kind = MESH_INSTANCE_PUT,
                            .instance = {.id = id,
                                         .labels = "",
                                         .session = session,
                                         .revision = ++revision,
                                         .figures = {.capacity_units = 1000, .free_units = room}}});
}

/* Somebody else writes a place into the record. */
static inline void
place(const char *id, const char *at, enum mesh_place_kind kind, int64_t since_ms)
{
    struct kept_model *model = model_at(id);
    struct kept_place *there = NULL;
    for (uint32_t i = 0; i < model->place_count; i++)
        if (strcmp(model->places[i].instance, at) == 0)
            there = &model->places[i];
    if (there == NULL)
        there = &model->places[model->place_count++];
    assert_true(model->place_count <= PLACES);
    set_text(there->instance, at);
    set_text(there->reason, kind == MESH_PLACE_FAILED ? "broken" : "");
    there->since_ms = WALL + since_ms;
    there->kind = kind;
    model->revision = ++revision;
}

static inline void
place_and_tell(const char *id, const char *at, enum mesh_place_kind kind)
{
    place(id, at, kind, now_ms);
    tell_model(id);
}

static inline void
lead(bool is_leader)
{
    step((struct mesh_event){.kind = MESH_LEADER, .leader = {is_leader}});
}

static inline void
call_model(uint32_t number, const char *model)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = number,
                                      .model = model,
                                      .balance = MESH_BALANCE_CALLER,
                                      .deadline_ms = now_ms + 60000}});
}

static inline void
call(uint32_t number, const char *vmodel)
{
    begin();
    step((struct mesh_event){.kind = MESH_CALL,
                             .call = {.call = number,
                                      .vmodel = vmodel,
                                      .balance = MESH_BALANCE_CALLER,
                                      .deadline_ms = now_ms + 60000}});
}

static inline void
try_ends(const struct mesh_action *action, enum mesh_end end)
{
    const struct mesh_event event = {
        .kind = MESH_TRY_ENDED,
        .tried = {.call = action->attempt.call, .number = action->attempt.number, .end = end}};
    step(event);
}

static inline void
check_served(const char *model)
{
    assert_string_equal(seen_id(MESH_DO_SERVE, 0), model);
    try_ends(seen(MESH_DO_SERVE), MESH_END_OK);
}

static inline void
check_vmodel(const char *id, const char *active, const char *target)
{
    assert_string_equal(vmodel_at(id)->active, active);
    assert_string_equal(vmodel_at(id)->target, target);
}

/* I14 */
static inline void
check_references(void)
{
    for (int m = 0; m < IDS; m++) {
        uint32_t references = 0;
        for (int v = 0; v < IDS && models[m].id[0] != '\0'; v++)
            references +=
                vmodels[v].revision != 0 && (strcmp(vmodels[v].active, models[m].id) == 0 ||
                                             strcmp(vmodels[v].target, models[m].id) == 0);
        assert_int_equal(models[m].references, references);
        assert_true(models[m].revision != 0 || references == 0);
    }
}

/* This node with room for nine models, and three registered: a, b, c. */
static inline int
fresh(void **state)
{
    (void)state;
    now_ms = 1000;
    revision = 10;
    network = NETWORK_WELL;
    prompt = true;
    load_fails = false;
    memset(models, 0, sizeof(models));
    memset(vmodels, 0, sizeof(vmodels));
    begin();
    mesh = mesh_create(&(struct mesh_config){.instance = "self",
                                             .models_max = 30,
                                             .instances_max = 10,
                                             .calls_max = 10,
                                             .vmodels_max = 20,
                                             .orders_max = ORDERS});
    step((struct mesh_event){.kind = MESH_RUNTIME,
                             .runtime = {.capacity_bytes = UINT64_C(1000) * UNIT,
                                         .default_bytes = UINT64_C(100) * UNIT,
                                         .loaders = 1,
                                         .load_timeout_ms = 9000}});
    step((struct mesh_event){.kind = MESH_SESSION, .session = {5}});
    instance("self", 5, 900);
    step((struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
    assert_int_equal(outcome(REGISTER("a", "t", .path = "p")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("b", "t", .path = "p")), MESH_OUTCOME_OK);
    assert_int_equal(outcome(REGISTER("c", "t", .path = "p")), MESH_OUTCOME_OK);
    begin();
    return 0;
}

static inline int
drop(void **state)
{
    (void)state;
    check_references();
    mesh_destroy(mesh);
    return 0;
}
