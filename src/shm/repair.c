/* SPDX-License-Identifier: Apache-2.0 */
#include "shm/repair.h"

#include <stdlib.h>

#include "base/check.h"
#include "shm/arena.h"
#include "shm/doorbell.h"
#include "shm/former.h"
#include "shm/slot.h"

struct repair {
    const struct region *region;
    uint16_t dead;
    uint16_t self;
    const struct repair_judge *judge;
    struct repair_report *report;
    struct error *error;
    uint64_t *judged; /* by object: the word that a pass judged; 0: not concerned */
};

static enum status
corrupt(struct repair *repair, const char *what, uint32_t index)
{
    return error_set(repair->error, STATUS_DATA_LOSS, "repair: %s %u is impossible", what, index);
}

/* ---- pushes that the dead one owed ---- */

/* Notes the objects that wait with the dead owner. Returns their number, or -1 if a word is
 * impossible. */
static int
note_waiting(struct repair *repair, const struct shm_objects *objects)
{
    int noted = 0;
    for (uint32_t i = 0; i < objects->count; i++) {
        uint64_t seen = atomic_load_explicit(object_word(objects, i), memory_order_acquire);
        struct shm_word word = word_unpack(seen);
        if (!word_possible(seen))
            return -1;
        bool concerned = !word.held && word.owner == repair->dead;
        repair->judged[i] = concerned ? seen : 0;
        noted += concerned;
    }
    return noted;
}

/*
 * Forgets noted objects that a cell of this ring names: their push was completed. A cell that
 * disappears meanwhile was claimed, so the word has changed and the CAS of the next step fails.
 */
static enum status
forget_pushed(struct repair *repair, const struct shm_objects *objects, struct shm_ring ring)
{
    for (uint32_t i = 0; i < ring.cell_count; i++) {
        uint64_t cell = atomic_load_explicit(&ring.shared->cells[i], memory_order_acquire);
        if (!cell_is_full(cell))
            continue;
        uint32_t index = cell_index(cell);
        if (index >= objects->count)
            return corrupt(repair, "index in a cell:", index);
        struct shm_word word = word_unpack(repair->judged[index]);
        if (repair->judged[index] != 0 && word.place == ring.place && cell_names(cell, index, word))
            repair->judged[index] = 0;
    }
    return STATUS_OK;
}

/* Takes over a noted word by CAS from the judged value, and fills the missing cell. */
static enum status
push_owed(struct repair *repair, const struct shm_objects *objects, struct shm_ring ring,
          uint32_t index)
{
    uint64_t judged = repair->judged[index];
    struct shm_word word = word_unpack(judged);
    word.owner = repair->self;
    if (!atomic_compare_exchange_strong_explicit(object_word(objects, index), &judged,
                                                 word_pack(word), memory_order_acq_rel,
                                                 memory_order_relaxed))
        return STATUS_OK; /* claimed meanwhile: nothing is owed */
    if (ring_fill_cell(&ring, index, word) != RING_OK)
        return corrupt(repair, "ring of place", ring.place);
    repair->report->pushed++;
    return STATUS_OK;
}

static enum status
repair_waiting_slots(struct repair *repair)
{
    const struct region *region = repair->region;
    int noted = note_waiting(repair, &region->slots);
    if (noted < 0)
        return corrupt(repair, "word of a slot, among", region->slots.count);
    if (noted == 0)
        return STATUS_OK;
    uint8_t extra_places[] = {PLACE_ERROR, PLACE_FREE};
    for (uint32_t n = 0; n < region->layout.slot_ring_count; n++) {
        uint32_t last = region->layout.plan.stage_count;
        CHECK(n <= last + ARRAY_COUNT(extra_places));
        uint8_t place = n <= last ? (uint8_t)n : extra_places[n - last - 1];
        if (forget_pushed(repair, &region->slots, region_slot_ring(region, place)) != STATUS_OK)
            return STATUS_DATA_LOSS;
    }
    for (uint32_t i = 0; i < region->slots.count; i++) {
        if (repair->judged[i] == 0)
            continue;
        uint8_t place = word_unpack(repair->judged[i]).place;
        if (!region_place_exists(region, place))
            return corrupt(repair, "place of slot", i);
        if (push_owed(repair, &region->slots, region_slot_ring(region, place), i) != STATUS_OK)
            return STATUS_DATA_LOSS;
    }
    return STATUS_OK;
}

static enum status
repair_waiting_blocks(struct repair *repair)
{
    const struct region *region = repair->region;
    int noted = note_waiting(repair, &region->blocks);
    if (noted < 0)
        return corrupt(repair, "word of a block, among", region->blocks.count);
    if (noted == 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < region->layout.plan.class_count; i++)
        if (forget_pushed(repair, &region->blocks, region_class_ring(region, i)) != STATUS_OK)
            return STATUS_DATA_LOSS;
    bool has_pieces = region->layout.plan.pieces != 0;
    if (has_pieces &&
        forget_pushed(repair, &region->blocks, region_piece_ring(region)) != STATUS_OK)
        return STATUS_DATA_LOSS;
    for (uint32_t i = 0; i < region->blocks.count; i++) {
        if (repair->judged[i] == 0)
            continue;
        uint8_t place = word_unpack(repair->judged[i]).place;
        bool is_piece = has_pieces && place == PLACE_PIECE;
        if (!is_piece && place != arena_class_of(&region->layout, i))
            return corrupt(repair, "size class of block", i);
        struct shm_ring ring =
            is_piece ? region_piece_ring(region) : region_class_ring(region, place);
        if (push_owed(repair, &region->blocks, ring, i) != STATUS_OK)
            return STATUS_DATA_LOSS;
    }
    return STATUS_OK;
}

/* ---- what the dead one held ---- */

/* Takes over the slots that the dead owner held; notes the words with which we hold them. */
static enum status
take_over_held(struct repair *repair)
{
    const struct region *region = repair->region;
    for (uint32_t i = 0; i < region->slots.count; i++) {
        _Atomic uint64_t *shared = object_word(&region->slots, i);
        uint64_t seen = atomic_load_explicit(shared, memory_order_acquire);
        struct shm_word word = word_unpack(seen);
        repair->judged[i] = 0;
        if (!word_possible(seen))
            return corrupt(repair, "word of slot", i);
        if (!word.held || word.owner != repair->dead)
            continue;
        if (!region_place_exists(region, word.place))
            return corrupt(repair, "place of slot", i);
        word.owner = repair->self;
        if (atomic_compare_exchange_strong_explicit(shared, &seen, word_pack(word),
                                                    memory_order_acq_rel, memory_order_relaxed))
            repair->judged[i] = word_pack(word);
    }
    return STATUS_OK;
}

static bool
valid_payload_names(const struct shm_slot *slot, uint8_t place, uint32_t block)
{
    if (place == PLACE_FREE)
        return false; /* nothing has been written yet, or everything was released */
    const struct shm_payload *payload = &slot->payload[place & 1];
    for (uint32_t i = 0; i < payload->block_count && i < PAYLOAD_BLOCKS_MAX; i++)
        if (payload->blocks[i] == block)
            return true;
    return false;
}

/* Releases the blocks of taken-over slots that their valid payload does not name: unfinished
 * outputs. */
static enum status
release_unnamed_blocks(struct repair *repair)
{
    const struct region *region = repair->region;
    for (uint32_t i = 0; i < region->blocks.count; i++) {
        uint64_t seen = atomic_load_explicit(object_word(&region->blocks, i), memory_order_acquire);
        struct shm_word block = word_unpack(seen);
        if (!block.held || block.owner >= region->slots.count || repair->judged[block.owner] == 0)
            continue;
        struct shm_word slot = word_unpack(repair->judged[block.owner]);
        if (valid_payload_names(region_slot(region, block.owner), slot.place, i))
            continue;
        if (arena_release(region, block.owner, i, repair->self) == STATUS_DATA_LOSS)
            return corrupt(repair, "word of block", i);
        repair->report->blocks_released++;
    }
    return STATUS_OK;
}

/* Decides where a slot goes that the dead owner held at a stage. */
static enum status
judge_running(struct repair *repair, uint32_t index, struct shm_word word, uint8_t *to)
{
    struct shm_slot *slot = region_slot(repair->region, index);
    struct error failure = ERROR_NONE;
    switch (repair->judge->judge(repair->judge->context,
                                 (struct shm_ticket){index, word.generation}, word.place,
                                 &failure)) {
    case REPAIR_RUN_AGAIN:
        *to = word.place;
        repair->report->run_again++;
        return STATUS_OK;
    case REPAIR_FAIL:
        *to = PLACE_ERROR;
        slot_set_failure(slot, word.place, failure.status, failure.text);
        repair->report->failed++;
        return STATUS_OK;
    case REPAIR_CORRUPT: break;
    }
    return corrupt(repair, "ticket of slot", index);
}

static enum status
push_taken_over(struct repair *repair, uint32_t index)
{
    const struct region *region = repair->region;
    struct shm_slot *slot = region_slot(region, index);
    struct shm_word word = word_unpack(repair->judged[index]);
    uint8_t to = word.place;
    uint32_t generation = word.generation;
    if (word.place == PLACE_FREE)
        generation = generation_next(generation);
    else
        slot->payload[(word.place + 1) & 1].block_count = 0; /* its blocks were released */
    if (word.place < region->layout.plan.stage_count) {
        enum status status = judge_running(repair, index, word, &to);
        if (status != STATUS_OK)
            return status;
    }
    struct shm_ring ring = region_slot_ring(region, to);
    if (ring_push(&ring, &region->slots, index, repair->judged[index], generation, repair->self) !=
        RING_OK)
        return corrupt(repair, "ring of place", to);
    return STATUS_OK;
}

static enum status
repair_held(struct repair *repair)
{
    const struct region *region = repair->region;
    enum status status = take_over_held(repair);
    if (status == STATUS_OK)
        status = release_unnamed_blocks(repair);
    for (uint32_t i = 0; i < region->slots.count && status == STATUS_OK; i++)
        if (repair->judged[i] != 0)
            status = push_taken_over(repair, i);
    return status;
}

enum status
region_repair(const struct region *region, const struct repair_dead *dead, uint16_t self,
              const struct repair_judge *judge, struct repair_report *report, struct error *error)
{
    uint32_t objects =
        region->slots.count > region->blocks.count ? region->slots.count : region->blocks.count;
    struct repair repair = {.region = region,
                            .dead = dead->owner,
                            .self = self,
                            .judge = judge,
                            .report = report,
                            .error = error,
                            .judged = calloc(objects, sizeof(uint64_t))};
    *report = (struct repair_report){0};
    if (repair.judged == NULL)
        return error_set(error, STATUS_RESOURCE_EXHAUSTED, "repair: no memory");
    enum status status = repair_waiting_slots(&repair);
    if (status == STATUS_OK) /* before a request ends for want of a piece that was owed */
        status = repair_waiting_blocks(&repair);
    if (status == STATUS_OK)
        status = repair_held(&repair);
    free(repair.judged);
    if (dead->stage < STAGES_MAX)
        former_evict(region, dead->stage, dead->worker_index, dead->owner);
    stages_awaken(region);
    doorbell_wake(&region->header->coordinator_bell);
    return status;
}
