/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime in another process: any server of mmesh.ModelRuntime, at a unix socket or a port. Its
 * status is polled until it is READY; then it loads and unloads for the runner, and calls of loaded
 * models go to it unchanged except for their ids.
 *
 * A lost connection means that the process has ended and its models are gone. Its status is polled
 * again, which by contract unloads all of its models, until it is READY. (RuntimeStatus is
 * therefore never sent to a working runtime.)
 *
 * Threads: the first queue's for everything but calls, which run on the queues of their owners.
 */
#pragma once

#include "mesh/edge/runner.h"
#include "mesh/edge/peers.h"
#include "rpc/rpc.h"

struct external;

/* A load that waits for its files. */
struct external_ask;

/* Brings the files of models here before the runtime loads them. `fetch` NULL: none are. */
struct external_files {
    void *context;
    uint32_t fetches_max; /* at once: as many more loads than the runtime takes are begun */
    /* Loop thread. False: the model is loaded by the path that it has; true: external_fetched
     * follows, once. `model` stays until then. */
    bool (*fetch)(void *context, const struct runner_model *model, int64_t deadline_ns,
                  struct external_ask *ask);
    /* Loop thread: the model is to be unloaded, so a fetch that is under way ends now. */
    void (*cancel)(void *context, const char *id);
    /* Any thread: the runtime has nothing of that model any more, or, NULL, of any. */
    void (*release)(void *context, const char *id);
    /* external_close: ends all fetches and releases all; and external_destroy. */
    void (*stop)(void *context);
    void (*destroy)(void *context);
};

enum { EXTERNAL_NAME_BYTES = 80 };

/* Translates mmesh.ModelRuntime for a server with a management API of its own. `start` NULL: the
 * runtimes implement mmesh.ModelRuntime themselves. */
struct external_translator {
    void *context;
    /* Any thread, under the external's lock. Takes over a unary request of mmesh.ModelRuntime,
     * whose bytes are valid during the call. Its on_end follows later, once, on the first queue's
     * thread. */
    void (*start)(void *context, struct external *external,
                  const struct rpc_client_request *request);
    /* Any thread: the server's name of a model, which is the id or in `name`. */
    const char *(*name)(const char *id, char name[EXTERNAL_NAME_BYTES]);
    /* First queue's thread: the node switches to another server, or to one that needs no translator
     * (NULL). Requests of before end, and nothing of theirs reaches it. */
    void (*turn)(void *context, const void *server);
    /* external_close: nothing is sent any more. */
    void (*stop)(void *context);
    /* external_destroy: first ends the requests that are left, except those for the status. */
    void (*destroy)(void *context);
};

/* The first queue's thread: sends a translator's request to the server. Without a connection it
 * ends UNAVAILABLE, perhaps before this returns. */
void external_send(struct external *external, const struct rpc_client_request *request);

struct external_options {
    /* Addresses of ModelRuntime: "unix:/path" or "host:port". Several are asked in turn, and
     * the first READY one is used. None: nothing is asked until external_aim. */
    const char *const *targets;
    uint32_t target_count;
    const char *serving;             /* address of model calls; NULL: the same */
    struct rpc_queue *const *queues; /* as in peers.h; at least one */
    uint32_t queue_count;
    size_t message_bytes_max;
    size_t stream_window_bytes; /* of a call's answers, as in rpc_client_options */
    uint32_t pool;              /* the runner's pool */
    int64_t poll_ns;            /* 0: 2 s */
    int64_t start_ns;           /* limit for the first READY; 0: 180 s */
    /* First queue's thread, once: it was not READY in time, reports that it never will be, or sends
     * senseless figures. It is not asked again. */
    void (*on_failed)(void *context, const struct error *error);
    /* Any thread: the runtime has answered or refused a call; NULL: not counted. */
    void (*on_served)(void *context, const char *method, enum status status, int64_t took_ns);
    /* Any thread: it has become READY, is not READY any more, or not yet for another reason than
     * before, or the last call at a former one has ended (external_look); NULL: nobody looks. */
    void (*on_change)(void *on_change_context);
    void *on_change_context;
    void *context;
    struct external_files files;
    struct external_translator translator;
};

/* The new address of a runtime. */
struct external_aim {
    const char *target;       /* NULL: nowhere */
    const char *serving;      /* as in external_options */
    bool fetches;             /* by `files`, if there are any */
    uint32_t model_calls_max; /* of a copy, at once; 0: as many as it says */
    const void *server;       /* for the translator, copied; NULL: nothing is translated */
    size_t server_bytes;
};

/* Loop thread. Where the files are, and the key for the runtime; or why they are not here. */
struct external_place {
    const char *path, *key;
};
void external_fetched(struct external_ask *ask, const struct external_place *place,
                      const struct error *error);

struct external *external_create(const struct external_options *options);

/* The runtime of that pool, for runner_options. */
struct runner_runtime external_for_runner(struct external *external);
uint32_t external_pool(const struct external *external);

/* Starts polling; the runner is informed from now on. */
void external_start(struct external *external, struct mesh_runner *runner);

/* Any thread, after external_start: the runtime, if there was one, gets no more calls, and its
 * models are gone. The next one is polled at once. */
void external_aim(struct external *external, const struct external_aim *aim);

/*
 * Checks that a method may be called. UNAVAILABLE: no runtime is ready; UNIMPLEMENTED: with the
 * text for the caller. Any thread.
 */
enum status external_permits(struct external *external, const char *method,
                             struct error *error) WARN_UNUSED;

/* Like `serve` of runner_call_type: sends call->request to the runtime; its on_ended reports the
 * end. */
enum runner_begun external_serve(struct external *external, struct runner_call *call,
                                 const struct runner_attempt *attempt, struct runner_end *end);
/* Any thread, while the request is held: the result is not wanted any more. It still ends. */
void external_cancel(struct external *external, struct peer_request *request);

/* Any thread, once, also without a start: loads, unloads and calls end and nothing begins any more.
 * Queues must not end before this. */
void external_close(struct external *external);
/* Call after external_close, when every queue has ended. NULL is ignored. */
void external_destroy(struct external *external);

/* ---- looking at it: any thread ---- */

enum { EXTERNAL_SAID_BYTES_MAX = 512 };

struct external_view {
    bool is_ready;                      /* and the runner knows it: calls find room */
    bool is_leaving;                    /* calls at a former one are under way */
    uint64_t starts;                    /* times that it became READY */
    uint64_t aways;                     /* times that the circuit opened */
    uint32_t loads_waiting;             /* whose files are here, for their turn */
    char said[EXTERNAL_SAID_BYTES_MAX]; /* its text then; "": never away, or ended since */
    char version[65];
    char why[EXTERNAL_SAID_BYTES_MAX]; /* it is not ready; "": it was not asked yet */
};

void external_look(struct external *external, struct external_view *view);
