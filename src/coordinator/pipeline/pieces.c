/* SPDX-License-Identifier: Apache-2.0 */
#include "coordinator/pipeline/pieces.h"

#include "coordinator/pipeline/pipeline.h"
#include "coordinator/protocol/raw_message.h"
#include "shm/slot.h"

enum { PIECES_PER_TURN = 64 };

void
pieces_admit(struct lane *lane, struct request *request, struct shm_ticket ticket)
{
    request->streams = request->sink->piece != NULL && lane->gives_pieces;
    if (!request->streams)
        return;
    request->stream_status = STATUS_OK;
    atomic_store_explicit(&request->delivered, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&lane->streaming, 1, memory_order_relaxed);
    slot_stream(&lane->region, ticket);
}

void
pieces_release(struct lane *lane, struct request *request)
{
    if (!request->streams)
        return;
    uint32_t before = atomic_fetch_sub_explicit(&lane->streaming, 1, memory_order_relaxed);
    CHECK(before != 0);
}

bool
pieces_leave(struct request *request, uint32_t generation, enum request_state to)
{
    uint64_t in_flight = request_use(generation, REQUEST_IN_FLIGHT);
    struct lane *lane = request->lane;
    if (atomic_load(&request->use) != in_flight)
        return false; /* another thread may be writing `streams` */
    bool streams = request->streams;
    if (streams)
        pthread_mutex_lock(&lane->pieces_lock);
    bool left =
        atomic_compare_exchange_strong(&request->use, &in_flight, request_use(generation, to));
    if (streams)
        pthread_mutex_unlock(&lane->pieces_lock);
    return left;
}

/* Drops the rest of the answer and tells the modelet to give up. */
static void
break_off(struct lane *lane, struct request *request, struct shm_ticket ticket, enum status status)
{
    request->stream_status = status;
    slot_cancel(&lane->region, ticket);
    if (status == STATUS_RESOURCE_EXHAUSTED)
        counter_add_shared(lane->pipeline->counters, PIPELINE_STREAMS_SLOW, 1);
}

static enum status
send_piece(struct lane *lane, struct request *request, const struct payload_view *view)
{
    struct oip_model_info info = lane->info;
    struct oip_pieces out;
    struct error error = ERROR_NONE;
    enum status status;
    if (request->model != NULL)
        info = lane->pipeline->options.models->info(lane, request->model);
    if (lane->takes_messages)
        status = raw_message_reply(view, NULL, NULL, out.pieces, &out.count, &error);
    else
        status = oip_encode_response(request->oip, &info, view, NULL, &out, &error);
    if (status == STATUS_OK)
        status = request->sink->piece(request->call, out.pieces, out.count,
                                      lane->generation->config->stream_bytes);
    return status;
}

/* The request of a popped piece; NULL: the region is corrupt. */
static struct request *
request_of(struct lane *lane, const struct piece *piece)
{
    struct request *request = lane_request(lane, piece->ticket);
    if (request != NULL && request->streams &&
        atomic_load_explicit(&request->delivered, memory_order_relaxed) == piece->number)
        return request;
    lane_report_corrupt(lane, "piece of no request in flight");
    return NULL;
}

static void
pass_on(struct lane *lane, struct request *request, const struct piece *piece,
        struct payload_view *view)
{
    struct error error = ERROR_NONE;
    atomic_store_explicit(&request->delivered, piece->number + 1, memory_order_relaxed);
    if (request->stream_status != STATUS_OK)
        return;
    if (payload_read(&lane->region, &piece->payload, view, &error) != STATUS_OK) {
        lane_report_corrupt(lane, error.text);
        return;
    }
    enum status status = send_piece(lane, request, view);
    if (status != STATUS_OK)
        break_off(lane, request, piece->ticket, status);
    else
        counter_add_shared(lane->pipeline->counters, PIPELINE_PIECES, 1);
}

/* Takes one piece out of the ring. The lock is held. */
static bool
take_piece(struct lane *lane, struct payload_view *view)
{
    struct piece piece;
    switch (piece_pop(&lane->region, &piece)) {
    case RING_OK: break;
    case RING_EMPTY: return false;
    case RING_LOST:
    case RING_CORRUPT: lane_report_corrupt(lane, "ring of pieces"); return false;
    }
    CHECK(atomic_load_explicit(&lane->piece_in_hand, memory_order_relaxed) == 0); /* one popper */
    atomic_store_explicit(&lane->piece_in_hand, piece.block + 1, memory_order_relaxed);
    struct request *request = request_of(lane, &piece);
    if (request != NULL)
        pass_on(lane, request, &piece, view);
    if (piece_release(&lane->region, piece.block) != STATUS_OK)
        lane_report_corrupt(lane, "block of a piece");
    if (request != NULL)
        piece_taken(&lane->region, &piece); /* its worker may count on the block */
    atomic_store_explicit(&lane->piece_in_hand, 0, memory_order_relaxed);
    return true;
}

uint32_t
pieces_gather(struct lane *lane, struct payload_view *view)
{
    if (!pieces_have_come(lane) || pthread_mutex_trylock(&lane->pieces_lock) != 0)
        return 0; /* the thread with the lock goes on until the ring is empty, or comes back */
    uint32_t taken = 0;
    while (taken < PIECES_PER_TURN && take_piece(lane, view))
        taken++;
    pthread_mutex_unlock(&lane->pieces_lock);
    return taken;
}

bool
pieces_gather_all(struct lane *lane, struct request *request, struct shm_ticket ticket,
                  struct payload_view *view)
{
    uint32_t emitted = slot_emitted(region_slot(&lane->region, ticket.index), ticket.generation);
    /* a piece that is there now is among so many, however many come meanwhile */
    uint32_t turns = lane->region.layout.piece_ring_cells;
    pthread_mutex_lock(&lane->pieces_lock);
    while (atomic_load_explicit(&request->delivered, memory_order_relaxed) < emitted &&
           turns-- > 0 && take_piece(lane, view))
        continue;
    bool whole = atomic_load_explicit(&request->delivered, memory_order_relaxed) == emitted;
    pthread_mutex_unlock(&lane->pieces_lock);
    return whole;
}
