/* SPDX-License-Identifier: Apache-2.0 */
/* Orders to the modelet `scribble`, word by word of its tensor. test_35 has the same numbers. */
#pragma once

enum scribble_word {
    SCRIBBLE_NONCE,
    SCRIBBLE_WAY,
    SCRIBBLE_SEED,
    SCRIBBLE_AMOUNT,
    SCRIBBLE_WORDS,
};

enum scribble_way {
    SCRIBBLE_NOTHING,
    SCRIBBLE_ANY_WORD,
    SCRIBBLE_ALL,      /* the whole region, random bytes */
    SCRIBBLE_ZERO,     /* the whole region, zero */
    SCRIBBLE_PUNCH,    /* the whole region's memory given back to the system */
    SCRIBBLE_HEADER,   /* magic, sizes, plan, checksum */
    SCRIBBLE_RINGS,    /* heads, tails, cells */
    SCRIBBLE_OBJECTS,  /* words of slots and blocks */
    SCRIBBLE_PAYLOADS, /* descriptors: wild, or another request's */
    SCRIBBLE_TICKETS,  /* other requests' tickets as results, errors, free slots; twice */
    SCRIBBLE_SEATS,    /* former, idle bits, worker entries, bells, signs of life */
    SCRIBBLE_TEXTS,    /* status, text, times */
    SCRIBBLE_STALE,    /* the results' ring filled with cells of nothing */
    SCRIBBLE_COUNTERS, /* what it can reach of the file of counters, random bytes */
    SCRIBBLE_STAMPS,   /* when traced requests were where, and which are traced */
    SCRIBBLE_WAYS,
    SCRIBBLE_GO_ON = 64,
};
