/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sources of a worker's items: its lane, and the lane's client regions (shm/client_regions.h),
 * which come and go while it serves. Items of different sources may share a batch.
 *
 * The lane is trusted: corruption there ends the worker. A client region's client may write
 * anything anywhere in its region at any time, so nothing in it is trusted: a corrupt client region
 * is lost, which means dropped and reported to the coordinator. Such a client affects no other
 * source.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "shm/region.h"

struct worker;

/* Limits, because larger rings filled with nonsense could keep a worker busy. */
enum { CLIENT_REGION_SLOTS_MAX = 256, CLIENT_REGION_BLOCKS_MAX = 1024 };

struct source {
    struct region *region; /* NULL: unused */
    bool is_client_region;

    /* Client regions only: */
    struct region own;
    uint32_t number;
    uint64_t serial;
    int64_t since_ns;    /* lower bound for times of arrival */
    bool lost;           /* its memory is not touched any more, except by a run in progress */
    bool leaves;         /* unmap when the batch is gone */
    bool ends;           /* leave when nothing waits here any more … */
    uint32_t takes_left; /* … or when so many items were taken: an honest client has fewer */
    int64_t ends_ns;     /* … or, if others hold what is here, at this time */
};

/* Starts with the lane and no client regions. */
void sources_init(struct worker *worker);

/* Reads all of the coordinator's messages about client regions. True: it has closed the socket. */
bool sources_receive(struct worker *worker);

/* Returns the source to look at next: alternately the lane and a client region, the client regions
 * in turn. Every sources_round picks include each source. */
struct source *sources_next(struct worker *worker);
uint32_t sources_round(const struct worker *worker);

/* Estimates over all sources, bounded by each client's slots: the requests in flight, and those
 * that came to the stage since sources_note_pushes. */
uint32_t sources_in_flight(const struct worker *worker);
void sources_note_pushes(struct worker *worker);
uint32_t sources_arrived(const struct worker *worker);

/* Reports a source as corrupt. */
void source_corrupt(struct worker *worker, struct source *source, const char *what);

/* Publish, for the judgment of our death, that a source is about to be popped from, and the
 * result. */
void source_touch(struct worker *worker, const struct source *source);
enum source_held { SOURCE_GAVE_NOTHING, SOURCE_GAVE_AN_ITEM };
void source_touched(struct worker *worker, const struct source *source, enum source_held held);

/* Unmaps client regions that leave or have ended. Call when no client region's items are held. */
void sources_unmap_ended(struct worker *worker);

/* Rings the bells that are owed to the coordinator and to clients. */
void sources_ring(struct worker *worker);
