/* SPDX-License-Identifier: Apache-2.0 */
/* The state shared by the parts of an external runtime: external.c has its life and its loads,
 * external_serve.c the calls of its models, external_probe.c how it is found to be away. */
#pragma once

#include <pthread.h>

#include "mesh/edge/external.h"
#include "mesh/edge/external_circuit.h"
#include "mesh/edge/external_wire.h"
#include "mesh/edge/id_inject.h"
#include "mesh/edge/peer_flow.h"

struct ask;
struct served_flow;

/* A call that the runtime has. */
struct served {
    struct served *next; /* of those that were refused */
    struct external *external;
    struct peer_request *request;
    struct rpc_client_call *call;
    uint64_t model;           /* as external_circuit_model says it */
    struct served_flow *flow; /* NULL: one message each way */
    uint32_t number;
    int64_t begun_ns;
    int64_t deadline_ns;
    struct error refusal; /* STATUS_OK: it was sent */
};

struct external {
    struct external_options options;
    char **targets;
    char *serving_target; /* NULL: where it is managed */
    struct driver *driver;
    struct rpc_queue *queue; /* of its thread */
    pthread_t thread;
    bool is_started;

    /* The thread's own. */
    struct rpc_client *candidate; /* that is being asked for its status, or was READY last */
    uint32_t target;
    bool is_polling;
    bool has_failed;
    bool was_told;  /* that it is not ready: once for each time that it is not */
    bool was_ready; /* once: then it is that target for good */
    bool was_seen;  /* the connection of the last READY, as the client says it */
    int64_t poll_at_ns;
    int64_t give_up_ns;
    struct error last;         /* why it is not READY */
    struct rpc_client *prober; /* to the address of calls, if that is another; NULL: not yet */
    bool is_probing;
    bool is_proven; /* while the circuit is open: what serves models has answered */
    bool is_asking; /* the probe is for a suspect, the circuit is closed */

    pthread_mutex_t lock; /* of what follows */
    bool is_closing;
    bool is_ready;
    bool is_known; /* the driver has heard that it is ready */
    uint64_t starts;
    bool predicts;
    bool is_cut;     /* the circuit has opened, and the thread has not seen to it */
    bool is_suspect; /* calls are not answered in time: the thread is to ask why */
    struct external_circuit circuit;
    char away[EXTERNAL_SAID_BYTES_MAX]; /* what it said when the circuit opened */
    struct external_status status;      /* of the last READY */
    struct rpc_client *management;      /* NULL: not ready */
    struct rpc_client **serving;        /* by queue; NULL: not ready yet */
    struct ask *again;                  /* to be asked anew, later */
    struct served *refused;             /* to be answered by the thread */
};

/* Pieces to be sent: at hand, unless they are many. */
struct external_list {
    struct rpc_piece at_hand[24];
    struct rpc_piece *at;
    size_t count;
    size_t room;
};

/* ---- external_probe.c ---- */

/* Locked. It answered UNAVAILABLE, to something that began then. */
void external_on_unavailable(struct external *external, uint64_t model, int64_t begun_ns,
                             const char *said);
/* Locked. A call's time has passed without an answer. */
void external_on_timeout(struct external *external, uint64_t model);
/* Locked. It answered a call with anything else. */
void external_on_answer(struct external *external);
/* Thread: does the rest of what opening the circuit means. */
void external_cut_off(struct external *external);
/* Thread: asks whether anything serves models. Returns false if there is no need to. */
bool external_probe(struct external *external);
/* Thread: the same of a suspect. */
void external_ask_suspect(struct external *external);
/* Locked, thread. The runtime is READY; returns true if that begins a trial. */
bool external_begin_trial(struct external *external);

/* ---- external.c ---- */

enum status external_client_create(const struct external *external, struct rpc_queue *queue,
                                   const char *target, struct rpc_client **client,
                                   struct error *error) WARN_UNUSED;
const char *external_target(const struct external *external);

/* ---- external_serve.c ---- */

/* Locked. A message of that request as the runtime wants it; `plan` and `model` must stay until it
 * was sent. The list is to be finished in any case. */
enum status external_list_make(struct external_list *list, const struct external_method *method,
                               const struct rpc_piece *pieces, size_t piece_count,
                               const char *model, struct id_inject *plan,
                               struct error *error) WARN_UNUSED;
void external_list_fini(struct external_list *list);
void external_on_end(void *context, const struct rpc_client_end *ended);

/* ---- external_flow.c: calls with a flow ---- */

/* Locked. Starts the request as a stream of that shape, and sends what waited for it. */
void external_flow_start(struct served *served, struct rpc_client *client,
                         struct rpc_client_request *request, enum peer_flow_shape shape,
                         const char *model);
/* The call has ended: what is held of the answer goes into the last word. True: some went before
 * it. */
bool external_flow_end(struct served_flow *flow, struct rpc_answer *answer);
void external_flow_free(struct served_flow *flow); /* NULL: nothing */

/* The thread answers those that were refused. */
void external_answer_refused(struct external *external);
