/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mesh time: the wall clock that the nodes of a mesh agree on. Stamps in records are compared
 * across nodes, so a node with a wrong wall clock would find no room (its neighbours' models all
 * look new, or its own do) and misjudge the age of failures. Each node asks others for their clocks
 * and takes the median. Pure: time is an argument.
 *
 *   M1. Mesh time is the monotonic clock plus a base, so setting the wall clock does not move it at
 *       once; the vote decides again.
 *   M2. An answer that took longer than two seconds is dropped. The fastest answer of a peer counts
 *       for a minute, unless a later one contradicts it: then that clock was set.
 *   M3. A node that has never compared its clock with another uses its own wall clock.
 *   M4. With three clocks or more, the own one included, mesh time is their lower median, so a
 *       minority has no influence. At most fifteen clocks vote, those with the least keys, which
 *       are the same on every node.
 *   M5. With two clocks it is unknown which one is wrong. If one of the nodes knows a vote (M4),
 *       both keep to it; otherwise both take the earlier clock.
 *   M6. A node whose peers have all gone keeps its base.
 *   M7. The base stays while it is within a quarter of a second of the vote.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    MESH_CLOCKS_MAX = 15,         /* that vote */
    MESH_CLOCK_ASK_MS = 10000,    /* between two questions to a peer */
    MESH_CLOCK_SILENT_MS = 35000, /* a peer without an answer for this long does not vote */
    MESH_CLOCK_SKEWED_MS = 1000,  /* a larger skew is worth a warning */
};

/* A peer's answer. */
struct mesh_clock_answer {
    int64_t asked_ms; /* monotonic clock of the asking node */
    int64_t received_ms;
    int64_t wall_ms; /* the peer's wall clock between the two */
    int64_t mesh_ms;
    bool voted; /* its mesh time comes from a vote (M4) */
};

struct mesh_clock_peer {
    uint64_t key;        /* of its id; 0: free */
    int64_t asked_ms;    /* of the last question */
    int64_t received_ms; /* of the last answer; INT64_MIN: none */
    int64_t base_ms;     /* its wall clock minus the monotonic clock here */
    int64_t error_ms;    /* maximum error of base_ms */
    int64_t measured_ms;
    int64_t mesh_ms; /* its mesh time minus its wall clock */
    bool voted;
};

struct mesh_clock {
    uint64_t key;      /* of this node's id */
    int64_t base_ms;   /* mesh time minus the monotonic clock */
    int64_t own_ms;    /* wall clock minus the monotonic clock */
    bool has_compared; /* with another clock, ever */
    bool voted;        /* base_ms comes from a vote (M4) */
    uint32_t clocks;   /* that voted last, the own one included */
    bool decided;      /* base_ms includes all answers, as of: */
    int64_t decided_ms;
    struct mesh_clock_peer peers[MESH_CLOCKS_MAX];
};

/* The key of an instance. */
uint64_t mesh_clock_key(const char *instance);

void mesh_clock_init(struct mesh_clock *clock, const char *instance);

/* Returns true if that peer is to be asked now, and counts it as asked. False: it was asked
 * recently, or others are asked instead. */
bool mesh_clock_ask(struct mesh_clock *clock, uint64_t key, int64_t now_ms);
/* Validates the answer and drops a senseless one. */
void mesh_clock_notify(struct mesh_clock *clock, uint64_t key,
                       const struct mesh_clock_answer *answer);
/* The peer has gone. */
void mesh_clock_forget(struct mesh_clock *clock, uint64_t key);

/* Mesh time at the given clocks. */
int64_t mesh_clock_now(struct mesh_clock *clock, int64_t now_ms, int64_t wall_ms);

/* Returns how far a peer's wall clock is ahead of mesh time; 0: unknown. */
int64_t mesh_clock_ahead_ms(struct mesh_clock *clock, uint64_t key, int64_t now_ms);

/* Returns how far this node's wall clock was ahead of mesh time at the last mesh_clock_now. */
static inline int64_t
mesh_clock_skew_ms(const struct mesh_clock *clock)
{
    return clock->own_ms - clock->base_ms;
}
