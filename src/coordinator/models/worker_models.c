/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/worker_models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/idle_class.h"
#include "coordinator/workers/pool_member.h"
#include "shm/doorbell.h"

/* One that is carried out, and one that follows it. */
enum { ORDERS_SENT_MAX = 2 };

/* An order to the worker, in the list of unsent or of sent ones. */
struct worker_order {
    struct worker_order *prev, *next;
    enum handshake_model_event event;
    uint32_t number, life;
    struct holding *holding;       /* NULL: a prediction */
    struct prediction *prediction; /* NULL: none */
    struct handshake_model *word;  /* of a prediction: the model may be gone before it is sent */
};

struct holding {
    struct model *model;
    enum holding_state state;
    bool unwanted; /* HOLDING_LOADING: to be unloaded as soon as it is loaded */
    uint64_t bytes, mapped_bytes;
    struct worker_order order; /* of the holdings TO_LOAD … UNLOADING, except HELD */
};

struct worker_models {
    struct catalog *catalog;
    struct pool_member *member;
    struct loop_watch *watch;
    struct holding **holdings; /* by number */
    uint32_t room;
    struct worker_order unsent, sent; /* heads of lists */
    uint32_t sent_count;
    int64_t head_since_ns;  /* since when the worker is busy with the oldest sent order */
    struct idle_watch idle; /* at that time */
    uint64_t leaked_bytes;
};

static void
list_init(struct worker_order *list)
{
    list->prev = list->next = list;
}

static void
insert_before(struct worker_order *at, struct worker_order *order)
{
    order->prev = at->prev;
    order->next = at;
    at->prev->next = order;
    at->prev = order;
}

static void
take_out(struct worker_order *order)
{
    order->prev->next = order->next;
    order->next->prev = order->prev;
}

static struct worker_order *
take_first(struct worker_order *list)
{
    struct worker_order *order = list->next;
    list->next = order->next;
    order->next->prev = list;
    return order;
}

struct pool_member *
worker_models_member(const struct worker_models *worker_models)
{
    return worker_models->member;
}

/* ---- models held ---- */

static struct holding *
holding_of(const struct worker_models *worker_models, const struct model *model)
{
    return model->number < worker_models->room ? worker_models->holdings[model->number] : NULL;
}

enum holding_state
worker_models_state(const struct worker_models *worker_models, const struct model *model)
{
    const struct holding *holding = holding_of(worker_models, model);
    return holding == NULL ? HOLDING_NONE : holding->state;
}

uint64_t
worker_models_bytes(const struct worker_models *worker_models, const struct model *model,
                    uint64_t *mapped_bytes)
{
    const struct holding *holding = holding_of(worker_models, model);
    *mapped_bytes = holding == NULL ? 0 : holding->mapped_bytes;
    return holding == NULL ? 0 : holding->bytes;
}

uint64_t
worker_models_leaked_bytes(const struct worker_models *worker_models)
{
    return worker_models->leaked_bytes;
}

static struct holding *
add_holding(struct worker_models *worker_models, struct model *model)
{
    if (model->number >= worker_models->room) {
        uint32_t room = worker_models->room == 0 ? 64 : worker_models->room;
        while (room <= model->number)
            room *= 2;
        worker_models->holdings = realloc(worker_models->holdings, room * sizeof(struct holding *));
        CHECK(worker_models->holdings != NULL);
        memset(worker_models->holdings + worker_models->room, 0,
               (room - worker_models->room) * sizeof(struct holding *));
        worker_models->room = room;
    }
    struct holding *holding = calloc(1, sizeof(*holding));
    CHECK(holding != NULL && worker_models->holdings[model->number] == NULL);
    holding->model = model;
    worker_models->holdings[model->number] = holding;
    model->holdings++;
    return holding;
}

static void
drop_holding(struct worker_models *worker_models, struct holding *holding)
{
    CHECK(worker_models->holdings[holding->model->number] == holding &&
          holding->model->holdings > 0);
    worker_models->holdings[holding->model->number] = NULL;
    holding->model->holdings--;
    free(holding);
}

/* ---- telling it ---- */

static void
fill_word(struct handshake_model *word, const struct worker_order *order, const struct model *model)
{
    *word = (struct handshake_model){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_MODEL, sizeof(*word), 0},
        .event = order->event,
        .number = order->number,
        .life = order->life,
    };
    snprintf(word->id, sizeof(word->id), "%s", model->id);
    snprintf(word->path, sizeof(word->path), "%s",
             model->fetched != NULL ? model->fetched : model->source.path);
    snprintf(word->key, sizeof(word->key), "%s", model->source.key);
}

/* False: the socket is full, or the worker is about to be seen dead. */
static bool
send_order(struct worker_models *worker_models, struct worker_order *order)
{
    struct pool_member *member = worker_models->member;
    struct handshake_model *word = order->word;
    if (word == NULL) {
        word = malloc(sizeof(*word));
        CHECK(word != NULL);
        fill_word(word, order, order->holding->model);
    }
    struct error error = ERROR_NONE;
    enum status status = handshake_send(member->process.models, word, sizeof(*word), &error);
    if (word != order->word)
        free(word);
    if (status != STATUS_OK)
        return false;
    struct shm_worker *worker =
        region_worker(&member->pools->lane->region, member->stage, member->index);
    atomic_fetch_add(&worker->models_reported, 1);
    /* otherwise a thread of its own sleeps on the socket, and the running one need not wake up */
    if ((member_pool(member)->abilities & SHOAL_RUN_DURING_LOAD) == 0)
        doorbell_ring(&worker->bell);
    return true;
}

static void
begin_head(struct worker_models *worker_models)
{
    worker_models->head_since_ns = clock_now_ns();
    worker_models->idle = (struct idle_watch){.looked_ns = 0};
}

/* Sends orders within the limit. Those that find the socket full are sent after the next answer, or
 * at the catalog's next tick. */
static void
pump(struct worker_models *worker_models)
{
    while (worker_models->sent_count < ORDERS_SENT_MAX &&
           worker_models->unsent.next != &worker_models->unsent) {
        struct worker_order *order = worker_models->unsent.next;
        if (!send_order(worker_models, order))
            return;
        take_out(order);
        if (worker_models->sent_count++ == 0)
            begin_head(worker_models);
        insert_before(&worker_models->sent, order);
        if (order->holding != NULL)
            order->holding->state =
                order->event == MODEL_LOAD ? HOLDING_LOADING : HOLDING_UNLOADING;
    }
}

static void
give_order(struct worker_models *worker_models, struct holding *holding,
           enum handshake_model_event event, enum model_cache_demand demand)
{
    holding->state = event == MODEL_LOAD ? HOLDING_TO_LOAD : HOLDING_TO_UNLOAD;
    holding->order = (struct worker_order){.event = event,
                                           .number = holding->model->number,
                                           .life = holding->model->life,
                                           .holding = holding};
    bool first = event == MODEL_UNLOAD || demand == MODEL_CACHE_AWAITED;
    insert_before(first ? worker_models->unsent.next : &worker_models->unsent, &holding->order);
    pump(worker_models);
    catalog_arm(worker_models->catalog);
}

void
worker_models_load(struct worker_models *worker_models, struct model *model,
                   enum model_cache_demand demand)
{
    if (holding_of(worker_models, model) == NULL)
        give_order(worker_models, add_holding(worker_models, model), MODEL_LOAD, demand);
}

void
worker_models_hurry(struct worker_models *worker_models, const struct model *model)
{
    struct holding *holding = holding_of(worker_models, model);
    if (holding == NULL || holding->state != HOLDING_TO_LOAD)
        return;
    take_out(&holding->order);
    insert_before(worker_models->unsent.next, &holding->order);
}

void
worker_models_unload(struct worker_models *worker_models, struct model *model)
{
    struct holding *holding = holding_of(worker_models, model);
    if (holding == NULL)
        return;
    switch (holding->state) {
    case HOLDING_TO_LOAD:
        take_out(&holding->order);
        drop_holding(worker_models, holding);
        return;
    case HOLDING_LOADING: holding->unwanted = true; return;
    case HOLDING_HELD:
        give_order(worker_models, holding, MODEL_UNLOAD, MODEL_CACHE_ORDERED);
        return;
    case HOLDING_NONE:
    case HOLDING_TO_UNLOAD:
    case HOLDING_UNLOADING: return;
    }
}

void
worker_models_predict(struct worker_models *worker_models, const struct model *model,
                      struct prediction *prediction)
{
    struct worker_order *order = calloc(1, sizeof(*order));
    CHECK(order != NULL);
    *order = (struct worker_order){.event = MODEL_PREDICT,
                                   .number = model->number,
                                   .life = model->life,
                                   .prediction = prediction};
    order->word = malloc(sizeof(*order->word));
    CHECK(order->word != NULL);
    fill_word(order->word, order, model);
    prediction->open++;
    insert_before(worker_models->unsent.next, order);
    pump(worker_models);
    catalog_arm(worker_models->catalog);
}

/* ---- its messages ---- */

static bool
answers(const struct worker_order *order, const struct handshake_model_said *said)
{
    if (said->number != order->number || said->life != order->life)
        return false;
    switch (order->event) {
    case MODEL_LOAD: return said->event == MODEL_LOADED || said->event == MODEL_FAILED;
    case MODEL_UNLOAD: return said->event == MODEL_UNLOADED;
    case MODEL_PREDICT: return said->event == MODEL_PREDICTED;
    default: return false;
    }
}

static void
end_prediction(struct worker_order *order, uint64_t bytes)
{
    struct prediction *prediction = order->prediction;
    free(order->word);
    free(order);
    catalog_predicted(prediction, bytes);
}

static void
end_load(struct worker_models *worker_models, struct holding *holding,
         const struct handshake_model_said *said)
{
    struct model *model = holding->model;
    bool unwanted = holding->unwanted;
    if (said->event == MODEL_FAILED) {
        drop_holding(worker_models, holding);
        if (unwanted)
            catalog_on_unloaded(model, worker_models);
        else
            catalog_on_refused(model, worker_models, (enum status)said->status, said->text);
        return;
    }
    holding->state = HOLDING_HELD;
    holding->bytes = said->bytes;
    holding->mapped_bytes = said->mapped_bytes;
    if (unwanted)
        give_order(worker_models, holding, MODEL_UNLOAD, MODEL_CACHE_ORDERED);
    else
        catalog_on_loaded(model, worker_models, said);
}

static void
take_said(struct worker_models *worker_models, const struct handshake_model_said *said)
{
    CHECK(worker_models->sent_count > 0 && worker_models->sent_count <= ORDERS_SENT_MAX);
    struct worker_order *order = take_first(&worker_models->sent);
    worker_models->sent_count--;
    begin_head(worker_models);
    struct holding *holding = order->holding;
    if (order->event == MODEL_PREDICT) {
        end_prediction(order, said->bytes);
    } else if (order->event == MODEL_LOAD) {
        end_load(worker_models, holding, said);
    } else {
        struct model *model = holding->model;
        worker_models->leaked_bytes = said->leaked_bytes;
        drop_holding(worker_models, holding);
        catalog_on_unloaded(model, worker_models);
    }
}

/* Takes one answer; false: there is none, or it was nonsense. */
static bool
receive_one(struct worker_models *worker_models, bool *nonsense)
{
    struct handshake_model_said *said = malloc(sizeof(*said));
    CHECK(said != NULL);
    struct error error = ERROR_NONE;
    enum status status =
        handshake_receive(worker_models->member->process.models, said, sizeof(*said), &error);
    bool closed = status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED;
    if (status == STATUS_OK)
        status = handshake_model_said_validate(said, &error);
    if (status == STATUS_OK &&
        (worker_models->sent_count == 0 || !answers(worker_models->sent.next, said)))
        status = error_set(&error, STATUS_INVALID_ARGUMENT,
                           "word %u of model %u, life %u: no order asked for it", said->event,
                           said->number, said->life);
    *nonsense = status != STATUS_OK && !closed;
    if (*nonsense)
        log_error("worker_lied pipeline=%s stage=%s worker=%u pid=%d error=\"%s\"",
                  worker_models->catalog->pipeline->name,
                  stage_config(worker_models->member->pools, worker_models->member->stage)->name,
                  worker_models->member->index, (int)worker_models->member->process.pid,
                  error.text);
    if (status == STATUS_OK)
        take_said(worker_models, said);
    free(said);
    if (status == STATUS_UNAVAILABLE && worker_models->watch != NULL) {
        loop_watch_remove(worker_models->watch); /* its death, which follows, says the rest */
        worker_models->watch = NULL;
    }
    return status == STATUS_OK;
}

static void
on_readable(void *context)
{
    struct worker_models *worker_models = context;
    bool nonsense;
    if (receive_one(worker_models, &nonsense)) {
        pump(worker_models);
        return;
    }
    if (!nonsense)
        return;
    loop_watch_remove(worker_models->watch);
    worker_models->watch = NULL;
    pool_member_kill(worker_models->member, KILL_NONSENSE);
}

/* Looks whether a long load is starved of CPU. */
static void
look_after_load(struct worker_models *worker_models)
{
    const struct pool_member *member = worker_models->member;
    int64_t now_ns = clock_now_ns();
    if (worker_models->sent_count == 0 || now_ns - worker_models->head_since_ns < IDLE_LOOK_NS ||
        !idle_class_can_be_left() ||
        !idle_watch_look(&worker_models->idle, member->process.pid, now_ns))
        return;
    log_info_limited("load_starved pipeline=%s stage=%s worker=%u pid=%d ms=%lld",
                     worker_models->catalog->pipeline->name,
                     stage_config(member->pools, member->stage)->name, member->index,
                     (int)member->process.pid,
                     (long long)((now_ns - worker_models->head_since_ns) / NS_PER_MS));
}

void
worker_models_go_on(struct worker_models *worker_models)
{
    look_after_load(worker_models);
    pump(worker_models);
}

bool
worker_models_is_busy(const struct worker_models *worker_models)
{
    return worker_models->sent_count > 0 || worker_models->unsent.next != &worker_models->unsent;
}

bool
worker_models_is_late(const struct worker_models *worker_models, int64_t since_ns,
                      struct model **model, bool *loading)
{
    const struct worker_order *head = worker_models->sent.next;
    if (worker_models->sent_count == 0 || worker_models->head_since_ns > since_ns)
        return false;
    const struct holding *holding = head->holding;
    *model = holding != NULL ? holding->model : head->prediction->model;
    *loading = holding != NULL && head->event == MODEL_LOAD && !holding->unwanted;
    return true;
}

/* ---- life ---- */

struct worker_models *
worker_models_open(struct catalog *catalog, struct pool_member *member)
{
    struct worker_models *worker_models = calloc(1, sizeof(*worker_models));
    CHECK(worker_models != NULL);
    worker_models->catalog = catalog;
    worker_models->member = member;
    list_init(&worker_models->unsent);
    list_init(&worker_models->sent);
    worker_models->watch = loop_watch_add(catalog->pipeline->options.loop, member->process.models,
                                          on_readable, worker_models);
    return worker_models;
}

bool
worker_models_last_words(struct worker_models *worker_models)
{
    bool nonsense;
    while (worker_models->watch != NULL && worker_models->sent_count > 0 &&
           receive_one(worker_models, &nonsense))
        continue;
    return worker_models->sent_count > 0 && worker_models->sent.next->event != MODEL_UNLOAD;
}

void
worker_models_close(struct worker_models *worker_models)
{
    if (worker_models == NULL)
        return;
    loop_watch_remove(worker_models->watch);
    struct worker_order *lists[] = {&worker_models->sent, &worker_models->unsent};
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
        for (struct worker_order *order = lists[i]->next, *next; order != lists[i]; order = next) {
            next = order->next;
            if (order->prediction != NULL)
                end_prediction(order, 0);
        }
    for (uint32_t i = 0; i < worker_models->room; i++) {
        if (worker_models->holdings[i] == NULL)
            continue;
        struct model *model = worker_models->holdings[i]->model;
        drop_holding(worker_models, worker_models->holdings[i]);
        catalog_on_unloaded(model, worker_models);
    }
    free(worker_models->holdings);
    free(worker_models);
}

bool
catalog_worker_is_busy(const struct pool_member *member)
{
    return member->worker_models != NULL && member->worker_models->sent_count > 0;
}
