/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Loads and unloads models on the coordinator's orders, one at a time, with one answer per order
 * (ipc/handshake.h): on a thread of its own if the modelet can load while it runs, else on the main
 * thread between two turns.
 *
 * A failed load leaves nothing mapped; memory that it did not free counts as a leak. A model is
 * unloaded when no run uses it any more (model_table.h).
 *
 * Threads: loader_start, loader_receive and loader_stop are the main thread's. The loader's thread
 * blocks all signals but faults, may run on all of the node's CPUs, and keeps out of the way of the
 * threads that serve there (pacer.h).
 */
#pragma once

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "ipc/handshake.h"
#include "ipc/worker_entry.h"
#include "worker/model_files.h"
#include "worker/model_heap.h"
#include "worker/model_table.h"
#include "worker/modelet.h"
#include "worker/pacer.h"
#include "worker/sandbox.h"

/* A loaded model. */
struct loaded_model {
    uint64_t word;
    char id[SHOAL_NAME_BYTES_MAX + 1];
    void *model;
    int32_t heap;
    struct model_files files;
};

struct loader {
    const struct modelet *modelet;
    const struct worker_entry *entry;
    struct sandbox *sandbox; /* set before loader_start */
    struct model_table table;
    struct heaps heaps;
    char root[PATH_MAX]; /* of all models, links resolved */
    const char *cache;   /* of those that were fetched, likewise; "": none */
    bool has_thread;
    bool started; /* the thread was started */
    pthread_t thread;
    struct pacer pacer;
    cpu_set_t cpus;    /* for the thread; empty: unchanged */
    int stop_fd;       /* readable: the thread must end */
    uint32_t reported; /* without a thread: the coordinator's messages read so far */
    struct handshake_model order;
    struct handshake_model_said said;
};

/* Call when the sandbox is in force and the modelet is open. `cpus`: as in struct loader. */
enum status loader_start(struct loader *loader, const struct modelet *modelet,
                         const struct worker_entry *entry, const struct handshake_start *start,
                         const cpu_set_t *cpus, struct error *error) WARN_UNUSED;

/* Returns true if there are orders; for a loader without a thread. Costs one load. */
static inline bool
loader_has_orders(const struct loader *loader)
{
    return !loader->has_thread && worker_entry_models_reported(loader->entry) != loader->reported;
}

/* Carries out all orders; for a loader without a thread. Call between runs. */
void loader_receive(struct loader *loader);

/* Ends the thread and unloads all models. False: the thread does not return from the modelet, whose
 * functions must not be called any more. */
bool loader_stop(struct loader *loader);
