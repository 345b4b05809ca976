/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of an external runtime share: external.c has its life and its loads,
 * external_serve.c the calls of its models. */
#pragma once

#include <pthread.h>

#include "mesh/edge/external.h"
#include "mesh/edge/external_wire.h"

struct ask;
struct served;

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
    struct error last; /* why it is not READY */

    pthread_mutex_t lock; /* of what follows */
    bool is_closing;
    bool is_ready;
    uint64_t starts;
    bool predicts;
    struct external_status status; /* of the last READY */
    struct rpc_client *management; /* NULL: not ready */
    struct rpc_client **serving;   /* by queue; NULL: not ready yet */
    struct ask *again;             /* to be asked anew, later */
    struct served *refused;        /* to be answered by the thread */
};

/* external_serve.c: the thread answers those that were refused. */
void external_answer_refused(struct external *external);
