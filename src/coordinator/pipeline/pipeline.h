/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pipeline: a configured chain of stages under a name that callers use. It owns up to LANES_MAX
 * lanes, one of which serves, and the worker pools of worker processes of each. Loop thread, unless
 * stated otherwise.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "coordinator/config/config.h"
#include "coordinator/pipeline/generation.h"
#include "coordinator/pipeline/lane.h"
#include "coordinator/pipeline/lane_workers.h"
#include "coordinator/pipeline/pipeline_models.h"
#include "coordinator/pipeline/wait_queue.h"
#include "ipc/counters.h"
#include "loop/loop.h"

enum { LANES_MAX = 4 };

/* A pipeline's events for its owner. All on the loop thread. */
struct pipeline_events {
    void (*serving)(void *context, struct pipeline *pipeline);     /* ready for requests */
    void (*not_serving)(void *context, struct pipeline *pipeline); /* until `serving` again */
    /* The first start failed for good: a bad plug-in, or a worker that does not get ready. */
    void (*start_failed)(void *context, struct pipeline *pipeline, const struct error *error);
    void (*stopped)(void *context, struct pipeline *pipeline); /* after pipeline_stop */
    void *context;
};

struct pipeline_options {
    struct config_source *source;
    const struct config_pipeline *config; /* within `source`, for the first generation */
    const char *worker_program;
    struct loop *loop;
    struct counters *counters;
    uint32_t scope;                       /* the pipeline's, in the counters */
    uint32_t oldest_scopes;               /* the first of its OLDEST_MAX */
    const struct lane_workers *workers;   /* kept */
    const struct pipeline_models *models; /* kept */
    struct shared_memory *shared_memory;  /* of tensors; NULL: none may lie there */
    bool pin;                             /* false: ignore all `cpus` */
    uint32_t log_level;
    const struct pipeline_events *events;
};

/* Called at the end of a reload, on the loop thread. `error` NULL: the new generation serves. */
struct pipeline_reload {
    void (*done)(void *context, struct pipeline *pipeline, const struct error *error);
    void *context;
};

struct pipeline {
    struct pipeline_options options;
    struct catalog *catalog;       /* NULL: it has no `models` */
    const char *name;              /* the same in every generation */
    uint32_t index;                /* in the node; part of tags */
    struct generation *generation; /* lanes opened from now on are made from it */
    struct lane *incoming;         /* of the generation that is to take over; NULL: no reload */
    struct pipeline_reload reload; /* `done` NULL: no reload */
    /* The source of a reload that waits until an earlier generation has left its lane; NULL:
     * none. */
    struct config_source *next_source;
    const struct config_pipeline *next_config;
    int64_t next_until_ns;
    _Atomic(struct lane *) serving; /* front threads submit to it; NULL: not serving */
    _Atomic bool draining;
    bool has_emitter;              /* a modelet of the last stage may emit; loop thread */
    _Atomic bool never_emits;      /* it is known that none may */
    struct wait_queue *wait_queue; /* calls that wait for a slot */
    struct lane lanes[LANES_MAX];
    struct worker_pools *pools[LANES_MAX]; /* the workers of each lane */
    uint64_t region_generation;
    bool started_once;     /* a lane has served: a failure to start is no longer fatal */
    bool reported_serving; /* which of `serving` and `not_serving` was called last */
    bool stopping;
    uint32_t resets_in_a_row; /* each soon after the previous lane had begun to serve */
    int64_t serving_since_ns;
    struct loop_timer *restart_timer;
    struct loop_timer *drain_timer; /* runs while a lane drains after a reload */
    _Atomic uint64_t *counters;     /* values of the pipeline's scope */
    struct meters *meters;          /* of a mesh's models, set before the start; NULL: none */
    uint32_t meters_method;
};

enum status pipeline_create(const struct pipeline_options *options, uint32_t index,
                            struct pipeline **pipeline, struct error *error) WARN_UNUSED;
/* Call after `stopped`, when no front thread runs any more. */
void pipeline_destroy(struct pipeline *pipeline);

/* Makes the first lane and starts its workers; the events report the outcome. */
enum status pipeline_start(struct pipeline *pipeline, struct error *error) WARN_UNUSED;

/*
 * Starts a new generation beside the one that serves, with its own region and workers. When all of
 * them are ready new requests go there, the old lane drains (for drain_timeout_ms at most; requests
 * left then fail) and its workers stop. If the new one does not come up, the old one goes on
 * serving. STATUS_OK: `reload` will be called, once. FAILED_PRECONDITION: a reload is under way, or
 * the node is stopping.
 */
enum status pipeline_reload(struct pipeline *pipeline, struct config_source *source,
                            const struct config_pipeline *config,
                            const struct pipeline_reload *reload, struct error *error) WARN_UNUSED;

/* Refuses new requests; calls that wait for a slot are still admitted, and batches close at once.
 */
void pipeline_drain(struct pipeline *pipeline);
/* Requests in flight, and calls that wait for a slot. Any thread. */
uint64_t pipeline_in_flight(struct pipeline *pipeline);
/* Fails the requests still in flight and stops the workers: by SIGTERM, after a while by SIGKILL.
 */
void pipeline_stop(struct pipeline *pipeline);
/* Kills the workers at once, without waiting: the process is about to end. */
void pipeline_kill(struct pipeline *pipeline);

/* Drops a lane that was found corrupt and goes on in a new one. */
void pipeline_condemn(struct pipeline *pipeline, struct lane *lane, const char *why);

/* Called by the worker pools. */
void pipeline_on_lane_ready(struct pipeline *pipeline, struct lane *lane);
/* A stage has lost its last worker, or has one again. */
void pipeline_on_stages_changed(struct pipeline *pipeline);
void pipeline_on_start_failed(struct pipeline *pipeline, struct lane *lane,
                              const struct error *error);
void pipeline_on_workers_stopped(struct pipeline *pipeline, struct lane *lane);

/* Returns whether it has served, but a stage is in quarantine now. Loop thread. */
bool pipeline_is_failing(const struct pipeline *pipeline);

/* Requests of all pipelines refused since the start for want of slots, memory or a share. */
uint64_t pipelines_refused(struct pipeline *const *pipelines, uint32_t count);

/* Publishes gauges and the heartbeat. */
void pipeline_publish(struct pipeline *pipeline);

/* The lanes with requests in them, draining ones included, each with a reference. Any thread. */
uint32_t pipeline_busy_lanes(struct pipeline *pipeline, struct lane *lanes[LANES_MAX]);

/* The pipeline of that name, or NULL. Any thread. */
struct pipeline *pipeline_find(struct pipeline *const *pipelines, uint32_t count, const char *name,
                               size_t name_bytes);

/* The gRPC method that the pipeline is bound to while the node runs, and where its requests name
 * the model. `path` NULL: it is called in the Open Inference Protocol. Any thread. */
struct pipeline_method {
    const char *path; /* "/package.Service/Method" */
    const uint32_t *id_path;
    uint32_t id_path_count; /* 0: only metadata names the model */
    bool may_stream;        /* by the configuration that the node began with */
};
struct pipeline_method pipeline_method(const struct pipeline *pipeline);

/* Describes it for callers. `info` is valid until the returned lane is released with lane_unref;
 * NULL: no lane serves, and only the name is known. Any thread. */
struct lane *pipeline_describe(struct pipeline *pipeline, struct oip_model_info *info, bool *ready);

/* Request path, front threads. The pipeline's lane with a reference, or NULL. */
struct lane *pipeline_lane(struct pipeline *pipeline);

/* Submits to the lane that serves, or has the call wait; see lane_submit. Any thread. */
enum status pipeline_submit(struct pipeline *pipeline, struct submission *submission,
                            struct error *error) WARN_UNUSED;
/* Tries a waiting call again; counts no refusal. `submission->lacks` says if it may wait on. */
enum status pipeline_submit_waiting(struct pipeline *pipeline, struct submission *submission,
                                    struct error *error) WARN_UNUSED;
/* The retry hint for a call whose wait has timed out. */
uint32_t pipeline_retry_ms(struct pipeline *pipeline, int64_t now_ns);
/* The caller of a request, or of a call that waits for a slot, is gone. */
void pipeline_cancel(struct pipeline *pipeline, uint64_t tag);

/* A tag names a request of a lane. 0 is none. */
static inline uint64_t
tag_pack(uint32_t pipeline, uint32_t lane, struct shm_ticket ticket)
{
    return (uint64_t)ticket.generation << 32 | (uint64_t)pipeline << 24 | (uint64_t)lane << 16 |
           ticket.index;
}

/* The tag of a call that waits for a slot: an impossible lane, and its number in the queue. */
enum { TAG_LANE_WAITING = 0xff };
#define TAG_WAITING_ID_MAX (UINT64_MAX >> 16)

static inline uint64_t
tag_of_waiting(uint32_t pipeline, uint64_t id)
{
    return tag_pack(
        pipeline, TAG_LANE_WAITING,
        (struct shm_ticket){.index = (uint32_t)(id & 0xffff), .generation = (uint32_t)(id >> 16)});
}

static inline uint64_t
tag_waiting_id(uint64_t tag)
{
    return tag >> 32 << 16 | (tag & 0xffff);
}

static inline uint32_t
tag_pipeline(uint64_t tag)
{
    return (uint32_t)(tag >> 24 & 0xff);
}

static inline uint32_t
tag_lane(uint64_t tag)
{
    return (uint32_t)(tag >> 16 & 0xff);
}

static inline struct shm_ticket
tag_ticket(uint64_t tag)
{
    return (struct shm_ticket){.index = (uint32_t)(tag & 0xffff),
                               .generation = (uint32_t)(tag >> 32)};
}
