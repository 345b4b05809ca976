/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of a mesh in one process, on one thread and one event base: real drivers, cores and stores;
 * the runtimes hold nothing but names, and peers are a function call a turn later. What a test
 * waits for has WAIT_S; then it fails.
 *
 * Each asker is a call at a node: a caller's, or a peer's for it (a relay).
 */
#pragma once

#include <event2/event.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/check.h"
#include "base/clock.h"
#include "mesh/core/mesh_core.h"
#include "mesh/edge/driver.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/record.h"
#include "mesh/store/store.h"

enum { NODES_WAIT_S = 60, NODES_TURN_MS = 2, NODES_MAX = 4, MODELS_MAX = 64, ROOM = 8, ID_MAX = 32 };
#define MODEL_BYTES (UINT64_C(1) << 20)

struct node;
struct asker;

/* Happens a turn later. */
struct later {
    struct later *next;
    void (*run)(struct later *later);
};

enum held_state { HELD_NOT, HELD_LOADING, HELD_LOADED, HELD_UNLOADING };

struct held {
    char id[ID_MAX];
    enum held_state state;
    uint32_t in_flight;
};

struct node {
    char id[ID_MAX];
    bool is_there;
    struct driver *driver;
    struct store *store;
    struct etcd *etcd;
    struct held held[MODELS_MAX];
    bool silent;       /* the runtime takes orders and answers nothing */
    bool holds_back;   /* and lets calls hang, until they are let go */
    const char *fails; /* loads do, with this text */
    bool vanishes;     /* the next call finds that the runtime has forgotten the model */
    bool busy;         /* calls are refused at once */
    uint32_t sizes, loads, unloads, drained, settings;
    struct driver_load *unanswered[MODELS_MAX];
    uint32_t unanswered_count;
};

struct asker {
    struct driver_call call;
    struct later later; /* its service */
    struct asker *next; /* of all */
    struct node *node;
    struct asker *origin; /* of a relay; NULL: nobody waits for it any more */
    struct asker *relay;  /* what was sent on for it */
    uint32_t number;      /* of the try that is under way */
    uint32_t origin_number;
    bool is_relay;
    bool serving;
    bool over;
    enum mesh_end end;
    char text[160];
    char by[ID_MAX];       /* who served it */
    char answered[ID_MAX]; /* which model */
    char model[ID_MAX];
    struct mesh_tried tried[MESH_TRIED_MAX];
    char tried_ids[MESH_TRIED_MAX][ID_MAX];
};

struct nodes {
    struct event_base *base;
    struct later *first;
    struct later **last;
    struct asker *askers;
    struct node at[NODES_MAX];
};

static struct nodes nodes;

static inline void
nodes_later(struct later *later, void (*work)(struct later *later))
{
    later->run = work;
    later->next = NULL;
    *nodes.last = later;
    nodes.last = &later->next;
}

static inline void
nodes_turn(void)
{
    struct later *all = nodes.first;
    nodes.first = NULL;
    nodes.last = &nodes.first;
    while (all != NULL) {
        struct later *next = all->next;
        all->run(all);
        all = next;
    }
    struct timeval moment = {.tv_usec = NODES_TURN_MS * 1000};
    event_base_loopexit(nodes.base, &moment);
    assert_int_not_equal(
        event_base_loop(nodes.base, nodes.first != NULL ? EVLOOP_NONBLOCK : EVLOOP_ONCE), -1);
}

#define NODES_WAIT(condition)                                                                      \
    do {                                                                                           \
        int64_t wait_end_ns_ = clock_now_ns() + NODES_WAIT_S * NS_PER_S;                           \
        while (!(condition)) {                                                                     \
            if (clock_now_ns() > wait_end_ns_)                                                     \
                fail_msg("waited in vain for: %s", #condition);                                    \
            nodes_turn();                                                                          \
        }                                                                                          \
    } while (0)

static inline struct node *
node_of(const char *id)
{
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (nodes.at[i].is_there && strcmp(nodes.at[i].id, id) == 0)
            return &nodes.at[i];
    return NULL;
}

/* ---- the runtime ---- */

static inline struct held *
held_of(struct node *node, const char *id)
{
    struct held *empty = NULL;
    for (uint32_t i = 0; i < MODELS_MAX; i++) {
        if (node->held[i].state != HELD_NOT && strcmp(node->held[i].id, id) == 0)
            return &node->held[i];
        if (node->held[i].state == HELD_NOT && empty == NULL)
            empty = &node->held[i];
    }
    assert_non_null(empty);
    snprintf(empty->id, sizeof(empty->id), "%s", id);
    return empty;
}

static inline bool
node_holds(struct node *node, const char *id)
{
    return held_of(node, id)->state == HELD_LOADED;
}

/* An order to the runtime, carried out a turn later. */
struct order_later {
    struct later later;
    struct node *node;
    struct driver *driver; /* the node's then: it may be another by now */
    struct driver_load *load;
    char id[ID_MAX];
    enum held_state to;
};

static inline void
runtime_answers(struct later *later)
{
    struct order_later *order = (struct order_later *)later;
    struct node *node = order->node;
    if (node->is_there && node->driver == order->driver) {
        struct held *held = held_of(node, order->id);
        struct driver_load_end end = {.size_bytes = MODEL_BYTES};
        held->state = order->to;
        if (order->to == HELD_LOADED && node->fails != NULL) {
            end = (struct driver_load_end){.end = MESH_LOAD_BROKE, .reason = node->fails};
        }
        driver_load_ended(node->driver, order->load, &end);
    }
    free(order);
}

static inline void
runtime_order(struct node *node, struct driver_load *load, const char *id, enum held_state to)
{
    if (node->silent) {
        node->unanswered[node->unanswered_count++] = load;
        return;
    }
    struct order_later *order = calloc(1, sizeof(*order));
    CHECK(order != NULL);
    order->node = node;
    order->driver = node->driver;
    order->load = load;
    order->to = to;
    snprintf(order->id, sizeof(order->id), "%s", id);
    nodes_later(&order->later, runtime_answers);
}

static inline void
runtime_size(void *context, struct driver_load *load, const struct driver_model *model)
{
    (void)model;
    struct node *node = context;
    node->sizes++;
    /* From within: the driver must bear that. */
    driver_load_ended(node->driver, load, &(struct driver_load_end){.size_bytes = MODEL_BYTES});
}

static inline void
runtime_load(void *context, struct driver_load *load, const struct driver_model *model)
{
    struct node *node = context;
    struct held *held = held_of(node, model->id);
    assert_int_equal(held->state, HELD_NOT);
    held->state = HELD_LOADING;
    node->loads++;
    runtime_order(node, load, model->id, HELD_LOADED);
}

static inline void
runtime_unload(void *context, struct driver_load *load, const struct driver_model *model)
{
    struct node *node = context;
    struct held *held = held_of(node, model->id);
    assert_int_equal(held->in_flight, 0);
    held->state = HELD_UNLOADING;
    node->unloads++;
    runtime_order(node, load, model->id, HELD_NOT);
}

/* ---- calls ---- */

static inline struct asker *
asker_of(struct driver_call *call)
{
    return (struct asker *)((char *)call - offsetof(struct asker, call));
}

static inline void
asker_add(struct asker *asker)
{
    asker->next = nodes.askers;
    nodes.askers = asker;
}

static inline void
asker_remove(struct asker *asker)
{
    struct asker **link = &nodes.askers;
    while (*link != asker)
        link = &(*link)->next;
    *link = asker->next;
}

/* The answer of a relay on its way back. */
struct reply_later {
    struct later later;
    struct asker *origin;
    struct node *node; /* the origin's */
    struct driver *driver;
    uint32_t number;
    enum mesh_end end;
    char by[ID_MAX];
    char answered[ID_MAX];
    char instance[ID_MAX];
    struct driver_figures figures;
};

static inline void asker_got(struct asker *asker, const char *by);

static inline bool
asker_is(const struct asker *wanted)
{
    for (const struct asker *asker = nodes.askers; asker != NULL; asker = asker->next)
        if (asker == wanted)
            return true;
    return false;
}

static inline void
reply_arrives(struct later *later)
{
    struct reply_later *reply = (struct reply_later *)later;
    struct asker *origin = reply->origin;
    if (asker_is(origin) && reply->node->is_there && reply->node->driver == reply->driver) {
        const struct driver_end end = {
            .end = reply->end, .figures = &reply->figures, .instance = reply->instance};
        origin->relay = NULL;
        if (reply->end == MESH_END_OK) {
            snprintf(origin->answered, sizeof(origin->answered), "%s", reply->answered);
            asker_got(origin, reply->by);
        }
        driver_try_ended(reply->driver, &origin->call, reply->number, &end);
        if (reply->end == MESH_END_OK && origin->is_relay) {
            asker_remove(origin);
            free(origin);
        }
    }
    free(reply);
}

static inline void
reply(const struct asker *relay, enum mesh_end end, const char *by, struct driver_figures figures)
{
    struct asker *origin = relay->origin;
    if (origin == NULL)
        return;
    struct reply_later *made = calloc(1, sizeof(*made));
    CHECK(made != NULL);
    made->origin = origin;
    made->node = origin->node;
    made->driver = origin->node->driver;
    made->number = relay->origin_number;
    made->end = end;
    made->figures = figures;
    snprintf(made->by, sizeof(made->by), "%s", by);
    snprintf(made->answered, sizeof(made->answered), "%s", relay->answered);
    snprintf(made->instance, sizeof(made->instance), "%s", relay->node->id);
    nodes_later(&made->later, reply_arrives);
}

/* A caller has its answer; a relay sends it on. */
static inline void
asker_got(struct asker *asker, const char *by)
{
    assert_false(asker->over);
    asker->over = true;
    asker->end = MESH_END_OK;
    snprintf(asker->by, sizeof(asker->by), "%s", by);
    if (asker->is_relay)
        reply(asker, MESH_END_OK, by, driver_figures(asker->node->driver));
}

static inline void
asker_end(struct asker *asker, const struct driver_end *end)
{
    struct node *node = asker->node;
    struct held *held = held_of(node, asker->answered);
    assert_true(held->in_flight > 0);
    held->in_flight--;
    asker->serving = false;
    if (end->end == MESH_END_OK)
        asker_got(asker, node->id);
    driver_try_ended(node->driver, &asker->call, asker->number, end);
    if (end->end == MESH_END_OK && asker->is_relay) {
        asker_remove(asker);
        free(asker);
    }
}

static inline void
asker_served(struct later *later)
{
    struct asker *asker = (struct asker *)((char *)later - offsetof(struct asker, later));
    struct node *node = asker->node;
    if (!asker->serving)
        return; /* the node is dead */
    if (node->holds_back) {
        nodes_later(&asker->later, asker_served);
        return;
    }
    struct driver_end end = {.end = MESH_END_OK};
    if (node->vanishes) {
        node->vanishes = false;
        held_of(node, asker->answered)->state = HELD_NOT;
        end = (struct driver_end){.end = MESH_END_NOT_HERE, .vanished = true};
    }
    asker_end(asker, &end);
}

static inline enum driver_begun
asker_serve(struct driver_call *call, const struct driver_attempt *attempt, struct driver_end *end)
{
    struct asker *asker = asker_of(call);
    struct held *held = held_of(asker->node, attempt->model);
    assert_int_equal(held->state, HELD_LOADED);
    if (asker->node->busy) {
        end->end = MESH_END_OVERLOADED;
        return DRIVER_ENDED;
    }
    held->in_flight++;
    asker->serving = true;
    asker->number = attempt->number;
    snprintf(asker->answered, sizeof(asker->answered), "%s", attempt->model);
    nodes_later(&asker->later, asker_served);
    return DRIVER_UNDER_WAY;
}

static inline void
asker_answer(struct driver_call *call, const struct driver_answer *answer)
{
    struct asker *asker = asker_of(call);
    assert_false(asker->over);
    asker->over = true;
    asker->end = answer->end;
    snprintf(asker->text, sizeof(asker->text), "%s", answer->text == NULL ? "" : answer->text);
    if (!asker->is_relay)
        return;
    if (asker->node->is_there)
        reply(asker, answer->end, "", answer->figures);
    asker_remove(asker);
    free(asker);
}

static const struct driver_call_type asker_type = {asker_serve, asker_answer};

/* A caller's call; freed by asker_free, or nodes_end. */
static inline struct asker *
ask_of(struct node *node, const char *model, enum driver_name name, int64_t timeout_ns)
{
    struct asker *asker = calloc(1, sizeof(*asker));
    CHECK(asker != NULL);
    asker->node = node;
    snprintf(asker->model, sizeof(asker->model), "%s", model);
    asker->call.type = &asker_type;
    asker->call.model = asker->model;
    asker->call.name = name;
    asker->call.deadline_ns =
        timeout_ns == TIME_NEVER_NS ? TIME_NEVER_NS : clock_now_ns() + timeout_ns;
    asker_add(asker);
    driver_call(node->driver, &asker->call);
    return asker;
}

static inline struct asker *
ask(struct node *node, const char *model)
{
    return ask_of(node, model, DRIVER_NAME_MODEL, NODES_WAIT_S * NS_PER_S);
}

static inline void
asker_free(struct asker *asker)
{
    asker_remove(asker);
    free(asker);
}

/* Asks and waits; who served it, or what else became of it. */
static inline enum mesh_end
ask_wait(struct node *node, const char *model, char by[ID_MAX])
{
    struct asker *asker = ask(node, model);
    NODES_WAIT(asker->over);
    enum mesh_end end = asker->end;
    if (by != NULL)
        snprintf(by, ID_MAX, "%.31s", end == MESH_END_OK ? asker->by : asker->text);
    asker_free(asker);
    return end;
}

/* ---- peers ---- */

struct relay_later {
    struct later later;
    struct asker *relay;
};

static inline void
relay_arrives(struct later *later)
{
    struct relay_later *made = (struct relay_later *)later;
    struct asker *relay = made->relay;
    free(made);
    if (relay->origin != NULL && relay->node->is_there) {
        driver_call(relay->node->driver, &relay->call);
        return;
    }
    reply(relay, MESH_END_UNREACHABLE, "", (struct driver_figures){.start_ms = 0});
    asker_remove(relay);
    free(relay);
}

static inline enum driver_begun
peers_forward(void *context, struct driver_call *call, const struct driver_attempt *attempt,
              struct driver_end *end)
{
    (void)context;
    struct asker *origin = asker_of(call);
    struct node *there = node_of(attempt->instance);
    if (there == NULL) {
        end->end = MESH_END_UNREACHABLE;
        return DRIVER_ENDED;
    }
    assert_ptr_not_equal(there, origin->node);
    struct asker *relay = calloc(1, sizeof(*relay));
    struct relay_later *made = calloc(1, sizeof(*made));
    CHECK(relay != NULL && made != NULL);
    relay->node = there;
    relay->origin = origin;
    relay->origin_number = attempt->number;
    relay->is_relay = true;
    snprintf(relay->model, sizeof(relay->model), "%s", attempt->model);
    relay->call = (struct driver_call){.type = &asker_type,
                                       .model = relay->model,
                                       .hop = attempt->hop,
                                       .create_revision = attempt->create_revision,
                                       .deadline_ns = attempt->deadline_ns,
                                       .tried = relay->tried,
                                       .tried_count = attempt->tried_count};
    for (uint32_t i = 0; i < attempt->tried_count; i++) {
        snprintf(relay->tried_ids[i], ID_MAX, "%s", attempt->tried[i].instance);
        relay->tried[i] = attempt->tried[i];
        relay->tried[i].instance = relay->tried_ids[i];
    }
    origin->relay = relay;
    asker_add(relay);
    made->relay = relay;
    nodes_later(&made->later, relay_arrives);
    return DRIVER_UNDER_WAY;
}

static inline bool
peers_abandon(void *context, struct driver_call *call, uint32_t number)
{
    (void)context;
    (void)number;
    struct asker *origin = asker_of(call);
    if (origin->relay != NULL)
        origin->relay->origin = NULL;
    origin->relay = NULL;
    return true;
}

struct ensure_later {
    struct later later;
    struct driver_ensure ensure;
    char instance[ID_MAX];
    char model[ID_MAX];
};

static inline void
ensure_arrives(struct later *later)
{
    struct ensure_later *made = (struct ensure_later *)later;
    struct node *there = node_of(made->instance);
    if (there != NULL)
        driver_ensure(there->driver, &made->ensure);
    free(made);
}

static inline void
peers_ensure(void *context, const struct driver_ensure *ensure)
{
    (void)context;
    struct ensure_later *made = calloc(1, sizeof(*made));
    CHECK(made != NULL);
    made->ensure = *ensure;
    snprintf(made->instance, sizeof(made->instance), "%s", ensure->instance);
    snprintf(made->model, sizeof(made->model), "%s", ensure->model);
    made->ensure.instance = made->instance;
    made->ensure.model = made->model;
    nodes_later(&made->later, ensure_arrives);
}

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
static inline struct driver_capacity
node_capacity(uint32_t models)
{
    return (struct driver_capacity){.capacity_bytes = (models + 1) * MODEL_BYTES,
                                    .default_bytes = MODEL_BYTES,
                                    .loaders = 2,
                                    .load_timeout_ms = 200};
}

static inline void
node_runtime_ready(struct node *node, uint32_t models)
{
    const struct driver_capacity capacity = node_capacity(models);
    driver_runtime_ready(node->driver, &capacity);
}

/* A node without a store yet. */
static inline struct node *
node_create(uint32_t index, const char *id, struct driver_options options)
{
    struct node *node = &nodes.at[index];
    *node = (struct node){.is_there = true};
    snprintf(node->id, sizeof(node->id), "%s", id);
    options.base = nodes.base;
    options.instance = node->id;
    options.address = "127.0.0.1:1";
    options.labels = "";
    options.seed = index + 1;
    if (options.tick_ms == 0)
        options.tick_ms = 50;
    options.runtime = (struct driver_runtime){.context = node,
                                              .size = runtime_size,
                                              .load = runtime_load,
                                              .unload = runtime_unload,
                                              .harvest = options.runtime.harvest};
    if (options.peers.forward == NULL)
        options.peers = (struct driver_peers){
            .forward = peers_forward, .abandon = peers_abandon, .ensure = peers_ensure};
    options.on_drained = node_drained;
    options.on_setting = node_setting;
    options.context = node;
    node->driver = driver_create(&options);
    return node;
}

/* With a store of its own, in memory. */
static inline struct node *
node_open(uint32_t index, const char *id, struct driver_options options)
{
    struct node *node = node_create(index, id, options);
    struct error error = ERROR_NONE;
    const struct store_events events = driver_events(node->driver);
    const struct store_options store = {.instance = node->id, .events = &events};
    if (store_open_memory(nodes.base, &store, &node->store, &error) != STATUS_OK)
        fail_msg("%s", error.text);
    driver_start(node->driver, node->store);
    return node;
}

static inline struct driver_view
node_look(struct node *node)
{
    struct driver_view view;
    driver_look(node->driver, &view);
    return view;
}

/* Open, a member, and ready to serve. */
static inline struct node *
node_ready(uint32_t index, const char *id)
{
    struct node *node = node_open(index, id, (struct driver_options){0});
    node_runtime_ready(node, ROOM);
    NODES_WAIT(driver_is_ready(node->driver) && node_look(node).session != 0 &&
               node_look(node).instances > 0);
    return node;
}

/* What is served or sent on there ends, unheard; then the driver goes. */
static inline void
node_end_driver(struct node *node)
{
    driver_close(node->driver);
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
                reply(asker, MESH_END_UNREACHABLE, "", (struct driver_figures){.start_ms = 0});
            asker->over = true;
            asker->end = MESH_END_UNREACHABLE;
            asker->serving = false;
            peers_abandon(NULL, &asker->call, 0);
            driver_try_ended(node->driver, &asker->call, asker->call.attempt,
                             &(struct driver_end){.end = MESH_END_OK});
        }
    }
    for (uint32_t i = 0; i < node->unanswered_count; i++)
        driver_load_ended(node->driver, node->unanswered[i], &(struct driver_load_end){0});
    driver_destroy(node->driver);
    node->driver = NULL;
    node->is_there = false;
}

static inline void
nodes_end(void)
{
    for (uint32_t i = 0; i < NODES_MAX; i++)
        if (nodes.at[i].is_there)
            node_end_driver(&nodes.at[i]);
    for (int i = 0; i < 3; i++)
        nodes_turn(); /* what was under way between nodes finds nobody */
    while (nodes.askers != NULL)
        asker_free(nodes.askers);
}

/* ---- orders ---- */

struct ordered {
    struct driver_order order;
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
ordered_end(struct driver_order *order, const struct driver_reply *reply_made)
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
    driver_order(node->driver, &ordered->order);
}

/* And waits for its end. */
static inline enum mesh_outcome
order_wait(struct node *node, struct ordered *ordered, struct mesh_order order)
{
    order_give(node, ordered, order);
    NODES_WAIT(ordered->over);
    return ordered->outcome;
}

/* What the registry says of a model now; the rest of it is in `ordered`. */
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
