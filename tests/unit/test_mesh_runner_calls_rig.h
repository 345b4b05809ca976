/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The surroundings of test_mesh_runner_rig.h's runners: runtimes that hold nothing but names,
 * callers, and peers that are a function call a turn later. A wait lasts NODES_WAIT_S; then the
 * test fails.
 *
 * Each asker is a call at a node: a caller's, or a peer's for it (a relay).
 */
#pragma once

#include <event2/event.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../test.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/core/mesh_core.h"
#include "mesh/edge/runner.h"
#include "mesh/etcd/etcd.h"
#include "mesh/record/record.h"
#include "mesh/store/store.h"

enum {
    NODES_WAIT_S = 60,
    NODES_TURN_MS = 2,
    NODES_MAX = 4,
    MODELS_MAX = 64,
    ROOM = 8,
    ID_MAX = 32
};
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
    struct mesh_runner *runner;
    struct store *store;
    struct etcd *etcd;
    struct held held[MODELS_MAX];
    bool silent;       /* the runtime takes orders and answers nothing */
    bool holds_back;   /* and lets calls hang, until they are let go */
    const char *fails; /* loads do, with this text */
    bool vanishes;     /* the next call finds that the runtime has forgotten the model */
    bool busy;         /* calls are refused at once */
    uint32_t sizes, loads, unloads, drained, settings;
    uint32_t measured[RUNNER_MEASURES]; /* by their requesters */
    uint64_t measured_last[RUNNER_MEASURES];
    struct runner_load *unanswered[MODELS_MAX];
    uint32_t unanswered_count;
};

struct asker {
    struct runner_call call;
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
    char by[ID_MAX];       /* the node that served it */
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
    struct mesh_runner *runner; /* the node's then: it may be another by now */
    struct runner_load *load;
    char id[ID_MAX];
    enum held_state to;
};

static inline void
runtime_answers(struct later *later)
{
    struct order_later *order = (struct order_later *)later;
    struct node *node = order->node;
    if (node->is_there && node->runner == order->runner) {
        struct held *held = held_of(node, order->id);
        struct runner_load_end end = {.size_bytes = MODEL_BYTES};
        held->state = order->to;
        if (order->to == HELD_LOADED && node->fails != NULL) {
            end = (struct runner_load_end){.end = MESH_LOAD_BROKE, .reason = node->fails};
        }
        runner_load_ended(node->runner, order->load, &end);
    }
    free(order);
}

static inline void
runtime_order(struct node *node, struct runner_load *load, const char *id, enum held_state to)
{
    if (node->silent) {
        node->unanswered[node->unanswered_count++] = load;
        return;
    }
    struct order_later *order = calloc(1, sizeof(*order));
    CHECK(order != NULL);
    order->node = node;
    order->runner = node->runner;
    order->load = load;
    order->to = to;
    snprintf(order->id, sizeof(order->id), "%s", id);
    nodes_later(&order->later, runtime_answers);
}

static inline void
runtime_size(void *context, struct runner_load *load, const struct runner_model *model)
{
    (void)model;
    struct node *node = context;
    node->sizes++;
    /* From within: the runner must bear that. */
    runner_load_ended(node->runner, load, &(struct runner_load_end){.size_bytes = MODEL_BYTES});
}

static inline void
runtime_load(void *context, struct runner_load *load, const struct runner_model *model)
{
    struct node *node = context;
    struct held *held = held_of(node, model->id);
    assert_int_equal(held->state, HELD_NOT);
    held->state = HELD_LOADING;
    node->loads++;
    runtime_order(node, load, model->id, HELD_LOADED);
}

static inline void
runtime_unload(void *context, struct runner_load *load, const struct runner_model *model)
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
asker_of(struct runner_call *call)
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
    struct mesh_runner *runner;
    uint32_t number;
    enum mesh_end end;
    char by[ID_MAX];
    char answered[ID_MAX];
    char instance[ID_MAX];
    struct runner_figures figures;
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
    if (asker_is(origin) && reply->node->is_there && reply->node->runner == reply->runner) {
        const struct runner_end end = {
            .end = reply->end, .figures = &reply->figures, .instance = reply->instance};
        origin->relay = NULL;
        if (reply->end == MESH_END_OK) {
            snprintf(origin->answered, sizeof(origin->answered), "%s", reply->answered);
            asker_got(origin, reply->by);
        }
        runner_try_ended(reply->runner, &origin->call, reply->number, &end);
        if (reply->end == MESH_END_OK && origin->is_relay) {
            asker_remove(origin);
            free(origin);
        }
    }
    free(reply);
}

static inline void
reply(const struct asker *relay, enum mesh_end end, const char *by, struct runner_figures figures)
{
    struct asker *origin = relay->origin;
    if (origin == NULL)
        return;
    struct reply_later *made = calloc(1, sizeof(*made));
    CHECK(made != NULL);
    made->origin = origin;
    made->node = origin->node;
    made->runner = origin->node->runner;
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
        reply(asker, MESH_END_OK, by, runner_figures(asker->node->runner, asker->call.model));
}

static inline void
asker_end(struct asker *asker, const struct runner_end *end)
{
    struct node *node = asker->node;
    struct held *held = held_of(node, asker->answered);
    assert_true(held->in_flight > 0);
    held->in_flight--;
    asker->serving = false;
    if (end->end == MESH_END_OK)
        asker_got(asker, node->id);
    runner_try_ended(node->runner, &asker->call, asker->number, end);
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
    struct runner_end end = {.end = MESH_END_OK};
    if (node->vanishes) {
        node->vanishes = false;
        held_of(node, asker->answered)->state = HELD_NOT;
        end = (struct runner_end){.end = MESH_END_NOT_HERE, .vanished = true};
    }
    asker_end(asker, &end);
}

static inline enum runner_begun
asker_serve(struct runner_call *call, const struct runner_attempt *attempt, struct runner_end *end)
{
    struct asker *asker = asker_of(call);
    struct held *held = held_of(asker->node, attempt->model);
    assert_int_equal(held->state, HELD_LOADED);
    if (asker->node->busy) {
        end->end = MESH_END_OVERLOADED;
        return RUNNER_ENDED;
    }
    held->in_flight++;
    asker->serving = true;
    asker->number = attempt->number;
    snprintf(asker->answered, sizeof(asker->answered), "%s", attempt->model);
    nodes_later(&asker->later, asker_served);
    return RUNNER_UNDER_WAY;
}

static inline void
asker_answer(struct runner_call *call, const struct runner_answer *answer)
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

static const struct runner_call_type asker_type = {asker_serve, asker_answer};

/* A caller's call; freed by asker_free, or nodes_end. */
static inline struct asker *
ask_of(struct node *node, const char *model, enum runner_name name, int64_t timeout_ns)
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
    runner_call(node->runner, &asker->call);
    return asker;
}

static inline struct asker *
ask(struct node *node, const char *model)
{
    return ask_of(node, model, RUNNER_NAME_MODEL, NODES_WAIT_S * NS_PER_S);
}

static inline void
asker_free(struct asker *asker)
{
    asker_remove(asker);
    free(asker);
}

/* Asks and waits; the node that served it, or another outcome. */
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
        runner_call(relay->node->runner, &relay->call);
        return;
    }
    reply(relay, MESH_END_UNREACHABLE, "", (struct runner_figures){.start_ms = 0});
    asker_remove(relay);
    free(relay);
}

static inline enum runner_begun
peers_forward(void *context, struct runner_call *call, const struct runner_attempt *attempt,
              struct runner_end *end)
{
    (void)context;
    struct asker *origin = asker_of(call);
    struct node *there = node_of(attempt->instance);
    if (there == NULL) {
        end->end = MESH_END_UNREACHABLE;
        return RUNNER_ENDED;
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
    relay->call = (struct runner_call){.type = &asker_type,
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
    return RUNNER_UNDER_WAY;
}

static inline bool
peers_abandon(void *context, struct runner_call *call, uint32_t number)
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
    struct mesh_ensure ensure;
    char instance[ID_MAX];
    char model[ID_MAX];
};

static inline void
ensure_arrives(struct later *later)
{
    struct ensure_later *made = (struct ensure_later *)later;
    struct node *there = node_of(made->instance);
    if (there != NULL)
        runner_ensure(there->runner, &made->ensure);
    free(made);
}

static inline bool
peers_ensure(void *context, const struct mesh_ensure *ensure)
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
    return true;
}
