/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language of fuzz_region.c's programs: a byte says which step, the bytes after it what with,
 * as the step's function takes them. Bytes that are missing are zero, so every input is a program.
 * region_seeds.py writes seeds in it: keep the two alike. Also the lies that both fuzzers of
 * regions write.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "shm/arena.h"
#include "shm/region.h"
#include "shm/ring.h"
#include "shm/slot.h"

enum step {
    STEP_SUBMIT,      /* message */
    STEP_WORK,        /* seat, end; pieces, if it emits */
    STEP_GATHER,      /* */
    STEP_DIE,         /* seat */
    STEP_AUDIT,       /* seconds since the last */
    STEP_FAIL_STAGE,  /* stage */
    STEP_CANCEL,      /* call */
    STEP_GIVE_BACK,   /* call */
    STEP_ATTACH,      /* */
    STEP_LOOK,        /* ring */
    STEP_WAKE,        /* stage */
    STEP_WRITE,       /* target, which, …, value, … */
    STEP_FORGE,       /* slot, place, generation, owner */
    STEP_SWAP,        /* slot, slot */
    STEP_TEXT,        /* slot, byte, status */
    STEP_FORGE_PIECE, /* block, slot, generation, number, worker, payload, owner */
    STEPS,
};

enum message_kind {
    MESSAGE_SMALL,
    MESSAGE_MIDDLE,
    MESSAGE_LARGE,
    MESSAGE_OTHER_OUTPUT, /* asks for what there is not */
    MESSAGE_CUT,
    MESSAGE_KINDS,
};

/* A message's byte is its kind, and MESSAGE_KINDS times the kind of its caller. */
enum caller_kind {
    CALLER_WHOLE, /* takes one answer */
    CALLER_PIECES,
    CALLER_SLOW, /* takes so many pieces, and no more */
    CALLER_KINDS,
    CALLER_SLOW_TAKES = 2,
};

enum work_end {
    WORK_FORWARDS,
    WORK_COPIES,
    WORK_FAILS,
    WORK_STOPS_FIRST, /* with the slot claimed */
    WORK_STOPS_LAST,  /* with blocks acquired, before the push */
    WORK_EMITS,       /* pieces, and as many outputs as there were inputs, or none */
    WORK_STOPS_EMITTING,
    WORK_ENDS,
};

enum region_target {
    TARGET_SLOT_WORD,
    TARGET_CELL,
    TARGET_HEAD,
    TARGET_TAIL,
    TARGET_LAST_OF_TICKETS = TARGET_TAIL,
    TARGET_BLOCK_WORD,
    TARGET_DESCRIPTOR,
    TARGET_SLOT_FIELD,
    TARGET_STAGE,
    TARGET_SEAT,
    TARGET_HEADER,
    TARGET_BLOCK,
    TARGET_ANYWHERE,
    TARGET_PIECE,
    TARGETS,
};

enum value {
    VALUE_ANY,
    VALUE_BIT,
    VALUE_NEAR,
    VALUE_NEAR_GENERATION,
    VALUE_COPY,
    VALUE_SMALL,
    VALUE_WORD,
    VALUE_CELL,
    VALUES,
};

struct program {
    const uint8_t *data;
    size_t left;
};

static inline uint8_t
take8(struct program *program)
{
    if (program->left == 0)
        return 0;
    program->left--;
    return *program->data++;
}

static inline uint16_t
take16(struct program *program)
{
    uint16_t low = take8(program);
    return (uint16_t)(low | take8(program) << 8);
}

static inline uint32_t
take32(struct program *program)
{
    uint32_t low = take16(program);
    return low | (uint32_t)take16(program) << 16;
}

static inline uint64_t
take64(struct program *program)
{
    uint64_t low = take32(program);
    return low | (uint64_t)take32(program) << 32;
}

/* ---- what a hostile process does with a region of SLOTS and STAGES ---- */

enum { SLOTS = 8, STAGES = 2 };

static inline struct shm_ring
any_ring(const struct region *region, uint8_t number)
{
    const struct region_plan *plan = &region->layout.plan;
    uint32_t others = STAGES + 3 + plan->class_count;
    number %= others + plan->pieces;
    if (number == others)
        return region_piece_ring(region);
    if (number <= STAGES)
        return region_slot_ring(region, number);
    if (number <= STAGES + 2)
        return region_slot_ring(region, number == STAGES + 1 ? PLACE_ERROR : PLACE_FREE);
    return region_class_ring(region, number - STAGES - 3u);
}

/* Any shared field as what a writer sees in it. */
#define BYTES(pointer) ((char *)(uintptr_t)(pointer))

/* Where to write 8 bytes, for targets that mean the same in every region. */
static inline char *
target_in(const struct region *region, struct program *program, uint8_t what, uint8_t which)
{
    struct shm_slot *slot = region_slot(region, which % SLOTS);
    struct shm_ring ring = any_ring(region, which);
    switch (what) {
    case TARGET_SLOT_WORD: return BYTES(&slot->word);
    case TARGET_CELL: return BYTES(&ring.shared->cells[take8(program) % ring.cell_count]);
    case TARGET_HEAD: return BYTES(&ring.shared->head);
    case TARGET_TAIL: return BYTES(&ring.shared->tail);
    case TARGET_BLOCK_WORD:
        return BYTES(object_word(&region->blocks, which % region->blocks.count));
    case TARGET_DESCRIPTOR: return BYTES(slot->payload) + take8(program) % 57;
    case TARGET_SLOT_FIELD: return BYTES(slot) + take16(program) % (sizeof(*slot) - 7);
    case TARGET_BLOCK:
        return arena_block(region, which % region->blocks.count) + take16(program) % 2041;
    case TARGET_PIECE:
        which %= region->blocks.count;
        return arena_block(region, which) + arena_block_bytes(&region->layout, which) -
               sizeof(struct shm_piece) + take8(program) % (sizeof(struct shm_piece) - 7);
    default: return region->base + take32(program) % (region->layout.region_bytes - 7);
    }
}

/* In this order, even after optimization. */
static inline struct shm_word
word_of(struct program *program)
{
    struct shm_word word;
    word.generation = take8(program);
    word.turn = take8(program);
    word.place = take8(program);
    word.held = take8(program) % 2;
    word.owner = take8(program);
    return word;
}

static inline uint64_t
value_of(const struct region *region, struct program *program, uint64_t before)
{
    uint64_t word;
    switch (take8(program) % VALUES) {
    case VALUE_BIT: return before ^ UINT64_C(1) << take8(program) % 64;
    case VALUE_NEAR: return before + (uint64_t)(int64_t)(int8_t)take8(program);
    case VALUE_NEAR_GENERATION: return before + ((uint64_t)(int64_t)(int8_t)take8(program) << 32);
    case VALUE_COPY:
        memcpy(&word, region->base + take32(program) % (region->layout.region_bytes - 7),
               sizeof(word));
        return word;
    case VALUE_SMALL: return take8(program);
    case VALUE_WORD: return word_pack(word_of(program));
    case VALUE_CELL: {
        struct shm_word cell = word_of(program);
        uint8_t lap = take8(program);
        return cell_full(lap, take16(program), cell);
    }
    default: return take64(program);
    }
}

static inline void
write_value(const struct region *region, struct program *program, char *target)
{
    uint64_t word;
    memcpy(&word, target, sizeof(word));
    word = value_of(region, program, word);
    memcpy(target, &word, sizeof(word));
}

/* Somebody's ticket, pushed to any place in the name of any owner, as often as it likes. */
static inline enum ring_result
forge_ticket(const struct region *region, struct program *program)
{
    uint32_t index = take8(program) % SLOTS;
    struct shm_ring ring = any_ring(region, take8(program) % (STAGES + 3));
    struct shm_word word = word_unpack(atomic_load(object_word(&region->slots, index)));
    word.generation += (uint32_t)(take8(program) % 3) - 1;
    word.turn++;
    word.place = ring.place;
    word.held = false;
    word.owner = take8(program) % 8;
    atomic_store(object_word(&region->slots, index), word_pack(word));
    return ring_fill_cell(&ring, index, word);
}

/* Any block as a piece of any request, in the name of any owner. */
static inline enum ring_result
forge_piece(const struct region *region, struct program *program)
{
    uint32_t block = take8(program) % region->blocks.count;
    struct shm_piece piece = {.slot = take8(program)};
    const struct shm_slot *slot = region_slot(region, piece.slot % SLOTS);
    uint32_t generation = word_unpack(atomic_load(&slot->word)).generation;
    piece.generation = generation + take8(program) % 3 - 1;
    piece.number = slot_count_of(atomic_load(&slot->emitted), generation) + take8(program) % 3 - 1;
    piece.worker = take8(program);
    piece.payload = slot->payload[take8(program) % 2];
    memcpy(arena_block(region, block) + arena_block_bytes(&region->layout, block) - sizeof(piece),
           &piece, sizeof(piece));
    struct shm_ring ring = region_piece_ring(region);
    struct shm_word word = word_unpack(atomic_load(object_word(&region->blocks, block)));
    word.turn++;
    word.place = PLACE_PIECE;
    word.held = false;
    word.owner = take8(program) % 8;
    atomic_store(object_word(&region->blocks, block), word_pack(word));
    return ring_fill_cell(&ring, block, word);
}
