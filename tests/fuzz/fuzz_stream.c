/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of ModelStreamInfer: the input is a small program. Its steps bring any bytes as a request,
 * or a good one, perhaps with a byte changed; let workers answer in pieces; and do what gRPC does
 * with a call, in any order that rpc.h allows: messages leave, the caller half-closes, is gone, is
 * reported to be gone, posts run. The lane is real, gRPC and the dispatcher are this program.
 *
 * Properties: every message sent is one that protobuf-c reads; a request gets its pieces in order,
 * each once, and one end, which is its last message, unless its caller is gone; a call is finished
 * once, when all its requests are answered; nothing leaks. ctest: presets=dev
 */
#include <stdio.h>

#include "coordinator/front/stream_infer.h"
#include "coordinator/telemetry/trace_call.h"
#include "inference/open_inference.pb-c.h"
#include "shm/piece.h"
#include "shm/slot.h"
#include "lane_rig.h"
#include "spans.h"

enum {
    CALLS = 3,
    REQUESTS_MAX = 64,
    STEPS_LIMIT = 300,
    ROUNDS_MAX = 400,
    STREAM_BYTES = 700, /* so little that a request's answer is broken off now and then */
    POSTS_MAX = CALLS,
    WORKER = 2,
    NAME_BYTES = 16,
};

enum stream_step {
    DO_BYTES,      /* call, count, the bytes, span */
    DO_REQUEST,    /* call, flags, where, value */
    DO_WORK,       /* pieces, ending */
    DO_GATHER,     /* */
    DO_SENT,       /* call */
    DO_HALF_CLOSE, /* call */
    DO_GONE,       /* call: messages go nowhere from here on */
    DO_CANCEL,     /* call */
    DO_POSTS,      /* */
    DO_ALL,
};

enum { FLAG_WANTS_END = 1, FLAG_CHANGED = 2, FLAG_UNKNOWN = 4 };

enum work_ending { ENDS_WITH_OUTPUT, ENDS_WITHOUT, ENDS_FAILING, ENDINGS };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A call as gRPC has it. */
struct rpc_call {
    void *user;
    uint64_t tag;
    uint32_t given; /* messages that have not left */
    bool begun, wants, half_closed, gone, cancelled, finished;
    bool is_any; /* it had any bytes, which may have the id of a good request */
};

/* A good request, by its number, which is its id and its tensor. */
struct asked {
    struct rpc_call *call;
    uint32_t pieces;
    bool wants_end;
    bool ended;
};

static struct rpc_call calls[CALLS];
static struct rpc_post *posts[POSTS_MAX];
static uint32_t post_count;
static struct asked asked[REQUESTS_MAX];
static uint32_t asked_count;
static _Atomic uint64_t node_counters[1 << 14];
static struct payload_builder builder;
static struct payload_view view;
static const struct dispatch dispatch;
static const struct stream_infer infer = {.dispatch = &dispatch, .counters = node_counters};

/* ---- gRPC, as far as streams use it ---- */

static bool
is_final(const Inference__ModelInferResponse *response)
{
    bool final = false;
    uint32_t found = 0;
    for (size_t i = 0; i < response->n_parameters; i++) {
        const Inference__ModelInferResponse__ParametersEntry *entry = response->parameters[i];
        if (strcmp(entry->key, "triton_final_response") != 0)
            continue;
        CHECK(entry->value->parameter_choice_case ==
              INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM);
        final = entry->value->bool_param;
        found++;
    }
    CHECK(found == 1);
    return final;
}

/* A piece's tensor has its request's number, and its own. */
static void
check_piece(struct asked *one, const Inference__ModelInferResponse *response)
{
    uint64_t words[2];
    CHECK(response->n_raw_output_contents == 1 &&
          response->raw_output_contents[0].len == sizeof(words));
    memcpy(words, response->raw_output_contents[0].data, sizeof(words));
    CHECK(words[0] == (uint64_t)(one - asked) && words[1] == one->pieces);
    one->pieces++;
}

static void
check_message(struct rpc_call *call, const uint8_t *bytes, size_t count)
{
    Inference__ModelStreamInferResponse *message =
        inference__model_stream_infer_response__unpack(NULL, count, bytes);
    CHECK(message != NULL && message->infer_response != NULL);
    const Inference__ModelInferResponse *response = message->infer_response;
    bool final = is_final(response);
    bool failed = message->error_message[0] != '\0';
    CHECK(!failed || (final && response->n_outputs == 0));
    uint32_t number = asked_count;
    if (response->id[0] == 'r' && sscanf(response->id, "r%u", &number) == 1 &&
        number < asked_count && !call->is_any) {
        struct asked *one = &asked[number];
        CHECK(one->call == call && !one->ended);
        one->ended = final;
        if (!final)
            check_piece(one, response);
        else if (!failed && response->n_outputs == 0)
            CHECK(one->wants_end);
    }
    inference__model_stream_infer_response__free_unpacked(message, NULL);
}

enum status
rpc_call_send(struct rpc_call *call, const struct rpc_piece *pieces, size_t piece_count)
{
    size_t count = 0;
    for (size_t i = 0; i < piece_count; i++)
        count += pieces[i].bytes;
    uint8_t *bytes = malloc(count + 1);
    CHECK(bytes != NULL && !call->finished);
    count = 0;
    for (size_t i = 0; i < piece_count; i++) {
        memcpy(bytes + count, pieces[i].data, pieces[i].bytes);
        count += pieces[i].bytes;
    }
    check_message(call, bytes, count);
    free(bytes);
    rpc_pieces_release(pieces, piece_count);
    call->given += !call->gone;
    return call->gone ? STATUS_CANCELLED : STATUS_OK;
}

void
rpc_call_read(struct rpc_call *call)
{
    CHECK(!call->finished);
    call->wants = true;
}

void
rpc_call_finish(struct rpc_call *call, enum status status, const char *text)
{
    (void)text;
    CHECK(!call->finished);
    CHECK(status == (call->cancelled ? STATUS_CANCELLED : STATUS_OK));
    CHECK(call->cancelled || call->half_closed);
    call->finished = true;
    for (uint32_t i = 0; i < asked_count; i++)
        CHECK(asked[i].call != call || asked[i].ended || !asked[i].wants_end || call->cancelled ||
              call->is_any);
}

void
rpc_queue_post(struct rpc_queue *queue, struct rpc_post *post)
{
    (void)queue;
    CHECK(post_count < POSTS_MAX);
    posts[post_count++] = post;
}

struct rpc_queue *
rpc_server_queue(struct rpc_server *server, size_t index)
{
    (void)server;
    (void)index;
    return NULL;
}

void
rpc_server_relieve(struct rpc_server *server)
{
    (void)server;
}

void
rpc_call_set_tag(struct rpc_call *call, uint64_t tag)
{
    call->tag = tag;
}

void
rpc_call_set_user(struct rpc_call *call, void *user)
{
    call->user = user;
}

void *
rpc_call_user(const struct rpc_call *call)
{
    return call->user;
}

int64_t
rpc_call_deadline_ns(const struct rpc_call *call)
{
    (void)call;
    return TIME_NEVER_NS;
}

bool
rpc_call_metadata_next(const struct rpc_call *call, const char *key, size_t *position,
                       struct wire_span *value)
{
    (void)call;
    (void)key;
    (void)position;
    (void)value;
    return false;
}

bool
rpc_call_metadata_walk(const struct rpc_call *call, size_t *position, struct rpc_metadata *entry)
{
    (void)call;
    (void)position;
    (void)entry;
    return false;
}

bool
rpc_call_caller_names(const struct rpc_call *call,
                      void (*take)(void *context, const void *name, size_t bytes), void *context)
{
    (void)call;
    (void)take;
    (void)context;
    return false;
}

size_t
rpc_call_peer(const struct rpc_call *call, char *address, size_t room)
{
    (void)call;
    (void)address;
    (void)room;
    return 0;
}

/* ---- the dispatcher: every model is the lane's ---- */

struct submission
dispatch_submission(const struct inbound *inbound, struct payload_builder *given)
{
    return (struct submission){.message = inbound->message,
                               .deadline_ns = inbound->deadline_ns,
                               .sink = inbound->type->sink,
                               .call = inbound->call,
                               .builder = given};
}

enum status
dispatch_infer(const struct dispatch *unused, const struct inbound *inbound, struct pipeline *bound,
               struct submission *submission, struct error *error)
{
    (void)unused;
    (void)inbound;
    (void)bound;
    return lane_submit(&lane, submission, NS_PER_S, error);
}

void
dispatch_refused(const struct dispatch *unused, const char *method, uint64_t request_bytes,
                 struct trace *trace, const struct error *error)
{
    (void)unused;
    (void)method;
    (void)request_bytes;
    (void)trace;
    CHECK(error->status != STATUS_OK);
}

void
dispatch_cancel(const struct dispatch *unused, uint64_t tag)
{
    (void)unused;
    if (tag != 0)
        lane_cancel(&lane, tag_ticket(tag));
}

void
dispatch_taken(const struct dispatch *unused, uint64_t tag, uint64_t bytes)
{
    (void)unused;
    (void)tag;
    (void)bytes;
    CHECK(!"no other node");
}

void
target_leave(struct target *target)
{
    CHECK(target == NULL); /* nothing waits for a slot here */
}

struct trace *
trace_call_begin(struct tracer *tracer, const struct trace_origin *origin,
                 const struct rpc_call *call)
{
    (void)tracer;
    (void)origin;
    (void)call;
    CHECK(!"no tracer");
}

/* ---- the worker of both stages ---- */

static enum status
add_words(const uint64_t words[2], struct error *error)
{
    struct shoal_tensor tensor = {
        .name = "x", .datatype = SHOAL_UINT8, .rank = 1, .shape = {16}, .bytes = 16};
    void *data;
    enum status status = builder_add(&builder, &tensor, &data, error);
    if (status == STATUS_OK)
        memcpy(data, words, tensor.bytes);
    return status;
}

static enum status
emit(struct shm_ticket ticket, uint64_t number, uint32_t count, struct error *error)
{
    struct shm_slot *slot = region_slot(&lane.region, ticket.index);
    const struct piece_pusher pusher = {&lane.region, ticket, WORKER, 0,
                                        &slot->payload[STAGES & 1]};
    enum status status = STATUS_OK;
    for (uint64_t n = 0; n < count && status == STATUS_OK; n++) {
        if (slot_cancelled(slot, ticket.generation))
            return error_set(error, STATUS_CANCELLED, "cancelled");
        status = add_words((const uint64_t[]){number, n}, error);
        if (status == STATUS_OK)
            status = piece_push(&pusher, &builder, error);
    }
    return status;
}

/* Takes one request of a stage to its end there. */
static bool
work(uint8_t stage, uint32_t pieces, enum work_ending ending)
{
    struct shm_ticket ticket;
    struct error error = ERROR_NONE;
    uint64_t number = 0;
    if (slot_pop(&lane.region, stage, WORKER, &ticket) != RING_OK)
        return false;
    struct shm_slot *slot = region_slot(&lane.region, ticket.index);
    struct shm_payload *input = &slot->payload[stage & 1];
    struct shm_payload *output = &slot->payload[(stage + 1) & 1];
    bool streams = stage == STAGES - 1 && slot_streams(slot, ticket.generation);
    CHECK(payload_read(&lane.region, input, &view, &error) == STATUS_OK);
    builder_init(&builder, &lane.region, ticket.index, WORKER, input, output);
    uint32_t outputs = view.tensor_count;
    enum status status = STATUS_OK;
    if (streams) {
        if (view.tensor_count > 0 && view.tensors[0].bytes >= sizeof(number))
            memcpy(&number, view.tensors[0].data, sizeof(number));
        status = emit(ticket, number, pieces, &error);
        outputs = ending == ENDS_WITHOUT ? 0 : outputs;
        if (status == STATUS_OK && ending == ENDS_FAILING)
            status = error_set(&error, STATUS_ABORTED, "told to fail");
    }
    for (uint32_t i = 0; i < outputs && status == STATUS_OK; i++)
        status = builder_forward(&builder, &view, i, view.tensors[i].name, &error);
    if (status == STATUS_OK)
        status = builder_seal(&builder, output, &error);
    if (status != STATUS_OK) {
        builder_abandon(&builder, output);
        slot_set_failure(slot, stage, status, error.text);
    }
    uint8_t to = status == STATUS_OK ? (uint8_t)(stage + 1) : PLACE_ERROR;
    CHECK(slot_push(&lane.region, ticket, stage, to, WORKER, NS_PER_S) == RING_OK);
    return true;
}

/* ---- steps ---- */

/* Whether gRPC may bring the call something now. */
static bool
takes(const struct rpc_call *call)
{
    return !call->finished && !call->cancelled && !call->half_closed &&
           (!call->begun || call->wants);
}

static void
bring(struct rpc_call *call, const uint8_t *bytes, size_t count, unsigned span)
{
    static const struct stream_infer_thread thread = {.builder = &builder};
    struct wire_span spans[SPANS_MAX];
    struct wire_message message = cut(bytes, count, span, spans);
    call->begun = true;
    call->wants = false;
    stream_infer_on_message(&infer, &thread, call, &message);
}

static void
bring_bytes(struct program *program)
{
    struct rpc_call *call = &calls[take8(program) % CALLS];
    size_t count = take8(program);
    if (count > program->left)
        count = program->left;
    const uint8_t *bytes = program->data;
    program->data += count;
    program->left -= count;
    unsigned span = take8(program);
    if (!takes(call))
        return;
    call->is_any = true;
    bring(call, bytes, count, span);
}

static size_t
pack(uint32_t number, uint8_t flags, uint8_t *bytes)
{
    char name[] = "x", datatype[] = "UINT8", id[NAME_BYTES];
    char key[] = "triton_enable_empty_final_response";
    uint64_t words[2] = {number, 0};
    int64_t shape = sizeof(words);
    Inference__ModelInferRequest__InferInputTensor input =
        INFERENCE__MODEL_INFER_REQUEST__INFER_INPUT_TENSOR__INIT;
    Inference__ModelInferRequest__InferInputTensor *inputs[] = {&input};
    Inference__InferParameter value = INFERENCE__INFER_PARAMETER__INIT;
    Inference__ModelInferRequest__ParametersEntry entry =
        INFERENCE__MODEL_INFER_REQUEST__PARAMETERS_ENTRY__INIT;
    Inference__ModelInferRequest__ParametersEntry *entries[] = {&entry};
    Inference__ModelInferRequest request = INFERENCE__MODEL_INFER_REQUEST__INIT;
    ProtobufCBinaryData raw = {sizeof(words), (uint8_t *)words};
    snprintf(id, sizeof(id), "r%u", number);
    input.name = name;
    input.datatype = datatype;
    input.n_shape = (flags & FLAG_UNKNOWN) != 0 ? 0 : 1;
    input.shape = &shape;
    value.parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    value.bool_param = true;
    entry.key = key;
    entry.value = &value;
    request.model_name = name;
    request.id = id;
    request.n_inputs = 1;
    request.inputs = inputs;
    request.n_raw_input_contents = 1;
    request.raw_input_contents = &raw;
    request.n_parameters = (flags & FLAG_WANTS_END) != 0;
    request.parameters = entries;
    return inference__model_infer_request__pack(&request, bytes);
}

static void
bring_request(struct program *program)
{
    struct rpc_call *call = &calls[take8(program) % CALLS];
    uint8_t flags = take8(program);
    uint8_t bytes[512];
    if (asked_count == REQUESTS_MAX || !takes(call))
        return;
    size_t count = pack(asked_count, flags, bytes);
    if ((flags & FLAG_CHANGED) != 0) {
        uint8_t where = take8(program);
        bytes[where % count] = take8(program);
        call->is_any = true;
    }
    asked[asked_count++] = (struct asked){.call = call, .wants_end = (flags & FLAG_WANTS_END) != 0};
    bring(call, bytes, count, flags >> 4);
}

static void
sent(struct rpc_call *call)
{
    if (call->given == 0 || call->finished || call->gone)
        return;
    call->given--;
    stream_infer_on_sent(call->tag);
}

static void
half_close(struct rpc_call *call)
{
    if (!takes(call))
        return;
    call->begun = true;
    call->half_closed = true;
    stream_infer_on_half_close(call);
}

static void
cancel(struct rpc_call *call)
{
    if (!call->begun || call->cancelled || call->finished)
        return;
    call->gone = call->cancelled = true;
    stream_infer_on_cancel(call->tag);
}

static void
run_posts(void)
{
    while (post_count > 0) {
        struct rpc_post *post = posts[--post_count];
        post->run(post);
    }
}

static void
step(struct program *program)
{
    switch (take8(program) % DO_ALL) {
    case DO_BYTES: bring_bytes(program); break;
    case DO_REQUEST: bring_request(program); break;
    case DO_WORK: {
        uint32_t pieces = take8(program) % PIECES_AHEAD_MAX;
        (void)work(0, 0, ENDS_WITH_OUTPUT);
        (void)work(1, pieces, take8(program) % ENDINGS);
        break;
    }
    case DO_GATHER: (void)lane_gather(&lane, &view); break;
    case DO_SENT: sent(&calls[take8(program) % CALLS]); break;
    case DO_HALF_CLOSE: half_close(&calls[take8(program) % CALLS]); break;
    case DO_GONE: calls[take8(program) % CALLS].gone = true; break;
    case DO_CANCEL: cancel(&calls[take8(program) % CALLS]); break;
    case DO_POSTS: run_posts(); break;
    default: break;
    }
}

/* Finishes pending work and reports callers that are gone. */
static bool
finish(void)
{
    bool all = true;
    while (work(0, 0, ENDS_WITH_OUTPUT) || work(1, 2, ENDS_WITH_OUTPUT))
        continue;
    while (lane_gather(&lane, &view) > 0)
        continue;
    for (uint32_t i = 0; i < CALLS; i++) {
        struct rpc_call *call = &calls[i];
        if (call->gone)
            cancel(call);
        while (call->given > 0 && !call->gone && !call->finished)
            sent(call);
        if (call->begun)
            half_close(call);
        all = all && (!call->begun || call->finished);
    }
    run_posts();
    loop_run_posted(loop);
    return all;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (loop == NULL)
        rig_start("fuzz_stream", STREAM_BYTES);
    rig_begin();
    memset(calls, 0, sizeof(calls));
    asked_count = post_count = 0;
    struct program program = {data, size};
    for (uint32_t i = 0; i < STEPS_LIMIT && program.left > 0; i++)
        step(&program);
    uint32_t rounds = 0;
    while (!finish())
        CHECK(rounds++ < ROUNDS_MAX);
    CHECK(!atomic_load(&lane.corrupt_reported));
    CHECK(slots_used(&lane.region) == 0 && arena_used(&lane.region, -1) == 0);
    CHECK(atomic_load(&lane.streaming) == 0 && atomic_load(&lane.refs) == 1);
    CHECK(atomic_load(&node_counters[counter_offset[NODE_STREAMS]]) == 0);
    audit_destroy(lane.audit);
    return 0;
}
