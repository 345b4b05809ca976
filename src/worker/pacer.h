/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a thread that loads models out of the way of those that serve, on whatever CPU it runs:
 *
 * 1. While it has something to do it is of the kernel's idle class: it has a CPU when nobody else
 *    wants one.
 * 2. The kernel looks who is next at its tick, every 1 to 10 ms, and whenever a thread wakes up: so
 *    meanwhile a second thread, the pacer, wakes up every half millisecond where the first one is,
 *    and sleeps again. What came to want the CPU has it after half a millisecond.
 * Rule 1 holds where the coordinator can take the thread out of the idle class again
 * (coordinator/workers/idle_class.h): on a machine that has no rest a thread has a three-hundredth
 * of a CPU there, so a load that is starved goes on in the ordinary class. Outside the idle class
 * it has LOADER_NICE.
 *
 * Costs two wakes a millisecond while something is loaded, and nothing else. A pacer that could not
 * be started, or that waits for a CPU itself, does no harm.
 *
 * Threads: pacer_follow, _begin and _end are those of the thread that loads; the others anybody's.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/running_cpu.h"

struct pacer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    bool may_idle;
    bool wanted; /* something is loaded; this and the next two: with the lock */
    bool ended;
    uint64_t wakes;
    struct running_cpu loader_cpu; /* from before it is `wanted` on */
};

/* The new thread has the signal mask and the CPUs of this one. */
enum status pacer_start(struct pacer *pacer, bool may_idle, struct error *error) WARN_UNUSED;
/* Ends its thread; the one that loads must have ended. One that is all zeros, or has not started,
 * is left alone. */
void pacer_stop(struct pacer *pacer);

/* The calling thread is the one that loads; it has LOADER_NICE from here on. */
void pacer_follow(struct pacer *pacer);
void pacer_begin(struct pacer *pacer);
void pacer_end(struct pacer *pacer);

/* How often it has woken up so far. */
uint64_t pacer_wakes(struct pacer *pacer);
