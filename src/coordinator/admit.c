/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way in: a request gets a slot, is decoded and checked, its tensors are copied into the arena,
 * and its ticket goes into the first stage's ring. All on the front thread that received it,
 * without a lock, and, once a slot's memory has grown to what requests need, without an allocation.
 */
#include "base/check.h"
#include "base/clock.h"
#include "coordinator/lane.h"
#include "coordinator/pipeline.h"
#include "shm/former.h"
#include "shm/slot.h"

static enum status
corrupt(struct lane *lane, const char *what, struct error *error)
{
    lane_report_corrupt(lane, what);
    return error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\" is being rebuilt: try again",
                     lane->info.name);
}

/* A slot and the private request that belongs to it; NULL with the refusal in `error`. */
static struct request *
take_slot(struct lane *lane, struct shm_ticket *ticket, struct error *error)
{
    switch (slot_acquire(&lane->region, PARTY_COORDINATOR, ticket)) {
    case RING_OK: break;
    case RING_EMPTY:
    case RING_LOST:
        (void)error_set(error, STATUS_RESOURCE_EXHAUSTED,
                        "pipeline \"%s\" is full: all %u slots are in flight", lane->info.name,
                        lane->region.slots.count);
        return NULL;
    case RING_CORRUPT: (void)corrupt(lane, "free ring", error); return NULL;
    }
    struct request *request = &lane->requests[ticket->index];
    uint32_t expected = request->generation == 0 ? 1 : generation_next(request->generation);
    uint32_t none = REQUEST_NONE;
    /* A worker may have faked a free slot: what is in flight is known here, not there. */
    if (ticket->generation != expected ||
        !atomic_compare_exchange_strong_explicit(&request->state, &none, REQUEST_ADMITTED,
                                                 memory_order_acquire, memory_order_relaxed)) {
        (void)corrupt(lane, "free slot", error);
        return NULL;
    }
    request->generation = expected;
    return request;
}

static void
give_slot_back(struct lane *lane, struct request *request, struct shm_ticket ticket)
{
    atomic_store_explicit(&request->state, REQUEST_NONE, memory_order_release);
    if (slot_release(&lane->region, ticket, PLACE_FREE, PARTY_COORDINATOR) != STATUS_OK)
        lane_report_corrupt(lane, "slot that was never pushed");
}

/* Decodes, checks and copies; the payload for stage 0 is then complete. */
static enum status
fill_slot(struct lane *lane, struct request *request, struct shm_ticket ticket,
          const struct rpc_message *message, struct payload_builder *builder, struct error *error)
{
    struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    enum status status = oip_decode(request->oip, message, error);
    if (status == STATUS_OK)
        status = oip_check_model(request->oip, &lane->info, error);
    if (status != STATUS_OK)
        return status;
    builder_init(builder, &lane->region, ticket.index, PARTY_COORDINATOR, NULL, NULL);
    status = builder_reserve(builder, oip_tensor_bytes(request->oip), error);
    if (status == STATUS_OK)
        status = oip_copy_tensors(request->oip, message, builder, error);
    if (status == STATUS_OK)
        status = builder_seal(builder, &slot->payload[0], error);
    if (status != STATUS_OK)
        builder_abandon(builder, &slot->payload[0]);
    if (status == STATUS_DATA_LOSS)
        return corrupt(lane, error->text, error);
    return status;
}

static void
dispatch(struct lane *lane, struct request *request, struct shm_ticket ticket, int64_t deadline_ns,
         int64_t now_ns)
{
    struct shm_slot *slot = region_slot(&lane->region, ticket.index);
    atomic_store_explicit(&slot->deadline_ns, deadline_ns, memory_order_relaxed);
    atomic_store_explicit(&slot->admitted_ns, now_ns, memory_order_relaxed);
    if (request->sink->tagged != NULL)
        request->sink->tagged(request->call, tag_pack(lane->pipeline->index, lane->number, ticket));
    /* From here on another thread may answer at any moment. seq_cst: lane_fail_all, after it has
     * condemned the lane, sees this request, or we see below that the lane is condemned. */
    atomic_store(&request->state, REQUEST_IN_FLIGHT);
    if (slot_push(&lane->region, ticket, PLACE_FREE, 0, PARTY_COORDINATOR, now_ns) != RING_OK) {
        lane_report_corrupt(lane, "ring of stage 0");
        return; /* condemning the lane answers it */
    }
    if (atomic_load(&lane->state) == LANE_CONDEMNED) {
        lane_fail_all(lane, STATUS_UNAVAILABLE, "the pipeline is being rebuilt: try again");
        return;
    }
    stage_notify(&lane->region, 0);
    uint64_t dead_stages = atomic_load_explicit(&lane->dead_stages, memory_order_acquire);
    if (dead_stages & 1) /* its last worker died after we had looked */
        lane_fail_stage(lane, 0, "no worker is left");
}

static enum status
refuse(struct lane *lane, struct error *error)
{
    enum counter counter = PIPELINE_REJECTED_INVALID;
    if (error->status == STATUS_RESOURCE_EXHAUSTED)
        counter = PIPELINE_REJECTED_FULL;
    else if (error->status == STATUS_UNAVAILABLE)
        counter = PIPELINE_REJECTED_UNAVAILABLE;
    else if (error->status == STATUS_DEADLINE_EXCEEDED)
        counter = PIPELINE_REJECTED_LATE;
    counter_add_shared(lane->pipeline->counters, counter, 1);
    return error->status;
}

enum status
lane_submit(struct lane *lane, const struct rpc_message *message, int64_t deadline_ns,
            int64_t now_ns, const struct request_sink *sink, void *call,
            struct payload_builder *builder, struct error *error)
{
    counter_add_shared(lane->pipeline->counters, PIPELINE_REQUESTS, 1);
    if (atomic_load_explicit(&lane->dead_stages, memory_order_relaxed) != 0) {
        error_set(error, STATUS_UNAVAILABLE, "pipeline \"%s\": a stage has no worker",
                  lane->info.name);
        return refuse(lane, error);
    }
    if (deadline_ns <= now_ns) {
        error_set(error, STATUS_DEADLINE_EXCEEDED, "the deadline had passed on arrival");
        return refuse(lane, error);
    }
    struct shm_ticket ticket = {0};
    struct request *request = take_slot(lane, &ticket, error);
    if (request == NULL)
        return refuse(lane, error);
    if (fill_slot(lane, request, ticket, message, builder, error) != STATUS_OK) {
        give_slot_back(lane, request, ticket);
        return refuse(lane, error);
    }
    if (!lane_ref(lane)) /* the caller holds one reference, the request gets its own */
        UNREACHABLE();
    request->sink = sink;
    request->call = call;
    request->arrived_ns = now_ns;
    request->deaths = 0;
    dispatch(lane, request, ticket, deadline_ns, now_ns);
    return STATUS_OK;
}
