/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probes of an orchestrator over HTTP: GET /ready (200, or 503), GET /live (200, or 500
 * when the loop thread has stood still for long), and, at an address of its own, GET /prestop,
 * which is answered when the node has drained, so that what stands beside it is not stopped before.
 *
 * Threads. The services run on the HTTP thread; the rest on the loop thread.
 */
#pragma once

#include <stdbool.h>

#include "http/server.h"

struct http_thread;
struct probes;

struct probes *probes_create(void);
/* Call after the HTTP server has ended. All of these functions ignore NULL. */
void probes_destroy(struct probes *probes);

struct http_service probes_service(struct probes *probes);
struct http_service probes_prestop_service(struct probes *probes);

void probes_set_ready(struct probes *probes, bool ready);
/* The loop turns: at least every other second. */
void probes_beat(struct probes *probes);
/* The node has drained: answers the clients that wait at /prestop. `thread` NULL: nobody can wait.
 */
void probes_drained(struct probes *probes, struct http_thread *thread);
