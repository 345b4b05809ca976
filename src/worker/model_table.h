/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that a worker has loaded, by number: the state that its two threads share. The loader
 * adds and removes models; the main thread looks them up and runs them, without a lock.
 *
 * A model must not be removed while it runs. The main thread therefore announces what it is about
 * to run (`running`) and then looks whether it is there; the loader removes the model and then
 * looks whether it is running. All four accesses are sequentially consistent. In their single order
 * either the main thread's look comes after the removal and finds nothing, or the loader's look
 * comes after the announcement and waits until it changes.
 *
 * Threads: functions marked L are the loader's, the rest the main thread's. Without a loader thread
 * both are one.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/doorbell.h"

struct loaded_model;

struct model_entry {
    _Atomic uint64_t word; /* model_word; 0: none. Release: `loaded` is valid */
    struct loaded_model *loaded;
};

struct model_table {
    struct model_entry *entries; /* by number; untouched pages take no memory */
    _Atomic uint64_t running;    /* written by the main thread: what it runs, or 0 */
    _Atomic uint32_t flush;      /* set by the loader, cleared by the main thread */
    struct shm_doorbell bell;    /* the loader sleeps on it */
};

/* Allocates. False: no memory. */
bool model_table_init(struct model_table *table);
void model_table_fini(struct model_table *table);

/* ---- the main thread ---- */

/* Returns true if the model is loaded; it may be removed at once. Two loads. */
bool model_table_has(const struct model_table *table, uint64_t word);

/* Announces a run: the model stays until model_table_leave. NULL: not loaded. */
struct loaded_model *model_table_enter(struct model_table *table, uint64_t word);
/* Ends the announced run. A fence and a load per batch, like a bell. */
void model_table_leave(struct model_table *table);

/* Returns true if the loader wants to measure, and needs this thread's cache of freed memory
 * flushed. One load. */
static inline bool
model_table_flush_wanted(const struct model_table *table)
{
    return atomic_load_explicit(&table->flush, memory_order_relaxed) != 0;
}
/* The cache is flushed. */
void model_table_flushed(struct model_table *table);

/* ---- the loader ---- */

/* L. Adds a model; number and life must be valid. False: the number is taken. */
bool model_table_add(struct model_table *table, uint64_t word, struct loaded_model *loaded);

/* L. Removes a model and waits until it no longer runs. NULL: it was not there. */
struct loaded_model *model_table_remove(struct model_table *table, uint64_t word);

/* L. True if the number is free. */
bool model_table_free(const struct model_table *table, uint64_t word);

/* L. Returns any model, for removing all; NULL: none. Begins at number `*from`. */
struct loaded_model *model_table_next(const struct model_table *table, uint32_t *from);

/* L. Asks the main thread to flush its cache, rings its `bell`, and waits until it has, is busy
 * with a run, or `timeout_ns` have passed. */
void model_table_flush(struct model_table *table, struct shm_doorbell *bell, int64_t timeout_ns);
