/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gRPC front: the server's threads, which take calls, find the pipeline they name and submit to
 * it. The thread that received a call dispatches it; while requests are in flight it also gathers
 * and answers, so that under load no other thread has to be woken (pipeline/DESIGN.md,
 * "Gathering").
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/front/dispatch.h"

struct front;

enum { FRONT_THREADS_MAX = 16 };

struct front_options {
    struct front_node node;
    enum rpc_accept accept;
    const char *const *listen; /* replaces the configuration's list when listen_count > 0 */
    uint32_t listen_count;
    struct runtime *runtime; /* NULL: mmesh.ModelRuntime is not served */
    struct rpc_tls *tls;     /* NULL: none */
};

/* Binds all addresses. Calls are taken from front_start on. */
enum status front_create(const struct front_options *options, struct front **front,
                         struct error *error) WARN_UNUSED;
void front_start(struct front *front);

/* Stores the threads' queues, in their order, for making calls on them. `queues` has room for one
 * per thread of the configuration. Returns their number. */
uint32_t front_queues(struct front *front, struct rpc_queue **queues);

/* Sets what health and readiness report. Any thread. */
void front_set_serving(struct front *front, const char *pipeline, bool serving);
void front_set_node_ready(struct front *front, bool ready);

/* Writes its counters; false: callers cannot connect now, for lack of descriptors or memory. */
bool front_publish(struct front *front);

/* Begins to accept, after RPC_ACCEPT_LATER. */
void front_accept(struct front *front);

/* Like rpc_server_part(). True: no connection is left. */
bool front_part(struct front *front);

/* Call when nothing is under way any more. Takes no more connections, answers each new call with
 * UNAVAILABLE, and ends watches of health. Returns true when callers have been notified: none has
 * called for 100 ms, none is connected, or 400 ms have passed. Called again, it only looks. */
bool front_refuse(struct front *front);

/*
 * Ends the front, which until then answers every call, if only with a refusal: refuses calls if it
 * does not yet, lets replies that are on their way go out, closes all connections after half a
 * second at the latest, and frees everything.
 */
void front_destroy(struct front *front);
