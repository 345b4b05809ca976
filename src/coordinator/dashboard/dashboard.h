/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dashboard: a web page for operators at the addresses of `dashboard`, on an HTTP thread of its
 * own. DESIGN.md.
 *
 * Threads. Everything here is called on the loop thread. NULL is ignored by all but
 * dashboard_create.
 */
#pragma once

#include "coordinator/config/config.h"
#include "coordinator/dashboard/asks.h"
#include "coordinator/front/rest.h"
#include "ipc/counters.h"

struct dashboard;
struct meters;
struct rpc_tls;

struct dashboard_options {
    const struct counters *counters; /* the node's, created; they outlive it */
    const struct meters *meters;     /* of the mesh; NULL: none */
    struct front_node node;
    struct rpc_tls *tls;       /* for addresses that have it; NULL: there is none */
    struct asks_options lists; /* without the thread */
};

/* Binds the configured addresses; what comes in waits until dashboard_start. NULL in
 * `dashboard`: there is no `dashboard`. */
enum status dashboard_create(const struct dashboard_options *options, struct dashboard **dashboard,
                             struct error *error) WARN_UNUSED;
void dashboard_start(struct dashboard *dashboard, enum rpc_accept accept);
/* Begins to accept, after RPC_ACCEPT_LATER. */
void dashboard_accept(struct dashboard *dashboard);
/* Sets readiness, like web_set_ready(). */
void dashboard_set_ready(struct dashboard *dashboard, bool ready);
/* Like web_part(): pages reconnect to the process that accepts next. After dashboard_start. */
void dashboard_part(struct dashboard *dashboard);
/* Like web_stop(): its form calls no more models, and no page stays open. */
void dashboard_stop(struct dashboard *dashboard);
/* Like web_destroy(). */
void dashboard_destroy(struct dashboard *dashboard);
