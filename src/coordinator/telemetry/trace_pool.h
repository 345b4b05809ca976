/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed number of trace records: taken when a traced call comes, handed over to the writer when
 * it is answered, given back when it is written. Any number of threads take and hand over; one
 * thread collects and gives. Two stacks of indices, each one word changed by compare-and-swap: no
 * lock, no allocation, and a thread stopped half way blocks nobody.
 *
 * Records are untouched, and cost no memory, until their first use.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/telemetry/trace.h"

struct trace_pool {
    struct trace *traces;
    uint32_t count;
    _Atomic uint32_t fresh; /* records from here on have never been taken */
    _Atomic uint64_t free;  /* changes << 32 | index + 1 of the last given; 0: none */
    _Atomic uint32_t done;  /* index + 1 of the last handed over; 0: none */
};

void trace_pool_init(struct trace_pool *pool, uint32_t count);
void trace_pool_fini(struct trace_pool *pool);

/* NULL: all are in use. The record's content is left from its last use. */
struct trace *trace_pool_take(struct trace_pool *pool);
/* Hands the record over to the writer. */
void trace_pool_hand_over(struct trace_pool *pool, struct trace *trace);
bool trace_pool_has_done(const struct trace_pool *pool);

/* Takes, for the writer, all records handed over, oldest first, as a list for trace_pool_step. */
uint32_t trace_pool_collect(struct trace_pool *pool);
/* The list's next record, or NULL. It may be given back before the next step. */
struct trace *trace_pool_step(struct trace_pool *pool, uint32_t *list);
void trace_pool_give(struct trace_pool *pool, struct trace *trace);
