/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mesh time on this node (mesh/core/mesh_clock.h), for whoever writes or compares stamps. Peers ask
 * each other for their clocks over the streams between them. A wall clock that is off is corrected,
 * and an operator is told: once when it is found, every ten minutes while it lasts, and when it is
 * right again.
 */
#pragma once

#include "mesh/core/mesh_clock.h"

struct skew;

struct skew_view {
    int64_t wall_ms;
    int64_t mesh_ms;
    int64_t ahead_ms; /* of mesh time, the wall clock; negative: behind */
    uint32_t clocks;  /* that agreed on mesh time, the own one included */
    bool voted;       /* as mesh_clock_answer has it */
};

struct skew *skew_create(const char *instance);
/* NULL is left alone. */
void skew_destroy(struct skew *skew);

/* Any thread, all below; each has a lock of its own, under which nothing is called. */

int64_t skew_mesh_ms(struct skew *skew);
void skew_look(struct skew *skew, struct skew_view *view);
/* By how much a peer's wall clock was ahead of mesh time, as far as is known; 0: not, or in time.
 */
int64_t skew_of(struct skew *skew, const char *instance);

/* As mesh_clock_ask. */
bool skew_ask(struct skew *skew, const char *instance);
/* `answer->heard_ms` is filled in. */
void skew_tell(struct skew *skew, const char *instance, struct mesh_clock_answer answer);
void skew_forget(struct skew *skew, const char *instance);

/* Once a second: says in the log what is wrong. */
void skew_watch(struct skew *skew);

/* The monotonic clock of all this. */
int64_t skew_now_ms(void);
