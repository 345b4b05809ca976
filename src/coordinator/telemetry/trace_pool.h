/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The records of traces: a fixed number, taken when a traced call comes, handed over to the writer
 * when it is answered, given back when it is written. Any number of threads take and hand over, one
 * collects and gives. Two stacks of indices, each one word that changes by compare-and-swap: no
 * lock, no allocation, and a thread that is stopped half way holds nobody up.
 *
 * Records lie untouched, and cost no memory, until they are needed for the first time.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/telemetry/trace.h"

struct trace_pool {
    struct trace *traces;
    uint32_t count;
    _Atomic uint32_t fresh; /* those from here on have never been taken */
    _Atomic uint64_t free;  /* changes << 32 | index + 1 of the last one given; 0: none */
    _Atomic uint32_t done;  /* index + 1 of the last one handed over; 0: none */
};

void trace_pool_init(struct trace_pool *pool, uint32_t count);
void trace_pool_fini(struct trace_pool *pool);

/* NULL: all are in use. What is in it is from before. */
struct trace *trace_pool_take(struct trace_pool *pool);
/* To the writer. */
void trace_pool_hand_over(struct trace_pool *pool, struct trace *trace);
bool trace_pool_has_done(const struct trace_pool *pool);

/* The writer's: all that was handed over, the first one first, to be stepped through. */
uint32_t trace_pool_collect(struct trace_pool *pool);
/* The next of these, or NULL. It may be given back before the next step. */
struct trace *trace_pool_step(struct trace_pool *pool, uint32_t *list);
void trace_pool_give(struct trace_pool *pool, struct trace *trace);
