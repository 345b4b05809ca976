/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A runtime that is another process: any server of mmesh.ModelRuntime, at a unix socket or a port.
 * It is asked for its status until it is READY; then it loads and unloads what the driver says, and
 * calls of models that are loaded go to it as they came, their ids put where it wants them.
 *
 * A connection that is lost means that the process has ended: all that it held is gone. It is asked
 * for its status again, which by contract unloads whatever it may still hold, until it is READY
 * anew. (RuntimeStatus is therefore never asked of a runtime that works.)
 *
 * Threads: one of its own for all but calls; calls are made on the queues of those who serve them.
 */
#pragma once

#include "mesh/edge/driver.h"
#include "mesh/edge/peers.h"
#include "rpc/rpc.h"

struct external;

struct external_options {
    /* Where ModelRuntime is served: "unix:/path" or "host:port". Several: the first that is READY,
     * asked in turn. */
    const char *const *targets;
    uint32_t target_count;
    const char *serving;             /* where models are called; NULL: the same */
    struct rpc_queue *const *queues; /* as those of peers.h */
    uint32_t queue_count;
    size_t message_bytes_max;
    size_t stream_window_bytes; /* of the answers of a call, as in rpc_client_options */
    uint32_t pool;              /* of the driver, that it is */
    int64_t poll_ns;            /* 0: 2 s */
    int64_t start_ns;           /* how long the first READY may take; 0: 180 s */
    /* Its thread, once: it has not become READY in time, or says that it never will, or what it
     * says makes no sense. It is not asked again. */
    void (*on_failed)(void *context, const struct error *error);
    /* Any thread: the runtime has answered a call, or refused it; NULL: nobody counts. */
    void (*on_served)(void *context, const char *method, enum status status, int64_t took_ns);
    void *context;
};

enum status external_create(const struct external_options *options, struct external **external,
                            struct error *error) WARN_UNUSED;

/* The runtime of that pool, for driver_options. */
struct driver_runtime external_for_driver(struct external *external);
uint32_t external_pool(const struct external *external);

/* Begins to ask for the status, and tells the driver from then on. */
void external_start(struct external *external, struct driver *driver);

/*
 * Whether a method may be called: UNAVAILABLE, no runtime is ready; UNIMPLEMENTED, with the text
 * for the caller. Any thread.
 */
enum status external_permits(struct external *external, const char *method,
                             struct error *error) WARN_UNUSED;

/* As driver_call_type's serve: call->request goes to the runtime, and its on_ended tells. */
enum driver_begun external_serve(struct external *external, struct driver_call *call,
                                 const struct driver_attempt *attempt, struct driver_end *end);
/* Any thread, while the request is held: nobody waits for what is served. It still ends. */
void external_cancel(struct external *external, struct peer_request *request);

/* Any thread, once, also without a start: loads, unloads and calls end, and nothing begins any
 * more. Queues end only after this. */
void external_close(struct external *external);
/* After external_close, when every queue has ended; waits for the thread. NULL is left alone. */
void external_destroy(struct external *external);

/* ---- looking at it: any thread ---- */

enum { EXTERNAL_SAID_BYTES_MAX = 512 };

struct external_view {
    bool is_ready;   /* and the driver knows: calls find room there */
    uint64_t starts; /* times that it was READY */
    uint64_t aways;  /* times that it was away because it answered nothing but UNAVAILABLE */
    char said[EXTERNAL_SAID_BYTES_MAX]; /* then; "": it was never, or has ended since */
    char version[65];
};

void external_look(struct external *external, struct external_view *view);
