/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The models that a worker holds, by number: what its two threads share. The loader puts models in
 * and takes them out, the main thread looks them up and runs them, without a lock.
 *
 * A model that is run must not be taken out meanwhile. So the main thread says what it is about to
 * run (`running`) and then looks whether it is there; the loader makes it not there and then looks
 * whether it is run. All four accesses are sequentially consistent: in the one order that there is
 * of them, either the main thread's look comes after the model was taken out, and finds nothing, or
 * the loader's look comes after the main thread's word, and waits until that has changed.
 *
 * Threads: what is marked L is the loader's, the rest the main thread's. Without a thread for
 * loading both are one.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shm/doorbell.h"

struct loaded;

struct model_entry {
    _Atomic uint64_t word; /* model_word of what is here; 0: nothing. Release: `loaded` is there */
    struct loaded *loaded;
};

struct model_table {
    struct model_entry *entries; /* by number; what is never touched takes no memory */
    _Atomic uint64_t running;    /* the main thread's: what it runs, or 0 */
    _Atomic uint32_t settle;     /* the loader's wish, taken back by the main thread */
    struct shm_doorbell bell;    /* on which the loader sleeps */
};

/* Takes its memory; false: there is none. */
bool model_table_init(struct model_table *table);
void model_table_fini(struct model_table *table);

/* ---- the main thread ---- */

/* Whether it is held, as far as that can be said without holding it. Two loads. */
bool model_table_has(const struct model_table *table, uint64_t word);

/* It is run from now on, and stays until model_table_leave. NULL: it is not held. */
struct loaded *model_table_enter(struct model_table *table, uint64_t word);
/* A fence and a load, as a bell costs, once for a batch. */
void model_table_leave(struct model_table *table);

/* The loader wants to measure, and what this thread has freed lies in its cache. One load. */
static inline bool
model_table_settle_wanted(const struct model_table *table)
{
    return atomic_load_explicit(&table->settle, memory_order_relaxed) != 0;
}
/* Done. */
void model_table_settled(struct model_table *table);

/* ---- the loader ---- */

/* L. Number and life must be such as exist. False: the number is taken. */
bool model_table_add(struct model_table *table, uint64_t word, struct loaded *loaded);

/* L. Takes it out, and waits until it is not run any more. NULL: it was not there. */
struct loaded *model_table_remove(struct model_table *table, uint64_t word);

/* L. Whether the number is free. */
bool model_table_free(const struct model_table *table, uint64_t word);

/* L. Any that is there, to take out all; NULL: none. Begins at number `*from`. */
struct loaded *model_table_next(const struct model_table *table, uint32_t *from);

/* L. Asks the main thread to settle, rings `bell` for it, and waits until it has, or is busy with a
 * run, or `timeout_ns` have passed. */
void model_table_settle(struct model_table *table, struct shm_doorbell *bell, int64_t timeout_ns);
