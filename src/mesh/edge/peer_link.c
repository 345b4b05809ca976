/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "mesh/edge/skew.h"

_Static_assert((int)PEERS_METADATA_MAX == (int)PEER_METADATA_MAX, "the metadata of a frame");

#define PROBE_NS_MAX (30 * NS_PER_S)

/* ---- the end of a try ---- */

static void
try_end(struct peer_request *request, uint32_t attempt, const struct runner_end *end,
        const struct rpc_answer *answer)
{
    request->type->on_ended(request, attempt, end, answer);
    request->type->release(request);
}

/* A peer that cannot reach its runtime is itself reachable. */
static enum mesh_end
end_as_reported(enum mesh_end end)
{
    return end == MESH_END_UNREACHABLE ? MESH_END_NOT_HERE : end;
}

static void
deliver(const struct peer_link *link, const struct peer_slot *slot,
        const struct peer_answer *received, int64_t start_ms)
{
    struct runner_figures figures = {.start_ms = start_ms};
    struct runner_end end = {.end = end_as_reported(received->end)};
    if (received->has_figures) {
        figures.figures = received->figures;
        end.figures = &figures;
        end.instance = link->instance; /* valid while this thread runs: on_end is its own */
    }
    static const struct rpc_piece nothing[1];
    struct rpc_answer answer = {
        .status = received->status,
        .text = received->text,
        .pieces = !received->has_message     ? NULL
                  : slot->message.count == 0 ? nothing
                                             : slot->message.pieces,
        .piece_count = slot->message.count,
        .initial = received->initial,
        .initial_count = received->initial_count,
        .trailers = received->trailing,
        .trailer_count = received->trailing_count,
    };
    char said[PEER_TEXT_BYTES_MAX + 1];
    if (end.end != MESH_END_OK && received->status != STATUS_OK && received->text.bytes > 0) {
        snprintf(said, sizeof(said), "%.*s", (int)received->text.bytes,
                 (const char *)received->text.data);
        end.said = said;
        end.said_status = received->status;
    }
    try_end(slot->request, slot->attempt, &end, end.end == MESH_END_OK ? &answer : NULL);
}

/* Delivers a frame of a flow that is not its end. The request is held once for it. */
static void
deliver_flow(const struct peer_slot *slot, const struct peer_frame *frame)
{
    static const struct rpc_piece nothing[1];
    struct peer_request *request = slot->request;
    const struct peer_message *received = &frame->message;
    if (frame->kind == PEER_CREDIT) {
        request->type->on_room(request, frame->credit.cost);
    } else {
        const struct rpc_answer part = {
            .pieces = !received->has_message     ? NULL
                      : slot->message.count == 0 ? nothing
                                                 : slot->message.pieces,
            .piece_count = slot->message.count,
            .initial = received->initial,
            .initial_count = received->initial_count,
        };
        peer_flow_part(request->flow, &part);
    }
    request->type->release(request);
}

/* ---- frames of the peer ---- */

/* Locked. The peer has broken the protocol: on_end follows. */
static void
refuse(struct peer_link *link, const char *why)
{
    log_warn_limited("peer_refused instance=\"%s\" reason=\"%s\"", link->instance, why);
    link->is_over = true;
    rpc_client_cancel(link->call);
}

/* Locked. The peer stops and has sent its last answers: on_end follows. */
static void
on_bye(struct peer_link *link)
{
    link->is_over = link->has_said_bye = true;
    rpc_client_cancel(link->call);
}

/* Locked. Takes a message of a flow with a reference of its request; the slot is ready for the
 * next. */
static void
take_message(struct peer_slot *slot, struct peer_slot *taken)
{
    *taken = *slot;
    taken->request->type->hold(taken->request);
    slot->first = NULL;
    slot->message = (struct peer_gathered){.pieces = NULL};
    slot->is_message = false;
}

/* Locked. True: `*taken` is complete and no longer the link's. */
static bool
take_if_whole(struct peer_link *link, struct peer_slot *slot, struct peer_slot *taken)
{
    if (slot->message.received < slot->message.expected)
        return false;
    link->received_bytes += slot->message.received;
    if (slot->is_message) {
        take_message(slot, taken);
        return true;
    }
    *taken = *slot;
    slots_free(&link->slots, slot);
    return true;
}

/* Like take_if_whole(), for the first frame; if more is to come, keeps it, as its content is needed
 * then. */
static bool
take_or_keep(struct peer_link *link, struct peer_slot *slot, const struct wire_message *message,
             const struct peer_frame *frame, struct peer_slot *taken)
{
    if (take_if_whole(link, slot, taken))
        return true;
    slot->first = rpc_message_keep(message);
    slot->first_offset = frame->offset;
    return false;
}

#define TOO_LARGE "a message of the answer is larger than this node accepts"
#define TOO_MANY                                                                                   \
    "as many answers in pieces as may be under way between two nodes are: try again later"

/* The call has been served, so the caller gets this instead of the answer: another try would serve
 * it again. */
static void
replace_answer(struct peer_answer *answer, const char *text)
{
    answer->end = MESH_END_OK;
    answer->status = STATUS_RESOURCE_EXHAUSTED;
    answer->text = (struct wire_span){text, strlen(text)};
    answer->has_message = answer->has_figures = false;
    answer->initial_count = answer->trailing_count = 0;
}

/* Locked. */
static bool
on_answer(struct peer_link *link, const struct wire_message *message, struct peer_frame *frame,
          struct peer_slot *taken)
{
    struct peer_answer *answer = &frame->answer;
    struct peer_slot *slot = slots_find(&link->slots, answer->number);
    if (slot == NULL)
        return false; /* abandoned */
    if (slot->first != NULL || frame->payload_bytes > answer->message_bytes) {
        refuse(link, "it answered a call twice or with more bytes than announced");
        return false;
    }
    peer_pipe_drop(&link->pipe, answer->number); /* it may answer before it has everything */
    if (answer->message_bytes > peers_options_of(link->peers)->message_bytes_max) {
        replace_answer(answer, TOO_LARGE); /* parts that follow match nothing and are ignored */
    } else {
        slot->message.expected = answer->message_bytes;
        gathered_add(&slot->message, message, frame);
    }
    return take_or_keep(link, slot, message, frame, taken);
}

/* Locked. */
static bool
on_part(struct peer_link *link, const struct wire_message *message, const struct peer_frame *frame,
        struct peer_slot *taken)
{
    struct peer_slot *slot = slots_find(&link->slots, frame->about.number);
    if (slot == NULL)
        return false;
    if (slot->first == NULL || frame->payload_bytes == 0 ||
        frame->payload_bytes > slot->message.expected - slot->message.received) {
        refuse(link, "a part of no known message");
        return false;
    }
    gathered_add(&slot->message, message, frame);
    return take_if_whole(link, slot, taken);
}

/* Locked. A failure of the pipe ends the stream, which on_end reports. */
static void
check_pipe(struct peer_link *link)
{
    if (link->pipe.is_broken)
        rpc_client_cancel(link->call);
}

/* Locked. */
static void
send_cancel(struct peer_link *link, uint32_t number)
{
    struct peer_frame frame = {.kind = PEER_CANCEL};
    frame.about.number = number;
    uint64_t window = link->pipe.window;
    link->pipe.window = UINT64_MAX; /* it frees window */
    (void)!peer_pipe_put(&link->pipe, &frame, NULL, 0, 0);
    link->pipe.window = window;
    check_pipe(link);
}

/* Locked. The flow cannot go on for that reason: tells the peer and ends the call. */
static bool
give_up(struct peer_link *link, struct peer_slot *slot, const char *text, struct peer_frame *frame,
        struct peer_slot *taken)
{
    peer_pipe_drop(&link->pipe, slot->number);
    send_cancel(link, slot->number);
    *taken = *slot;
    slots_free(&link->slots, slot);
    frame->kind = PEER_ANSWER;
    replace_answer(&frame->answer, text);
    return true;
}

/* Locked. */
static bool
on_flow_message(struct peer_link *link, const struct wire_message *message,
                struct peer_frame *frame, struct peer_slot *taken)
{
    const struct peer_message *received = &frame->message;
    struct peer_slot *slot = slots_find(&link->slots, received->number);
    if (slot == NULL)
        return false;
    bool is_empty = !received->has_message || received->message_bytes == 0;
    if (slot->request->flow == NULL || slot->first != NULL || slot->in >= PEER_FLOW_TAKEN_BYTES ||
        frame->payload_bytes > received->message_bytes || (frame->payload_bytes == 0) != is_empty) {
        refuse(link, "a message outside a streaming call or beyond its window");
        return false;
    }
    if (received->message_bytes > peers_options_of(link->peers)->message_bytes_max)
        return give_up(link, slot, TOO_LARGE, frame, taken);
    if (received->has_message && !slots_count_flow(&link->slots, slot))
        return give_up(link, slot, TOO_MANY, frame, taken);
    if (received->has_message)
        slot->in += peer_flow_cost(received->message_bytes);
    slot->is_message = true;
    slot->message.expected = received->message_bytes;
    gathered_add(&slot->message, message, frame);
    return take_or_keep(link, slot, message, frame, taken);
}

/* Locked. */
static bool
on_credit(struct peer_link *link, const struct peer_credit *credit, struct peer_slot *taken)
{
    struct peer_slot *slot = slots_find(&link->slots, credit->number);
    if (slot == NULL)
        return false;
    if (slot->request->flow == NULL || credit->cost > slot->out) {
        refuse(link, "credit for more than was sent");
        return false;
    }
    slot->out -= credit->cost;
    *taken = (struct peer_slot){.request = slot->request};
    taken->request->type->hold(taken->request);
    return true;
}

/* Locked. */
static void
on_hello(struct peer_link *link, const struct peer_hello *hello)
{
    if (link->has_hello || hello->version != PEER_VERSION ||
        strcmp(hello->from, link->instance) != 0) {
        refuse(link, "its hello is from another version or node");
        return;
    }
    link->has_hello = true;
    link->unreachable_ns = 0;
    link->has_warned = false;
    link->start_ms = hello->start_ms;
    link->credit_bytes = hello->credit_bytes;
    link->has_clock = hello->tells_clock;
    link_ask_clock(link);
}

/* Locked. */
static void
on_clock(struct peer_link *link, const struct peer_clock *clock)
{
    struct mesh_clock_answer answer = {.asked_ms = clock->asked_ms,
                                       .wall_ms = clock->wall_ms,
                                       .mesh_ms = clock->mesh_ms,
                                       .voted = clock->voted};
    skew_notify(peers_skew(link->peers), link->instance, answer);
}

/* Locked. Reads the frame at the cursor. True: something is complete and taken. */
static bool
on_frame(struct peer_link *link, const struct wire_message *message, struct wire_cursor *cursor,
         struct peer_frame *frame, struct peer_slot *taken)
{
    struct error error;
    error_clear(&error);
    if (peer_frame_open(message, cursor, frame, &error) != STATUS_OK ||
        peer_frame_read(frame, link->scratch->texts, &error) != STATUS_OK) {
        refuse(link, error.text);
        return false;
    }
    if (frame->kind != PEER_HELLO && !link->has_hello)
        refuse(link, "the stream does not begin with a hello");
    else if (frame->kind == PEER_HELLO)
        on_hello(link, &frame->hello);
    else if (frame->kind == PEER_CLOCK)
        on_clock(link, &frame->clock);
    else if (frame->kind == PEER_BYE)
        on_bye(link);
    else if (frame->kind == PEER_ANSWER)
        return on_answer(link, message, frame, taken);
    else if (frame->kind == PEER_PART)
        return on_part(link, message, frame, taken);
    else if (frame->kind == PEER_MESSAGE)
        return on_flow_message(link, message, frame, taken);
    else if (frame->kind == PEER_CREDIT)
        return on_credit(link, &frame->credit, taken);
    else
        refuse(link, "received a frame that only clients send");
    return false;
}

/* Locked. The stream is not needed any more. */
static void
leave_if_idle(struct peer_link *link)
{
    if (link->is_leaving && link->slots.used_count == 0 && link->call != NULL)
        rpc_client_cancel(link->call);
}

/* Unlocked. Delivers the answer or message that the frame completed; if it came in parts, the first
 * one says what it is. */
static void
hand_over(struct peer_link *link, struct peer_slot *taken, int64_t start_ms)
{
    struct peer_scratch *scratch = link->scratch;
    struct peer_frame *frame = &scratch->frame;
    if (taken->first != NULL) {
        const struct wire_message *first = rpc_kept_message(taken->first);
        struct wire_cursor cursor = peer_frame_at(first, taken->first_offset);
        struct error error = ERROR_NONE;
        CHECK(peer_frame_open(first, &cursor, frame, &error) == STATUS_OK &&
              peer_frame_read(frame, scratch->texts, &error) == STATUS_OK);
    }
    if (frame->kind == PEER_ANSWER)
        deliver(link, taken, &frame->answer, start_ms);
    else
        deliver_flow(taken, frame);
    slot_drop(taken);
}

static void
on_message(void *context, const struct wire_message *message)
{
    struct peer_link *link = context;
    struct wire_cursor cursor = wire_begin(message);
    bool more;
    do {
        struct peer_slot taken;
        pthread_mutex_lock(&link->lock);
        bool whole =
            !link->is_over && on_frame(link, message, &cursor, &link->scratch->frame, &taken);
        more = cursor.left > 0 && !link->is_over;
        int64_t start_ms = link->start_ms;
        leave_if_idle(link);
        pthread_mutex_unlock(&link->lock);
        if (whole)
            hand_over(link, &taken, start_ms);
    } while (more);
    pthread_mutex_lock(&link->lock);
    rpc_client_read(link->call);
    pthread_mutex_unlock(&link->lock);
}

static void
on_sent(void *context, size_t waiting)
{
    (void)waiting;
    struct peer_link *link = context;
    pthread_mutex_lock(&link->lock);
    if (link->call != NULL) {
        peer_pipe_on_sent(&link->pipe);
        check_pipe(link);
    }
    pthread_mutex_unlock(&link->lock);
}

/* Locked. */
static void
log_end(struct peer_link *link, const struct rpc_client_end *end)
{
    int bytes = end->text.bytes < 200 ? (int)end->text.bytes : 200;
    const char *text = bytes == 0 ? "" : end->text.data;
    if (link->is_leaving || link->has_warned)
        return;
    link->has_warned = true;
    if (link->has_said_bye)
        log_info_limited("peer_stopped instance=\"%s\" calls=%u", link->instance,
                         link->slots.used_count);
    else if (link->has_hello)
        log_warn_limited("peer_lost instance=\"%s\" calls=%u status=%s error=\"%.*s\"",
                         link->instance, link->slots.used_count, status_name(end->status), bytes,
                         text);
    else
        log_warn_limited("peer_unreachable instance=\"%s\" address=\"%s\" status=%s error=\"%.*s\"",
                         link->instance, link->address, status_name(end->status), bytes, text);
}

static void
on_end(void *context, const struct rpc_client_end *end)
{
    struct peer_link *link = context;
    static const struct runner_end unreachable = {.end = MESH_END_UNREACHABLE};
    pthread_mutex_lock(&link->lock);
    log_end(link, end);
    link_mark(link);
    struct slots slots = link->slots;
    rpc_client_release(link->call);
    link->call = NULL;
    link->has_hello = link->has_clock = link->is_over = link->has_said_bye = false;
    link->credit_bytes = 0;
    link->slots = (struct slots){.all = NULL};
    peer_pipe_fini(&link->pipe);
    bool is_leaving = link->is_leaving;
    pthread_mutex_unlock(&link->lock);
    for (uint32_t i = 0; i < slots.count; i++) {
        struct peer_slot *slot = &slots.all[i];
        if (slot->request == NULL)
            continue;
        slot_drop(slot);
        try_end(slot->request, slot->attempt, &unreachable, NULL);
    }
    free(slots.all);
    if (is_leaving)
        peers_link_free(link->peers, link);
}

/* ---- its user's side ---- */

static const struct rpc_client_events events = {
    .on_message = on_message, .on_sent = on_sent, .on_end = on_end};

static enum status
send_to(void *stream, const struct rpc_piece *pieces, size_t piece_count)
{
    struct peer_link *link = stream;
    return rpc_client_send(link->call, pieces, piece_count);
}

void
link_init(struct peer_link *link, struct peers *peers)
{
    *link = (struct peer_link){.peers = peers};
    pthread_mutex_init(&link->lock, NULL);
    peer_pipe_init(&link->pipe, send_to, link, PEERS_WINDOW_BYTES);
}

void
link_fini(struct peer_link *link)
{
    CHECK(link->call == NULL && link->client == NULL);
    CHECK(link->slots.used_count == 0 && !peer_pipe_has_waiting(&link->pipe));
    free(link->instance);
    free(link->address);
    pthread_mutex_destroy(&link->lock);
}

void
link_mark(struct peer_link *link)
{
    if (link->unreachable_ns == 0)
        link->unreachable_ns = link->probed_ns = clock_now_ns();
}

bool
link_open(struct peer_link *link, const struct peers_options *options)
{
    if (link->call != NULL)
        return true;
    if (!link_client(link, options))
        return false;
    if (rpc_client_state(link->client) == RPC_CLIENT_FAILING)
        return false;
    unsigned char head[PEER_HEAD_BYTES_MAX];
    struct peer_frame frame = {.kind = PEER_HELLO};
    frame.hello = (struct peer_hello){.version = PEER_VERSION,
                                      .from = options->instance,
                                      .to = link->instance,
                                      .start_ms = options->start_ms,
                                      .credit_bytes = PEER_FLOW_CREDIT_BYTES};
    struct rpc_piece hello = {.data = head, .bytes = peer_frame_write(&frame, head)};
    struct rpc_client_request request = {
        .method = PEER_METHOD,
        .kind = RPC_BIDI_STREAM,
        .deadline_ns = TIME_NEVER_NS,
        .pieces = &hello,
        .piece_count = 1,
        .events = &events,
        .context = link,
    };
    rpc_client_start(link->client, &request, &link->call);
    link->pipe.out = 1; /* the hello */
    return true;
}

void
link_probe(struct peer_link *link, const struct peers_options *options)
{
    int64_t now_ns = clock_now_ns();
    int64_t wait_ns = link->probed_ns - link->unreachable_ns;
    if (wait_ns > PROBE_NS_MAX)
        wait_ns = PROBE_NS_MAX;
    if (link->unreachable_ns == 0 || link->is_leaving || link->instance == NULL ||
        now_ns - link->probed_ns < wait_ns)
        return;
    link->probed_ns = now_ns;
    (void)link_open(link, options);
}

/* The cost of the frame; 0: it is late. */
static uint64_t
left_us(int64_t deadline_ns, bool *is_late)
{
    *is_late = false;
    if (deadline_ns == TIME_NEVER_NS)
        return 0;
    int64_t left_ns = deadline_ns - clock_now_ns();
    *is_late = left_ns < NS_PER_US;
    return *is_late ? 0 : (uint64_t)left_ns / NS_PER_US;
}

/* ---- as the sink of a flow ---- */

/* Locked. */
static void
put_message(struct peer_link *link, struct peer_slot *slot, const struct rpc_piece *pieces,
            size_t piece_count, enum peer_flow_next next)
{
    struct peer_frame frame = {.kind = PEER_MESSAGE};
    uint64_t bytes = peer_pieces_bytes(pieces, piece_count);
    frame.message.number = slot->number;
    frame.message.has_message = pieces != NULL;
    frame.message.is_last = next == PEER_FLOW_LAST;
    frame.message.message_bytes = bytes;
    if (pieces != NULL && !slot->is_awaited)
        slot->out += peer_flow_cost(bytes);
    slot->is_awaited = false;
    (void)!peer_pipe_put_behind(&link->pipe, &frame, pieces, piece_count, bytes);
    check_pipe(link);
}

/* Locked. NULL: it is no longer the link's. */
static struct peer_slot *
slot_of(struct peer_link *link, const struct peer_request *request)
{
    struct peer_slot *slot = slots_find(&link->slots, request->number);
    return slot != NULL && slot->request == request ? slot : NULL;
}

static enum status
flow_send(void *context, const struct rpc_piece *pieces, size_t piece_count,
          enum peer_flow_next next, struct error *error)
{
    const struct peer_request *request = context;
    struct peer_link *link = request->link;
    (void)error;
    pthread_mutex_lock(&link->lock);
    struct peer_slot *slot = slot_of(link, request);
    if (slot != NULL)
        put_message(link, slot, pieces, piece_count, next);
    pthread_mutex_unlock(&link->lock);
    return STATUS_OK;
}

static void
flow_taken(void *context, uint64_t cost)
{
    const struct peer_request *request = context;
    struct peer_link *link = request->link;
    pthread_mutex_lock(&link->lock);
    struct peer_slot *slot = slot_of(link, request);
    if (slot != NULL) {
        CHECK(cost <= slot->in);
        slot->in -= cost;
        slot->credit += cost;
    }
    if (slot != NULL && slot->credit >= PEER_FLOW_CREDIT_BYTES) {
        struct peer_frame frame = {.kind = PEER_CREDIT};
        frame.credit = (struct peer_credit){slot->number, slot->credit};
        slot->credit = 0;
        (void)!peer_pipe_put_behind(&link->pipe, &frame, NULL, 0, 0);
        check_pipe(link);
    }
    pthread_mutex_unlock(&link->lock);
}

static const struct peer_flow_sink flow_sink = {flow_send, flow_taken, PEER_FLOW_WINDOW_BYTES};
/* The sink also of a node that has not said hello. */
static const struct peer_flow_sink old_flow_sink = {flow_send, flow_taken,
                                                    PEER_FLOW_OLD_WINDOW_BYTES};

/* Locked. Messages that waited for the try follow the call. */
static void
flow_begin(struct peer_link *link, struct peer_slot *slot, enum peer_flow_shape shape)
{
    bool closed;
    struct peer_request *request = slot->request;
    const struct peer_flow_sink *sink =
        peer_flow_window_to(link->credit_bytes) == PEER_FLOW_WINDOW_BYTES ? &flow_sink
                                                                          : &old_flow_sink;
    struct peer_flow_kept *kept = peer_flow_attach(request->flow, shape, sink, request, &closed);
    slot->is_awaited = shape == PEER_FLOW_AWAITED;
    if (closed && kept == NULL && (shape == PEER_FLOW_OPEN || slot->is_awaited))
        put_message(link, slot, NULL, 0, PEER_FLOW_LAST);
    while (kept != NULL) {
        bool last = closed && kept->next == NULL;
        put_message(link, slot, kept->pieces, kept->piece_count,
                    last ? PEER_FLOW_LAST : PEER_FLOW_MORE);
        kept = peer_flow_kept_free(kept);
    }
    peer_flow_begun(request->flow);
}

static void
frame_fill(struct peer_frame *frame, const struct runner_attempt *attempt,
           const struct peer_request *request)
{
    struct peer_call *call = &frame->call;
    CHECK(request->metadata_count <= PEER_METADATA_MAX && attempt->tried_count <= MESH_TRIED_MAX);
    frame->kind = PEER_CALL;
    call->method = request->method;
    call->model = attempt->model;
    call->create_revision = attempt->create_revision;
    call->hop = attempt->hop;
    call->shape = peer_flow_shape(request->flow);
    call->message_bytes = peer_flow_has_message(call->shape)
                              ? peer_pieces_bytes(request->pieces, request->piece_count)
                              : 0;
    call->tried_count = attempt->tried_count;
    if (attempt->tried_count > 0)
        memcpy(call->tried, attempt->tried, attempt->tried_count * sizeof(*call->tried));
    call->metadata_count = (uint32_t)request->metadata_count;
    if (request->metadata_count > 0)
        memcpy(call->metadata, request->metadata,
               request->metadata_count * sizeof(*call->metadata));
}

static enum mesh_end
end_of_status(enum status status)
{
    return status == STATUS_RESOURCE_EXHAUSTED ? MESH_END_OVERLOADED
           : status == STATUS_INVALID_ARGUMENT ? MESH_END_FAILED
                                               : MESH_END_UNREACHABLE;
}

enum runner_begun
link_forward(struct peer_link *link, const struct runner_attempt *attempt,
             struct peer_request *request, struct runner_end *end)
{
    struct peer_frame frame;
    bool is_late;
    *end = (struct runner_end){.end = MESH_END_DEADLINE};
    frame.call.left_us = left_us(attempt->deadline_ns, &is_late);
    if (is_late)
        return RUNNER_ENDED;
    frame_fill(&frame, attempt, request);
    uint64_t bytes = frame.call.message_bytes;
    bool has_message = peer_flow_has_message(frame.call.shape);
    struct peer_slot *slot = slots_take(&link->slots, request, attempt->number);
    end->end = MESH_END_OVERLOADED;
    if (slot == NULL)
        return RUNNER_ENDED;
    frame.call.number = slot->number;
    enum status status = peer_pipe_put(&link->pipe, &frame, has_message ? request->pieces : NULL,
                                       has_message ? request->piece_count : 0, bytes);
    if (status != STATUS_OK) {
        slots_free(&link->slots, slot);
        check_pipe(link);
        end->end = end_of_status(status);
        return RUNNER_ENDED;
    }
    link->sent_bytes += bytes;
    request->type->hold(request);
    request->link = link;
    request->number = slot->number;
    if (frame.call.shape != PEER_FLOW_UNARY)
        flow_begin(link, slot, frame.call.shape);
    return RUNNER_UNDER_WAY;
}

void
link_ensure(struct peer_link *link, const struct mesh_ensure *ensure)
{
    struct peer_frame frame = {.kind = PEER_ENSURE, .ensure = *ensure};
    (void)!peer_pipe_put(&link->pipe, &frame, NULL, 0, 0); /* if lost, the core asks again */
    check_pipe(link);
}

void
link_ask_clock(struct peer_link *link)
{
    struct peer_frame frame = {.kind = PEER_CLOCK};
    if (link->call == NULL || !link->has_clock || link->is_over)
        return;
    frame.clock = (struct peer_clock){.asked_ms = skew_now_ms()};
    (void)!peer_pipe_put(&link->pipe, &frame, NULL, 0, 0); /* if lost, it is asked again */
    check_pipe(link);
}

bool
link_abandon(struct peer_link *link, const struct peer_request *request, uint32_t attempt)
{
    pthread_mutex_lock(&link->lock);
    struct peer_slot *slot = slots_find(&link->slots, request->number);
    bool is_ours = slot != NULL && slot->request == request && slot->attempt == attempt;
    if (is_ours) {
        peer_pipe_drop(&link->pipe, slot->number);
        send_cancel(link, slot->number);
        slot_drop(slot);
        slots_free(&link->slots, slot);
        leave_if_idle(link);
    }
    pthread_mutex_unlock(&link->lock);
    return is_ours;
}

void
link_leave(struct peer_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->is_leaving = true;
    bool is_over = link->call == NULL;
    leave_if_idle(link);
    pthread_mutex_unlock(&link->lock);
    if (is_over)
        peers_link_free(link->peers, link);
}

void
link_close(struct peer_link *link)
{
    pthread_mutex_lock(&link->lock);
    link->is_leaving = true;
    rpc_client_destroy(link->client);
    link->client = NULL;
    pthread_mutex_unlock(&link->lock);
}
