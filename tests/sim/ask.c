/* SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

const char *const ask_prefixes[TABLE_COUNT] = {"m/", "v/", "i/"};

struct etcd_range
key_range(struct world *world, enum table table, const char *name)
{
    char text[24];
    int length = snprintf(text, sizeof(text), "%s%s", ask_prefixes[table], name);
    return (struct etcd_range){
        .key = {arena_copy(&world->arena, text, (size_t)length), (size_t)length}};
}

struct etcd_range
own_key(struct world *world, uint32_t node)
{
    return key_range(world, TABLE_NODES, world->node_names[node]);
}

enum table
table_of_key(const struct etcd_bytes *key)
{
    enum table table = TABLE_MODELS;
    while (*(const char *)key->data != *ask_prefixes[table])
        table++;
    return table;
}

uint32_t
number_of_key(const struct etcd_bytes *key)
{
    char text[24] = "";
    CHECK(key->bytes > 2 && key->bytes - 2 < sizeof(text));
    memcpy(text, (const char *)key->data + 2, key->bytes - 2);
    return number_of(text);
}

uint64_t
version_of(const struct mesh_model *record)
{
    return strtoull(record->path + 1, NULL, 10);
}

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
    if (before == NULL)
        model_before = model_after;
    else
        codec_read_model(before, world->model_names[model], places_before, &model_before);
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

/* etcd's quota is used up: it takes what only reads or deletes, and neither leases nor keys. */
static bool
lacks_space(const struct world *world, const struct ask *ask)
{
    bool puts = ask->kind == ASK_GRANT;
    for (size_t i = 0; ask->kind == ASK_TXN && i < ask->txn.success_count; i++)
        puts = puts || ask->success[i].kind == ETCD_PUT;
    return puts && world->now_ms < world->no_space_until_ms;
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
    static const struct etcd_answer no_space = {.fate = ETCD_UNKNOWN, .is_full = true};
    enum ask_kind kind = lacks_space(world, ask) ? ASK_REFUSED : ask->kind;
    switch (kind) {
    case ASK_REFUSED: ask->answer = &no_space; break;
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

void
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
