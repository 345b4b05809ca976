/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's mirror of etcd (list, watch, list again when the history is gone), and its core's
 * transactions. A short form of libetcd's work for the daemon; etcd itself is fake_etcd.h's.
 */
#include <stdio.h>
#include <string.h>

#include "ask.h"

enum { EVENTS_AT_ONCE = 20, STALLED_MS = 300 };

/* ---- the mirror ---- */

static void
notify_model(struct world *world, uint32_t node, const struct etcd_kv *kv, uint32_t model)
{
    struct mesh_place places[CODEC_PLACES_MAX];
    struct mesh_event event = {.kind = MESH_MODEL_PUT};
    codec_read_model(kv, world->model_names[model], places, &event.model);
    struct registry *registry = &world->nodes[node].registry;
    if (registry->model_revisions[model] < event.model.revision) {
        registry->model_revisions[model] = event.model.revision;
        registry->reported[model] = (struct reported_model){
            .create_revision = event.model.create_revision, .version = version_of(&event.model)};
    }
    node_step(world, node, event);
}

static void
notify_model_gone(struct world *world, uint32_t node, uint32_t model, int64_t revision)
{
    uint64_t *reported = &world->nodes[node].registry.model_revisions[model];
    if (*reported < (uint64_t)revision)
        *reported = 0;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_MODEL_GONE,
                                  .gone = {world->model_names[model], (uint64_t)revision}});
}

static void
notify_node(struct world *world, uint32_t node, const struct etcd_kv *kv, uint32_t of)
{
    struct mesh_event event = {.kind = MESH_INSTANCE_PUT};
    codec_read_instance(kv, world->node_names[of], &event.instance);
    world->nodes[node].registry.node_sessions[of] = event.instance.session;
    world->nodes[node].registry.node_revisions[of] = event.instance.revision;
    node_step(world, node, event);
}

static void
notify_node_gone(struct world *world, uint32_t node, uint32_t of, int64_t revision)
{
    struct registry *registry = &world->nodes[node].registry;
    registry->node_sessions[of] = 0;
    registry->node_revisions[of] = 0;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_INSTANCE_GONE,
                                  .gone = {world->node_names[of], (uint64_t)revision}});
}

/* The first of those whose key it sees: a view that may be old, so two may lead at once. */
static void
look_who_leads(struct world *world, uint32_t node)
{
    struct registry *registry = &world->nodes[node].registry;
    uint64_t own = registry->node_sessions[node];
    bool leads = own != 0 && own == registry->session;
    for (uint32_t i = 0; leads && i < world->options.nodes; i++)
        leads = registry->node_sessions[i] == 0 || registry->node_sessions[i] >= own;
    if (leads == registry->leads)
        return;
    registry->leads = leads;
    node_step(world, node, (struct mesh_event){.kind = MESH_LEADER, .leader = {leads}});
}

static void
notify_whole(struct world *world, uint32_t node, int64_t revision)
{
    struct registry *registry = &world->nodes[node].registry;
    registry->revision = revision;
    registry->whole = true;
    node_step(world, node, (struct mesh_event){.kind = MESH_WHOLE, .whole = {(uint64_t)revision}});
    look_who_leads(world, node);
    observe(world, (struct sight){.kind = SAW_MIRROR, .node = node, .number = (uint64_t)revision});
}

static void
notify_vmodel(struct world *world, uint32_t node, const struct etcd_kv *kv, uint32_t vmodel)
{
    struct mesh_event event = {.kind = MESH_VMODEL_PUT};
    codec_read_vmodel(kv, world->vmodel_names[vmodel], &event.vmodel);
    world->nodes[node].registry.vmodel_revisions[vmodel] = event.vmodel.revision;
    node_step(world, node, event);
}

static void
notify_vmodel_gone(struct world *world, uint32_t node, uint32_t vmodel, int64_t revision)
{
    world->nodes[node].registry.vmodel_revisions[vmodel] = 0;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_VMODEL_GONE,
                                  .gone = {world->vmodel_names[vmodel], (uint64_t)revision}});
}

static void
notify(struct world *world, uint32_t node, const struct etcd_kv *kv)
{
    uint32_t of = number_of_key(&kv->key);
    switch (table_of_key(&kv->key)) {
    case TABLE_MODELS: notify_model(world, node, kv, of); break;
    case TABLE_VMODELS: notify_vmodel(world, node, kv, of); break;
    default: notify_node(world, node, kv, of); break;
    }
}

static void
notify_gone(struct world *world, uint32_t node, const struct etcd_bytes *key, int64_t revision)
{
    uint32_t of = number_of_key(key);
    switch (table_of_key(key)) {
    case TABLE_MODELS: notify_model_gone(world, node, of, revision); break;
    case TABLE_VMODELS: notify_vmodel_gone(world, node, of, revision); break;
    default: notify_node_gone(world, node, of, revision); break;
    }
}

static void list(struct world *world, uint32_t node);

static void
list_again(struct world *world, struct task *task)
{
    list(world, task->node);
}

static void
deliver(struct world *world, struct task *task)
{
    struct registry *registry = &world->nodes[task->node].registry;
    if (is_cut(world, etcd_port(world), task->node)) {
        later(world, STALLED_MS, *task);
        return;
    }
    for (uint32_t i = 0; i < EVENTS_AT_ONCE; i++) {
        struct fake_events events;
        enum fake_news news = fake_watch_next(registry->watch, &events);
        if (news == FAKE_NOTHING) {
            registry->watching = false;
            break;
        }
        if (news != FAKE_EVENTS) {
            world->relists++;
            fake_watch_close(registry->watch);
            registry->watch = NULL;
            registry->watching = false;
            list(world, task->node);
            return;
        }
        for (size_t e = 0; e < events.count; e++) {
            const struct etcd_kv *kv = &events.events[e].kv;
            if (events.events[e].kind == ETCD_EVENT_DELETE)
                notify_gone(world, task->node, &kv->key, kv->mod_revision);
            else
                notify(world, task->node, kv);
        }
    }
    notify_whole(world, task->node, fake_watch_revision(registry->watch));
    if (registry->watching)
        later(world, 1 + draw(world, STREAM_ETCD, 50), *task);
}

void
registry_announce(struct world *world)
{
    for (uint32_t i = 0; i < world->options.nodes; i++) {
        struct registry *registry = &world->nodes[i].registry;
        if (world->nodes[i].mesh == NULL || registry->watch == NULL || registry->watching)
            continue;
        registry->watching = true;
        int64_t lag = 1 + draw(world, STREAM_ETCD, world->options.watch_lag_ms + 1);
        node_later(world, i, world->faulty ? lag : lag % 100, (struct task){.run = deliver});
    }
}

/* Keys missing from a listing are gone; of the rest, what differs is reported. */
static void
notify_listed(struct world *world, uint32_t node, enum table table, const char *name,
              uint64_t reported, const struct etcd_answer *answer)
{
    struct etcd_range range = key_range(world, table, name);
    struct etcd_kv kv;
    bool there = fake_etcd_look(world->etcd, range.key, answer->revision, &kv);
    if (there && (uint64_t)kv.mod_revision > reported)
        notify(world, node, &kv);
    else if (!there && reported != 0 && reported < (uint64_t)answer->revision)
        notify_gone(world, node, &range.key, answer->revision);
}

static void
notify_all_listed(struct world *world, uint32_t node, const struct etcd_answer *answer)
{
    const struct registry *registry = &world->nodes[node].registry;
    for (uint32_t n = 0; n < world->options.nodes; n++)
        notify_listed(world, node, TABLE_NODES, world->node_names[n], registry->node_revisions[n],
                      answer);
    for (uint32_t m = 0; m < world->options.models; m++)
        notify_listed(world, node, TABLE_MODELS, world->model_names[m],
                      registry->model_revisions[m], answer);
    for (uint32_t v = 0; v < world->options.vmodels; v++)
        notify_listed(world, node, TABLE_VMODELS, world->vmodel_names[v],
                      registry->vmodel_revisions[v], answer);
}

/* The reported state no longer counts; and the own key is gone, even if it is not known yet. */
static void
another_history(struct world *world, uint32_t node, uint64_t history)
{
    const struct options *options = &world->options;
    struct registry *registry = &world->nodes[node].registry;
    bool first = registry->history == 0;
    registry->history = history;
    if (first)
        return;
    session_lost(world, node);
    memset(registry->model_revisions, 0, options->models * sizeof(uint64_t));
    memset(registry->vmodel_revisions, 0, options->vmodels * sizeof(uint64_t));
    memset(registry->node_revisions, 0, options->nodes * sizeof(uint64_t));
    memset(registry->node_sessions, 0, options->nodes * sizeof(uint64_t));
    registry->revision = 0;
    node_step(world, node, (struct mesh_event){.kind = MESH_EMPTIED});
}

static void
listed(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    registry->listing = false;
    bool same = answer != NULL && answer->history == registry->history;
    if (answer == NULL || answer->fate != ETCD_DONE ||
        (same && answer->revision < registry->revision)) {
        node_later(world, ask->node, 200 + draw(world, STREAM_ETCD, 800),
                   (struct task){.run = list_again});
        return;
    }
    if (!same)
        another_history(world, ask->node, answer->history);
    notify_all_listed(world, ask->node, answer);
    struct etcd_range tables[TABLE_COUNT];
    for (int i = 0; i < TABLE_COUNT; i++)
        tables[i] = (struct etcd_range){.span = ETCD_PREFIX, .key = etcd_text(ask_prefixes[i])};
    registry->watch = fake_watch_open(world->etcd, tables, TABLE_COUNT, answer->revision + 1);
    registry->watching = true;
    notify_whole(world, ask->node, answer->revision);
    node_later(world, ask->node, 1, (struct task){.run = deliver});
}

static void
list(struct world *world, uint32_t node)
{
    struct ask ask = {.kind = ASK_TXN, .done = listed};
    for (int i = 0; i < TABLE_COUNT; i++)
        ask.success[i] = (struct etcd_op){
            .kind = ETCD_RANGE,
            .range = {.span = ETCD_PREFIX, .key = etcd_text(ask_prefixes[i])},
        };
    ask.txn.success_count = TABLE_COUNT;
    world->nodes[node].registry.listing = true;
    ask_etcd(world, node, &ask);
}

/* ---- the core's transactions ---- */

static void
notify_written(struct world *world, const struct ask *ask, const struct etcd_answer *answer)
{
    for (size_t i = 0; i < answer->response_count; i++) {
        const struct etcd_response *response = &answer->responses[i];
        const struct etcd_bytes *key = &ask->failure[i].range.key;
        if (response->kv_count > 0)
            notify(world, ask->node, &response->kvs[0]);
        else if (response->kind == ETCD_RANGE)
            notify_gone(world, ask->node, key, answer->revision);
    }
}

/* A writer knows its write; the watch may repeat it. */
static void
notify_own(struct world *world, const struct ask *ask, const struct etcd_answer *answer)
{
    for (size_t i = 0; world->options.notifies_own && i < ask->txn.success_count; i++) {
        struct etcd_kv kv;
        const struct etcd_bytes *key = &ask->success[i].range.key;
        if (ask->success[i].kind == ETCD_PUT &&
            fake_etcd_look(world->etcd, *key, answer->revision, &kv))
            notify(world, ask->node, &kv);
    }
}

static void
written(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    enum mesh_txn_end end = MESH_TXN_UNKNOWN;
    if (answer != NULL && answer->fate == ETCD_DONE) {
        end = answer->succeeded ? MESH_TXN_OK : MESH_TXN_LOST;
        if (answer->succeeded)
            notify_own(world, ask, answer);
        else
            notify_written(world, ask, answer);
    } else if (answer != NULL && !answer->is_full) {
        end = MESH_TXN_LOST; /* it has certainly not happened */
    }
    node_step(world, ask->node,
              (struct mesh_event){.kind = MESH_TXN_ENDED, .txn = {ask->number, end}});
}

static struct etcd_range
write_range(struct world *world, const struct mesh_write *write)
{
    return write->record == MESH_RECORD_MODEL ? key_range(world, TABLE_MODELS, write->model.id)
                                              : key_range(world, TABLE_VMODELS, write->vmodel.id);
}

static void
add_write(struct world *world, struct ask *ask, const struct mesh_write *write)
{
    struct etcd_op op = {.kind = write->verb == MESH_VERB_PUT      ? ETCD_PUT
                                 : write->verb == MESH_VERB_DELETE ? ETCD_DELETE
                                                                   : ETCD_RANGE,
                         .range = write_range(world, write)};
    if (write->verb == MESH_VERB_PUT)
        op.value = write->record == MESH_RECORD_MODEL
                       ? codec_write_model(&world->arena, &write->model)
                       : codec_write_vmodel(&world->arena, &write->vmodel);
    ask->compares[ask->txn.compare_count++] = (struct etcd_compare){
        .range = op.range, .target = ETCD_MOD, .number = (int64_t)write->compare};
    ask->success[ask->txn.success_count++] = op;
    ask->failure[ask->txn.failure_count++] =
        (struct etcd_op){.kind = ETCD_RANGE, .range = op.range};
}

void
registry_write(struct world *world, uint32_t node, const struct mesh_txn *txn)
{
    struct ask ask = {
        .kind = ASK_TXN,
        .done = written,
        .number = txn->txn,
        .session = txn->session,
        .history = world->nodes[node].registry.history,
        .absent = txn->absent == NULL ? NULL : world->node_names[number_of(txn->absent)],
    };
    ask.compares[ask.txn.compare_count++] = (struct etcd_compare){
        .range = own_key(world, node), .target = ETCD_CREATE, .number = (int64_t)txn->session};
    if (ask.absent != NULL)
        ask.compares[ask.txn.compare_count++] = (struct etcd_compare){
            .range = own_key(world, number_of(ask.absent)), .target = ETCD_CREATE, .number = 0};
    for (uint32_t i = 0; i < txn->write_count; i++)
        add_write(world, &ask, &txn->writes[i]);
    ask_etcd(world, node, &ask);
}

/* ---- beginning ---- */

void
registry_start(struct world *world, uint32_t node)
{
    const struct options *options = &world->options;
    struct registry *registry = &world->nodes[node].registry;
    *registry = (struct registry){0};
    registry->model_revisions = arena_take(&world->arena, options->models * sizeof(uint64_t));
    registry->reported = arena_take(&world->arena, options->models * sizeof(*registry->reported));
    registry->vmodel_revisions = arena_take(&world->arena, options->vmodels * sizeof(uint64_t));
    registry->node_revisions = arena_take(&world->arena, options->nodes * sizeof(uint64_t));
    registry->node_sessions = arena_take(&world->arena, options->nodes * sizeof(uint64_t));
    list(world, node);
    session_start(world, node);
}

enum {
    BOUND_MODELS = 2, /* of BOUNDS_FEW, the smallest ones */
    MANY_COPIES = 32, /* at most, or records of large worlds have too many places */
};

/* Those of models that require a label are none: not all nodes may hold them. */
static struct mesh_bounds
first_bounds(const struct world *world, uint32_t model)
{
    uint32_t units = (uint32_t)(runtime_bytes(world, model) / 8192);
    if (world->options.bounds == BOUNDS_MANY && model % 4 != 3)
        return (struct mesh_bounds){
            .copies_min = world->options.nodes < MANY_COPIES ? world->options.nodes : MANY_COPIES};
    if (world->options.bounds != BOUNDS_FEW || model >= BOUND_MODELS)
        return (struct mesh_bounds){0};
    return model == 0 ? (struct mesh_bounds){.copies_min = 2, .copies_max = 3, .size_units = units}
                      : (struct mesh_bounds){.copies_max = 1};
}

struct mesh_bounds
registry_draw_bounds(struct world *world, uint32_t model)
{
    struct mesh_bounds bounds = {0};
    if (world->options.bounds != BOUNDS_FEW || model >= BOUND_MODELS)
        return first_bounds(world, model);
    if (model == 0)
        bounds.copies_min = draw(world, STREAM_BOUNDS, 3);
    bounds.copies_max = draw(world, STREAM_BOUNDS, 4); /* may be less than the minimum */
    return bounds;
}

void
registry_bind(struct world *world)
{
    struct mesh_place places[CODEC_PLACES_MAX];
    struct mesh_model record;
    uint32_t model = draw(world, STREAM_BOUNDS, BOUND_MODELS);
    if (model >= world->options.models || !record_now(world, model, places, &record))
        return;
    record.bounds = registry_draw_bounds(world, model);
    const struct etcd_op put = {.kind = ETCD_PUT,
                                .range = key_range(world, TABLE_MODELS, record.id),
                                .value = codec_write_model(&world->arena, &record)};
    fake_etcd_op(world->etcd, &put);
    registry_announce(world);
}

/* Under the name, if it is free, a model that was never there before. */
static void
register_as(struct world *world, uint32_t model, const struct mesh_model *former)
{
    char path[32];
    snprintf(path, sizeof(path), "v%u", world->registrations + 1);
    struct mesh_model record = {
        .id = world->model_names[model],
        .type = runtime_type(world, model),
        .path = path,
        .key = "",
        .references = former != NULL ? former->references : 0,
        .auto_delete = former != NULL && former->auto_delete,
        .bounds = first_bounds(world, model),
    };
    const struct etcd_compare absent = {
        .range = key_range(world, TABLE_MODELS, world->model_names[model]),
        .target = ETCD_CREATE,
    };
    const struct etcd_op put = {.kind = ETCD_PUT,
                                .range = absent.range,
                                .value = codec_write_model(&world->arena, &record)};
    const struct etcd_txn txn = {
        .compares = &absent, .compare_count = 1, .success = &put, .success_count = 1};
    const struct etcd_answer *answer = fake_etcd_txn(world->etcd, &txn);
    if (answer == NULL || !answer->succeeded)
        return;
    world->registrations++;
    registry_announce(world);
}

void
registry_register(struct world *world, uint32_t model)
{
    register_as(world, model, NULL);
}

void
registry_replace(struct world *world, uint32_t model)
{
    struct mesh_place places[CODEC_PLACES_MAX];
    struct mesh_model former;
    bool was = record_now(world, model, places, &former);
    const struct etcd_op gone = {
        .kind = ETCD_DELETE, .range = key_range(world, TABLE_MODELS, world->model_names[model])};
    fake_etcd_op(world->etcd, &gone);
    register_as(world, model, was ? &former : NULL);
}
