/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A region in the hands of a hostile worker: the input is a small program. Its steps submit real
 * requests, let workers do their work honestly, in pieces too, write any word anywhere, forge
 * tickets, pieces and cells, let workers die, and let the coordinator do all that it ever does with
 * a region: gather, repair, audit, fail a stage, cancel, wake, check the header, attach.
 * region_steps.h has the list.
 *
 * Properties: no step reads or writes outside the region, none goes on forever, every request that
 * was let in is answered exactly once, none gets a piece after its end, and an answer's bytes lie
 * in the region. As long as the program wrote nothing, also: nothing is ever called corrupt, every
 * caller gets its own answer and each of its pieces once and in order, a request of which a piece
 * was sent is not run again, and in the end no slot and no block is in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/log.h"
#include "coordinator/pipeline/audit.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/pipeline.h"
#include "inference/open_inference.pb-c.h"
#include "shm/arena.h"
#include "shm/former.h"
#include "shm/piece.h"
#include "shm/repair.h"
#include "shm/slot.h"
#include "lane_rig.h"
#include "region_steps.h"

enum {
    SEATS = 3,
    CALLS_MAX = 64,
    LENT_MAX = 8,
    STEPS_MAX = 400,
    DEATHS_MAX = 2,
    ROUNDS_MAX = 200,
    STREAM_BYTES = 1 << 20,
    PIECES_MAX = 40,    /* in one step */
    PIECES_WAITING = 8, /* that its worker leaves to the coordinator at a time */
    WIDE_BYTES = 2000,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A request's message, with a number of the caller's own in its tensor. */
struct message {
    uint8_t *bytes;
    size_t size;
    size_t nonce_at;
};

struct call {
    bool let_in;
    enum caller_kind kind;
    bool wants_other; /* an output that there is not: its pieces are empty */
    uint32_t answers;
    uint32_t pieces;  /* that came */
    uint64_t sum;     /* of their bytes, so that each is read */
    uint32_t emitted; /* as long as the program wrote nothing */
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

static struct message messages[MESSAGE_KINDS];
static struct payload_builder builder;
static struct payload_view view;
static struct payload_view gathered; /* while a worker has `view` */

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

static bool
is_honest(void)
{
    return !tickets_forged && !memory_changed;
}

/* Every byte can be read; the last tensor of an honest piece is its call's nonce and its number. */
static enum status
on_piece(void *context, const struct rpc_piece *pieces, size_t piece_count, uint64_t unread_max)
{
    struct call *call = context;
    uint64_t words[2] = {0};
    CHECK(call->let_in && call->answers == 0 && unread_max == STREAM_BYTES && piece_count > 0);
    for (size_t i = 0; i < piece_count; i++) {
        CHECK(pieces[i].release == NULL);
        for (size_t k = 0; k < pieces[i].bytes; k++)
            call->sum += ((const uint8_t *)pieces[i].data)[k];
    }
    if (is_honest() && call->wants_other) {
        CHECK(piece_count == 1);
    } else if (is_honest()) {
        const struct rpc_piece *last = &pieces[piece_count - 1];
        CHECK(last->bytes == sizeof(words));
        memcpy(words, last->data, sizeof(words));
        CHECK(words[0] == call->nonce && words[1] == call->pieces && call->pieces < call->emitted);
    }
    call->pieces++;
    return call->kind == CALLER_SLOW && call->pieces > CALLER_SLOW_TAKES ? STATUS_RESOURCE_EXHAUSTED
                                                                         : STATUS_OK;
}

/* The end of an answer that went well: all its pieces have come. */
static void
check_whole(const struct call *call)
{
    if (is_honest())
        CHECK(call->pieces == call->emitted);
    CHECK(call->kind != CALLER_SLOW || call->pieces <= CALLER_SLOW_TAKES);
}

static void
on_finish(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct call *call = context;
    call->answers++;
    check_whole(call);
    for (size_t i = 0; i < piece_count; i++)
        CHECK(pieces[i].release == NULL);
}

/* Every other caller keeps what it was lent for a while. */
static void
on_reply(void *context, const struct rpc_piece *pieces, size_t piece_count)
{
    struct call *call = context;
    call->answers++;
    check_whole(call);
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
    if (!memory_changed && !call->wants_other)
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

static const struct request_sink whole_sink = {
    .tagged = on_tagged, .reply = on_reply, .fail = on_fail};
static const struct request_sink pieces_sink = {.tagged = on_tagged,
                                                .reply = on_reply,
                                                .piece = on_piece,
                                                .finish = on_finish,
                                                .fail = on_fail};

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

static void
start(void)
{
    rig_start("fuzz_region", STREAM_BYTES);
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
    rig_begin();
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
    call->kind = kind / MESSAGE_KINDS % CALLER_KINDS;
    call->wants_other = kind % MESSAGE_KINDS == MESSAGE_OTHER_OUTPUT;
    memcpy(message->bytes + message->nonce_at, &call->nonce, sizeof(call->nonce));
    struct wire_span span = {message->bytes, message->size};
    struct wire_message packed = {&span, 1, message->size};
    struct submission submission = {
        .message = &packed,
        .deadline_ns = kind >= 0xf0 ? now_ns : TIME_NEVER_NS,
        .sink = call->kind == CALLER_WHOLE ? &whole_sink : &pieces_sink,
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
    const struct shm_slot *slot = region_slot(&lane.region, ticket.index);
    if (request->streams &&
        (slot_emitted(slot, ticket.generation) > 0 || atomic_load(&request->delivered) > 0)) {
        (void)error_set(error, STATUS_UNAVAILABLE, "it had begun to answer");
        return REPAIR_FAIL;
    }
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

/* Adds a tensor of the builder's own to a piece. */
static enum status
add_bytes(const char *name, const void *bytes, size_t count, struct error *error)
{
    struct shoal_tensor tensor = {.name = name,
                                  .datatype = SHOAL_UINT8,
                                  .rank = 1,
                                  .shape = {(int64_t)count},
                                  .bytes = count};
    void *data;
    enum status status = builder_add(&builder, &tensor, &data, error);
    if (status == STATUS_OK)
        memcpy(data, bytes, count);
    return status;
}

/* Pieces for a caller that takes them, as worker/emit.c sends them. Every other has two tensors,
 * which may lie in two blocks at first. The coordinator pops some when too many wait. */
static enum status
emit(const struct entry *entry, struct shm_ticket ticket, uint32_t count, struct error *error)
{
    static const uint8_t wide[WIDE_BYTES];
    struct shm_slot *slot = region_slot(&lane.region, ticket.index);
    const struct piece_pusher pusher = {&lane.region, ticket, entry->owner, entry->index,
                                        &slot->payload[(entry->stage + 1) & 1]};
    struct call *call = NULL;
    enum status status = STATUS_OK;
    if (is_honest()) {
        uint64_t nonce;
        memcpy(&nonce, view.tensors[0].data, sizeof(nonce));
        call = &calls[nonce - 1];
        CHECK(call->emitted == 0);
    }
    for (uint64_t n = 0; n < count && status == STATUS_OK; n++) {
        const uint64_t words[2] = {call == NULL ? 0 : call->nonce, n};
        if (n % 2 == 1)
            status = add_bytes("wide", wide, sizeof(wide), error);
        if (status == STATUS_OK)
            status = add_bytes("x", words, sizeof(words), error);
        if (status == STATUS_OK)
            status = piece_push(&pusher, &builder, error);
        if (status == STATUS_OK && call != NULL)
            call->emitted++;
        if (slot_pieces_waiting(slot, ticket.generation) > PIECES_WAITING)
            (void)lane_gather(&lane, &gathered);
    }
    return status;
}

static bool
emits(const struct entry *entry, struct shm_ticket ticket, enum work_end end)
{
    const struct shm_slot *slot = region_slot(&lane.region, ticket.index);
    return (end == WORK_EMITS || end == WORK_STOPS_EMITTING) && entry->stage == STAGES - 1 &&
           slot_streams(slot, ticket.generation);
}

/* From the claim to the push; or not so far, and then its place is busy until it dies. */
static void
work_on(struct entry *entry, struct shm_ticket ticket, enum work_end end, uint32_t pieces)
{
    const struct region *region = &lane.region;
    struct shm_slot *slot = region_slot(region, ticket.index);
    struct shm_payload *input = &slot->payload[entry->stage & 1];
    struct shm_payload *output = &slot->payload[(entry->stage + 1) & 1];
    struct error error = ERROR_NONE;
    uint8_t to = (uint8_t)(entry->stage + 1);
    entry->busy = end == WORK_STOPS_FIRST || end == WORK_STOPS_LAST || end == WORK_STOPS_EMITTING;
    if (end == WORK_STOPS_FIRST)
        return;
    enum status status = payload_read(region, input, &view, &error);
    if (status == STATUS_OK) {
        uint32_t outputs = view.tensor_count;
        builder_init(&builder, region, ticket.index, entry->owner, input, output);
        if (emits(entry, ticket, end)) {
            status = emit(entry, ticket, pieces, &error);
            outputs = pieces % 2 == 1 ? 0 : outputs;
        }
        for (uint32_t i = 0; i < outputs && status == STATUS_OK; i++) {
            void *data;
            if (end == WORK_FORWARDS)
                status = builder_forward(&builder, &view, i, view.tensors[i].name, &error);
            else if ((status = builder_add(&builder, &view.tensors[i], &data, &error)) == STATUS_OK)
                memcpy(data, view.tensors[i].data, view.tensors[i].bytes);
        }
        if (entry->busy)
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
work(struct entry *entry, enum work_end end, uint32_t pieces)
{
    if (entry->busy)
        return;
    struct shm_worker *worker = region_worker(&lane.region, entry->stage, entry->index);
    atomic_store(&worker->heartbeat_ns, ++now_ns);
    struct shm_ticket ticket;
    switch (slot_pop(&lane.region, (uint8_t)entry->stage, entry->owner, &ticket)) {
    case RING_OK: work_on(entry, ticket, end, pieces); break;
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
forge_a_piece(struct program *program)
{
    tickets_forged = memory_changed = true;
    enum ring_result filled = forge_piece(&lane.region, program);
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
        enum work_end end = take8(program) % WORK_ENDS;
        bool counts = end == WORK_EMITS || end == WORK_STOPS_EMITTING;
        work(entry, end, counts ? take8(program) % PIECES_MAX : 0);
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
    case STEP_FORGE_PIECE: forge_a_piece(program); break;
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
            work(&seats[k], WORK_FORWARDS, 0);
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
    CHECK(atomic_load(&lane.waiting) == 0 && atomic_load(&lane.streaming) == 0);
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
    bool honest = is_honest();
    CHECK(!honest || (!atomic_load(&lane.corrupt_reported) && all_answered()));
    if (!honest)
        condemn();
    check_ends(honest);
    audit_destroy(lane.audit);
    return 0;
}
