/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_incoming.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "mesh/edge/skew.h"

enum { PLACES_FIRST = 64 };

#define FIGURES_NS (NS_PER_S / 20)

/* ---- references ---- */

static void
session_release(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    unsigned left = --session->references;
    pthread_mutex_unlock(&session->lock);
    if (left > 0)
        return;
    pthread_mutex_destroy(&session->lock);
    free(session->incoming);
    free(session->peer);
    free(session);
}

static void
incoming_hold(struct incoming *incoming)
{
    pthread_mutex_lock(&incoming->session->lock);
    incoming->references++;
    pthread_mutex_unlock(&incoming->session->lock);
}

void
incoming_release(struct incoming *incoming)
{
    struct session *session = incoming->session;
    pthread_mutex_lock(&session->lock);
    unsigned left = --incoming->references;
    if (left == 0)
        session->held_bytes -= incoming->held;
    pthread_mutex_unlock(&session->lock);
    if (left > 0)
        return;
    free(incoming->said);
    gathered_release(&incoming->first);
    gathered_release(&incoming->more);
    if (incoming->request.flow != NULL)
        peer_flow_fini(&incoming->flow);
    free(incoming);
    session_release(session);
}

/* The driver has done with it. */
static void
over(struct incoming *incoming)
{
    pthread_mutex_lock(&incoming->session->lock);
    bool was_over = incoming->is_over;
    incoming->is_over = true;
    pthread_mutex_unlock(&incoming->session->lock);
    if (!was_over)
        incoming_release(incoming);
}

/* ---- answers ---- */

void
session_broke(struct session *session)
{
    session->is_broken = true;
    session->house->on_broken(session->house->context);
}

static struct incoming **
place_of(const struct incoming *incoming)
{
    return &incoming->session->incoming[incoming->number & SESSION_PLACE_MASK];
}

bool
incoming_is_there(const struct incoming *incoming)
{
    return *place_of(incoming) == incoming;
}

/* Locked. Whether it was still there: who takes it has the table's reference. */
static bool
table_take(struct incoming *incoming)
{
    if (!incoming_is_there(incoming))
        return false;
    *place_of(incoming) = NULL;
    return true;
}

/* Locked. `frame` is an answer; of a flow, it comes behind its messages. */
static void
send_answer(struct session *session, struct peer_frame *frame, const struct rpc_piece *pieces,
            size_t piece_count, const struct peer_flow *flow)
{
    uint64_t bytes = peer_pieces_bytes(pieces, piece_count);
    frame->kind = PEER_ANSWER;
    frame->answer.message_bytes = bytes;
    enum status status =
        flow != NULL ? peer_pipe_put_behind(&session->pipe, frame, pieces, piece_count, bytes)
                     : peer_pipe_put(&session->pipe, frame, pieces, piece_count, bytes);
    if (status == STATUS_INVALID_ARGUMENT) {
        static const char text[] = "the answer's metadata are too long to be passed on";
        struct peer_answer *answer = &frame->answer;
        answer->status = STATUS_INTERNAL;
        answer->text = (struct rpc_span){text, sizeof(text) - 1};
        answer->initial_count = answer->trailing_count = 0;
        answer->has_message = false;
        answer->message_bytes = 0;
        status = peer_pipe_put_behind(&session->pipe, frame, NULL, 0, 0);
    }
    if (status != STATUS_OK)
        session_broke(session);
}

static uint32_t
metadata_copy(struct rpc_metadata *to, const struct rpc_metadata *from, size_t count)
{
    size_t taken = count < PEER_METADATA_MAX ? count : PEER_METADATA_MAX;
    if (taken > 0)
        memcpy(to, from, taken * sizeof(*to));
    return (uint32_t)taken;
}

static void
frame_of_answer(struct peer_answer *told, const struct rpc_answer *answer)
{
    told->end = MESH_END_OK;
    told->status = answer->status;
    told->text = answer->text;
    if (told->text.bytes > PEER_TEXT_BYTES_MAX)
        told->text.bytes = PEER_TEXT_BYTES_MAX;
    told->has_message = answer->pieces != NULL;
    told->initial_count = metadata_copy(told->initial, answer->initial, answer->initial_count);
    told->trailing_count = metadata_copy(told->trailing, answer->trailers, answer->trailer_count);
}

/* Locked: `told` goes out under the call's number, if it is still asked for. */
static bool
answer(struct incoming *incoming, struct peer_frame *frame, const struct rpc_piece *pieces,
       size_t piece_count)
{
    struct session *session = incoming->session;
    bool was_there = table_take(incoming);
    frame->answer.number = incoming->number;
    if (was_there && session->call != NULL)
        send_answer(session, frame, pieces, piece_count, incoming->request.flow);
    else
        peer_pieces_give_back(pieces, piece_count);
    return was_there;
}

/* Why the call could not be served here. With a status: who has it is to tell its caller so, unless
 * another node serves it. */
static void
frame_of_refusal(struct peer_answer *told, const struct incoming *incoming,
                 const struct driver_answer *given)
{
    bool by_runtime = incoming->said != NULL && !given->store_refuses;
    const char *text = by_runtime ? incoming->said : given->text;
    size_t bytes = text == NULL ? 0 : strlen(text);
    told->end = given->end;
    told->status = by_runtime             ? incoming->said_status
                   : given->store_refuses ? STATUS_UNAVAILABLE
                                          : STATUS_OK;
    told->text = (struct rpc_span){text, bytes < PEER_TEXT_BYTES_MAX ? bytes : PEER_TEXT_BYTES_MAX};
}

/* driver_call_type: no runtime has answered. Under the driver's lock. */
static void
on_answer(struct driver_call *call, const struct driver_answer *given)
{
    struct incoming *incoming = (struct incoming *)call; /* its first member */
    struct session *session = incoming->session;
    struct peer_frame frame;
    frame_of_refusal(&frame.answer, incoming, given);
    frame.answer.has_message = false;
    frame.answer.initial_count = frame.answer.trailing_count = 0;
    frame.answer.has_figures = true;
    frame.answer.figures = given->figures.figures;
    pthread_mutex_lock(&session->lock);
    bool was_there = answer(incoming, &frame, NULL, 0);
    pthread_mutex_unlock(&session->lock);
    if (was_there)
        incoming_release(incoming);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): references are counted
    over(incoming);
}

static bool
figures_due(struct session *session)
{
    int64_t now_ns = clock_now_ns();
    pthread_mutex_lock(&session->lock);
    bool due = now_ns >= session->figures_due_ns;
    if (due)
        session->figures_due_ns = now_ns + FIGURES_NS;
    pthread_mutex_unlock(&session->lock);
    return due;
}

/* A runtime has answered, here or further on. */
static void
pass_back(struct incoming *incoming, const struct rpc_answer *given)
{
    struct session *session = incoming->session;
    struct peer_frame frame;
    frame_of_answer(&frame.answer, given);
    frame.answer.has_figures = figures_due(session);
    if (frame.answer.has_figures)
        frame.answer.figures = driver_figures(session->house->driver).figures;
    pthread_mutex_lock(&session->lock);
    bool was_there = answer(incoming, &frame, given->pieces, given->piece_count);
    pthread_mutex_unlock(&session->lock);
    if (was_there)
        incoming_release(incoming);
}

struct incoming *
incoming_of(struct peer_request *request)
{
    return (struct incoming *)((char *)request - offsetof(struct incoming, request));
}

/* The owner of the try may: the driver has not been told of its end. */
static void
keep_said(struct incoming *incoming, const struct driver_end *end)
{
    free(incoming->said);
    incoming->said = strdup(end->said);
    CHECK(incoming->said != NULL);
    incoming->said_status = end->said_status;
}

static void
on_ended(struct peer_request *request, uint32_t number, const struct driver_end *ended,
         const struct rpc_answer *given)
{
    struct peer_flow_end as_told;
    peer_flow_detach(request->flow, ended, given, &as_told);
    const struct driver_end *end = &as_told.end;
    struct incoming *incoming = incoming_of(request);
    struct session *session = incoming->session;
    struct driver *driver = session->house->driver;
    bool is_last = driver_end_is_last(end);
    if (is_last)
        pass_back(incoming, as_told.answer);
    else if (end->said != NULL)
        keep_said(incoming, end);
    driver_try_ended(driver, &incoming->call, number, end);
    pthread_mutex_lock(&session->lock);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): references are counted
    bool is_cancelled = incoming->is_cancelled;
    pthread_mutex_unlock(&session->lock);
    /* Cancelled: whether this was the last that the driver had to hear of it, the driver knows. */
    if (is_last || (is_cancelled && driver_call_cancelled(driver, &incoming->call)))
        over(incoming);
}

static void
on_hold(struct peer_request *request)
{
    incoming_hold(incoming_of(request));
}

static void
on_release(struct peer_request *request)
{
    incoming_release(incoming_of(request));
}

static const struct peer_request_type request_type = {
    .on_ended = on_ended,
    .hold = on_hold,
    .release = on_release,
    .on_part = incoming_on_part,
    .on_room = incoming_on_room,
    .on_let_go = incoming_on_let_go,
};

static enum driver_begun
on_serve(struct driver_call *call, const struct driver_attempt *attempt, struct driver_end *end)
{
    const struct peer_server_options *options = ((struct incoming *)call)->session->house->options;
    return options->serve(options->context, call, attempt, end);
}

static const struct driver_call_type call_type = {.serve = on_serve, .answer = on_answer};

/* ---- calls ---- */

/* Answers a call that cannot be taken at once; parts that follow are ignored. */
static void
refuse_call(struct session *session, uint32_t number, enum mesh_end end, const char *text)
{
    struct peer_frame frame;
    frame.answer.number = number;
    frame.answer.end = end;
    frame.answer.status = STATUS_OK;
    frame.answer.text = (struct rpc_span){text, strlen(text)};
    frame.answer.has_message = frame.answer.has_figures = false;
    frame.answer.initial_count = frame.answer.trailing_count = 0;
    pthread_mutex_lock(&session->lock);
    send_answer(session, &frame, NULL, 0, NULL);
    pthread_mutex_unlock(&session->lock);
}

static int64_t
deadline_of(uint64_t left_us)
{
    int64_t now_ns = clock_now_ns();
    if (left_us == 0 || left_us > (uint64_t)(TIME_NEVER_NS - now_ns) / NS_PER_US)
        return TIME_NEVER_NS;
    return now_ns + (int64_t)left_us * NS_PER_US;
}

/* The message is whole. */
static void
begin(struct incoming *incoming)
{
    const struct peer_call *told = &incoming->frame.call;
    incoming->request.type = &request_type;
    incoming->request.method = told->method;
    incoming->request.metadata = told->metadata;
    incoming->request.metadata_count = told->metadata_count;
    incoming->request.queue = incoming->session->house->queue;
    incoming->request.pieces = incoming->first.pieces;
    incoming->request.piece_count = incoming->first.count;
    incoming->call = (struct driver_call){
        .type = &call_type,
        .request = &incoming->request,
        .model = told->model,
        .name = DRIVER_NAME_MODEL,
        .hop = told->hop,
        .balance = MESH_BALANCE_NONE,
        .create_revision = told->create_revision,
        .tried = told->tried,
        .tried_count = told->tried_count,
        .deadline_ns = deadline_of(told->left_us),
    };
    incoming->is_called = true;
    incoming_hold(incoming); /* the driver's */
    driver_call(incoming->session->house->driver, &incoming->call);
}

/* The table has room for that place; it is the peer's choice, so it is bounded by the mask. */
static void
table_grow(struct session *session, uint32_t place)
{
    uint32_t count = session->place_count == 0 ? PLACES_FIRST : session->place_count;
    while (count <= place)
        count *= 2;
    session->incoming = realloc(session->incoming, count * sizeof(struct incoming *));
    CHECK(session->incoming != NULL);
    memset(session->incoming + session->place_count, 0,
           (count - session->place_count) * sizeof(struct incoming *));
    session->place_count = count;
}

static struct incoming *
incoming_create(struct session *session, uint32_t head_bytes)
{
    struct incoming *incoming = malloc(sizeof(*incoming) + head_bytes);
    CHECK(incoming != NULL);
    incoming->request = (struct peer_request){.type = NULL};
    incoming->session = session;
    incoming->references = 1; /* the table's */
    incoming->is_called = incoming->is_cancelled = incoming->is_over = false;
    incoming->said = NULL;
    incoming->first = incoming->more = (struct gathered){.pieces = NULL};
    incoming->is_gathering = incoming->is_last = false;
    incoming->in = incoming->credit = incoming->out = 0;
    return incoming;
}

/* The bytes counted for a call: itself, its message, a window for messages behind it, and the
 * delivery that it came in, which lives as long. */
static uint64_t
held_of(const struct rpc_message *message, const struct peer_frame *frame)
{
    uint64_t beside = message->bytes - frame->payload_bytes;
    bool is_open = frame->call.shape == PEER_FLOW_OPEN || frame->call.shape == PEER_FLOW_AWAITED;
    uint64_t behind = is_open ? PEER_FLOW_TAKEN_BYTES : 0;
    return sizeof(struct incoming) + frame->head_bytes + frame->call.message_bytes + behind +
           beside;
}

/* The limit that a readable call exceeds; NULL: none. */
static const char *
refusal(const struct session *session, const struct rpc_message *message,
        const struct peer_frame *frame, enum mesh_end *end)
{
    *end = MESH_END_FAILED;
    if (frame->call.message_bytes > session->house->options->message_bytes_max)
        return "the message is larger than this node takes";
    *end = MESH_END_OVERLOADED;
    if (session->held_bytes + held_of(message, frame) > PEER_SERVER_HELD_BYTES)
        return "too many bytes of requests wait here";
    return NULL;
}

static enum status
check_call(const struct session *session, const struct peer_frame *frame, struct error *error)
{
    const struct peer_call *told = &frame->call;
    uint32_t place = told->number & SESSION_PLACE_MASK;
    if (place < session->place_count && session->incoming[place] != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: its place is in use",
                         told->number);
    if (told->hop == MESH_HOP_ENTRY || told->model[0] == '\0' || told->method[0] != '/')
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: no hop, model or method",
                         told->number);
    if (frame->payload_bytes > told->message_bytes ||
        (!peer_flow_has_message(told->shape) && told->message_bytes > 0))
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: more bytes than it said",
                         told->number);
    if (frame->payload_bytes < told->message_bytes && frame->payload_bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: a part without bytes",
                         told->number);
    return STATUS_OK;
}

/* A request that is whole is known to be. */
static void
flow_begin(struct incoming *incoming)
{
    enum peer_flow_shape shape = incoming->frame.call.shape;
    peer_flow_init(&incoming->flow, &incoming->request,
                   peer_flow_window_to(incoming->session->credit_bytes));
    incoming->flow.is_awaited = shape == PEER_FLOW_AWAITED;
    incoming->flow.is_closed = incoming->is_last =
        shape != PEER_FLOW_OPEN && shape != PEER_FLOW_AWAITED;
    incoming->request.is_empty = shape == PEER_FLOW_EMPTY;
}

static enum status
on_call(struct session *session, const struct rpc_message *message, const struct peer_frame *opened,
        struct error *error)
{
    struct incoming *incoming = incoming_create(session, opened->head_bytes);
    struct peer_frame *frame = &incoming->frame;
    const struct peer_call *told = &frame->call;
    frame->kind = opened->kind;
    frame->head_bytes = opened->head_bytes;
    frame->head = opened->head;
    frame->offset = opened->offset;
    frame->payload_offset = opened->payload_offset;
    frame->payload_bytes = opened->payload_bytes;
    enum status status = peer_frame_read(frame, incoming->texts, error);
    enum mesh_end end = MESH_END_OK;
    const char *why = NULL;
    pthread_mutex_lock(&session->lock);
    if (status == STATUS_OK)
        status = check_call(session, frame, error);
    if (status == STATUS_OK)
        why = refusal(session, message, frame, &end);
    if (status == STATUS_OK && why == NULL) {
        uint32_t place = told->number & SESSION_PLACE_MASK;
        if (place >= session->place_count)
            table_grow(session, place);
        session->incoming[place] = incoming;
        incoming->number = told->number;
        incoming->first.expected = told->message_bytes;
        incoming->held = held_of(message, frame);
        session->held_bytes += incoming->held;
        session->references++;
        if (told->shape != PEER_FLOW_UNARY)
            flow_begin(incoming);
    }
    pthread_mutex_unlock(&session->lock);
    if (status != STATUS_OK || why != NULL) {
        if (why != NULL)
            refuse_call(session, told->number, end, why);
        free(incoming);
        return status;
    }
    gathered_add(&incoming->first, message, frame);
    if (incoming->first.received == incoming->first.expected)
        begin(incoming);
    return STATUS_OK;
}

/* Locked. NULL: it is over, or never was. */
static struct incoming *
find(const struct session *session, uint32_t number)
{
    uint32_t place = number & SESSION_PLACE_MASK;
    struct incoming *incoming = place < session->place_count ? session->incoming[place] : NULL;
    return incoming != NULL && incoming->number == number ? incoming : NULL;
}

struct incoming *
session_find(struct session *session, uint32_t number)
{
    pthread_mutex_lock(&session->lock);
    struct incoming *incoming = find(session, number);
    if (incoming != NULL)
        incoming->references++;
    pthread_mutex_unlock(&session->lock);
    return incoming;
}

static enum status
on_first_part(struct incoming *incoming, const struct rpc_message *message,
              const struct peer_frame *frame, struct error *error)
{
    struct gathered *first = &incoming->first;
    if (frame->payload_bytes == 0 || frame->payload_bytes > first->expected - first->received)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: a part of a wrong length",
                         incoming->number);
    gathered_add(first, message, frame);
    if (first->received == first->expected)
        begin(incoming);
    return STATUS_OK;
}

static enum status
on_part(struct session *session, const struct rpc_message *message, const struct peer_frame *frame,
        struct error *error)
{
    struct incoming *incoming = session_find(session, frame->about.number);
    if (incoming == NULL)
        return STATUS_OK; /* it was answered before it was whole */
    enum status status = incoming->is_called ? session_on_flow_part(incoming, message, frame, error)
                                             : on_first_part(incoming, message, frame, error);
    incoming_release(incoming);
    return status;
}

/* Not in the table any more; the table's reference is ours. */
static void
cancel(struct incoming *incoming)
{
    const struct peer_house *house = incoming->session->house;
    if (incoming->is_called) {
        if (driver_call_cancelled(house->driver, &incoming->call))
            over(incoming);
        else if (house->options->cancel != NULL)
            house->options->cancel(house->options->context, &incoming->call);
    }
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): references are counted
    incoming_release(incoming);
}

/* Locked. NULL: it is over. Who takes it has the table's reference. */
static struct incoming *
take_to_cancel(struct incoming *incoming)
{
    if (incoming == NULL || !table_take(incoming))
        return NULL;
    incoming->is_cancelled = true;
    return incoming;
}

void
incoming_refuse(struct incoming *incoming, const struct error *error)
{
    struct session *session = incoming->session;
    const struct rpc_answer given = {
        .status = error->status,
        .text = {error->text, strlen(error->text)},
    };
    struct peer_frame frame;
    frame_of_answer(&frame.answer, &given);
    frame.answer.has_figures = false;
    pthread_mutex_lock(&session->lock);
    incoming->is_cancelled = true;
    bool was_there = answer(incoming, &frame, NULL, 0);
    pthread_mutex_unlock(&session->lock);
    if (was_there)
        cancel(incoming);
}

static void
on_cancel(struct session *session, uint32_t number)
{
    pthread_mutex_lock(&session->lock);
    struct incoming *incoming = take_to_cancel(find(session, number));
    pthread_mutex_unlock(&session->lock);
    if (incoming != NULL)
        cancel(incoming);
}

/* ---- frames ---- */

static enum status
on_hello(struct session *session, const struct peer_hello *hello, struct error *error)
{
    const struct peer_server_options *options = session->house->options;
    if (session->has_heard)
        return error_set(error, STATUS_INVALID_ARGUMENT, "a second hello");
    if (hello->version != PEER_VERSION)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "frames of version %u: this node speaks %d", hello->version, PEER_VERSION);
    if (strcmp(hello->to, options->instance) != 0)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "this is node \"%s\", not \"%s\": the address has another owner now",
                         options->instance, hello->to);
    struct peer_frame frame = {.kind = PEER_HELLO};
    frame.hello = (struct peer_hello){.version = PEER_VERSION,
                                      .from = options->instance,
                                      .to = hello->from,
                                      .start_ms = options->start_ms,
                                      .credit_bytes = PEER_FLOW_CREDIT_BYTES};
    session->credit_bytes = hello->credit_bytes;
    frame.hello.tells_clock = driver_skew(session->house->driver) != NULL;
    session->peer = strdup(hello->from);
    CHECK(session->peer != NULL);
    pthread_mutex_lock(&session->lock);
    session->has_heard = true;
    if (peer_pipe_put(&session->pipe, &frame, NULL, 0, 0) != STATUS_OK)
        session_broke(session);
    pthread_mutex_unlock(&session->lock);
    return STATUS_OK;
}

static enum status
on_clock(struct session *session, const struct peer_clock *asked, struct error *error)
{
    struct skew *skew = driver_skew(session->house->driver);
    struct peer_frame frame = {.kind = PEER_CLOCK};
    struct skew_view view;
    if (skew == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "this node does not tell its clock");
    skew_look(skew, &view);
    frame.clock = (struct peer_clock){.asked_ms = asked->asked_ms,
                                      .wall_ms = view.wall_ms,
                                      .mesh_ms = view.mesh_ms,
                                      .voted = view.voted};
    pthread_mutex_lock(&session->lock);
    if (peer_pipe_put(&session->pipe, &frame, NULL, 0, 0) != STATUS_OK)
        session_broke(session);
    pthread_mutex_unlock(&session->lock);
    return STATUS_OK;
}

static void
on_ensure(struct session *session, const struct peer_ensure *told)
{
    struct driver_ensure ensure = {.instance = session->house->options->instance,
                                   .model = told->model,
                                   .used_ms = told->used_ms,
                                   .class = told->class,
                                   .target = told->target,
                                   .size_bytes = told->size_bytes};
    driver_ensure(session->house->driver, &ensure);
}

/* The one at the cursor, which goes behind it. */
static enum status
on_frame(struct session *session, const struct rpc_message *message, struct wire_cursor *cursor,
         struct error *error)
{
    struct peer_house *house = session->house;
    struct peer_frame *frame = &house->frame;
    enum status status = peer_frame_open(message, cursor, frame, error);
    if (status != STATUS_OK)
        return status;
    if (frame->kind == PEER_CALL && session->has_heard)
        return on_call(session, message, frame, error);
    status = peer_frame_read(frame, house->texts, error);
    if (status != STATUS_OK)
        return status;
    if (frame->kind == PEER_HELLO)
        return on_hello(session, &frame->hello, error);
    if (!session->has_heard)
        return error_set(error, STATUS_INVALID_ARGUMENT, "it does not begin with a hello");
    switch (frame->kind) {
    case PEER_PART: return on_part(session, message, frame, error);
    case PEER_CANCEL: on_cancel(session, frame->about.number); return STATUS_OK;
    case PEER_ENSURE: on_ensure(session, &frame->ensure); return STATUS_OK;
    case PEER_CLOCK: return on_clock(session, &frame->clock, error);
    case PEER_MESSAGE: return session_on_flow_message(session, message, frame, error);
    case PEER_CREDIT: return session_on_credit(session, &frame->credit, error);
    default:
        return error_set(error, STATUS_INVALID_ARGUMENT, "received a frame that only servers send");
    }
}

/* ---- its server's side ---- */

static enum status
send_to(void *stream, const struct rpc_piece *pieces, size_t piece_count)
{
    struct session *session = stream;
    return rpc_call_send(session->call, pieces, piece_count);
}

struct session *
session_create(struct peer_house *house, struct rpc_call *call)
{
    struct session *session = calloc(1, sizeof(*session));
    CHECK(session != NULL);
    session->house = house;
    pthread_mutex_init(&session->lock, NULL);
    session->call = call;
    session->references = 1;
    peer_pipe_init(&session->pipe, send_to, session, PEER_SERVER_WAITING_BYTES);
    return session;
}

enum status
session_on_message(struct session *session, const struct rpc_message *message, struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    enum status status;
    do
        status = on_frame(session, message, &cursor, error);
    while (status == STATUS_OK && cursor.left > 0);
    if (status == STATUS_OK)
        rpc_call_read(session->call);
    else
        log_warn_limited("peer_frame_refused instance=\"%s\" reason=\"%s\"",
                         session->peer == NULL ? "" : session->peer, error->text);
    return status;
}

void
session_on_sent(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    peer_pipe_on_sent(&session->pipe);
    if (session->pipe.is_broken)
        session_broke(session);
    pthread_mutex_unlock(&session->lock);
}

bool
session_is_broken(struct session *session)
{
    pthread_mutex_lock(&session->lock);
    bool is_broken = session->is_broken;
    pthread_mutex_unlock(&session->lock);
    return is_broken;
}

void
session_end(struct session *session, enum status status, const char *text)
{
    pthread_mutex_lock(&session->lock);
    peer_pipe_fini(&session->pipe);
    rpc_call_finish(session->call, status, text);
    session->call = NULL;
    uint32_t count = session->place_count;
    pthread_mutex_unlock(&session->lock);
    for (uint32_t i = 0; i < count; i++) {
        pthread_mutex_lock(&session->lock);
        struct incoming *incoming = take_to_cancel(session->incoming[i]);
        pthread_mutex_unlock(&session->lock);
        if (incoming != NULL)
            cancel(incoming);
    }
    session_release(session);
}
