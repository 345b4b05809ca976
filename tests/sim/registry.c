/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node's edge to etcd: its session (a lease, and the instance key under it), its mirror (list,
 * watch, list again when the history is gone), and the core's transactions. What libetcd does for
 * the daemon, in short; etcd itself is fake_etcd.h's.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "codec.h"
#include "invariants.h"

enum {
    SECOND_MS = 500,
    MARGIN_MS = LEASE_S * 100,
    RENEW_MS = LEASE_S * 1000 / 3,
    PUBLISH_MS = 5000,
    EVENTS_AT_ONCE = 20,
    STALLED_MS = 300,
    COMPARES_MAX = MESH_WRITES_MAX + 2,
};

enum ask_kind { ASK_GRANT, ASK_RENEW, ASK_TXN };

/* A call to etcd. It may be over for the node, and arrive there all the same. */
struct ask {
    enum ask_kind kind;
    void (*done)(struct world *world, struct ask *ask, const struct etcd_answer *answer);
    uint32_t node;
    uint32_t life;
    bool over;
    int64_t sent_ms;
    int64_t lease_id;
    struct etcd_compare compares[COMPARES_MAX];
    struct etcd_op success[MESH_WRITES_MAX];
    struct etcd_op failure[MESH_WRITES_MAX];
    struct etcd_txn txn;
    const struct etcd_answer *answer;
    /* of a core's transaction */
    uint64_t number;
    uint64_t session;
    uint64_t history; /* of etcd, that it was computed from */
    const char *absent;
};

/* The tables' prefixes; a mirror's ranges in this order. */
enum table { TABLE_MODELS, TABLE_VMODELS, TABLE_NODES, TABLE_COUNT };
static const char *const PREFIXES[] = {"m/", "v/", "i/"};

static struct etcd_range
key_range(struct world *world, enum table table, const char *name)
{
    char text[16];
    int length = snprintf(text, sizeof(text), "%s%s", PREFIXES[table], name);
    return (struct etcd_range){
        .key = {arena_copy(&world->arena, text, (size_t)length), (size_t)length}};
}

static struct etcd_range
own_key(struct world *world, uint32_t node)
{
    return key_range(world, TABLE_NODES, world->node_names[node]);
}

static enum table
table_of_key(const struct etcd_bytes *key)
{
    enum table table = TABLE_MODELS;
    while (*(const char *)key->data != *PREFIXES[table])
        table++;
    return table;
}

static uint32_t
number_of_key(const struct etcd_bytes *key)
{
    char text[16] = "";
    CHECK(key->bytes > 2 && key->bytes - 2 < sizeof(text));
    memcpy(text, (const char *)key->data + 2, key->bytes - 2);
    return number_of(text);
}

uint64_t
version_of(const struct mesh_model *record)
{
    return strtoull(record->path + 1, NULL, 10);
}

uint64_t
version_at(const struct world *world, uint32_t model, uint64_t create_revision)
{
    const struct version *version = world->versions[model];
    while (version != NULL && version->create_revision != create_revision)
        version = version->former;
    return version == NULL ? 0 : version->number;
}

static void
version_begins(struct world *world, const struct mesh_model *record)
{
    struct version *version = arena_take(&world->arena, sizeof(*version));
    uint32_t model = number_of(record->id);
    *version = (struct version){
        .former = world->versions[model],
        .create_revision = record->create_revision,
        .number = version_of(record),
    };
    world->versions[model] = version;
}

/* ---- calls ---- */

static void
ask_is_over(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    if (ask->over)
        return;
    ask->over = true;
    world->unknowns += answer == NULL;
    ask->done(world, ask, answer);
}

static void
ask_answered(struct world *world, struct task *task)
{
    struct ask *ask = task->data;
    ask_is_over(world, ask, ask->answer);
}

static void
ask_expires(struct world *world, struct task *task)
{
    ask_is_over(world, task->data, NULL);
}

/* Shows the invariants what a core's transaction has changed of a model. */
static void
commit(struct world *world, const struct ask *ask, const struct etcd_op *op,
       const struct etcd_kv *before)
{
    struct mesh_place places_before[CODEC_PLACES_MAX];
    struct mesh_place places_after[CODEC_PLACES_MAX];
    struct mesh_model model_before;
    struct mesh_model model_after;
    uint32_t model = number_of_key(&op->range.key);
    if (!record_now(world, model, places_after, &model_after))
        return; /* it was unregistered */
    if (before == NULL) {
        version_begins(world, &model_after);
        model_before = model_after;
    } else {
        codec_read_model(before, world->model_names[model], places_before, &model_before);
    }
    const struct commit made = {
        .creates = before == NULL,
        .before = &model_before,
        .after = &model_after,
        .absent = ask->absent,
        .life = ask->life,
        .session = ask->session,
        .late = ask->over || world->nodes[ask->node].life != ask->life,
    };
    world->reaped += ask->absent != NULL;
    observe(world,
            (struct sight){.kind = SAW_COMMIT, .node = ask->node, .model = model, .commit = &made});
}

static void
commit_vmodel(struct world *world, const struct ask *ask, const struct etcd_op *op,
              const struct etcd_kv *before)
{
    uint32_t vmodel = number_of_key(&op->range.key);
    struct mesh_vmodel was = {0};
    struct mesh_vmodel is = {0};
    struct etcd_kv after;
    if (before != NULL)
        codec_read_vmodel(before, world->vmodel_names[vmodel], &was);
    if (fake_etcd_look(world->etcd, op->range.key, INT64_MAX, &after))
        codec_read_vmodel(&after, world->vmodel_names[vmodel], &is);
    observe(world, (struct sight){.kind = SAW_VMODEL,
                                  .node = ask->node,
                                  .number = vmodel,
                                  .vmodel_before = &was,
                                  .vmodel_after = &is});
}

static void
commit_all(struct world *world, const struct ask *ask, const struct etcd_kv *before,
           const bool *was)
{
    for (size_t i = 0; i < ask->txn.success_count; i++) {
        const struct etcd_op *op = &ask->success[i];
        if (op->kind != ETCD_RANGE && table_of_key(&op->range.key) == TABLE_MODELS)
            commit(world, ask, op, was[i] ? &before[i] : NULL);
        else if (op->kind != ETCD_RANGE)
            commit_vmodel(world, ask, op, was[i] ? &before[i] : NULL);
    }
    if (ask->txn.success_count > 1)
        observe(world, (struct sight){.kind = SAW_WRITTEN, .node = ask->node});
}

static const struct etcd_answer *
do_txn(struct world *world, struct ask *ask)
{
    struct etcd_kv before[MESH_WRITES_MAX];
    bool was[MESH_WRITES_MAX];
    if (ask->number != 0 && ask->history != fake_etcd_history(world->etcd))
        return NULL; /* revisions of another history must not be taken for those of this one */
    for (size_t i = 0; i < ask->txn.success_count; i++)
        was[i] = fake_etcd_look(world->etcd, ask->success[i].range.key, INT64_MAX, &before[i]);
    const struct etcd_answer *answer = fake_etcd_txn(world->etcd, &ask->txn);
    if (answer == NULL)
        return NULL;
    trace(world, ask->number ^ answer->succeeded ^ (uint64_t)answer->revision << 8);
    if (ask->number != 0 && answer->succeeded)
        commit_all(world, ask, before, was);
    return answer;
}

static void
ask_arrives(struct world *world, struct task *task)
{
    struct ask *ask = task->data;
    int64_t before = fake_etcd_revision(world->etcd);
    fake_etcd_advance(world->etcd, world->now_ms);
    switch (ask->kind) {
    case ASK_GRANT: ask->answer = fake_etcd_grant(world->etcd, LEASE_S, 0); break;
    case ASK_RENEW: ask->answer = fake_etcd_renew(world->etcd, ask->lease_id); break;
    case ASK_TXN: ask->answer = do_txn(world, ask); break;
    }
    if (fake_etcd_revision(world->etcd) != before)
        registry_announce(world);
    if (ask->answer != NULL)
        send(world, etcd_port(world), ask->node,
             (struct task){.run = ask_answered,
                           .node = ask->node,
                           .life = ask->life,
                           .inside = true,
                           .data = ask});
}

static void
ask_etcd(struct world *world, uint32_t node, const struct ask *given)
{
    struct ask *ask = arena_copy(&world->arena, given, sizeof(*given));
    ask->node = node;
    ask->life = world->nodes[node].life;
    ask->sent_ms = world->now_ms;
    ask->txn.compares = ask->compares;
    ask->txn.success = ask->success;
    ask->txn.failure = ask->failure;
    node_later(world, node, ETCD_CALL_MS, (struct task){.run = ask_expires, .data = ask});
    send(world, node, etcd_port(world),
         (struct task){.run = ask_arrives, .node = node, .life = LIFE_ANY, .data = ask});
}

/* ---- the session ---- */

static void
session_is(struct world *world, uint32_t node, uint64_t session)
{
    world->nodes[node].registry.session = session;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_SESSION, .session = {.revision = session}});
}

static void
session_lost(struct world *world, uint32_t node)
{
    struct registry *registry = &world->nodes[node].registry;
    registry->lease_id = 0;
    observe(world, (struct sight){.kind = SAW_TROUBLE, .node = node});
    if (registry->session != 0)
        session_is(world, node, 0);
}

static struct etcd_bytes
own_value(struct world *world, uint32_t number)
{
    struct node *node = &world->nodes[number];
    const struct mesh_instance instance = {
        .labels = number % LABELLED_EVERY == 0 ? "large" : "",
        .start_ms = node->start_ms,
        .version = world->options.upgrades ? 1 + node->life / 2 : 1,
        .draining = node->draining,
        .figures = mesh_figures(node->mesh),
    };
    return codec_write_instance(&world->arena, &instance);
}

static void join(struct world *world, uint32_t node);

static void
predecessor_gone(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    (void)answer; /* whatever it is, the next attempt shows it */
    if (world->nodes[ask->node].registry.lease_id != 0)
        join(world, ask->node);
    else
        world->nodes[ask->node].registry.joining = false;
}

static void
joined(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    bool known = answer != NULL && answer->fate == ETCD_DONE && registry->lease_id != 0;
    if (known && !answer->succeeded && answer->responses[0].kv_count > 0) {
        /* A predecessor's key, or one of ours that we know nothing of. Its creation revision is not
         * ours: it goes first. */
        struct ask away = {.kind = ASK_TXN, .done = predecessor_gone};
        away.compares[0] = (struct etcd_compare){
            .range = own_key(world, ask->node),
            .target = ETCD_MOD,
            .number = answer->responses[0].kvs[0].mod_revision,
        };
        away.success[0] = (struct etcd_op){.kind = ETCD_DELETE, .range = own_key(world, ask->node)};
        away.txn.compare_count = away.txn.success_count = 1;
        ask_etcd(world, ask->node, &away);
        return;
    }
    registry->joining = false;
    if (known && answer->succeeded && ask->lease_id == registry->lease_id)
        session_is(world, ask->node, (uint64_t)answer->revision);
}

static void
join(struct world *world, uint32_t node)
{
    struct ask ask = {
        .kind = ASK_TXN, .done = joined, .lease_id = world->nodes[node].registry.lease_id};
    ask.compares[0] =
        (struct etcd_compare){.range = own_key(world, node), .target = ETCD_CREATE, .number = 0};
    ask.success[0] = (struct etcd_op){.kind = ETCD_PUT,
                                      .range = own_key(world, node),
                                      .value = own_value(world, node),
                                      .lease_id = ask.lease_id};
    ask.failure[0] = (struct etcd_op){.kind = ETCD_RANGE, .range = own_key(world, node)};
    ask.txn.compare_count = ask.txn.success_count = ask.txn.failure_count = 1;
    ask_etcd(world, node, &ask);
}

static void
granted(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    if (answer == NULL || answer->fate != ETCD_DONE) {
        registry->joining = false;
        return;
    }
    registry->lease_id = answer->lease_id;
    registry->lease_until_ms = ask->sent_ms + answer->ttl_s * 1000 - MARGIN_MS;
    join(world, ask->node);
}

static void
renewed(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    struct registry *registry = &world->nodes[ask->node].registry;
    if (answer == NULL || answer->fate != ETCD_DONE || ask->lease_id != registry->lease_id)
        return;
    if (answer->ttl_s == 0)
        session_lost(world, ask->node);
    else
        registry->lease_until_ms = ask->sent_ms + answer->ttl_s * 1000 - MARGIN_MS;
}

static void
session_second(struct world *world, struct task *task)
{
    struct registry *registry = &world->nodes[task->node].registry;
    if (registry->lease_id != 0 && world->now_ms >= registry->lease_until_ms)
        session_lost(world, task->node);
    if (registry->session == 0 && !registry->joining) {
        registry->joining = true;
        if (registry->lease_id != 0)
            join(world, task->node);
        else
            ask_etcd(world, task->node, &(struct ask){.kind = ASK_GRANT, .done = granted});
    }
    later(world, SECOND_MS, *task);
}

static void
renew(struct world *world, struct task *task)
{
    struct registry *registry = &world->nodes[task->node].registry;
    if (registry->lease_id != 0)
        ask_etcd(world, task->node,
                 &(struct ask){.kind = ASK_RENEW, .done = renewed, .lease_id = registry->lease_id});
    later(world, RENEW_MS, *task);
}

static void
published(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    const struct registry *registry = &world->nodes[ask->node].registry;
    bool gone = answer != NULL && answer->fate == ETCD_DONE && !answer->succeeded;
    if (gone && ask->session == registry->session && registry->session != 0 &&
        !world->options.unsure)
        session_lost(world, ask->node); /* somebody has taken the key away */
}

void
registry_publish(struct world *world, uint32_t node)
{
    const struct registry *registry = &world->nodes[node].registry;
    if (registry->session == 0)
        return;
    struct ask ask = {.kind = ASK_TXN, .done = published, .session = registry->session};
    ask.compares[0] = (struct etcd_compare){
        .range = own_key(world, node), .target = ETCD_CREATE, .number = (int64_t)registry->session};
    ask.success[0] = (struct etcd_op){.kind = ETCD_PUT,
                                      .range = own_key(world, node),
                                      .value = own_value(world, node),
                                      .lease_id = registry->lease_id};
    ask.txn.compare_count = ask.txn.success_count = 1;
    ask_etcd(world, node, &ask);
}

static void
publish(struct world *world, struct task *task)
{
    registry_publish(world, task->node);
    later(world, PUBLISH_MS, *task);
}

/* ---- the mirror ---- */

static void
tell_model(struct world *world, uint32_t node, const struct etcd_kv *kv, uint32_t model)
{
    struct mesh_place places[CODEC_PLACES_MAX];
    struct mesh_event event = {.kind = MESH_MODEL_PUT};
    codec_read_model(kv, world->model_names[model], places, &event.model);
    uint64_t *told = &world->nodes[node].registry.model_revisions[model];
    if (*told < event.model.revision)
        *told = event.model.revision;
    node_step(world, node, event);
}

static void
tell_model_gone(struct world *world, uint32_t node, uint32_t model, int64_t revision)
{
    uint64_t *told = &world->nodes[node].registry.model_revisions[model];
    if (*told < (uint64_t)revision)
        *told = 0;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_MODEL_GONE,
                                  .gone = {world->model_names[model], (uint64_t)revision}});
}

static void
tell_node(struct world *world, uint32_t node, const struct etcd_kv *kv, uint32_t of)
{
    struct mesh_event event = {.kind = MESH_INSTANCE_PUT};
    codec_read_instance(kv, world->node_names[of], &event.instance);
    world->nodes[node].registry.node_sessions[of] = event.instance.session;
    world->nodes[node].registry.node_revisions[of] = event.instance.revision;
    node_step(world, node, event);
}

static void
tell_node_gone(struct world *world, uint32_t node, uint32_t of, int64_t revision)
{
    struct registry *registry = &world->nodes[node].registry;
    registry->node_sessions[of] = 0;
    registry->node_revisions[of] = 0;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_INSTANCE_GONE,
                                  .gone = {world->node_names[of], (uint64_t)revision}});
}

/* Who came first of those whose key it sees: a view that may be old, so two may lead at once. */
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
tell_whole(struct world *world, uint32_t node, int64_t revision)
{
    struct registry *registry = &world->nodes[node].registry;
    registry->revision = revision;
    registry->whole = true;
    node_step(world, node, (struct mesh_event){.kind = MESH_WHOLE, .whole = {(uint64_t)revision}});
    look_who_leads(world, node);
    observe(world, (struct sight){.kind = SAW_MIRROR, .node = node, .number = (uint64_t)revision});
}

static void
tell_vmodel(struct world *world, uint32_t node, const struct etcd_kv *kv, uint32_t vmodel)
{
    struct mesh_event event = {.kind = MESH_VMODEL_PUT};
    codec_read_vmodel(kv, world->vmodel_names[vmodel], &event.vmodel);
    world->nodes[node].registry.vmodel_revisions[vmodel] = event.vmodel.revision;
    node_step(world, node, event);
}

static void
tell_vmodel_gone(struct world *world, uint32_t node, uint32_t vmodel, int64_t revision)
{
    world->nodes[node].registry.vmodel_revisions[vmodel] = 0;
    node_step(world, node,
              (struct mesh_event){.kind = MESH_VMODEL_GONE,
                                  .gone = {world->vmodel_names[vmodel], (uint64_t)revision}});
}

static void
tell(struct world *world, uint32_t node, const struct etcd_kv *kv)
{
    uint32_t of = number_of_key(&kv->key);
    switch (table_of_key(&kv->key)) {
    case TABLE_MODELS: tell_model(world, node, kv, of); break;
    case TABLE_VMODELS: tell_vmodel(world, node, kv, of); break;
    default: tell_node(world, node, kv, of); break;
    }
}

static void
tell_gone(struct world *world, uint32_t node, const struct etcd_bytes *key, int64_t revision)
{
    uint32_t of = number_of_key(key);
    switch (table_of_key(key)) {
    case TABLE_MODELS: tell_model_gone(world, node, of, revision); break;
    case TABLE_VMODELS: tell_vmodel_gone(world, node, of, revision); break;
    default: tell_node_gone(world, node, of, revision); break;
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
                tell_gone(world, task->node, &kv->key, kv->mod_revision);
            else
                tell(world, task->node, kv);
        }
    }
    tell_whole(world, task->node, fake_watch_revision(registry->watch));
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

/* What a listing does not have any more is gone; of the rest, what differs is told. */
static void
tell_listed(struct world *world, uint32_t node, enum table table, const char *name, uint64_t told,
            const struct etcd_answer *answer)
{
    struct etcd_range range = key_range(world, table, name);
    struct etcd_kv kv;
    bool there = fake_etcd_look(world->etcd, range.key, answer->revision, &kv);
    if (there && (uint64_t)kv.mod_revision > told)
        tell(world, node, &kv);
    else if (!there && told != 0 && told < (uint64_t)answer->revision)
        tell_gone(world, node, &range.key, answer->revision);
}

static void
tell_all_listed(struct world *world, uint32_t node, const struct etcd_answer *answer)
{
    const struct registry *registry = &world->nodes[node].registry;
    for (uint32_t n = 0; n < world->options.nodes; n++)
        tell_listed(world, node, TABLE_NODES, world->node_names[n], registry->node_revisions[n],
                    answer);
    for (uint32_t m = 0; m < world->options.models; m++)
        tell_listed(world, node, TABLE_MODELS, world->model_names[m], registry->model_revisions[m],
                    answer);
    for (uint32_t v = 0; v < world->options.vmodels; v++)
        tell_listed(world, node, TABLE_VMODELS, world->vmodel_names[v],
                    registry->vmodel_revisions[v], answer);
}

/* What was told counts for nothing; and the own key is gone, even if it is not known yet. */
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
    tell_all_listed(world, ask->node, answer);
    struct etcd_range tables[TABLE_COUNT];
    for (int i = 0; i < TABLE_COUNT; i++)
        tables[i] = (struct etcd_range){.span = ETCD_PREFIX, .key = etcd_text(PREFIXES[i])};
    registry->watch = fake_watch_open(world->etcd, tables, TABLE_COUNT, answer->revision + 1);
    registry->watching = true;
    tell_whole(world, ask->node, answer->revision);
    node_later(world, ask->node, 1, (struct task){.run = deliver});
}

static void
list(struct world *world, uint32_t node)
{
    struct ask ask = {.kind = ASK_TXN, .done = listed};
    for (int i = 0; i < TABLE_COUNT; i++)
        ask.success[i] = (struct etcd_op){
            .kind = ETCD_RANGE,
            .range = {.span = ETCD_PREFIX, .key = etcd_text(PREFIXES[i])},
        };
    ask.txn.success_count = TABLE_COUNT;
    world->nodes[node].registry.listing = true;
    ask_etcd(world, node, &ask);
}

/* ---- the core's transactions ---- */

static void
tell_written(struct world *world, const struct ask *ask, const struct etcd_answer *answer)
{
    for (size_t i = 0; i < answer->response_count; i++) {
        const struct etcd_response *response = &answer->responses[i];
        const struct etcd_bytes *key = &ask->failure[i].range.key;
        if (response->kv_count > 0)
            tell(world, ask->node, &response->kvs[0]);
        else if (response->kind == ETCD_RANGE)
            tell_gone(world, ask->node, key, answer->revision);
    }
}

/* Who has written knows what; it may learn it again from the watch alone. */
static void
tell_own(struct world *world, const struct ask *ask, const struct etcd_answer *answer)
{
    for (size_t i = 0; world->options.tells_own && i < ask->txn.success_count; i++) {
        struct etcd_kv kv;
        const struct etcd_bytes *key = &ask->success[i].range.key;
        if (ask->success[i].kind == ETCD_PUT &&
            fake_etcd_look(world->etcd, *key, answer->revision, &kv))
            tell(world, ask->node, &kv);
    }
}

static void
written(struct world *world, struct ask *ask, const struct etcd_answer *answer)
{
    enum mesh_txn_end end = MESH_TXN_UNKNOWN;
    if (answer != NULL && answer->fate == ETCD_DONE) {
        end = answer->succeeded ? MESH_TXN_OK : MESH_TXN_LOST;
        if (answer->succeeded)
            tell_own(world, ask, answer);
        else
            tell_written(world, ask, answer);
    } else if (answer != NULL) {
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
    registry->vmodel_revisions = arena_take(&world->arena, options->vmodels * sizeof(uint64_t));
    registry->node_revisions = arena_take(&world->arena, options->nodes * sizeof(uint64_t));
    registry->node_sessions = arena_take(&world->arena, options->nodes * sizeof(uint64_t));
    list(world, node);
    node_later(world, node, 1, (struct task){.run = session_second});
    node_later(world, node, RENEW_MS, (struct task){.run = renew});
    node_later(world, node, PUBLISH_MS / 2 + draw(world, STREAM_ETCD, PUBLISH_MS),
               (struct task){.run = publish});
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
    record.create_revision = (uint64_t)answer->revision;
    version_begins(world, &record);
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
