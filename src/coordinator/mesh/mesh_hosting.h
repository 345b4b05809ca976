/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs one of the mesh's ServingRuntimes on this node: chooses it, claims a replica, starts its
 * containers, makes it the node's external runtime, and reports on it (serving/runtimes/DESIGN.md,
 * rules N).
 *
 * Loop thread.
 */
#pragma once

#include <stdbool.h>

#include "coordinator/config/config.h"
#include "loop/loop.h"
#include "mesh/edge/external.h"
#include "serving/leader/leader.h"

struct mesh_hosting;
struct mesh_repository;

struct mesh_hosting_options {
    const struct config *config;
    struct loop *loop;
    struct external *external;
    struct mesh_repository *repository;
    struct mesh_runner *runner;
    struct serving_leader *leader;
    const char *address;        /* "HOST:PORT"; "": none */
    _Atomic uint64_t *counters; /* of the node */
    const char *worker_program;
};

struct mesh_hosting *mesh_hosting_create(const struct mesh_hosting_options *options);
/* Looks soon: something has changed. NULL is ignored, as by the next ones. */
void mesh_hosting_touch(struct mesh_hosting *hosting);
/* Chooses no more, and ends the containers. May be repeated. */
void mesh_hosting_stop(struct mesh_hosting *hosting);
bool mesh_hosting_is_running(const struct mesh_hosting *hosting);
void mesh_hosting_kill(struct mesh_hosting *hosting);
void mesh_hosting_destroy(struct mesh_hosting *hosting);
