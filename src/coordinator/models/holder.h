/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models of its pipeline that one worker process holds, and the socket over which it is told
 * (shm/handshake.h). Loop thread.
 *
 * Few orders are under way at once, so that one that requests wait for need not queue up behind
 * thousands. Each has one answer, in order: an answer that is not the one to the oldest order is
 * nonsense, and the process is killed for it.
 */
#pragma once

#include <stdbool.h>

struct catalog;
struct holder;
struct seat;

/* The process in the seat serves from now on. */
struct holder *holder_open(struct catalog *catalog, struct seat *seat);
/* It is dead: takes what it has said before; true: it died at a load, or at a prediction. */
bool holder_last_words(struct holder *holder);
/* Forgets all that it held; the catalog is told of each. NULL is left alone. */
void holder_close(struct holder *holder);

struct seat *holder_seat(const struct holder *holder);
