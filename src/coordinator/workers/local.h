/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where local clients come in: the socket of shm/local.h, and a session for each client that has
 * connected. A session brings its client a region of the lane that serves, and another one when a
 * reload has put another lane in its place; tells it which workers have died; and ends with the
 * client, with the node, or when too many workers died with something of its client's in hand.
 * Requests do not come this way. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/loop/loop.h"
#include "coordinator/pipeline/pipeline.h"

struct local;

/* Listens beside the file of counters, whose lock the caller has: what stands there under the name
 * of the socket is a dead node's, and is replaced. The pipelines stay the caller's. */
enum status local_create(struct loop *loop, const char *counters_path,
                         struct pipeline *const *pipelines, uint32_t pipeline_count,
                         struct local **local, struct error *error) WARN_UNUSED;
/* The pipelines drain: tells every client. */
void local_drain(struct local *local);
/* How many clients the node's end is to wait for: they have heard of it, and have not left yet, or
 * may still say that they have heard. */
uint32_t local_waits_for(const struct local *local);

/* When every pipeline has stopped. NULL is left alone. */
void local_destroy(struct local *local);
