/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All that a node serves over HTTP: REST on one thread, metrics and probes on another, each service
 * with a pool of connections of its own, so that none can take another's time or connections.
 *
 * Threads. Everything here is called on the loop thread. All but web_create ignore NULL.
 */
#pragma once

#include "rpc/rpc.h"

#include <stdbool.h>

#include "coordinator/config/config.h"
#include "coordinator/front/rest.h"
#include "ipc/counters.h"

struct meters;
struct rpc_tls;
struct web;

struct web_options {
    struct front_node node;
    const struct counters *counters; /* the node's, created; they outlive it */
    const struct meters *meters;     /* printed with the metrics; NULL: none */
    struct rpc_tls *tls;             /* for addresses that have it; NULL: there is none */
};

/* REST alone, or metrics and probes, too. */
enum web_scope { WEB_REST, WEB_ALL };

/* Binds what is configured; what comes in waits until web_start. NULL in `web`: nothing is. */
enum status web_create(const struct web_options *options, struct web **web,
                       struct error *error) WARN_UNUSED;
/* `scope`: what waits if `accept` is RPC_ACCEPT_LATER. */
void web_start(struct web *web, enum rpc_accept accept, enum web_scope scope);
/* Begins to accept, after RPC_ACCEPT_LATER. Call after web_start. */
void web_accept(struct web *web);
/* Sets the readiness of REST and of probes. */
void web_set_ready(struct web *web, bool ready);
/* The loop turns: at least every other second. */
void web_beat(struct web *web);
/* Accepts no more connections (http_server_part). After web_start. */
void web_part(struct web *web, enum web_scope scope);
/* Returns whether REST does: each of its connections is counted. */
bool web_has_parted(const struct web *web);
/* The node has drained: answers the clients that wait at /prestop. */
void web_drained(struct web *web);
/* Call when all pipelines have stopped. REST takes no more requests, and those in flight have been
 * handed back. */
void web_stop(struct web *web);
/* Call after the last thread that answers has ended. */
void web_destroy(struct web *web);
