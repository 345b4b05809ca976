/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/lane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "base/check.h"
#include "base/clock.h"
#include "coordinator/pipeline/audit.h"
#include "coordinator/pipeline/pieces.h"
#include "coordinator/pipeline/pipeline.h"
#include "coordinator/pipeline/trace_request.h"
#include "coordinator/protocol/raw_message.h"
#include "shm/slot.h"

/* A sleep ends by itself after this time: a waker can be killed between its push and its wake. */
#define GATHER_SLEEP_NS (NS_PER_S / 2)

uint64_t
lane_arena_bytes(const struct config *node, const struct config_pipeline *config)
{
    /* the ladder of classes needs less than three of the largest; the rest is for batches */
    return 4 * node->message_bytes_max + UINT64_C(4) * BLOCK_BYTES_MIN * config->slot_count +
           (16u << 20);
}

static enum status
plan_for(const struct config *node, const struct config_pipeline *config, struct region_plan *plan,
         struct error *error)
{
    *plan =
        (struct region_plan){.slot_count = config->slot_count, .stage_count = config->stage_count};
    plan->stamp_count = trace_stamp_count(node, config);
    plan->pieces = config->stream_bytes > 0;
    for (uint32_t i = 0; i < config->stage_count; i++)
        plan->worker_counts[i] = config->stages[i].worker_count;
    uint64_t arena_bytes = config->arena_bytes;
    if (arena_bytes == 0)
        arena_bytes = lane_arena_bytes(node, config);
    return plan_arena(plan, node->message_bytes_max, arena_bytes, error);
}

enum status
lane_region_bytes(const struct config *node, const struct config_pipeline *config, uint64_t *bytes,
                  struct error *error)
{
    struct region_plan plan;
    struct region_layout *layout = malloc(sizeof(*layout));
    CHECK(layout != NULL);
    enum status status = plan_for(node, config, &plan, error);
    if (status == STATUS_OK)
        status = layout_compute(&plan, layout, error);
    if (status == STATUS_OK)
        *bytes = layout->region_bytes;
    free(layout);
    return status;
}

bool
lane_has_answers(const struct lane *lane)
{
    struct shm_ring results = region_slot_ring(&lane->region, region_result_place(&lane->region));
    struct shm_ring errors = region_slot_ring(&lane->region, PLACE_ERROR);
    return ring_has_cell(&results) || ring_has_cell(&errors) || pieces_have_come(lane);
}

void
lane_watch(struct lane *lane)
{
    struct shm_doorbell *bell = &lane->region.header->coordinator_bell;
    if (atomic_load(&lane->gather_asleep))
        doorbell_prepare(bell);
    if (lane_has_answers(lane))
        doorbell_ring(bell);
}

/* A turn of the gather thread that found nothing: looks a while longer, then sleeps. */
static void
gather_rest(struct lane *lane, struct spin *spin)
{
    int64_t now_ns = clock_now_ns();
    int64_t end_ns = now_ns + spin_budget(spin, now_ns);
    while (now_ns < end_ns) {
        if (lane_has_answers(lane)) {
            spin_rewarded(spin);
            return;
        }
        now_ns = spin_pause(spin, now_ns);
    }
    spin_failed(spin);
    struct shm_doorbell *bell = &lane->region.header->coordinator_bell;
    atomic_store_explicit(&lane->gather_asleep, true, memory_order_relaxed);
    uint32_t prepared = doorbell_prepare(bell);
    if (lane_has_answers(lane) || atomic_load(&lane->gather_stop)) {
        doorbell_cancel(bell);
    } else {
        int64_t asleep_ns = clock_now_ns();
        doorbell_sleep(bell, prepared, GATHER_SLEEP_NS);
        spin_after_sleep(spin, clock_now_ns() - asleep_ns);
    }
    atomic_store_explicit(&lane->gather_asleep, false, memory_order_relaxed);
}

static void *
gather_main(void *context)
{
    struct lane *lane = context;
    prctl(PR_SET_NAME, "shoald:gather");
    struct payload_view *view = calloc(1, sizeof(*view));
    CHECK(view != NULL);
    struct spin spin;
    spin_init(&spin, lane->generation->config->spin_ns);
    while (!atomic_load(&lane->gather_stop))
        if (lane_gather(lane, view) == 0)
            gather_rest(lane, &spin);
    free(view);
    return NULL;
}

static void
requests_create(struct lane *lane)
{
    uint32_t count = lane->region.slots.count;
    lane->requests = calloc(count, sizeof(*lane->requests));
    CHECK(lane->requests != NULL);
    for (uint32_t i = 0; i < count; i++) {
        lane->requests[i].lane = lane;
        lane->requests[i].oip = oip_request_create();
    }
}

static void
requests_destroy(struct lane *lane)
{
    for (uint32_t i = 0; i < lane->region.slots.count; i++)
        oip_request_destroy(lane->requests[i].oip);
    free(lane->requests);
    lane->requests = NULL;
}

static void
free_parts(struct lane *lane)
{
    requests_destroy(lane);
    pthread_mutex_destroy(&lane->pieces_lock);
    audit_destroy(lane->audit);
    region_detach(&lane->region);
    outage_fini(&lane->outage);
    free(lane->specs);
    lane->specs = NULL;
    generation_unref(lane->generation);
    lane->generation = NULL;
}

/* Callers must know whether it takes messages or tensors, without its modelets' declarations. */
static void
describe_method(struct lane *lane)
{
    lane->info.platform = pipeline_method(lane->pipeline).path;
    lane->info.inputs = lane->info.outputs = &raw_message_spec;
    lane->info.input_count = lane->info.output_count = 1;
}

enum status
lane_open(struct lane *lane, struct pipeline *pipeline, struct generation *generation,
          uint32_t number, uint64_t region_generation, struct error *error)
{
    CHECK(atomic_load(&lane->state) == LANE_UNUSED);
    struct region_plan plan;
    enum status status =
        plan_for(&pipeline->options.source->config, generation->config, &plan, error);
    if (status == STATUS_OK)
        status = region_create(&lane->region, &plan, region_generation, error);
    if (status != STATUS_OK)
        return status;
    arena_keep(&lane->region, &lane->kept);
    lane->client_regions = (struct client_regions){.unseen = true};
    if (generation->config->local_clients > 0)
        lane->region.client_regions = &lane->client_regions;
    lane->number = number;
    lane->pipeline = pipeline;
    lane->generation = generation_ref(generation);
    lane->region_generation = region_generation;
    lane->owner_next = OWNER_COORDINATOR + 1;
    lane->info =
        (struct oip_model_info){.name = pipeline->name, .version = "1", .platform = lane->platform};
    lane->platform[0] = '\0';
    lane->takes_messages = pipeline_method(pipeline).path != NULL;
    lane->gives_pieces = config_gives_pieces(generation->config);
    if (lane->takes_messages)
        describe_method(lane);
    lane->specs = NULL;
    atomic_store(&lane->dead_stages, 0);
    outage_init(&lane->outage);
    for (uint32_t i = 0; i < STAGES_MAX; i++)
        atomic_store(&lane->finished[i], 0);
    atomic_store(&lane->foreseen_ns, 0);
    suspects_forget(&lane->suspects);
    atomic_store(&lane->corrupt_reported, false);
    atomic_store(&lane->gather_stop, false);
    atomic_store(&lane->gather_asleep, false);
    requests_create(lane);
    atomic_store(&lane->streaming, 0);
    atomic_store(&lane->piece_in_hand, 0);
    CHECK(pthread_mutex_init(&lane->pieces_lock, NULL) == 0);
    lane->audit = audit_create(lane->region.slots.count, lane->region.blocks.count);
    int failure = pthread_create(&lane->gather_thread, NULL, gather_main, lane);
    if (failure != 0) { /* the limit of threads of this user */
        free_parts(lane);
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "starting its gather thread: %s",
                         strerror(failure));
    }
    lane->gather_started = true;
    atomic_store(&lane->refs, 1);
    lane_enter_state(lane, LANE_STARTING);
    return STATUS_OK;
}

void
lane_end_gathering(struct lane *lane)
{
    if (!lane->gather_started)
        return;
    lane->gather_started = false;
    atomic_store(&lane->gather_stop, true);
    /* not doorbell_ring: a front thread that gathered has cleared the flag and is gone */
    doorbell_wake(&lane->region.header->coordinator_bell);
    CHECK(pthread_join(lane->gather_thread, NULL) == 0);
}

void
lane_close(struct lane *lane)
{
    lane_end_gathering(lane);
    CHECK(atomic_load(&lane->refs) == 0);
    CHECK(share_total(&lane->share) == 0 && atomic_load(&lane->waiting) == 0 &&
          atomic_load(&lane->models_waiting) == 0);
    CHECK(atomic_load(&lane->streaming) == 0 && atomic_load(&lane->piece_in_hand) == 0 &&
          atomic_load(&lane->share.callers) == 0);
    free_parts(lane);
    lane_enter_state(lane, LANE_UNUSED);
}

void
lane_enter_state(struct lane *lane, enum lane_state state)
{
    static const uint32_t from[] = {
        [LANE_UNUSED] = 1u << LANE_CONDEMNED,
        [LANE_STARTING] = 1u << LANE_UNUSED,
        [LANE_SERVING] = 1u << LANE_STARTING,
        [LANE_DRAINING] = 1u << LANE_SERVING,
        [LANE_CONDEMNED] = 1u << LANE_STARTING | 1u << LANE_SERVING | 1u << LANE_DRAINING,
    };
    loop_check_thread(lane->pipeline->options.loop);
    CHECK((from[state] & 1u << atomic_load(&lane->state)) != 0);
    atomic_store(&lane->state, state);
}

bool
lane_ref(struct lane *lane)
{
    uint64_t refs = atomic_load_explicit(&lane->refs, memory_order_relaxed);
    while (refs != 0)
        if (atomic_compare_exchange_weak_explicit(&lane->refs, &refs, refs + 1,
                                                  memory_order_acquire, memory_order_relaxed))
            return true;
    return false;
}

void
lane_unref(struct lane *lane)
{
    /* the loop thread notices the last one by a timer that looks at condemned lanes */
    uint64_t before = atomic_fetch_sub_explicit(&lane->refs, 1, memory_order_acq_rel);
    CHECK(before != 0);
}

struct request *
lane_request(struct lane *lane, struct shm_ticket ticket)
{
    if (ticket.index >= lane->region.slots.count)
        return NULL;
    struct request *request = &lane->requests[ticket.index];
    uint64_t in_flight = request_use(ticket.generation, REQUEST_IN_FLIGHT);
    return atomic_load_explicit(&request->use, memory_order_acquire) == in_flight ? request : NULL;
}

uint64_t
lane_finished(const struct lane *lane, uint32_t stage)
{
    uint64_t finished = 0;
    for (uint32_t i = stage; i < lane->region.layout.plan.stage_count; i++)
        finished += atomic_load_explicit(&lane->finished[i], memory_order_relaxed);
    return finished;
}

bool
lane_has_passed(const struct lane *lane, uint32_t stage, int64_t since_ns)
{
    for (uint32_t i = 0; i < lane->region.slots.count; i++) {
        const struct request *request = &lane->requests[i];
        uint64_t use = atomic_load_explicit(&request->use, memory_order_acquire);
        if (use_state(use) != REQUEST_IN_FLIGHT ||
            atomic_load_explicit(&request->arrived_ns, memory_order_relaxed) < since_ns)
            continue;
        struct shm_word word = word_unpack(
            atomic_load_explicit(object_word(&lane->region.slots, i), memory_order_relaxed));
        if (word.generation == use_generation(use) && word.place > stage &&
            word.place <= region_result_place(&lane->region))
            return true;
    }
    return false;
}

void
lane_cancel(struct lane *lane, struct shm_ticket ticket)
{
    if (ticket.index >= lane->region.slots.count)
        return;
    slot_cancel(&lane->region, ticket);
    counter_add_shared(lane->pipeline->counters, PIPELINE_CANCELLED, 1);
}

struct corrupt_report {
    struct lane *lane;
    char what[128];
};

static void
condemn_reported(void *context)
{
    struct corrupt_report *report = context;
    pipeline_condemn(report->lane->pipeline, report->lane, report->what);
    lane_unref(report->lane);
    free(report);
}

void
lane_report_corrupt(struct lane *lane, const char *what)
{
    if (atomic_exchange(&lane->corrupt_reported, true) || !lane_ref(lane))
        return;
    struct corrupt_report *report = calloc(1, sizeof(*report));
    CHECK(report != NULL);
    report->lane = lane;
    snprintf(report->what, sizeof(report->what), "%s", what);
    loop_post(lane->pipeline->options.loop, condemn_reported, report);
}
