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
session_release(struct peer_session *session)
{
    pthread_mutex_lock(&session->lock);
    CHECK(session->references > 0);
    unsigned left = --session->references;
    pthread_mutex_unlock(&session->lock);
    if (left > 0)
        return;
    CHECK(session->call == NULL && session->held_bytes == 0);
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
    struct peer_session *session = incoming->session;
    pthread_mutex_lock(&session->lock);
    CHECK(incoming->references > 0 && session->held_bytes >= incoming->held);
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

/* The runner is done with the call. */
static void
over(struct incoming *incoming)
{
    pthread_mutex_lock(&incoming->session->lock);
    bool was_over = incoming->is_over;
    CHECK(incoming->is_called);
    incoming->is_over = true;
    pthread_mutex_unlock(&incoming->session->lock);
    if (!was_over)
        incoming_release(incoming);
}

/* ---- answers ---- */

void
session_broke(struct peer_session *session)
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

/* Locked. Removes the call from the table; returns whether it was there. The caller inherits the
 * table's reference. */
static bool
table_take(struct incoming *incoming)
{
    if (!incoming_is_there(incoming))
        return false;
    *place_of(incoming) = NULL;
    return true;
}

/* Locked. `frame` is an answer; with a flow it follows the flow's messages. */
static void
send_answer(struct peer_session *session, struct peer_frame *frame, const struct rpc_piece *pieces,
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
        answer->text = (struct wire_span){text, sizeof(text) - 1};
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
frame_of_answer(struct peer_answer *received, const struct rpc_answer *answer)
{
    received->end = MESH_END_OK;
    received->status = answer->status;
    received->text = answer->text;
    if (received->text.bytes > PEER_TEXT_BYTES_MAX)
        received->text.bytes = PEER_TEXT_BYTES_MAX;
    received->has_message = answer->pieces != NULL;
    received->initial_count =
        metadata_copy(received->initial, answer->initial, answer->initial_count);
    received->trailing_count =
        metadata_copy(received->trailing, answer->trailers, answer->trailer_count);
}

/* Locked: sends `frame` under the call's number, if it is still wanted. */
static bool
answer(struct incoming *incoming, struct peer_frame *frame, const struct rpc_piece *pieces,
       size_t piece_count)
{
    struct peer_session *session = incoming->session;
    bool was_there = table_take(incoming);
    frame->answer.number = incoming->number;
    if (was_there && session->call != NULL)
        send_answer(session, frame, pieces, piece_count, incoming->request.flow);
    else
        rpc_pieces_release(pieces, piece_count);
    return was_there;
}

/* The reason why the call could not be served here. With a status, the calling node passes it to
 * its caller unless another node serves it. */
static void
frame_of_refusal(struct peer_answer *received, const struct incoming *incoming,
                 const struct runner_answer *given)
{
    bool by_runtime = incoming->said != NULL && !given->store_refuses;
    const char *text = by_runtime ? incoming->said : given->text;
    size_t bytes = text == NULL ? 0 : strlen(text);
    received->end = given->end;
    received->status = by_runtime             ? incoming->said_status
                       : given->store_refuses ? STATUS_UNAVAILABLE
                                              : STATUS_OK;
    received->text =
        (struct wire_span){text, bytes < PEER_TEXT_BYTES_MAX ? bytes : PEER_TEXT_BYTES_MAX};
}

/* runner_call_type: no runtime has answered. Under the runner's lock. */
static void
on_answer(struct runner_call *call, const struct runner_answer *given)
{
    struct incoming *incoming = (struct incoming *)call; /* its first member */
    struct peer_session *session = incoming->session;
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
figures_due(struct peer_session *session)
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
    struct peer_session *session = incoming->session;
    struct peer_frame frame;
    frame_of_answer(&frame.answer, given);
    frame.answer.has_figures = figures_due(session);
    if (frame.answer.has_figures)
        frame.answer.figures = runner_figures(session->house->runner, incoming->call.model).figures;
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

/* No lock is needed: the try's owner still has it, as its end has not reached the runner. */
static void
keep_said(struct incoming *incoming, const struct runner_end *end)
{
    free(incoming->said);
    incoming->said = strdup(end->said);
    CHECK(incoming->said != NULL);
    incoming->said_status = end->said_status;
}

static void
on_ended(struct peer_request *request, uint32_t number, const struct runner_end *ended,
         const struct rpc_answer *given)
{
    struct peer_flow_end as_reported;
    peer_flow_detach(request->flow, ended, given, &as_reported);
    const struct runner_end *end = &as_reported.end;
    struct incoming *incoming = incoming_of(request);
    struct peer_session *session = incoming->session;
    struct mesh_runner *runner = session->house->runner;
    bool is_last = runner_end_is_last(end);
    if (is_last)
        pass_back(incoming, as_reported.answer);
    else if (end->said != NULL)
        keep_said(incoming, end);
    runner_try_ended(runner, &incoming->call, number, end);
    pthread_mutex_lock(&session->lock);
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): references are counted
    bool is_cancelled = incoming->is_cancelled;
    pthread_mutex_unlock(&session->lock);
    /* if cancelled, the runner knows whether this was the last report it waits for */
    if (is_last || (is_cancelled && runner_call_cancelled(runner, &incoming->call)))
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
    .on_first_released = incoming_on_first_released,
};

static enum runner_begun
on_serve(struct runner_call *call, const struct runner_attempt *attempt, struct runner_end *end)
{
    const struct peer_server_options *options = ((struct incoming *)call)->session->house->options;
    return options->serve(options->context, call, attempt, end);
}

static const struct runner_call_type call_type = {.serve = on_serve, .answer = on_answer};

/* ---- calls ---- */

/* Answers a call that cannot be accepted; parts that follow are ignored. OK: the caller gets the
 * refusal. */
static void
refuse_call(struct peer_session *session, uint32_t number, enum mesh_end end, const char *text)
{
    struct peer_frame frame;
    frame.answer.number = number;
    frame.answer.end = end;
    frame.answer.status = end == MESH_END_OK ? STATUS_RESOURCE_EXHAUSTED : STATUS_OK;
    frame.answer.text = (struct wire_span){text, strlen(text)};
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

/* The message is complete. */
static void
begin(struct incoming *incoming)
{
    const struct peer_call *received = &incoming->frame.call;
    CHECK(!incoming->is_called && incoming->first.received == incoming->first.expected);
    incoming->request.type = &request_type;
    incoming->request.method = received->method;
    incoming->request.metadata = received->metadata;
    incoming->request.metadata_count = received->metadata_count;
    incoming->request.queue = incoming->session->house->queue;
    incoming->request.pieces = incoming->first.pieces;
    incoming->request.piece_count = incoming->first.count;
    incoming->call = (struct runner_call){
        .type = &call_type,
        .request = &incoming->request,
        .model = received->model,
        .name = RUNNER_NAME_MODEL,
        .hop = received->hop,
        .balance = MESH_BALANCE_NONE,
        .create_revision = received->create_revision,
        .tried = received->tried,
        .tried_count = received->tried_count,
        .deadline_ns = deadline_of(received->left_us),
    };
    incoming->is_called = true;
    incoming_hold(incoming); /* the runner's reference */
    runner_call(incoming->session->house->runner, &incoming->call);
}

/* Ensures room for that place; the peer chooses it, so the mask bounds it. */
static void
table_grow(struct peer_session *session, uint32_t place)
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
incoming_create(struct peer_session *session, uint32_t head_bytes)
{
    struct incoming *incoming = malloc(sizeof(*incoming) + head_bytes);
    CHECK(incoming != NULL);
    incoming->request = (struct peer_request){.type = NULL};
    incoming->session = session;
    incoming->references = 1; /* the table's reference */
    incoming->is_called = incoming->is_cancelled = incoming->is_over = false;
    incoming->said = NULL;
    incoming->first = incoming->more = (struct peer_gathered){.pieces = NULL};
    incoming->is_gathering = incoming->is_last = false;
    incoming->in = incoming->credit = incoming->out = 0;
    return incoming;
}

/* Bytes counted for a call: itself, its message, a window for later messages, and the delivery that
 * it came in, which lives as long. */
static uint64_t
held_of(const struct wire_message *message, const struct peer_frame *frame)
{
    uint64_t beside = message->bytes - frame->payload_bytes;
    bool is_open = frame->call.shape == PEER_FLOW_OPEN || frame->call.shape == PEER_FLOW_AWAITED;
    uint64_t behind = is_open ? PEER_FLOW_TAKEN_BYTES : 0;
    return sizeof(struct incoming) + frame->head_bytes + frame->call.message_bytes + behind +
           beside;
}

/* The limit that a valid call exceeds; NULL: none. */
static const char *
refusal(const struct peer_session *session, const struct wire_message *message,
        const struct peer_frame *frame, enum mesh_end *end)
{
    *end = MESH_END_OK;
    if (frame->call.message_bytes > session->house->options->message_bytes_max)
        return "the message is larger than the serving node accepts";
    *end = MESH_END_OVERLOADED;
    if (session->held_bytes + held_of(message, frame) > PEER_SERVER_HELD_BYTES)
        return "too many bytes of requests are waiting";
    return NULL;
}

static enum status
check_call(const struct peer_session *session, const struct peer_frame *frame, struct error *error)
{
    const struct peer_call *received = &frame->call;
    uint32_t place = received->number & SESSION_PLACE_MASK;
    if (place < session->place_count && session->incoming[place] != NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: its number is in use",
                         received->number);
    if (received->hop == MESH_HOP_ENTRY || received->model[0] == '\0' || received->method[0] != '/')
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: no hop, model or method",
                         received->number);
    if (frame->payload_bytes > received->message_bytes ||
        (!peer_flow_has_message(received->shape) && received->message_bytes > 0))
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: more bytes than announced",
                         received->number);
    if (frame->payload_bytes < received->message_bytes && frame->payload_bytes == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: a part without bytes",
                         received->number);
    return STATUS_OK;
}

/* A request whose shape says that it is complete needs no further frame. */
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
on_call(struct peer_session *session, const struct wire_message *message,
        const struct peer_frame *opened, struct error *error)
{
    struct incoming *incoming = incoming_create(session, opened->head_bytes);
    struct peer_frame *frame = &incoming->frame;
    const struct peer_call *received = &frame->call;
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
        uint32_t place = received->number & SESSION_PLACE_MASK;
        if (place >= session->place_count)
            table_grow(session, place);
        CHECK(session->incoming[place] == NULL);
        session->incoming[place] = incoming;
        incoming->number = received->number;
        incoming->first.expected = received->message_bytes;
        incoming->held = held_of(message, frame);
        session->held_bytes += incoming->held;
        session->references++;
        if (received->shape != PEER_FLOW_UNARY)
            flow_begin(incoming);
    }
    pthread_mutex_unlock(&session->lock);
    if (status != STATUS_OK || why != NULL) {
        if (why != NULL)
            refuse_call(session, received->number, end, why);
        free(incoming);
        return status;
    }
    gathered_add(&incoming->first, message, frame);
    if (incoming->first.received == incoming->first.expected)
        begin(incoming);
    return STATUS_OK;
}

/* Locked. NULL: over, or never existed. */
static struct incoming *
find(const struct peer_session *session, uint32_t number)
{
    uint32_t place = number & SESSION_PLACE_MASK;
    struct incoming *incoming = place < session->place_count ? session->incoming[place] : NULL;
    return incoming != NULL && incoming->number == number ? incoming : NULL;
}

struct incoming *
session_find(struct peer_session *session, uint32_t number)
{
    pthread_mutex_lock(&session->lock);
    struct incoming *incoming = find(session, number);
    if (incoming != NULL)
        incoming->references++;
    pthread_mutex_unlock(&session->lock);
    return incoming;
}

static enum status
on_first_part(struct incoming *incoming, const struct wire_message *message,
              const struct peer_frame *frame, struct error *error)
{
    struct peer_gathered *first = &incoming->first;
    if (frame->payload_bytes == 0 || frame->payload_bytes > first->expected - first->received)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: a part of the wrong length",
                         incoming->number);
    gathered_add(first, message, frame);
    if (first->received == first->expected)
        begin(incoming);
    return STATUS_OK;
}

static enum status
on_part(struct peer_session *session, const struct wire_message *message,
        const struct peer_frame *frame, struct error *error)
{
    struct incoming *incoming = session_find(session, frame->about.number);
    if (incoming == NULL)
        return STATUS_OK; /* it was answered before it was complete */
    enum status status = incoming->is_called ? session_on_flow_part(incoming, message, frame, error)
                                             : on_first_part(incoming, message, frame, error);
    incoming_release(incoming);
    return status;
}

/* The call has left the table, whose reference this function releases. */
static void
cancel(struct incoming *incoming)
{
    const struct peer_house *house = incoming->session->house;
    if (incoming->is_called) {
        if (runner_call_cancelled(house->runner, &incoming->call))
            over(incoming);
        else if (house->options->cancel != NULL)
            house->options->cancel(house->options->context, &incoming->call);
    }
    // NOLINTNEXTLINE(clang-analyzer-unix.Malloc): references are counted
    incoming_release(incoming);
}

/* Locked. NULL: it is over. The caller inherits the table's reference. */
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
    struct peer_session *session = incoming->session;
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
on_cancel(struct peer_session *session, uint32_t number)
{
    pthread_mutex_lock(&session->lock);
    struct incoming *incoming = take_to_cancel(find(session, number));
    pthread_mutex_unlock(&session->lock);
    if (incoming != NULL)
        cancel(incoming);
}

/* ---- frames ---- */

static enum status
on_hello(struct peer_session *session, const struct peer_hello *hello, struct error *error)
{
    const struct peer_server_options *options = session->house->options;
    if (session->has_hello)
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
    frame.hello.tells_clock = runner_skew(session->house->runner) != NULL;
    session->peer = strdup(hello->from);
    CHECK(session->peer != NULL);
    pthread_mutex_lock(&session->lock);
    session->has_hello = true;
    if (peer_pipe_put(&session->pipe, &frame, NULL, 0, 0) != STATUS_OK)
        session_broke(session);
    pthread_mutex_unlock(&session->lock);
    return STATUS_OK;
}

static enum status
on_clock(struct peer_session *session, const struct peer_clock *asked, struct error *error)
{
    struct skew *skew = runner_skew(session->house->runner);
    struct peer_frame frame = {.kind = PEER_CLOCK};
    struct skew_view view;
    if (skew == NULL)
        return error_set(error, STATUS_INVALID_ARGUMENT, "this node does not answer Clock frames");
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

/* Handles the frame at the cursor, which moves on. */
static enum status
on_frame(struct peer_session *session, const struct wire_message *message,
         struct wire_cursor *cursor, struct error *error)
{
    struct peer_house *house = session->house;
    struct peer_frame *frame = &house->frame;
    enum status status = peer_frame_open(message, cursor, frame, error);
    if (status != STATUS_OK)
        return status;
    if (frame->kind == PEER_CALL && session->has_hello)
        return on_call(session, message, frame, error);
    status = peer_frame_read(frame, house->texts, error);
    if (status != STATUS_OK)
        return status;
    if (frame->kind == PEER_HELLO)
        return on_hello(session, &frame->hello, error);
    if (!session->has_hello)
        return error_set(error, STATUS_INVALID_ARGUMENT, "the stream does not begin with a hello");
    switch (frame->kind) {
    case PEER_PART: return on_part(session, message, frame, error);
    case PEER_CANCEL: on_cancel(session, frame->about.number); return STATUS_OK;
    case PEER_ENSURE: runner_ensure(session->house->runner, &frame->ensure); return STATUS_OK;
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
    struct peer_session *session = stream;
    return rpc_call_send(session->call, pieces, piece_count);
}

struct peer_session *
session_create(struct peer_house *house, struct rpc_call *call)
{
    struct peer_session *session = calloc(1, sizeof(*session));
    CHECK(session != NULL);
    session->house = house;
    pthread_mutex_init(&session->lock, NULL);
    session->call = call;
    session->references = 1;
    peer_pipe_init(&session->pipe, send_to, session, PEER_SERVER_WAITING_BYTES);
    return session;
}

enum status
session_on_message(struct peer_session *session, const struct wire_message *message,
                   struct error *error)
{
    struct wire_cursor cursor = wire_begin(message);
    enum status status = STATUS_OK;
    do
        status = session->has_said_bye ? STATUS_OK : on_frame(session, message, &cursor, error);
    while (status == STATUS_OK && !session->has_said_bye && cursor.left > 0);
    if (status == STATUS_OK)
        rpc_call_read(session->call);
    else
        log_warn_limited("peer_frame_refused instance=\"%s\" reason=\"%s\"",
                         session->peer == NULL ? "" : session->peer, error->text);
    return status;
}

void
session_on_sent(struct peer_session *session)
{
    pthread_mutex_lock(&session->lock);
    peer_pipe_on_sent(&session->pipe);
    if (session->pipe.is_broken)
        session_broke(session);
    pthread_mutex_unlock(&session->lock);
}

bool
session_is_broken(struct peer_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool is_broken = session->is_broken;
    pthread_mutex_unlock(&session->lock);
    return is_broken;
}

void
session_say_bye(struct peer_session *session)
{
    struct peer_frame frame = {.kind = PEER_BYE};
    pthread_mutex_lock(&session->lock);
    if (!session->has_said_bye && !peer_pipe_has_waiting(&session->pipe)) {
        session->has_said_bye = true;
        if (peer_pipe_put(&session->pipe, &frame, NULL, 0, 0) != STATUS_OK)
            session_broke(session);
    }
    pthread_mutex_unlock(&session->lock);
}

void
session_end(struct peer_session *session, enum status status, const char *text)
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
