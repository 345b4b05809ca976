/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The containers of one ServingRuntime: started in their order, stopped together.
 *
 * Loop thread.
 */
#pragma once

#include "coordinator/runtimes/container.h"

struct supervisor;

struct supervisor_options {
    struct loop *loop;
    const char *worker_program;
    const struct runtime_plan *plan; /* without a problem; outlives it */
    int64_t stop_ns;
    int64_t restart_ns_max;
    struct worker_log_options log; /* as container_options */
    uint32_t restarts;
    /* Something has started or ended (supervisor_look). It may not be destroyed from there. */
    void (*on_change)(void *context);
    void *context;
};

struct supervisor_view {
    uint32_t containers;
    uint32_t running;
    uint32_t stopped;
    uint64_t starts; /* of all containers together */
    uint64_t restarts;
    const char *error; /* of the container that ended last; "": none did */
};

struct supervisor *supervisor_create(const struct supervisor_options *options);
void supervisor_look(const struct supervisor *supervisor, struct supervisor_view *view);
/* `stopped` becomes `containers`. May be repeated. */
void supervisor_stop(struct supervisor *supervisor);
void supervisor_kill(struct supervisor *supervisor);
/* Kills what is left. NULL is ignored, as by the two before. */
void supervisor_destroy(struct supervisor *supervisor);
