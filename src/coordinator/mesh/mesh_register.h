/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the listed models of a node once, at its start, as soon as the runner is ready: each
 * like registerModel, or like setVModel if it has a vmodel, with `loadNow` for those that are to be
 * loaded; then it waits for their loads. A fixed number of orders is under way at a time.
 *
 * Temporary failures (etcd is away, no node has room) are retried at growing intervals without end.
 * Others (another model of that name, a failed load) end it, and `on_end` says why.
 *
 * Loop thread.
 */
#pragma once

#include "base/error.h"
#include "coordinator/mesh/mesh_listed.h"
#include "loop/loop.h"
#include "mesh/edge/runner.h"

struct mesh_register;

struct mesh_register_options {
    struct loop *loop;
    struct mesh_runner *runner;
    const struct mesh_listed *listed; /* kept */
    const char *vmodel_owner;         /* kept; NULL: nobody */
    /* Called once, unless it was stopped. STATUS_OK: all is registered. */
    void (*on_end)(void *context, const struct error *error);
    void *context;
};

struct mesh_register *mesh_register_start(const struct mesh_register_options *options);
/* Begins no further orders; before runner_close. May be repeated. NULL is ignored, as below. */
void mesh_register_stop(struct mesh_register *reg);
/* Call after it was stopped and the loop has run everything posted. */
void mesh_register_destroy(struct mesh_register *reg);
