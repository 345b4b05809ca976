/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pieces of answers: to the coordinator (shm/piece.h), if the item's caller takes pieces and this
 * is the last stage; else one answer is made of them as `collect` says.
 */
#include "base/clock.h"
#include "shm/arena.h"
#include "shm/doorbell.h"
#include "shm/piece.h"
#include "shm/slot.h"
#include "worker/collect.h"
#include "worker/worker.h"

/* The time to wait for the coordinator before another look at the item's caller. */
static const int64_t WAIT_NS = 100 * (int64_t)NS_PER_MS;

static struct worker *self; /* of this process: `emit` gets no more than the item */

void
emit_init(struct worker *worker)
{
    self = worker;
}

static struct shm_payload *
next_payload(const struct host_item *item)
{
    return &item->slot->payload[(self->place + 1) & 1];
}

static bool
takes_pieces(const struct host_item *item)
{
    const struct region *region = item->source->region;
    return !item->source->is_client_region && self->place + 1u == region_result_place(region) &&
           region->layout.plan.pieces != 0 && slot_streams(item->slot, item->ticket.generation);
}

/* The caller is gone, or its deadline has passed. */
static enum status
check_wanted(const struct host_item *item, struct error *error)
{
    if (slot_cancelled(item->slot, item->ticket.generation))
        return error_set(error, STATUS_CANCELLED, "cancelled after %u pieces", item->emitted);
    int64_t deadline_ns = item->shown.deadline_ns;
    if (deadline_ns != TIME_NEVER_NS && deadline_ns <= clock_now_ns())
        return error_set(error, STATUS_DEADLINE_EXCEEDED, "the deadline passed after %u pieces",
                         item->emitted);
    return STATUS_OK;
}

/* Returns how many pieces like the item's next one may wait to be popped: a quarter of the blocks
 * that could hold them, shared among the stage's workers. 0: the next output may want the block of
 * this one. */
static uint32_t
ahead_max(const struct host_item *item)
{
    const struct payload_builder *builder = &item->builder;
    const struct region_layout *layout = &item->source->region->layout;
    const struct region_plan *plan = &layout->plan;
    uint32_t blocks = 0;
    uint32_t class_index = builder->block_count == 1 ? arena_class_of(layout, builder->blocks[0])
                                                     : plan->class_count - 1;
    for (; class_index < plan->class_count; class_index++)
        blocks += plan->class_block_counts[class_index];
    uint32_t most = blocks / 4 / plan->worker_counts[self->place];
    return most < PIECES_AHEAD_MAX ? most : PIECES_AHEAD_MAX;
}

/* Waits until the coordinator has popped all but so many pieces of the item, and released their
 * blocks. */
static enum status
wait_for_room(const struct host_item *item, uint32_t most, struct error *error)
{
    struct shm_doorbell *bell = &self->entry.worker->bell;
    uint32_t generation = item->ticket.generation;
    enum status status = STATUS_OK;
    while (status == STATUS_OK && slot_pieces_waiting(item->slot, generation) > most) {
        uint32_t prepared = doorbell_prepare(bell);
        if (slot_pieces_waiting(item->slot, generation) <= most)
            doorbell_cancel(bell);
        else
            doorbell_sleep(bell, prepared, WAIT_NS);
        status = check_wanted(item, error);
    }
    return status;
}

static enum status
send_piece(struct host_item *item, struct error *error)
{
    const struct region *region = item->source->region;
    const struct piece_pusher pusher = {.region = region,
                                        .ticket = item->ticket,
                                        .owner = self->owner,
                                        .worker = self->start.worker_index,
                                        .overwritten = next_payload(item)};
    uint32_t most = ahead_max(item);
    enum status status = piece_push(&pusher, &item->builder, error);
    if (status != STATUS_OK)
        return status;
    item->emitted++;
    worker_entry_count(&self->entry, WORKER_PIECES, 1);
    doorbell_ring(&region->header->coordinator_bell);
    return wait_for_room(item, most, error); /* now, before the next output takes a block */
}

static enum status
keep_piece(struct host_item *item, struct error *error)
{
    enum status status = STATUS_OK;
    switch ((enum handshake_collect)self->start.collect) {
    case COLLECT_REFUSE:
    case COLLECT_END:
        return error_set(error, STATUS_UNIMPLEMENTED,
                         "stage %s answers in pieces: call ModelStreamInfer, or over REST "
                         "generate_stream, or set the stage's `collect`",
                         self->start.stage);
    case COLLECT_CONCAT: status = item_collect(item, error); break;
    case COLLECT_LAST: status = item_collect_last(item, error); break;
    }
    builder_clear(&item->builder, next_payload(item));
    item->emitted += status == STATUS_OK;
    return status;
}

static enum status
emit(struct host_item *item, struct error *error)
{
    if (!self->modelet.streams)
        return error_set(error, STATUS_FAILED_PRECONDITION,
                         "modelet %s emits without extension(\"stream\")",
                         self->modelet.table.name);
    if (item->builder.tensor_count == 0)
        return error_set(error, STATUS_INVALID_ARGUMENT, "modelet %s emits a piece without outputs",
                         self->modelet.table.name);
    enum status status = check_wanted(item, error);
    if (status != STATUS_OK)
        return status;
    return takes_pieces(item) ? send_piece(item, error) : keep_piece(item, error);
}

int32_t
worker_emit(struct shoal_item *shown)
{
    struct host_item *item = item_of(shown);
    struct error error = ERROR_NONE;
    if (item->refused != STATUS_OK)
        return (int32_t)item->refused;
    if (emit(item, &error) == STATUS_OK)
        return SHOAL_OK;
    return (int32_t)item_refuse(item, &error);
}
