/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/models/holder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/catalog.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/workers/idle_class.h"
#include "coordinator/workers/seat.h"
#include "shm/doorbell.h"

/* One that is carried out, and one that is there when it is done. */
enum { ORDERS_SENT_MAX = 2 };

/* An order to the worker, in the list of those to be sent, or of those that were. */
struct order {
    struct order *prev, *next;
    enum handshake_model_event event;
    uint32_t number, life;
    struct holding *holding;       /* NULL: a prediction */
    struct prediction *prediction; /* NULL: none */
    struct handshake_model *word;  /* of a prediction: the model may be gone before it is sent */
};

struct holding {
    struct model *model;
    enum holding_state state;
    bool unwanted; /* HOLDING_LOADING: to be unloaded as soon as it is there */
    uint64_t bytes, mapped_bytes;
    struct order order; /* of TO_LOAD … UNLOADING, but HELD */
};

struct holder {
    struct catalog *catalog;
    struct seat *seat;
    struct loop_watch *watch;
    struct holding **holdings; /* by number */
    uint32_t room;
    struct order unsent, sent; /* heads of lists */
    uint32_t sent_count;
    int64_t head_since_ns;  /* since when it is at the oldest that was sent */
    struct idle_watch idle; /* since then */
    uint64_t leaked_bytes;
};

static void
list_init(struct order *list)
{
    list->prev = list->next = list;
}

static void
insert_before(struct order *at, struct order *order)
{
    order->prev = at->prev;
    order->next = at;
    at->prev->next = order;
    at->prev = order;
}

static void
take_out(struct order *order)
{
    order->prev->next = order->next;
    order->next->prev = order->prev;
}

static struct order *
take_first(struct order *list)
{
    struct order *order = list->next;
    list->next = order->next;
    order->next->prev = list;
    return order;
}

struct seat *
holder_seat(const struct holder *holder)
{
    return holder->seat;
}

/* ---- what it holds ---- */

static struct holding *
holding_of(const struct holder *holder, const struct model *model)
{
    return model->number < holder->room ? holder->holdings[model->number] : NULL;
}

enum holding_state
holder_state(const struct holder *holder, const struct model *model)
{
    const struct holding *holding = holding_of(holder, model);
    return holding == NULL ? HOLDING_NONE : holding->state;
}

uint64_t
holder_bytes(const struct holder *holder, const struct model *model, uint64_t *mapped_bytes)
{
    const struct holding *holding = holding_of(holder, model);
    *mapped_bytes = holding == NULL ? 0 : holding->mapped_bytes;
    return holding == NULL ? 0 : holding->bytes;
}

uint64_t
holder_leaked_bytes(const struct holder *holder)
{
    return holder->leaked_bytes;
}

static struct holding *
add_holding(struct holder *holder, struct model *model)
{
    if (model->number >= holder->room) {
        uint32_t room = holder->room == 0 ? 64 : holder->room;
        while (room <= model->number)
            room *= 2;
        holder->holdings = realloc(holder->holdings, room * sizeof(struct holding *));
        CHECK(holder->holdings != NULL);
        memset(holder->holdings + holder->room, 0,
               (room - holder->room) * sizeof(struct holding *));
        holder->room = room;
    }
    struct holding *holding = calloc(1, sizeof(*holding));
    CHECK(holding != NULL && holder->holdings[model->number] == NULL);
    holding->model = model;
    holder->holdings[model->number] = holding;
    model->holdings++;
    return holding;
}

static void
drop_holding(struct holder *holder, struct holding *holding)
{
    holder->holdings[holding->model->number] = NULL;
    holding->model->holdings--;
    free(holding);
}

/* ---- telling it ---- */

static void
fill_word(struct handshake_model *word, const struct order *order, const struct model *model)
{
    *word = (struct handshake_model){
        .header = {HANDSHAKE_VERSION, HANDSHAKE_MODEL, sizeof(*word), 0},
        .event = order->event,
        .number = order->number,
        .life = order->life,
    };
    snprintf(word->id, sizeof(word->id), "%s", model->id);
    snprintf(word->path, sizeof(word->path), "%s", model->source.path);
    snprintf(word->key, sizeof(word->key), "%s", model->source.key);
}

/* False: there is no room, or it is about to be seen dead. */
static bool
send_order(struct holder *holder, struct order *order)
{
    struct seat *seat = holder->seat;
    struct handshake_model *word = order->word;
    if (word == NULL) {
        word = malloc(sizeof(*word));
        CHECK(word != NULL);
        fill_word(word, order, order->holding->model);
    }
    struct error error = ERROR_NONE;
    enum status status = handshake_send(seat->process.models, word, sizeof(*word), &error);
    if (word != order->word)
        free(word);
    if (status != STATUS_OK)
        return false;
    struct shm_worker *worker =
        region_worker(&seat->roster->lane->region, seat->stage, seat->index);
    atomic_fetch_add(&worker->models_told, 1);
    /* else a thread of its own sleeps on the socket, and who runs need not wake up */
    if ((seat_staff(seat)->abilities & SHOAL_RUN_DURING_LOAD) == 0)
        doorbell_ring(&worker->bell);
    return true;
}

static void
begin_head(struct holder *holder)
{
    holder->head_since_ns = clock_now_ns();
    holder->idle = (struct idle_watch){.looked_ns = 0};
}

/* Sends what may be sent. What finds no room is sent after the next answer, or at the next tick of
 * the catalog. */
static void
pump(struct holder *holder)
{
    while (holder->sent_count < ORDERS_SENT_MAX && holder->unsent.next != &holder->unsent) {
        struct order *order = holder->unsent.next;
        if (!send_order(holder, order))
            return;
        take_out(order);
        if (holder->sent_count++ == 0)
            begin_head(holder);
        insert_before(&holder->sent, order);
        if (order->holding != NULL)
            order->holding->state =
                order->event == MODEL_LOAD ? HOLDING_LOADING : HOLDING_UNLOADING;
    }
}

static void
give_order(struct holder *holder, struct holding *holding, enum handshake_model_event event,
           enum shelf_demand demand)
{
    holding->state = event == MODEL_LOAD ? HOLDING_TO_LOAD : HOLDING_TO_UNLOAD;
    holding->order = (struct order){.event = event,
                                    .number = holding->model->number,
                                    .life = holding->model->life,
                                    .holding = holding};
    bool first = event == MODEL_UNLOAD || demand == SHELF_AWAITED;
    insert_before(first ? holder->unsent.next : &holder->unsent, &holding->order);
    pump(holder);
    catalog_arm(holder->catalog);
}

void
holder_load(struct holder *holder, struct model *model, enum shelf_demand demand)
{
    if (holding_of(holder, model) == NULL)
        give_order(holder, add_holding(holder, model), MODEL_LOAD, demand);
}

void
holder_hurry(struct holder *holder, const struct model *model)
{
    struct holding *holding = holding_of(holder, model);
    if (holding == NULL || holding->state != HOLDING_TO_LOAD)
        return;
    take_out(&holding->order);
    insert_before(holder->unsent.next, &holding->order);
}

void
holder_unload(struct holder *holder, struct model *model)
{
    struct holding *holding = holding_of(holder, model);
    if (holding == NULL)
        return;
    switch (holding->state) {
    case HOLDING_TO_LOAD:
        take_out(&holding->order);
        drop_holding(holder, holding);
        return;
    case HOLDING_LOADING: holding->unwanted = true; return;
    case HOLDING_HELD: give_order(holder, holding, MODEL_UNLOAD, SHELF_ORDERED); return;
    case HOLDING_NONE:
    case HOLDING_TO_UNLOAD:
    case HOLDING_UNLOADING: return;
    }
}

void
holder_predict(struct holder *holder, const struct model *model, struct prediction *prediction)
{
    struct order *order = calloc(1, sizeof(*order));
    CHECK(order != NULL);
    *order = (struct order){.event = MODEL_PREDICT,
                            .number = model->number,
                            .life = model->life,
                            .prediction = prediction};
    order->word = malloc(sizeof(*order->word));
    CHECK(order->word != NULL);
    fill_word(order->word, order, model);
    prediction->open++;
    insert_before(holder->unsent.next, order);
    pump(holder);
    catalog_arm(holder->catalog);
}

/* ---- what it says ---- */

static bool
answers(const struct order *order, const struct handshake_model_said *said)
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
end_prediction(struct order *order, uint64_t bytes)
{
    struct prediction *prediction = order->prediction;
    free(order->word);
    free(order);
    catalog_predicted(prediction, bytes);
}

static void
end_load(struct holder *holder, struct holding *holding, const struct handshake_model_said *said)
{
    struct model *model = holding->model;
    bool unwanted = holding->unwanted;
    if (said->event == MODEL_FAILED) {
        drop_holding(holder, holding);
        if (unwanted)
            catalog_on_unloaded(model, holder);
        else
            catalog_on_refused(model, holder, (enum status)said->status, said->text);
        return;
    }
    holding->state = HOLDING_HELD;
    holding->bytes = said->bytes;
    holding->mapped_bytes = said->mapped_bytes;
    if (unwanted)
        give_order(holder, holding, MODEL_UNLOAD, SHELF_ORDERED);
    else
        catalog_on_loaded(model, holder, said);
}

static void
hear(struct holder *holder, const struct handshake_model_said *said)
{
    struct order *order = take_first(&holder->sent);
    holder->sent_count--;
    begin_head(holder);
    struct holding *holding = order->holding;
    if (order->event == MODEL_PREDICT) {
        end_prediction(order, said->bytes);
    } else if (order->event == MODEL_LOAD) {
        end_load(holder, holding, said);
    } else {
        struct model *model = holding->model;
        holder->leaked_bytes = said->leaked_bytes;
        drop_holding(holder, holding);
        catalog_on_unloaded(model, holder);
    }
}

/* Takes one word; false: there is none, or it was nonsense. */
static bool
hear_one(struct holder *holder, bool *nonsense)
{
    struct handshake_model_said *said = malloc(sizeof(*said));
    CHECK(said != NULL);
    struct error error = ERROR_NONE;
    enum status status =
        handshake_receive(holder->seat->process.models, said, sizeof(*said), &error);
    bool closed = status == STATUS_UNAVAILABLE || status == STATUS_DEADLINE_EXCEEDED;
    if (status == STATUS_OK)
        status = handshake_model_said_validate(said, &error);
    if (status == STATUS_OK && (holder->sent_count == 0 || !answers(holder->sent.next, said)))
        status = error_set(&error, STATUS_INVALID_ARGUMENT,
                           "word %u of model %u, life %u: nobody has asked for it", said->event,
                           said->number, said->life);
    *nonsense = status != STATUS_OK && !closed;
    if (*nonsense)
        log_error("worker_lied pipeline=%s stage=%s worker=%u pid=%d error=\"%s\"",
                  holder->catalog->pipeline->name,
                  stage_config(holder->seat->roster, holder->seat->stage)->name,
                  holder->seat->index, (int)holder->seat->process.pid, error.text);
    if (status == STATUS_OK)
        hear(holder, said);
    free(said);
    if (status == STATUS_UNAVAILABLE && holder->watch != NULL) {
        loop_watch_remove(holder->watch); /* its death, which follows, says the rest */
        holder->watch = NULL;
    }
    return status == STATUS_OK;
}

static void
on_readable(void *context)
{
    struct holder *holder = context;
    bool nonsense;
    if (hear_one(holder, &nonsense)) {
        pump(holder);
        return;
    }
    if (!nonsense)
        return;
    loop_watch_remove(holder->watch);
    holder->watch = NULL;
    seat_kill(holder->seat, KILL_NONSENSE);
}

/* Looks whether a long load is starved of CPU. */
static void
look_after_load(struct holder *holder)
{
    const struct seat *seat = holder->seat;
    int64_t now_ns = clock_now_ns();
    if (holder->sent_count == 0 || now_ns - holder->head_since_ns < IDLE_LOOK_NS ||
        !idle_class_can_be_left() || !idle_watch_look(&holder->idle, seat->process.pid, now_ns))
        return;
    log_info_limited("load_starved pipeline=%s stage=%s worker=%u pid=%d ms=%lld",
                     holder->catalog->pipeline->name, stage_config(seat->roster, seat->stage)->name,
                     seat->index, (int)seat->process.pid,
                     (long long)((now_ns - holder->head_since_ns) / NS_PER_MS));
}

void
holder_go_on(struct holder *holder)
{
    look_after_load(holder);
    pump(holder);
}

bool
holder_is_busy(const struct holder *holder)
{
    return holder->sent_count > 0 || holder->unsent.next != &holder->unsent;
}

bool
holder_is_late(const struct holder *holder, int64_t since_ns, struct model **model, bool *loading)
{
    const struct order *head = holder->sent.next;
    if (holder->sent_count == 0 || holder->head_since_ns > since_ns)
        return false;
    const struct holding *holding = head->holding;
    *model = holding != NULL ? holding->model : head->prediction->model;
    *loading = holding != NULL && head->event == MODEL_LOAD && !holding->unwanted;
    return true;
}

/* ---- life ---- */

struct holder *
holder_open(struct catalog *catalog, struct seat *seat)
{
    struct holder *holder = calloc(1, sizeof(*holder));
    CHECK(holder != NULL);
    holder->catalog = catalog;
    holder->seat = seat;
    list_init(&holder->unsent);
    list_init(&holder->sent);
    holder->watch =
        loop_watch_add(catalog->pipeline->options.loop, seat->process.models, on_readable, holder);
    return holder;
}

bool
holder_last_words(struct holder *holder)
{
    bool nonsense;
    while (holder->watch != NULL && holder->sent_count > 0 && hear_one(holder, &nonsense))
        continue;
    return holder->sent_count > 0 && holder->sent.next->event != MODEL_UNLOAD;
}

void
holder_close(struct holder *holder)
{
    if (holder == NULL)
        return;
    loop_watch_remove(holder->watch);
    struct order *lists[] = {&holder->sent, &holder->unsent};
    for (size_t i = 0; i < ARRAY_COUNT(lists); i++)
        for (struct order *order = lists[i]->next, *next; order != lists[i]; order = next) {
            next = order->next;
            if (order->prediction != NULL)
                end_prediction(order, 0);
        }
    for (uint32_t i = 0; i < holder->room; i++) {
        if (holder->holdings[i] == NULL)
            continue;
        struct model *model = holder->holdings[i]->model;
        drop_holding(holder, holder->holdings[i]);
        catalog_on_unloaded(model, holder);
    }
    free(holder->holdings);
    free(holder);
}

bool
catalog_seat_is_busy(const struct seat *seat)
{
    return seat->holder != NULL && seat->holder->sent_count > 0;
}
