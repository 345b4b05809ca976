/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language of fuzz_region.c's programs: a byte says which step, the bytes after it what with,
 * as the step's function takes them. Bytes that are missing are zero, so every input is a program.
 * region_seeds.py writes seeds in it: keep the two alike.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum step {
    STEP_SUBMIT,     /* message */
    STEP_WORK,       /* seat, end */
    STEP_GATHER,     /* */
    STEP_DIE,        /* seat */
    STEP_AUDIT,      /* seconds since the last */
    STEP_FAIL_STAGE, /* stage */
    STEP_CANCEL,     /* call */
    STEP_GIVE_BACK,  /* call */
    STEP_ATTACH,     /* */
    STEP_LOOK,       /* ring */
    STEP_WAKE,       /* stage */
    STEP_WRITE,      /* target, which, …, value, … */
    STEP_FORGE,      /* slot, place, generation, party */
    STEP_SWAP,       /* slot, slot */
    STEP_TEXT,       /* slot, byte, status */
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

enum work_end {
    WORK_FORWARDS,
    WORK_COPIES,
    WORK_FAILS,
    WORK_STOPS_FIRST, /* with the slot claimed */
    WORK_STOPS_LAST,  /* with blocks acquired, before the push */
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
