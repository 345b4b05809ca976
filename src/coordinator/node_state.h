/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a node, for the files of its life: node.c (start, readiness), node_stop.c (drain and
 * end), node_upgrade.c (a successor, a predecessor). Loop thread.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "coordinator/assembly.h"
#include "coordinator/config/certificates.h"
#include "coordinator/config/config.h"
#include "coordinator/dashboard/dashboard.h"
#include "coordinator/front/front.h"
#include "coordinator/front/web.h"
#include "coordinator/greeting.h"
#include "coordinator/loop/control.h"
#include "coordinator/loop/drains.h"
#include "coordinator/loop/service_manager.h"
#include "coordinator/mesh/mesh_node.h"
#include "coordinator/models/directories.h"
#include "coordinator/models/runtime.h"
#include "coordinator/node.h"
#include "coordinator/pipeline/share.h"
#include "coordinator/reload.h"
#include "coordinator/upgrade.h"
#include "coordinator/workers/local.h"
#include "loop/loop.h"

enum { NODE_EXIT_CLEAN = 0, NODE_EXIT_SIGNALLED = 128, NODE_LOOK_MS = 5 };

enum node_phase { PHASE_STARTING, PHASE_SERVING, PHASE_DRAINING, PHASE_STOPPING };

struct coordinator_node {
    const struct node_options *options;
    struct config_source *source; /* of the start, whose addresses, threads and limits stay */
    struct certificates certificates;
    struct loop *loop;
    struct assembly assembly;
    struct front *front;
    struct runtime *runtime; /* NULL: mmesh.ModelRuntime is not served */
    struct mesh_node *mesh;  /* NULL: the node is of no mesh */
    struct tracer *tracer;   /* NULL: nothing is traced */
    struct control *control;
    struct model_orders *model_orders;
    struct repository *repository;
    struct model_directories *directories;
    struct local_clients *local;
    struct web *web;             /* NULL: nothing is to be served over HTTP */
    struct dashboard *dashboard; /* NULL: there is none */
    struct share_key share_key;
    uint32_t serving_count;
    uint32_t stopped_count;
    enum node_phase phase;
    int exit_code;
    int64_t drain_deadline_ns;
    int64_t hang_up_deadline_ns; /* 0: it has not drained */
    int64_t mesh_deadline_ns;    /* models move to other nodes until then, at most; 0: none do */
    int64_t part_deadline_ns;    /* clients are asked to reconnect until then; 0: they are not */
    bool hands_over;             /* to a process that accepts from our sockets: calls are served */
    pid_t successor;             /* of an upgrade; 0: none */
    int64_t seen_deadline_ns;    /* the mesh is to hear of it until then; 0: it need not */
    int64_t fill_deadline_ns;    /* it gets models first until then; 0: it need not */
    bool left_copies;            /* and then some had not */
    struct drains drains;        /* its clients */
    bool accepts;                /* the front, connections */
    bool has_accepted;           /* callers that waited until they were served */
    struct upgrade *upgrade;     /* the process that is to take this one's place */
    enum log_level log_level;
    struct reloads reloads;
    struct greeting greeting;
    struct service_manager manager; /* systemd, where that has started the node */
    struct loop_timer *publish_timer;
    struct loop_timer *drain_timer;
    struct loop_timer *mesh_timer; /* until its registry is read; until the loop may end */
};

/* ---- node.c ---- */

/* Returns whether calls are served, as far as the node's life is concerned. */
bool node_is_serving(const struct coordinator_node *node);
/* The set of served pipelines or models may have changed. */
void node_update_ready(struct coordinator_node *node);
void node_update_runtime(struct coordinator_node *node);
/* Ends with exit code 2, unless it stops already. */
void node_refuse_to_start(void *context, const struct error *error);

/* ---- node_stop.c ---- */

/* Takes no more calls, and ends when those in flight have finished; with a successor, serves until
 * its models and callers have moved. Does nothing in a node that drains or stops. */
void node_drain(struct coordinator_node *node, const char *why);
/* Ends without waiting for anything in flight. */
void node_stop(struct coordinator_node *node);
/* Call when the node is asked to end a second time: also kills the workers. */
void node_stop_at_once(struct coordinator_node *node, int number);
/* A timer's: looks at what the drain waits for. */
void node_on_drain_look(void *context);
/* Stops the loop if nothing is left that needs it, or looks again. Call while the node stops. */
void node_end_if_done(struct coordinator_node *node);

/* ---- node_upgrade.c ---- */

/* Returns whether connections wait in the sockets until this node is ready. */
enum rpc_accept node_accept_when(const struct coordinator_node *node);
/* Returns whether our sockets outlive us, and connections are left in them at our end. */
bool node_has_successor(const struct coordinator_node *node);
/* Accepts the connections that wait; once. */
void node_accept(struct coordinator_node *node);
/* Watches for the predecessor's end, or is without one. */
void node_watch_predecessor(struct coordinator_node *node);
struct upgrade *node_create_upgrade(struct coordinator_node *node);
/* Carries out or refuses a CONTROL_UPGRADE. */
void node_take_upgrade(struct coordinator_node *node, const struct control_request *request,
                       struct control_call *call);
