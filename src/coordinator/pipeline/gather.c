/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way out: tickets come back through the result ring and the error ring, are paired with their
 * requests, and the calls are answered. Any thread may gather; exactly one answers each request.
 *
 * Results are read first. A turn takes a bounded number of each kind, so errors cannot starve
 * behind results.
 */
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pieces.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/trace_request.h"
#include "coordinator/protocol/raw_message.h"
#include "coordinator/telemetry/meters.h"
#include "shm/arena.h"
#include "shm/slot.h"

enum { RESULTS_PER_TURN = 64, ERRORS_PER_TURN = 32 };

/* Makes this thread the one that answers this use of the slot; false: another one was faster. */
static bool
claim_answer(struct request *request, uint32_t generation)
{
    if (!pieces_leave(request, generation, REQUEST_ANSWERED))
        return false;
    uint32_t before = atomic_fetch_sub_explicit(&request->lane->waiting, 1, memory_order_relaxed);
    CHECK(before != 0);
    return true;
}

/* Like claim_answer(), for a request that waits for its model. */
static bool
claim_waiting(struct request *request, uint32_t generation)
{
    uint64_t waits = request_use(generation, REQUEST_WAITING);
    return atomic_compare_exchange_strong(&request->use, &waits,
                                          request_use(generation, REQUEST_ANSWERED));
}

/* The last hold on an answered request is gone: its slot and blocks are free again. */
static void
request_release(void *context)
{
    struct request *request = context;
    uint32_t before = atomic_fetch_sub_explicit(&request->holds, 1, memory_order_acq_rel);
    CHECK(before != 0);
    if (before != 1)
        return;
    struct lane *lane = request->lane;
    uint64_t use = atomic_load_explicit(&request->use, memory_order_relaxed);
    CHECK(use_state(use) == REQUEST_ANSWERED);
    oip_forget_shared(request->oip);
    struct shm_ticket ticket = {(uint32_t)(request - lane->requests), use_generation(use)};
    uint8_t place = request->place;
    share_give(&lane->share, request->share_place);
    pieces_release(lane, request);
    atomic_store_explicit(&request->use, request_use(ticket.generation, REQUEST_NONE),
                          memory_order_release);
    if (atomic_load(&lane->state) != LANE_CONDEMNED &&
        slot_release(&lane->region, ticket, place, OWNER_COORDINATOR) != STATUS_OK)
        lane_report_corrupt(lane, "slot of an answered request");
    wait_queue_on_freed(lane->pipeline->wait_queue);
    lane_unref(lane);
}

/* Counts by method and code, for the mesh's models. Costs a call a few additions to words that
 * other threads rarely have in their caches; users of ModelMesh have alerts on it. */
static void
meter_answer(const struct request *request, enum status status, int64_t took_ns,
             uint64_t response_bytes)
{
    const struct pipeline *pipeline = request->lane->pipeline;
    const struct meters_call call = {.method = pipeline->meters_method,
                                     .status = status,
                                     .took_ns = took_ns,
                                     .request_bytes = request->message_bytes,
                                     .response_bytes = response_bytes};
    if (pipeline->meters == NULL || request->model == NULL)
        return;
    meters_record(pipeline->meters, METER_SERVED, &call);
    if (!request->sink->of_mesh)
        meters_record(pipeline->meters, METER_REQUEST, &call);
}

/* Returns what the request took. */
static int64_t
count_answer(struct request *request, enum status status, uint64_t response_bytes)
{
    if (request->sink->is_probe)
        return 0;
    _Atomic uint64_t *counters = request->lane->pipeline->counters;
    int64_t took_ns =
        clock_now_ns() - request->arrived_ns + request->waited_ms * (int64_t)NS_PER_MS;
    counter_add_shared(counters,
                       status == STATUS_OK ? PIPELINE_REPLIES_OK : PIPELINE_REPLIES_FAILED, 1);
    if (status != STATUS_OK)
        counter_add_shared(counters, PIPELINE_FAILURE_TIME, (uint64_t)took_ns);
    histogram_record_shared(counters, PIPELINE_LATENCY, (uint64_t)took_ns);
    meter_answer(request, status, took_ns, response_bytes);
    return took_ns;
}

static uint64_t
bytes_of(const struct rpc_piece *pieces, size_t piece_count)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < piece_count; i++)
        bytes += pieces[i].bytes;
    return bytes;
}

/* Ends a request whose answer this thread has claimed. */
static void
answer_failure(struct request *request, enum status status, const char *text)
{
    atomic_store_explicit(&request->holds, 1, memory_order_relaxed);
    int64_t took_ns = count_answer(request, status, 0);
    request->sink->fail(request->call, status, text);
    if (request->trace != NULL)
        trace_request_end(request, status, text);
    if (request->model != NULL)
        request->lane->pipeline->options.models->end(request, status, took_ns);
    request_release(request);
}

static void
answer_result(struct lane *lane, struct request *request, const struct payload_view *view)
{
    struct oip_pieces out;
    struct error error;
    error_clear(&error);
    enum status status = STATUS_OK;
    bool is_end = request->streams && view->tensor_count == 0;
    if (lane->takes_messages && is_end) {
        out.count = out.lent_count = 0;
    } else if (lane->takes_messages) {
        status = raw_message_reply(view, request_release, request, out.pieces, &out.count, &error);
        out.lent_count = status == STATUS_OK ? out.count : 0;
    } else {
        struct oip_model_info info = lane->info;
        if (request->model != NULL)
            info = lane->pipeline->options.models->info(lane, request->model);
        struct oip_release release = {request_release, request};
        status = oip_encode_response(request->oip, &info, view, &release, &out, &error);
    }
    if (status != STATUS_OK) {
        answer_failure(request, status, error.text);
        return;
    }
    atomic_store_explicit(&request->holds, (uint32_t)out.lent_count + 1, memory_order_relaxed);
    int64_t took_ns = count_answer(request, STATUS_OK, bytes_of(out.pieces, out.count));
    if (is_end)
        request->sink->finish(request->call, out.pieces, out.count);
    else
        request->sink->reply(request->call, out.pieces, out.count);
    if (request->trace != NULL)
        trace_request_end(request, STATUS_OK, "");
    if (request->model != NULL)
        request->lane->pipeline->options.models->end(request, STATUS_OK, took_ns);
    request_release(request);
}

/* Claims a slot that came back. False: there was none, or the region is corrupt. */
static bool
pop_back(struct lane *lane, uint8_t place, struct shm_ticket *ticket)
{
    switch (slot_pop(&lane->region, place, OWNER_COORDINATOR, ticket)) {
    case RING_OK: return true;
    case RING_EMPTY: return false;
    case RING_LOST: /* Losing that often proves that somebody fills it with stale cells as fast as
                       we read. */
    case RING_CORRUPT: lane_report_corrupt(lane, "ring of answers"); return false;
    }
    UNREACHABLE();
}

/* The request of a popped slot, to be answered. NULL: the region is corrupt. */
static struct request *
claim_popped(struct lane *lane, uint8_t place, const struct shm_ticket *ticket)
{
    struct request *request = lane_request(lane, *ticket);
    if (request == NULL || !claim_answer(request, ticket->generation)) {
        /* Not in flight: forged, or answered because the lane is being condemned. */
        lane_report_corrupt(lane, "ticket of no request in flight");
        return NULL;
    }
    request->place = place;
    return request;
}

static struct request *
take_back(struct lane *lane, uint8_t place, struct shm_ticket *ticket)
{
    return pop_back(lane, place, ticket) ? claim_popped(lane, place, ticket) : NULL;
}

/* A worker returned it because it does not hold the model: it is not answered yet. */
static bool
is_handed_back(struct lane *lane, struct shm_ticket ticket)
{
    struct request *request = lane_request(lane, ticket);
    if (lane->pipeline->catalog == NULL || request == NULL)
        return false;
    const struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    uint32_t status = atomic_load_explicit(&slot->status, memory_order_relaxed);
    uint32_t stage = atomic_load_explicit(&slot->failed_place, memory_order_relaxed);
    if (status != SLOT_NOT_HELD || stage >= lane->region.layout.plan.stage_count)
        return false;
    lane->pipeline->options.models->came_back(request, ticket, stage);
    return true;
}

/* Returns whether the result of a slot lies in that slot's own blocks. */
static bool
result_is_its_own(const struct region *region, uint32_t slot, const struct shm_payload *payload)
{
    for (uint32_t i = 0; i < payload->block_count; i++)
        if (!arena_holds(region, slot, payload->blocks[i]))
            return false;
    return true;
}

/* Notes, for the judgement of deaths (death.c), that this stage has finished a request. */
static void
note_finished(struct lane *lane, uint32_t stage)
{
    if (stage < lane->region.layout.plan.stage_count)
        atomic_fetch_add_explicit(&lane->finished[stage], 1, memory_order_relaxed);
}

/* Passes on the pieces of its request's answer before a slot that came back is claimed. */
static bool
gather_all_pieces(struct lane *lane, struct shm_ticket ticket, struct payload_view *view)
{
    struct request *request = lane_request(lane, ticket);
    return request == NULL || !request->streams || pieces_gather_all(lane, request, ticket, view);
}

/* The answer of a request of which a piece could not be sent. */
static void
answer_broken_off(struct request *request)
{
    answer_failure(request, request->stream_status,
                   request->stream_status == STATUS_RESOURCE_EXHAUSTED
                       ? "the caller reads too slowly: more of the answer than stream_mib is unread"
                   : request->lane->takes_messages && request->stream_status == STATUS_INTERNAL
                       ? "each piece must be one output, \"message\" UINT8 of one dimension"
                       : "a piece of the answer could not be sent");
}

static bool
gather_result(struct lane *lane, struct payload_view *view)
{
    struct shm_ticket ticket;
    uint8_t place = region_result_place(&lane->region);
    if (!pop_back(lane, place, &ticket))
        return false;
    bool whole = gather_all_pieces(lane, ticket, view);
    struct request *request = claim_popped(lane, place, &ticket);
    if (request == NULL)
        return false;
    const struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    struct error error;
    error_clear(&error);
    enum status status = payload_read(&lane->region, &slot->payload[place & 1], view, &error);
    if (status == STATUS_OK && !result_is_its_own(&lane->region, ticket.index, &view->payload))
        status = error_set(&error, STATUS_DATA_LOSS, "a result in another request's memory");
    if (status == STATUS_OK && !whole)
        status = error_set(&error, STATUS_DATA_LOSS, "an answer lacks pieces that were counted");
    if (status != STATUS_OK) {
        lane_report_corrupt(lane, error.text);
        answer_failure(request, STATUS_UNAVAILABLE, "the result was destroyed in shared memory");
        return true;
    }
    note_finished(lane, place - 1u);
    if (request->streams && request->stream_status != STATUS_OK)
        answer_broken_off(request);
    else
        answer_result(lane, request, view);
    return true;
}

/* Says how much of the answer the caller has. */
static void
count_pieces(const struct request *request, struct error *failure)
{
    uint32_t delivered = atomic_load_explicit(&request->delivered, memory_order_relaxed);
    struct error reported = *failure;
    if (request->streams && delivered > 0)
        error_set(failure, reported.status, "%s (%u pieces of the answer were sent)", reported.text,
                  delivered);
}

/* Ends a request, claimed by this thread, of which pieces may have been sent. */
static void
answer_error(struct request *request, struct error *failure)
{
    if (request->streams && request->stream_status != STATUS_OK) {
        answer_broken_off(request);
        return;
    }
    count_pieces(request, failure);
    answer_failure(request, failure->status, failure->text);
}

static bool
gather_error(struct lane *lane, struct payload_view *view)
{
    struct shm_ticket ticket;
    if (!pop_back(lane, PLACE_ERROR, &ticket))
        return false;
    if (is_handed_back(lane, ticket))
        return true;
    (void)gather_all_pieces(lane, ticket,
                            view); /* one may be counted that its dead worker did not push */
    struct request *request = claim_popped(lane, PLACE_ERROR, &ticket);
    if (request == NULL)
        return false;
    const struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    struct error failure = ERROR_NONE;
    slot_failure(slot, &failure);
    bool was_run = failure.status != STATUS_CANCELLED &&
                   failure.status != STATUS_DEADLINE_EXCEEDED &&
                   failure.status != STATUS_UNAVAILABLE;
    uint32_t failed_place = atomic_load_explicit(&slot->failed_place, memory_order_relaxed);
    if (was_run)
        note_finished(lane, failed_place);
    if (request->trace != NULL && failed_place < STAGES_MAX)
        request->trace->failed_stage = (int)failed_place;
    /* A modelet that gives up at the deadline may be faster than the caller's own timer. */
    if (failure.status == STATUS_CANCELLED && request->deadline_ns <= clock_now_ns())
        error_set(&failure, STATUS_DEADLINE_EXCEEDED, "the deadline has passed");
    answer_error(request, &failure);
    return true;
}

uint32_t
lane_gather(struct lane *lane, struct payload_view *view)
{
    if (atomic_load_explicit(&lane->state, memory_order_relaxed) == LANE_CONDEMNED)
        return 0; /* its requests are answered, or being answered */
    uint32_t pieces = pieces_gather(lane, view);
    uint32_t results = 0;
    while (results < RESULTS_PER_TURN && gather_result(lane, view))
        results++;
    uint32_t errors = 0;
    while (errors < ERRORS_PER_TURN && gather_error(lane, view))
        errors++;
    return pieces + results + errors;
}

void
lane_fail_stage(struct lane *lane, uint32_t stage, const char *text)
{
    struct shm_ticket ticket;
    struct request *request;
    while ((request = take_back(lane, (uint8_t)stage, &ticket)) != NULL)
        answer_failure(request, STATUS_UNAVAILABLE, text);
}

void
lane_fail_all(struct lane *lane, enum status status, const char *text)
{
    for (uint32_t i = 0; i < lane->region.slots.count; i++) {
        struct request *request = &lane->requests[i];
        uint32_t generation = use_generation(atomic_load(&request->use));
        struct error failure = ERROR_NONE;
        error_set(&failure, status, "%s", text);
        if (claim_answer(request, generation) || claim_waiting(request, generation))
            answer_error(request, &failure);
    }
}

void
lane_fail_waiting(struct request *request, uint32_t generation, enum status status,
                  const char *text)
{
    if (claim_waiting(request, generation))
        answer_failure(request, status, text);
}
