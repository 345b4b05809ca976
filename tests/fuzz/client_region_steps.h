/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The language of fuzz_client_region.c's programs: a first byte that says which worker it is, then
 * steps, as region_steps.h has them: a byte says which, the bytes after it what with. Bytes that
 * are missing are zero, so every input is a program. client_region_seeds.py writes seeds in it:
 * keep the two alike.
 */
#pragma once

#include "region_steps.h"

/* Of the first byte. */
enum client_region_worker {
    WORKER_LATER_STAGE = 1 << 0,
    WORKER_DECLARES = 1 << 1, /* its modelet says what it takes */
    WORKER_WAITS = 1 << 2,    /* for company, until its batch is full */
};

enum client_region_step {
    CLIENT_REGION_SUBMIT,  /* kind, how the modelet is to answer */
    CLIENT_REGION_TURN,    /* */
    CLIENT_REGION_TAKE,    /* */
    CLIENT_REGION_LANE,    /* a request of the lane */
    CLIENT_REGION_LEAVES,  /* its memory is then as it was at first */
    CLIENT_REGION_ARRIVES, /* */
    CLIENT_REGION_WRITES,  /* target, which, …, value, … */
    CLIENT_REGION_LATER,   /* the same, while the modelet runs: so many bytes, of such a step */
    CLIENT_REGION_FORGES,  /* slot, place, generation, owner */
    CLIENT_REGION_PUNCHES, /* page */
    CLIENT_REGION_CEASES,  /* its lane has a successor: what the worker has of it is finished */
    CLIENT_REGION_STEPS,
};

enum client_region_kind {
    KIND_PLAIN,
    KIND_TWO,
    KIND_STRINGS,
    KIND_STRINGS_CUT, /* whose framing is not right */
    KIND_PARAMETERS,
    KIND_LARGE,
    KIND_EMPTY, /* without inputs */
    KIND_CANCELLED,
    KIND_LATE,
    KIND_OTHER_PLACE,
    KINDS,
};

/* The modelet's action, in the low bits of the request's number. */
enum client_region_answer {
    ANSWER_COPIES,
    ANSWER_FORWARDS,
    ANSWER_FAILS,
    ANSWER_MANY, /* outputs, until it is refused one */
    ANSWER_FAILS_BATCH,
    ANSWERS = 8,
};
