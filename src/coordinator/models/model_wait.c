/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests and their models. A request whose model is not loaded waits with its slot, decoded and
 * copied, in the model's list; so does one that came back from a worker that did not hold the
 * model.
 *
 * A waiting request is REQUEST_WAITING: the coordinator holds its slot, and an answer to it can
 * only be forged. The thread that takes it out of that state by a CAS answers it or sends it on:
 * the thread that fails a whole lane, or the loop thread. The list only shows the loop thread where
 * to look; the answering thread removes the request from it afterwards (model_end), with the lock.
 */
#include "base/clock.h"
#include "coordinator/models/model.h"
#include "coordinator/pipeline/pieces.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/raw_message.h"
#include "shm/former.h"
#include "shm/slot.h"

enum {
    RETURNS_MAX = 8,
    TURN_MAX = 64, /* taken from a list at a time */
};

/* The most requests of a lane that may wait for models. */
static uint32_t
waiting_max(const struct lane *lane)
{
    return lane->region.slots.count < 2 ? 1 : lane->region.slots.count / 2;
}

/* ---- the list; with the lock ---- */

static void
list_request(struct model *model, struct request *request)
{
    request->wait_next = NULL;
    request->wait_prev = model->waiting_last;
    if (model->waiting_last != NULL)
        model->waiting_last->wait_next = request;
    else
        model->waiting_first = request;
    model->waiting_last = request;
    request->listed = true;
    if (!model->swept) {
        model->swept = true;
        model->next_swept = model->catalog->swept;
        model->catalog->swept = model;
    }
    atomic_fetch_add_explicit(&model->catalog->waiting, 1, memory_order_relaxed);
}

static void
unlist_request(struct model *model, struct request *request)
{
    if (request->wait_prev != NULL)
        request->wait_prev->wait_next = request->wait_next;
    else
        model->waiting_first = request->wait_next;
    if (request->wait_next != NULL)
        request->wait_next->wait_prev = request->wait_prev;
    else
        model->waiting_last = request->wait_prev;
    request->listed = false;
    atomic_fetch_sub_explicit(&model->catalog->waiting, 1, memory_order_relaxed);
    lane_return_wait_place(request->lane);
}

/* ---- in ---- */

/* Returns whether the model has failed and is not tried again yet. Call with the lock. */
static bool
has_failed(const struct model *model, struct error *error)
{
    if (model->place.state != MODEL_IS_FAILED || clock_now_ns() >= model->retry_ns)
        return false;
    *error = model->error;
    return true;
}

static enum status
could_not_load(const struct model *model, struct error *error)
{
    return error_prefix(error, "model \"%s\" could not be loaded", model->id);
}

enum status
model_ask_info(struct model *model, struct error *error)
{
    registry_lock(model->registry);
    bool is_known = model->info != NULL;
    bool failed = !is_known && has_failed(model, error);
    bool is_due = !is_known && !failed && !model->registry->in_mesh; /* its core decides */
    if (is_due) {
        model->asked = true;
        catalog_attend(model);
    }
    registry_unlock(model->registry);
    if (failed)
        return could_not_load(model, error);
    return is_known ? STATUS_OK
                    : error_set(error, STATUS_UNAVAILABLE,
                                "model \"%s\" is being loaded: try again", model->name);
}

enum status
model_admit(struct lane *lane, struct model *model, enum wait_place *place, struct error *error)
{
    registry_lock(model->registry);
    enum model_state state = model->place.state;
    bool failed = has_failed(model, error);
    registry_unlock(model->registry);
    *place = WAIT_PLACE_NONE;
    if (failed)
        return could_not_load(model, error);
    if (state == MODEL_IS_LOADED)
        return STATUS_OK;
    counter_add_shared(lane->pipeline->counters, PIPELINE_MODEL_MISSES, 1);
    uint32_t waiting = atomic_fetch_add_explicit(&lane->models_waiting, 1, memory_order_relaxed);
    if (waiting < waiting_max(lane)) {
        *place = WAIT_PLACE_RESERVED;
        return STATUS_OK;
    }
    lane_return_wait_place(lane);
    return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                     "model \"%s\" is not loaded, and %u requests of pipeline \"%s\" wait for "
                     "models already",
                     model->id, waiting, lane->info.name);
}

bool
model_sends(struct request *request, struct shm_ticket ticket, enum wait_place place)
{
    struct lane *lane = request->lane;
    struct model *model = request->model;
    registry_lock(model->registry);
    bool sends = model->place.state == MODEL_IS_LOADED || request->sent;
    uint64_t word = model_word(model->number, model->life);
    if (sends) {
        model->sent += !request->sent;
        request->sent = true;
        if (place == WAIT_PLACE_RESERVED)
            lane_return_wait_place(lane);
    } else {
        if (place == WAIT_PLACE_NONE)
            atomic_fetch_add_explicit(&lane->models_waiting, 1, memory_order_relaxed);
        list_request(model, request);
        request->place = PLACE_FREE;
        request->wait_stage = 0;
        /* seq_cst: either lane_fail_all, after it has condemned the lane, sees this request, or the
         * check below sees that the lane is condemned */
        atomic_store(&request->use, request_use(ticket.generation, REQUEST_WAITING));
        catalog_attend(model); /* a wake, but only for a request that waits for a load anyway */
    }
    registry_unlock(model->registry);
    if (sends)
        atomic_store_explicit(&region_slot(&lane->region, ticket.index)->model, word,
                              memory_order_relaxed); /* published by the push that follows */
    else if (atomic_load(&lane->state) == LANE_CONDEMNED)
        lane_fail_all(lane, STATUS_UNAVAILABLE, "the pipeline is being rebuilt: try again");
    return sends;
}

/* ---- out ---- */

void
model_end(struct request *request, enum status status, int64_t took_ns)
{
    struct model *model = request->model;
    struct model_registry *registry = model->registry;
    registry_lock(registry);
    struct model_answers *answers = &model->answers;
    *(status == STATUS_OK ? &answers->good : &answers->failed) += 1;
    *(status == STATUS_OK ? &answers->good_ns : &answers->failed_ns) += (uint64_t)took_ns;
    request->model = NULL;
    if (request->listed)
        unlist_request(model, request);
    if (request->sent)
        model_drop_sent(model);
    request->sent = false;
    model_drop_user(model);
    registry_unlock(registry);
}

/* ---- on ---- */

/* Pushes a request that this thread holds to the stage that it waits for. */
static void
send_on(struct request *request, struct shm_ticket ticket, uint64_t word)
{
    struct lane *lane = request->lane;
    uint32_t stage = request->wait_stage;
    int64_t now_ns = clock_now_ns();
    uint8_t from = request->place;
    atomic_store_explicit(&region_slot(&lane->region, ticket.index)->model, word,
                          memory_order_relaxed);
    atomic_fetch_add_explicit(&lane->waiting, 1, memory_order_relaxed);
    atomic_store(&request->use, request_use(ticket.generation, REQUEST_IN_FLIGHT));
    bool pushed = slot_push(&lane->region, ticket, from, (uint8_t)stage, OWNER_COORDINATOR,
                            now_ns) == RING_OK;
    if (!pushed)
        lane_report_corrupt(lane, "slot of a request that waited for its model");
    if (atomic_load(&lane->state) == LANE_CONDEMNED) {
        lane_fail_all(lane, STATUS_UNAVAILABLE, "the pipeline is being rebuilt: try again");
        return;
    }
    if (!pushed)
        return; /* the thread that condemns the lane will answer it */
    stage_notify(&lane->region, stage);
    uint64_t dead_stages = atomic_load_explicit(&lane->dead_stages, memory_order_acquire);
    if (dead_stages & UINT64_C(1) << stage) {
        char text[OUTAGE_TEXT_BYTES];
        outage_describe(&lane->outage, stage, now_ns, text);
        lane_fail_stage(lane, stage, text);
    }
}

struct waiting {
    struct request *request;
    struct shm_ticket ticket;
    uint64_t word;
};

static struct waiting
waiting_of(const struct model *model, struct request *request)
{
    uint64_t use = atomic_load_explicit(&request->use, memory_order_relaxed);
    return (struct waiting){request,
                            {(uint32_t)(request - request->lane->requests), use_generation(use)},
                            model_word(model->number, model->life)};
}

/* Returns whether the request may go on in its lane. Call with the lock. */
static bool
may_go_on(const struct model *model, const struct request *request)
{
    uint32_t bit = UINT32_C(1) << request->lane->number;
    if (atomic_load(&request->lane->state) == LANE_CONDEMNED)
        return false;         /* it is being answered */
    if (request->returns > 0) /* a returned one only where no worker can return it again */
        return (model->held_in & bit) != 0 && request->sent;
    return model->place.state == MODEL_IS_LOADED && (model->usable_in & bit) != 0;
}

/* The model's inputs may be known only now. */
static enum status
check(const struct request *request, struct error *error)
{
    const struct lane *lane = request->lane;
    struct oip_model_info info = model_info(lane, request->model);
    if (!lane->takes_messages)
        return oip_check_model(request->oip, &info, error);
    struct wire_message length = {.bytes = request->message_bytes};
    return raw_message_check(&length, &info, error);
}

/* Sends a request on, or fails it. */
static void
check_and_send(const struct waiting *waiting)
{
    struct request *request = waiting->request;
    uint64_t waits = request_use(waiting->ticket.generation, REQUEST_WAITING);
    /* another thread may have answered it, and the slot may be in use again */
    if (!atomic_compare_exchange_strong(&request->use, &waits,
                                        request_use(waiting->ticket.generation, REQUEST_ADMITTED)))
        return;
    struct error error = ERROR_NONE;
    if (request->returns == 0 && check(request, &error) != STATUS_OK) {
        atomic_store(&request->use, waits);
        lane_fail_waiting(request, waiting->ticket.generation, error.status, error.text);
        return;
    }
    send_on(request, waiting->ticket, waiting->word);
}

void
model_release(struct model *model)
{
    struct waiting turn[TURN_MAX];
    uint32_t count;
    do {
        count = 0;
        registry_lock(model->registry);
        struct request *next;
        for (struct request *request = model->waiting_first; request != NULL && count < TURN_MAX;
             request = next) {
            next = request->wait_next;
            if (!may_go_on(model, request))
                continue;
            unlist_request(model, request);
            if (!request->sent)
                model->sent++;
            request->sent = true;
            turn[count++] = waiting_of(model, request);
        }
        registry_unlock(model->registry);
        for (uint32_t i = 0; i < count; i++)
            check_and_send(&turn[i]);
    } while (count == TURN_MAX);
}

void
model_came_back(struct request *request, struct shm_ticket ticket, uint32_t stage)
{
    struct lane *lane = request->lane;
    uint64_t waits = request_use(ticket.generation, REQUEST_WAITING);
    if (!pieces_leave(request, ticket.generation, REQUEST_ADMITTED)) {
        lane_report_corrupt(lane, "ticket of no request in flight");
        return;
    }
    struct model *model = request->model; /* not before: no other thread answers it now */
    atomic_fetch_sub_explicit(&lane->waiting, 1, memory_order_relaxed);
    counter_add_shared(lane->pipeline->counters, PIPELINE_MODEL_RETURNS, 1);
    request->place = PLACE_ERROR;
    request->wait_stage = (uint8_t)stage;
    request->returns++;
    struct error error = ERROR_NONE;
    registry_lock(model->registry);
    if (model->place.state == MODEL_IS_FAILED)
        error = model->error;
    bool on = error.status == STATUS_OK && (model->held_in >> lane->number & 1) != 0;
    uint64_t word = model_word(model->number, model->life);
    if (request->returns > RETURNS_MAX)
        error_set(&error, STATUS_UNAVAILABLE,
                  "model \"%s\": workers returned the request %d times, as they did not hold it",
                  model->id, RETURNS_MAX);
    bool fails = error.status != STATUS_OK;
    if (!fails && !on) {
        atomic_fetch_add_explicit(&lane->models_waiting, 1, memory_order_relaxed);
        list_request(model, request);
        atomic_store(&request->use, waits);
        catalog_attend(model);
    }
    registry_unlock(model->registry);
    if (fails) {
        atomic_store(&request->use, waits);
        lane_fail_waiting(request, ticket.generation, error.status, error.text);
    } else if (on) {
        send_on(request, ticket, word);
    } else if (atomic_load(&lane->state) == LANE_CONDEMNED) {
        lane_fail_all(lane, STATUS_UNAVAILABLE, "the pipeline is being rebuilt: try again");
    }
}

/* ---- requests that can no longer be served ---- */

enum waiting_kind { WAITING_ALL, WAITING_RETURNED };

static void
fail_waiting(struct model *model, enum waiting_kind kind, const struct lane *only,
             enum status status, const char *text)
{
    struct waiting turn[TURN_MAX];
    uint32_t count;
    status = model_status_for_callers(status);
    do {
        count = 0;
        registry_lock(model->registry);
        struct request *next;
        for (struct request *request = model->waiting_first; request != NULL && count < TURN_MAX;
             request = next) {
            next = request->wait_next;
            if ((only != NULL && request->lane != only) ||
                (kind == WAITING_RETURNED && request->returns == 0))
                continue;
            unlist_request(model, request);
            turn[count++] = waiting_of(model, request);
        }
        registry_unlock(model->registry);
        for (uint32_t i = 0; i < count; i++)
            lane_fail_waiting(turn[i].request, turn[i].ticket.generation, status, text);
    } while (count == TURN_MAX);
}

void
model_fail_waiting(struct model *model, const struct lane *only, enum status status,
                   const char *text)
{
    fail_waiting(model, WAITING_ALL, only, status, text);
}

void
model_fail_returned(struct model *model, enum status status, const char *text)
{
    fail_waiting(model, WAITING_RETURNED, NULL, status, text);
}

/* The reason why it can no longer be served; STATUS_OK: it may wait on. */
static enum status
futile(const struct waiting *waiting, int64_t now_ns, struct error *error)
{
    const struct request *request = waiting->request;
    struct lane *lane = request->lane;
    uint64_t dead_stages = atomic_load_explicit(&lane->dead_stages, memory_order_acquire);
    if (slot_cancelled(region_slot(&lane->region, waiting->ticket.index),
                       waiting->ticket.generation))
        return error_set(error, STATUS_CANCELLED, "the caller is gone");
    if (request->deadline_ns <= now_ns)
        return error_set(error, STATUS_DEADLINE_EXCEEDED,
                         "the deadline has passed while the model was being loaded");
    if (dead_stages == 0)
        return STATUS_OK;
    char text[OUTAGE_TEXT_BYTES];
    outage_describe(&lane->outage, (uint32_t)__builtin_ctzll(dead_stages), now_ns, text);
    return error_set(error, STATUS_UNAVAILABLE, "%s", text);
}

/* False: there is none. */
static bool
end_one_futile(struct model *model, int64_t now_ns)
{
    struct error error = ERROR_NONE;
    struct waiting waiting = {0};
    registry_lock(model->registry);
    struct request *request = model->waiting_first;
    for (; request != NULL; request = request->wait_next) {
        waiting = waiting_of(model, request);
        if (futile(&waiting, now_ns, &error) != STATUS_OK)
            break;
    }
    if (request != NULL)
        unlist_request(model, request);
    registry_unlock(model->registry);
    if (request == NULL)
        return false;
    lane_fail_waiting(request, waiting.ticket.generation, error.status, error.text);
    return true;
}

void
model_sweep(struct catalog *catalog, int64_t now_ns)
{
    registry_lock(catalog->registry);
    struct model *model = catalog->swept;
    catalog->swept = NULL;
    registry_unlock(catalog->registry);
    while (model != NULL) {
        struct model *next = model->next_swept;
        while (end_one_futile(model, now_ns))
            continue;
        registry_lock(catalog->registry);
        model->swept = model->waiting_first != NULL;
        if (model->swept) {
            model->next_swept = catalog->swept;
            catalog->swept = model;
        } else {
            model_free_unused(model);
        }
        registry_unlock(catalog->registry);
        model = next;
    }
}
