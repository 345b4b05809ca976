/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The socket for local clients (ipc/local.h), and a session for each connected client. A session
 * gives its client a region of the serving lane, and a new one when a reload replaces that lane;
 * reports to it which workers have died; and ends with the client, with the node, or when too many
 * workers died while they held its client's items. Requests do not come this way. Loop thread.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"
#include "coordinator/pipeline/pipeline.h"
#include "loop/loop.h"

struct local_clients;

/* Listens beside the counters file, or takes a predecessor's socket there; clients wait until
 * local_accept. The caller holds that file's lock, so another socket there belongs to a dead node
 * and is replaced. The pipelines stay the caller's. */
enum status local_create(struct loop *loop, const char *counters_path,
                         struct pipeline *const *pipelines, uint32_t pipeline_count,
                         struct local_clients **local, struct error *error) WARN_UNUSED;
void local_accept(struct local_clients *local);
/* Leaves new clients to the process that accepts from the same socket. */
void local_part(struct local_clients *local);
/* Notifies every client that the pipelines drain. */
void local_drain(struct local_clients *local);
/* The clients that the node's end waits for: they were notified of it and have not left yet, or may
 * still confirm it. */
uint32_t local_waits_for(const struct local_clients *local);

/* Call after every pipeline has stopped. NULL is ignored. */
void local_destroy(struct local_clients *local);
