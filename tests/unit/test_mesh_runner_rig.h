/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of a mesh in one process, on one thread and one event base: real runners, cores and stores;
 * runtimes, callers and peers are the test's.
 */
#pragma once

#include "test_mesh_runner_calls_rig.h"

#include "mesh/edge/runner.h"
#include "mesh/store/store.h"

/* ---- nodes ---- */

static inline void
node_drained(void *context)
{
    struct node *node = context;
    node->drained++;
}

static inline void
node_setting(void *context, enum record_setting_kind kind, const struct record_setting *setting)
{
    (void)kind;
    (void)setting;
    struct node *node = context;
    node->settings++;
}

static inline void
nodes_begin(struct event_base *base)
{
    nodes = (struct nodes){.base = base};
    nodes.last = &nodes.first;
}

/* Room for so many models, and the reserve. */
static inline struct mesh_capacity
node_capacity(uint32_t models)
{
    return (struct mesh_capacity){.capacity_bytes = (models + 1) * MODEL_BYTES,
                                  .default_bytes = MODEL_BYTES,
                                  .loaders = 2,
                                  .load_timeout_ms = NODES_WAIT_S * 1000};
}

static inline void
node_runtime_ready(struct node *node, uint32_t models)
{
    const struct mesh_capacity capacity = node_capacity(models);
    runner_runtime_ready(node->runner, &capacity);
}

/* A node without a store yet. */
static inline struct node *
node_create(uint32_t index, const char *id, struct runner_options options)
{
    struct node *node = &nodes.at[index];
    *node = (struct node){.is_there = true};
    snprintf(node->id, sizeof(node->id), "%s", id);
    options.base = nodes.base;
    options.core.instance = node->id;
    options.address = "127.0.0.1:1";
    options.labels = "";
    options.core.seed = index + 1;
    if (options.tick_ms == 0)
        options.tick_ms = 50;
    options.runtime = (struct runner_runtime){.context = node,
                                              .size = runtime_size,
                                              .load = runtime_load,
                                              .unload = runtime_unload,
                                              .harvest = options.runtime.harvest};
    if (options.peers.forward == NULL)
        options.peers = (struct runner_peers){
            .forward = peers_forward, .abandon = peers_abandon, .ensure = peers_ensure};
    options.on_drained = node_drained;
    options.on_setting = node_setting;
    options.context = node;
    node->runner = runner_create(&options);
    return node;
}

/* With a store of its own, in memory. */
static inline struct node *
node_open(uint32_t index, const char *id, struct runner_options options)
{
    struct node *node = node_create(index, id, options);
    struct error error = ERROR_NONE;
    const struct store_events events = runner_events(node->runner);
    const struct store_options store = {.instance = node->id, .events = &events};
    if (store_open_memory(nodes.base, &store, &node->store, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    runner_start(node->runner, node->store);
    return node;
}

static inline struct runner_view
node_look(struct node *node)
{
    struct runner_view view;
    runner_look(node->runner, &view);
    return view;
}

/* Open, a member, and ready to serve. */
static inline struct node *
node_ready(uint32_t index, const char *id)
{
    struct node *node = node_open(index, id, (struct runner_options){0});
    node_runtime_ready(node, ROOM);
    NODES_WAIT(runner_is_ready(node->runner) && node_look(node).session != 0 &&
               node_look(node).instances > 0);
    return node;
}

/* Calls served or forwarded there end, unheard; then the runner goes. */
static inline void
node_end_runner(struct node *node)
{
    runner_close(node->runner);
    store_close(node->store);
    etcd_destroy(node->etcd); /* without a goodbye: its instance goes with the lease */
    node->store = NULL;
    for (bool some = true; some;) {
        some = false;
        for (struct asker *asker = nodes.askers; asker != NULL && !some; asker = asker->next) {
            if (asker->node != node || (!asker->serving && asker->relay == NULL))
                continue;
            some = true;
            if (asker->is_relay)
                reply(asker, MESH_END_UNREACHABLE, "", (struct runner_figures){.start_ms = 0});
            asker->over = true;
            asker->end = MESH_END_UNREACHABLE;
            asker->serving = false;
            peers_abandon(NULL, &asker->call, 0);
            runner_try_ended(node->runner, &asker->call, asker->call.attempt,
                             &(struct runner_end){.end = MESH_END_OK});
        }
    }
    for (uint32_t i = 0; i < node->unanswered_count; i++)
        runner_load_ended(node->runner, node->unanswered[i], &(struct runner_load_end){0});
    runner_destroy(node->runner);
    node->runner = NULL;
    node->is_there = false;
}

static inline void
nodes_end(void)
{
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (nodes.at[i].is_there)
            node_end_runner(&nodes.at[i]);
    for (int i = 0; i < 3; i++)
        nodes_turn(); /* what was under way between nodes finds nobody */
    while (nodes.askers != NULL)
        asker_free(nodes.askers);
}

/* ---- orders ---- */

struct ordered {
    struct runner_order order;
    bool over;
    enum mesh_outcome outcome;
    enum mesh_model_state state;
    uint32_t places;
    char place[ID_MAX]; /* the first's instance */
    enum mesh_vmodel_state vmodel_state;
    char active[ID_MAX];
    char target[ID_MAX];
};

static inline void
ordered_end(struct runner_order *order, const struct runner_reply *reply_made)
{
    struct ordered *ordered = (struct ordered *)order;
    assert_false(ordered->over);
    ordered->over = true;
    ordered->outcome = reply_made->outcome;
    ordered->state = reply_made->model.state;
    ordered->places = reply_made->model.place_count;
    if (ordered->places > 0)
        snprintf(ordered->place, ID_MAX, "%s", reply_made->model.places[0].instance);
    ordered->vmodel_state = reply_made->vmodel.state;
    if (reply_made->vmodel.active != NULL)
        snprintf(ordered->active, ID_MAX, "%s", reply_made->vmodel.active);
    if (reply_made->vmodel.target != NULL)
        snprintf(ordered->target, ID_MAX, "%s", reply_made->vmodel.target);
}

/* Gives the order. */
static inline void
order_give(struct node *node, struct ordered *ordered, struct mesh_order order)
{
    *ordered = (struct ordered){.order = {.order = order,
                                          .deadline_ns = clock_now_ns() + NODES_WAIT_S * NS_PER_S,
                                          .on_end = ordered_end}};
    runner_order(node->runner, &ordered->order);
}

/* And waits for its end. */
static inline enum mesh_outcome
order_wait(struct node *node, struct ordered *ordered, struct mesh_order order)
{
    order_give(node, ordered, order);
    NODES_WAIT(ordered->over);
    return ordered->outcome;
}

/* The registry's record of a model now; the rest of it is in `ordered`. */
static inline enum mesh_model_state
node_status(struct node *node, const char *model, struct ordered *ordered)
{
    const struct mesh_order order = {.kind = MESH_MODEL_STATUS, .model = model};
    assert_int_equal(order_wait(node, ordered, order), MESH_OUTCOME_OK);
    return ordered->state;
}

static inline void
node_register(struct node *node, const char *model)
{
    struct ordered ordered;
    assert_int_equal(order_wait(node, &ordered,
                                (struct mesh_order){.kind = MESH_REGISTER,
                                                    .model = model,
                                                    .type = "type",
                                                    .path = "path",
                                                    .key = "key"}),
                     MESH_OUTCOME_OK);
}

/* ---- the registry ---- */

/* A write by somebody else. */
static inline void
raw_written(void *context, enum store_txn_end end, const struct error *error)
{
    if (end != STORE_OK)
        fail_msg("%s", error->text);
    *(bool *)context = true;
}

static inline void
write_raw(struct node *node, enum store_table table, const char *id, const char *value)
{
    bool written = false;
    struct error error = ERROR_NONE;
    const struct store_change change = {
        .table = table, .id = id, .value = value, .value_bytes = value == NULL ? 0 : strlen(value)};
    const struct store_txn txn = {
        .session = store_session(node->store), .changes = &change, .change_count = 1};
    const struct store_reply reply_to = {.on_end = raw_written, .context = &written};
    assert_int_equal(store_txn(node->store, &txn, reply_to, &error), STATUS_OK);
    NODES_WAIT(written);
}
