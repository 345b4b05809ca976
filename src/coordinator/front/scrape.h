/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server at the addresses of `metrics`: GET /metrics, and a line at / that says so. A look at
 * it is a look at the file of counters, as any reader's: it stops nobody, and a worker or thread
 * that hangs does not hold it up. HTTP thread.
 */
#pragma once

#include "http/server.h"
#include "ipc/counters.h"

struct meters;
struct scrape;

/* `counters` are the node's, created, and outlive it, as `meters` do (NULL: none). */
struct scrape *scrape_create(const struct counters *counters, const struct meters *meters);
/* Call after the HTTP server has ended. NULL is ignored. */
void scrape_destroy(struct scrape *scrape);

struct http_service scrape_service(struct scrape *scrape);
