/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers the models that a node's configuration lists, once, when it starts: as soon as the
 * driver is ready, each as registerModel does it, or as setVModel does if it has a vmodel, all with
 * `loadNow` for those that are to be loaded; then their loads are waited for. So many at a time as
 * there are slots.
 *
 * Failures that may pass (etcd is away, no node has room) are tried again, at growing intervals,
 * without end. Others (another model of that name, a load that failed) end it, and `on_end` says
 * why.
 *
 * Loop thread.
 */
#pragma once

#include <stdbool.h>

#include "base/error.h"
#include "coordinator/loop/loop.h"
#include "coordinator/mesh/mesh_listed.h"
#include "mesh/edge/driver.h"

struct mesh_register;

struct mesh_register_options {
    struct loop *loop;
    struct driver *driver;
    const struct mesh_listed *listed; /* kept */
    const char *vmodel_owner;         /* kept; NULL: nobody */
    /* Once, unless it was stopped. STATUS_OK: all is registered. */
    void (*on_end)(void *context, const struct error *error);
    void *context;
};

struct mesh_register *mesh_register_start(const struct mesh_register_options *options);
/* Nothing is begun any more; before driver_close. NULL is left alone, as below; once more is
 * harmless. */
void mesh_register_stop(struct mesh_register *reg);
/* Stopped, and nothing that was posted to the loop is left to run. */
void mesh_register_destroy(struct mesh_register *reg);
