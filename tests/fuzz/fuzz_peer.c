/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the frames of another node, cut into spans of any length (the first byte says of
 * which). Accepted frames keep the promises of peer_wire.h, and written anew it is what protobuf-c
 * reads, and what is read and written anew the same.
 */
#include <string.h>

#include "base/check.h"
#include "mesh/edge/peer_wire.h"
#include "shoal/peer.pb-c.h"
#include "spans.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
check_text(const char *text, size_t bytes_max)
{
    CHECK(strlen(text) <= bytes_max);
}

static void
check_call(const struct peer_call *call, const Shoal__Peer__Call *theirs)
{
    check_text(call->method, PEER_METHOD_BYTES_MAX);
    check_text(call->model, MESH_ID_BYTES_MAX);
    CHECK(call->hop <= MESH_HOP_HIT && call->tried_count <= MESH_TRIED_MAX &&
          call->metadata_count <= PEER_METADATA_MAX && call->shape <= PEER_FLOW_AWAITED &&
          (int)theirs->shape == (int)call->shape);
    CHECK(theirs->number == call->number && strcmp(theirs->method, call->method) == 0 &&
          strcmp(theirs->model, call->model) == 0 && theirs->left_us == call->left_us &&
          theirs->create_revision == call->create_revision &&
          theirs->message_bytes == call->message_bytes && (int)theirs->hop == (int)call->hop);
    CHECK(theirs->n_tried == call->tried_count && theirs->n_metadata == call->metadata_count);
    for (uint32_t i = 0; i < call->tried_count; i++)
        CHECK(strcmp(theirs->tried[i]->instance, call->tried[i].instance) == 0 &&
              theirs->tried[i]->since_ms == call->tried[i].since_ms &&
              (int)theirs->tried[i]->list == (int)call->tried[i].list);
    for (uint32_t i = 0; i < call->metadata_count; i++)
        CHECK(theirs->metadata[i]->value.len == call->metadata[i].value.bytes);
}

static void
check_answer(const struct peer_answer *answer, const Shoal__Peer__Answer *theirs)
{
    CHECK(answer->end <= MESH_END_DEADLINE && answer->status < STATUS_COUNT &&
          answer->initial_count <= PEER_METADATA_MAX &&
          answer->trailing_count <= PEER_METADATA_MAX);
    CHECK(theirs->number == answer->number && (int)theirs->end == (int)answer->end &&
          theirs->status == answer->status && theirs->text.len == answer->text.bytes &&
          theirs->has_message == answer->has_message &&
          theirs->message_bytes == answer->message_bytes &&
          theirs->n_initial == answer->initial_count &&
          theirs->n_trailing == answer->trailing_count &&
          (theirs->figures != NULL) == answer->has_figures);
    if (answer->has_figures)
        CHECK(theirs->figures->capacity_units == answer->figures.capacity_units &&
              theirs->figures->oldest_ms == answer->figures.oldest_ms &&
              theirs->figures->full == answer->figures.full);
}

static void
check_message(const struct peer_message *message, const Shoal__Peer__Message *theirs)
{
    CHECK(message->initial_count <= PEER_METADATA_MAX);
    CHECK(theirs->number == message->number && theirs->has_message == message->has_message &&
          theirs->is_last == message->is_last && theirs->message_bytes == message->message_bytes &&
          theirs->n_initial == message->initial_count);
    for (uint32_t i = 0; i < message->initial_count; i++)
        CHECK(theirs->initial[i]->value.len == message->initial[i].value.bytes);
}

static void
check_theirs(const struct peer_frame *frame, const unsigned char *head, size_t bytes)
{
    Shoal__Peer__Frames *all = shoal__peer__frames__unpack(NULL, bytes, head);
    CHECK(all != NULL && all->n_frames == 1);
    const Shoal__Peer__Frame *theirs = all->frames[0];
    CHECK((int)theirs->kind_case == (int)frame->kind);
    if (frame->kind == PEER_CALL)
        check_call(&frame->call, theirs->call);
    else if (frame->kind == PEER_ANSWER)
        check_answer(&frame->answer, theirs->answer);
    else if (frame->kind == PEER_MESSAGE)
        check_message(&frame->message, theirs->message);
    else if (frame->kind == PEER_CREDIT)
        CHECK(theirs->credit->number == frame->credit.number &&
              theirs->credit->cost == frame->credit.cost);
    else if (frame->kind == PEER_ENSURE)
        CHECK(strcmp(theirs->ensure->model, frame->ensure.model) == 0 &&
              theirs->ensure->used_ms == frame->ensure.used_ms &&
              (int)theirs->ensure->class_ == (int)frame->ensure.class);
    else if (frame->kind == PEER_HELLO)
        CHECK(strcmp(theirs->hello->from, frame->hello.from) == 0 &&
              strcmp(theirs->hello->to, frame->hello.to) == 0 &&
              theirs->hello->start_ms == frame->hello.start_ms &&
              theirs->hello->tells_clock == frame->hello.tells_clock &&
              theirs->hello->credit_bytes == frame->hello.credit_bytes);
    else if (frame->kind == PEER_CLOCK)
        CHECK(theirs->clock->asked_ms == frame->clock.asked_ms &&
              theirs->clock->wall_ms == frame->clock.wall_ms &&
              theirs->clock->mesh_ms == frame->clock.mesh_ms &&
              theirs->clock->voted == frame->clock.voted);
    shoal__peer__frames__free_unpacked(all, NULL);
}

/* Without its payload. */
static void
check_again(struct peer_frame *frame)
{
    static struct peer_frame again;
    static char texts[PEER_HEAD_BYTES_MAX];
    static unsigned char head[PEER_HEAD_BYTES_MAX], head_again[PEER_HEAD_BYTES_MAX];
    struct error error = ERROR_NONE;
    frame->payload_bytes = 0;
    size_t bytes = peer_frame_write(frame, head);
    if (bytes == 0)
        return; /* as long as it may be, but for the payload's tag */
    check_theirs(frame, head, bytes);
    struct wire_span span = {head, bytes};
    struct wire_message message = {&span, 1, bytes};
    struct wire_cursor cursor = wire_begin(&message);
    CHECK(peer_frame_open(&message, &cursor, &again, &error) == STATUS_OK && cursor.left == 0);
    CHECK(peer_frame_read(&again, texts, &error) == STATUS_OK);
    CHECK(peer_frame_write(&again, head_again) == bytes && memcmp(head, head_again, bytes) == 0);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct wire_span spans[SPANS_MAX];
    static struct peer_frame frame, found;
    static char texts[PEER_HEAD_BYTES_MAX];
    if (size == 0)
        return 0;
    struct wire_message message = cut(data + 1, size - 1, data[0], spans);
    struct wire_cursor cursor = wire_begin(&message);
    struct error error = ERROR_NONE;
    do {
        uint64_t offset = message.bytes - cursor.left;
        if (peer_frame_open(&message, &cursor, &frame, &error) != STATUS_OK ||
            peer_frame_read(&frame, texts, &error) != STATUS_OK) {
            CHECK(error.status == STATUS_INVALID_ARGUMENT && error.text[0] != '\0');
            return 0;
        }
        CHECK(frame.offset == offset && cursor.left < message.bytes - offset);
        CHECK(frame.payload_bytes == 0 ||
              (frame.payload_offset > offset &&
               frame.payload_offset + frame.payload_bytes <= message.bytes - cursor.left));
        struct wire_cursor there = peer_frame_at(&message, offset);
        CHECK(peer_frame_open(&message, &there, &found, &error) == STATUS_OK &&
              found.kind == frame.kind && found.payload_offset == frame.payload_offset &&
              there.left == cursor.left);
        check_again(&frame);
    } while (cursor.left > 0);
    return 0;
}
