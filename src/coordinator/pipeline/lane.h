/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: one region with the requests in it and the seats of its workers. A pipeline serves
 * through one lane; when a region is found corrupt the lane is condemned and the pipeline goes on
 * in a new one; when it is reloaded, the lane drains while a new one serves.
 *
 * Threads. `lane_submit` and `lane_cancel` are called by front threads, `lane_gather` by front
 * threads and by the lane's own gather thread, everything else by the loop thread. The request path
 * takes no lock: the region's words decide who has a slot, `request.state` (private, one CAS)
 * decides who answers.
 *
 * Lifetime. `refs` counts the requests in the lane, and one for the pipeline. Lane structs are
 * never freed while front threads run, so that a stale pointer or tag can be tried with lane_ref
 * and refused; the region is unmapped when the last reference goes.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/pipeline/forecast.h"
#include "coordinator/pipeline/outage.h"
#include "coordinator/pipeline/share.h"
#include "coordinator/pipeline/suspects.h"
#include "coordinator/protocol/oip.h"
#include "shm/arena.h"
#include "shm/counters.h"
#include "shm/doorbell.h"
#include "shm/guests.h"
#include "shm/handshake.h"
#include "shm/region.h"

struct submission;

/* How a request is answered: by exactly one of these, once, on any thread. `call` is the
 * submitter's. */
struct request_sink {
    /* Before the request can be answered: the tag for lane_cancel. May be NULL. */
    void (*tagged)(void *call, uint64_t tag);
    void (*reply)(void *call, const struct rpc_piece *pieces, size_t piece_count);
    void (*fail)(void *call, enum status status, const char *text);
    bool of_mesh;  /* a try of a call that the mesh has: meters.h */
    bool is_probe; /* no request: counted nowhere */
    /* Instead of an answer: a call that waited for a slot (wait_queue.h) is refused after all, and
     * the submitter does with it what it does with a refusal at once: model and trace are its own
     * again, of the message there is but the size. NULL: its calls do not wait. */
    void (*refused)(const struct submission *submission, const struct error *error);
};

struct model;
struct trace;

/* The resource that a refused call would have to wait for. */
enum lack {
    LACKS_NOTHING, /* it is refused for good */
    LACKS_SHARE,   /* that its caller has less in flight; others may pass it */
    LACKS_ROOM,    /* a slot, or memory for its tensors */
};

/* One inference call, on its way in. */
struct submission {
    const struct rpc_message *message;
    int64_t deadline_ns; /* TIME_NEVER_NS: none */
    enum priority priority;
    uint64_t caller; /* who it is: share_hash */
    const struct request_sink *sink;
    void *call;
    void *context;                   /* the submitter's, for `refused` */
    struct payload_builder *builder; /* the calling thread's */
    struct trace *trace;             /* NULL: not traced; the request's once it is admitted */
    struct model *model;             /* of registry_enter; likewise. NULL: the pipeline has none */
    bool model_held;                 /* it is of registry_enter_loaded */
    uint32_t waited_ms;              /* for a slot, before it came here */
    /* Set in a refusal. */
    uint32_t retry_ms;     /* when it may be tried again; 0: not said */
    enum counter rejected; /* as what it counts */
    enum lack lacks;
    /* Set when it is admitted: for pipeline_cancel. */
    uint64_t tag;
};

/* The caller waits for so long at most, whatever its deadline is. */
static inline void
submission_shorten(struct submission *submission, int64_t timeout_ns)
{
    int64_t deadline_ns;
    if (timeout_ns != TIME_NEVER_NS &&
        !__builtin_add_overflow(clock_now_ns(), timeout_ns, &deadline_ns) &&
        deadline_ns < submission->deadline_ns)
        submission->deadline_ns = deadline_ns;
}

enum request_state {
    REQUEST_NONE,      /* the slot is not in use */
    REQUEST_ADMITTED,  /* a thread is writing it */
    REQUEST_WAITING,   /* for its model, its slot held by us; likewise (model_wait.c) */
    REQUEST_IN_FLIGHT, /* in the stages; who changes this answers, or has it wait */
    REQUEST_ANSWERED,  /* answered; memory may still be lent to the reply */
};

/*
 * The coordinator's private half of a slot. Generation and state are one word, so that who answers
 * claims the very use of the slot that a ticket names: between a look at the one and a change of
 * the other a hostile worker could have the slot answered, released and used by another caller.
 */
struct request {
    _Atomic uint64_t use;    /* request_use: of the slot's use now, or of its last */
    _Atomic uint32_t holds;  /* pieces lent to the reply, plus one until it was handed over */
    uint8_t place;           /* from which the slot was claimed for answering */
    uint16_t share_place;    /* of the caller who has the slot */
    uint64_t caller;         /* who that is: share_hash */
    _Atomic uint32_t deaths; /* of workers that held it; loop thread, but for the 0 at the start */
    struct lane *lane;
    const struct request_sink *sink;
    void *call;
    struct trace *trace;        /* NULL: not traced; theirs who answers */
    _Atomic int64_t arrived_ns; /* when it was admitted */
    struct oip_request *oip;
    /* Of a pipeline with models (model_wait.c): */
    struct model *model; /* NULL: none */
    size_t message_bytes;
    int64_t deadline_ns;
    struct request *wait_prev, *wait_next; /* of those that wait for it [registry's lock] */
    bool listed;                           /* among them [registry's lock] */
    bool sent; /* it counts among the model's `sent`, be it from before [registry's lock] */
    uint8_t wait_stage; /* where it goes when it goes on */
    uint8_t returns;    /* how often a worker has handed it back */
    uint32_t waited_ms; /* for its slot, before it was admitted */
};

static inline uint64_t
request_use(uint32_t generation, enum request_state state)
{
    return (uint64_t)generation << 32 | state;
}

static inline enum request_state
use_state(uint64_t use)
{
    return (enum request_state)(use & UINT32_MAX);
}

static inline uint32_t
use_generation(uint64_t use)
{
    return (uint32_t)(use >> 32);
}

enum lane_state {
    LANE_UNUSED,
    LANE_STARTING,
    LANE_SERVING,
    LANE_DRAINING,  /* its successor serves; what is in it is finished */
    LANE_CONDEMNED, /* all that was in it has been answered, or is being */
};

struct audit;
struct generation;
struct pipeline;

struct lane {
    _Atomic uint32_t state; /* enum lane_state; the loop thread writes */
    _Atomic uint64_t refs;
    uint32_t number; /* in the pipeline; part of tags */
    struct pipeline *pipeline;
    struct generation *generation; /* what it was made from: as long as the lane is open */
    uint64_t region_generation;
    int64_t drain_until_ns; /* of one that drains */
    struct region region;
    struct arena_kept kept;   /* blocks of it, for what comes next */
    struct guests guests;     /* only that there may be some: ours are never mapped */
    struct request *requests; /* one per slot */
    struct oip_model_info info;
    bool takes_messages;            /* whole, and gives them: the pipeline has a method */
    struct handshake_tensor *specs; /* what info points to */
    char platform[HANDSHAKE_NAME_BYTES];
    _Atomic uint64_t dead_stages; /* bit i: stage i has no worker and none will come soon */
    struct outage outage;         /* why */
    _Atomic uint64_t finished[STAGES_MAX]; /* answers, by the last stage that has finished them */
    _Atomic bool corrupt_reported;
    uint32_t party_next;
    struct audit *audit;

    /* Admission (admit.c, DESIGN-overload.md). */
    struct share share;              /* of the slots, by callers */
    struct suspects suspects;        /* callers whose requests run singly */
    _Atomic uint32_t waiting;        /* requests that are not answered yet, but for: */
    _Atomic uint32_t models_waiting; /* those that wait for their model */
    _Atomic int64_t foreseen_ns; /* when the forecast was made, or is being made by its winner */
    _Atomic int64_t forecast[FORECAST_WORDS]; /* struct forecast, word by word */

    pthread_t gather_thread;
    bool gather_started;
    _Atomic bool gather_stop;
    _Atomic bool gather_asleep; /* the gather thread is, or is about to be, in doorbell_sleep */
};

/* The bytes of the region of a lane of that pipeline; INVALID_ARGUMENT: its arena is too small, and
 * the least size. */
enum status lane_region_bytes(const struct config *node, const struct config_pipeline *config,
                              uint64_t *bytes, struct error *error) WARN_UNUSED;
/* The size of an arena whose `arena_mib` is not given. */
uint64_t lane_arena_bytes(const struct config *node, const struct config_pipeline *config);

/* Creates region and requests, and starts the gather thread. The lane is then LANE_STARTING with
 * one reference. */
enum status lane_open(struct lane *lane, struct pipeline *pipeline, struct generation *generation,
                      uint32_t number, uint64_t region_generation, struct error *error) WARN_UNUSED;

/* A reference, if the lane is still in use. */
bool lane_ref(struct lane *lane);
void lane_unref(struct lane *lane);

/* Ends the gather thread: for the end of everything, when it may still be at work on an answer
 * whose caller has it already. Nothing is submitted any more. */
void lane_end_gathering(struct lane *lane);

/* When the last reference is gone (the caller has made sure): joins the gather thread and frees
 * everything. The struct may then be opened again. */
void lane_close(struct lane *lane);

/*
 * Admits, decodes, copies and dispatches one request. STATUS_OK: the sink will answer, or has
 * answered already. Otherwise it was refused, the sink was not called, and `error` is the answer,
 * which the caller counts as `submission.rejected`.
 */
enum status lane_submit(struct lane *lane, struct submission *submission, int64_t now_ns,
                        struct error *error) WARN_UNUSED;

/* The wait told to a call that finds no slot now. */
uint32_t lane_retry_ms(struct lane *lane, int64_t now_ns);

/*
 * Sends a probe to a stage: a slot that makes the whole way through ring, worker and gatherer, and
 * is handed back by whichever worker takes it before anything of the modelet is called. `sink.fail`
 * gets CANCELLED then, or another status if it did not come back from there. `*slot`: which one it
 * is, for lane_probe_ended.
 */
enum status lane_probe(struct lane *lane, uint32_t stage, const struct request_sink *sink,
                       void *call, uint32_t *slot, struct error *error) WARN_UNUSED;
/* In `sink.fail`. */
void lane_probe_ended(struct lane *lane, uint32_t slot);

/* Nobody waits for this one any more. Outdated generations are harmless. */
void lane_cancel(struct lane *lane, struct shm_ticket ticket);

/* Answers what has come back, at most a bounded number; returns how many. `view` is the caller's.
 */
uint32_t lane_gather(struct lane *lane, struct payload_view *view);

/* True if there is something to gather. For deciding whether to sleep, after a full fence. */
bool lane_has_answers(const struct lane *lane);

/* After a submission by a thread that does not gather (gatherer.h): the gather thread is woken for
 * the answer. A front thread that has looked itself has told the workers that nobody need be, and
 * may have left. */
void lane_watch(struct lane *lane);

/* How many answers have come back that this stage has finished: it or a later one gave them. */
uint64_t lane_finished(const struct lane *lane, uint32_t stage);
/* True if a request that came in after `since_ns` stands beyond the stage. */
bool lane_has_passed(const struct lane *lane, uint32_t stage, int64_t since_ns);

/* Fails everything that waits at a stage which nobody serves. */
void lane_fail_stage(struct lane *lane, uint32_t stage, const char *text);

/* Fails everything in flight: the region is to be dropped. No worker may be alive. */
void lane_fail_all(struct lane *lane, enum status status, const char *text);

/* Fails this use of a request that waits for its model, if nobody else has. */
void lane_fail_waiting(struct request *request, uint32_t generation, enum status status,
                       const char *text);

/* A thread met what cannot be: the loop thread is told, once, to condemn the lane. */
void lane_report_corrupt(struct lane *lane, const char *what);

/* The lane's request for a ticket that came out of the region, or NULL if there is none such. */
struct request *lane_request(struct lane *lane, struct shm_ticket ticket);
