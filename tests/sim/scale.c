/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scale run: many real cores, many more models, a day of simulated time with nodes that come
 * and go. It asks how well the cache does, not whether it is right: so nothing is lost or late
 * here, messages take no time, and of time only loads take some.
 *
 * A full mirror at each node would take models x nodes x some 300 bytes. But a core decides about a
 * model only when something happens to that model there; so its mirror is fed on demand: before
 * anything happens to a model at a node, the node gets the record as it is, and each change goes at
 * once to those that the record names. A deciding core sees the state as with a watch that never
 * lags. After a while without use a model is forgotten. Reaping needs all records at one node, so
 * it is not part of it; a node that comes back is told of the places that its former life has left,
 * and withdraws them.
 *
 *   scale [--nodes N] [--models N] [--hours N] [--calls-per-second N] [--fit-percent N]
 *         [--zipf-percent N] [--churn-percent-hour N] [--figures-s N] [--tick-s N] [--seed N]
 *         [--minutes N]: of real time; no further hour is begun after them
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../random.h"
#include "base/check.h"
#include "base/clock.h"
#include "mesh/core/state.h"
#include "oracle.h"
#include "scale.h"

struct scale_options options = {1000, 1000000, 24, 50, 20, 90, 1, 1800, 10, 0, 1};

struct scale_figures figures;
struct node *nodes;
struct record *records;
static struct scale_call **calls; /* by node */
static struct popularity *popularity;
static uint64_t capacity_units;
int64_t now_ms;
static uint64_t revision = 1;
static uint64_t random_state;
static struct work *heap;
static uint32_t heap_count, heap_capacity;
static uint64_t order;

static struct oracle *oracle;
static uint64_t capacity_alive;

static uint64_t
draw(uint64_t below)
{
    return random_draw(&random_state) % below;
}

static int64_t
wall(void)
{
    return INT64_C(1700000000000) + now_ms;
}

/* ---- what there is to do ---- */

static bool
sooner(const struct work *a, const struct work *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void
later(int64_t in_ms, struct work work)
{
    if (heap_count == heap_capacity) {
        heap_capacity = heap_capacity * 2 + 4096;
        heap = reallocarray(heap, heap_capacity, sizeof(*heap));
        CHECK(heap != NULL);
    }
    work.at_ms = now_ms + in_ms;
    work.order = order++;
    uint32_t at = heap_count++;
    for (; at > 0 && sooner(&work, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = work;
}

static struct work
take(void)
{
    struct work first = heap[0];
    struct work last = heap[--heap_count];
    uint32_t at = 0;
    for (uint32_t child = 1; child < heap_count; child = 2 * at + 1) {
        if (child + 1 < heap_count && sooner(&heap[child + 1], &heap[child]))
            child++;
        if (!sooner(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

/* ---- names and sizes ---- */

static const char *
model_name(uint32_t model)
{
    static char names[4][16];
    static uint32_t next;
    char *name = names[next++ % 4];
    snprintf(name, sizeof(names[0]), "m%u", model);
    return name;
}

static uint32_t
number_of(const char *name)
{
    return (uint32_t)strtoul(name + strcspn(name, "0123456789"), NULL, 10);
}

/* Sizes between a quarter and four times the mean; the same for a model each time. */
static uint32_t
units_of(uint32_t model)
{
    uint64_t state = model * UINT64_C(2654435761) + options.seed;
    double exponent = (double)(random_draw(&state) >> 40) / (double)(1 << 24) * 4 - 2;
    return (uint32_t)(MEAN_UNITS * pow(2, exponent) / 1.35);
}

/* ---- telling nodes ---- */

static void carry_out(uint32_t number, struct mesh_actions actions);

static void
step(uint32_t number, struct mesh_event event)
{
    event.now_ms = now_ms;
    event.wall_ms = wall();
    figures.steps++;
    carry_out(number, mesh_step(nodes[number].mesh, &event));
}

/* False: nothing that a core could do about it, so it need not be notified. */
static bool
knows(const struct mesh *mesh, const char *name, uint64_t as_of)
{
    uint32_t known = tables_model(&mesh->tables, name);
    return known != NAME_NONE && mesh->tables.models[known].known &&
           mesh->tables.models[known].revision >= as_of;
}

/* Records that a node no longer needs: the oldest in its ring makes room, if it has nothing of it.
 */
static void
forget_one(uint32_t number)
{
    struct node *node = &nodes[number];
    uint32_t old = node->known[node->known_at % KNOWN_MAX];
    if (node->known_at < KNOWN_MAX)
        return;
    const char *name = model_name(old);
    uint32_t known = tables_model(&node->mesh->tables, name);
    if (known == NAME_NONE || !node->mesh->tables.models[known].known ||
        node->mesh->tables.models[known].entry != ENTRY_NONE)
        return; /* when it is unloaded it comes into the ring again */
    step(number, (struct mesh_event){.kind = MESH_MODEL_GONE, .gone = {name, ++revision}});
    step(number, (struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
}

static void
keep_in_mind(uint32_t number, uint32_t model)
{
    forget_one(number);
    nodes[number].known[nodes[number].known_at++ % KNOWN_MAX] = model;
}

static void
notify(uint32_t number, uint32_t model)
{
    struct node *node = &nodes[number];
    struct record *record = &records[model];
    const char *name = model_name(model);
    if (node->mesh == NULL || knows(node->mesh, name, record->revision))
        return;
    bool is_new = !knows(node->mesh, name, 0);
    if (is_new) {
        keep_in_mind(number, model);
        record->revision = ++revision; /* older than what it has passed, it would be refused */
        name = model_name(model);
    }
    struct mesh_place places[PLACES_MAX];
    for (uint32_t i = 0; i < record->count; i++)
        places[i] = (struct mesh_place){.instance = nodes[record->places[i].node].name,
                                        .since_ms = record->places[i].since_ms,
                                        .kind = (enum mesh_place_kind)record->places[i].kind};
    step(number, (struct mesh_event){.kind = MESH_MODEL_PUT,
                                     .model = {.id = name,
                                               .type = "t",
                                               .path = "",
                                               .key = "",
                                               .create_revision = record->create_revision,
                                               .revision = record->revision,
                                               .used_ms = record->used_ms,
                                               .unloaded_ms = record->unloaded_ms,
                                               .places = places,
                                               .place_count = record->count}});
}

static void
notify_instance(uint32_t to, uint32_t of)
{
    const struct node *node = &nodes[of];
    step(to, (struct mesh_event){.kind = MESH_INSTANCE_PUT,
                                 .instance = {.id = node->name,
                                              .labels = "",
                                              .session = node->session,
                                              .revision = ++revision,
                                              .start_ms = node->start_ms,
                                              .draining = node->draining,
                                              .figures = mesh_figures(node->mesh)}});
}

static void
notify_all_of(uint32_t of)
{
    for (uint32_t i = 0; i < options.nodes; i++)
        if (nodes[i].mesh != NULL)
            notify_instance(i, of);
}

/* ---- calls ---- */

static uint32_t
call_take(uint32_t number, struct sender sender, uint32_t model)
{
    struct node *node = &nodes[number];
    uint32_t call = node->free_count > 0 ? node->free_calls[--node->free_count] : node->call_top++;
    CHECK(call < CALLS_MAX);
    if (node->call_top > node->call_capacity) {
        node->call_capacity = node->call_capacity * 2 + 16;
        calls[number] = reallocarray(calls[number], node->call_capacity, sizeof(struct scale_call));
        node->free_calls =
            reallocarray(node->free_calls, node->call_capacity, sizeof(*node->free_calls));
        CHECK(calls[number] != NULL && node->free_calls != NULL);
    }
    calls[number][call] = (struct scale_call){.sender = sender, .model = model};
    return call;
}

/* The call is over at this node: to its owner, or into the figures. */
static void
call_over(uint32_t number, uint32_t call, enum mesh_end end)
{
    struct scale_call over = calls[number][call];
    nodes[number].free_calls[nodes[number].free_count++] = call;
    if (over.sender.node == UINT32_MAX) {
        figures.ends[end]++;
        figures.hits += end == MESH_END_OK && over.sender.began_ms == now_ms;
        return;
    }
    later(0, (struct work){.kind = WORK_ENDED,
                           .node = over.sender.node,
                           .life = over.sender.life,
                           .call = over.sender.call,
                           .number = over.sender.number,
                           .end = (uint8_t)end,
                           .model = number});
}

static void
begin(uint32_t number, const struct work *work)
{
    if (nodes[number].mesh == NULL) { /* it has just died */
        later(0, (struct work){.kind = WORK_ENDED,
                               .node = work->sender.node,
                               .life = work->sender.life,
                               .call = work->sender.call,
                               .number = work->sender.number,
                               .end = MESH_END_UNREACHABLE,
                               .model = UINT32_MAX});
        return;
    }
    notify(number, work->model);
    uint32_t call = call_take(number, work->sender, work->model);
    step(number, (struct mesh_event){.kind = MESH_CALL,
                                     .call = {.call = call,
                                              .model = model_name(work->model),
                                              .hop = (enum mesh_hop)work->hop,
                                              .balance = MESH_BALANCE_NONE,
                                              .deadline_ms = work->deadline_ms,
                                              .create_revision = 1,
                                              .tried = work->tried,
                                              .tried_count = work->tried_count}});
}

static void
client(void)
{
    uint32_t node;
    do
        node = (uint32_t)draw(options.nodes);
    while (nodes[node].mesh == NULL || nodes[node].draining);
    uint32_t model = popularity_draw(popularity, random_draw(&random_state));
    figures.calls++;
    figures.oracle_hits += oracle_use(oracle, model, records[model].units, capacity_alive);
    const struct work work = {
        .model = model,
        .hop = MESH_HOP_ENTRY,
        .deadline_ms = now_ms + 60000,
        .sender = {.node = UINT32_MAX, .began_ms = now_ms},
    };
    begin(node, &work);
}

static void
try_ended(const struct work *work)
{
    struct node *node = &nodes[work->node];
    if (work->model != UINT32_MAX && nodes[work->model].mesh != NULL)
        step(work->node,
             (struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                 .figures = {nodes[work->model].name, nodes[work->model].start_ms,
                                             mesh_figures(nodes[work->model].mesh), NULL}});
    if (work->end == MESH_END_OK)
        call_over(work->node, work->call, MESH_END_OK);
    else
        notify(work->node, calls[work->node][work->call].model);
    CHECK(node->mesh != NULL);
    step(work->node, (struct mesh_event){.kind = MESH_TRY_ENDED,
                                         .tried = {.call = work->call,
                                                   .number = work->number,
                                                   .end = (enum mesh_end)work->end}});
}

static void
served(const struct work *work)
{
    nodes[work->node].served++;
    call_over(work->node, work->call, MESH_END_OK);
    step(work->node,
         (struct mesh_event){
             .kind = MESH_TRY_ENDED,
             .tried = {.call = work->call, .number = work->number, .end = MESH_END_OK}});
}

/* ---- etcd ---- */

static void
txn_arrives(const struct work *work)
{
    struct kept_txn *txn = work->txn;
    struct record *record = &records[txn->model];
    bool holds = record->revision == txn->compare && nodes[work->node].session == txn->session;
    figures.txns++;
    figures.txns_lost += !holds;
    struct record before = *record;
    if (holds) {
        record->used_ms = txn->record.used_ms;
        record->unloaded_ms = txn->record.unloaded_ms;
        record->count = txn->record.count;
        memcpy(record->places, txn->record.places, sizeof(record->places));
        record->revision = ++revision;
    }
    notify(work->node, txn->model);
    step(work->node, (struct mesh_event){.kind = MESH_TXN_ENDED,
                                         .txn = {txn->txn, holds ? MESH_TXN_OK : MESH_TXN_LOST}});
    for (uint32_t i = 0; holds && i < before.count; i++)
        if (before.places[i].node != work->node)
            notify(before.places[i].node, txn->model);
    free(txn);
}

static void
send_txn(uint32_t number, const struct mesh_txn *given)
{
    const struct mesh_model *model = &given->writes[0].model;
    CHECK(given->write_count == 1 && model->place_count <= PLACES_MAX);
    struct kept_txn *txn = calloc(1, sizeof(*txn));
    CHECK(txn != NULL);
    *txn = (struct kept_txn){.txn = given->txn,
                             .session = given->session,
                             .compare = given->writes[0].compare,
                             .model = number_of(model->id)};
    txn->record.used_ms = model->used_ms;
    txn->record.unloaded_ms = model->unloaded_ms;
    txn->record.count = model->place_count;
    for (uint32_t i = 0; i < model->place_count; i++)
        txn->record.places[i] = (struct kept_place){.since_ms = model->places[i].since_ms,
                                                    .node = number_of(model->places[i].instance),
                                                    .kind = model->places[i].kind};
    later(1,
          (struct work){.kind = WORK_TXN, .node = number, .life = nodes[number].life, .txn = txn});
}

/* ---- what a core says ---- */

static struct mesh_tried *
keep_tried(const struct mesh_tried *tried, uint32_t count)
{
    if (count == 0)
        return NULL;
    struct mesh_tried *kept = malloc(count * sizeof(*kept));
    CHECK(kept != NULL);
    for (uint32_t i = 0; i < count; i++) {
        kept[i] = tried[i];
        kept[i].instance = nodes[number_of(tried[i].instance)].name;
    }
    return kept;
}

static void
act_on_load(uint32_t number, const struct mesh_action *action)
{
    struct work work = {.node = number,
                        .life = nodes[number].life,
                        .model = number_of(action->load.model),
                        .value = action->load.ticket};
    uint32_t units = records[work.model].units;
    if (action->kind == MESH_DO_SIZE) {
        work.kind = WORK_SIZE;
        later(1, work);
        return;
    }
    bool loads = action->kind == MESH_DO_LOAD;
    figures.loads += loads;
    figures.unloads += !loads;
    figures.loaded_units += loads ? units : 0;
    work.kind = loads ? WORK_LOADED : WORK_UNLOADED;
    later(loads ? 500 + units : 100, work); /* 2 s for 12 MiB */
}

static void
act_on_attempt(uint32_t number, const struct mesh_action *action)
{
    struct work work = {.node = number,
                        .life = nodes[number].life,
                        .call = action->attempt.call,
                        .number = action->attempt.number,
                        .model = calls[number][action->attempt.call].model};
    if (action->kind == MESH_DO_SERVE) {
        work.kind = WORK_SERVED;
        later(0, work);
        return;
    }
    figures.forwards++;
    work.kind = WORK_HOP;
    work.sender = (struct sender){
        .node = number, .life = work.life, .call = work.call, .number = work.number};
    work.node = number_of(action->attempt.instance);
    work.hop = (uint8_t)action->attempt.hop;
    work.deadline_ms = action->attempt.deadline_ms;
    work.tried = keep_tried(action->attempt.tried, action->attempt.tried_count);
    work.tried_count = action->attempt.tried_count;
    later(0, work);
}

static void
carry_out(uint32_t number, struct mesh_actions actions)
{
    for (uint32_t i = 0; i < actions.count; i++) {
        const struct mesh_action *action = &actions.at[i];
        switch (action->kind) {
        case MESH_DO_TXN: send_txn(number, &action->txn); break;
        case MESH_DO_SERVE:
        case MESH_DO_FORWARD: act_on_attempt(number, action); break;
        case MESH_DO_ANSWER: call_over(number, action->answer.call, action->answer.end); break;
        case MESH_DO_ENSURE:
            later(0, (struct work){.kind = WORK_ENSURE,
                                   .node = number_of(action->ensure.instance),
                                   .life = UINT32_MAX,
                                   .model = number_of(action->ensure.model),
                                   .class = (uint8_t)action->ensure.class,
                                   .number = action->ensure.target,
                                   .value = action->ensure.size_bytes,
                                   .deadline_ms = action->ensure.used_ms});
            break;
        case MESH_DO_SIZE:
        case MESH_DO_LOAD:
        case MESH_DO_UNLOAD: act_on_load(number, action); break;
        case MESH_DO_DRAINED:
            figures.drains++;
            later(1000,
                  (struct work){.kind = WORK_STOP, .node = number, .life = nodes[number].life});
            break;
        case MESH_DO_OPEN:
        case MESH_DO_CLOSE:
        case MESH_DO_REPLY: break; /* nobody gives orders */
        }
    }
}

/* ---- nodes that come and go ---- */

static void
node_start(uint32_t number)
{
    struct node *node = &nodes[number];
    node->mesh = mesh_create(&(struct mesh_config){
        .instance = node->name,
        .seed = options.seed * 100000 + number,
        .models_max = options.models,
        .instances_max = options.nodes + 1,
        .calls_max = CALLS_MAX,
    });
    node->life++;
    node->draining = false;
    node->known_at = 0;
    node->call_top = 0;
    node->free_count = 0;
    node->start_ms = wall();
    node->session = ++revision;
    capacity_alive += capacity_units;
    step(number, (struct mesh_event){.kind = MESH_RUNTIME,
                                     .runtime = {.capacity_bytes = capacity_units * UNIT_BYTES,
                                                 .default_bytes = (uint64_t)MEAN_UNITS * UNIT_BYTES,
                                                 .loaders = LOADERS,
                                                 .load_timeout_ms = 90000}});
    for (uint32_t i = 0; i < options.nodes; i++)
        if (i != number && nodes[i].mesh != NULL)
            notify_instance(number, i);
    notify_all_of(number);
    step(number, (struct mesh_event){.kind = MESH_SESSION, .session = {node->session}});
    step(number, (struct mesh_event){.kind = MESH_WHOLE, .whole = {revision}});
    for (uint32_t m = 0; m < options.models; m++) /* what its former life has left */
        for (uint32_t i = 0; i < records[m].count; i++)
            if (records[m].places[i].node == number)
                notify(number, m);
    later(1 + (int64_t)draw(options.tick_s * UINT64_C(1000)),
          (struct work){.kind = WORK_TICK, .node = number, .life = node->life});
    later(1 + (int64_t)draw(options.figures_s * UINT64_C(1000)),
          (struct work){.kind = WORK_FIGURES, .node = number, .life = node->life});
}

/* Its calls die with it; clients count it as a failure, nodes try elsewhere. */
static void
node_stop(uint32_t number)
{
    struct node *node = &nodes[number];
    mesh_destroy(node->mesh);
    node->mesh = NULL;
    node->session = 0;
    capacity_alive -= capacity_units;
    bool *is_free = calloc(node->call_top + 1, sizeof(*is_free));
    CHECK(is_free != NULL);
    for (uint32_t i = 0; i < node->free_count; i++)
        is_free[node->free_calls[i]] = true;
    uint64_t gone = ++revision;
    for (uint32_t i = 0; i < options.nodes; i++)
        if (nodes[i].mesh != NULL)
            step(i, (struct mesh_event){.kind = MESH_INSTANCE_GONE, .gone = {node->name, gone}});
    for (uint32_t i = 0; i < node->call_top; i++)
        if (!is_free[i])
            call_over(number, i, MESH_END_UNREACHABLE);
    free(is_free);
    later(DOWN_MS, (struct work){.kind = WORK_START, .node = number, .life = UINT32_MAX});
}

/* Each minute: so many nodes die, and half as many are drained. */
static void
churn(void)
{
    uint64_t per_minute = (uint64_t)options.nodes * options.churn_percent;
    for (int drains = 0; drains < 2; drains++) {
        uint32_t number = (uint32_t)draw(options.nodes);
        if (draw(6000 << drains) >= per_minute || nodes[number].mesh == NULL ||
            nodes[number].draining)
            continue;
        if (drains == 0) {
            figures.kills++;
            node_stop(number);
            continue;
        }
        nodes[number].draining = true;
        notify_all_of(number);
        step(number, (struct mesh_event){.kind = MESH_DRAIN});
        later(GRACE_MS,
              (struct work){.kind = WORK_STOP, .node = number, .life = nodes[number].life});
    }
    later(60000, (struct work){.kind = WORK_CHURN, .life = UINT32_MAX});
}

/* ---- one thing after the other ---- */

static void
answer_of_runtime(const struct work *work)
{
    struct mesh_event event = {.loaded = {.ticket = work->value}};
    uint64_t bytes = (uint64_t)records[work->model].units * UNIT_BYTES;
    event.kind = work->kind == WORK_SIZE     ? MESH_SIZE_PREDICTED
                 : work->kind == WORK_LOADED ? MESH_LOAD_ENDED
                                             : MESH_UNLOAD_ENDED;
    event.loaded.size_bytes = work->kind == WORK_UNLOADED ? 0 : bytes;
    event.loaded.freed = true;
    step(work->node, event);
    if (work->kind == WORK_UNLOADED)
        keep_in_mind(work->node, work->model); /* it may be forgotten again */
}

static void
ensure(const struct work *work)
{
    if (nodes[work->node].mesh == NULL)
        return;
    notify(work->node, work->model);
    step(work->node, (struct mesh_event){.kind = MESH_ENSURE,
                                         .ensure = {.model = model_name(work->model),
                                                    .used_ms = work->deadline_ms,
                                                    .class = (enum mesh_class)work->class,
                                                    .where = MESH_HERE,
                                                    .target = work->number,
                                                    .size_bytes = work->value}});
}

static void
publish(struct work *work)
{
    for (uint32_t i = 0; i < options.nodes; i++) {
        if (nodes[i].mesh == NULL)
            continue;
        step(i, (struct mesh_event){.kind = MESH_INSTANCE_FIGURES,
                                    .figures = {nodes[work->node].name, nodes[work->node].start_ms,
                                                mesh_figures(nodes[work->node].mesh), NULL}});
    }
    later(options.figures_s * INT64_C(1000), *work);
}

static void
perform(struct work *work)
{
    bool is_there = work->life == UINT32_MAX ||
                    (nodes[work->node].mesh != NULL && nodes[work->node].life == work->life);
    switch ((enum work_kind)work->kind) {
    case WORK_CLIENT:
        client();
        later((int64_t)(figures.calls * 1000 / options.rate) - now_ms, *work);
        break;
    case WORK_HOP:
        begin(work->node, work);
        free(work->tried);
        break;
    case WORK_TXN:
        if (is_there)
            txn_arrives(work);
        else
            free(work->txn);
        break;
    case WORK_ENSURE: ensure(work); break;
    case WORK_CHURN: churn(); break;
    case WORK_START: node_start(work->node); break;
    default: break;
    }
    if (!is_there)
        return;
    switch ((enum work_kind)work->kind) {
    case WORK_SERVED: served(work); break;
    case WORK_ENDED: try_ended(work); break;
    case WORK_SIZE:
    case WORK_LOADED:
    case WORK_UNLOADED: answer_of_runtime(work); break;
    case WORK_TICK:
        step(work->node, (struct mesh_event){.kind = MESH_TICK});
        later(options.tick_s * INT64_C(1000), *work);
        break;
    case WORK_FIGURES: publish(work); break;
    case WORK_STOP: node_stop(work->node); break;
    default: break;
    }
}

/* ---- beginning ---- */

static void
read_options(int argc, char **argv)
{
    const struct {
        const char *name;
        uint32_t *value;
    } known[] = {
        {"--nodes", &options.nodes},
        {"--models", &options.models},
        {"--hours", &options.hours},
        {"--calls-per-second", &options.rate},
        {"--fit-percent", &options.fit_percent},
        {"--zipf-percent", &options.zipf_percent},
        {"--churn-percent-hour", &options.churn_percent},
        {"--figures-s", &options.figures_s},
        {"--tick-s", &options.tick_s},
        {"--minutes", &options.minutes},
        {"--seed", &options.seed},
    };
    for (int i = 1; i < argc; i++) {
        size_t at = 0;
        while (at < ARRAY_COUNT(known) && strcmp(argv[i], known[at].name) != 0)
            at++;
        if (at == ARRAY_COUNT(known) || i + 1 == argc) {
            fprintf(stderr, "scale: %s: not an option with a number; they stand in scale.c\n",
                    argv[i]);
            exit(2);
        }
        *known[at].value = (uint32_t)strtoul(argv[++i], NULL, 10);
    }
}

static void
start(void)
{
    random_state = options.seed;
    nodes = calloc(options.nodes, sizeof(*nodes));
    calls = calloc(options.nodes, sizeof(*calls));
    records = calloc(options.models, sizeof(*records));
    oracle = oracle_create(options.models);
    CHECK(nodes != NULL && calls != NULL && records != NULL);
    popularity = popularity_create(options.models, options.zipf_percent);
    uint64_t units = 0;
    for (uint32_t i = 0; i < options.models; i++) {
        records[i].create_revision = records[i].revision = 1;
        records[i].units = units_of(i);
        units += records[i].units;
    }
    capacity_units = units * options.fit_percent / 100 / options.nodes;
    printf("%u nodes, %u models of %.1f MiB, room for %u %% of them, zipf %.2f, %u calls /s, "
           "%u %% of the nodes killed an hour and half as many drained\n",
           options.nodes, options.models, (double)units / options.models * UNIT_BYTES / (1 << 20),
           options.fit_percent, options.zipf_percent / 100.0, options.rate, options.churn_percent);
    for (uint32_t i = 0; i < options.nodes; i++)
        snprintf(nodes[i].name, sizeof(nodes[i].name), "scale-%u", i); /* one generation (U1) */
    for (uint32_t i = 0; i < options.nodes; i++)
        node_start(i);
    later(1000, (struct work){.kind = WORK_CLIENT, .life = UINT32_MAX});
    later(60000, (struct work){.kind = WORK_CHURN, .life = UINT32_MAX});
}

int
main(int argc, char **argv)
{
    read_options(argc, argv);
    int64_t begin_ns = clock_now_ns();
    start();
    for (uint32_t hour = 1; hour <= options.hours; hour++) {
        int64_t until_ms = hour * INT64_C(3600000);
        while (heap[0].at_ms <= until_ms) {
            struct work work = take();
            now_ms = work.at_ms;
            perform(&work);
        }
        now_ms = until_ms;
        double seconds = (double)(clock_now_ns() - begin_ns) / 1e9;
        print_hour(hour, seconds);
        if (options.minutes != 0 && seconds > options.minutes * 60.0)
            break;
    }
    print_all();
    return 0;
}
