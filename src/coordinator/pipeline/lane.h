/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: one region with the requests in it and the places of its workers. A pipeline serves
 * through one lane. When the region is found corrupt, the lane is condemned and the pipeline goes
 * on in a new one; at a reload the lane drains while a new one serves.
 *
 * Threads. Front threads call `lane_submit` and `lane_cancel`; front threads and the lane's gather
 * thread call `lane_gather`; the loop thread calls everything else. The request path takes no lock:
 * the region's words decide which process owns a slot, `request.use` (private, one CAS) which
 * thread answers.
 *
 * Lifetime. `refs` counts the requests in the lane, and one for the pipeline. Lane structs are
 * never freed while front threads run, so lane_ref can refuse a stale pointer or tag; the region is
 * unmapped with the last reference.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "coordinator/config/config.h"
#include "coordinator/pipeline/forecast.h"
#include "coordinator/pipeline/outage.h"
#include "coordinator/pipeline/request_id.h"
#include "coordinator/pipeline/share.h"
#include "coordinator/pipeline/suspects.h"
#include "coordinator/protocol/oip.h"
#include "ipc/counters.h"
#include "ipc/handshake.h"
#include "shm/arena.h"
#include "shm/doorbell.h"
#include "shm/client_regions.h"
#include "shm/region.h"

struct submission;

/* The ways to answer a request: exactly one of them, once, on any thread. `call` is the
 * submitter's. */
struct request_sink {
    /* Passes the tag for lane_cancel, before the request can be answered. May be NULL. */
    void (*tagged)(void *call, uint64_t tag);
    void (*reply)(void *call, const struct rpc_piece *pieces, size_t piece_count);
    /* Passes a message with a part of the answer, before the answer and in order. Nothing of it is
     * lent. Called under a lock of the lane, so it must not call back. RESOURCE_EXHAUSTED: more
     * than `unread_max` bytes of the answer would be unread, so the request is to fail. NULL: the
     * caller takes one answer. */
    enum status (*piece)(void *call, const struct rpc_piece *pieces, size_t piece_count,
                         uint64_t unread_max);
    /* Called instead of `reply` after `piece`: all of the answer was sent. The message has no
     * outputs. */
    void (*finish)(void *call, const struct rpc_piece *pieces, size_t piece_count);
    void (*fail)(void *call, enum status status, const char *text);
    bool of_mesh;  /* an attempt of a call of the mesh (meters.h) */
    bool is_probe; /* no request; not counted */
    /* Called instead of an answer: a call that waited for a slot (wait_queue.h) is refused after
     * all. The submitter treats it like an immediate refusal: model and trace are its own again, of
     * the message only the size is left. NULL: its calls do not wait. */
    void (*refused)(const struct submission *submission, const struct error *error);
};

struct model;
struct trace;

/* The resource that a refused call would have to wait for. */
enum lack {
    LACKS_NOTHING, /* waiting would not help */
    LACKS_SHARE,   /* its caller has too much in flight; other calls may pass it */
    LACKS_ROOM,    /* a slot, or memory for its tensors */
};

/* One inference call, on its way in. */
struct submission {
    const struct wire_message *message;
    struct oip_request *decoded; /* from JSON, with `message` as its elements; NULL once admission
                                    or the wait queue has taken it, or if `message` is all */
    int64_t deadline_ns;         /* TIME_NEVER_NS: none */
    enum priority priority;
    uint64_t caller; /* share_hash */
    const struct request_sink *sink;
    void *call;
    void *context;                   /* the submitter's, for `refused` */
    struct payload_builder *builder; /* the calling thread's */
    struct trace *trace;             /* NULL: not traced; the request's once it is admitted */
    struct model *model;             /* of registry_enter; likewise. NULL: the pipeline has none */
    bool model_held;                 /* `model` is from registry_enter_loaded */
    bool is_far;                     /* its tensors may not lie in shared memory */
    uint32_t waited_ms;              /* for a slot, so far */
    /* Set by a refusal. */
    uint32_t retry_ms;     /* when to try again; 0: not said */
    enum counter rejected; /* the counter that counts it */
    enum lack lacks;
    /* Set by admission, for pipeline_cancel. */
    uint64_t tag;
};

static inline size_t
submission_bytes(const struct submission *submission)
{
    return submission->message->bytes +
           (submission->decoded == NULL ? 0 : oip_small_bytes(submission->decoded));
}

/* Limits the deadline to `timeout_ns` from now. */
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
    REQUEST_WAITING,   /* waits for its model; the coordinator holds its slot (model_wait.c) */
    REQUEST_IN_FLIGHT, /* in the stages; the thread that changes this answers or has it wait */
    REQUEST_ANSWERED,  /* answered; memory may still be lent to the reply */
};

/*
 * The coordinator's private half of a slot. Generation and state are one word, so that an answer
 * claims exactly the use of the slot that its ticket names. With two words a hostile worker could
 * have the slot answered, released and used by another caller between the check of one and the
 * change of the other.
 */
struct request {
    _Atomic uint64_t use;    /* request_use of the slot's present or last use */
    _Atomic uint32_t holds;  /* pieces lent to the reply, plus one until it is handed over */
    uint8_t place;           /* where the slot was claimed for answering */
    uint16_t share_place;    /* of its caller */
    uint64_t caller;         /* share_hash */
    _Atomic uint32_t deaths; /* of workers that held it; written by the loop thread, 0 at first */
    struct request_id id;    /* the caller's; "": none */
    struct lane *lane;
    const struct request_sink *sink;
    void *call;
    struct trace *trace;        /* the answering thread's; NULL: not traced */
    _Atomic int64_t arrived_ns; /* when it was admitted */
    struct oip_request *oip;
    /* Set in a pipeline with models (model_wait.c): */
    struct model *model; /* NULL: none */
    size_t message_bytes;
    int64_t deadline_ns;
    struct request *wait_prev, *wait_next; /* list of those that wait for it [registry's lock] */
    bool listed;                           /* in that list [registry's lock] */
    bool sent;          /* counted in the model's `sent`, possibly since before [registry's lock] */
    uint8_t wait_stage; /* the stage that it is pushed to after the wait */
    uint8_t returns;    /* how often a worker has returned it */
    uint32_t waited_ms; /* for its slot, before admission */
    /* An answer in pieces (pieces.h): */
    bool streams;              /* its caller takes pieces */
    enum status stream_status; /* of a piece that was not sent: the rest is dropped [pieces_lock] */
    _Atomic uint32_t delivered; /* pieces popped, of the present use [pieces_lock] */
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

/* UNUSED → STARTING → SERVING → DRAINING → CONDEMNED → UNUSED. A lane may be condemned from
 * STARTING and SERVING, too. */
enum lane_state {
    LANE_UNUSED,
    LANE_STARTING,
    LANE_SERVING,
    LANE_DRAINING,  /* its successor serves; its requests are finished */
    LANE_CONDEMNED, /* its requests have been failed, or are being failed */
};

struct audit;
struct generation;
struct pipeline;

struct lane {
    _Atomic uint32_t state;     /* enum lane_state; the loop thread writes */
    _Atomic uint32_t streaming; /* admitted requests whose callers take pieces (pieces.h) */
    _Atomic uint64_t refs;
    uint32_t number; /* in the pipeline; part of tags */
    struct pipeline *pipeline;
    struct generation *generation; /* it was made from this; valid while the lane is open */
    uint64_t region_generation;
    int64_t drain_until_ns; /* if it drains */
    struct region region;
    struct arena_kept kept; /* blocks of it for the next requests */
    struct client_regions
        client_regions;       /* says only whether there are any: the coordinator maps none */
    struct request *requests; /* one per slot */
    struct oip_model_info info;
    bool takes_messages;            /* whole messages, in and out: the pipeline has a method */
    bool gives_pieces;              /* to callers that take them */
    struct handshake_tensor *specs; /* `info` points into it */
    char platform[HANDSHAKE_NAME_BYTES];
    _Atomic uint64_t dead_stages; /* bit i: stage i has no worker and none will come soon */
    struct outage outage;         /* why they are dead */
    _Atomic uint64_t finished[STAGES_MAX]; /* answers, by the last stage that finished them */
    _Atomic bool corrupt_reported;
    uint32_t owner_next;
    struct audit *audit;

    /* Admission (admit.c, DESIGN-overload.md). */
    struct share share;                       /* slots by caller */
    struct suspects suspects;                 /* callers whose requests run alone */
    _Atomic uint32_t waiting;                 /* unanswered requests, except those that */
    _Atomic uint32_t models_waiting;          /* wait for their model */
    _Atomic int64_t foreseen_ns;              /* when a thread claimed to make the forecast */
    _Atomic int64_t forecast[FORECAST_WORDS]; /* struct forecast, word by word */

    pthread_mutex_t pieces_lock;    /* pieces.h */
    _Atomic uint32_t piece_in_hand; /* the popped block, plus one; 0: none [pieces_lock] */

    pthread_t gather_thread;
    bool gather_started;
    _Atomic bool gather_stop;
    _Atomic bool gather_asleep; /* the gather thread is, or is about to be, in doorbell_sleep */
};

/* The size of the region of a lane of that pipeline. INVALID_ARGUMENT, with the least size: its
 * arena is too small. */
enum status lane_region_bytes(const struct config *node, const struct config_pipeline *config,
                              uint64_t *bytes, struct error *error) WARN_UNUSED;
/* The size of an arena without `arena_mib`. */
uint64_t lane_arena_bytes(const struct config *node, const struct config_pipeline *config);

/* Creates region and requests, and starts the gather thread. The lane is then LANE_STARTING with
 * one reference. */
enum status lane_open(struct lane *lane, struct pipeline *pipeline, struct generation *generation,
                      uint32_t number, uint64_t region_generation, struct error *error) WARN_UNUSED;

/* Changes the state, by the edges of enum lane_state; loop thread. */
void lane_enter_state(struct lane *lane, enum lane_state state);

/* Takes a reference if the lane is still in use. */
bool lane_ref(struct lane *lane);
void lane_unref(struct lane *lane);

/* Ends the gather thread at the end of the process, when it may still be busy with an answer that
 * its caller already has. Nothing is submitted any more. */
void lane_end_gathering(struct lane *lane);

/* Joins the gather thread and frees everything. The caller makes sure that the last reference is
 * gone. The struct may then be opened again. */
void lane_close(struct lane *lane);

/*
 * Admits, decodes, copies and dispatches one request. STATUS_OK: the sink answers, possibly before
 * this returns. Otherwise the request is refused without a call of the sink: `error` is the answer,
 * which the calling code counts as `submission.rejected`.
 */
enum status lane_submit(struct lane *lane, struct submission *submission, int64_t now_ns,
                        struct error *error) WARN_UNUSED;

/* The retry hint for a call that finds no slot now. */
uint32_t lane_retry_ms(struct lane *lane, int64_t now_ns);

/*
 * Sends a probe to a stage: a slot that goes the whole way through ring, worker and gatherer. The
 * worker that takes it returns it before it calls the modelet. `sink.fail` gets CANCELLED then, or
 * another status if it did not return that way. `*slot` is for lane_probe_ended.
 */
enum status lane_probe(struct lane *lane, uint32_t stage, const struct request_sink *sink,
                       void *call, uint32_t *slot, struct error *error) WARN_UNUSED;
/* Call this in `sink.fail`. */
void lane_probe_ended(struct lane *lane, uint32_t slot);

/* Cancels a request that nobody waits for any more. Outdated generations are harmless. */
void lane_cancel(struct lane *lane, struct shm_ticket ticket);

/* Answers requests that came back, a bounded number; returns how many. `view` is the thread's. */
uint32_t lane_gather(struct lane *lane, struct payload_view *view);

/* Returns whether there is something to gather. Call after a full fence, to decide
 * whether to sleep. */
bool lane_has_answers(const struct lane *lane);

/* Has the answer wake the gather thread, after a submission by a thread that does not gather
 * (gatherer.h). A front thread that gathered may have told the workers to wake nobody, and have
 * left. */
void lane_watch(struct lane *lane);

/* The number of answers that this stage or a later one gave. */
uint64_t lane_finished(const struct lane *lane, uint32_t stage);
/* Returns whether a request admitted after `since_ns` is beyond the stage. */
bool lane_has_passed(const struct lane *lane, uint32_t stage, int64_t since_ns);

/* Fails all requests that wait at a stage without workers. */
void lane_fail_stage(struct lane *lane, uint32_t stage, const char *text);

/* Fails all requests in flight: the region is to be dropped. No worker may be alive. */
void lane_fail_all(struct lane *lane, enum status status, const char *text);

/* Fails this use of a request that waits for its model, unless another thread has ended the wait.
 */
void lane_fail_waiting(struct request *request, uint32_t generation, enum status status,
                       const char *text);

/* Returns a place among the requests that may wait for their models (pipeline_models.h). */
static inline void
lane_return_wait_place(struct lane *lane)
{
    uint32_t before = atomic_fetch_sub_explicit(&lane->models_waiting, 1, memory_order_relaxed);
    CHECK(before != 0);
}

/* Call when a thread met an impossible word: notifies the loop thread, once, which condemns the
 * lane. */
void lane_report_corrupt(struct lane *lane, const char *what);

/* The request of a ticket from the region; NULL: no such request is in flight. */
struct request *lane_request(struct lane *lane, struct shm_ticket ticket);
