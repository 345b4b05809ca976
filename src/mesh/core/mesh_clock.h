/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mesh time: the wall clock that the nodes of a mesh agree on. Stamps in records are compared
 * across nodes, so a node whose wall clock is off would neither find room (its neighbours' models
 * all look new, or its own do) nor judge failures by their age. Each node asks others for their
 * clocks, and takes the median for mesh time. Pure: time comes as an argument.
 *
 *   M1. Mesh time is the monotonic clock plus a base, so a wall clock that is set does not move it
 *       at once; the vote decides anew.
 *   M2. An answer that took longer than two seconds is dropped. Of a peer's answers the one that
 *       took least time counts, for a minute, unless a later one contradicts it: that clock was
 *       set.
 *   M3. A node that has never heard another clock has its own wall clock.
 *   M4. With three clocks or more, the own one included, mesh time is their lower median, so a
 *       minority may say anything. Of many nodes the fifteen vote whose keys are least, on each
 *       node the same.
 *   M5. Of two clocks nobody can tell which is wrong. If one of the two nodes knows a vote (M4),
 *       both keep to that; else both take the earlier clock.
 *   M6. A node whose peers have all gone keeps the base that it has.
 *   M7. The base stays while it is within a quarter of a second of the vote.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    MESH_CLOCKS_MAX = 15,         /* that vote */
    MESH_CLOCK_ASK_MS = 10000,    /* between two questions to a peer */
    MESH_CLOCK_SILENT_MS = 35000, /* without an answer: the peer does not vote any more */
    MESH_CLOCK_SKEWED_MS = 1000,  /* beyond that a skew is worth a warning */
};

/* A peer's answer. */
struct mesh_clock_answer {
    int64_t asked_ms; /* monotonic clock of the node that asked */
    int64_t heard_ms;
    int64_t wall_ms; /* of the peer, between the two */
    int64_t mesh_ms;
    bool voted; /* its mesh time comes of a vote (M4) */
};

struct mesh_clock_peer {
    uint64_t key;     /* of its id; 0: free */
    int64_t asked_ms; /* of the last question */
    int64_t heard_ms; /* of the last answer; INT64_MIN: none yet */
    int64_t base_ms;  /* its wall clock, less the monotonic clock here */
    int64_t error_ms; /* by as much as that may be off */
    int64_t measured_ms;
    int64_t mesh_ms; /* its mesh time, less its wall clock */
    bool voted;
};

struct mesh_clock {
    uint64_t key;    /* of this node's id */
    int64_t base_ms; /* mesh time, less the monotonic clock */
    int64_t own_ms;  /* the same of the wall clock */
    bool heard;      /* any other clock, ever */
    bool voted;      /* base_ms comes of a vote (M4) */
    uint32_t clocks; /* that voted last, the own one included */
    bool decided;    /* base_ms, with all that was told, at: */
    int64_t decided_ms;
    struct mesh_clock_peer peers[MESH_CLOCKS_MAX];
};

/* The key of an instance. */
uint64_t mesh_clock_key(const char *instance);

void mesh_clock_init(struct mesh_clock *clock, const char *instance);

/* True: that peer is to be asked now, and counts as asked. False: it was asked lately, or others
 * are instead. */
bool mesh_clock_ask(struct mesh_clock *clock, uint64_t key, int64_t now_ms);
/* The answer is judged: what makes no sense is dropped. */
void mesh_clock_tell(struct mesh_clock *clock, uint64_t key,
                     const struct mesh_clock_answer *answer);
/* The peer has gone. */
void mesh_clock_forget(struct mesh_clock *clock, uint64_t key);

/* Mesh time, from both clocks of now. */
int64_t mesh_clock_now(struct mesh_clock *clock, int64_t now_ms, int64_t wall_ms);

/* By how much a peer's wall clock is ahead of mesh time; 0: it is not known. */
int64_t mesh_clock_ahead_ms(struct mesh_clock *clock, uint64_t key, int64_t now_ms);

/* By how much the wall clock here was ahead of mesh time, the last time. */
static inline int64_t
mesh_clock_skew_ms(const struct mesh_clock *clock)
{
    return clock->own_ms - clock->base_ms;
}
