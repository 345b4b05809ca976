/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that one worker process holds, and the socket over which it gets its orders
 * (ipc/handshake.h). Loop thread.
 *
 * Few orders are under way at once, so that a load that requests wait for does not queue behind
 * thousands. Each has one answer, in order; the process is killed for an answer that does not fit
 * the oldest order.
 */
#pragma once

#include <stdbool.h>

struct catalog;
struct worker_models;
struct pool_member;

/* The process in the place takes orders from now on. */
struct worker_models *worker_models_open(struct catalog *catalog, struct pool_member *member);
/* The process is dead: reads the answers that it sent before. True: it died at a load or a
 * prediction. */
bool worker_models_last_words(struct worker_models *worker_models);
/* Forgets all that it held and notifies the catalog of each model. NULL is ignored. */
void worker_models_close(struct worker_models *worker_models);

struct pool_member *worker_models_member(const struct worker_models *worker_models);
