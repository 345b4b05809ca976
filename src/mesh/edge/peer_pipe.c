/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/edge/peer_pipe.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"

enum { PIECES_AT_HAND = 64 };

/* A waiting frame, or a message in parts. It owns its pieces: copied ones point into it. */
struct peer_item {
    struct peer_item *next;
    struct peer_item *rest;   /* of a first part: the message, which then joins the ring */
    struct peer_item *behind; /* of such a message: frames that must not overtake it */
    uint32_t number;
    uint64_t bytes; /* of the pieces */
    uint64_t sent;  /* of these */
    unsigned char *head;
    size_t head_bytes;
    size_t piece_count;
    struct rpc_piece pieces[];
};

/* A lent piece that is sent in several parts: each part has a reference, and so has the splitting
 * code. */
struct pipe_share {
    atomic_uint references;
    void (*release)(void *context);
    void *context;
};

static void
share_release(void *context)
{
    struct pipe_share *share = context;
    if (atomic_fetch_sub_explicit(&share->references, 1, memory_order_acq_rel) != 1)
        return;
    share->release(share->context);
    free(share);
}

/* ---- pieces ---- */

static void
piece_release(const struct rpc_piece *piece)
{
    if (piece->kept != NULL)
        rpc_kept_release((struct rpc_kept *)(uintptr_t)piece->kept);
    else if (piece->release != NULL)
        piece->release(piece->release_context);
}

static void
piece_share(struct rpc_piece *piece)
{
    struct pipe_share *share = malloc(sizeof(*share));
    CHECK(share != NULL);
    atomic_init(&share->references, 1);
    share->release = piece->release;
    share->context = piece->release_context;
    piece->release = share_release;
    piece->release_context = share;
}

/* Bytes `from` to `to` of the item's pieces. Kept ones keep the item's reference, lent ones get one
 * more, for rpc_*_send. Returns their number. */
static size_t
item_cut(const struct peer_item *item, uint64_t from, uint64_t to, struct rpc_piece *out)
{
    uint64_t at = 0;
    size_t count = 0;
    for (size_t i = 0; i < item->piece_count && at < to; at += item->pieces[i].bytes, i++) {
        const struct rpc_piece *piece = &item->pieces[i];
        uint64_t begin = at < from ? from - at : 0;
        uint64_t end = at + piece->bytes < to ? piece->bytes : to - at;
        if (begin >= end)
            continue;
        out[count] = *piece;
        out[count].bytes = (size_t)(end - begin);
        if (piece->kept != NULL) {
            out[count].offset += (size_t)begin;
        } else {
            out[count].data = (const unsigned char *)piece->data + begin;
            if (piece->release != NULL)
                atomic_fetch_add_explicit(
                    &((struct pipe_share *)piece->release_context)->references, 1,
                    memory_order_relaxed);
        }
        count++;
    }
    return count;
}

/* ---- items ---- */

static bool
is_copied(const struct rpc_piece *piece)
{
    return piece->bytes <= PEER_PIPE_COPIED_BYTES ||
           (piece->kept == NULL && piece->release == NULL);
}

static size_t
copied_bytes(const struct rpc_piece *pieces, size_t count)
{
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (is_copied(&pieces[i]))
            bytes += pieces[i].bytes;
    return bytes;
}

/* Copies a piece's bytes into `room`; a lent one is released. */
static void
piece_copy(struct rpc_piece *piece, unsigned char *room)
{
    if (piece->kept != NULL) {
        struct wire_cursor cursor = wire_begin(rpc_kept_message(piece->kept));
        wire_skip(&cursor, piece->offset);
        wire_read(&cursor, room, piece->bytes);
    } else {
        if (piece->bytes > 0)
            memcpy(room, piece->data, piece->bytes);
        piece_release(piece);
    }
    *piece = (struct rpc_piece){.data = room, .bytes = piece->bytes};
}

enum cut { UNCUT, CUT };

/* Takes the pieces over. Memory is allocated here because the transport cannot take the frame: the
 * stream is behind or the message large. */
static struct peer_item *
item_create(uint32_t number, const void *head, size_t head_bytes, const struct rpc_piece *pieces,
            size_t count, enum cut cut)
{
    struct peer_item *item =
        malloc(sizeof(*item) + count * sizeof(*pieces) + head_bytes + copied_bytes(pieces, count));
    CHECK(item != NULL);
    unsigned char *room = (unsigned char *)&item->pieces[count];
    *item = (struct peer_item){
        .number = number, .head = room, .head_bytes = head_bytes, .piece_count = count};
    if (head_bytes > 0)
        memcpy(room, head, head_bytes);
    room += head_bytes;
    for (size_t i = 0; i < count; i++) {
        struct rpc_piece *piece = &item->pieces[i];
        *piece = pieces[i];
        item->bytes += piece->bytes;
        if (is_copied(piece)) {
            piece_copy(piece, room);
            room += piece->bytes;
        } else if (piece->kept != NULL) {
            rpc_kept_acquire((struct rpc_kept *)(uintptr_t)piece->kept);
        } else if (cut == CUT) {
            piece_share(piece);
        }
    }
    return item;
}

enum pipe_pieces { PIECES_GONE, PIECES_THERE };

/* PIECES_GONE: lent ones were sent. */
static void
item_free(struct peer_item *item, enum pipe_pieces pieces)
{
    for (size_t i = 0; i < item->piece_count; i++)
        if (pieces == PIECES_THERE || item->pieces[i].kept != NULL)
            piece_release(&item->pieces[i]);
    if (item->rest != NULL)
        item_free(item->rest, PIECES_THERE);
    while (item->behind != NULL) {
        struct peer_item *behind = item->behind;
        item->behind = behind->next;
        item_free(behind, PIECES_THERE);
    }
    free(item);
}

/* ---- sending ---- */

/* Pieces of a message about to be sent. */
struct gather {
    struct rpc_piece at_hand[PIECES_AT_HAND];
    struct rpc_piece *all;
    size_t count;
};

static void
gather_begin(struct gather *gather, size_t room)
{
    gather->count = 0;
    gather->all = gather->at_hand;
    if (room <= PIECES_AT_HAND)
        return;
    gather->all = malloc(room * sizeof(*gather->all)); /* many pieces hold many bytes */
    CHECK(gather->all != NULL);
}

static void
gather_frame(struct gather *gather, const void *head, size_t head_bytes,
             const struct rpc_piece *pieces, size_t count)
{
    gather->all[gather->count++] = (struct rpc_piece){.data = head, .bytes = head_bytes};
    if (count > 0)
        memcpy(gather->all + gather->count, pieces, count * sizeof(*pieces));
    gather->count += count;
}

static enum status
gather_send(struct gather *gather, struct peer_pipe *pipe)
{
    enum status status = pipe->send(pipe->stream, gather->all, gather->count);
    if (gather->all != gather->at_hand)
        free(gather->all);
    pipe->out++;
    if (status != STATUS_OK)
        pipe->is_broken = true;
    return status == STATUS_OK ? STATUS_OK : STATUS_CANCELLED;
}

static enum status
send_frame(struct peer_pipe *pipe, const void *head, size_t head_bytes,
           const struct rpc_piece *pieces, size_t count)
{
    struct gather gather;
    gather_begin(&gather, 1 + count);
    gather_frame(&gather, head, head_bytes, pieces, count);
    return gather_send(&gather, pipe);
}

/* Sends the next part of a message, after that head. */
static void
send_part(struct peer_pipe *pipe, struct peer_item *item, const void *head, size_t head_bytes,
          uint64_t bytes)
{
    struct rpc_piece *pieces = malloc((item->piece_count + 1) * sizeof(*pieces));
    CHECK(pieces != NULL);
    size_t count = item_cut(item, item->sent, item->sent + bytes, pieces);
    item->sent += bytes;
    CHECK(item->sent <= item->bytes && bytes <= pipe->bytes);
    pipe->bytes -= bytes;
    (void)send_frame(pipe, head, head_bytes, pieces, count); /* is_broken says so */
    free(pieces);
}

static uint64_t
part_bytes(const struct peer_item *item)
{
    uint64_t left = item->bytes - item->sent;
    return left < PEER_PART_BYTES_MAX ? left : PEER_PART_BYTES_MAX;
}

static void
ring_append(struct peer_pipe *pipe, struct peer_item *item)
{
    item->next = NULL;
    *pipe->ring_last = item;
    pipe->ring_last = &item->next;
}

static struct peer_item *
ring_take(struct peer_pipe *pipe)
{
    struct peer_item *item = pipe->ring;
    pipe->ring = item->next;
    if (pipe->ring == NULL)
        pipe->ring_last = &pipe->ring;
    return item;
}

static void
queue_append(struct peer_pipe *pipe, struct peer_item *item)
{
    item->next = NULL;
    *pipe->last = item;
    pipe->last = &item->next;
}

/* Releases the items behind a sent message up to the next message in parts; the others then wait
 * for that one. */
static void
let_behind_go(struct peer_pipe *pipe, struct peer_item *item)
{
    while (item->behind != NULL) {
        struct peer_item *next = item->behind;
        item->behind = next->next;
        if (next->rest != NULL) {
            next->rest->behind = item->behind;
            item->behind = NULL;
        }
        queue_append(pipe, next);
    }
}

static void
pump_part(struct peer_pipe *pipe)
{
    struct peer_item *item = ring_take(pipe);
    unsigned char head[PEER_HEAD_BYTES_MAX];
    struct peer_frame frame = {.kind = PEER_PART, .payload_bytes = part_bytes(item)};
    frame.about.number = item->number;
    size_t head_bytes = peer_frame_write(&frame, head);
    pipe->since_part = 0;
    send_part(pipe, item, head, head_bytes, frame.payload_bytes);
    if (item->sent < item->bytes) {
        ring_append(pipe, item);
        return;
    }
    let_behind_go(pipe, item);
    item_free(item, PIECES_THERE);
}

/* Removes the items up to `end` from the queue. */
static struct peer_item *
queue_take(struct peer_pipe *pipe, struct peer_item *end)
{
    struct peer_item *first = pipe->first;
    pipe->first = end;
    if (end == NULL)
        pipe->last = &pipe->first;
    return first;
}

static void
pump_first_part(struct peer_pipe *pipe)
{
    struct peer_item *item = queue_take(pipe, pipe->first->next);
    struct peer_item *rest = item->rest;
    CHECK(rest->sent == 0);
    pipe->bytes -= item->head_bytes;
    send_part(pipe, rest, item->head, item->head_bytes, part_bytes(rest));
    item->rest = NULL;
    ring_append(pipe, rest);
    item_free(item, PIECES_GONE);
}

/* Sends one whole frame, or as many waiting ones as fit together. */
static void
pump_whole(struct peer_pipe *pipe)
{
    struct peer_item *end = pipe->first;
    uint64_t bytes = 0;
    size_t pieces = 0;
    do {
        bytes += end->head_bytes + end->bytes;
        pieces += 1 + end->piece_count;
        end = end->next;
    } while (end != NULL && end->rest == NULL &&
             bytes + end->head_bytes + end->bytes <= PEER_PIPE_TOGETHER_BYTES);
    struct peer_item *first = queue_take(pipe, end);
    struct gather gather;
    gather_begin(&gather, pieces);
    for (struct peer_item *item = first; item != end; item = item->next)
        gather_frame(&gather, item->head, item->head_bytes, item->pieces, item->piece_count);
    CHECK(gather.count == pieces && bytes <= pipe->bytes);
    pipe->bytes -= bytes;
    (void)gather_send(&gather, pipe); /* is_broken says so */
    while (first != end) {
        struct peer_item *next = first->next;
        item_free(first, PIECES_GONE);
        first = next;
    }
}

static void
pipe_check(const struct peer_pipe *pipe)
{
    CHECK(pipe->out <= PEER_PIPE_OUT_MAX);
    CHECK(peer_pipe_has_waiting(pipe) || pipe->bytes == 0);
    CHECK((pipe->first == NULL) == (pipe->last == &pipe->first) && *pipe->last == NULL);
    CHECK((pipe->ring == NULL) == (pipe->ring_last == &pipe->ring) && *pipe->ring_last == NULL);
}

static void
pump(struct peer_pipe *pipe)
{
    pipe_check(pipe);
    while (!pipe->is_broken && pipe->out < PEER_PIPE_OUT_MAX) {
        if (pipe->ring != NULL && (pipe->first == NULL || pipe->since_part >= PEER_PIPE_TURN)) {
            pump_part(pipe);
        } else if (pipe->first != NULL) {
            pipe->since_part++;
            if (pipe->first->rest != NULL)
                pump_first_part(pipe);
            else
                pump_whole(pipe);
        } else {
            return;
        }
    }
}

/* ---- its user's side ---- */

void
peer_pipe_init(struct peer_pipe *pipe,
               enum status (*send)(void *stream, const struct rpc_piece *pieces,
                                   size_t piece_count),
               void *stream, uint64_t window)
{
    *pipe = (struct peer_pipe){.send = send, .stream = stream, .window = window};
    pipe->last = &pipe->first;
    pipe->ring_last = &pipe->ring;
}

static void
free_all(struct peer_item *item)
{
    while (item != NULL) {
        struct peer_item *next = item->next;
        item_free(item, PIECES_THERE);
        item = next;
    }
}

void
peer_pipe_fini(struct peer_pipe *pipe)
{
    free_all(pipe->first);
    free_all(pipe->ring);
    peer_pipe_init(pipe, pipe->send, pipe->stream, pipe->window);
}

static uint32_t
number_of(const struct peer_frame *frame)
{
    switch (frame->kind) {
    case PEER_CALL: return frame->call.number;
    case PEER_ANSWER: return frame->answer.number;
    case PEER_PART:
    case PEER_CANCEL: return frame->about.number;
    case PEER_MESSAGE: return frame->message.number;
    case PEER_CREDIT: return frame->credit.number;
    case PEER_HELLO:
    case PEER_ENSURE:
    case PEER_CLOCK:
    case PEER_BYE: return 0;
    }
    UNREACHABLE();
}

/* The call's last unfinished message in parts; NULL: none. */
static struct peer_item *
last_in_parts(const struct peer_pipe *pipe, uint32_t number)
{
    struct peer_item *found = NULL;
    for (struct peer_item *item = pipe->ring; item != NULL; item = item->next)
        if (item->number == number)
            found = item;
    for (struct peer_item *item = pipe->first; item != NULL; item = item->next)
        if (item->rest != NULL && item->number == number)
            found = item->rest;
    return found;
}

static void
append_behind(struct peer_item *before, struct peer_item *item)
{
    struct peer_item **at = &before->behind;
    while (*at != NULL)
        at = &(*at)->next;
    item->next = NULL;
    *at = item;
}

enum pipe_order { OVERTAKES, BEHIND };

static enum status
put(struct peer_pipe *pipe, struct peer_frame *frame, const struct rpc_piece *pieces,
    size_t piece_count, uint64_t bytes, enum pipe_order order)
{
    unsigned char head[PEER_HEAD_BYTES_MAX];
    bool cut = bytes > PEER_PART_BYTES_MAX;
    frame->payload_bytes = cut ? PEER_PART_BYTES_MAX : bytes;
    size_t head_bytes = peer_frame_write(frame, head);
    enum status status = pipe->is_broken   ? STATUS_CANCELLED
                         : head_bytes == 0 ? STATUS_INVALID_ARGUMENT
                         : order == OVERTAKES && pipe->bytes >= pipe->window
                             ? STATUS_RESOURCE_EXHAUSTED
                             : STATUS_OK;
    if (status != STATUS_OK) {
        rpc_pieces_release(pieces, piece_count);
        return status;
    }
    struct peer_item *before = order == BEHIND ? last_in_parts(pipe, number_of(frame)) : NULL;
    if (!cut && before == NULL && pipe->first == NULL && pipe->out < PEER_PIPE_OUT_MAX) {
        pipe->since_part++;
        return send_frame(pipe, head, head_bytes, pieces, piece_count);
    }
    uint32_t number = number_of(frame);
    struct peer_item *item =
        item_create(number, head, head_bytes, pieces, cut ? 0 : piece_count, UNCUT);
    if (cut)
        item->rest = item_create(number, NULL, 0, pieces, piece_count, CUT);
    pipe->bytes += head_bytes + bytes;
    if (before != NULL)
        append_behind(before, item);
    else
        queue_append(pipe, item);
    pump(pipe);
    return pipe->is_broken ? STATUS_CANCELLED : STATUS_OK;
}

enum status
peer_pipe_put(struct peer_pipe *pipe, struct peer_frame *frame, const struct rpc_piece *pieces,
              size_t piece_count, uint64_t bytes)
{
    return put(pipe, frame, pieces, piece_count, bytes, OVERTAKES);
}

enum status
peer_pipe_put_behind(struct peer_pipe *pipe, struct peer_frame *frame,
                     const struct rpc_piece *pieces, size_t piece_count, uint64_t bytes)
{
    return put(pipe, frame, pieces, piece_count, bytes, BEHIND);
}

/* Bytes of a dropped message and of what waits behind it. */
static uint64_t
waiting_bytes(const struct peer_item *item)
{
    uint64_t bytes = item->bytes - item->sent;
    for (const struct peer_item *next = item->behind; next != NULL; next = next->next)
        bytes += next->head_bytes + next->bytes + (next->rest != NULL ? next->rest->bytes : 0);
    return bytes;
}

void
peer_pipe_drop(struct peer_pipe *pipe, uint32_t number)
{
    for (struct peer_item **at = &pipe->first; *at != NULL;) {
        struct peer_item *item = *at;
        if (item->rest == NULL || item->number != number) {
            at = &item->next;
            continue;
        }
        pipe->bytes -= item->head_bytes + waiting_bytes(item->rest);
        *at = item->next;
        if (item->next == NULL)
            pipe->last = at;
        item_free(item, PIECES_THERE);
    }
    for (struct peer_item **at = &pipe->ring; *at != NULL;) {
        struct peer_item *item = *at;
        if (item->number != number) {
            at = &item->next;
            continue;
        }
        pipe->bytes -= waiting_bytes(item);
        *at = item->next;
        if (item->next == NULL)
            pipe->ring_last = at;
        item_free(item, PIECES_THERE);
    }
    pipe_check(pipe);
}

bool
peer_pipe_has_waiting(const struct peer_pipe *pipe)
{
    return pipe->first != NULL || pipe->ring != NULL;
}

void
peer_pipe_on_sent(struct peer_pipe *pipe)
{
    CHECK(pipe->out > 0);
    pipe->out--;
    pump(pipe);
}
