/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A configuration at work, without a front: the counters file and the pipelines that write to it.
 * A node puts gRPC in front of it, a benchmark its own load. Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "coordinator/config/config.h"
#include "coordinator/pipeline/generation.h"
#include "coordinator/pipeline/pipeline.h"
#include "ipc/counters.h"
#include "loop/loop.h"

struct assembly_options {
    struct config_source *source; /* kept while a generation made from it exists */
    const char *counters_path;    /* NULL: the configuration's, or the default */
    int predecessor;              /* that may have that path; 0: none */
    const char *worker_program;
    struct loop *loop;
    bool pin;      /* false: ignore all `cpus` */
    int log_level; /* of the workers; -1: the configuration's */
    struct pipeline_events events;
};

struct assembly {
    struct assembly_options options;
    struct counters counters;
    bool counters_created;
    struct storage *storage;         /* NULL: models are not fetched */
    struct model_registry *registry; /* of the models of all pipelines */
    struct shared_memory *shared_memory;
    struct lane_workers workers;
    struct pipeline_models models;
    struct pipeline *pipelines[CONFIG_PIPELINES_MAX];
    uint32_t pipeline_count;
    uint32_t pipeline_scopes[CONFIG_PIPELINES_MAX]; /* in the counters */
    uint32_t oldest_scopes[CONFIG_PIPELINES_MAX];   /* the first of OLDEST_MAX, of each */
};

/* Pins the calling thread, and those that it starts from now on, to the coordinator's `cpus`. */
void coordinator_pin(const struct config *config);

/* The path of the counters file: `asked`, else the configuration's, else the default, written to
 * `path`. */
const char *assembly_counters_path(const struct config *config, const char *asked, char *path,
                                   size_t room);

/* Makes the counters and the pipelines; nothing runs yet. `assembly` is zero before, and is to be
 * finished with assembly_fini after any result. */
enum status assembly_init(struct assembly *assembly, const struct assembly_options *options,
                          struct error *error) WARN_UNUSED;
/* Call after every pipeline has stopped. No answer is being finished any more when this returns. */
void assembly_end_gathering(struct assembly *assembly);
/* Call after every pipeline has stopped. Leaves NODE_STOPPED in the counters for their readers. */
void assembly_fini(struct assembly *assembly);

/* Starts all pipelines; the events report the outcome. After a failure: assembly_stop. */
enum status assembly_start(struct assembly *assembly, struct error *error) WARN_UNUSED;
/* Stops all pipelines; each reports `stopped`. */
void assembly_stop(struct assembly *assembly);

void assembly_set_state(struct assembly *assembly, enum node_state state);
/* Heartbeat and gauges. */
void assembly_publish(struct assembly *assembly);
/* Requests in flight in all pipelines. */
uint64_t assembly_in_flight(struct assembly *assembly);
