/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The format of a region: what lies where, as a contract between processes of the same build. The
 * plan (how many of what) determines every offset, by pure computation. DESIGN.md describes the
 * parts.
 */
#pragma once

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/word.h"

#define REGION_MAGIC UINT64_C(0x314c414f48530a0d) /* "\r\nSHOAL1" */
#define REGION_VERSION 3u

enum {
    SLOTS_MAX = 65535,
    BLOCKS_MAX = 65535,
    STAGES_MAX = 16,
    STAGE_WORKERS_MAX = 64, /* one bit each in the idle bitmap */
    WORKERS_MAX = STAGES_MAX * STAGE_WORKERS_MAX,
    CLASSES_MAX = 12,
    PAYLOAD_BLOCKS_MAX = 8,
    SLOT_TEXT_BYTES = 184,
    STAMPS_LOST_MAX = 8, /* runs that ended in a worker's death, of one request */
    STAMPS_MAX = STAGES_MAX + STAMPS_LOST_MAX,
    BLOCK_BYTES_MIN = 2048,
    BLOCK_NONE = 0xffff,
};

/* How many of what: all that the layout depends on. */
struct region_plan {
    uint32_t slot_count;
    uint32_t stage_count;
    uint32_t stamp_count; /* of each slot, at least stage_count; 0: nothing is traced */
    uint32_t worker_counts[STAGES_MAX]; /* of each stage */
    uint32_t class_count;               /* size classes of blocks, ascending */
    uint32_t class_block_counts[CLASSES_MAX];
    uint64_t class_block_bytes[CLASSES_MAX]; /* of one block; a multiple of 64 */
};

/* The parts of a stage's payload; all values are the writer's word, to be validated. */
struct shm_payload {
    uint16_t blocks[PAYLOAD_BLOCKS_MAX];
    uint8_t block_count;
    uint8_t table_block; /* index into `blocks`: where the table is */
    uint16_t tensor_count;
    uint16_t parameter_count;
    uint16_t reserved;
    uint32_t table_offset; /* in that block; a multiple of 8 */
    uint32_t table_bytes;
};

/*
 * A slot. `word` changes by CAS only (ring.h). `cancelled` is written by the coordinator at any
 * time. Everything else is written by the slot's holder only, and published by the CAS of `word`
 * with which it gives the slot away; the fields are atomics because the coordinator must be able to
 * read them while a hostile worker writes.
 */
struct shm_slot {
    _Alignas(64) _Atomic uint64_t word;
    _Atomic uint64_t cancelled;    /* the generation whose caller is gone; 0: none */
    _Atomic int64_t enqueued_ns;   /* when it was pushed to the ring it waits in */
    _Atomic int64_t deadline_ns;   /* TIME_NEVER_NS: none */
    _Atomic int64_t admitted_ns;   /* when the coordinator took the request */
    _Atomic uint32_t status;       /* of a failure, on the way through PLACE_ERROR */
    _Atomic uint32_t failed_place; /* the stage that failed it */
    _Atomic uint64_t alone;        /* the generation that is to run in no company; 0: none */
    _Atomic uint64_t traced;       /* the generation whose stages are to be stamped; 0: none */
    struct shm_payload payload[2]; /* payload[place & 1] is the one for that place */
    _Atomic uint64_t model;        /* model_word; 0: the pipeline has no models */
    char text[SLOT_TEXT_BYTES];    /* of a failure; terminated unless hostile */
};

/*
 * The model of a request: its number in the pipeline, and its life, which tells one that had the
 * number from the next. 0: none. Numbers and lives start at 1.
 */
static inline uint64_t
model_word(uint32_t number, uint32_t life)
{
    return (uint64_t)life << 32 | number;
}

/* In `status` of a slot in the error ring: nothing has failed, the worker does not hold the model,
 * and the slot is as it was when it came to the stage `failed_place`. No status of gRPC. */
#define SLOT_NOT_HELD 100u

/*
 * When a stage ran a traced request, and in what company: stamp.h. A slot's first stamps are those
 * of its stages, in order; those after them are of runs in which a worker died.
 */
struct shm_stamp {
    _Atomic int64_t enqueued_ns;
    _Atomic int64_t began_ns;    /* the modelet's run; 0: it was not run */
    _Atomic int64_t ended_ns;    /* when the item was passed on; 0: it was not */
    _Atomic uint32_t generation; /* of the slot's use that it is of */
    _Atomic uint32_t batch_items;
    _Atomic uint32_t stage;
    _Atomic uint32_t worker; /* its index in the stage */
    _Atomic int32_t pid;
    uint32_t reserved;
};

/* The sleeper's side and the wakers' side of one process; doorbell.h. */
struct shm_doorbell {
    _Alignas(64) _Atomic uint32_t sequence; /* the futex word */
    _Atomic uint32_t asleep;
};

/*
 * Who gathers, who sleeps: former.h. The former word, 0 when there is none:
 *
 *     31      30        22 21     16 15         0
 *     offered │ 0         │ index   │ party           index: of the worker in its stage
 *
 * Offered: the one named has not accepted the role yet. Anybody may take an offer back by a change
 * from exactly this word; an accepted role is changed by its holder, or when that is proved dead.
 */
#define FORMER_OFFERED (UINT32_C(1) << 31)

struct shm_stage {
    _Alignas(64) _Atomic uint32_t former;
    _Atomic uint64_t idle;         /* bit i: worker i wants work and sleeps, or is about to */
    _Atomic uint32_t draining;     /* 1: close batches at once; written by the coordinator */
    _Atomic uint32_t guests_epoch; /* one more with each guest that comes or goes; likewise */
};

/* A worker's seat: the process in it changes, the seat stays. */
struct shm_worker {
    struct shm_doorbell bell;
    _Alignas(64) _Atomic uint32_t party; /* of the process in the seat; coordinator writes */
    _Atomic int32_t pid;
    _Atomic int64_t heartbeat_ns; /* the worker writes: its last sign of life */
    _Atomic int64_t run_began_ns; /* 0 when it is not running the modelet */
    _Atomic uint32_t run_guests;  /* bit i: it holds items of guest i (guests.h), run or not */
    _Atomic uint32_t run_items;
    _Atomic uint32_t models_told; /* one more with each word on the worker's socket for models */
    uint32_t reserved;
    /* The cost of its runs, as the worker has learned it: fixed, for each item, and how far a run
     * is from that on average. Loaded one by one: a mixture of two estimates is an estimate. */
    _Atomic uint64_t cost_fixed_ns;
    _Atomic uint64_t cost_item_ns;
    _Atomic uint64_t cost_spread_ns;
    _Atomic int64_t ran_ns; /* when its last run ended; 0: none yet */
};

struct region_header {
    uint64_t magic;
    uint32_t version;
    uint32_t header_bytes;
    uint64_t region_bytes;
    uint64_t region_generation; /* of this pipeline: counts rebuilds */
    struct region_plan plan;
    uint64_t checksum; /* FNV-1a of all the bytes before it */
    struct shm_doorbell coordinator_bell;
};

/* Offsets of the parts from the start of the region. */
struct region_layout {
    struct region_plan plan;
    uint32_t worker_total;
    uint32_t first_worker[STAGES_MAX]; /* seat of a stage's worker 0 */
    uint32_t block_count;
    uint32_t first_block[CLASSES_MAX]; /* index of a class's first block */
    uint32_t slot_ring_cells;
    uint32_t slot_ring_count; /* stages, result, error, free: in this order */
    uint32_t class_ring_cells[CLASSES_MAX];
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
_Static_assert(sizeof(struct region_plan) == 4 * (4 + STAGES_MAX + CLASSES_MAX) + 8 * CLASSES_MAX,
               "plans are compared byte by byte: no padding");
_Static_assert(sizeof(struct shm_payload) == 32, "wire format");
_Static_assert(sizeof(struct shm_slot) == 320, "wire format");
_Static_assert(offsetof(struct shm_slot, payload) == 64, "wire format");
_Static_assert(sizeof(struct shm_stamp) == 48, "wire format");
_Static_assert(sizeof(struct shm_doorbell) == 64, "wire format");
_Static_assert(sizeof(struct shm_stage) == 64, "wire format");
_Static_assert(sizeof(struct shm_worker) == 192, "wire format");
_Static_assert(offsetof(struct shm_slot, model) == 128, "wire format");

/* Refuses a plan that breaks a limit (INVALID_ARGUMENT, naming it). */
enum status layout_compute(const struct region_plan *plan, struct region_layout *layout,
                           struct error *error) WARN_UNUSED;

/*
 * Chooses size classes and block counts: every class four times the one before, from
 * BLOCK_BYTES_MIN to one that holds a payload of `message_bytes_max`; two of the largest, as many
 * small ones as the slots can use, the rest evenly by bytes. Fails if `arena_bytes` does not
 * suffice for that, naming the least that does.
 */
enum status plan_arena(struct region_plan *plan, uint64_t message_bytes_max, uint64_t arena_bytes,
                       struct error *error) WARN_UNUSED;

uint64_t region_checksum(const struct region_header *header);
