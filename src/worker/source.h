/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a worker's items come from: the rings of its own lane, and those of the lane's guests
 * (shm/guests.h), which come and go while it serves. Items of different sources may share a batch.
 *
 * The lane is ours: what cannot be in it ends the worker. A guest's client may write anything
 * anywhere in its region at any time, so nothing of a guest is believed, and a guest in which
 * something cannot be is lost: dropped, and the coordinator told. What such a client does reaches
 * no other source.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

struct worker;

/* More could keep a worker busy for long by filling their rings with nonsense. */
enum { GUEST_SLOTS_MAX = 256, GUEST_BLOCKS_MAX = 1024 };

struct source {
    struct region *region; /* NULL: not in use */
    bool is_guest;

    /* Of a guest: */
    struct region own;
    uint32_t number;
    uint64_t serial;
    int64_t since_ns; /* nothing in it has waited longer */
    bool lost;   /* its memory is touched no more, but by the modelet in a run that has begun */
    bool leaves; /* to be unmapped when the batch is gone */
    bool ends;   /* to leave when nothing waits here any more … */
    uint32_t takes_left; /* … or so many items were taken since: who is honest has fewer */
};

/* The lane is the first; no guests. */
void sources_init(struct worker *worker);

/* Reads what the coordinator says of guests, all of it. True: it has closed the socket. */
bool sources_hear(struct worker *worker);

/* The source to look at next: the lane and a guest in turn, the guests in turn, so that neither has
 * to wait for the other. Of sources_round picks at least one is of each. */
struct source *sources_next(struct worker *worker);
uint32_t sources_round(const struct worker *worker);

/* For estimates, of all sources; what a client says of itself is bounded by its slots. How many
 * requests are in flight in the pipeline; how many came to the stage since the last note. */
uint32_t sources_in_flight(const struct worker *worker);
void sources_note_pushes(struct worker *worker);
uint32_t sources_arrived(const struct worker *worker);

/* Something in it cannot be. */
void source_corrupt(struct worker *worker, struct source *source, const char *what);

/* For who judges our death: it is about to be popped from; and what came of that. */
void source_touch(struct worker *worker, const struct source *source);
enum source_held { SOURCE_GAVE_NOTHING, SOURCE_GAVE_AN_ITEM };
void source_touched(struct worker *worker, const struct source *source, enum source_held held);

/* Nothing is held of any guest: those that leave, or have come to their end,
 * are unmapped. */
void sources_settle(struct worker *worker);

/* Rings the bells that are owed: the coordinator's and those of clients. */
void sources_ring(struct worker *worker);
