/* SPDX-License-Identifier: Apache-2.0 */
/* The world's etcd: revisions, fenced transactions whose answers may be lost, and late watches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "world.h"

static struct mesh_event
event_of_model(const struct record *record, uint32_t model, struct mesh_place *places)
{
    static char path[32]; /* kept by nobody */
    if (!record->exists)
        return (struct mesh_event){.kind = MESH_MODEL_GONE,
                                   .gone = {model_name(model), record->revision}};
    for (uint32_t i = 0; i < record->count; i++)
        places[i] = (struct mesh_place){
            .instance = node_name(record->places[i].node),
            .since_ms = record->places[i].since_ms,
            .kind = record->places[i].kind,
            .reason = record->places[i].kind == MESH_PLACE_FAILED ? "broken" : NULL,
        };
    snprintf(path, sizeof(path), "v%llu", (unsigned long long)record->version);
    return (struct mesh_event){
        .kind = MESH_MODEL_PUT,
        .model = {.id = model_name(model),
                  .type = "type",
                  .path = path,
                  .key = "",
                  .create_revision = record->create_revision,
                  .revision = record->revision,
                  .used_ms = record->used_ms,
                  .references = record->references,
                  .auto_delete = record->auto_delete,
                  .places = places,
                  .place_count = record->count},
    };
}

static void
tell_model(struct world *world, uint32_t node, const struct record *record, uint32_t model)
{
    struct mesh_place places[PLACES_MAX];
    struct node *to = &world->nodes[node];
    if (record->exists && record->revision > to->told_at[model])
        to->told[model] = record->version;
    if (record->revision > to->told_at[model])
        to->told_at[model] = record->revision;
    node_step(world, node, event_of_model(record, model, places));
}

static void
tell_vmodel(struct world *world, uint32_t node, const struct vrecord *record, uint32_t vmodel)
{
    if (!record->exists) {
        node_step(world, node,
                  (struct mesh_event){.kind = MESH_VMODEL_GONE,
                                      .gone = {vmodel_name(vmodel), record->revision}});
        return;
    }
    node_step(world, node,
              (struct mesh_event){.kind = MESH_VMODEL_PUT,
                                  .vmodel = {.id = vmodel_name(vmodel),
                                             .active = model_name(record->active),
                                             .target = model_name(record->target),
                                             .create_revision = record->create_revision,
                                             .revision = record->revision,
                                             .failed = record->failed}});
}

static void
tell_key(struct world *world, uint32_t node, const struct instance_key *key, uint32_t of)
{
    if (!key->exists) {
        node_step(world, node,
                  (struct mesh_event){.kind = MESH_INSTANCE_GONE,
                                      .gone = {node_name(of), key->revision}});
        return;
    }
    node_step(world, node,
              (struct mesh_event){.kind = MESH_INSTANCE_PUT,
                                  .instance = {.id = node_name(of),
                                               .labels = of % 2 == 0 ? "even" : "odd",
                                               .session = key->session,
                                               .revision = key->revision,
                                               .start_ms = key->start_ms,
                                               .version = key->version,
                                               .draining = key->draining,
                                               .figures = key->figures}});
}

static void
deliver(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life || task->c != node->history)
        return;
    if (node->history != world->history || node->seen >= world->change_count) {
        node->watching = false;
        return;
    }
    uint64_t until = node->seen + 1 + draw(world, 20);
    while (node->seen < world->change_count && node->seen < until) {
        const struct change change = world->changes[node->seen++];
        if (change.kind == CHANGE_KEY)
            tell_key(world, task->node, &change.key, change.id);
        else if (change.kind == CHANGE_VMODEL)
            tell_vmodel(world, task->node, &change.vrecord, change.id);
        else
            tell_model(world, task->node, &change.record, change.id);
    }
    uint64_t revision = world->changes[node->seen - 1].revision;
    node_step(world, task->node, (struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
    node->watching = node->seen < world->change_count;
    if (node->watching)
        later(world, 1 + draw(world, 50), *task);
}

static void
announce(struct world *world)
{
    for (uint32_t i = 0; i < world->node_count; i++) {
        struct node *node = &world->nodes[i];
        if (node->mesh == NULL || node->watching || node->history != world->history)
            continue;
        node->watching = true;
        int64_t lag = world->faulty && happens(world, 20) ? draw(world, 8000) : draw(world, 100);
        later(world, lag,
              (struct task){.run = deliver, .node = i, .life = node->life, .c = node->history});
    }
}

static struct change *
change_add(struct world *world)
{
    if (world->change_count == world->change_capacity) {
        world->change_capacity = world->change_capacity * 2 + 64;
        world->changes =
            reallocarray(world->changes, world->change_capacity, sizeof(*world->changes));
        CHECK(world->changes != NULL);
    }
    struct change *change = &world->changes[world->change_count++];
    *change = (struct change){.revision = ++world->revision};
    return change;
}

void
etcd_put_model(struct world *world, uint32_t model, struct record record)
{
    struct change *change = change_add(world);
    record.revision = world->revision;
    if (record.exists && record.create_revision == 0)
        record.create_revision = world->revision;
    world->records[model] = record;
    change->id = model;
    change->record = record;
    announce(world);
}

void
etcd_put_vmodel(struct world *world, uint32_t vmodel, struct vrecord record)
{
    struct change *change = change_add(world);
    record.revision = world->revision;
    if (record.exists && record.create_revision == 0)
        record.create_revision = world->revision;
    world->vrecords[vmodel] = record;
    change->kind = CHANGE_VMODEL;
    change->id = vmodel;
    change->vrecord = record;
    announce(world);
}

void
etcd_register(struct world *world, uint32_t model, const struct record *former)
{
    struct record record = {.exists = true, .version = ++world->versions};
    if (former != NULL && former->exists) {
        record.references = former->references;
        record.auto_delete = former->auto_delete;
    }
    etcd_put_model(world, model, record);
}

void
etcd_put_key(struct world *world, uint32_t node)
{
    struct change *change = change_add(world);
    struct instance_key *key = &world->keys[node];
    if (!key->exists)
        key->session = world->revision;
    key->exists = true;
    key->revision = world->revision;
    *change =
        (struct change){.kind = CHANGE_KEY, .id = node, .revision = world->revision, .key = *key};
    announce(world);
}

void
etcd_drop_key(struct world *world, uint32_t node)
{
    if (!world->keys[node].exists)
        return;
    struct change *change = change_add(world);
    world->keys[node] = (struct instance_key){.revision = world->revision};
    *change = (struct change){
        .kind = CHANGE_KEY, .id = node, .revision = world->revision, .key = world->keys[node]};
    announce(world);
}

void
etcd_list(struct world *world, uint32_t node)
{
    world->nodes[node].seen = world->change_count;
    world->nodes[node].history = world->history;
    for (uint32_t i = 0; i < world->node_count; i++)
        if (world->keys[i].exists)
            tell_key(world, node, &world->keys[i], i);
    for (uint32_t i = 0; i < world->model_count; i++)
        if (world->records[i].exists)
            tell_model(world, node, &world->records[i], i);
    for (uint32_t i = 0; i < world->vmodel_count; i++)
        if (world->vrecords[i].exists)
            tell_vmodel(world, node, &world->vrecords[i], i);
    node_step(world, node, (struct mesh_event){.kind = MESH_WHOLE, .whole = {world->revision}});
}

/* ---- without its data ---- */

bool
etcd_is_seen_by(const struct world *world, uint32_t node)
{
    return world->nodes[node].history == world->history;
}

static void
key_is_back(struct world *world, struct task *task)
{
    const struct node *node = &world->nodes[task->node];
    if (node->mesh != NULL && node->life == task->life && etcd_is_seen_by(world, task->node) &&
        !world->keys[task->node].exists)
        node_register(world, task->node);
}

static void
notices(struct world *world, struct task *task)
{
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life || etcd_is_seen_by(world, task->node))
        return;
    node->watching = false;
    memset(node->told_at, 0, sizeof(node->told_at));
    node_step(world, task->node, (struct mesh_event){.kind = MESH_EMPTIED});
    etcd_list(world, task->node);
    task->run = key_is_back;
    later(world, draw(world, 5000), *task);
}

void
etcd_empty(struct world *world)
{
    world->history++;
    world->emptied_ms = world->now_ms;
    world->revision = 1;
    world->change_count = 0;
    for (uint32_t i = 0; i < world->model_count; i++)
        world->records[i] = (struct record){0};
    for (uint32_t i = 0; i < world->vmodel_count; i++)
        world->vrecords[i] = (struct vrecord){0};
    for (uint32_t i = 0; i < world->node_count; i++) {
        struct instance_key *key = &world->keys[i];
        *key = (struct instance_key){
            .start_ms = key->start_ms, .version = key->version, .draining = key->draining};
        later(world, draw(world, 5000),
              (struct task){.run = notices, .node = i, .life = world->nodes[i].life});
    }
}

/* ---- transactions ---- */

struct kept_write {
    enum mesh_verb verb;
    enum mesh_record of;
    uint32_t id;
    uint64_t compare;
    struct record record;
    struct vrecord vrecord;
};

struct message {
    uint64_t txn;
    uint64_t session;
    uint32_t absent; /* a node whose key must not exist; NODES_MAX: none */
    bool heard;
    uint64_t history; /* of etcd, when it was sent */
    uint32_t count;
    struct kept_write writes[MESH_WRITES_MAX];
};

static uint32_t
copies_alive(const struct world *world, const struct record *record, uint32_t but)
{
    uint32_t copies = 0;
    for (uint32_t i = 0; i < record->count; i++) {
        const struct place_kept *place = &record->places[i];
        const struct instance_key *key = &world->keys[place->node];
        copies += place->node != but && place->kind != MESH_PLACE_FAILED && key->exists &&
                  place->since_ms >= key->start_ms;
    }
    return copies;
}

const struct place_kept *
place_of(const struct record *record, uint32_t node)
{
    for (uint32_t i = 0; i < record->count; i++)
        if (record->places[i].node == node)
            return &record->places[i];
    return NULL;
}

bool
is_registered(const struct place_kept *place)
{
    return place != NULL && place->kind != MESH_PLACE_FAILED;
}

/* I3 */
static void
check_claim(const struct world *world, uint32_t node, const struct record *before)
{
    uint32_t others = copies_alive(world, before, node);
    CHECK(others < MESH_COPIES_TRIED_MAX || world->rate_for_more < 1000);
    bool calm = world->now_ms < INT64_C(7) * 60000 && /* S2 */
                world->vmodel_count == 0 &&           /* V3 */
                world->faults.links + world->faults.kills + world->faults.leases +
                        world->faults.forgets + world->faults.drains + world->faults.load_fails +
                        world->faults.size_lies + world->faults.constraints +
                        world->faults.emptied + world->concurrency ==
                    0;
    /* one that was given up for want of room may be on its way out of the record */
    uint32_t most = world->capacity < world->model_bytes * 100 ? 1 : 0;
    CHECK(others <= most || !calm || world->rate_for_more < 1000);
}

static void
apply_model(struct world *world, uint32_t node, const struct message *message,
            const struct kept_write *write)
{
    const struct record *before = &world->records[write->id];
    if (write->verb == MESH_VERB_DELETE) {
        CHECK(before->references <= 1);
        etcd_put_model(world, write->id, (struct record){.exists = false});
        return;
    }
    const struct place_kept *own = place_of(&write->record, node);
    if (before->exists && is_registered(own) && !is_registered(place_of(before, node)))
        check_claim(world, node, before);
    for (uint32_t i = 0; before->exists && i < before->count; i++) { /* nobody writes for another */
        const struct place_kept *place = &before->places[i];
        const struct place_kept *after = place_of(&write->record, place->node);
        CHECK(place->node == node || place->node == message->absent ||
              place->kind == MESH_PLACE_FAILED ||
              (after != NULL && after->since_ms == place->since_ms && after->kind == place->kind));
    }
    struct record record = write->record;
    record.exists = true;
    record.create_revision = before->exists ? before->create_revision : 0;
    world->nodes[node].claimed[write->id] = is_registered(own) ? record.version : 0;
    CHECK(!before->exists || before->version == record.version);
    etcd_put_model(world, write->id, record);
}

static void
apply_vmodel(struct world *world, const struct kept_write *write)
{
    const struct vrecord *before = &world->vrecords[write->id];
    struct vrecord record = write->vrecord;
    record.exists = write->verb == MESH_VERB_PUT;
    record.create_revision = before->exists ? before->create_revision : 0;
    check_switch(world, write->id, &record);
    etcd_put_vmodel(world, write->id, record);
}

static void
apply(struct world *world, uint32_t node, const struct message *message)
{
    for (int pass = 0; pass < 2; pass++) /* vmodels first, while their models are as they were */
        for (uint32_t i = 0; i < message->count; i++) {
            const struct kept_write *write = &message->writes[i];
            if (write->verb == MESH_VERB_COMPARE)
                continue;
            if (pass == 0 && write->of == MESH_RECORD_VMODEL)
                apply_vmodel(world, write);
            else if (pass == 1 && write->of == MESH_RECORD_MODEL)
                apply_model(world, node, message, write);
        }
    world->reaped += message->absent != NODES_MAX;
    check_references(world);
}

static void
txn_ended(struct world *world, struct task *task)
{
    const struct message *message = task->data;
    struct node *node = &world->nodes[task->node];
    if (node->mesh == NULL || node->life != task->life)
        return;
    if (message->history != node->history) /* emptied since */
        task->a = MESH_TXN_UNKNOWN;
    for (uint32_t i = 0; i < message->count && task->a != MESH_TXN_UNKNOWN; i++) {
        const struct kept_write *write = &message->writes[i];
        if (write->of == MESH_RECORD_MODEL)
            tell_model(world, task->node, &write->record, write->id);
        else
            tell_vmodel(world, task->node, &write->vrecord, write->id);
    }
    node_step(world, task->node,
              (struct mesh_event){.kind = MESH_TXN_ENDED,
                                  .txn = {message->txn, (enum mesh_txn_end)task->a}});
}

static void
end_txn(struct world *world, const struct task *task, enum mesh_txn_end end, int64_t in_ms)
{
    struct task answer = *task;
    answer.run = txn_ended;
    answer.a = end;
    struct message *message = malloc(sizeof(*message));
    CHECK(message != NULL);
    *message = *(const struct message *)task->data;
    for (uint32_t i = 0; i < message->count; i++) {
        struct kept_write *write = &message->writes[i];
        if (write->of == MESH_RECORD_MODEL)
            write->record = world->records[write->id];
        else
            write->vrecord = world->vrecords[write->id];
    }
    answer.data = message;
    later(world, in_ms, answer);
}

static bool
compares(const struct world *world, const struct kept_write *write)
{
    if (write->of == MESH_RECORD_MODEL) {
        const struct record *record = &world->records[write->id];
        return write->compare == (record->exists ? record->revision : 0);
    }
    const struct vrecord *record = &world->vrecords[write->id];
    return write->compare == (record->exists ? record->revision : 0);
}

static void
txn_arrives(struct world *world, struct task *task)
{
    const struct message *message = task->data;
    const struct instance_key *key = &world->keys[task->node];
    bool absent = message->absent == NODES_MAX || !world->keys[message->absent].exists;
    bool holds = absent && key->exists && key->session == message->session &&
                 message->history == world->history;
    for (uint32_t i = 0; i < message->count; i++)
        holds = holds && compares(world, &message->writes[i]);
    trace(world, message->txn ^ holds);
    if (holds)
        apply(world, task->node, message);
    if (message->heard)
        end_txn(world, task, holds ? MESH_TXN_OK : MESH_TXN_LOST, 1 + draw(world, 10));
}

static struct record
keep_model(const struct mesh_model *model)
{
    struct record record = {.used_ms = model->used_ms,
                            .references = model->references,
                            .auto_delete = model->auto_delete,
                            .version = number_of(model->path),
                            .count = model->place_count};
    CHECK(model->place_count <= PLACES_MAX);
    for (uint32_t i = 0; i < model->place_count; i++)
        record.places[i] = (struct place_kept){
            .node = number_of(model->places[i].instance),
            .since_ms = model->places[i].since_ms,
            .kind = model->places[i].kind,
        };
    return record;
}

static struct kept_write
keep(const struct mesh_write *write)
{
    bool model = write->record == MESH_RECORD_MODEL;
    struct kept_write kept = {.verb = write->verb, .of = write->record, .compare = write->compare};
    kept.id = number_of(model ? write->model.id : write->vmodel.id);
    if (write->verb == MESH_VERB_PUT && model)
        kept.record = keep_model(&write->model);
    else if (write->verb == MESH_VERB_PUT)
        kept.vrecord = (struct vrecord){.active = number_of(write->vmodel.active),
                                        .target = number_of(write->vmodel.target),
                                        .failed = write->vmodel.failed};
    return kept;
}

void
etcd_txn(struct world *world, uint32_t node, const struct mesh_txn *txn)
{
    struct message *message = calloc(1, sizeof(*message));
    CHECK(message != NULL);
    *message = (struct message){.txn = txn->txn,
                                .session = txn->session,
                                .absent = txn->absent == NULL ? NODES_MAX : number_of(txn->absent),
                                .heard = true,
                                .history = world->nodes[node].history,
                                .count = txn->write_count};
    for (uint32_t i = 0; i < txn->write_count; i++)
        message->writes[i] = keep(&txn->writes[i]);
    const struct faults *faults = &world->faults;
    struct task task = {
        .run = txn_arrives, .node = node, .life = world->nodes[node].life, .data = message};
    bool lost = world->faulty && happens(world, faults->txn_lost);
    bool late = world->faulty && happens(world, faults->txn_late);
    message->heard = !(world->faulty && (lost || late || happens(world, faults->txn_unheard)));
    if (!message->heard)
        end_txn(world, &task, MESH_TXN_UNKNOWN, 500 + draw(world, 3000));
    if (lost)
        free(message);
    else
        later(world, late ? draw(world, 15000) : 1 + draw(world, 20), task);
}
