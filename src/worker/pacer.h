/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the loader's turns on the CPU short. The kernel looks who is next at its tick, every 1 to
 * 10 ms, and whenever a thread wakes up: so while a model is loaded, a thread wakes up every half
 * millisecond, and sleeps again. The loader has the same share as without it, but in turns of half
 * a millisecond, after which `run` goes on if it waits. That is so on the CPU where the pacer wakes
 * up, which is the loader's for certain only if the worker is pinned. Costs two wakes a millisecond
 * while something is loaded, and nothing else.
 *
 * A pacer that could not be started, or that waits for a CPU itself, does no harm. Thread-safe.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct pacer {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool started;
    bool wanted; /* something is loaded; this and the next two: with the lock */
    bool ended;
    uint64_t wakes;
};

/* The new thread has the signal mask and the CPUs of this one. */
enum status pacer_start(struct pacer *pacer, struct error *error) WARN_UNUSED;
/* Ends its thread. One that is all zeros, or has not started, is left alone. */
void pacer_stop(struct pacer *pacer);

void pacer_begin(struct pacer *pacer);
void pacer_end(struct pacer *pacer);

/* How often it has woken up so far. */
uint64_t pacer_wakes(struct pacer *pacer);
