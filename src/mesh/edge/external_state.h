/* SPDX-License-Identifier: Apache-2.0 */
/* State shared by the parts of an external runtime: external.c has its life, external_loads.c its
 * models' loads, external_serve.c their calls, external_probe.c the detection of a dead model
 * server. */
#pragma once

#include <pthread.h>

#include "mesh/edge/external.h"
#include "mesh/edge/external_circuit.h"
#include "mesh/edge/external_wire.h"
#include "mesh/edge/id_inject.h"
#include "mesh/edge/peer_flow.h"

#define EXTERNAL_SERVICE "/mmesh.ModelRuntime/"

enum { EXTERNAL_REASON_BYTES = 512 };

struct external_ask;
struct served_flow;

/* The clients for calls of one runtime. Locked. */
struct external_serving {
    struct external_serving *next; /* of the former ones */
    uint64_t calls;                /* under way */
    bool is_former;
    struct rpc_client *clients[]; /* by queue */
};

/* A call at the runtime. */
struct served {
    struct served *next; /* list of refused ones */
    struct external *external;
    struct peer_request *request;
    struct external_serving *serving; /* NULL: it was refused */
    struct rpc_client_call *call;
    uint64_t model;           /* as external_circuit_model computes it */
    struct served_flow *flow; /* NULL: one message each way */
    uint32_t number;
    int64_t begun_ns;
    int64_t deadline_ns;
    char *infer_id;    /* of a ModelInfer whose caller takes pieces: the model's; NULL: another */
    bool is_cancelled; /* locked */
    struct error refusal; /* STATUS_OK: it was sent */
};

struct external {
    struct external_options options;
    char **targets;       /* options.target_count; home's, as the next one */
    char *serving_target; /* NULL: the management address */
    struct mesh_runner *runner;
    struct rpc_queue *home; /* the first queue; its thread does everything but calls */
    struct rpc_post wake;   /* external_wake */
    struct rpc_timer timer;

    /* Owned by that thread. */
    struct rpc_client *candidate; /* being asked for its status, or READY last */
    uint32_t target;
    bool is_polling;
    bool is_stale; /* the answer to the poll is of a runtime that was given up */
    bool has_failed;
    bool was_reported; /* logged that it is not ready, once each time */
    bool was_ready;    /* once READY, its target is final */
    bool is_run;       /* the node runs it: what it says wrong now may be over soon */
    bool was_seen;     /* the connection of the last READY, as the client reports */
    int64_t poll_at_ns;
    int64_t give_up_ns;
    struct error last;         /* why it is not READY */
    struct rpc_client *prober; /* to the address of calls, if separate; NULL: not yet */
    bool is_probing;
    bool is_proven; /* while the circuit is open: the model server has answered */
    bool is_asking; /* the probe is for a suspect; the circuit is closed */

    pthread_mutex_t lock; /* of the fields below */
    bool is_closing;
    bool is_ready;
    bool is_known; /* the runner knows that it is ready */
    uint64_t starts;
    bool predicts;
    bool is_cut;              /* the circuit has opened; home must act */
    bool is_suspect;          /* calls time out; home must ask why */
    bool fetches;             /* models' files are fetched */
    uint32_t model_calls_max; /* as in external_aim */
    bool translates;          /* requests go to the translator */
    bool is_aimed;            /* `aim` is to be taken over */
    struct external_aim aim;
    char why[EXTERNAL_SAID_BYTES_MAX];
    struct external_circuit circuit;
    char away[EXTERNAL_SAID_BYTES_MAX]; /* its text when the circuit opened */
    struct external_status status;      /* of the last READY */
    struct rpc_client *management;      /* NULL: not ready */
    struct external_serving *serving;   /* NULL: not ready yet */
    struct external_serving *former;    /* with calls under way */
    struct external_ask *again;         /* to be asked again later */
    struct external_ask *waiting;       /* to be loaded, in order (external_loads.c) */
    uint32_t waiting_count;
    uint32_t loading;       /* loadModel under way */
    struct served *refused; /* to be answered at home */
};

/* Pieces to send, inline unless there are many. */
struct external_list {
    struct rpc_piece at_hand[24];
    struct rpc_piece *at;
    size_t count;
    size_t room;
};

/* ---- external_loads.c ---- */

/* "CODE: the runtime's text" */
const char *external_reason(const struct rpc_client_end *end, char reason[EXTERNAL_REASON_BYTES]);
/* Ends those that wait: the runner knows that the runtime is lost. */
void external_loads_refuse(struct external *external);
/* Home: ends loads that waited too long, repeats unloads; returns when the next is due. */
int64_t external_asks_due(struct external *external);

/* ---- external_probe.c ---- */

/* Locked. It answered UNAVAILABLE to something that began at `begun_ns`. */
void external_on_unavailable(struct external *external, uint64_t model, int64_t begun_ns,
                             const char *said);
/* Locked. A call passed its deadline without an answer. */
void external_on_timeout(struct external *external, uint64_t model);
/* Locked. It answered a call with anything else. */
void external_on_answer(struct external *external);
/* Home: completes the opening of the circuit. */
void external_cut_off(struct external *external);
/* Home: asks whether the model server lives. Returns false if there is no need to. */
bool external_probe(struct external *external);
/* Home: the same for a suspect. */
void external_ask_suspect(struct external *external);
/* Locked, home. The runtime is READY; returns true if that begins a trial. */
bool external_begin_trial(struct external *external);

/* ---- external_translate.c ---- */

/* Locked. Sends a request of mmesh.ModelRuntime, translated if need be. */
void external_request(struct external *external, struct rpc_client *client,
                      const struct rpc_client_request *request);
/* Locked. The runtime's name of a model; `name` may hold it. */
const char *external_name(const struct external *external, const char *id,
                          char name[EXTERNAL_NAME_BYTES]);
/* ---- external_aim.c ---- */

/* Home: switches to the runtime that external_aim has named last, if that is news. */
void external_turn(struct external *external);
/* Home: keeps the text of external->last for external_look; NULL: it is ready. */
void external_notify(struct external *external, const char *why);
void external_aim_free(struct external_aim *aim);

/* ---- external_serving.c: locked ---- */

/* Creates the client for calls to the READY target. */
enum status external_serving_create(struct external *external, struct error *error) WARN_UNUSED;
/* No call begins there any more. */
void external_serving_leave(struct external *external);
/* A call has ended. True: it was the last one at a former runtime. */
bool external_serving_ended(struct external *external, struct external_serving *serving);
/* Ends all calls. */
void external_serving_close(struct external *external);

/* ---- external.c ---- */

struct rpc_client_options external_client_options(const struct external *external,
                                                  struct rpc_queue *queue, const char *target);
/* Any thread, also locked: home runs due work. */
void external_wake(struct external *external);
/* Home: runs due work. */
void external_step(struct external *external);
/* A client on home's queue. */
enum status external_home_client(struct external *external, const char *target,
                                 struct rpc_client **client, struct error *error) WARN_UNUSED;
const char *external_target(const struct external *external);

/* ---- external_message.c ---- */

/* Kept pieces of a message; NULL: there is none. */
struct external_pieces {
    const struct rpc_piece *at;
    size_t count;
};

/* Locked. A message of that request in the runtime's form; `plan` and `model` must stay until it
 * was sent. Finish the list in any case. */
enum status external_list_make(struct external_list *list, const struct external_method *method,
                               const struct external_pieces *from, const char *model,
                               struct id_inject *plan, struct error *error) WARN_UNUSED;
void external_list_fini(struct external_list *list);

/* ---- external_serve.c ---- */

void external_on_end(void *context, const struct rpc_client_end *ended);

/* ---- external_flow.c: calls with a flow ---- */

/* Locked. Starts the request as a stream of that shape and sends the messages that wait. */
void external_flow_start(struct served *served, struct rpc_client *client,
                         struct rpc_client_request *request, enum peer_flow_shape shape,
                         const char *model);
/* The call has ended: moves what is held of the answer into its end. True: parts were passed on
 * before. */
bool external_flow_end(struct served_flow *flow, struct rpc_answer *answer);
void external_flow_free(struct served_flow *flow); /* NULL is ignored. */

/* Home: answers refused calls. */
void external_answer_refused(struct external *external);
