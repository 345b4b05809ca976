/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that runs an HTTP server (http/server.h) on a loop of its own. The node has two: one for
 * REST, and one for metrics and probes, which no request of REST can hold up.
 *
 * Threads. Handlers run on the HTTP thread. Work of other threads (an answer that came out of a
 * ring) is handed over with http_thread_post; it, http_thread_accept and http_thread_part may be
 * called on any thread.
 */
#pragma once

#include <stdbool.h>

#include "http/server.h"
#include "ipc/counters.h"

struct http_thread;
struct loop;

/* `name` is the thread's, 15 bytes at most. */
enum status http_thread_create(const char *name, struct http_thread **thread,
                               struct error *error) WARN_UNUSED;
/* Pools and listeners are added to it before the start. */
struct http_server *http_thread_server(struct http_thread *thread);
void http_thread_start(struct http_thread *thread);
/* Ends the thread, if it was started, and closes everything: answers that are on their way have a
 * second. Nobody may post or answer any more. NULL is ignored. */
void http_thread_destroy(struct http_thread *thread);

/* Has `work` run on the HTTP thread soon, in order. */
void http_thread_post(struct http_thread *thread, void (*work)(void *context), void *context);
/* Soon, after the start: http_listeners_resume, http_server_part. */
void http_thread_accept(struct http_thread *thread);
void http_thread_part(struct http_thread *thread);
/* Returns whether it accepts no more: each connection that it has accepted is counted. Any
 * thread. */
bool http_thread_has_parted(const struct http_thread *thread);
/* The HTTP thread's loop, for timers. */
struct loop *http_thread_loop(struct http_thread *thread);

/* The callback of http_pool_options: counts in the node's counters, which are the context. */
void http_thread_count(void *counters, enum http_figure figure, int64_t by);
