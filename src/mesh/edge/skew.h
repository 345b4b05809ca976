/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mesh time on this node (mesh/core/cluster/mesh_clock.h), for writing and comparing stamps. Peers
 * ask each other for their clocks over the streams between them. A wrong wall clock is corrected
 * and logged: when it has been wrong for three seconds, every ten minutes while it lasts, and when
 * it is right again.
 */
#pragma once

#include "mesh/core/cluster/mesh_clock.h"

struct skew;

struct skew_view {
    int64_t wall_ms;
    int64_t mesh_ms;
    int64_t ahead_ms; /* the wall clock minus mesh time */
    uint32_t clocks;  /* that agreed on mesh time, including the own one */
    bool voted;       /* as in mesh_clock_answer */
};

struct skew *skew_create(const char *instance);
/* NULL is ignored. */
void skew_destroy(struct skew *skew);

/* Any thread, all below; each takes its own lock and calls nothing under it. */

int64_t skew_mesh_ms(struct skew *skew);
void skew_look(struct skew *skew, struct skew_view *view);
/* Returns how far a peer's wall clock was ahead of mesh time; 0: unknown. */
int64_t skew_of(struct skew *skew, const char *instance);

/* Like mesh_clock_ask(). */
bool skew_ask(struct skew *skew, const char *instance);
/* `answer->received_ms` is filled in. */
void skew_notify(struct skew *skew, const char *instance, struct mesh_clock_answer answer);
void skew_forget(struct skew *skew, const char *instance);

/* Logs a skew. Call once a second. */
void skew_watch(struct skew *skew);

/* The monotonic clock used here. */
int64_t skew_now_ms(void);
