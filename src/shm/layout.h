/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a region: a contract between processes of the same build. The plan (the numbers of
 * slots, stages, …) determines every offset by pure computation. DESIGN.md describes the parts.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/word.h"

#define REGION_MAGIC UINT64_C(0x314c414f48530a0d) /* "\r\nSHOAL1" */
#define REGION_VERSION 4u

enum {
    SLOTS_MAX = 65535,
    BLOCKS_MAX = 65535,
    STAGES_MAX = 16,
    STAGE_WORKERS_MAX = 64, /* one bit each in the idle bitmap */
    WORKERS_MAX = STAGES_MAX * STAGE_WORKERS_MAX,
    CLASSES_MAX = 12,
    PAYLOAD_BLOCKS_MAX = 8,
    SLOT_TEXT_BYTES = 184,
    STAMPS_LOST_MAX = 8, /* lost runs (ended by a worker's death) per request */
    STAMPS_MAX = STAGES_MAX + STAMPS_LOST_MAX,
    BLOCK_BYTES_MIN = 2048,
    BLOCK_NONE = 0xffff,
};

/* The numbers from which the layout follows. */
struct region_plan {
    uint32_t slot_count;
    uint32_t stage_count;
    uint32_t stamp_count;               /* per slot, at least stage_count; 0: no tracing */
    uint32_t worker_counts[STAGES_MAX]; /* per stage */
    uint32_t class_count;               /* size classes of blocks, ascending */
    uint32_t pieces;                    /* 1: answers may come in pieces (piece.h) */
    uint32_t reserved;
    uint32_t class_block_counts[CLASSES_MAX];
    uint64_t class_block_bytes[CLASSES_MAX]; /* of one block; a multiple of 64 */
};

/* A payload descriptor. Another process may have written every value: validate. */
struct shm_payload {
    uint16_t blocks[PAYLOAD_BLOCKS_MAX];
    uint8_t block_count;
    uint8_t table_block; /* index into `blocks`: the block with the table */
    uint16_t tensor_count;
    uint16_t parameter_count;
    uint16_t reserved;
    uint32_t table_offset; /* in that block; a multiple of 8 */
    uint32_t table_bytes;
};

/*
 * A slot. `word` changes by CAS only (ring.h). The coordinator may write `cancelled` at any time.
 * Everything else is written by the slot's owner only and published by the CAS of `word` with which
 * it gives the slot away. The fields are atomics because the coordinator must be able to read them
 * while a hostile worker writes.
 */
struct shm_slot {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint64_t cancelled;    /* the generation whose caller is gone; 0: none */
    _Atomic int64_t enqueued_ns;   /* time of the push to the ring in which it waits */
    _Atomic int64_t deadline_ns;   /* TIME_NEVER_NS: none */
    _Atomic int64_t admitted_ns;   /* time at which the coordinator admitted the request */
    _Atomic uint32_t status;       /* of a failure, for PLACE_ERROR */
    _Atomic uint32_t failed_place; /* the stage that failed it */
    _Atomic uint64_t alone;        /* the generation that must run alone; 0: none */
    _Atomic uint64_t traced;       /* the generation that is traced; 0: none */
    struct shm_payload payload[2]; /* payload[place & 1] is that of the place */
    _Atomic uint64_t model;        /* model_word; 0: the pipeline has no models */
    char text[SLOT_TEXT_BYTES];    /* of a failure; terminated unless hostile */
    /* The progress of an answer in pieces (piece.h). A count is a slot_count: it belongs to one
     * use. */
    _Alignas(64) _Atomic uint64_t streams; /* the generation whose caller takes pieces; 0: none.
                                              Written by the coordinator before the first push */
    _Atomic uint64_t emitted;              /* pieces pushed, or about to be */
    _Atomic uint64_t taken;                /* of these, popped; written by the coordinator */
};

/* A count of one use of a slot. */
static inline uint64_t
slot_count(uint32_t generation, uint32_t count)
{
    return (uint64_t)generation << 32 | count;
}

/* 0 if the count belongs to another use. */
static inline uint32_t
slot_count_of(uint64_t word, uint32_t generation)
{
    return (uint32_t)(word >> 32) == generation ? (uint32_t)word : 0;
}

/* The end of a block with a piece. */
struct shm_piece {
    uint32_t slot;
    uint32_t generation;
    uint32_t number; /* within the answer, from 0 */
    uint32_t worker; /* the index of its worker in the last stage */
    struct shm_payload payload;
};

/*
 * A request's model: its number in the pipeline and its life, which distinguishes successive models
 * with the same number. 0: none. Numbers and lives start at 1.
 */
static inline uint64_t
model_word(uint32_t number, uint32_t life)
{
    return (uint64_t)life << 32 | number;
}

/* Value of `status` of a slot in the error ring: nothing failed, but the worker does not hold the
 * model. The slot is as it was when it came to the stage `failed_place`. Not a gRPC status. */
#define SLOT_NOT_HELD 100u

/*
 * A stage's record of a traced request: stamp.h. A slot's first stamps are those of its stages, in
 * order; lost runs follow.
 */
struct shm_stamp {
    _Atomic int64_t enqueued_ns;
    _Atomic int64_t began_ns;    /* start of the run; 0: not run */
    _Atomic int64_t ended_ns;    /* time of passing on; 0: not passed on */
    _Atomic uint32_t generation; /* of the slot, to which the stamp belongs */
    _Atomic uint32_t batch_items;
    _Atomic uint32_t stage;
    _Atomic uint32_t worker; /* its index in the stage */
    _Atomic int32_t pid;
    uint32_t reserved;
};

/* The doorbell of one process; doorbell.h. */
struct shm_doorbell {
    _Alignas(64) _Atomic uint32_t sequence; /* the futex word */
    _Atomic uint32_t asleep;
};

/*
 * A stage's roles: former.h. The former word, 0 when there is none:
 *
 *     31      30        22 21     16 15         0
 *     offered │ 0         │ index   │ owner           index: of the worker in its stage
 *
 * Offered: the named worker has not accepted the role yet. Any process may take an offer back by a
 * CAS from exactly this word. An accepted role is changed by its owner, or after its owner's proven
 * death.
 */
#define FORMER_OFFERED (UINT32_C(1) << 31)

struct shm_stage {
    _Alignas(64) _Atomic uint32_t former;
    _Atomic uint64_t idle;     /* bit i: worker i wants work and sleeps, or is about to */
    _Atomic uint32_t draining; /* 1: close batches at once; written by the coordinator */
    _Atomic uint32_t client_regions_epoch; /* counts client regions that came or went; written by
                                              the coordinator */
};

/* A worker's entry (its entry), which outlives the processes that use it. */
struct shm_worker {
    struct shm_doorbell bell;
    _Alignas(64) _Atomic uint32_t owner; /* of the process; written by the coordinator */
    _Atomic int32_t pid;
    _Atomic int64_t heartbeat_ns;        /* written by the worker: its last sign of life */
    _Atomic int64_t run_began_ns;        /* 0 while it is not in the modelet's run */
    _Atomic uint32_t run_client_regions; /* bit i: it holds items of client region i
                                            (client_regions.h), running or not */
    _Atomic uint32_t run_items;
    _Atomic uint32_t models_reported; /* counts messages on the worker's socket for models */
    uint32_t reserved;
    /* The cost of its runs as the worker has learned it: fixed, per item, and the mean deviation.
     * Loaded one by one: a mixture of two estimates is an estimate. */
    _Atomic uint64_t cost_fixed_ns;
    _Atomic uint64_t cost_item_ns;
    _Atomic uint64_t cost_spread_ns;
    _Atomic int64_t ran_ns; /* end of its last run; 0: none yet */
};

struct region_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t region_bytes;
    uint64_t region_generation; /* counts rebuilds in this pipeline */
    struct region_plan plan;
    uint64_t checksum; /* FNV-1a of all bytes before it */
    struct shm_doorbell coordinator_bell;
};

/* Offsets of the parts from the start of the region. */
struct region_layout {
    struct region_plan plan;
    uint32_t worker_total;
    uint32_t first_worker[STAGES_MAX]; /* entry of a stage's worker 0 */
    uint32_t block_count;
    uint32_t first_block[CLASSES_MAX]; /* index of a class's first block */
    uint32_t slot_ring_cells;
    uint32_t slot_ring_count; /* in the order stages, result, error, free */
    uint32_t class_ring_cells[CLASSES_MAX];
    uint32_t piece_ring_cells; /* 0: none */
    uint64_t piece_ring_offset;
    uint64_t stages_offset;
    uint64_t workers_offset;
    uint64_t slots_offset;
    uint64_t stamps_offset;
    uint64_t slot_rings_offset;
    uint64_t slot_ring_bytes;
    uint64_t block_words_offset;
    uint64_t class_rings_offset[CLASSES_MAX];
    uint64_t arena_offset[CLASSES_MAX];
    uint64_t region_bytes;
};

_Static_assert(sizeof(_Atomic uint64_t) == 8, "a word is one machine word");
_Static_assert(sizeof(struct region_plan) == 4 * (6 + STAGES_MAX + CLASSES_MAX) + 8 * CLASSES_MAX,
               "plans are compared byte by byte: no padding");
_Static_assert(sizeof(struct shm_payload) == 32, "wire format");
_Static_assert(sizeof(struct shm_slot) == 384, "wire format");
_Static_assert(offsetof(struct shm_slot, payload) == 64, "wire format");
_Static_assert(sizeof(struct shm_piece) == 48, "wire format");
_Static_assert(sizeof(struct shm_stamp) == 48, "wire format");
_Static_assert(sizeof(struct shm_doorbell) == 64, "wire format");
_Static_assert(sizeof(struct shm_stage) == 64, "wire format");
_Static_assert(sizeof(struct shm_worker) == 192, "wire format");
_Static_assert(offsetof(struct shm_slot, model) == 128, "wire format");

/* Computes the layout. INVALID_ARGUMENT, naming the limit that the plan breaks. */
enum status layout_compute(const struct region_plan *plan, struct region_layout *layout,
                           struct error *error) WARN_UNUSED;

/*
 * Chooses size classes and block counts. Each class is four times the one before, from
 * BLOCK_BYTES_MIN to one that holds a payload of `message_bytes_max`. There are two blocks of the
 * largest class, as many small ones as the slots can use, and the rest is shared evenly by bytes.
 * Fails if `arena_bytes` is too small, naming the minimum.
 */
enum status plan_arena(struct region_plan *plan, uint64_t message_bytes_max, uint64_t arena_bytes,
                       struct error *error) WARN_UNUSED;

uint64_t region_checksum(const struct region_header *header);
