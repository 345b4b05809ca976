/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_incoming.h"

#include <string.h>

#include "base/check.h"

/* ---- towards the peer ---- */

/* Locked. */
static void
put(struct peer_session *session, struct peer_frame *frame, const struct rpc_piece *pieces,
    size_t piece_count, uint64_t bytes)
{
    if (peer_pipe_put_behind(&session->pipe, frame, pieces, piece_count, bytes) != STATUS_OK)
        session_broke(session);
}

void
incoming_on_part(struct peer_request *request, const struct rpc_answer *part)
{
    struct incoming *incoming = incoming_of(request);
    struct peer_session *session = incoming->session;
    struct peer_frame frame = {.kind = PEER_MESSAGE};
    struct peer_message *received = &frame.message;
    uint64_t bytes = peer_pieces_bytes(part->pieces, part->piece_count);
    received->number = incoming->number;
    received->has_message = part->pieces != NULL;
    received->message_bytes = bytes;
    received->initial_count =
        (uint32_t)(part->initial_count < PEER_METADATA_MAX ? part->initial_count
                                                           : PEER_METADATA_MAX);
    if (received->initial_count > 0)
        memcpy(received->initial, part->initial,
               received->initial_count * sizeof(*received->initial));
    pthread_mutex_lock(&session->lock);
    if (incoming_is_there(incoming) && session->call != NULL) {
        if (received->has_message)
            incoming->out += peer_flow_cost(bytes);
        put(session, &frame, part->pieces, part->piece_count, bytes);
    } else {
        rpc_pieces_release(part->pieces, part->piece_count);
    }
    pthread_mutex_unlock(&session->lock);
}

void
incoming_on_room(struct peer_request *request, uint64_t cost)
{
    struct incoming *incoming = incoming_of(request);
    struct peer_session *session = incoming->session;
    CHECK(cost <= incoming->in);
    incoming->in -= cost;
    incoming->credit += cost;
    if (incoming->credit < PEER_FLOW_CREDIT_BYTES)
        return;
    struct peer_frame frame = {.kind = PEER_CREDIT};
    frame.credit = (struct peer_credit){incoming->number, incoming->credit};
    incoming->credit = 0;
    pthread_mutex_lock(&session->lock);
    if (incoming_is_there(incoming) && session->call != NULL)
        put(session, &frame, NULL, 0, 0);
    pthread_mutex_unlock(&session->lock);
}

void
incoming_on_first_released(struct peer_request *request)
{
    gathered_release(&incoming_of(request)->first);
}

/* ---- from the peer ---- */

/* The message is complete, or there is none. */
static void
pass_on(struct incoming *incoming, bool has_message)
{
    static const struct rpc_piece nothing[1];
    const struct peer_gathered *more = &incoming->more;
    const struct rpc_piece *pieces = more->count == 0 ? nothing : more->pieces;
    struct error error = ERROR_NONE;
    enum status status =
        peer_flow_send(&incoming->flow, has_message ? pieces : NULL, more->count,
                       incoming->is_last ? PEER_FLOW_LAST : PEER_FLOW_MORE, &error);
    gathered_release(&incoming->more);
    incoming->is_gathering = false;
    if (status != STATUS_OK)
        incoming_refuse(incoming, &error);
}

static enum status
check(const struct incoming *incoming, const struct peer_frame *frame, struct error *error)
{
    const struct peer_message *received = &frame->message;
    bool is_empty = !received->has_message || received->message_bytes == 0;
    const char *wrong = NULL;
    if (incoming->request.flow == NULL || !incoming->is_called || incoming->is_gathering ||
        incoming->is_last)
        wrong = "an unexpected message";
    else if (incoming->in >= PEER_FLOW_TAKEN_BYTES)
        wrong = "more than the window";
    else if (frame->payload_bytes > received->message_bytes ||
             (frame->payload_bytes == 0) != is_empty ||
             (!received->has_message && !received->is_last))
        wrong = "a message of the wrong length";
    if (wrong == NULL)
        return STATUS_OK;
    return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: %s", received->number, wrong);
}

/* An awaited first message counts like that of any other call. */
static bool
hold(struct incoming *incoming, uint64_t bytes)
{
    struct peer_session *session = incoming->session;
    pthread_mutex_lock(&session->lock);
    bool is_room = session->held_bytes + bytes <= PEER_SERVER_HELD_BYTES;
    if (is_room) {
        incoming->held += bytes;
        session->held_bytes += bytes;
    }
    pthread_mutex_unlock(&session->lock);
    return is_room;
}

static void
begin(struct incoming *incoming, const struct wire_message *message, const struct peer_frame *frame)
{
    const struct peer_message *received = &frame->message;
    struct error error = ERROR_NONE;
    if (received->message_bytes > incoming->session->house->options->message_bytes_max) {
        (void)error_set(&error, STATUS_RESOURCE_EXHAUSTED,
                        "a message of %llu bytes is larger than the serving node accepts",
                        (unsigned long long)received->message_bytes);
        incoming_refuse(incoming, &error);
        return;
    }
    incoming->is_last = received->is_last;
    incoming->is_gathering = true;
    if (received->has_message && !incoming->flow.is_awaited)
        incoming->in += peer_flow_cost(received->message_bytes);
    if (received->has_message && incoming->flow.is_awaited &&
        !hold(incoming, received->message_bytes)) {
        (void)error_set(&error, STATUS_RESOURCE_EXHAUSTED,
                        "too many bytes of requests are waiting at the serving node");
        incoming_refuse(incoming, &error);
        return;
    }
    incoming->more.expected = received->message_bytes;
    gathered_add(&incoming->more, message, frame);
    if (incoming->more.received == incoming->more.expected)
        pass_on(incoming, received->has_message);
}

enum status
session_on_flow_message(struct peer_session *session, const struct wire_message *message,
                        const struct peer_frame *frame, struct error *error)
{
    struct incoming *incoming = session_find(session, frame->message.number);
    if (incoming == NULL)
        return STATUS_OK;
    enum status status = check(incoming, frame, error);
    if (status == STATUS_OK)
        begin(incoming, message, frame);
    incoming_release(incoming);
    return status;
}

enum status
session_on_flow_part(struct incoming *incoming, const struct wire_message *message,
                     const struct peer_frame *frame, struct error *error)
{
    struct peer_gathered *more = &incoming->more;
    if (!incoming->is_gathering || frame->payload_bytes == 0 ||
        frame->payload_bytes > more->expected - more->received)
        return error_set(error, STATUS_INVALID_ARGUMENT, "call %u: an unexpected part",
                         incoming->number);
    gathered_add(more, message, frame);
    if (more->received == more->expected)
        pass_on(incoming, true);
    return STATUS_OK;
}

enum status
session_on_credit(struct peer_session *session, const struct peer_credit *credit,
                  struct error *error)
{
    struct incoming *incoming = session_find(session, credit->number);
    if (incoming == NULL)
        return STATUS_OK;
    pthread_mutex_lock(&session->lock);
    bool is_right = incoming->request.flow != NULL && credit->cost <= incoming->out;
    if (is_right)
        incoming->out -= credit->cost;
    pthread_mutex_unlock(&session->lock);
    if (is_right)
        peer_flow_taken(&incoming->flow, credit->cost);
    incoming_release(incoming);
    return is_right ? STATUS_OK
                    : error_set(error, STATUS_INVALID_ARGUMENT,
                                "call %u: credit for more than was sent", credit->number);
}
