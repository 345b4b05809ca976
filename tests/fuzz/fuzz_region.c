/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region in the hands of a hostile worker: the input is a small program. Its steps submit real
 * requests, let workers do their work honestly, write any word anywhere, forge tickets and cells,
 * let workers die, and let the coordinator do all that it ever does with a region: gather, repair,
 * audit, fail a stage, cancel, wake, check the header, attach. region_steps.h has the list.
 *
 * Properties: no step reads or writes outside the region, none goes on for ever, every request that
 * was let in is answered exactly once, and an answer's bytes lie in the region. As long as the
 * program wrote nothing, also: nothing is ever called corrupt, every caller gets its own answer,
 * and in the end no slot and no block is in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/audit.h"
#include "coordinator/pipeline/generation.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "inference/open_inference.pb-c.h"
#include "shm/arena.h"
#include "shm/former.h"
#include "shm/repair.h"
#include "shm/slot.h"
#include "region_steps.h"

enum {
    SEATS = 3,
    CALLS_MAX = 64,
    LENT_MAX = 8,
    STEPS_MAX = 400,
    DEATHS_MAX = 2,
    ROUNDS_MAX = 200,
    MESSAGE_BYTES_MAX = 32 << 10,
    ARENA_BYTES = 512 << 10,
};

#define DESERT_BYTES ((size_t)1 << 30)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A request's message, with a number of the caller's own in its tensor. */
struct message {
    uint8_t *bytes;
    size_t size;
    size_t nonce_at;
};

struct call {
    bool let_in;
    uint32_t answers;
    uint64_t tag;
    uint64_t nonce;
    struct rpc_piece lent[LENT_MAX];
    size_t lent_count;
};

struct entry {
    uint32_t stage;
    uint32_t index;
    uint16_t owner;
    bool busy; /* stopped in the middle of a request */
};

static const uint32_t seat_stages[SEATS] = {0, 0, 1};

static struct loop *loop;
static struct config_stage stages[STAGES];
static struct config_pipeline pipeline_config = {.slot_count = SLOTS, .stage_count = STAGES};
static struct generation generation = {.config = &pipeline_config};
static _Atomic uint64_t counters[1 << 14];
static struct pipeline pipeline = {.name = "m", .generation = &generation};
static struct lane lane;
static char *pristine; /* the region as it was made */
static struct message messages[MESSAGE_KINDS];
static struct payload_builder builder;
static struct payload_view view;

static struct call calls[CALLS_MAX];
static uint32_t call_count;
static struct entry seats[SEATS];
static int64_t now_ns;
static bool tickets_forged; /* the program has written words, cells or hints */
static bool memory_changed; /* the program has written anything else */

/* ---- the callers ---- */

static void
on_tagged(void *context, uint64_t tag)
{
    struct call *call = context;
    call->tag = tag;
}

static void
give_back(struct call *call)
{
    for (size_t i = 0; i < call->lent_count; i++)
        call->lent[i].release(call->lent[i].release_context);
    call->lent_count = 0;
}

/* It lies in one block, which the caller's own slot holds. */
static void
check_lent(const struct call *call, const struct rpc_piece *piece)
{
    const char *data = piece->data;
    const struct region_layout *layout = &lane.region.layout;
    for (uint32_t i = 0; i < layout->block_count; i++) {
        const char *block = arena_block(&lane.region, i);
        if (data < block || data + piece->bytes > block + arena_block_bytes(layout, i))
            continue;
        CHECK(arena_holds(&lane.region, tag_ticket(call->tag).index, i));
        return;
    }
    CHECK(!"lent from one block");
}

/* Every other caller keeps what it was lent for a while. */
static void
on_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct call *call = context;
    call->answers++;
    const struct rpc_piece *tensor = NULL;
    for (size_t i = 0; i < piece_count; i++) {
        if (pieces[i].release == NULL)
            continue;
        tensor = &pieces[i];
        check_lent(call, tensor);
        if (call->lent_count < LENT_MAX)
            call->lent[call->lent_count++] = *tensor;
        else
            tensor->release(tensor->release_context);
    }
    if (!memory_changed)
        CHECK(tensor != NULL && memcmp(tensor->data, &call->nonce, sizeof(call->nonce)) == 0);
    if (call->nonce % 2 == 0)
        give_back(call);
}

static void
on_fail(void *context, enum status status, const char *text)
{
    struct call *call = context;
    call->answers++;
    CHECK(status != STATUS_OK && strlen(text) < ERROR_TEXT_MAX);
}

static const struct request_sink sink = {.tagged = on_tagged, .reply = on_reply, .fail = on_fail};

/* ---- made once ---- */

static struct message
pack_message(size_t tensor_bytes, const char *output)
{
    char name[] = "x";
    char datatype[] = "UINT8";
    int64_t shape = (int64_t)tensor_bytes;
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    Inference__ModelInferRequest__InferRequestedOutputTensor wanted =
        INFERENCE__MODEL_INFER_REQUEST__INFER_REQUESTED_OUTPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferRequestedOutputTensor *outputs[] = {&wanted};
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    ProtobufCBinaryData raw = {tensor_bytes, calloc(1, tensor_bytes)};
    input.name = name;
    input.datatype = datatype;
    input.n_shape = 1;
    input.shape = &shape;
    request.model_name = name;
    request.n_inputs = 1;
    request.inputs = inputs;
    request.n_raw_input_contents = 1;
    request.raw_input_contents = &raw;
    char output_name[8];
    if (output != NULL) {
        snprintf(output_name, sizeof(output_name), "%s", output);
        wanted.name = output_name;
        request.n_outputs = 1;
        request.outputs = outputs;
    }
    struct message message = {.size = inference__model_infer_request__get_packed_size(&request)};
    CHECK(raw.data != NULL && (message.bytes = malloc(message.size)) != NULL);
    inference__model_infer_request__pack(&request, message.bytes);
    message.nonce_at = message.size - tensor_bytes; /* contents are the last field */
    free(raw.data);
    return message;
}

/* Moves the region to where nothing lies for a gigabyte on either side: sanitizers do not watch
 * memory that was mapped. */
static void
isolate(struct region *region)
{
    size_t bytes = region->layout.region_bytes;
    char *desert =
        mmap(NULL, 2 * DESERT_BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(desert != MAP_FAILED);
    char *base =
        mremap(region->base, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, desert + DESERT_BYTES);
    CHECK(base == desert + DESERT_BYTES);
    region->slots.first = base + (region->slots.first - region->base);
    region->blocks.first = base + (region->blocks.first - region->base);
    region->header = (struct region_header *)(void *)base;
    region->base = base;
}

static void
start(void)
{
    log_init("fuzz_region", LOG_ERROR);
    struct error error = ERROR_NONE;
    struct region_plan plan = {.slot_count = SLOTS, .stage_count = STAGES, .worker_counts = {2, 1}};
    CHECK(plan_arena(&plan, MESSAGE_BYTES_MAX, ARENA_BYTES, &error) == STATUS_OK);
    CHECK(region_create(&lane.region, &plan, 1, &error) == STATUS_OK);
    isolate(&lane.region);
    CHECK(loop_create(&loop, &error) == STATUS_OK);
    CHECK((pristine = malloc(lane.region.layout.region_bytes)) != NULL);
    memcpy(pristine, lane.region.base, lane.region.layout.region_bytes);
    for (uint32_t i = 0; i < STAGES; i++)
        stages[i].worker_count = plan.worker_counts[i];
    pipeline_config.stages = stages;
    pipeline.counters = counters;
    pipeline.wait_queue = wait_queue_create(&pipeline);
    pipeline.options.loop = loop;
    lane.pipeline = &pipeline;
    lane.generation = &generation;
    lane.info = (struct oip_model_info){.name = "m", .version = "1"};
    CHECK((lane.requests = calloc(SLOTS, sizeof(*lane.requests))) != NULL);
    for (uint32_t i = 0; i < SLOTS; i++) {
        lane.requests[i].lane = &lane;
        lane.requests[i].oip = oip_request_create();
    }
    messages[MESSAGE_SMALL] = pack_message(8, NULL);
    messages[MESSAGE_MIDDLE] = pack_message(3000, "x");
    messages[MESSAGE_LARGE] = pack_message(30000, NULL);
    messages[MESSAGE_OTHER_OUTPUT] = pack_message(16, "y");
    messages[MESSAGE_CUT] = pack_message(64, NULL);
    messages[MESSAGE_CUT].size -= 1;
}

/* ---- what each program begins with ---- */

static void
seat_fill(struct entry *entry)
{
    entry->owner = (uint16_t)lane.owner_next++;
    entry->busy = false;
    atomic_store(&region_worker(&lane.region, entry->stage, entry->index)->owner, entry->owner);
}

static void
begin(void)
{
    memcpy(lane.region.base, pristine, lane.region.layout.region_bytes);
    for (uint32_t i = 0; i < SLOTS; i++)
        atomic_store(&lane.requests[i].use, 0);
    lane.audit = audit_create(SLOTS, lane.region.blocks.count);
    lane.owner_next = OWNER_COORDINATOR + 1;
    atomic_store(&lane.dead_stages, 0);
    atomic_store(&lane.corrupt_reported, false);
    atomic_store(&lane.refs, 1);
    atomic_store(&lane.state, LANE_SERVING);
    memset(calls, 0, sizeof(calls));
    call_count = 0;
    now_ns = NS_PER_S;
    tickets_forged = memory_changed = false;
    for (uint32_t i = 0; i < SEATS; i++) {
        seats[i] = (struct entry){.stage = seat_stages[i], .index = seat_stages[i] == 0 ? i : 0};
        seat_fill(&seats[i]);
    }
}

/* ---- steps of the coordinator ---- */

/* As pipeline_condemn: nobody writes any more, all is answered. */
static void
condemn(void)
{
    atomic_store(&lane.state, LANE_CONDEMNED);
    lane_fail_all(&lane, STATUS_UNAVAILABLE, "rebuilt");
    loop_run_posted(loop);
}

static void
submit(struct program *program)
{
    uint8_t kind = take8(program);
    if (call_count == CALLS_MAX)
        return;
    struct call *call = &calls[call_count++];
    const struct message *message = &messages[kind % MESSAGE_KINDS];
    call->nonce = call_count;
    memcpy(message->bytes + message->nonce_at, &call->nonce, sizeof(call->nonce));
    struct wire_span span = {message->bytes, message->size};
    struct wire_message packed = {&span, 1, message->size};
    struct submission submission = {
        .message = &packed,
        .deadline_ns = kind >= 0xf0 ? now_ns : TIME_NEVER_NS,
        .sink = &sink,
        .call = call,
        .builder = &builder,
    };
    struct error error = ERROR_NONE;
    call->let_in = lane_submit(&lane, &submission, now_ns, &error) == STATUS_OK;
    CHECK(call->let_in || (call->answers == 0 && error.status != STATUS_OK));
}

/* As the worker pool judges. */
static enum repair_verdict
judge(void *context, struct shm_ticket ticket, uint8_t stage, struct error *error)
{
    (void)context;
    CHECK(stage < STAGES);
    struct request *request = lane_request(&lane, ticket);
    if (request == NULL)
        return REPAIR_CORRUPT;
    if (++request->deaths < DEATHS_MAX)
        return REPAIR_RUN_AGAIN;
    (void)error_set(error, STATUS_UNAVAILABLE, "poison");
    return REPAIR_FAIL;
}

static void
die(struct entry *entry)
{
    struct repair_judge by = {judge, NULL};
    struct repair_report report;
    struct error error = ERROR_NONE;
    const struct repair_dead dead = {entry->owner, entry->stage, entry->index};
    if (region_repair(&lane.region, &dead, OWNER_COORDINATOR, &by, &report, &error) != STATUS_OK)
        lane_report_corrupt(&lane, error.text);
    seat_fill(entry);
}

static struct shm_worker *
seat_of(const void *context, uint32_t stage, uint32_t index, uint16_t *owner)
{
    (void)context;
    *owner = seats[2 * stage + index].owner;
    return region_worker(&lane.region, stage, index);
}

static void
audit(uint8_t seconds)
{
    struct audit_workers workers = {seat_of, NULL};
    while (lane_gather(&lane, &view) > 0)
        continue; /* what waits for us never waits as long as an audit */
    now_ns += (1 + seconds % 4) * NS_PER_S;
    const char *lost = audit_look(lane.audit, &lane, &workers, now_ns);
    if (lost != NULL)
        lane_report_corrupt(&lane, lost);
}

/* A header that was written over is refused, or is as good as ours. */
static void
attach(void)
{
    struct region copy;
    struct error error = ERROR_NONE;
    int fd = dup(lane.region.fd);
    CHECK(fd >= 0);
    enum status status = region_attach(&copy, fd, &error);
    if (status != STATUS_OK) {
        close(fd);
        CHECK(region_check_header(&lane.region, &error) != STATUS_OK);
        return;
    }
    CHECK(copy.layout.region_bytes == lane.region.layout.region_bytes);
    region_detach(&copy);
}

static void
look_around(uint8_t which)
{
    struct error error = ERROR_NONE;
    (void)lane_has_answers(&lane);
    CHECK(region_check_header(&lane.region, &error) == STATUS_OK || memory_changed);
    CHECK(slots_used(&lane.region) <= SLOTS);
    CHECK(arena_used(&lane.region, -1) <= lane.region.blocks.count);
    struct shm_ring ring = region_slot_ring(&lane.region, which % (STAGES + 1));
    CHECK(ring_depth(&ring) <= ring.cell_count);
}

static void
wake(uint8_t stage)
{
    stage_notify(&lane.region, stage % STAGES);
    stages_awaken(&lane.region);
    doorbell_ring(&lane.region.header->coordinator_bell);
}

/* ---- what workers do ---- */

/* From the claim to the push; or not so far, and then its place is busy until it dies. */
static void
work_on(struct entry *entry, struct shm_ticket ticket, enum work_end end)
{
    const struct region *region = &lane.region;
    struct shm_slot *slot = region_slot(region, ticket.index);
    struct shm_payload *input = &slot->payload[entry->stage & 1];
    struct shm_payload *output = &slot->payload[(entry->stage + 1) & 1];
    struct error error = ERROR_NONE;
    uint8_t to = (uint8_t)(entry->stage + 1);
    entry->busy = end == WORK_STOPS_FIRST || end == WORK_STOPS_LAST;
    if (end == WORK_STOPS_FIRST)
        return;
    enum status status = payload_read(region, input, &view, &error);
    if (status == STATUS_OK) {
        builder_init(&builder, region, ticket.index, entry->owner, input, output);
        for (uint32_t i = 0; i < view.tensor_count && status == STATUS_OK; i++) {
            void *data;
            if (end == WORK_FORWARDS)
                status = builder_forward(&builder, &view, i, view.tensors[i].name, &error);
            else if ((status = builder_add(&builder, &view.tensors[i], &data, &error)) == STATUS_OK)
                memcpy(data, view.tensors[i].data, view.tensors[i].bytes);
        }
        if (end == WORK_STOPS_LAST)
            return;
        if (status == STATUS_OK)
            status = builder_seal(&builder, output, &error);
        if (status == STATUS_OK && end == WORK_FAILS)
            status = error_set(&error, STATUS_OUT_OF_RANGE, "bad item");
        if (status != STATUS_OK)
            builder_abandon(&builder, output);
    }
    if (status != STATUS_OK) {
        slot_set_failure(slot, (uint8_t)entry->stage, status, error.text);
        to = PLACE_ERROR;
    }
    if (slot_push(region, ticket, (uint8_t)entry->stage, to, entry->owner, now_ns) != RING_OK)
        lane_report_corrupt(&lane, "a worker found it so");
}

/* One turn of a worker's loop. */
static void
work(struct entry *entry, enum work_end end)
{
    if (entry->busy)
        return;
    struct shm_worker *worker = region_worker(&lane.region, entry->stage, entry->index);
    atomic_store(&worker->heartbeat_ns, ++now_ns);
    struct shm_ticket ticket;
    switch (slot_pop(&lane.region, (uint8_t)entry->stage, entry->owner, &ticket)) {
    case RING_OK: work_on(entry, ticket, end); break;
    case RING_CORRUPT: lane_report_corrupt(&lane, "a worker found it so"); break;
    case RING_EMPTY:
    case RING_LOST: break;
    }
}

/* ---- what a hostile worker does ---- */

/* Where to write 8 bytes; notes what kind of lie it is. */
static char *
target_of(struct program *program)
{
    const struct region *region = &lane.region;
    uint8_t what = take8(program) % TARGETS;
    uint8_t which = take8(program);
    tickets_forged |= what <= TARGET_LAST_OF_TICKETS;
    memory_changed |= what > TARGET_LAST_OF_TICKETS;
    switch (what) {
    case TARGET_STAGE: return BYTES(region_stage(region, which % STAGES)) + take8(program) % 57;
    case TARGET_SEAT: return BYTES(region_worker(region, 0, 0)) + take16(program) % 377;
    case TARGET_HEADER: return region->base + take8(program);
    default: return target_in(region, program, what, which);
    }
}

static void
forge(struct program *program)
{
    tickets_forged = true;
    enum ring_result filled = forge_ticket(&lane.region, program);
    CHECK(filled == RING_OK || filled == RING_CORRUPT);
}

static void
swap_descriptors(struct program *program)
{
    struct shm_payload *a = region_slot(&lane.region, take8(program) % SLOTS)->payload;
    struct shm_payload *b = region_slot(&lane.region, take8(program) % SLOTS)->payload;
    struct shm_payload kept[2];
    memory_changed = true;
    memcpy(kept, a, sizeof(kept));
    memmove(a, b, sizeof(kept));
    memcpy(b, kept, sizeof(kept));
}

/* A failure's text without an end, and any number as its status. */
static void
spoil_text(struct program *program)
{
    struct shm_slot *slot = region_slot(&lane.region, take8(program) % SLOTS);
    memory_changed = true;
    memset(slot->text, take8(program) | 1, sizeof(slot->text));
    atomic_store(&slot->status, take8(program));
}

/* ---- a program ---- */

static void
step(struct program *program)
{
    switch (take8(program) % STEPS) {
    case STEP_SUBMIT: submit(program); break;
    case STEP_WORK: {
        struct entry *entry = &seats[take8(program) % SEATS];
        work(entry, take8(program) % WORK_ENDS);
        break;
    }
    case STEP_GATHER: (void)lane_gather(&lane, &view); break;
    case STEP_DIE: die(&seats[take8(program) % SEATS]); break;
    case STEP_AUDIT: audit(take8(program)); break;
    case STEP_FAIL_STAGE: lane_fail_stage(&lane, take8(program) % STAGES, "no worker"); break;
    case STEP_CANCEL: lane_cancel(&lane, tag_ticket(calls[take8(program) % CALLS_MAX].tag)); break;
    case STEP_GIVE_BACK: give_back(&calls[take8(program) % CALLS_MAX]); break;
    case STEP_ATTACH: attach(); break;
    case STEP_LOOK: look_around(take8(program)); break;
    case STEP_WAKE: wake(take8(program)); break;
    case STEP_WRITE: write_value(&lane.region, program, target_of(program)); break;
    case STEP_FORGE: forge(program); break;
    case STEP_SWAP: swap_descriptors(program); break;
    case STEP_TEXT: spoil_text(program); break;
    default: break;
    }
}

static bool
all_answered(void)
{
    for (uint32_t i = 0; i < call_count; i++)
        if (calls[i].let_in && calls[i].answers == 0)
            return false;
    return true;
}

/* Those that stopped are dead, the others do what is left to do. */
static void
finish_work(void)
{
    for (uint32_t i = 0; i < SEATS; i++)
        if (seats[i].busy)
            die(&seats[i]);
    for (uint32_t i = 0; i < ROUNDS_MAX && !all_answered(); i++) {
        for (uint32_t k = 0; k < SEATS; k++)
            work(&seats[k], WORK_FORWARDS);
        (void)lane_gather(&lane, &view);
        if (atomic_load(&lane.corrupt_reported))
            return;
    }
}

static void
check_ends(bool honest)
{
    for (uint32_t i = 0; i < call_count; i++) {
        CHECK(calls[i].answers == (calls[i].let_in ? 1 : 0));
        give_back(&calls[i]);
    }
    loop_run_posted(loop);
    CHECK(atomic_load(&lane.refs) == 1 && share_total(&lane.share) == 0);
    CHECK(atomic_load(&lane.waiting) == 0);
    for (uint32_t i = 0; i < SLOTS; i++)
        CHECK(use_state(atomic_load(&lane.requests[i].use)) == REQUEST_NONE);
    if (honest)
        CHECK(slots_used(&lane.region) == 0 && arena_used(&lane.region, -1) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (loop == NULL)
        start();
    begin();
    struct program program = {data, size};
    for (uint32_t i = 0; i < STEPS_MAX && program.left > 0; i++) {
        step(&program);
        if (atomic_load(&lane.corrupt_reported))
            break;
    }
    if (!atomic_load(&lane.corrupt_reported))
        finish_work();
    bool honest = !tickets_forged && !memory_changed;
    CHECK(!honest || (!atomic_load(&lane.corrupt_reported) && all_answered()));
    if (!honest)
        condemn();
    check_ends(honest);
    audit_destroy(lane.audit);
    return 0;
}
