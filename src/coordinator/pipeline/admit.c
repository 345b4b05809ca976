/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way in: a request that can be answered in time gets a slot, is decoded and checked, its
 * tensors are copied into the arena, and its ticket goes into the first stage's ring. Everything
 * happens on the thread that submits, without a lock, and without an allocation once a slot's
 * memory has grown to what requests need.
 */
#include <string.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pieces.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/trace_request.h"
#include "coordinator/protocol/raw_message.h"
#include "coordinator/protocol/shared_memory.h"
#include "shm/former.h"
#include "shm/slot.h"

static enum status
corrupt(struct lane *lane, const char *what, struct error *error)
{
    lane_report_corrupt(lane, what);
    return error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\" is being rebuilt: try again",
                     lane->info.name);
}

static const struct pipeline_models *
models_of(const struct lane *lane)
{
    return lane->pipeline->options.models;
}

/* ---- admission ---- */

/* The life of a forecast: much longer than it takes to make one, much shorter than any queue that
 * matters. The submitting thread renews it, so an idle node makes none. */
#define FORECAST_NS (20 * (int64_t)NS_PER_MS)

static struct forecast_words
words_of(const struct shm_worker *worker)
{
    return (struct forecast_words){
        .ran_ns = atomic_load_explicit(&worker->ran_ns, memory_order_acquire),
        .fixed_ns = atomic_load_explicit(&worker->cost_fixed_ns, memory_order_relaxed),
        .item_ns = atomic_load_explicit(&worker->cost_item_ns, memory_order_relaxed),
        .spread_ns = atomic_load_explicit(&worker->cost_spread_ns, memory_order_relaxed),
        .began_ns = (int64_t)atomic_load_explicit(&worker->run_began_ns, memory_order_relaxed),
    };
}

static struct forecast
make_forecast(const struct lane *lane, int64_t now_ns)
{
    const struct config_pipeline *config = lane->generation->config;
    struct forecast forecast = {0};
    for (uint32_t i = 0; i < config->stage_count; i++) {
        struct forecast_stage stage = {.batch_size = config->stages[i].batch_size};
        for (uint32_t k = 0; k < config->stages[i].worker_count; k++) {
            const struct shm_worker *worker = region_worker(&lane->region, i, k);
            if (atomic_load_explicit(&worker->owner, memory_order_relaxed) == OWNER_NONE)
                continue;
            struct forecast_words words = words_of(worker);
            stage.live++;
            forecast_receive(&stage, &words, now_ns);
        }
        forecast_add(&forecast, &stage);
    }
    return forecast;
}

/* The lane's forecast, renewed if it is old; other threads use the old one meanwhile. */
static struct forecast
current_forecast(struct lane *lane, int64_t now_ns)
{
    int64_t foreseen_ns = atomic_load_explicit(&lane->foreseen_ns, memory_order_relaxed);
    int64_t words[FORECAST_WORDS];
    struct forecast forecast;
    if (now_ns - foreseen_ns >= FORECAST_NS &&
        atomic_compare_exchange_strong_explicit(&lane->foreseen_ns, &foreseen_ns, now_ns,
                                                memory_order_relaxed, memory_order_relaxed)) {
        forecast = make_forecast(lane, now_ns);
        memcpy(words, &forecast, sizeof(words));
        for (uint32_t i = 0; i < FORECAST_WORDS; i++)
            atomic_store_explicit(&lane->forecast[i], words[i], memory_order_relaxed);
        _Atomic uint64_t *counters = lane->pipeline->counters;
        counter_set(counters, PIPELINE_FORECAST_BASE, (uint64_t)forecast_take_ns(&forecast, 0));
        counter_set(counters, PIPELINE_FORECAST_ITEM, (uint64_t)forecast.item_ns);
        return forecast;
    }
    for (uint32_t i = 0; i < FORECAST_WORDS; i++)
        words[i] = atomic_load_explicit(&lane->forecast[i], memory_order_relaxed);
    memcpy(&forecast, words, sizeof(forecast));
    return forecast;
}

/* The time that an answer may take: until the deadline, or the pipeline's limit if that is less. */
static int64_t
limit_of(const struct lane *lane, int64_t deadline_ns, int64_t now_ns)
{
    int64_t queue_limit_ns = lane->generation->config->queue_limit_ns;
    int64_t left_ns = deadline_ns == TIME_NEVER_NS ? TIME_NEVER_NS : deadline_ns - now_ns;
    return queue_limit_ns > 0 && queue_limit_ns < left_ns ? queue_limit_ns : left_ns;
}

static enum status
turn_away(struct lane *lane, struct submission *submission, const struct forecast_demand *demand,
          const struct judgement *judgement, struct error *error)
{
    static const enum counter counters[] = {
        [VERDICT_LATE] = PIPELINE_REJECTED_PREDICTED,
        [VERDICT_FULL] = PIPELINE_REJECTED_FULL,
        [VERDICT_SHARE] = PIPELINE_REJECTED_SHARE,
    };
    submission->rejected = counters[judgement->verdict];
    submission->retry_ms = judgement->retry_ms;
    submission->lacks = judgement->verdict == VERDICT_LATE ? LACKS_NOTHING : LACKS_SHARE;
    const char *name = lane->info.name;
    switch (judgement->verdict) {
    case VERDICT_LATE:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\": an answer would take about %lld ms; of the %lld ms that "
                         "are left, %lld ms are open to a request like this; retry in %u ms",
                         name, (long long)(judgement->take_ns / NS_PER_MS),
                         (long long)(demand->limit_ns / NS_PER_MS),
                         (long long)(judgement->open_ns / NS_PER_MS), judgement->retry_ms);
    case VERDICT_FULL:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\" is full: %u of %u slots are in flight, the others are "
                         "kept for requests of higher priority and for other callers; retry in "
                         "%u ms",
                         name, demand->held, demand->slots, judgement->retry_ms);
    case VERDICT_SHARE:
        return error_set(error, STATUS_RESOURCE_EXHAUSTED,
                         "pipeline \"%s\": the caller has its fair share in flight, %u requests; "
                         "%u callers share it; retry in %u ms",
                         name, demand->own_held, demand->callers, judgement->retry_ms);
    case VERDICT_ADMIT: break;
    }
    UNREACHABLE();
}

/* Refuses a request that would not be answered in time or would keep others from being. */
static enum status
let_in(struct lane *lane, struct submission *submission, int64_t now_ns, struct error *error)
{
    uint32_t place = share_place(submission->caller);
    struct forecast forecast = current_forecast(lane, now_ns);
    struct forecast_demand demand = {
        .priority = submission->priority,
        .limit_ns = limit_of(lane, submission->deadline_ns, now_ns),
        .waiting = atomic_load_explicit(&lane->waiting, memory_order_relaxed),
        .at_once = lane->generation->config->stages[0].worker_count,
        .held = share_total(&lane->share),
        .slots = lane->region.slots.count,
        .own_held = share_held(&lane->share, place),
        .callers = share_callers(&lane->share, place),
    };
    struct judgement judgement = forecast_judge(&forecast, &demand);
    if (judgement.verdict == VERDICT_ADMIT)
        return STATUS_OK;
    return turn_away(lane, submission, &demand, &judgement, error);
}

/* ---- slots ---- */

/* Takes a slot and its private request; NULL with the refusal in `error`. */
static struct request *
take_slot(struct lane *lane, struct shm_ticket *ticket, struct error *error)
{
    switch (slot_acquire(&lane->region, OWNER_COORDINATOR, ticket)) {
    case RING_OK: break;
    case RING_EMPTY:
        (void)error_set(error, STATUS_RESOURCE_EXHAUSTED,
                        "pipeline \"%s\" is full: all %u slots are in flight", lane->info.name,
                        lane->region.slots.count);
        return NULL;
    case RING_LOST: /* Losing that often proves that somebody fills it with stale cells as fast as
                       we read. */
    case RING_CORRUPT: (void)corrupt(lane, "free ring", error); return NULL;
    }
    struct request *request = &lane->requests[ticket->index];
    uint64_t use = atomic_load_explicit(&request->use, memory_order_relaxed);
    uint32_t expected = generation_next(use_generation(use));
    /* A worker may have faked a free slot; the private word knows which are in flight. */
    if (use_state(use) != REQUEST_NONE || ticket->generation != expected ||
        !atomic_compare_exchange_strong_explicit(&request->use, &use,
                                                 request_use(expected, REQUEST_ADMITTED),
                                                 memory_order_acquire, memory_order_relaxed)) {
        (void)corrupt(lane, "free slot", error);
        return NULL;
    }
    return request;
}

static void
give_slot_back(struct lane *lane, struct request *request, struct shm_ticket ticket)
{
    atomic_store_explicit(&request->use, request_use(ticket.generation, REQUEST_NONE),
                          memory_order_release);
    if (slot_release(&lane->region, ticket, PLACE_FREE, OWNER_COORDINATOR) != STATUS_OK)
        lane_report_corrupt(lane, "slot that was never pushed");
}

static enum status
read_message(struct lane *lane, struct request *request, const struct submission *submission,
             const struct oip_model_info *model, struct error *error)
{
    const struct wire_message *message = submission->message;
    struct oip_request *oip = submission->decoded;
    if (lane->takes_messages)
        return raw_message_check(message, model, error);
    enum status status = oip != NULL ? oip_validate(oip, message, error)
                                     : oip_decode(oip = request->oip, message, error);
    if (status == STATUS_OK)
        status = oip_check_model(oip, model, error);
    if (status == STATUS_OK && submission->is_far && oip_is_shared(oip))
        return shared_memory_refuse_far(error);
    struct shared_memory *memory = lane->pipeline->options.shared_memory;
    return status == STATUS_OK ? oip_hold_shared(oip, memory, error) : status;
}

static struct oip_request *
decoded_of(struct request *request, const struct submission *submission)
{
    return submission->decoded != NULL ? submission->decoded : request->oip;
}

static enum status
copy_message(struct lane *lane, struct request *request, const struct submission *submission,
             struct error *error)
{
    const struct wire_message *message = submission->message;
    struct payload_builder *builder = submission->builder;
    struct oip_request *oip = decoded_of(request, submission);
    if (lane->takes_messages)
        return raw_message_copy(message, builder, error);
    enum status status = builder_reserve(builder, oip_tensor_bytes(oip), error);
    return status == STATUS_OK ? oip_copy_tensors(oip, message, builder, error) : status;
}

/* Decodes, checks and copies; completes the payload for stage 0. */
static enum status
fill_slot(struct lane *lane, struct request *request, struct shm_ticket ticket,
          struct submission *submission, struct error *error)
{
    struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    struct payload_builder *builder = submission->builder;
    struct oip_model_info info =
        submission->model == NULL ? lane->info : models_of(lane)->info(lane, submission->model);
    enum status status = read_message(lane, request, submission, &info, error);
    if (status != STATUS_OK)
        return status;
    builder_init(builder, &lane->region, ticket.index, OWNER_COORDINATOR, NULL, NULL);
    status = copy_message(lane, request, submission, error);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        submission->lacks = LACKS_ROOM;
    if (status == STATUS_OK)
        status = builder_seal(builder, &slot->payload[0], error);
    if (status != STATUS_OK)
        builder_abandon(builder, &slot->payload[0]);
    if (status == STATUS_DATA_LOSS)
        return corrupt(lane, error->text, error);
    return status;
}

/* ---- in ---- */

static void
dispatch(struct lane *lane, struct request *request, struct shm_ticket ticket,
         enum wait_place wait_place, int64_t now_ns)
{
    struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    atomic_store_explicit(&slot->deadline_ns, request->deadline_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->admitted_ns, now_ns, memory_order_relaxed);
    if (suspects_have(&lane->suspects, request->caller, now_ns)) {
        counter_add_shared(lane->pipeline->counters, PIPELINE_SUSPECTED, 1);
        slot_run_alone(&lane->region, ticket);
    }
    if (request->sink->tagged != NULL)
        request->sink->tagged(request->call, tag_pack(lane->pipeline->index, lane->number, ticket));
    if (request->model != NULL && !models_of(lane)->sends(request, ticket, wait_place))
        return; /* it waits for its model, or has been answered */
    atomic_fetch_add_explicit(&lane->waiting, 1, memory_order_relaxed);
    /* From here on another thread may answer at any moment. seq_cst: either lane_fail_all, after it
     * has condemned the lane, sees this request, or the check below sees that the lane is
     * condemned. */
    atomic_store(&request->use, request_use(ticket.generation, REQUEST_IN_FLIGHT));
    bool pushed =
        slot_push(&lane->region, ticket, PLACE_FREE, 0, OWNER_COORDINATOR, now_ns) == RING_OK;
    if (!pushed)
        lane_report_corrupt(lane, "ring of stage 0");
    if (atomic_load(&lane->state) == LANE_CONDEMNED) {
        lane_fail_all(lane, STATUS_UNAVAILABLE, "the pipeline is being rebuilt: try again");
        return;
    }
    if (!pushed)
        return; /* the thread that condemns the lane will answer it */
    stage_notify(&lane->region, 0);
    uint64_t dead_stages = atomic_load_explicit(&lane->dead_stages, memory_order_acquire);
    if (dead_stages & 1) { /* its last worker died after the first look */
        char text[OUTAGE_TEXT_BYTES];
        outage_describe(&lane->outage, 0, now_ns, text);
        lane_fail_stage(lane, 0, text);
    }
}

uint32_t
lane_retry_ms(struct lane *lane, int64_t now_ns)
{
    struct forecast forecast = current_forecast(lane, now_ns);
    return forecast_retry_ms(&forecast, atomic_load_explicit(&lane->waiting, memory_order_relaxed));
}

/* Counts a refusal that no verdict made, by its error. */
static enum status
refuse(struct lane *lane, struct submission *submission, int64_t now_ns, struct error *error)
{
    enum counter counter = PIPELINE_REJECTED_INVALID;
    if (error->status == STATUS_RESOURCE_EXHAUSTED) {
        counter = PIPELINE_REJECTED_FULL;
        submission->retry_ms = lane_retry_ms(lane, now_ns);
    } else if (error->status == STATUS_UNAVAILABLE) {
        counter = PIPELINE_REJECTED_UNAVAILABLE;
        submission->retry_ms = RETRY_STARTING_MS;
    } else if (error->status == STATUS_DEADLINE_EXCEEDED) {
        counter = PIPELINE_REJECTED_LATE;
    }
    submission->rejected = counter;
    return error->status;
}

static enum status
start(struct lane *lane, struct submission *submission, enum wait_place wait_place, int64_t now_ns,
      struct error *error)
{
    struct shm_ticket ticket = {0};
    struct request *request = take_slot(lane, &ticket, error);
    if (request == NULL) {
        if (error->status == STATUS_RESOURCE_EXHAUSTED)
            submission->lacks = LACKS_ROOM;
        return error->status;
    }
    if (fill_slot(lane, request, ticket, submission, error) != STATUS_OK) {
        oip_forget_shared(decoded_of(request, submission));
        give_slot_back(lane, request, ticket);
        return error->status;
    }
    if (!lane_ref(lane)) /* the caller holds one reference, the request gets its own */
        UNREACHABLE();
    request->sink = submission->sink;
    request->call = submission->call;
    request->trace = submission->trace;
    request->model = submission->model;
    request->sent = submission->model_held;
    request->message_bytes = submission_bytes(submission);
    if (submission->decoded != NULL) {
        oip_request_destroy(request->oip);
        request->oip = submission->decoded;
        submission->decoded = NULL;
    }
    request->deadline_ns = submission->deadline_ns;
    request->returns = 0;
    request->waited_ms = submission->waited_ms;
    if (request->trace != NULL)
        trace_request_begin(request, ticket, request->trace);
    pieces_admit(lane, request, ticket);
    atomic_store_explicit(&request->arrived_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&request->deaths, 0, memory_order_relaxed);
    request_id_write(&request->id, lane->takes_messages ? "" : oip_request_id(request->oip));
    request->caller = submission->caller;
    request->share_place = (uint16_t)share_place(submission->caller);
    share_take(&lane->share, request->share_place); /* given back with the slot */
    submission->tag = tag_pack(lane->pipeline->index, lane->number, ticket);
    dispatch(lane, request, ticket, wait_place, now_ns);
    return STATUS_OK;
}

/* ---- probes ---- */

enum status
lane_probe(struct lane *lane, uint32_t stage, const struct request_sink *sink, void *call,
           uint32_t *slot, struct error *error)
{
    int64_t now_ns = clock_now_ns();
    struct shm_ticket ticket = {0};
    struct request *request = take_slot(lane, &ticket, error);
    if (request == NULL)
        return error->status;
    if (!lane_ref(lane))
        UNREACHABLE();
    *slot = ticket.index;
    request->sink = sink;
    request->call = call;
    request->trace = NULL;
    request->model = NULL;
    request->streams = false;
    request->deadline_ns = TIME_NEVER_NS;
    atomic_store_explicit(&request->arrived_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&request->deaths, 0, memory_order_relaxed);
    request_id_write(&request->id, "");
    request->caller = 0;
    request->share_place = (uint16_t)share_place(0);
    share_take(&lane->share, request->share_place);
    struct shm_slot *shared = region_slot(&lane->region, ticket.index);
    atomic_store_explicit(&shared->deadline_ns, TIME_NEVER_NS, memory_order_relaxed);
    atomic_store_explicit(&shared->admitted_ns, now_ns, memory_order_relaxed);
    atomic_store_explicit(&shared->model, SLOT_MODEL_PROBE, memory_order_relaxed);
    atomic_fetch_add_explicit(&lane->waiting, 1, memory_order_relaxed);
    atomic_store(&request->use, request_use(ticket.generation, REQUEST_IN_FLIGHT));
    if (slot_push(&lane->region, ticket, PLACE_FREE, (uint8_t)stage, OWNER_COORDINATOR, now_ns) !=
        RING_OK)
        lane_report_corrupt(lane,
                            "ring of a stage"); /* the thread that condemns the lane answers it */
    stage_notify(&lane->region, stage);
    return STATUS_OK;
}

void
lane_probe_ended(struct lane *lane, uint32_t slot)
{
    atomic_store_explicit(&region_slot(&lane->region, slot)->model, 0, memory_order_relaxed);
}

/* ---- the way in ---- */

enum status
lane_submit(struct lane *lane, struct submission *submission, int64_t now_ns, struct error *error)
{
    submission->retry_ms = 0;
    submission->lacks = LACKS_NOTHING;
    uint64_t dead_stages = atomic_load_explicit(&lane->dead_stages, memory_order_acquire);
    if (dead_stages != 0) {
        char text[OUTAGE_TEXT_BYTES];
        outage_describe(&lane->outage, (uint32_t)__builtin_ctzll(dead_stages), now_ns, text);
        error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\": %s", lane->info.name, text);
        return refuse(lane, submission, now_ns, error);
    }
    if (submission->deadline_ns <= now_ns) {
        error_set(error, STATUS_DEADLINE_EXCEEDED, "the deadline had passed on arrival");
        return refuse(lane, submission, now_ns, error);
    }
    if (let_in(lane, submission, now_ns, error) != STATUS_OK)
        return error->status;
    enum wait_place wait_place = WAIT_PLACE_NONE;
    if (submission->model != NULL && !submission->model_held &&
        models_of(lane)->admit(lane, submission->model, &wait_place, error) != STATUS_OK)
        return refuse(lane, submission, now_ns, error);
    if (start(lane, submission, wait_place, now_ns, error) == STATUS_OK)
        return STATUS_OK;
    if (wait_place == WAIT_PLACE_RESERVED)
        lane_return_wait_place(lane);
    return refuse(lane, submission, now_ns, error);
}
