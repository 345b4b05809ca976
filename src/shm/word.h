/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two 64-bit words of the shared memory: an object's word, which alone decides where a slot or
 * block is and which owner has it, and a ring's cell, which is a hint to it. DESIGN.md has the
 * drawing and the rules. Packing and unpacking only; nothing here touches memory.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* A slot or block index with its generation: names exactly one use of it. */
struct shm_ticket {
    uint32_t index;
    uint32_t generation;
};

enum {
    OWNER_NONE = 0,        /* no owner */
    OWNER_COORDINATOR = 1, /* workers are numbered from 2, never reused in a region */
    OWNER_MAX = 0xffff,
    OWNER_KEEPER = 0xffff, /* holds kept blocks, whose owners are slots (arena.h) */

    PLACE_FREE = 0xff,  /* ring of free slots */
    PLACE_ERROR = 0xfe, /* ring of failed slots, read by the coordinator */
    PLACE_PIECE = 0xfd, /* ring of blocks with pieces of answers (piece.h) */
    /* Stages are places 0 …; the result ring is the place after the last stage. */
};

struct shm_word {
    uint32_t generation;
    uint8_t turn; /* counts pushes modulo 2^7; distinguishes the pushes of one use */
    uint8_t place;
    bool held;
    uint16_t owner;
};

#define WORD_HELD (UINT64_C(1) << 24)
enum { WORD_TURN_BITS = 7, WORD_TURN_MAX = (1 << WORD_TURN_BITS) - 1 };

static inline uint64_t
word_pack(struct shm_word word)
{
    return (uint64_t)word.generation << 32 | (uint64_t)(word.turn & WORD_TURN_MAX) << 25 |
           (word.held ? WORD_HELD : 0) | (uint64_t)word.place << 16 | word.owner;
}

static inline struct shm_word
word_unpack(uint64_t packed)
{
    return (struct shm_word){
        .generation = (uint32_t)(packed >> 32),
        .turn = packed >> 25 & WORD_TURN_MAX,
        .held = packed >> 24 & 1,
        .place = (uint8_t)(packed >> 16),
        .owner = (uint16_t)packed,
    };
}

/* False for a word that no honest process writes. */
static inline bool
word_possible(uint64_t packed)
{
    return packed >> 32 != 0;
}

/* Returns true if the words differ in the turn at most. */
static inline bool
word_same_hold(uint64_t a, uint64_t b)
{
    return ((a ^ b) & ~((uint64_t)WORD_TURN_MAX << 25)) == 0;
}

/* Returns the next generation; 0 is skipped. */
static inline uint32_t
generation_next(uint32_t generation)
{
    return generation + 1 == 0 ? 1 : generation + 1;
}

/* ---- cells ---- */

#define CELL_FULL (UINT64_C(1) << 63)
enum { CELL_LAP_BITS = 23, CELL_STAMP_BITS = 24, CELL_INDEX_BITS = 16 };
#define CELL_LAP_MASK ((UINT64_C(1) << CELL_LAP_BITS) - 1)
#define CELL_STAMP_MASK ((UINT64_C(1) << CELL_STAMP_BITS) - 1)
#define CELL_INDEX_MASK ((UINT64_C(1) << CELL_INDEX_BITS) - 1)

/* Returns the part of a word that a cell keeps: the generation's low bits and the turn, which
 * identify one push. */
static inline uint32_t
word_stamp(struct shm_word word)
{
    return (word.generation << WORD_TURN_BITS | word.turn) & (uint32_t)CELL_STAMP_MASK;
}

static inline uint64_t
cell_empty(uint64_t lap)
{
    return (lap & CELL_LAP_MASK) << (CELL_STAMP_BITS + CELL_INDEX_BITS);
}

static inline uint64_t
cell_full(uint64_t lap, uint32_t index, struct shm_word word)
{
    return CELL_FULL | cell_empty(lap) | (uint64_t)word_stamp(word) << CELL_INDEX_BITS |
           (index & CELL_INDEX_MASK);
}

static inline bool
cell_is_full(uint64_t cell)
{
    return (cell & CELL_FULL) != 0;
}

static inline uint64_t
cell_lap(uint64_t cell)
{
    return cell >> (CELL_STAMP_BITS + CELL_INDEX_BITS) & CELL_LAP_MASK;
}

static inline uint32_t
cell_index(uint64_t cell)
{
    return (uint32_t)(cell & CELL_INDEX_MASK);
}

/* Returns true if the cell was filled by the push that made this word. */
static inline bool
cell_names(uint64_t cell, uint32_t index, struct shm_word word)
{
    return cell_index(cell) == index &&
           (cell >> CELL_INDEX_BITS & CELL_STAMP_MASK) == word_stamp(word);
}
