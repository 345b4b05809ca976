/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loop of a thread: descriptors, timers, signals and work handed over by other threads. The one
 * place that knows libevent, beside http. Everything runs on the thread that calls loop_run, except
 * loop_post.
 */
#pragma once

#include <stdint.h>

#include "base/error.h"

struct loop;
struct loop_watch;
struct loop_timer;

struct event_base; /* libevent's */

enum status loop_create(struct loop **loop, struct error *error) WARN_UNUSED;
void loop_destroy(struct loop *loop);

/* Until loop_stop. */
void loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* Runs what was posted and not run yet: for the end, when no other thread posts any more. */
void loop_run_posted(struct loop *loop);

/* Calls `on_readable` whenever the descriptor is readable, until the watch is removed. */
struct loop_watch *loop_watch_add(struct loop *loop, int fd, void (*on_readable)(void *context),
                                  void *context);
/* Does not close the descriptor. NULL is left alone. */
void loop_watch_remove(struct loop_watch *watch);

/* A timer that is not set. `on_time` runs once per loop_timer_set. */
struct loop_timer *loop_timer_create(struct loop *loop, void (*on_time)(void *context),
                                     void *context);
void loop_timer_set(struct loop_timer *timer, int64_t timeout_ns);
void loop_timer_clear(struct loop_timer *timer);
void loop_timer_destroy(struct loop_timer *timer);

/* From any thread: has `work` run on the loop thread soon. Posts are run in order; what was posted
 * after the loop has stopped is not run. */
void loop_post(struct loop *loop, void (*work)(void *context), void *context);

/* For who builds on libevent too: HTTP. */
struct event_base *loop_base(struct loop *loop);
