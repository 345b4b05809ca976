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
    static char path[32]; /* says which model of that name this is; kept by nobody */
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
        if (change.of_instance)
            tell_key(world, task->node, &change.key, change.id);
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
etcd_register(struct world *world, uint32_t model)
{
    etcd_put_model(world, model, (struct record){.exists = true, .version = ++world->versions});
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
        (struct change){.of_instance = true, .id = node, .revision = world->revision, .key = *key};
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
        .of_instance = true, .id = node, .revision = world->revision, .key = world->keys[node]};
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
    for (uint32_t i = 0; i < world->node_count; i++) {
        struct instance_key *key = &world->keys[i];
        *key = (struct instance_key){
            .start_ms = key->start_ms, .version = key->version, .draining = key->draining};
        later(world, draw(world, 5000),
              (struct task){.run = notices, .node = i, .life = world->nodes[i].life});
    }
}

/* ---- transactions ---- */

struct message {
    uint64_t txn;
    uint64_t session;
    uint64_t compare;
    uint32_t model;
    uint32_t absent;  /* a node whose key must not exist; NODES_MAX: none */
    uint64_t history; /* of etcd, when it was sent */
    bool heard;
    struct record record;
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

static void
apply(struct world *world, uint32_t node, const struct message *message)
{
    const struct record *before = &world->records[message->model];
    const struct place_kept *own = place_of(&message->record, node);
    bool claims = is_registered(own) && !is_registered(place_of(before, node));
    if (claims && before->exists) { /* I3 */
        uint32_t others = copies_alive(world, before, node);
        CHECK(others < MESH_COPIES_TRIED_MAX || world->rate_for_more < 1000);
        bool calm = world->now_ms < INT64_C(7) * 60000 && /* S2 */
                    world->faults.links + world->faults.kills + world->faults.leases +
                            world->faults.forgets + world->faults.drains +
                            world->faults.load_fails + world->faults.size_lies +
                            world->faults.constraints + world->faults.emptied +
                            world->concurrency ==
                        0;
        /* one that was given up for want of room may be on its way out of the record */
        uint32_t most = world->capacity < world->model_bytes * 100 ? 1 : 0;
        CHECK(others <= most || !calm || world->rate_for_more < 1000);
    }
    for (uint32_t i = 0; i < before->count; i++) { /* nobody writes for another */
        const struct place_kept *place = &before->places[i];
        const struct place_kept *after = place_of(&message->record, place->node);
        CHECK(place->node == node || place->node == message->absent ||
              place->kind == MESH_PLACE_FAILED ||
              (after != NULL && after->since_ms == place->since_ms && after->kind == place->kind));
    }
    world->reaped += message->absent != NODES_MAX;
    struct record record = message->record;
    world->nodes[node].claimed[message->model] = is_registered(own) ? record.version : 0;
    record.exists = true;
    record.create_revision = before->create_revision;
    CHECK(!before->exists || before->version == record.version);
    etcd_put_model(world, message->model, record);
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
    if (task->a != MESH_TXN_UNKNOWN)
        tell_model(world, task->node, &message->record, message->model);
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
    message->record = world->records[message->model];
    answer.data = message;
    later(world, in_ms, answer);
}

static void
txn_arrives(struct world *world, struct task *task)
{
    const struct message *message = task->data;
    const struct record *record = &world->records[message->model];
    const struct instance_key *key = &world->keys[task->node];
    bool absent = message->absent == NODES_MAX || !world->keys[message->absent].exists;
    bool same = record->exists ? record->revision == message->compare : message->compare == 0;
    bool holds = absent && key->exists && key->session == message->session && same &&
                 message->history == world->history;
    trace(world, message->txn ^ holds);
    if (holds)
        apply(world, task->node, message);
    if (message->heard)
        end_txn(world, task, holds ? MESH_TXN_OK : MESH_TXN_LOST, 1 + draw(world, 10));
}

void
etcd_txn(struct world *world, uint32_t node, const struct mesh_txn *txn)
{
    struct message *message = calloc(1, sizeof(*message));
    const struct mesh_model *model = &txn->writes[0].model;
    CHECK(message != NULL && model->place_count <= PLACES_MAX);
    *message = (struct message){.txn = txn->txn,
                                .session = txn->session,
                                .compare = txn->writes[0].compare,
                                .model = number_of(model->id),
                                .absent = txn->absent == NULL ? NODES_MAX : number_of(txn->absent),
                                .history = world->nodes[node].history,
                                .heard = true};
    message->record.version = strtoull(model->path + 1, NULL, 10);
    message->record.used_ms = model->used_ms;
    message->record.count = model->place_count;
    for (uint32_t i = 0; i < model->place_count; i++)
        message->record.places[i] = (struct place_kept){
            .node = number_of(model->places[i].instance),
            .since_ms = model->places[i].since_ms,
            .kind = model->places[i].kind,
        };
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
