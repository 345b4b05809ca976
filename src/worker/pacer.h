/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps a thread that loads models out of the way of the threads that serve, on any CPU:
 *
 *  1. While it has work it is in the kernel's idle class: it gets a CPU only when no other thread
 *     wants it.
 *  2. The kernel decides which thread runs next at its tick, every 1 to 10 ms, and whenever a
 *     thread wakes. A second thread, the pacer, therefore wakes every half millisecond on the
 *     loader's CPU and sleeps again. A thread that came to want the CPU gets it after half a
 *     millisecond.
 *
 * Rule 1 holds where the coordinator can take the thread out of the idle class again
 * (coordinator/workers/idle_class.h): on a machine that is never idle a thread of that class gets a
 * three-hundredth of a CPU, so a starved load goes on in the ordinary class. Outside the idle class
 * the thread has LOADER_NICE.
 *
 * Costs two wakes a millisecond during loads, and nothing else. A pacer that could not be started,
 * or that waits for a CPU itself, does no harm.
 *
 * Threads: pacer_follow, _begin and _end are the loader's; the others are any thread's.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "worker/running_cpu.h"

struct pacer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    bool may_idle;
    bool wanted; /* a load is in progress; this and the next two need the lock */
    bool ended;
    uint64_t wakes;
    struct running_cpu loader_cpu; /* set before `wanted` */
};

enum pacer_class { PACER_STAYS, PACER_MAY_IDLE };

/* Starts the pacer; MAY_IDLE: the loader runs in the idle class between its turns. Its thread
 * inherits the caller's signal mask and CPUs. */
enum status pacer_start(struct pacer *pacer, enum pacer_class class,
                        struct error *error) WARN_UNUSED;
/* Ends the pacer's thread; the loader must have ended. Ignores a pacer that is all zero or was not
 * started. */
void pacer_stop(struct pacer *pacer);

/* Makes the calling thread the loader, with LOADER_NICE from here on. */
void pacer_follow(struct pacer *pacer);
void pacer_begin(struct pacer *pacer);
void pacer_end(struct pacer *pacer);

/* Returns how often the pacer has woken. */
uint64_t pacer_wakes(struct pacer *pacer);
