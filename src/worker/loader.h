/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and unloads models as the coordinator says, one after the other, one answer for each order
 * (shm/handshake.h): on a thread of its own where the modelet can be loading while it runs, else on
 * the main thread between two turns.
 *
 * A load that fails leaves nothing: what it mapped is unmapped, what it allocated and did not give
 * back counts as a leak. A model is unloaded when no run has it any more (model_table.h).
 *
 * Threads: loader_start, loader_hear and loader_stop are the main thread's. The loader's thread
 * takes no signal that is for others, may run on all CPUs that the node was given, and keeps out of
 * the way of those that serve there (pacer.h).
 */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "shm/handshake.h"
#include "shm/seat.h"
#include "worker/model_heap.h"
#include "worker/model_files.h"
#include "worker/model_table.h"
#include "worker/modelet.h"
#include "worker/pacer.h"

/* A model that is held. */
struct loaded {
    uint64_t word;
    void *model;
    int32_t heap;
    struct model_files files;
};

struct loader {
    const struct modelet *modelet;
    const struct seat *seat;
    struct model_table table;
    struct heaps heaps;
    char root[PATH_MAX]; /* of all models, without links */
    bool has_thread;
    bool started; /* the thread */
    pthread_t thread;
    struct pacer pacer;
    cpu_set_t cpus; /* where the thread may run; none: where it starts */
    int stop_fd;    /* readable: the thread is to end */
    uint32_t told;  /* of the coordinator's words, those that were heard: without a thread */
    struct handshake_model order;
    struct handshake_model_said said;
};

/* When the sandbox is in force and the modelet is open. `cpus`: as in struct loader. */
enum status loader_start(struct loader *loader, const struct modelet *modelet,
                         const struct seat *seat, const struct handshake_start *start,
                         const cpu_set_t *cpus, struct error *error) WARN_UNUSED;

/* Without a thread: whether there is something to hear. One load. */
static inline bool
loader_has_orders(const struct loader *loader)
{
    return !loader->has_thread && seat_models_told(loader->seat) != loader->told;
}

/* Without a thread: does all that the coordinator has said. Between runs. */
void loader_hear(struct loader *loader);

/* Ends the thread and unloads all models. False: it does not come back from the modelet, whose
 * functions must then not be called any more. */
bool loader_stop(struct loader *loader);
